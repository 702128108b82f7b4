/* Random collectives over all groups of a grid, checked at every member against sums that it computes itself, in member
 * order and to the bit. The same cases for every transport. */
#ifndef PP_TEST_COLLECTIVES_H
#define PP_TEST_COLLECTIVES_H

#include "world.h"

struct pp_collective_grid {
	uint32_t pp, tp, dp;
	uint8_t order; /* enum pp_rank_order */
};

/* A program whose groups are: all pipeline ranks, every second one, tp, dp; its streams and bodies hold `count` random
 * collectives, the same on all ranks. With channels between neighbours, both ways. */
struct pp_program *pp_collective_program(struct pp_arena *arena, const struct pp_collective_grid *grid, uint64_t seed,
                                         uint32_t count);

/* Post the collectives of this rank over its endpoint, several at once, among them those of bodies, with one message of
 * every channel under way; twice. False: `why` says what is wrong. */
bool pp_collectives_run(const struct pp_program *program, const struct pp_test_seat *seat, char why[256]);

/* The same with all ranks as threads. */
bool pp_collectives_run_threads(const struct pp_test_world *world, const struct pp_program *program,
                                const struct pp_transport_options *options, char why[256]);

#endif
