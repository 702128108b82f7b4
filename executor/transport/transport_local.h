/* The local transport: ranks are processes of one machine that one process forked. Messages pass through memory that
 * they share, a piece at a time, and only once both ends have posted. It is what `piperun --spawn` starts on, without
 * MPI; ranks may as well be threads. */
#ifndef PP_TRANSPORT_LOCAL_H
#define PP_TRANSPORT_LOCAL_H

#include "executor/transport.h"

struct pp_local;

/* The shared memory of all ranks of a verified program: made before processes are forked, which inherit it. NULL: out
 * of memory. */
struct pp_local *pp_local_create(const struct pp_program *program, const struct pp_transport_options *options,
                                 struct pp_status *status);
void pp_local_destroy(struct pp_local *local);

/* The endpoint of a world rank, in its process. NULL: out of memory. */
struct pp_endpoint *pp_local_open(struct pp_local *local, uint32_t world, struct pp_status *status);
void pp_local_close(struct pp_endpoint *endpoint);

extern const struct pp_transport_ops pp_transport_local;

#endif
