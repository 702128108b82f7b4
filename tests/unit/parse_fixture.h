/* One text parsed, with everything that belongs to it in one arena. */
#ifndef PP_PARSE_FIXTURE_H
#define PP_PARSE_FIXTURE_H

#include "golden.h"
#include "grammar/ast.h"

struct parsed {
	struct pp_arena *arena;
	struct pp_sources *sources;
	struct pp_strtab *strings;
	struct pp_diag *diag;
	struct pp_ast *ast;
};

static inline struct parsed parse_bytes(const char *name, const char *text, size_t length)
{
	struct parsed p = {.arena = pp_arena_create(NULL)};
	p.sources = pp_sources_create(p.arena);
	p.strings = pp_strtab_create(p.arena);
	p.diag = pp_diag_create(p.arena, p.sources);
	const struct pp_source *source = pp_sources_add(p.sources, name, text, length);
	assert_non_null(source);
	p.ast = pp_parse(p.arena, p.strings, source, p.diag);
	assert_non_null(p.ast);
	return p;
}

static inline struct parsed parse_text(const char *text)
{
	return parse_bytes("x.pipe", text, strlen(text));
}

static inline void parsed_free(struct parsed *p)
{
	pp_arena_destroy(p->arena);
}

/* Canonical text of the tree, in its arena. */
static inline const char *tree_text(const struct parsed *p)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_ast_print(p->ast, out);
	fclose(out);
	const char *copy = pp_arena_copy(p->arena, text, length);
	free(text);
	return copy;
}

/* All messages, in its arena. */
static inline const char *messages_text(const struct parsed *p, enum pp_diag_format format)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(p->diag, out, format, false);
	fclose(out);
	const char *copy = pp_arena_copy(p->arena, text, length);
	free(text);
	return copy;
}

#endif
