/* Fuzz target of the `.pps` reader: any bytes. What is accepted must print to text that is accepted and prints the
 * same. */
#include "messages.h"

#include "ir/program_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

/* The printed program, or NULL when there were errors. */
static char *read_and_print(struct pp_arena *arena, const char *text, size_t length, size_t *printed_length)
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
	FILE *out = open_memstream(&printed, printed_length);
	if (!out)
		abort();
	pp_program_print(program, out);
	fclose(out);
	return printed;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	size_t once_length = 0, twice_length = 0;
	char *once = read_and_print(arena, pp_arena_copy(arena, (const char *)bytes, length), length, &once_length);
	if (once) {
		char *twice = read_and_print(arena, once, once_length, &twice_length);
		if (!twice || twice_length != once_length || memcmp(once, twice, once_length) != 0)
			abort();
		free(twice);
	}
	free(once);
	pp_arena_destroy(arena);
	return 0;
}
