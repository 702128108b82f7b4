/* All ranks as threads of this process, over the loop transport. */
#include "launch.h"

#include "control/loop_keeper.h"
#include "sentry.h"

#include "transport/queued.h"
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

enum { LOOK_TURNS = 10, MOST_THREADS = 16384 };

static const struct pp_status out_of_memory = {PP_EXIT_ENVIRONMENT, "out of memory"};

struct rank_thread {
	pthread_t thread;
	struct pp_rank_run run;
	struct pp_loop_keeper *keeper;
	struct pp_endpoint *queued; /* or NULL: one queue per channel, as the transport has */
	struct pp_status status;
	bool ok;
	atomic_bool done;
};

/* The limit, or 20 times as long as is predicted. */
static uint64_t patient(uint64_t limit, uint64_t predicted)
{
	return predicted <= UINT64_MAX / 200 && 20 * predicted > limit ? 20 * predicted : limit;
}

struct pp_limits pp_launch_limits(const struct pp_limits *asked, uint64_t step, uint64_t batch)
{
	const uint64_t second = 1000000000, *given = asked->stretch;
	uint64_t base = given[PP_STRETCH_STEP] ? given[PP_STRETCH_STEP] : 60 * second;
	uint64_t steps = given[PP_STRETCH_STEP] ? base : patient(base, step);
	struct pp_limits limits = {.stretch = {[PP_STRETCH_START] = 5 * base,
	                                       [PP_STRETCH_FIRST] = 5 * steps,
	                                       [PP_STRETCH_STEP] = steps,
	                                       [PP_STRETCH_SAVE] = 10 * base,
	                                       [PP_STRETCH_EVAL] = patient(base, batch)},
	                           .heartbeat = asked->heartbeat ? asked->heartbeat : 10 * second};
	for (unsigned i = 0; i < PP_STRETCH_COUNT; i++)
		if (given[i])
			limits.stretch[i] = given[i];
	return limits;
}

/* Predicted ns of a batch, 0: there is no evaluation. */
static uint64_t predict_evaluation(struct pp_launch *launch, const struct pp_program *program)
{
	const struct pp_named_program *eval = pp_program_find(program, "eval");
	struct pp_sim sim;
	bool known = eval && pp_simulate(launch->arena, program, eval, launch->queues, false, &sim);
	return known ? sim.makespan + sim.tail : 0;
}

void pp_launch_predict(struct pp_launch *launch, const struct pp_program *program, const char *transport)
{
	struct pp_sim *sim = PP_NEW(launch->arena, struct pp_sim);
	struct pp_sim_options options = {.layout = launch->queues,
	                                 .intervals = launch->run.trace_path || launch->run.profile_path,
	                                 .progress = pp_progress_find(transport)};
	launch->run.arena = launch->arena;
	uint64_t batch = predict_evaluation(launch, program), step = 0;
	if (pp_simulate_with(launch->arena, program, pp_program_find(program, "train"), &options, sim)) {
		launch->run.predicted = sim->makespan ? sim : NULL; /* no prices: nothing to compare with */
		step = sim->makespan + sim->tail;
	}
	launch->limits = pp_launch_limits(&launch->asked, step, batch);
}

void pp_launch_choose_device(struct pp_launch *launch, const struct pp_program *program, bool apart, bool speaks)
{
	if (launch->device)
		return;
	struct pp_status status;
	bool planned = program->ranks && program->rank[0].sms;
	const struct pp_device_ops *gpu = planned && launch->gpu ? launch->gpu(&status) : NULL;
	launch->device = gpu && gpu->present(apart) ? gpu : &pp_device_cpu;
	bool whole =
	    program->tensor_count && program->tensors[0].dtype == PP_F32; /* else the CPU refuses it, and says why */
	if (planned && whole && launch->device != gpu && speaks && !launch->run.quiet)
		fprintf(stderr,
		        "piperun: planned for GPUs, but none was found here: the ranks run on the CPU (--device=cuda says "
		        "why, --device=cpu that it is meant)\n");
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
	pp_loop_keeper_tell(rank->keeper, rank->run.world, rank->run.lost ? PP_LOST : PP_ENDED, NULL);
	atomic_store(&rank->done, true);
	return NULL;
}

static void fail_rank(void *context, const struct pp_status *status)
{
	struct rank_thread *rank = context;
	pp_loop_keeper_tell(rank->keeper, rank->run.world, PP_GAVE_UP, status);
}

static void end_by_signal(void *keeper, const char *why)
{
	pp_loop_keeper_signal(keeper, why);
}

static void stop_by_signal(void *keeper, const char *why)
{
	pp_loop_keeper_stop(keeper, why);
}

static bool all_done(struct rank_thread *ranks, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!atomic_load(&ranks[i].done))
			return false;
	return true;
}

