/* All ranks as threads of this process, over the loop transport. */
#include "launch.h"

#include "transport/transport_loop.h"

#include "ir/simulate.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const uint64_t grace = 2000000000; /* ns that ranks get to stop after the first has failed */

struct rank_thread {
	pthread_t thread;
	struct pp_rank_run run;
	struct pp_status status;
	bool ok;
	atomic_bool done;
};

/* The timeout, or 20 times as long as is predicted. */
static uint64_t patient(uint64_t timeout, const struct pp_sim *sim)
{
	uint64_t step = sim->makespan + sim->tail;
	return step <= UINT64_MAX / 20 && 20 * step > timeout ? 20 * step : timeout;
}

static void predict_evaluation(struct pp_launch *launch, const struct pp_program *program)
{
	const struct pp_named_program *eval = pp_program_find(program, "eval");
	struct pp_sim sim;
	launch->run.eval_timeout = launch->timeout;
	if (eval && !launch->timeout_given && pp_simulate(launch->arena, program, eval, PP_LAYOUT_CHANNEL, false, &sim))
		launch->run.eval_timeout = patient(launch->timeout, &sim);
}

void pp_launch_predict(struct pp_launch *launch, const struct pp_program *program, const char *transport)
{
	struct pp_sim *sim = PP_NEW(launch->arena, struct pp_sim);
	struct pp_sim_options options = {.layout = PP_LAYOUT_CHANNEL,
	                                 .intervals = launch->run.trace_path || launch->run.profile_path,
	                                 .progress = pp_progress_find(transport)};
	launch->run.arena = launch->arena;
	predict_evaluation(launch, program);
	if (!pp_simulate_with(launch->arena, program, pp_program_find(program, "train"), &options, sim))
		return;
	launch->run.predicted = sim->makespan ? sim : NULL; /* no prices: nothing to compare with */
	if (!launch->timeout_given)
		launch->timeout = patient(launch->timeout, sim);
}

int pp_launch_failed(const struct pp_loaded *loaded, const struct pp_status *status, bool print)
{
	if (print) {
		fflush(stdout);
		if (loaded->diag)
			pp_diag_print(loaded->diag, stderr, PP_DIAG_HUMAN, false);
		if (status->text[0])
			fprintf(stderr, "%s%s\n", strncmp(status->text, "error[", 6) == 0 ? "" : "piperun: ", status->text);
	}
	return (int)status->code;
}

static void *run_thread(void *argument)
{
	struct rank_thread *rank = argument;
	rank->ok = pp_run_rank(&rank->run, &rank->status);
	atomic_store(&rank->done, true);
	return NULL;
}

/* When to stop waiting for the rest, given what the stopped ranks say: UINT64_MAX while none has failed. After a silent
 * loss the others need their own time-out to notice. */
static uint64_t patience(struct rank_thread *ranks, uint32_t count, uint64_t timeout)
{
	uint64_t left = UINT64_MAX;
	for (uint32_t i = 0; i < count; i++) {
		if (!atomic_load(&ranks[i].done) || ranks[i].ok)
			continue;
		uint64_t own = ranks[i].run.lost ? grace + timeout : grace;
		if (left == UINT64_MAX || own > left)
			left = own;
	}
	return left;
}

static bool all_done(struct rank_thread *ranks, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!atomic_load(&ranks[i].done))
			return false;
	return true;
}

/* Wait for all threads. Once one has failed the others have a moment; then the process ends with what they were doing.
 */
static void wait_for_ranks(struct rank_thread *ranks, struct pp_watch *watches, uint32_t count)
{
	uint64_t failed_at = 0;
	while (!all_done(ranks, count)) {
		uint64_t wait = patience(ranks, count, watches[0].timeout);
		if (wait != UINT64_MAX && !failed_at)
			failed_at = pp_clock();
		if (failed_at && pp_clock() - failed_at > wait)
			break;
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	if (all_done(ranks, count))
		return;
	for (uint32_t i = 0; i < count; i++)
		if (!atomic_load(&ranks[i].done))
			pp_watch_report(&watches[i], "did not stop", stderr);
	_exit(PP_EXIT_RUN);
}

static int end_run(struct rank_thread *ranks, const struct pp_watch *watches, uint32_t count)
{
	bool reported = false;
	uint32_t failed = count;
	for (uint32_t i = 0; i < count; i++) {
		pthread_join(ranks[i].thread, NULL);
		reported = reported || atomic_load(&watches[i].reported);
		/* Those that only saw another give up have nothing to say about the cause. */
		if (!ranks[i].ok &&
		    (failed == count || (ranks[failed].status.code == PP_EXIT_RUN && ranks[i].status.code != PP_EXIT_RUN)))
			failed = i;
	}
	for (uint32_t i = 0; i < count; i++)
		pp_run_rank_free(&ranks[i].run);
	if (failed == count)
		return PP_EXIT_OK;
	const struct pp_loaded none = {0};
	return pp_launch_failed(&none, &ranks[failed].status, !reported);
}

static int run_ranks(struct pp_launch *launch, const struct pp_loaded *loaded, struct pp_loop *loop)
{
	const struct pp_program *program = loaded->program;
	uint32_t world = (uint32_t)pp_grid_world(program);
	struct pp_watch *watches = PP_NEW_ARRAY(launch->arena, struct pp_watch, world);
	struct rank_thread *ranks = PP_NEW_ARRAY(launch->arena, struct rank_thread, world);
	for (uint32_t i = 0; i < world; i++)
		pp_watch_init(&watches[i], program, i, launch->timeout);
	struct pp_sentry *sentry = pp_sentry_start(watches, world);
	for (uint32_t i = 0; i < world; i++) {
		ranks[i].run = (struct pp_rank_run){.program = program,
		                                    .world = i,
		                                    .device_ops = launch->device,
		                                    .transport = &pp_transport_loop,
		                                    .endpoint = pp_loop_endpoint(loop, i),
		                                    .watch = &watches[i],
		                                    .options = &launch->run};
		if (pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i]) == 0)
			continue;
		fprintf(stderr, "piperun: cannot start a thread for rank %" PRIu32 " of %" PRIu32 "\n", i, world);
		fflush(stdout);
		_exit(PP_EXIT_ENVIRONMENT); /* threads that run already would wait for it */
	}
	wait_for_ranks(ranks, watches, world);
	pp_sentry_stop(sentry);
	return end_run(ranks, watches, world);
}

int pp_launch_loop(struct pp_launch *launch)
{
	struct pp_loaded loaded;
	struct pp_status status;
	if (!pp_program_load(launch->arena, launch->path, &loaded, &status) ||
	    !pp_check_supported(loaded.program, launch->path, launch->device, &status) ||
	    !pp_check_proof(&loaded, &status) || !pp_check_memory(loaded.program, NULL, &status))
		return pp_launch_failed(&loaded, &status, true);
	uint32_t world = (uint32_t)pp_grid_world(loaded.program);
	if (launch->announce)
		fprintf(stderr,
		        "piperun: not started by mpirun: %" PRIu32 " ranks run as threads of this process (--transport=loop)\n",
		        world);
	launch->run.here = world;
	pp_launch_predict(launch, loaded.program, pp_transport_loop.name);
	struct pp_loop *loop = pp_loop_create(loaded.program, &launch->transport, &status);
	if (!loop)
		return pp_launch_failed(&loaded, &status, true);
	int code = run_ranks(launch, &loaded, loop);
	pp_loop_destroy(loop);
	return code;
}
