/* Source texts and positions. All texts of a compilation share one offset space: each source has a base,
 * and a span holds absolute byte offsets, so a span alone names its file. Line and column are computed
 * only when something is printed. */
#ifndef PP_SOURCE_H
#define PP_SOURCE_H

#include "arena.h"

#include <stdint.h>

/* Bytes [start, end). start == end marks a point. Offset 0 belongs to no source. */
struct pp_span {
	uint32_t start, end;
};

#define PP_NO_SPAN ((struct pp_span){0, 0})

struct pp_source {
	const char *name; /* as the user gave it, printed in messages */
	const char *text; /* NUL-terminated, `length` bytes before the NUL */
	uint32_t length;
	uint32_t base;   /* absolute offset of text[0] */
	uint32_t *lines; /* offsets within the text of the starts of lines */
	uint32_t line_count;
};

struct pp_sources;

struct pp_sources *pp_sources_create(struct pp_arena *arena);

/* Register a text (not copied; must outlive the sources). NULL when the offset space (4 GiB) is full or the
 * text has 2 GiB or more. */
const struct pp_source *pp_sources_add(struct pp_sources *sources, const char *name, const char *text, size_t length);

/* The source that holds an absolute offset, or NULL (PP_NO_SPAN). */
const struct pp_source *pp_sources_find(const struct pp_sources *sources, uint32_t offset);

struct pp_position {
	uint32_t line, column; /* from 1; columns count characters (UTF-8 code points), not bytes */
};

struct pp_position pp_source_position(const struct pp_source *source, uint32_t offset);

static inline struct pp_span pp_span_join(struct pp_span a, struct pp_span b)
{
	return (struct pp_span){a.start, b.end};
}

static inline int pp_span_known(struct pp_span span)
{
	return span.start != 0;
}

#endif
