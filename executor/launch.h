/* Bringing a program up: load, check, prove, bind to a transport, run all ranks of this process. */
#ifndef PP_LAUNCH_H
#define PP_LAUNCH_H

#include "control/stall.h"
#include "link.h"
#include "start_check.h"
#include "train_loop.h"

struct pp_launch {
	struct pp_arena *arena;
	const char *path;
	const struct pp_device_ops *device;                           /* as asked; NULL until pp_launch_choose_device */
	const struct pp_device_ops *(*gpu)(struct pp_status *status); /* the GPU's, or NULL and why there is none */
	struct pp_transport_options transport;
	enum pp_layout queues; /* of posts */
	enum pp_link_choice link;
	struct pp_link_environment environment;
	bool through_host; /* payloads of devices always go through the host's memory */
	struct pp_run_options run;
	struct pp_limits asked;  /* by the command line; 0: not */
	struct pp_limits limits; /* in force */
	struct pp_keeper_files files;
	bool announce;           /* say on stderr that ranks run as threads because nothing was said */
	bool launched;           /* by a launcher */
	unsigned long processes; /* that the launcher says it has started; of srun without MPI too */
};

/* All ranks as threads of this process. Prints what went wrong; returns the exit code. */
int pp_launch_loop(struct pp_launch *launch);

/* This process is one rank of an MPI job. In the library pp_executor_mpi. */
int pp_launch_mpi(struct pp_launch *launch);

/* This process forks one for every rank, and looks after them: launch_spawn.c. */
int pp_launch_spawn(struct pp_launch *launch, uint32_t ranks);

/* Shared: where nothing was asked for, the GPU's device if the program was planned for GPUs and this machine has one,
 * else the CPU. `apart`: by a process of its own, since this one forks later. `speaks`: says on stderr, unless the run
 * is quiet, that GPUs are missing. */
void pp_launch_choose_device(struct pp_launch *launch, const struct pp_program *program, bool apart, bool speaks);

/* Shared: limits from what was asked, and the predicted ns of a step and of a batch of an evaluation (0: unknown). */
struct pp_limits pp_launch_limits(const struct pp_limits *asked, uint64_t step, uint64_t batch);

/* Shared: predicted times of the train program over this transport into launch->run.predicted, and the limits that
 * follow. */
void pp_launch_predict(struct pp_launch *launch, const struct pp_program *program, const char *transport);

/* Shared: one line, or the diagnostics if the status has no text. Returns the exit code. */
int pp_launch_failed(const struct pp_loaded *loaded, const struct pp_status *status, bool print);

#endif
