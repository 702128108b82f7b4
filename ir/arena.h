/* Arena: bump allocation for everything that lives as long as one compilation or one loaded program.
 * Nothing is freed singly; pp_arena_destroy frees all. Memory comes zeroed and aligned to 16 bytes.
 * Out of memory is not reported to the caller: the handler given at creation is called and must not
 * return (the tools print one message and leave with exit code 3); without a handler, abort(). */
#ifndef PP_ARENA_H
#define PP_ARENA_H

#include <stddef.h>

struct pp_arena;

struct pp_arena *pp_arena_create(void (*on_exhausted)(size_t wanted));
void pp_arena_destroy(struct pp_arena *arena);

/* A new arena for the working data of one pass, with the handler of `owner`; destroyed by its maker. */
struct pp_arena *pp_arena_scratch(const struct pp_arena *owner);

/* `count` objects of `size` bytes, zeroed. Overflow of count * size counts as out of memory. */
void *pp_arena_alloc(struct pp_arena *arena, size_t count, size_t size);

/* Grow an array made by pp_arena_alloc/pp_arena_grow from old_count to new_count objects; the new tail
 * is zeroed. Large arrays are reallocated in place, so doubling does not leave garbage behind. */
void *pp_arena_grow(struct pp_arena *arena, void *old, size_t old_count, size_t new_count, size_t size);

/* A NUL-terminated copy of `length` bytes. */
char *pp_arena_copy(struct pp_arena *arena, const char *text, size_t length);

/* printf into the arena. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
char *
pp_arena_printf(struct pp_arena *arena, const char *format, ...);

#define PP_NEW(arena, type) ((type *)pp_arena_alloc((arena), 1, sizeof(type)))
#define PP_NEW_ARRAY(arena, type, count) ((type *)pp_arena_alloc((arena), (count), sizeof(type)))

/* Make room for one more element at the end of an arena array: PP_PUSH(arena, &list, &count, &capacity, type)
 * evaluates to a pointer to the new, zeroed element. */
void *pp_arena_push(struct pp_arena *arena, void **items, size_t *count, size_t *capacity, size_t size);
#define PP_PUSH(arena, items, count, capacity, type)                                                                   \
	((type *)pp_arena_push((arena), (void **)(items), (count), (capacity), sizeof(type)))

#endif
