/* Reading program files.
 *
 * Ensures: a file that is no program gets a message that says what it seems to be. */
#include "program_file.h"

#include "csv.h"
#include "file.h"
#include "hash.h"
#include "image.h"
#include "program_text.h"

#include <ctype.h>
#include <string.h>

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* A word of the language, then a brace or a name, within the first lines. */
static bool is_spec(const char *text)
{
	static const char *const blocks[] = {"model", "cluster", "parallel", "stages", "schedule", "train", "param",
	                                     "let",   "import",  "layer",    "run",    "node",     "gpu"};
	while (*text) {
		text += strspn(text, " \t\r\n");
		for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
			size_t length = strlen(blocks[i]);
			if (begins(text, blocks[i]) && strchr(" \t{\"\n", text[length]) && text[length])
				return true;
		}
		if (*text != '#')
			return false;
		text += strcspn(text, "\n");
	}
	return false;
}

static bool is_binary(const char *text, size_t length)
{
	for (size_t i = 0; i < length && i < 4096; i++)
		if ((unsigned char)text[i] < ' ' && !strchr("\t\r\n\f", text[i]))
			return true;
	return false;
}

static bool fail_as_other(const char *path, const char *text, size_t length, struct pp_status *status)
{
	static const enum pp_exit code = PP_EXIT_ENVIRONMENT;
	if (length == 0)
		return pp_fail(status, code, "%s is empty", path);
	if (begins(text, "\177ELF"))
		return pp_fail(status, code, "%s is an executable, not a program image", path);
	if (begins(text, "\037\213"))
		return pp_fail(status, code, "%s is compressed with gzip; unpack it first", path);
	if (is_binary(text, length))
		return pp_fail(status, code, "%s holds binary data, but not a program image: an image begins with PPX1", path);
	if (text[strspn(text, " \t\r\n")] == '{')
		return pp_fail(status, code, "%s looks like JSON, not a program (.ppx or .pps)", path);
	if (pp_csv_looks_like(text, length))
		return pp_fail(status, code,
		               "%s looks like a schedule in CSV, not a program (.ppx or .pps); `pipec import csv` makes a "
		               "schedule of a spec from it",
		               path);
	if (is_spec(text))
		return pp_fail(status, code, "%s looks like a .pipe spec, not a program; compile it first: pipec build %s",
		               path, path);
	return pp_fail(status, code, "%s holds text, but not a program: the first line of a .pps file is `pps 1`", path);
}

/* The first word, after blank lines and comments, is `pps`. */
static bool is_program_text(const char *text)
{
	for (;;) {
		text += strspn(text, " \t\r\n");
		if (*text != ';')
			return begins(text, "pps") && (text[3] == '\0' || isspace((unsigned char)text[3]));
		text += strcspn(text, "\n");
	}
}

enum pp_content pp_content_of(const char *text, size_t length)
{
	if (pp_image_magic((const unsigned char *)text, length))
		return PP_CONTENT_IMAGE;
	return is_program_text(text) ? PP_CONTENT_PROGRAM_TEXT : PP_CONTENT_OTHER;
}

static bool load_image(struct pp_arena *arena, const char *path, const char *text, size_t length,
                       struct pp_loaded *loaded, struct pp_status *status)
{
	const unsigned char *bytes = (const unsigned char *)text;
	loaded->program = pp_image_read(arena, path, bytes, length, status);
	loaded->hash = pp_image_hash(bytes, length);
	return loaded->program != NULL;
}

static bool load_text(struct pp_arena *arena, struct pp_sources *sources, const char *path, const char *text,
                      size_t length, struct pp_loaded *loaded, struct pp_status *status)
{
	const char *name = strcmp(path, "-") == 0 ? "<stdin>" : path;
	const struct pp_source *source = pp_sources_add(sources, name, text, length);
	if (!source)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is too large for a program text", path);
	loaded->hash = pp_hash_bytes(text, length);
	loaded->program = pp_program_read(arena, source, loaded->diag);
	return loaded->program || pp_fail(status, PP_EXIT_REJECTED, "%s", "");
}

bool pp_program_load_text(struct pp_arena *arena, const char *path, const char *text, size_t length,
                          struct pp_loaded *loaded, struct pp_status *status)
{
	struct pp_sources *sources = pp_sources_create(arena);
	*loaded = (struct pp_loaded){.diag = pp_diag_create(arena, sources)};
	switch (pp_content_of(text, length)) {
	case PP_CONTENT_IMAGE:
		return load_image(arena, path, text, length, loaded, status);
	case PP_CONTENT_PROGRAM_TEXT:
		return load_text(arena, sources, path, text, length, loaded, status);
	case PP_CONTENT_OTHER:
		break;
	}
	return fail_as_other(path, text, length, status);
}

bool pp_program_load(struct pp_arena *arena, const char *path, struct pp_loaded *loaded, struct pp_status *status)
{
	char *text;
	size_t length;
	*loaded = (struct pp_loaded){.diag = pp_diag_create(arena, pp_sources_create(arena))};
	return pp_file_read(arena, path, &text, &length, status) &&
	       pp_program_load_text(arena, path, text, length, loaded, status);
}
