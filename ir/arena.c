/* Arena allocation. Small requests are cut from chunks; a request of a quarter chunk or more gets a block
 * of its own, so that growing a large array can use realloc. */
#include "arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16, CHUNK = 64 * 1024, LARGE = CHUNK / 4 };

/* Header of a chunk and of a large block; the payload follows, aligned. */
struct block {
	struct block *next, *previous;
	size_t used, capacity;
};

struct pp_arena {
	struct block *chunks; /* newest first; only the first one is cut from */
	struct block *large;
	void (*on_exhausted)(size_t);
};

static size_t header_size(void)
{
	return (sizeof(struct block) + ALIGN - 1) / ALIGN * ALIGN;
}

static char *payload(struct block *block)
{
	return (char *)block + header_size();
}

static void exhausted(const struct pp_arena *arena, size_t wanted)
{
	if (arena && arena->on_exhausted)
		arena->on_exhausted(wanted);
	abort();
}

static struct block *block_create(struct pp_arena *arena, size_t capacity)
{
	if (capacity > SIZE_MAX / 2)
		exhausted(arena, capacity);
	struct block *block = calloc(1, header_size() + capacity);
	if (!block)
		exhausted(arena, capacity);
	block->capacity = capacity;
	return block;
}

static void link_block(struct block **list, struct block *block)
{
	block->previous = NULL;
	block->next = *list;
	if (*list)
		(*list)->previous = block;
	*list = block;
}

struct pp_arena *pp_arena_create(void (*on_exhausted)(size_t))
{
	struct pp_arena *arena = calloc(1, sizeof *arena);
	if (!arena) {
		if (on_exhausted)
			on_exhausted(sizeof *arena);
		abort();
	}
	arena->on_exhausted = on_exhausted;
	return arena;
}

struct pp_arena *pp_arena_scratch(const struct pp_arena *owner)
{
	return pp_arena_create(owner->on_exhausted);
}

static void free_list(struct block *block)
{
	while (block) {
		struct block *next = block->next;
		free(block);
		block = next;
	}
}

void pp_arena_destroy(struct pp_arena *arena)
{
	if (!arena)
		return;
	free_list(arena->chunks);
	free_list(arena->large);
	free(arena);
}

static size_t total_size(const struct pp_arena *arena, size_t count, size_t size)
{
	size_t bytes;
	if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2)
		exhausted(arena, SIZE_MAX);
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

void *pp_arena_alloc(struct pp_arena *arena, size_t count, size_t size)
{
	size_t bytes = total_size(arena, count, size);
	if (bytes == 0)
		bytes = ALIGN;
	if (bytes >= LARGE) {
		struct block *block = block_create(arena, bytes);
		block->used = bytes;
		link_block(&arena->large, block);
		return payload(block);
	}
	if (!arena->chunks || arena->chunks->capacity - arena->chunks->used < bytes)
		link_block(&arena->chunks, block_create(arena, CHUNK));
	char *memory = payload(arena->chunks) + arena->chunks->used;
	arena->chunks->used += bytes;
	return memory;
}

static void *grow_large(struct pp_arena *arena, void *old, size_t bytes)
{
	struct block *block = (struct block *)(void *)((char *)old - header_size());
	size_t before = block->capacity;
	if (bytes <= before)
		return old;
	struct block *moved = realloc(block, header_size() + bytes);
	if (!moved)
		exhausted(arena, bytes);
	if (moved->previous)
		moved->previous->next = moved;
	else
		arena->large = moved;
	if (moved->next)
		moved->next->previous = moved;
	moved->used = moved->capacity = bytes;
	memset(payload(moved) + before, 0, bytes - before);
	return payload(moved);
}

void *pp_arena_grow(struct pp_arena *arena, void *old, size_t old_count, size_t new_count, size_t size)
{
	size_t old_bytes = total_size(arena, old_count, size);
	size_t new_bytes = total_size(arena, new_count, size);
	if (old && new_bytes <= old_bytes)
		return old;
	if (old && old_bytes >= LARGE) {
		void *moved = grow_large(arena, old, new_bytes);
		memset((char *)moved + old_count * size, 0, new_bytes - old_count * size);
		return moved;
	}
	void *fresh = pp_arena_alloc(arena, new_count, size);
	if (old)
		memcpy(fresh, old, old_count * size);
	return fresh;
}

void *pp_arena_push(struct pp_arena *arena, void **items, size_t *count, size_t *capacity, size_t size)
{
	if (*count == *capacity) {
		size_t wanted = *capacity ? *capacity * 2 : 8;
		*items = pp_arena_grow(arena, *items, *capacity, wanted, size);
		*capacity = wanted;
	}
	return (char *)*items + (*count)++ * size;
}

char *pp_arena_copy(struct pp_arena *arena, const char *text, size_t length)
{
	char *copy = pp_arena_alloc(arena, length + 1, 1);
	memcpy(copy, text, length);
	return copy;
}

char *pp_arena_printf(struct pp_arena *arena, const char *format, ...)
{
	va_list args, again;
	va_start(args, format);
	va_copy(again, args);
	int length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	char *text = pp_arena_alloc(arena, (size_t)(length < 0 ? 0 : length) + 1, 1);
	if (length > 0)
		vsnprintf(text, (size_t)length + 1, format, again);
	va_end(again);
	return text;
}
