/* One rank's whole run.
 *
 * Requires: a verified program that passed the start checks, a bound endpoint.
 * Ensures: all ranks end together, by success, by a failure that all see, or by one rank's report and note to the
 * others. */
#include "train_loop.h"

#include "canary.h"
#include "checkpoint/checkpoint.h"
#include "device_share.h"
#include "evaluation.h"
#include "graph_choice.h"
#include "metrics.h"
#include "run_agree.h"
#include "run_memory.h"
#include "run_report.h"
#include "run_times.h"
#include "run_weights.h"

#include "ir/lifetime.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NON_FINITE_LIMIT = 3, DEFAULT_STEPS = 10 };

double pp_learning_rate(const struct pp_train *train, uint64_t step)
{
	if (step < train->lr_warmup)
		return train->lr_peak * (double)(step + 1) / (double)train->lr_warmup;
	if (train->lr_kind == PP_LR_CONSTANT)
		return train->lr_peak;
	if (step >= train->steps)
		return train->lr_floor;
	const double pi = 3.14159265358979323846;
	double part = (double)(step - train->lr_warmup) / (double)(train->steps - train->lr_warmup);
	return train->lr_floor + 0.5 * (train->lr_peak - train->lr_floor) * (1 + cos(pi * part));
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* What the loop keeps between steps. */
struct training {
	struct pp_rank_run *run;
	const struct pp_stream *stream;
	uint64_t steps; /* in all, with those before a resume */
	struct pp_training_point begin;
	char from[PP_PATH_MAX]; /* checkpoint that was loaded, or "" */
	struct pp_checkpoints checkpoints;
	bool parted;            /* all ranks know that one of them has no device */
	bool due;               /* a checkpoint has come due and is not saved yet */
	uint64_t saved;         /* step of the last checkpoint */
	bool updated;           /* the last step was */
	uint32_t losses, scale; /* slots, PP_NULL: no loss in this program */
	double *losses_seen;    /* what the step left in them, [2 * microbatches] */
	double scale_seen[PP_SCALE_COUNT];
	double flops; /* of a step, all ranks */
	struct pp_data_source *data;
	struct pp_evaluation evaluation;
	struct pp_metrics *metrics; /* rank 0 */
	struct pp_run_report *report;
	struct pp_run_times *times; /* or NULL */
	struct pp_canary *canary;   /* or NULL */
	unsigned non_finite;        /* steps in a row */
	uint64_t previous;          /* end of the last step, pp_clock() */
};

/* The model's own operations: what is recomputed does not count. */
static double step_flops(const struct pp_program *program, const struct pp_named_program *named)
{
	double flops = 0;
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		for (uint32_t i = 0; i < named->streams[rank].count; i++) {
			const struct pp_instr *instr = &named->streams[rank].items[i];
			if (pp_is_compute(instr) && instr->op != PP_OP_REMAT)
				flops += (double)program->stages[instr->stage].flops[pp_phase_of(instr)];
		}
	return flops * (double)(pp_grid_world(program) / program->ranks);
}

static bool program_loads(const struct pp_program *program)
{
	for (uint32_t s = 0; s < program->stage_count; s++)
		if (program->stages[s].loads_tokens || program->stages[s].loads_labels)
			return true;
	return false;
}

static bool loads_data(const struct pp_stream *stream)
{
	for (uint32_t i = 0; i < stream->count; i++)
		if (stream->items[i].op == PP_OP_LOAD)
			return true;
	return false;
}

static bool open_metrics(struct training *training, struct pp_status *status)
{
	const struct pp_run_options *options = training->run->options;
	if (training->run->world != 0)
		return true;
	struct pp_metrics_options wanted = {
	    .path = options->metrics_path,
	    .log = options->quiet ? NULL : stdout,
	    .bar = !options->quiet && isatty(STDERR_FILENO) ? stderr : NULL,
	    .first = training->begin.step,
	    .steps = training->steps,
	    .append = options->resume_path != NULL,
	};
	training->metrics = pp_metrics_open(training->run->program, &wanted, status);
	return training->metrics != NULL;
}

static bool open_data(struct training *training, struct pp_status *status)
{
	const struct pp_rank_run *run = training->run;
	if (run->options->data_path && !program_loads(run->program))
		return pp_fail(status, PP_EXIT_USAGE, "--data=%s: this program reads no data", run->options->data_path);
	if (!loads_data(training->stream))
		return true;
	training->data =
	    pp_data_open(run->program, pp_grid_coord(run->program, run->world), run->options->data_path, status);
	return training->data != NULL;
}

static struct pp_report_link report_link(const struct training *training)
{
	struct pp_rank_run *run = training->run;
	return (struct pp_report_link){run->transport, run->endpoint, run->watch, &run->interp};
}

/* Ranks make connections for their devices together: nobody begins if one of them has no device. */
static bool bind_device(struct training *training, bool made, struct pp_status *status)
{
	struct pp_rank_run *run = training->run;
	const struct pp_transport_ops *transport = run->transport;
	if (!transport->bind)
		return made;
	training->parted = !pp_run_agree(transport, run->endpoint, run->watch, (uint32_t)pp_grid_world(run->program),
	                                 "waiting for all devices", made, status);
	return !training->parted && transport->bind(run->endpoint, run->interp.device, status);
}

static bool make_device(struct training *training, struct pp_status *status)
{
	struct pp_rank_run *run = training->run;
	const struct pp_device_ops *ops = run->device_ops;
	const struct pp_transport_ops *transport = run->transport;
	struct pp_device_options options = run->options->device;
	struct pp_coord coord = pp_grid_coord(run->program, run->world);
	if (run->options->canary && !ops->has_guards)
		return pp_fail(status, PP_EXIT_USAGE, "device %s has no guard zones, so there is no canary on it", ops->name);
	if (ops->own_memory && !transport->stream_ordered && pp_grid_world(run->program) > 1)
		return pp_fail(status, PP_EXIT_USAGE, "transport %s does not reach the memory of device %s", transport->name,
		               ops->name);
	options.graph = pp_graph_wanted(run->options);
	if (ops->own_memory && !pp_graph_fits(run, options.graph, status))
		return false;
	options.guard = run->options->canary ? PP_CANARY_GUARD : 0;
	options.local = run->local;
	options.marks = pp_interp_marks(run->program);
	run->interp.device = ops->create(run->program, coord, &options, status);
	return bind_device(training, run->interp.device != NULL, status) && pp_interp_open(&run->interp, status) &&
	       ops->init(run->interp.device, run->program->train.seed, status);
}

/* A planted fault that strikes nothing would pass for a run that survived it. */
static bool check_fault(const struct pp_fault *fault, const struct pp_program *program,
                        const struct pp_named_program *named, struct pp_status *status)
{
	if (fault->kind == PP_FAULT_NONE && fault->saving == PP_SAVING_FINE)
		return true;
	uint32_t ranks = program->ranks * program->tp * program->dp;
	if (fault->rank >= ranks)
		return pp_fail(status, PP_EXIT_USAGE, "PP_FAULT strikes rank %u, this run has ranks 0..%u", fault->rank,
		               ranks - 1);
	size_t count = named->streams[pp_grid_coord(program, fault->rank).pp].count;
	if (fault->kind != PP_FAULT_NONE && fault->index >= count)
		return pp_fail(status, PP_EXIT_USAGE,
		               "PP_FAULT strikes instruction %u of rank %u, which has %zu, counted from 0", fault->index,
		               fault->rank, count);
	return true;
}

static bool prepare(struct training *training, struct pp_status *status)
{
	struct pp_rank_run *run = training->run;
	const struct pp_program *program = run->program;
	const struct pp_run_options *options = run->options;
	struct pp_interp *interp = &run->interp;
	const struct pp_named_program *named = pp_program_find(program, "train");
	if (!named)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "the image holds no program `train`");
	if (!check_fault(&options->fault, program, named, status))
		return false;
	uint32_t rank = pp_grid_coord(program, run->world).pp;
	training->stream = &named->streams[rank];
	training->steps = options->steps ? options->steps : program->train.steps ? program->train.steps : DEFAULT_STEPS;
	training->losses = pp_only_slot(&program->rank[rank], PP_SLOT_LOSSES);
	training->scale = pp_only_slot(&program->rank[rank], PP_SLOT_SCALE);
	training->flops = step_flops(program, named);
	training->losses_seen = calloc(2 * (size_t)program->microbatches + 1, sizeof *training->losses_seen);
	if (!training->losses_seen)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the losses of rank %" PRIu32, run->world);
	if (!open_data(training, status) ||
	    !pp_evaluation_open(&training->evaluation, program, pp_grid_coord(program, run->world), options, status))
		return false;
	*interp = (struct pp_interp){.program = program,
	                             .world = run->world,
	                             .device_ops = run->device_ops,
	                             .transport = run->transport,
	                             .endpoint = run->endpoint,
	                             .data = training->data,
	                             .watch = run->watch,
	                             .jitter = options->jitter,
	                             .fault = options->fault};
	if (!make_device(training, status))
		return false;
	if (options->canary && !(training->canary = pp_canary_open(interp, status)))
		return false;
	struct pp_report_link link = report_link(training);
	return pp_checkpoints_open(&training->checkpoints, &link, options, status);
}

