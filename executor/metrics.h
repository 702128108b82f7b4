/* What a run tells people and files: log lines and a progress bar (rank 0), JSON lines per step. */
#ifndef PP_METRICS_H
#define PP_METRICS_H

#include "evaluation.h"

#include "ir/program.h"
#include "ir/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* One finished step. */
struct pp_step_result {
	uint64_t step; /* from 1 */
	double seconds;
	double flops;         /* of all ranks */
	bool has_loss;        /* the program trains on data; else the rest is not given */
	const double *losses; /* (sum, count) of each microbatch */
	double lr, grad_norm;
	bool updated; /* the norm was finite */
};

/* The reported loss: over tokens, or the mean of the microbatches' means. NaN if no token counts. */
double pp_step_loss(const struct pp_train *train, const double *losses, uint32_t microbatches);

/* Tokens with a label in this step. */
double pp_step_tokens(const double *losses, uint32_t microbatches);

struct pp_metrics;

struct pp_metrics_options {
	const char *path; /* JSON lines, or NULL */
	FILE *log;        /* log lines; NULL: none */
	FILE *bar;        /* progress bar, a terminal; NULL: none */
	uint64_t first;   /* steps done before: the run resumes after them */
	uint64_t steps;   /* in all */
	bool append;      /* to the file of the run before */
};

struct pp_metrics *pp_metrics_open(const struct pp_program *program, const struct pp_metrics_options *options,
                                   struct pp_status *status);

/* Report a step. False if the metrics file cannot be written. */
bool pp_metrics_step(struct pp_metrics *metrics, const struct pp_step_result *result, struct pp_status *status);

/* Report an evaluation. False as pp_metrics_step. */
bool pp_metrics_evaluated(struct pp_metrics *metrics, const struct pp_evaluation_result *result,
                          struct pp_status *status);

/* A log line: a checkpoint has been saved. */
void pp_metrics_saved(struct pp_metrics *metrics, const char *folder, uint64_t step, uint64_t bytes, double seconds);

/* Mean loss of the last 20 steps, NaN without losses. */
double pp_metrics_recent_loss(const struct pp_metrics *metrics, uint64_t *steps);

/* Ends the bar and closes the file. */
bool pp_metrics_close(struct pp_metrics *metrics, struct pp_status *status);

#endif
