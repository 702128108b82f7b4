/* The control star: a thread in each process that keeps an eye on all ranks, over TCP to rank 0 and through a page of
 * memory that the ranks of a machine share. It needs no MPI and costs the path of a step nothing.
 *
 * A run is lost when a connection closes without a word, when nothing is heard of a process for limits.heartbeat, or
 * when no rank moves for the limit of what they are doing. Rank 0 then gathers where everyone is, prints one report and
 * ends all processes. Where rank 0 itself is lost, the first of each machine to notice reports for its machine. */
#ifndef PP_STAR_H
#define PP_STAR_H

#include "stall.h"

#include "executor/transport.h"
#include "executor/watch.h"

struct pp_star;

/* Start the thread. Until the star is open it only ends a start that takes too long. NULL: out of
 * memory, no thread. */
struct pp_star *pp_star_start(struct pp_watch *watch, const struct pp_limits *limits,
                              const struct pp_keeper_files *files);

/* From here on other limits hold; both are kept by the caller. */
void pp_star_limits(struct pp_star *star, const struct pp_limits *limits);

/* Connect, all ranks together. */
bool pp_star_open(struct pp_star *star, const struct pp_transport_ops *transport, struct pp_endpoint *endpoint,
                  uint32_t world, struct pp_status *status);

/* This rank cannot go on: report and end all processes with the code of the status. Does not return. */
void pp_star_fail(struct pp_star *star, const struct pp_status *status);

/* A signal wants the process to end: report. Comes back after at most half a second if the report is others'. */
void pp_star_signal(struct pp_star *star, const char *why);

/* Ask all ranks to stop after a step. */
void pp_star_stop(struct pp_star *star, const char *why);

/* Leave in good order. */
void pp_star_close(struct pp_star *star);

#endif
