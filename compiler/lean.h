/* The build of a spec that needs least memory of all that the compiler knows to make: the last resort where memory is
 * short, and the source of every number that a message advises. It does not look at the limit, so whoever writes that
 * number in its place gets a build. */
#ifndef PP_LEAN_H
#define PP_LEAN_H

#include "pass.h"

struct pp_lean {
	const uint32_t *first;           /* split, [stages + 1] */
	const struct pp_schedule *given; /* its order; NULL: the rows of the spec */
	uint64_t needed;                 /* bytes of the fullest rank's arena, as planned */
	uint64_t fixed;                  /* of them static */
	uint32_t rank;                   /* the fullest */
};

/* requires: a unit after the draft pass. ensures: kept in the unit, made at most once. NULL: none could be made.
 *
 * A split of the user's, or even, stays; else it is the one whose fullest rank needs least, with several stages on a
 * rank the best that is found, and no worse than the one that is balanced without regard to memory. Rows stay too;
 * `search` gets one microbatch at a time, other policies that look at memory get as little as lets them finish. Each is
 * lowered and planned. */
const struct pp_lean *pp_lean_find(struct pp_unit *unit);

/* Where it fits: make the unit take its split and order, from the partition pass on. False: it does not, or the unit is
 * only compared with others. */
bool pp_lean_take(struct pp_unit *unit);

/* Bytes that the fullest rank would need if all blocks computed these parts again (enum pp_recompute); 0: not known. */
uint64_t pp_lean_needed_with(const struct pp_unit *unit, uint8_t parts);

#endif
