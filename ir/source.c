/* Source registry and positions. Lines end at LF, CRLF or a lone CR. */
#include "source.h"

#include <string.h>

struct pp_sources {
	struct pp_arena *arena;
	struct pp_source **items;
	size_t count, capacity;
};

struct pp_sources *pp_sources_create(struct pp_arena *arena)
{
	struct pp_sources *sources = PP_NEW(arena, struct pp_sources);
	sources->arena = arena;
	return sources;
}

/* Offset of the start of the line after the one that holds `at`, or length + 1 at the last line. */
static uint32_t next_line(const char *text, uint32_t length, uint32_t at)
{
	for (; at < length; at++) {
		if (text[at] == '\n')
			return at + 1;
		if (text[at] == '\r')
			return at + 1 < length && text[at + 1] == '\n' ? at + 2 : at + 1;
	}
	return length + 1;
}

static void index_lines(struct pp_arena *arena, struct pp_source *source)
{
	uint32_t count = 0;
	for (uint32_t at = 0; at <= source->length; at = next_line(source->text, source->length, at))
		count++;
	source->lines = PP_NEW_ARRAY(arena, uint32_t, count);
	source->line_count = count;
	count = 0;
	for (uint32_t at = 0; at <= source->length; at = next_line(source->text, source->length, at))
		source->lines[count++] = at;
}

const struct pp_source *pp_sources_add(struct pp_sources *sources, const char *name, const char *text, size_t length)
{
	uint32_t base = 1;
	if (sources->count) {
		const struct pp_source *last = sources->items[sources->count - 1];
		if (__builtin_add_overflow(last->base, last->length + 2, &base))
			return NULL;
	}
	uint32_t end;
	if (length >= 0x7fffffff || __builtin_add_overflow(base, (uint32_t)length + 2, &end))
		return NULL;
	struct pp_source *source = PP_NEW(sources->arena, struct pp_source);
	*source = (struct pp_source){.name = name, .text = text, .length = (uint32_t)length, .base = base};
	index_lines(sources->arena, source);
	*PP_PUSH(sources->arena, &sources->items, &sources->count, &sources->capacity, struct pp_source *) = source;
	return source;
}

const struct pp_source *pp_sources_find(const struct pp_sources *sources, uint32_t offset)
{
	for (size_t i = sources->count; offset && i-- > 0;) {
		const struct pp_source *source = sources->items[i];
		if (offset >= source->base)
			return offset - source->base <= source->length ? source : NULL;
	}
	return NULL;
}

struct pp_position pp_source_position(const struct pp_source *source, uint32_t offset)
{
	uint32_t at = offset - source->base, low = 0, high = source->line_count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (source->lines[middle] <= at)
			low = middle;
		else
			high = middle;
	}
	uint32_t column = 1;
	for (uint32_t i = source->lines[low]; i < at; i++)
		column += ((unsigned char)source->text[i] & 0xc0) != 0x80;
	return (struct pp_position){low + 1, column};
}