/* Until all threads have ended; if they cannot, the keeper ends the process. */
static void wait_for_ranks(struct pp_loop_keeper *keeper, struct rank_thread *ranks, uint32_t count)
{
	for (unsigned turn = 0; !all_done(ranks, count); turn++) {
		if (turn % LOOK_TURNS == 0)
			pp_loop_keeper_look(keeper);
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	pp_loop_keeper_look(keeper);
}

static int end_run(struct rank_thread *ranks, uint32_t count)
{
	uint32_t failed = count;
	for (uint32_t i = 0; i < count; i++) {
		pthread_join(ranks[i].thread, NULL);
		if (!ranks[i].ok && failed == count)
			failed = i;
	}
	for (uint32_t i = 0; i < count; i++) {
		pp_run_rank_free(&ranks[i].run);
		pp_queued_close(ranks[i].queued);
	}
	if (failed == count)
		return PP_EXIT_OK;
	const struct pp_loaded none = {0};
	return pp_launch_failed(&none, &ranks[failed].status, true);
}

static int run_ranks(struct pp_launch *launch, const struct pp_loaded *loaded, struct pp_loop *loop)
{
	const struct pp_program *program = loaded->program;
	const bool moved = launch->device->mover != NULL;
	const struct pp_transport_ops *direct = moved ? &pp_transport_loop_ordered : &pp_transport_loop;
	const struct pp_transport_ops *queued = moved ? &pp_transport_queued_ordered : &pp_transport_queued;
	uint32_t world = (uint32_t)pp_grid_world(program);
	struct pp_watch *watches = PP_NEW_ARRAY(launch->arena, struct pp_watch, world);
	struct rank_thread *ranks = PP_NEW_ARRAY(launch->arena, struct rank_thread, world);
	for (uint32_t i = 0; i < world; i++)
		pp_watch_init(&watches[i], program, i, PP_NO_DEADLINE);
	for (uint32_t i = 0; i < world && launch->queues != PP_LAYOUT_CHANNEL; i++) {
		struct pp_status status;
		ranks[i].queued = pp_queued_open(program, pp_grid_coord(program, i), launch->queues, direct,
		                                 pp_loop_endpoint(loop, i), &status);
		if (!ranks[i].queued)
			return pp_launch_failed(&(struct pp_loaded){0}, &status, true);
	}
	struct pp_loop_keeper *keeper = pp_loop_keeper_open(program, watches, &launch->limits, &launch->files);
	if (!keeper)
		return pp_launch_failed(&(struct pp_loaded){0}, &out_of_memory, true);
	struct pp_sentry *sentry =
	    pp_sentry_start(&(struct pp_sentry_calls){keeper, end_by_signal, stop_by_signal, .gentle = !launch->launched});
	for (uint32_t i = 0; i < world; i++) {
		ranks[i].keeper = keeper;
		ranks[i].run = (struct pp_rank_run){.program = program,
		                                    .world = i,
		                                    .local = 0, /* they share a GPU */
		                                    .device_ops = launch->device,
		                                    .transport = ranks[i].queued ? queued : direct,
		                                    .endpoint = ranks[i].queued ? ranks[i].queued : pp_loop_endpoint(loop, i),
		                                    .watch = &watches[i],
		                                    .options = &launch->run,
		                                    .fail = fail_rank,
		                                    .keeper = &ranks[i]};
		if (pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i]) == 0)
			continue;
		fprintf(stderr, "piperun: cannot start a thread for rank %" PRIu32 " of %" PRIu32 "\n", i, world);
		fflush(stdout);
		_exit(PP_EXIT_ENVIRONMENT); /* threads that run already would wait for it */
	}
	wait_for_ranks(keeper, ranks, world);
	pp_sentry_stop(sentry);
	pp_loop_keeper_close(keeper);
	return end_run(ranks, world);
}

int pp_launch_loop(struct pp_launch *launch)
{
	struct pp_loaded loaded;
	struct pp_status status;
	loaded.diag = NULL;
	if (!pp_check_files(&launch->files, &status) || !pp_program_load(launch->arena, launch->path, &loaded, &status))
		return pp_launch_failed(&loaded, &status, true);
	pp_launch_choose_device(launch, loaded.program, false, true);
	if (!pp_check_supported(loaded.program, launch->path, launch->device, &status) ||
	    !pp_check_proof(&loaded, launch->queues, &status) ||
	    !pp_check_memory(loaded.program, launch->device, NULL, &status))
		return pp_launch_failed(&loaded, &status, true);
	uint32_t world = (uint32_t)pp_grid_world(loaded.program);
	if (world > MOST_THREADS) {
		pp_fail(&status, PP_EXIT_ENVIRONMENT, "%" PRIu32 " ranks are too many for threads of one process: at most %d",
		        world, MOST_THREADS);
		return pp_launch_failed(&loaded, &status, true);
	}
	if (launch->announce && launch->processes > 1)
		fprintf(stderr,
		        "piperun: each of srun's %lu tasks runs the whole program by itself; to make them one job, give srun "
		        "--mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)\n",
		        launch->processes);
	else if (launch->announce)
		fprintf(stderr,
		        "piperun: not started by mpirun: %" PRIu32 " ranks run as threads of this process (--transport=loop)\n",
		        world);
	launch->run.here = world;
	launch->run.marks.messaging = launch->run.marks.begin;
	pp_launch_predict(launch, loaded.program, pp_transport_loop.name);
	launch->run.marks.program = pp_resident_bytes();
	struct pp_loop *loop = pp_loop_create(loaded.program, &launch->transport, &status);
	if (!loop)
		return pp_launch_failed(&loaded, &status, true);
	pp_loop_move_by(loop, launch->device->mover);
	launch->run.marks.transport = pp_resident_bytes();
	int code = run_ranks(launch, &loaded, loop);
	pp_loop_destroy(loop);
	return code;
}
