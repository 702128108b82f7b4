/* Fuzz target of the verifier and the simulator: any program text or image that a reader accepts gets a verdict; what
 * is proven finishes in every layout that it is proven for, not before its bound. */
#include "messages.h"

#include "ir/image.h"
#include "ir/program_text.h"
#include "ir/simulate.h"
#include "ir/verify.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static void must_finish(struct pp_arena *arena, const struct pp_program *program, uint32_t layouts)
{
	for (uint32_t i = 0; i < program->program_count; i++)
		for (int layout = 0; layout < PP_LAYOUT_COUNT; layout++) {
			struct pp_sim sim;
			if (!(layouts >> layout & 1))
				continue;
			if (!pp_simulate(arena, program, &program->programs[i], (enum pp_layout)layout, true, &sim) ||
			    sim.bound.makespan > sim.makespan)
				abort();
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	char *copy = pp_arena_copy(arena, (const char *)bytes, length);
	struct pp_status status = {0};
	const struct pp_program *program =
	    pp_image_magic((unsigned char *)copy, length)
	        ? pp_image_read(arena, "fuzz.ppx", (unsigned char *)copy, length, &status)
	        : pp_program_read(arena, pp_sources_add(sources, "fuzz.pps", copy, length), diag);
	struct pp_stamp stamp;
	if (program) {
		bool good = pp_verify(program, &stamp, diag);
		if (good != pp_diag_ok(diag) || good != stamp.proven)
			abort();
		print_messages(diag);
		if (good)
			must_finish(arena, program, stamp.layouts);
	}
	pp_arena_destroy(arena);
	return 0;
}
