/* Finding what ships inside the compiler. */
#include "library.h"

#include <assert.h>
#include <string.h>

const struct pp_stmt *pp_library_schedule(struct pp_arena *arena, struct pp_strtab *strings, struct pp_sources *sources,
                                          struct pp_diag *diag, const char *name)
{
	const struct pp_library_file *file = NULL;
	for (size_t i = 0; i < pp_library_count; i++) {
		if (strcmp(pp_library[i].path, "lib/schedules.pipe") == 0)
			file = &pp_library[i];
	}
	assert(file);
	const struct pp_source *source =
	    pp_sources_add(sources, "<library>/lib/schedules.pipe", file->text, strlen(file->text));
	if (!source)
		return NULL;
	const struct pp_ast *ast = pp_parse(arena, strings, source, diag);
	for (const struct pp_stmt *stmt = ast->first; stmt; stmt = stmt->next) {
		if (stmt->kind == PP_STMT_BLOCK && stmt->label.text && strcmp(stmt->label.text, name) == 0)
			return stmt;
	}
	return NULL;
}
