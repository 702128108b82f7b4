/* Reductions in member order over MPI point-to-point: the partial sum travels up the members, piece by piece, and the
 * total travels back down. Used by transport_mpi.c only. */
#ifndef PP_COLLECTIVE_MPI_H
#define PP_COLLECTIVE_MPI_H

#include "executor/transport.h"

#include <mpi.h>

/* One reduction posted and not yet completed. */
struct pp_mpi_reduction {
	const unsigned char *from;
	unsigned char *to;
	size_t count; /* elements */
	enum pp_dtype dtype;
};

/* Where the reduction at the head of the line stands: pieces are numbered from 0. */
struct pp_mpi_leg {
	MPI_Request request;
	bool receiving, sending;
	size_t piece;
};

/* The reductions of one group at one member, in the order in which they were posted. */
struct pp_mpi_line {
	MPI_Comm comm;
	int tag;
	int before, after;              /* neighbouring members' ranks, -1 at the ends */
	struct pp_mpi_reduction *posts; /* ring */
	uint32_t capacity;
	uint64_t posted, done;
	struct pp_mpi_leg up, down;
	unsigned char *piece; /* partial sum that came from below */
};

enum { PP_MPI_PIECE = 256 * 1024 }; /* bytes */

/* Move the line as far as it goes now. Returns an MPI error code. */
int pp_mpi_line_poll(struct pp_mpi_line *line);

#endif
