/* Transports on devices' memory before the judge of transports: argument: name of the world, number of ranks. */
#include "gpu_worlds.h"

#include "support/conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	const struct pp_test_world *const worlds[] = {
	    &pp_test_world_cuda, &pp_test_world_staged_loop, &pp_test_world_staged_local, &pp_test_world_direct,
#ifdef PP_HAVE_NCCL
	    &pp_test_world_nccl,
#endif
	};
	for (size_t i = 0; argc == 3 && i < sizeof worlds / sizeof *worlds; i++)
		if (strcmp(worlds[i]->name, argv[1]) == 0)
			return pp_conformance_collectives(worlds[i], (uint32_t)strtoul(argv[2], NULL, 10)) != 0;
	fprintf(stderr, "usage: %s WORLD RANKS\n", argv[0]);
	return 2;
}
