/* Evaluation between steps.
 *
 * Requires: a verified program: its `eval` leaves no trace but in losses, and every rank learns these. */
#include "evaluation.h"

#include "device_share.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static bool loads_data(const struct pp_stream *stream)
{
	for (uint32_t i = 0; i < stream->count; i++)
		if (stream->items[i].op == PP_OP_LOAD)
			return true;
	return false;
}

bool pp_evaluation_open(struct pp_evaluation *evaluation, const struct pp_program *program, struct pp_coord coord,
                        const struct pp_run_options *options, struct pp_status *status)
{
	const struct pp_named_program *named = pp_program_find(program, "eval");
	*evaluation = (struct pp_evaluation){.every = program->train.eval_every,
	                                     .losses = pp_only_slot(&program->rank[coord.pp], PP_SLOT_LOSSES)};
	if (!named || !program->train.eval_steps || evaluation->losses == PP_NULL)
		return true;
	evaluation->seen = calloc(2 * (size_t)program->microbatches + 1, sizeof *evaluation->seen);
	if (!evaluation->seen)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the losses of an evaluation");
	evaluation->stream = &named->streams[coord.pp];
	if (!loads_data(evaluation->stream))
		return true;
	evaluation->data = pp_data_open_held_out(program, coord, options->data_path, status);
	if (evaluation->data)
		evaluation->batches = pp_data_batches(evaluation->data);
	return evaluation->data != NULL;
}

void pp_evaluation_close(struct pp_evaluation *evaluation)
{
	pp_data_close(evaluation->data);
	evaluation->data = NULL;
	free(evaluation->seen);
	evaluation->seen = NULL;
}

/* Ranks that load nothing learn the number from those that do; these must have found the same data. */
bool pp_evaluation_agree(struct pp_evaluation *evaluation, const struct pp_report_link *link, struct pp_status *status)
{
	const struct pp_program *program = link->interp->program;
	uint64_t world = pp_grid_world(program), *all = calloc(world, sizeof *all);
	if (!evaluation->stream) {
		free(all);
		return true;
	}
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = pp_transport_exchange(link->transport, link->endpoint, link->watch, "comparing held-out data",
	                                &evaluation->batches, all, sizeof *all, status);
	uint64_t first = 0;
	while (ok && first + 1 < world && !all[first])
		first++;
	for (uint64_t i = first + 1; ok && i < world; i++)
		if (all[i] && all[i] != all[first])
			ok = pp_fail(status, PP_EXIT_ENVIRONMENT,
			             "rank %" PRIu64 " finds held-out data for %" PRIu64 " batches, rank %" PRIu64 " for %" PRIu64
			             "; all need the same file",
			             first, all[first], i, all[i]);
	if (ok)
		evaluation->batches = all[first];
	free(all);
	return ok;
}

/* The interpreter takes a batch for a step of `eval`. */
static bool run_batches(const struct pp_evaluation *evaluation, struct pp_interp *interp,
                        struct pp_evaluation_result *result, struct pp_status *status)
{
	uint64_t bytes = 2 * sizeof(double) * (uint64_t)interp->program->microbatches;
	const double *losses = evaluation->seen;
	double sum = 0;
	for (interp->batch = 1; interp->batch <= evaluation->batches; interp->batch++) {
		if (!pp_interp_step(interp, evaluation->stream, status) ||
		    !pp_interp_read(interp, evaluation->losses, 0, bytes, evaluation->seen, status))
			return false;
		for (uint32_t mb = 0; mb < interp->program->microbatches; mb++) {
			sum += losses[2 * mb];
			result->tokens += losses[2 * mb + 1];
		}
	}
	result->loss = result->tokens > 0 ? sum / result->tokens : NAN;
	return true;
}

bool pp_evaluation_run(const struct pp_evaluation *evaluation, const struct pp_report_link *link, uint64_t step,
                       struct pp_evaluation_result *result, struct pp_status *status)
{
	struct pp_interp *interp = link->interp;
	const struct pp_data_source *data = interp->data;
	uint64_t start = pp_clock();
	enum pp_stretch before = pp_watch_stretch(link->watch, PP_STRETCH_EVAL);
	*result = (struct pp_evaluation_result){.step = step};
	interp->data = evaluation->data;
	interp->times = NULL;
	bool ok = run_batches(evaluation, interp, result, status);
	pp_watch_stretch(link->watch, before);
	interp->data = data;
	interp->batch = 0;
	result->seconds = (double)(pp_clock() - start) * 1e-9;
	return ok;
}
