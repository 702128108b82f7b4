/* This process is one rank of an MPI job.
 *
 * Ensures: a start check that fails is printed once, by one rank, and all ranks end with its exit code; a run that
 * fails is reported by every rank that can, and ends all of them with code 5. */
#include "launch.h"

#include "control/star.h"
#include "run_agree.h"
#include "sentry.h"
#include "transport/queued.h"
#include "transport/transport_mpi.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What start checks share. */
struct start {
	struct pp_launch *launch;
	struct pp_endpoint *endpoint;
	struct pp_watch *watch;
	struct pp_star *star;
	struct pp_sentry *sentry;
	struct pp_loaded loaded;
	struct pp_card *cards;
	uint32_t rank, ranks;
	bool *here;     /* ranks on this machine */
	bool diagnosed; /* this rank's diagnostics are to be printed */
};

static bool agree(struct start *start, const char *what, bool fine, struct pp_status *status)
{
	return pp_run_agree(&pp_transport_mpi, start->endpoint, start->watch, start->ranks, what, fine, status);
}

/* The first rank of each machine proves the program; all see the result. */
static bool verify_on_first(struct start *start, struct pp_status *status)
{
	uint32_t first = start->rank;
	for (uint32_t i = 0; i < start->ranks; i++) {
		start->here[i] = strcmp(start->cards[i].host, start->cards[start->rank].host) == 0;
		if (start->here[i] && i < first)
			first = i;
	}
	bool fine = first != start->rank || pp_check_proof(&start->loaded, start->launch->queues, status);
	/* Machines print in turn only if the first did not fail: that is rank 0's. */
	start->diagnosed = !fine && start->rank == 0;
	return agree(start, "waiting for the proof of the program", fine, status);
}

/* What is no reason to stop, printed once. */
static void warn_start(const struct start *start)
{
	struct pp_status warning;
	if (start->rank == 0 && !pp_check_cores(start->cards, start->ranks, &warning))
		fprintf(stderr, "%s\n", warning.text);
}

static bool check_start(struct start *start, struct pp_status *status)
{
	struct pp_launch *launch = start->launch;
	/* Rank 0 reports and looks for the stop file. */
	if (!agree(start, "checking files", start->rank != 0 || pp_check_files(&launch->files, status), status))
		return false;
	bool fine = pp_program_load(launch->arena, launch->path, &start->loaded, status);
	start->diagnosed = !fine && start->rank == 0;
	if (!agree(start, "loading the program", fine, status))
		return false;
	struct pp_card mine = pp_card_make(&start->loaded);
	if (!pp_transport_exchange(&pp_transport_mpi, start->endpoint, start->watch, "comparing programs", &mine,
	                           start->cards, sizeof mine, status))
		return false;
	const struct pp_program *program = start->loaded.program;
	/* The same on all ranks from here on, but for what a machine can do. */
	if (!pp_check_cards(start->cards, start->ranks, status) || !pp_check_ranks(program, start->ranks, status) ||
	    !pp_check_nodes(program, start->cards, status) ||
	    !pp_check_supported(program, launch->path, launch->device, status) || !verify_on_first(start, status))
		return false;
	if (!agree(start, "checking memory", pp_check_memory(program, start->here, status), status))
		return false;
	warn_start(start);
	return true;
}

static void fail_rank(void *star, const struct pp_status *status)
{
	pp_star_fail(star, status);
}

static int run_rank(struct start *start, struct pp_status *status)
{
	struct pp_launch *launch = start->launch;
	const struct pp_program *program = start->loaded.program;
	uint32_t local = 0;
	for (uint32_t i = 0; i < start->ranks; i++) {
		launch->run.here += start->here[i];
		local += start->here[i] && i < start->rank;
	}
	pp_launch_predict(launch, program, pp_transport_mpi.name);
	pp_star_limits(start->star, &launch->limits);
	atomic_store(&start->watch->program, program);
	launch->run.marks.program = pp_resident_bytes();
	bool bound = pp_mpi_bind(start->endpoint, program, &launch->transport, status);
	struct pp_endpoint *queued = NULL;
	if (bound && launch->queues != PP_LAYOUT_CHANNEL) {
		queued = pp_queued_open(program, pp_grid_coord(program, start->rank), launch->queues, &pp_transport_mpi,
		                        start->endpoint, status);
		bound = queued != NULL;
	}
	if (!agree(start, "opening channels", bound, status))
		return pp_launch_failed(&start->loaded, status, start->rank == 0);
	launch->run.marks.transport = pp_resident_bytes();
	struct pp_rank_run run = {.program = program,
	                          .world = start->rank,
	                          .local = local,
	                          .device_ops = launch->device,
	                          .transport = queued ? &pp_transport_queued : &pp_transport_mpi,
	                          .endpoint = queued ? queued : start->endpoint,
	                          .watch = start->watch,
	                          .options = &launch->run,
	                          .fail = fail_rank,
	                          .keeper = start->star};
	bool ok = pp_run_rank(&run, status);
	if (run.lost)
		_exit(PP_EXIT_RUN);
	pp_run_rank_free(&run);
	pp_queued_close(queued);
	return ok ? PP_EXIT_OK : pp_launch_failed(&(struct pp_loaded){0}, status, start->rank == 0);
}

