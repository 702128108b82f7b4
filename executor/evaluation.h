/* Evaluation: the mean loss over the tokens of the held-out data, with the weights as they are between two steps. The
 * same samples every time, whatever the cut into ranks and microbatches; nothing that training keeps changes. Called by
 * all ranks together. */
#ifndef PP_EVALUATION_H
#define PP_EVALUATION_H

#include "run_report.h"

struct pp_evaluation {
	const struct pp_stream *stream; /* of the program `eval`; NULL: nothing is evaluated */
	struct pp_data_source *data;    /* held out; NULL where this rank loads nothing */
	uint64_t batches;               /* of an evaluation, the same on all ranks */
	uint64_t every;                 /* steps; 0: after the last one only */
	uint32_t losses;                /* slot */
	double *seen;                   /* what a batch left in it, [2 * microbatches] */
};

struct pp_evaluation_result {
	uint64_t step; /* after which */
	double loss;   /* NaN: no token counted */
	double tokens; /* that counted */
	double seconds;
};

/* What the program and the options say; opens the held-out data where this rank loads some. */
bool pp_evaluation_open(struct pp_evaluation *evaluation, const struct pp_program *program, struct pp_coord coord,
                        const struct pp_run_options *options, struct pp_status *status);
void pp_evaluation_close(struct pp_evaluation *evaluation);

/* Agree on the number of batches. All ranks fail together. */
bool pp_evaluation_agree(struct pp_evaluation *evaluation, const struct pp_report_link *link, struct pp_status *status);

static inline bool pp_evaluation_due(const struct pp_evaluation *evaluation, uint64_t step, uint64_t last)
{
	return evaluation->stream && (step == last || (evaluation->every && step % evaluation->every == 0));
}

/* Evaluate after `step`. False as pp_interp_step. */
bool pp_evaluation_run(const struct pp_evaluation *evaluation, const struct pp_report_link *link, uint64_t step,
                       struct pp_evaluation_result *result, struct pp_status *status);

#endif
