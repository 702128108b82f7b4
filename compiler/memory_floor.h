/* What a program of given stages needs on every rank at least, whatever the order of its computes: the certain side of
 * "no order fits" and of bounds under a memory limit. */
#ifndef PP_MEMORY_FLOOR_H
#define PP_MEMORY_FLOOR_H

#include "pass.h"

/* requires: unit->stages split and priced. ensures: [ranks], bytes of an arena beside the stashes and extras that are
 * there when a rank holds most of them. Whatever F, B or I starts then has its input and its output there as well. No
 * plan of these stages takes less: static slots, the workspace of the form of each stage's backward that needs less,
 * and what the least of the rank's stages takes in and gives out. */
uint64_t *pp_memory_floor(struct pp_arena *arena, const struct pp_unit *unit);

#endif