/* What the launcher says, for reports until MPI has started. */
static uint32_t expected_rank(void)
{
	const char *rank = getenv("OMPI_COMM_WORLD_RANK");
	if (!rank)
		rank = getenv("PMI_RANK");
	return rank ? (uint32_t)strtoul(rank, NULL, 10) : 0;
}

/* ---- signals --------------------------------------------------------------------------------- */

/* Others report for this rank if they can; else it does so itself. */
static void end_by_signal(void *context, const char *why)
{
	struct start *start = context;
	pp_star_signal(start->star, why);
	pp_watch_report(start->watch, why, stderr);
}

static void stop_by_signal(void *context, const char *why)
{
	struct start *start = context;
	pp_star_stop(start->star, why);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The sentry comes first, so that all threads inherit its signal mask; until there is a star it has nobody to tell. */
static bool keep_watch(struct start *start, const struct pp_limits *limits, struct pp_status *status)
{
	struct pp_launch *launch = start->launch;
	signal(SIGPIPE, SIG_IGN); /* a launcher that is gone does not read what this rank says: no reason to die of it */
	if (!pp_sentry_block())
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot block signals");
	start->star = pp_star_start(start->watch, limits, &launch->files);
	if (!start->star)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot start the thread that keeps watch");
	start->sentry = pp_sentry_start(&(struct pp_sentry_calls){start, end_by_signal, stop_by_signal, false});
	return start->sentry || pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot start the thread that waits for signals");
}

static void end_sentry(struct start *start)
{
	pp_sentry_stop(start->sentry);
	start->sentry = NULL;
}

static int run_job(struct start *start)
{
	struct pp_status status;
	struct pp_launch *launch = start->launch;
	launch->run.marks.messaging = pp_resident_bytes();
	start->rank = start->watch->world = pp_mpi_rank(start->endpoint);
	start->ranks = pp_mpi_ranks(start->endpoint);
	start->cards = PP_NEW_ARRAY(launch->arena, struct pp_card, start->ranks);
	start->here = PP_NEW_ARRAY(launch->arena, bool, start->ranks);
	int code;
	if (pp_star_open(start->star, &pp_transport_mpi, start->endpoint, start->ranks, &status) &&
	    check_start(start, &status)) {
		code = run_rank(start, &status);
	} else {
		if (!start->diagnosed)
			start->loaded.diag = NULL;
		code = pp_launch_failed(&start->loaded, &status, start->rank == 0);
	}
	/* Nobody leaves before rank 0 has printed: launchers kill the job at the first bad exit. What they send is no news
	 * then. */
	if (code != PP_EXIT_OK)
		end_sentry(start);
	pp_transport_exchange(&pp_transport_mpi, start->endpoint, start->watch, "leaving", NULL, NULL, 0, &status);
	pp_watch_doing(start->watch, "ending MPI");
	/* At the first bad exit the launcher goes away, and MPI's own end would fail for those that still are in it. */
	if (code == PP_EXIT_OK)
		pp_mpi_close(start->endpoint);
	return code;
}

int pp_launch_mpi(struct pp_launch *launch)
{
	struct pp_status status;
	struct pp_watch watch;
	struct start start = {.launch = launch, .watch = &watch};
	const struct pp_limits limits = pp_launch_limits(&launch->asked, 0, 0);
	pp_watch_init(&watch, NULL, expected_rank(), PP_NO_DEADLINE);
	if (!keep_watch(&start, &limits, &status))
		return pp_launch_failed(&start.loaded, &status, true);
	start.endpoint = pp_mpi_open(&status);
	int code = start.endpoint ? run_job(&start) : pp_launch_failed(&start.loaded, &status, true);
	end_sentry(&start);
	pp_star_close(start.star);
	return code;
}
