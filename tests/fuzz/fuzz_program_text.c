/* Fuzz target of the `.pps` reader: any bytes. What is accepted must print to text that is accepted and prints the
 * same. */
#include "messages.h"
#include "round_trip.h"

#include "ir/program_text.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static char *print_program(struct pp_arena *arena, const char *text, size_t length, size_t *printed_length)
{
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	struct pp_program *program = pp_program_read(arena, pp_sources_add(sources, "fuzz.pps", text, length), diag);
	print_messages(diag);
	if (!program != !pp_diag_ok(diag))
		abort();
	if (!program)
		return NULL;
	char *printed = NULL;
	FILE *out = open_print(&printed, printed_length);
	pp_program_print(program, out);
	fclose(out);
	return printed;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	must_print_alike(arena, print_program, print_program, pp_arena_copy(arena, (const char *)bytes, length), length);
	pp_arena_destroy(arena);
	return 0;
}
