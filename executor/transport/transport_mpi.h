/* The mpi transport: one process per rank. One tag per channel on a communicator of its own, so MPI's order of messages
 * is the channel's FIFO; everything is nonblocking and polled, since a rank that blocks inside MPI learns nothing of a
 * lost peer. Only the thread that opened it calls MPI (MPI_THREAD_FUNNELED). */
#ifndef PP_TRANSPORT_MPI_H
#define PP_TRANSPORT_MPI_H

#include "executor/transport.h"

extern const bool pp_mpi_is_open_mpi; /* else MPICH, or one of its kind */

/* Start MPI. The endpoint can `exchange` and `give_up` at once; channels and groups come with pp_mpi_bind. NULL on
 * failure. */
struct pp_endpoint *pp_mpi_open(struct pp_status *status);
uint32_t pp_mpi_rank(const struct pp_endpoint *endpoint);
uint32_t pp_mpi_ranks(const struct pp_endpoint *endpoint);

/* Channels and groups of a verified program (in place of those bound before); posts and tests work from here on.
 * Everything is allocated here. */
bool pp_mpi_bind(struct pp_endpoint *endpoint, const struct pp_program *program,
                 const struct pp_transport_options *options, struct pp_status *status);

/* End MPI after a run that succeeded, or after start checks that all ranks know to have failed. */
void pp_mpi_close(struct pp_endpoint *endpoint);

extern const struct pp_transport_ops pp_transport_mpi;

#endif
