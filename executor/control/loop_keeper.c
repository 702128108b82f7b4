/* Looking at ranks in one process, every few milliseconds. */
#include "loop_keeper.h"

#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const uint64_t millisecond = 1000000;

enum { SETTLE_MS = 2000, SIGNAL_GRACE_MS = 450, STOP_FILE_MS = 250 };

struct told {
	atomic_int standing; /* enum pp_standing; `why` and `code` are written before */
	atomic_flag taken;
	int code;
	char why[PP_WHY_BYTES];
};

struct pp_loop_keeper {
	const struct pp_program *program;
	struct pp_watch *watches;
	uint32_t world;
	const struct pp_limits *limits;
	struct pp_keeper_files files;
	struct told *told;
	struct pp_account *accounts;
	struct pp_stall stall;
	_Atomic(const char *) signal, stop;
	bool stopping;
	uint64_t stop_looked, lost_since; /* pp_clock(); lost_since 0: it is not */
	char occasion[PP_OCCASION_BYTES];
};

struct pp_loop_keeper *pp_loop_keeper_open(const struct pp_program *program, struct pp_watch *watches,
                                           const struct pp_limits *limits, const struct pp_keeper_files *files)
{
	struct pp_loop_keeper *keeper = calloc(1, sizeof *keeper);
	if (!keeper)
		return NULL;
	*keeper = (struct pp_loop_keeper){.program = program,
	                                  .watches = watches,
	                                  .world = (uint32_t)pp_grid_world(program),
	                                  .limits = limits,
	                                  .files = *files};
	keeper->told = calloc((size_t)keeper->world + 1, sizeof *keeper->told);
	keeper->accounts = calloc((size_t)keeper->world + 1, sizeof *keeper->accounts);
	if (pp_stall_open(&keeper->stall, keeper->world) && keeper->told && keeper->accounts)
		return keeper;
	pp_loop_keeper_close(keeper);
	return NULL;
}

void pp_loop_keeper_close(struct pp_loop_keeper *keeper)
{
	if (!keeper)
		return;
	pp_stall_close(&keeper->stall);
	free(keeper->told);
	free(keeper->accounts);
	free(keeper);
}

void pp_loop_keeper_tell(struct pp_loop_keeper *keeper, uint32_t world, enum pp_standing standing,
                         const struct pp_status *status)
{
	struct told *told = &keeper->told[world];
	if (atomic_flag_test_and_set(&told->taken))
		return; /* its first word counts */
	if (status) {
		told->code = (int)status->code;
		snprintf(told->why, sizeof told->why, "%.*s", PP_WHY_BYTES - 1, status->text);
	}
	atomic_store(&told->standing, (int)standing);
}

static struct pp_scene look_around(struct pp_loop_keeper *keeper)
{
	const char *signal = atomic_load(&keeper->signal);
	for (uint32_t i = 0; i < keeper->world; i++) {
		struct pp_account *account = &keeper->accounts[i];
		const struct told *told = &keeper->told[i];
		account->standing = (enum pp_standing)atomic_load(&told->standing);
		account->place = pp_whereabouts_read(keeper->watches[i].at);
		account->placed = true;
		if (account->standing == PP_GAVE_UP)
			snprintf(account->why, sizeof account->why, "%s", told->why);
		if (account->standing == PP_PRESENT && signal) {
			account->standing = PP_SIGNALLED;
			snprintf(account->why, sizeof account->why, "%s", signal);
		}
	}
	return (struct pp_scene){keeper->program, keeper->accounts, keeper->world};
}

static void end(struct pp_loop_keeper *keeper, const struct pp_scene *scene)
{
	int code = PP_EXIT_RUN;
	pp_report_publish(scene, keeper->occasion, keeper->files.report);
	for (uint32_t i = keeper->world; i-- > 0;)
		if (keeper->accounts[i].standing == PP_GAVE_UP)
			code = keeper->told[i].code;
	if (ftrylockfile(stdout) == 0) {
		fflush(stdout);
		funlockfile(stdout);
	}
	_exit(code);
}

/* All gates are closed before any is asked: a step that begins later waits at its gate. */
static void stop_together(struct pp_loop_keeper *keeper, const char *why)
{
	uint64_t last = 0;
	keeper->stopping = true;
	for (uint32_t i = 0; i < keeper->world; i++)
		atomic_store(&keeper->watches[i].gate.held, true);
	for (uint32_t i = 0; i < keeper->world; i++) {
		uint64_t begun = atomic_load(&keeper->watches[i].gate.begun);
		last = begun > last ? begun : last;
	}
	for (uint32_t i = 0; i < keeper->world; i++) {
		struct pp_gate *gate = &keeper->watches[i].gate;
		snprintf(gate->why, sizeof gate->why, "%.*s", (int)sizeof gate->why - 1, why);
		atomic_store(&gate->last, last);
	}
}

static void look_for_stop(struct pp_loop_keeper *keeper, uint64_t now)
{
	const char *why = atomic_load(&keeper->stop);
	if (!why && keeper->files.stop && now - keeper->stop_looked >= STOP_FILE_MS * millisecond) {
		keeper->stop_looked = now;
		why = access(keeper->files.stop, F_OK) == 0 ? "the stop file" : NULL;
		if (why)
			unlink(keeper->files.stop); /* it has done its work: not to stop the next run as well */
	}
	if (why && !keeper->stopping)
		stop_together(keeper, why);
}

void pp_loop_keeper_look(struct pp_loop_keeper *keeper)
{
	uint64_t now = pp_clock();
	struct pp_scene scene = look_around(keeper);
	bool lost = false;
	for (uint32_t i = 0; i < keeper->world; i++)
		lost = lost || (keeper->accounts[i].standing != PP_PRESENT && keeper->accounts[i].standing != PP_ENDED);
	if (atomic_load(&keeper->signal))
		end(keeper, &scene);
	if (!lost && pp_stall_look(&keeper->stall, &scene, keeper->limits, keeper->occasion))
		end(keeper, &scene);
	if (lost && !keeper->lost_since)
		keeper->lost_since = now;
	if (lost && (pp_scene_settled(&scene) || now - keeper->lost_since > SETTLE_MS * millisecond))
		end(keeper, &scene);
	look_for_stop(keeper, now);
}

void pp_loop_keeper_signal(struct pp_loop_keeper *keeper, const char *why)
{
	atomic_store(&keeper->signal, why);
	nanosleep(&(struct timespec){0, (long)(SIGNAL_GRACE_MS * millisecond)}, NULL);
}

void pp_loop_keeper_stop(struct pp_loop_keeper *keeper, const char *why)
{
	atomic_store(&keeper->stop, why);
}
