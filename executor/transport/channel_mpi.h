/* Channels over MPI point-to-point: one tag per channel, so MPI's order of messages is the channel's FIFO. */
#ifndef PP_CHANNEL_MPI_H
#define PP_CHANNEL_MPI_H

#include "executor/transport.h"

#include <mpi.h>

struct pp_mpi_post {
	const struct pp_instr *instr;
	struct pp_identity header;
	uint32_t requests; /* in use */
};

struct pp_mpi_channel {
	int peer; /* world rank */
	bool sends;
	struct pp_mpi_post *posts; /* ring */
	MPI_Request *requests;     /* capacity * requests_per_post */
	uint32_t capacity, requests_per_post;
	uint64_t posted, done, base; /* base: posts before the present step */
	uint32_t next;               /* first request of the oldest post that is not known to be complete */
};

/* Channels of the endpoint's coordinate. False: out of memory; what was made is freed by pp_mpi_unbind_channels. */
bool pp_mpi_bind_channels(struct pp_endpoint *endpoint, const struct pp_post_counts *counts);
void pp_mpi_unbind_channels(struct pp_endpoint *endpoint);

void pp_mpi_post_send(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from);
void pp_mpi_post_recv(struct pp_endpoint *endpoint, const struct pp_instr *instr, void *to);

/* Look at what has completed on all channels. */
void pp_mpi_move_channels(struct pp_endpoint *endpoint);

#endif