/* Where training begins is known. */
static bool open_outputs(struct training *training, struct pp_status *status)
{
	const struct pp_rank_run *run = training->run;
	const struct pp_training_point *begin = &training->begin;
	if (begin->step > training->steps)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "%s is of step %" PRIu64 ", the run ends at step %" PRIu64 "; ask for more with --steps",
		               training->from, begin->step, training->steps);
	if (training->data)
		pp_data_continue(training->data, begin->step, begin->next_sample);
	uint64_t steps = training->steps - begin->step;
	if (run->options->profile_path && steps == 1)
		return pp_fail(status, PP_EXIT_USAGE,
		               "--profile=%s: one step is not enough, since the first one warms caches up and is left out; ask "
		               "for more with --steps",
		               run->options->profile_path);
	if (!open_metrics(training, status))
		return false;
	training->report = pp_run_report_open(run->program, run->world, status);
	if (!training->report)
		return false;
	if (run->options->trace_path || run->options->profile_path) {
		training->times =
		    pp_run_times_open(&run->interp, pp_program_find(run->program, "train"), steps, run->options, status);
		if (!training->times)
			return false;
	}
	if (run->world == 0 && training->from[0] && !run->options->quiet)
		printf("%s %s\n", run->options->resume_path ? "going on from" : "weights from", training->from);
	return true;
}

