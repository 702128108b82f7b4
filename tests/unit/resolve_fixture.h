/* One text parsed and resolved, with everything that belongs to it in one arena. A first line of the form
 * `# options: -D a=1 --set train.microbatch=2 --schedule mine -I folder` is obeyed. */
#ifndef PP_RESOLVE_FIXTURE_H
#define PP_RESOLVE_FIXTURE_H

#include "compiler/library.h"
#include "compiler/resolve.h"
#include "parse_fixture.h"

enum { MOST_OPTIONS = 8 };

struct resolved {
	struct parsed parsed;
	struct pp_resolved out;
	bool ok;
};

struct option_lists {
	const char *defines[MOST_OPTIONS], *sets[MOST_OPTIONS], *folders[MOST_OPTIONS];
	struct pp_resolve_options options;
};

static inline void read_options(struct pp_arena *arena, const char *text, struct option_lists *lists)
{
	static const char mark[] = "# options:";
	*lists = (struct option_lists){0};
	if (strncmp(text, mark, strlen(mark)) == 0) {
		char *line = pp_arena_copy(arena, text + strlen(mark), strcspn(text, "\n") - strlen(mark)), *rest = NULL;
		for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
			char *value = strtok_r(NULL, " ", &rest);
			assert_non_null(value);
			if (strcmp(word, "-D") == 0)
				lists->defines[lists->options.define_count++] = value;
			else if (strcmp(word, "--set") == 0)
				lists->sets[lists->options.set_count++] = value;
			else if (strcmp(word, "-I") == 0)
				lists->folders[lists->options.folder_count++] = value;
			else if (strcmp(word, "--schedule") == 0)
				lists->options.schedule = value;
			else
				fail_msg("unknown option %s", word);
		}
	}
	lists->options.shipped = pp_library;
	lists->options.shipped_count = pp_library_count;
	lists->options.defines = lists->defines;
	lists->options.sets = lists->sets;
	lists->options.folders = lists->folders;
}

static inline struct resolved resolve_named(const char *name, const char *text)
{
	struct resolved r = {.parsed = parse_bytes(name, text, strlen(text))};
	struct option_lists lists;
	read_options(r.parsed.arena, text, &lists);
	if (pp_diag_ok(r.parsed.diag))
		r.ok = pp_resolve(r.parsed.arena, r.parsed.strings, r.parsed.sources, r.parsed.ast, &lists.options,
		                  r.parsed.diag, &r.out);
	return r;
}

static inline struct resolved resolve_text(const char *text)
{
	return resolve_named("x.pipe", text);
}

static inline const char *spec_text(struct resolved *r)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_spec_print(&r->out.spec, out);
	fclose(out);
	const char *copy = pp_arena_copy(r->parsed.arena, text, length);
	free(text);
	return copy;
}

static inline void resolved_free(struct resolved *r)
{
	parsed_free(&r->parsed);
}

#endif
