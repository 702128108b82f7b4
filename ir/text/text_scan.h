/* Line scanner of the text forms: blank-separated words, one statement per line, `;` starts a comment. A word is
 * a run of other bytes, one brace, or a string in double quotes (kept with its quotes). No copies: words point into
 * the source. */
#ifndef PP_TEXT_SCAN_H
#define PP_TEXT_SCAN_H

#include "ir/arena.h"
#include "ir/source.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct pp_word {
	const char *text;
	uint32_t length; /* 0: none */
};

struct pp_scan {
	const struct pp_source *source;
	const char *line; /* start of the current line */
	bool started;     /* pp_scan_line was called */
	const char *at;
	const char *end;
};

void pp_scan_begin(struct pp_scan *scan, const struct pp_source *source);

/* Go to the next line that has a word; false at the end of the text. */
bool pp_scan_line(struct pp_scan *scan);

/* The next word of this line; length 0 at its end. */
struct pp_word pp_scan_word(struct pp_scan *scan);

/* Everything from here to the end of the line, comments included. */
struct pp_word pp_scan_rest(struct pp_scan *scan);

/* Where a word stands; for an empty word the point where it was missed. */
struct pp_span pp_scan_span(const struct pp_scan *scan, struct pp_word word);

/* The line's words from its first to what was read last. */
struct pp_span pp_scan_line_span(const struct pp_scan *scan);

/* Decimal digits only. False: something else, or above 2^64-1. */
bool pp_word_uint(const char *text, uint32_t length, uint64_t *value);
bool pp_word_number(struct pp_word word, double *value);

/* A quoted string without quotes and escapes (\" \\ \n \t \xHH), in the arena; NULL if not closed, with a bad
 * escape, or holding a zero byte. */
const char *pp_word_string(struct pp_arena *arena, struct pp_word word);

/* For messages: at most 40 bytes, control bytes as `?`; "the end of the line" when empty. */
const char *pp_word_show(struct pp_arena *arena, struct pp_word word);

static inline bool pp_word_is(struct pp_word word, const char *text)
{
	return strlen(text) == word.length && memcmp(text, word.text, word.length) == 0;
}

#endif
