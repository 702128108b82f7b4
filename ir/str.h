/* Interned strings: equal text gives the same pointer, so names are compared with ==. The table lives in
 * the arena it was made with. */
#ifndef PP_STR_H
#define PP_STR_H

#include "arena.h"

struct pp_strtab;

struct pp_strtab *pp_strtab_create(struct pp_arena *arena);

/* The one copy of these bytes, NUL-terminated. The text may hold any byte but NUL. */
const char *pp_intern(struct pp_strtab *table, const char *text, size_t length);
const char *pp_intern_z(struct pp_strtab *table, const char *text);

/* Edit distance for "did you mean": the nearest of `count` candidates within a third of the length of
 * `word` (at least 1), or NULL. Case differences count half. Three letters or more that begin a candidate are as near
 * as one letter less (`rms` for `rmsnorm`). Ties: one that begins with the word, one that ends like it, the first. */
const char *pp_nearest(const char *word, const char *const *candidates, size_t count);

/* Length of the well-formed UTF-8 character at `text`, of which `length` >= 1 bytes may be read; 0: it is none. */
size_t pp_utf8_length(const char *text, size_t length);

#endif
