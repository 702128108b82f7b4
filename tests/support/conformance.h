/* What every transport must do: hand-built programs give the bits that the loop transport gives, in every mode
 * (synchronous sends, identity check, payloads in pieces, jitter) and for every size of message; collectives of every
 * kind on every axis give the bits of sums in member order; members that mean different collectives notice. */
#ifndef PP_TEST_CONFORMANCE_H
#define PP_TEST_CONFORMANCE_H

#include "world.h"

/* One rank and its way to an endpoint that is bound to a program. */
struct pp_conformance_rank {
	const struct pp_transport_ops *ops;
	uint32_t rank, ranks;
	struct pp_endpoint *(*bind)(void *context, const struct pp_program *program,
	                            const struct pp_transport_options *options, struct pp_status *status);
	void *context;
};

/* Called by every rank. Number of differences; each is printed. */
int pp_conformance_run(const struct pp_conformance_rank *rank);

/* The same with ranks as threads, `ranks` of them. */
int pp_conformance_threads(const struct pp_test_world *world, uint32_t ranks);

/* Collectives and messages alone, for worlds whose memory is not the host's. */
int pp_conformance_collectives(const struct pp_test_world *world, uint32_t ranks);

#endif
