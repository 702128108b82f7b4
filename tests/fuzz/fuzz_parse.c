/* Fuzz target of the grammar: any bytes. What is accepted must print to text that is accepted and prints the same. */
#include "messages.h"

#include "grammar/ast.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static char *print(const struct pp_ast *ast, size_t *length)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, length);
	if (!out)
		abort();
	pp_ast_print(ast, out);
	fclose(out);
	return text;
}

/* The printed tree, or NULL when there were errors. */
static char *parse_and_print(struct pp_arena *arena, const char *text, size_t length, size_t *printed_length)
{
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	const struct pp_source *source = pp_sources_add(sources, "fuzz.pipe", text, length);
	if (!source)
		abort();
	struct pp_ast *ast = pp_parse(arena, pp_strtab_create(arena), source, diag);
	char *printed = print(ast, printed_length);
	print_messages(diag);
	if (pp_diag_ok(diag))
		return printed;
	free(printed);
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	size_t once_length = 0, twice_length = 0;
	char *once = parse_and_print(arena, pp_arena_copy(arena, (const char *)bytes, length), length, &once_length);
	if (once) {
		char *twice = parse_and_print(arena, once, once_length, &twice_length);
		if (!twice || twice_length != once_length || memcmp(once, twice, once_length) != 0)
			abort();
		free(twice);
	}
	free(once);
	pp_arena_destroy(arena);
	return 0;
}