/* The first microbatch whose loss is not finite, or PP_NULL. */
static uint32_t bad_microbatch(const double *losses, uint32_t microbatches)
{
	for (uint32_t i = 0; i < microbatches; i++)
		if (!isfinite(losses[2 * i]))
			return i;
	return PP_NULL;
}

/* Of replicas, the first with a loss of its own that is not finite, and the microbatch in *mb: " of dp 1, rank 5 (…)".
 * "" where there is one replica only, or where each one's sum is finite and theirs is not. */
static bool name_replica(const struct training *training, uint32_t *mb, char *text, size_t size,
                         struct pp_status *status)
{
	const struct pp_rank_run *run = training->run;
	uint64_t world = pp_grid_world(run->program);
	text[0] = '\0';
	if (pp_grid_extent(run->program, PP_AXIS_DP) == 1)
		return true;
	uint32_t *all = calloc(world, sizeof *all), rank = 0;
	if (!all)
		return pp_fail(status, PP_EXIT_RUN, "out of memory");
	bool ok =
	    pp_transport_exchange(run->transport, run->endpoint, run->watch, "looking for the loss that is not finite",
	                          &run->interp.bad_loss, all, sizeof *all, status);
	while (ok && rank < world && all[rank] == PP_NULL)
		rank++;
	if (ok && rank < world) {
		char name[PP_GRID_NAME];
		*mb = all[rank];
		snprintf(text, size, ", %s", pp_grid_name(run->program, rank, name));
	}
	free(all);
	return ok;
}

