/* One rank's whole run: device and data, all steps, what it measured. The same code under every transport. */
#ifndef PP_TRAIN_LOOP_H
#define PP_TRAIN_LOOP_H

#include "interp.h"

#include "ir/simulate.h"

/* The learning rate of a step (from 0). Its horizon is train->steps, however many steps are run. */
double pp_learning_rate(const struct pp_train *train, uint64_t step);

/* What the command line asks for, the same on all ranks. */
struct pp_run_options {
	uint64_t steps;           /* 0: as the program says */
	const char *data_path;    /* instead of the program's, or NULL */
	const char *metrics_path; /* JSON lines, or NULL */
	const char *trace_path;   /* Chrome trace, or NULL */
	bool weights_hash;        /* print a hash of every tensor at the end */
	bool quiet;               /* no log lines */
	uint64_t jitter;
	struct pp_fault fault;
	const struct pp_sim *predicted; /* or NULL */
};

struct pp_rank_run {
	const struct pp_program *program;
	uint32_t rank;
	const struct pp_device_ops *device_ops;
	const struct pp_transport_ops *transport;
	struct pp_endpoint *endpoint; /* bound */
	struct pp_watch *watch;
	const struct pp_run_options *options;
	/* Result: nothing of the rank may be freed before all ranks have stopped, since others may be copying to its slots.
	 */
	struct pp_interp interp;
	bool lost; /* a planted `exit`: vanish without a word */
};

/* Run. False: *status says why; the other ranks know, and the rank's position has been reported if it was in a step.
 * All ranks fail together when preparing or the loss fails. */
bool pp_run_rank(struct pp_rank_run *run, struct pp_status *status);

/* Free what the run holds. */
void pp_run_rank_free(struct pp_rank_run *run);

#endif
