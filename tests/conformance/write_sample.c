/* Prints a hand-built program as text: write_sample RANKS CHUNKS MICROBATCHES ELEMENTS. For scripts that run piperun.
 */
#include "support/sample_program.h"

#include "ir/program_text.h"

#include <stdlib.h>

static uint32_t number(const char *text)
{
	return (uint32_t)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_sample sample = {.ranks = number(argv[1]),
	                           .chunks = number(argv[2]),
	                           .microbatches = number(argv[3]),
	                           .out_count = number(argv[4])};
	pp_program_print(pp_sample_program(arena, &sample), stdout);
	pp_arena_destroy(arena);
	return 0;
}