/* All ranks are here: the step left the same on each. */
static bool stop_non_finite(const struct training *training, const double *losses, uint64_t step,
                            struct pp_status *status)
{
	const struct pp_program *program = training->run->program;
	uint32_t mb = bad_microbatch(losses, program->microbatches), stage = 0;
	char replica[PP_GRID_NAME + 8];
	if (mb == PP_NULL)
		return pp_fail(status, PP_EXIT_RUN,
		               "error[E0905]: gradient norm is not finite at step %" PRIu64
		               " (%d steps in a row; no update was made)",
		               step, NON_FINITE_LIMIT);
	while (stage + 1 < program->stage_count && !program->stages[stage].loads_labels)
		stage++;
	return name_replica(training, &mb, replica, sizeof replica, status) &&
	       pp_fail(status, PP_EXIT_RUN,
	               "error[E0905]: loss is not finite at step %" PRIu64 ", microbatch %" PRIu32 ", stage %" PRIu32
	               "%s (%d steps in a row; no update was made)",
	               step, mb, stage, replica, NON_FINITE_LIMIT);
}

/* Look at what the step left in the losses and scale slots: the same on all ranks, so all decide alike. */
static bool look_at_step(struct training *training, uint64_t step, struct pp_status *status)
{
	struct pp_interp *interp = &training->run->interp;
	struct pp_step_result result = {.step = step, .flops = training->flops, .lr = interp->lr};
	result.seconds = (double)(interp->ended - training->previous) * 1e-9;
	training->previous = interp->ended;
	training->updated = true;
	if (training->losses != PP_NULL && training->scale != PP_NULL) {
		uint64_t bytes = 2 * sizeof(double) * (uint64_t)interp->program->microbatches;
		const double *scale = training->scale_seen;
		if (!pp_interp_read(interp, training->losses, 0, bytes, training->losses_seen, status) ||
		    !pp_interp_read(interp, training->scale, 0, sizeof training->scale_seen, training->scale_seen, status))
			return false;
		result.has_loss = true;
		result.losses = training->losses_seen;
		result.grad_norm = scale[PP_SCALE_NORM];
		result.updated = scale[PP_SCALE_FINITE] != 0;
	}
	if (training->metrics && !pp_metrics_step(training->metrics, &result, status))
		return false;
	if (!result.has_loss)
		return true;
	training->updated = result.updated;
	training->non_finite = result.updated ? 0 : training->non_finite + 1;
	return training->non_finite < NON_FINITE_LIMIT || stop_non_finite(training, result.losses, step, status);
}

/* Once a run has begun, whatever ends it is a failure of the run, and all ranks end with the code of one. */
static void fail_of_run(struct pp_status *status)
{
	if (status->code == PP_EXIT_ENVIRONMENT)
		status->code = PP_EXIT_RUN;
}

/* A step failed here or elsewhere: say where this rank is and tell the others. */
static bool stop(struct training *training, struct pp_status *status)
{
	struct pp_rank_run *run = training->run;
	fail_of_run(status);
	run->lost = run->interp.lost;
	if (!run->lost && run->fail) {
		run->fail(run->keeper, status);
	} else if (!run->lost) {
		pp_watch_report(run->watch, status->text, stderr);
		if (run->interp.device && run->device_ops->forget) /* graphs hold what a link that gives up breaks */
			run->device_ops->forget(run->interp.device);
		run->transport->give_up(run->endpoint, status->text);
	}
	return false;
}

static struct pp_training_point point_after(const struct training *training, uint64_t step)
{
	const struct pp_program *program = training->run->program;
	uint64_t batch = (uint64_t)program->train.microbatch * program->microbatches * pp_grid_extent(program, PP_AXIS_DP);
	return (struct pp_training_point){
	    .step = step, .next_sample = training->begin.next_sample + (step - training->begin.step) * batch};
}

/* Save if a checkpoint is due. A step whose norm was not finite has updated nothing and is not saved: the next good one
 * is. */
