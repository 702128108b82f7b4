/* Random specs: texts that pipec may accept or refuse, but never stumble over. */
#ifndef DRAW_H
#define DRAW_H

#include "compiler/policy.h"
#include "support/random.h"

#include <stdio.h>

/* What is drawn for a seed. */
struct draw {
	const struct pp_policy *policy;
	uint64_t random;
	uint32_t p, v, m;     /* v 0: left to the policy */
	bool trains;          /* a transformer, else layers of given costs */
	bool wants_bound;     /* a bound on memory, as a share of what the schedule takes without */
	uint32_t bound_share; /* in thousandths */
	bool bound_by_device; /* by the memory of the device, else by `memory <=` */
	uint8_t lowering;     /* enum pp_lowered */
};

/* The policies that are there take turns; rules come in turns of gpipe. `trains`: only specs that can be trained. */
struct draw draw_begin(uint64_t seed, bool trains);

/* Write the spec; bound 0: none. The same draw and bound give the same text. */
void draw_print(struct draw draw, uint64_t bound, FILE *out);

#endif
