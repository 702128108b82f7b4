/* `pipec show`: every param and attribute of a resolved spec with where its value comes from. */
#ifndef PP_SHOW_H
#define PP_SHOW_H

#include "resolve.h"

#include <stdio.h>

/* Print the settings that match `what`: NULL all, "block" those of a block and its parts, "block.attribute" one. False
 * if none does: `near` is then the nearest name, or NULL. */
bool pp_settings_print(struct pp_arena *arena, const struct pp_resolved *resolved, const char *what, FILE *out,
                       const char **near);

#endif