static bool save_step(struct training *training, uint64_t step, struct pp_status *status)
{
	struct pp_checkpoints *checkpoints = &training->checkpoints;
	const struct pp_rank_run *run = training->run;
	bool last = step == training->steps;
	training->due = training->due || last || (checkpoints->every && step % checkpoints->every == 0);
	if (!checkpoints->folder || !training->due)
		return true;
	if (!training->updated) {
		if (last && run->world == 0)
			fprintf(stderr, "piperun: step %" PRIu64 " was not finite, so no checkpoint of it was saved\n", step);
		return true;
	}
	struct pp_training_point point = point_after(training, step);
	enum pp_agreed agreed = pp_checkpoints_save(checkpoints, &point, status);
	if (agreed == PP_NO_ANSWER)
		stop(training, status);
	if (agreed != PP_ALL_FINE)
		return false;
	if (training->metrics)
		pp_metrics_saved(training->metrics, checkpoints->folder, step, checkpoints->saved_bytes,
		                 (double)(pp_clock() - training->previous) * 1e-9);
	training->due = false;
	training->saved = step;
	training->previous = pp_clock();
	pp_watch_doing(run->watch, "between steps");
	return true;
}

/* Evaluate if it is time to. Of all that follows, nothing but the clock can tell. */
static bool evaluate_step(struct training *training, uint64_t step, struct pp_status *status)
{
	struct pp_rank_run *run = training->run;
	struct pp_report_link link = report_link(training);
	struct pp_evaluation_result result;
	if (!pp_evaluation_due(&training->evaluation, step, training->steps))
		return true;
	if (!pp_evaluation_run(&training->evaluation, &link, step, &result, status) ||
	    (training->canary && !pp_canary_check(training->canary, step, status)) ||
	    (training->metrics && !pp_metrics_evaluated(training->metrics, &result, status)))
		return stop(training, status);
	training->previous = pp_clock();
	pp_watch_doing(run->watch, "between steps");
	return true;
}

/* All ranks were asked to stop and are between the same two steps: save, unless it was just done. */
static bool stop_early(struct training *training, uint64_t step, struct pp_status *status)
{
	const struct pp_rank_run *run = training->run;
	bool ran = step > training->begin.step;
	if (run->world == 0 && !run->options->quiet)
		printf("stopped by %s after step %" PRIu64 " of %" PRIu64 "\n", run->watch->gate.why, step, training->steps);
	training->steps = step;
	if (ran && training->checkpoints.folder && training->saved != step)
		return save_step(training, step, status);
	return true;
}

static bool run_steps(struct training *training, struct pp_status *status)
{
	struct pp_rank_run *run = training->run;
	struct pp_interp *interp = &run->interp;
	training->previous = pp_clock();
	if (training->times)
		pp_run_times_start(training->times);
	for (uint64_t step = training->begin.step + 1; step <= training->steps; step++) {
		if (!pp_watch_pass(run->watch, step))
			return stop_early(training, step - 1, status);
		pp_watch_stretch(run->watch, step == training->begin.step + 1 ? PP_STRETCH_FIRST : PP_STRETCH_STEP);
		/* Steps that end with a norm over all ranks begin together; others would drift apart and blur the idle times.
		 */
		if (training->scale == PP_NULL && !pp_transport_exchange(run->transport, run->endpoint, run->watch,
		                                                         "lining up for the next step", NULL, NULL, 0, status))
			return stop(training, status);
		interp->step = step;
		interp->lr = pp_learning_rate(&run->program->train, step - 1);
		interp->times = training->times ? pp_run_times_of(training->times, step - training->begin.step) : NULL;
		if (!pp_interp_step(interp, training->stream, status))
			return stop(training, status);
		pp_run_report_step(training->report, interp);
		if (training->canary && !pp_canary_check(training->canary, step, status))
			return stop(training, status);
		pp_watch_doing(run->watch, "between steps");
		if (!look_at_step(training, step, status)) {
			if (training->non_finite < NON_FINITE_LIMIT) /* only here: a file */
				return stop(training, status);
			return false;
		}
		if (!save_step(training, step, status) || !evaluate_step(training, step, status))
			return false;
	}
	return true;
}

