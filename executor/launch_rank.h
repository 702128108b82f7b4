/* One rank that is a process of its own, however the processes were started: it keeps watch with the others, and runs.
 */
#ifndef PP_LAUNCH_RANK_H
#define PP_LAUNCH_RANK_H

#include "control/star.h"
#include "launch.h"
#include "sentry.h"

struct pp_rank_process {
	struct pp_launch *launch;
	const struct pp_transport_ops *ops; /* on host memory */
	struct pp_endpoint *endpoint;       /* NULL until there is one */
	uint32_t rank, ranks;
	struct pp_watch watch;
	struct pp_star *star;
	struct pp_sentry *sentry;
	struct pp_limits limits; /* until the program is loaded */
};

/* Before anything else: signals, the thread of the star. `rank`: as far as it is known, for reports. */
bool pp_rank_keep_watch(struct pp_rank_process *process, uint32_t rank, struct pp_status *status);
void pp_rank_end_sentry(struct pp_rank_process *process);

/* All ranks, or none of them, are fine. */
bool pp_rank_agree(struct pp_rank_process *process, const char *what, bool fine, struct pp_status *status);

/* Run a program that passed the start checks. `bind`: channels of the endpoint for it, or NULL: it has them. `here`:
 * ranks on this machine, [ranks]. All of them enter and leave together. Returns the exit code; rank 0 has printed what
 * went wrong. */
int pp_rank_run(struct pp_rank_process *process, const struct pp_program *program, const bool *here,
                bool (*bind)(struct pp_rank_process *process, const struct pp_program *program,
                             struct pp_status *status));

/* Nobody leaves before rank 0 has printed. */
void pp_rank_leave(struct pp_rank_process *process, int code);

#endif
