/* The `.pipe` files that ship inside the compiler (compiler/lib), embedded at build time. */
#ifndef PP_LIBRARY_H
#define PP_LIBRARY_H

#include "grammar/ast.h"
#include "resolve.h"

extern const struct pp_library_file pp_library[];
extern const size_t pp_library_count;

/* The block of a named schedule of lib/schedules.pipe, parsed into the arena, or NULL when there is none of this name.
 */
const struct pp_stmt *pp_library_schedule(struct pp_arena *arena, struct pp_strtab *strings, struct pp_sources *sources,
                                          struct pp_diag *diag, const char *name);

#endif
