/* One rank's whole run: device and data, all steps, what it measured. The same code under every transport. */
#ifndef PP_TRAIN_LOOP_H
#define PP_TRAIN_LOOP_H

#include "interp.h"
#include "run_options.h"

/* The learning rate of a step (from 0). Its horizon is train->steps, however many steps are run. */
double pp_learning_rate(const struct pp_train *train, uint64_t step);

struct pp_rank_run {
	const struct pp_program *program;
	uint32_t world; /* world rank */
	uint32_t local; /* its number among those of this machine */
	const struct pp_device_ops *device_ops;
	const struct pp_transport_ops *transport;
	struct pp_endpoint *endpoint; /* bound */
	struct pp_watch *watch;
	const struct pp_run_options *options;
	/* Takes over when this rank cannot go on alone, or NULL: then the others are told through the transport. */
	void (*fail)(void *keeper, const struct pp_status *status);
	void *keeper;
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