static bool finish(struct training *training, struct pp_status *status)
{
	struct pp_rank_run *run = training->run;
	struct pp_report_link link = report_link(training);
	uint64_t steps = 0;
	double recent = training->metrics ? pp_metrics_recent_loss(training->metrics, &steps) : NAN;
	FILE *out = run->world == 0 && !run->options->quiet ? stdout : NULL;
	if (out && steps)
		fprintf(out, "mean loss of the last %" PRIu64 " steps: %.4f\n", steps, recent);
	bool ran = training->begin.step < training->steps;
	if (out && !ran && !run->watch->gate.why[0])
		fprintf(out, "nothing left to do: %s is of step %" PRIu64 " of %" PRIu64 "\n", training->from,
		        training->begin.step, training->steps);
	if (ran && !pp_run_report_print(training->report, &link, run->options, out, status))
		return false;
	uint64_t kept = training->times ? pp_run_times_kept(training->times) : 0;
	FILE *memory_out = run->world == 0 ? stdout : NULL;
	if (ran && run->options->memory && !pp_run_memory_print(&link, run->options, kept, memory_out, status))
		return false;
	if (training->times && !pp_run_times_finish(training->times, &link, out, status))
		return false;
	if (ran && training->canary && !pp_canary_report(training->canary, &link, run->world == 0 ? stdout : NULL, status))
		return false;
	return !run->options->weights_hash || pp_run_weights(&link, run->world == 0 ? stdout : NULL, status);
}

/* The end that all ranks have reached: what rank 0 cannot write fails the run for all of them. */
static bool close_outputs(struct training *training, bool ok, struct pp_status *status)
{
	struct pp_rank_run *run = training->run;
	struct pp_status written = {.code = PP_EXIT_RUN}; /* without text: pp_finish_output says it of standard output */
	bool fine = !training->metrics || pp_metrics_close(training->metrics, &written);
	training->metrics = NULL;
	if (!ok)
		return false;
	fine = fine && (run->world != 0 || (fflush(stdout) == 0 && !ferror(stdout)));
	if (!fine)
		*status = written;
	return pp_run_agree(run->transport, run->endpoint, run->watch, (uint32_t)pp_grid_world(run->program),
	                    "waiting for all ranks to end", fine, status);
}

static bool agree_on_evaluation(struct training *training, struct pp_status *status)
{
	struct pp_report_link link = report_link(training);
	return pp_evaluation_agree(&training->evaluation, &link, status);
}

bool pp_run_rank(struct pp_rank_run *run, struct pp_status *status)
{
	struct training training = {.run = run};
	pp_watch_doing(run->watch, "preparing");
	bool fine = prepare(&training, status);
	uint32_t world = (uint32_t)pp_grid_world(run->program);
	bool ok = !training.parted && pp_run_agree(run->transport, run->endpoint, run->watch, world,
	                                           "waiting for all ranks to be ready", fine, status);
	ok = ok && pp_checkpoints_start(&training.checkpoints, run->options, &training.begin, training.from, status);
	ok = ok && agree_on_evaluation(&training, status);
	fine = ok && open_outputs(&training, status);
	ok = ok &&
	     pp_run_agree(run->transport, run->endpoint, run->watch, world, "waiting for all ranks to begin", fine, status);
	bool began = ok;
	ok = ok && run_steps(&training, status);
	pp_watch_stretch(run->watch, PP_STRETCH_START);
	ok = close_outputs(&training, ok && finish(&training, status), status);
	if (began && !ok)
		fail_of_run(status);
	if (training.report)
		pp_run_report_close(training.report);
	if (run->interp.device && run->device_ops->forget)
		run->device_ops->forget(run->interp.device);
	pp_run_times_close(training.times);
	pp_canary_close(training.canary);
	free(training.losses_seen);
	pp_evaluation_close(&training.evaluation);
	pp_checkpoints_close(&training.checkpoints);
	if (training.data)
		pp_data_close(training.data);
	return ok;
}

void pp_run_rank_free(struct pp_rank_run *run)
{
	pp_interp_close(&run->interp);
	if (run->interp.device)
		run->device_ops->destroy(run->interp.device);
	run->interp.device = NULL;
}
