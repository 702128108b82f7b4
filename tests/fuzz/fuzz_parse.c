/* Fuzz target of the grammar: any bytes. What is accepted must print to text that is accepted and prints the same. */
#include "messages.h"
#include "round_trip.h"

#include "grammar/ast.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

/* The printed tree, or NULL when there were errors. */
static char *parse_and_print(struct pp_arena *arena, const char *text, size_t length, size_t *printed_length)
{
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	const struct pp_source *source = pp_sources_add(sources, "fuzz.pipe", text, length);
	if (!source)
		abort();
	struct pp_ast *ast = pp_parse(arena, pp_strtab_create(arena), source, diag);
	char *printed = NULL;
	FILE *out = open_print(&printed, printed_length);
	pp_ast_print(ast, out);
	fclose(out);
	print_messages(diag);
	if (pp_diag_ok(diag))
		return printed;
	free(printed);
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	must_print_alike(arena, parse_and_print, parse_and_print, pp_arena_copy(arena, (const char *)bytes, length),
	                 length);
	pp_arena_destroy(arena);
	return 0;
}
