/* Telling files apart by content, never by name; a file that is no program gets a message that says what it seems to
 * be. */
#include "dump_load.h"

#include "ir/file.h"
#include "ir/image.h"
#include "ir/program_text.h"

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

/* 1F0 or an empty cell, then a comma. */
static bool is_schedule_csv(const char *text)
{
	text += strspn(text, ",");
	size_t digits = strspn(text, "0123456789");
	return digits > 0 && text[digits] && strchr("FBIW", text[digits]) && isdigit((unsigned char)text[digits + 1]);
}

static bool is_binary(const char *text, size_t length)
{
	for (size_t i = 0; i < length && i < 4096; i++)
		if ((unsigned char)text[i] < ' ' && !strchr("\t\r\n\f", text[i]))
			return true;
	return false;
}

static bool fail_with(struct pp_status *status, const char *path, const char *text, size_t length)
{
	if (length == 0)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is empty", path);
	if (begins(text, "\177ELF"))
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is an executable, not a program image", path);
	if (begins(text, "\037\213"))
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is compressed with gzip; unpack it first", path);
	if (is_binary(text, length))
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "%s holds binary data, but not a program image: an image begins with PPX1", path);
	if (text[strspn(text, " \t\r\n")] == '{')
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s looks like JSON, not a program; pipedump reads .ppx and .pps",
		               path);
	if (is_schedule_csv(text))
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "%s looks like a schedule in CSV; pipedump reads programs, .ppx and .pps", path);
	if (is_spec(text))
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "%s looks like a .pipe spec, not a program; compile it first: pipec build %s", path, path);
	return pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "%s holds text, but not a program: the first line of a .pps file is `pps 1`", path);
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

struct pp_program *pp_dump_load(struct pp_arena *arena, const char *path, struct pp_diag **diag,
                                struct pp_status *status)
{
	char *text;
	size_t length;
	struct pp_sources *sources = pp_sources_create(arena);
	*diag = pp_diag_create(arena, sources);
	if (!pp_file_read(arena, path, &text, &length, status))
		return NULL;
	if (pp_image_magic((const unsigned char *)text, length))
		return pp_image_read(arena, path, (const unsigned char *)text, length, status);
	if (!is_program_text(text)) {
		fail_with(status, path, text, length);
		return NULL;
	}
	const struct pp_source *source = pp_sources_add(sources, path, text, length);
	if (!source) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is too large for a program text", path);
		return NULL;
	}
	return pp_program_read(arena, source, *diag);
}
