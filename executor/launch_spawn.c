/* Ranks as processes without a launcher: this process checks the program, forks one process for every rank and looks
 * after them. They talk through memory that they inherit (transport/transport_local.h), and keep watch as under mpirun.
 *
 * Requires: no threads yet, and no device that was touched: forked processes could not use it. Ensures: no rank
 * outlives this process; it ends when all have, with the code of the first that failed. */
#include "launch_rank.h"
#include "transport/transport_local.h"

#include "ir/file.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* After the first bad end: the others have their say, then they are asked to end, then they end. */
enum { ASK_MS = 6000, KILL_MS = 8000, LOOK_MS = 100 };

struct family {
	pid_t *children; /* [count], 0: reaped */
	uint32_t count, alive;
	int code;       /* of the first that ended badly by itself */
	bool bad;       /* one ended badly */
	uint64_t since; /* pp_clock() of that */
	bool asked, stopping;
};

/* ---- a rank ---------------------------------------------------------------------------------- */

static int run_rank(struct pp_rank_process *process, const struct pp_program *program)
{
	struct pp_status status;
	struct pp_launch *launch = process->launch;
	bool *here = PP_NEW_ARRAY(launch->arena, bool, process->ranks);
	memset(here, true, process->ranks * sizeof *here);
	launch->run.marks.messaging = pp_resident_bytes();
	int code = pp_star_open(process->star, process->ops, process->endpoint, process->ranks, &status)
	               ? pp_rank_run(process, program, here, NULL)
	               : pp_launch_failed(&(struct pp_loaded){0}, &status, process->rank == 0);
	pp_rank_leave(process, code);
	return code;
}

static int be_rank(struct pp_launch *launch, const struct pp_program *program, struct pp_local *local, uint32_t rank)
{
	struct pp_status status;
	struct pp_rank_process process = {
	    .launch = launch, .ops = &pp_transport_local, .rank = rank, .ranks = (uint32_t)pp_grid_world(program)};
	if (!pp_rank_keep_watch(&process, rank, &status))
		return pp_launch_failed(&(struct pp_loaded){0}, &status, true);
	process.endpoint = pp_local_open(local, rank, &status);
	int code = process.endpoint ? run_rank(&process, program) : pp_launch_failed(&(struct pp_loaded){0}, &status, true);
	pp_rank_end_sentry(&process);
	pp_star_close(process.star);
	if (process.endpoint)
		pp_local_close(process.endpoint);
	return code;
}

/* ---- their parent ---------------------------------------------------------------------------- */

static void tell(const struct family *family, int signal)
{
	for (uint32_t i = 0; i < family->count; i++)
		if (family->children[i])
			kill(family->children[i], signal);
}

static void note_end(struct family *family, uint32_t rank, int status)
{
	family->children[rank] = 0;
	family->alive--;
	if (WIFEXITED(status) && WEXITSTATUS(status) == PP_EXIT_OK)
		return;
	if (!family->bad)
		family->since = pp_clock();
	if (WIFEXITED(status) && !family->code)
		family->code = WEXITSTATUS(status);
	if (WIFSIGNALED(status) && !family->asked)
		fprintf(stderr, "piperun: rank %" PRIu32 " was ended by signal %d (%s)\n", rank, WTERMSIG(status),
		        strsignal(WTERMSIG(status)));
	family->bad = true;
}

static void reap(struct family *family)
{
	for (uint32_t i = 0; i < family->count; i++) {
		int status;
		if (family->children[i] && waitpid(family->children[i], &status, WNOHANG) == family->children[i])
			note_end(family, i, status);
	}
}

static void take_signal(struct family *family, int signal)
{
	if (signal == SIGUSR1) {
		tell(family, SIGUSR1);
	} else if (signal == SIGINT && !family->stopping) { /* the first one is gentle */
		family->stopping = true;
		tell(family, SIGUSR1);
	} else if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) {
		if (!family->bad)
			family->since = pp_clock();
		family->bad = true;
		if (!family->code)
			family->code = PP_EXIT_RUN;
		tell(family, SIGTERM);
	}
}

