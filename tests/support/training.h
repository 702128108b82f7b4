/* Small GPTs that really train, for tests: a spec and a schedule made in C go through bodies, lowering, memory plan and
 * proof, and run over the loop transport on the CPU. */
#ifndef PP_TRAINING_H
#define PP_TRAINING_H

#include "executor/train_loop.h"

#include "ir/diag.h"
#include "ir/schedule.h"
#include "ir/spec.h"

/* Stages split the layers as evenly as whole layers allow. NULL after a message in `diag`. */
struct pp_program *pp_training_program(struct pp_arena *arena, const struct pp_spec *spec,
                                       const struct pp_schedule *schedule, struct pp_diag *diag);

/* The same in another order of posts and computes. */
struct pp_program *pp_training_program_lowered(struct pp_arena *arena, const struct pp_spec *spec,
                                               const struct pp_schedule *schedule, enum pp_lowered lowering,
                                               struct pp_diag *diag);

struct pp_training_result {
	bool ok;
	struct pp_status status;
	char *evaluations; /* one line per evaluation: step, validation loss, tokens */
	char *steps;       /* one line per step: loss, losses of microbatches, lr, norm, as the metrics file has them */
	uint64_t *hashes;  /* of each tensor's final weights; 0 where copies differ */
};

/* Run all ranks. Results live in the arena. */
struct pp_training_result pp_training_run(struct pp_arena *arena, const struct pp_program *program,
                                          const struct pp_transport_options *transport,
                                          const struct pp_run_options *options);

/* A device in place of the CPU's, and a look at each rank after the last step, one rank after the other. */
struct pp_training_probe {
	const struct pp_device_ops *device;
	uint64_t timeout;      /* ns of one wait; 0: a minute */
	enum pp_layout queues; /* proven or not */
	void (*look)(const struct pp_interp *interp, void *context);
	void *context;
};

struct pp_training_result pp_training_run_probed(struct pp_arena *arena, const struct pp_program *program,
                                                 const struct pp_transport_options *transport,
                                                 const struct pp_run_options *options,
                                                 const struct pp_training_probe *probe);

#endif
