/* Fuzz target of the front end: any bytes through grammar and resolver. What is accepted has a spec that prints; a
 * refusal says why. */
#include "messages.h"
#include "round_trip.h"

#include "compiler/library.h"
#include "compiler/resolve.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static void print(const struct pp_spec *spec)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_print(&text, &length);
	pp_spec_print(spec, out);
	fclose(out);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_strtab *strings = pp_strtab_create(arena);
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	const struct pp_source *source =
	    pp_sources_add(sources, "fuzz.pipe", pp_arena_copy(arena, (const char *)bytes, length), length);
	const struct pp_ast *ast = source ? pp_parse(arena, strings, source, diag) : NULL;
	if (ast && pp_diag_ok(diag)) {
		struct pp_resolve_options options = {.shipped = pp_library, .shipped_count = pp_library_count};
		struct pp_resolved resolved;
		bool ok = pp_resolve(arena, strings, sources, ast, &options, diag, &resolved);
		if (ok != pp_diag_ok(diag))
			abort();
		print_messages(diag);
		if (ok)
			print(&resolved.spec);
	}
	pp_arena_destroy(arena);
	return 0;
}