static int look_after(struct family *family, const sigset_t *signals)
{
	const uint64_t millisecond = 1000000;
	while (family->alive) {
		int signal = sigtimedwait(signals, NULL, &(struct timespec){0, LOOK_MS * 1000000L});
		if (signal > 0)
			take_signal(family, signal);
		reap(family);
		uint64_t passed = family->bad ? pp_clock() - family->since : 0;
		if (passed > ASK_MS * millisecond && !family->asked) {
			family->asked = true;
			tell(family, SIGTERM);
		}
		if (passed > KILL_MS * millisecond)
			tell(family, SIGKILL);
	}
	return family->bad && !family->code ? PP_EXIT_RUN : family->code;
}

/* Does not come back in the child. */
static bool fork_rank(struct pp_launch *launch, const struct pp_program *program, struct pp_local *local,
                      struct family *family, uint32_t rank, const sigset_t *before)
{
	pid_t parent = getpid(), child = fork();
	if (child > 0) {
		family->children[rank] = child;
		family->alive++;
	}
	if (child != 0)
		return child > 0;
	/* A group of its own: what a terminal sends goes to the parent, which passes it on. */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(PP_EXIT_RUN);
	pthread_sigmask(SIG_SETMASK, before, NULL);
	free(family->children);
	exit(pp_finish_output("piperun", be_rank(launch, program, local, rank)));
}

static int raise_family(struct pp_launch *launch, const struct pp_program *program, struct pp_local *local)
{
	struct family family = {.count = (uint32_t)pp_grid_world(program)};
	sigset_t signals, before;
	sigemptyset(&signals);
	static const int caught[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1};
	for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
		sigaddset(&signals, caught[i]);
	pthread_sigmask(SIG_BLOCK, &signals, &before);
	family.children = calloc(family.count, sizeof *family.children);
	fflush(NULL);
	for (uint32_t rank = 0; rank < family.count; rank++) {
		if (family.children && fork_rank(launch, program, local, &family, rank, &before))
			continue;
		fprintf(stderr, "piperun: cannot start a process for rank %" PRIu32 " of %" PRIu32 ": %s\n", rank, family.count,
		        strerror(errno));
		family.code = PP_EXIT_ENVIRONMENT;
		family.asked = true;
		tell(&family, SIGKILL);
		break;
	}
	int code = look_after(&family, &signals);
	free(family.children);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

static bool check(struct pp_launch *launch, struct pp_loaded *loaded, uint32_t ranks, struct pp_status *status)
{
	if (!pp_check_files(&launch->files, status) || !pp_program_load(launch->arena, launch->path, loaded, status))
		return false;
	uint64_t world = pp_grid_world(loaded->program);
	if (world != ranks)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "error[E0901]: program wants %" PRIu64 " ranks, --spawn=%" PRIu32 " starts %" PRIu32
		               "; use `--spawn=%" PRIu64 "`",
		               world, ranks, ranks, world);
	pp_launch_choose_device(launch, loaded->program, true, true);
	return pp_check_supported(loaded->program, launch->path, launch->device, status) &&
	       pp_check_proof(loaded, launch->queues, status) &&
	       pp_check_memory(loaded->program, launch->device, NULL, status);
}

int pp_launch_spawn(struct pp_launch *launch, uint32_t ranks)
{
	struct pp_loaded loaded = {0};
	struct pp_status status;
	if (!check(launch, &loaded, ranks, &status))
		return pp_launch_failed(&loaded, &status, true);
	struct pp_local *local = pp_local_create(loaded.program, &launch->transport, &status);
	if (!local)
		return pp_launch_failed(&(struct pp_loaded){0}, &status, true);
	int code = raise_family(launch, loaded.program, local);
	pp_local_destroy(local);
	return code;
}
