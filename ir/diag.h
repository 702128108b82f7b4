/* Diagnostics: what the user wrote wrongly, collected and printed with position, source line, caret, notes.
 *
 *     error[E0101]: unknown attribute `hiden` in `model`
 *       --> gpt.pipe:3:14
 *      3 | model gpt3 { hiden = 12288  heads = 96 }
 *        |              ^^^^^
 *        = help: did you mean `hidden`?
 *
 * Rules of the text: lower case, no final period, names the object, expected and found, and a fix. The code
 * never changes once shipped. At most 20 errors are kept; the rest are counted. */
#ifndef PP_DIAG_H
#define PP_DIAG_H

#include "arena.h"
#include "source.h"

#include <stdbool.h>
#include <stdio.h>

#if defined(__GNUC__)
#define PP_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define PP_PRINTF(text, first)
#endif

enum pp_severity { PP_ERROR, PP_WARNING };

enum pp_diag_format { PP_DIAG_HUMAN, PP_DIAG_SHORT, PP_DIAG_JSON };

struct pp_diag;    /* the collector; lives in the arena */
struct pp_message; /* one diagnostic, to which labels and notes can be added */

struct pp_diag *pp_diag_create(struct pp_arena *arena, const struct pp_sources *sources);

/* Report. `code` is a literal such as "E0101" or "V4"; a span of PP_NO_SPAN prints no position. */
struct pp_message *pp_error(struct pp_diag *diag, const char *code, struct pp_span span, const char *format, ...)
    PP_PRINTF(4, 5);
struct pp_message *pp_warning(struct pp_diag *diag, const char *code, struct pp_span span, const char *format, ...)
    PP_PRINTF(4, 5);

/* A second place, underlined with `-` and its text; same line or another, same file or another. */
void pp_label(struct pp_message *message, struct pp_span span, const char *format, ...) PP_PRINTF(3, 4);
/* The text beside the carets of the primary span. */
void pp_caret(struct pp_message *message, const char *format, ...) PP_PRINTF(2, 3);
/* Lines after the source: "= note: …", "= help: …", or "= HEADING: …". */
void pp_note(struct pp_message *message, const char *format, ...) PP_PRINTF(2, 3);
void pp_help(struct pp_message *message, const char *format, ...) PP_PRINTF(2, 3);
void pp_detail(struct pp_message *message, const char *heading, const char *format, ...) PP_PRINTF(3, 4);

/* Turn every later warning into an error (-Werror). */
void pp_diag_warnings_are_errors(struct pp_diag *diag);

size_t pp_diag_errors(const struct pp_diag *diag);

/* Is there a message of this code about this span already? For passes that run more than once. */
bool pp_diag_said(const struct pp_diag *diag, const char *code, struct pp_span span);
static inline bool pp_diag_ok(const struct pp_diag *diag)
{
	return pp_diag_errors(diag) == 0;
}

/* The first error in a few words; all of them "" if there is none. */
struct pp_first_error {
	const char *code, *summary, *help; /* help "": it has none */
	const char *enough;                /* the help that says what memory is enough, or "" */
};
struct pp_first_error pp_diag_first_error(const struct pp_diag *diag);

/* That error itself, to add to it; NULL: there is none. */
struct pp_message *pp_diag_first_message(const struct pp_diag *diag);

/* A collector of its own with the same settings, for messages that are perhaps not to be seen; and what it holds, moved
 * over. A warning about a span that was said before is dropped. */
struct pp_diag *pp_diag_apart(const struct pp_diag *diag);
void pp_diag_take(struct pp_diag *diag, struct pp_diag *apart);

/* Print all messages in the order of report. JSON: one object per line with "schema": "pipec.diagnostic/1". */
void pp_diag_print(const struct pp_diag *diag, FILE *out, enum pp_diag_format format, bool color);

#endif
