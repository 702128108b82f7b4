/* This process is one rank of an MPI job.
 *
 * Ensures: a start check that fails is printed once, by one rank, and all ranks end with its exit code; a run that
 * fails is reported by every rank that can, and ends all of them with code 5. */
#include "graph_choice.h"
#include "launch_rank.h"
#include "transport/transport_mpi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What start checks share. */
struct start {
	struct pp_rank_process process;
	struct pp_loaded loaded;
	struct pp_card *cards;
	bool *here;     /* ranks on this machine */
	bool diagnosed; /* this rank's diagnostics are to be printed */
};

/* What rank 0 has proven holds for all, whatever the file says of itself. */
static bool share_proof(struct start *start, struct pp_status *status)
{
	struct pp_stamp *stamp = &start->loaded.program->stamp, *all = calloc(start->process.ranks, sizeof *all);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = pp_transport_exchange(&pp_transport_mpi, start->process.endpoint, &start->process.watch,
	                                "waiting for the proof of the program", stamp, all, sizeof *all, status);
	if (ok)
		*stamp = all[0];
	free(all);
	return ok;
}

/* The first rank of each machine proves the program; all see the result. */
static bool verify_on_first(struct start *start, struct pp_status *status)
{
	uint32_t first = start->process.rank;
	for (uint32_t i = 0; i < start->process.ranks; i++) {
		start->here[i] = strcmp(start->cards[i].host, start->cards[start->process.rank].host) == 0;
		if (start->here[i] && i < first)
			first = i;
	}
	bool fine = first != start->process.rank || pp_check_proof(&start->loaded, start->process.launch->queues, status);
	/* Machines print in turn only if the first did not fail: that is rank 0's. */
	start->diagnosed = !fine && start->process.rank == 0;
	return pp_rank_agree(&start->process, "waiting for the proof of the program", fine, status) &&
	       share_proof(start, status);
}

/* What is no reason to stop, printed once. */
static void warn_start(const struct start *start)
{
	struct pp_status warning;
	if (start->process.rank == 0 && !pp_check_cores(start->cards, start->process.ranks, &warning))
		fprintf(stderr, "%s\n", warning.text);
	if (!pp_graph_agree(start->cards, start->process.ranks, &start->process.launch->run.device.graph, &warning) &&
	    start->process.rank == 0)
		fprintf(stderr, "%s\n", warning.text);
}

/* What the launcher says, for reports until MPI has started. */
static uint32_t expected_rank(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *rank = getenv(names[i]);
		if (rank)
			return (uint32_t)strtoul(rank, NULL, 10);
	}
	return 0;
}

/* The launcher has started several, and MPI has made each a job of its own: it is not the launcher's MPI. */
static bool check_job(const struct start *start, struct pp_status *status)
{
	unsigned long processes = start->process.launch->processes;
	if (start->process.ranks > 1 || processes <= 1)
		return true;
	return pp_fail(
	    status, PP_EXIT_ENVIRONMENT,
	    "error[E0901]: the launcher started %lu processes, but MPI made each a job of its own: it is not the "
	    "launcher's MPI; start this piperun by the mpirun of %s, or by srun --mpi=%s",
	    processes, pp_mpi_is_open_mpi ? "Open MPI" : "MPICH", pp_mpi_is_open_mpi ? "pmix" : "pmi2");
}

static bool check_start(struct start *start, struct pp_status *status)
{
	struct pp_launch *launch = start->process.launch;
	if (!check_job(start, status))
		return false;
	/* Rank 0 reports and looks for the stop file. */
	if (!pp_rank_agree(&start->process, "checking files",
	                   start->process.rank != 0 || pp_check_files(&launch->files, status), status))
		return false;
	bool fine = pp_program_load(launch->arena, launch->path, &start->loaded, status);
	start->diagnosed = !fine && start->process.rank == 0;
	if (!pp_rank_agree(&start->process, "loading the program", fine, status))
		return false;
	pp_launch_choose_device(launch, start->loaded.program, false, start->process.rank == 0);
	struct pp_card mine = pp_card_make(&start->loaded, launch->device);
	mine.graph = pp_graph_wanted(&launch->run);
	if (!pp_transport_exchange(&pp_transport_mpi, start->process.endpoint, &start->process.watch, "comparing programs",
	                           &mine, start->cards, sizeof mine, status))
		return false;
	const struct pp_program *program = start->loaded.program;
	/* The same on all ranks from here on, but for what a machine can do. */
	if (!pp_check_cards(start->cards, start->process.ranks, status) ||
	    !pp_check_ranks(program, start->process.ranks, status) || !pp_check_nodes(program, start->cards, status) ||
	    !pp_check_supported(program, launch->path, launch->device, status) || !verify_on_first(start, status))
		return false;
	if (!pp_rank_agree(&start->process, "checking memory",
	                   pp_check_memory(program, launch->device, start->here, status), status))
		return false;
	warn_start(start);
	return true;
}

static bool bind(struct pp_rank_process *process, const struct pp_program *program, struct pp_status *status)
{
	return pp_mpi_bind(process->endpoint, program, &process->launch->transport, status);
}

static int run_job(struct start *start)
{
	struct pp_status status;
	struct pp_rank_process *process = &start->process;
	struct pp_launch *launch = process->launch;
	launch->run.marks.messaging = pp_resident_bytes();
	launch->run.mpi = true;
	process->rank = process->watch.world = pp_mpi_rank(process->endpoint);
	process->ranks = pp_mpi_ranks(process->endpoint);
	start->cards = PP_NEW_ARRAY(launch->arena, struct pp_card, process->ranks);
	start->here = PP_NEW_ARRAY(launch->arena, bool, process->ranks);
	int code;
	if (pp_star_open(process->star, &pp_transport_mpi, process->endpoint, process->ranks, &status) &&
	    check_start(start, &status)) {
		code = pp_rank_run(process, start->loaded.program, start->here, bind);
	} else {
		if (!start->diagnosed)
			start->loaded.diag = NULL;
		/* Each of several jobs of one has a rank 0. */
		code = pp_launch_failed(&start->loaded, &status,
		                        process->rank == 0 && (process->ranks > 1 || expected_rank() == 0));
	}
	pp_rank_leave(process, code);
	pp_watch_doing(&process->watch, "ending MPI");
	/* At the first bad exit the launcher goes away, and MPI's own end would fail for those that still are in it. */
	if (code == PP_EXIT_OK)
		pp_mpi_close(process->endpoint);
	return code;
}

int pp_launch_mpi(struct pp_launch *launch)
{
	struct pp_status status;
	struct start start = {.process = {.launch = launch, .ops = &pp_transport_mpi}};
	struct pp_rank_process *process = &start.process;
	if (!pp_rank_keep_watch(process, expected_rank(), &status))
		return pp_launch_failed(&start.loaded, &status, true);
	process->endpoint = pp_mpi_open(&status);
	int code = process->endpoint ? run_job(&start) : pp_launch_failed(&start.loaded, &status, true);
	pp_rank_end_sentry(process);
	pp_star_close(process->star);
	return code;
}
