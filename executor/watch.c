/* Polling waits with back-off and deadlines, reports, signals.
 *
 * Ensures: a wait ends by success or after its timeout; a report names the instruction, the peer and the last finished
 * instruction of a rank. */
#include "watch.h"

#include "ir/program_text.h"
#include "ir/status.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BARE_POLLS = 100, YIELDS = 100, SLEEP_NS = 50000 };

uint64_t pp_clock(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void pp_watch_init(struct pp_watch *watch, const struct pp_program *program, uint32_t world, uint64_t timeout)
{
	memset(watch, 0, sizeof *watch);
	watch->program = program;
	watch->world = world;
	watch->timeout = timeout;
	pp_watch_doing(watch, "starting");
}

void pp_watch_doing(struct pp_watch *watch, const char *what)
{
	atomic_store(&watch->doing, what);
}

void pp_watch_enter(struct pp_watch *watch, const struct pp_stream *stream, uint64_t step, uint64_t batch)
{
	atomic_store(&watch->index, 0);
	atomic_store(&watch->stream, stream);
	atomic_store(&watch->step, step);
	atomic_store(&watch->batch, batch);
	atomic_store(&watch->doing, NULL);
}

bool pp_pause(struct pp_pause *pause, struct pp_watch *watch)
{
	if (++pause->polls <= BARE_POLLS)
		return true;
	uint64_t now = pp_clock();
	if (!pause->start) {
		pause->start = now;
		atomic_store_explicit(&watch->entered, now, memory_order_relaxed);
	}
	if (now - pause->start > watch->timeout)
		return false;
	if (pause->polls <= BARE_POLLS + YIELDS)
		sched_yield();
	else
		nanosleep(&(struct timespec){0, SLEEP_NS}, NULL);
	return true;
}

/* The post that a `wait` or `waitc` waits for: the nearest one before it. */
static const struct pp_instr *post_of(const struct pp_stream *stream, uint32_t index)
{
	const struct pp_instr *wait = &stream->items[index];
	for (uint32_t i = index; i-- > 0;) {
		const struct pp_instr *post = &stream->items[i];
		bool p2p = post->op == PP_OP_SEND || post->op == PP_OP_RECV;
		if (wait->op == PP_OP_WAIT && p2p && post->a[0] == wait->a[0] && post->a[1] == wait->a[1])
			return post;
		if (wait->op == PP_OP_WAITC && post->op == PP_OP_COLL && post->a[0] == wait->a[0])
			return post;
	}
	return NULL;
}

static void print_partner(const struct pp_watch *watch, const struct pp_instr *post, FILE *out)
{
	struct pp_coord coord = pp_grid_coord(watch->program, watch->world);
	fputs(" for ", out);
	pp_instr_print(watch->program, coord.pp, post, out);
	if (post->op == PP_OP_COLL) {
		fprintf(out, " of group g%" PRIu32, post->a[1]);
		return;
	}
	const struct pp_channel *channel = &watch->program->channels[post->a[0]];
	char name[PP_GRID_NAME];
	bool receives = post->op == PP_OP_RECV;
	coord.pp = receives ? channel->source : channel->destination;
	fprintf(out, " %s %s", receives ? "from" : "to",
	        pp_grid_name(watch->program, pp_grid_rank(watch->program, coord), name));
}

static void print_step(struct pp_watch *watch, FILE *out)
{
	uint64_t batch = atomic_load(&watch->batch);
	if (batch)
		fprintf(out, "batch %" PRIu64 " of the evaluation after ", batch);
	fprintf(out, "step %" PRIu64, (uint64_t)atomic_load(&watch->step));
}

static void print_position(struct pp_watch *watch, FILE *out)
{
	uint32_t index = atomic_load(&watch->index);
	const struct pp_stream *stream = atomic_load(&watch->stream);
	uint32_t rank = pp_grid_coord(watch->program, watch->world).pp;
	if (index >= stream->count) {
		fputs("is at the end of ", out);
		print_step(watch, out);
		return;
	}
	const struct pp_instr *instr = &stream->items[index];
	bool waits = instr->op == PP_OP_WAIT || instr->op == PP_OP_WAITC;
	uint64_t entered = atomic_load(&watch->entered);
	fputs(waits ? "waits: " : "runs: ", out);
	pp_instr_print(watch->program, rank, instr, out);
	const struct pp_instr *post = waits ? post_of(stream, index) : NULL;
	if (post)
		print_partner(watch, post, out);
	fputs(" (", out);
	print_step(watch, out);
	fprintf(out, ", instruction %" PRIu32 " of %" PRIu32, index + 1, stream->count);
	if (waits && entered)
		fprintf(out, ", for %.1f s", (double)(pp_clock() - entered) * 1e-9);
	fputc(')', out);
	if (index > 0) {
		fputs("; last finished: ", out);
		pp_instr_print(watch->program, rank, &stream->items[index - 1], out);
	}
}

bool pp_watch_report(struct pp_watch *watch, const char *why, FILE *out)
{
	if (atomic_exchange(&watch->reported, true))
		return false;
	/* Built in memory and written at once, so that lines of different ranks do not mix. */
	char *line = NULL;
	size_t length = 0;
	FILE *text = open_memstream(&line, &length);
	if (!text)
		return false;
	char name[PP_GRID_NAME];
	fprintf(text, "piperun: %s ", pp_grid_name(watch->program, watch->world, name));
	const char *doing = atomic_load(&watch->doing);
	if (doing)
		fprintf(text, "is %s", doing);
	else
		print_position(watch, text);
	if (why)
		fprintf(text, "; %s", why);
	fputc('\n', text);
	fclose(text);
	fwrite(line, 1, length, out);
	fflush(out);
	free(line);
	return true;
}

/* ---- signals --------------------------------------------------------------------------------- */

struct pp_sentry {
	pthread_t thread;
	sigset_t signals;
	struct pp_watch *watches;
	uint32_t count;
	atomic_bool stop;
};

static void *stand_guard(void *argument)
{
	struct pp_sentry *sentry = argument;
	for (;;) {
		int signal = sigwaitinfo(&sentry->signals, NULL);
		if (atomic_load(&sentry->stop))
			return NULL;
		if (signal != SIGINT && signal != SIGTERM)
			continue;
		for (uint32_t i = 0; i < sentry->count; i++)
			pp_watch_report(&sentry->watches[i], signal == SIGINT ? "stopped by SIGINT" : "stopped by SIGTERM", stderr);
		fflush(stdout);
		_exit(PP_EXIT_RUN);
	}
}

/* Libraries start threads when they are loaded, before anyone can block signals for them; one of those may be chosen to
 * take the signal. It then blocks it for good and passes it on, until the sentry gets it. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
	(void)info;
	sigaddset(&((ucontext_t *)context)->uc_sigmask, signal);
	kill(getpid(), signal);
}

static bool catch_signals(const sigset_t *signals)
{
	struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigemptyset(&action.sa_mask);
	return pthread_sigmask(SIG_BLOCK, signals, NULL) == 0 && sigaction(SIGINT, &action, NULL) == 0 &&
	       sigaction(SIGTERM, &action, NULL) == 0;
}

struct pp_sentry *pp_sentry_start(struct pp_watch *watches, uint32_t count)
{
	struct pp_sentry *sentry = calloc(1, sizeof *sentry);
	if (!sentry)
		return NULL;
	sentry->watches = watches;
	sentry->count = count;
	sigemptyset(&sentry->signals);
	sigaddset(&sentry->signals, SIGINT);
	sigaddset(&sentry->signals, SIGTERM);
	if (!catch_signals(&sentry->signals) || pthread_create(&sentry->thread, NULL, stand_guard, sentry) != 0) {
		free(sentry);
		return NULL;
	}
	return sentry;
}

void pp_sentry_stop(struct pp_sentry *sentry)
{
	if (!sentry)
		return;
	atomic_store(&sentry->stop, true);
	pthread_kill(sentry->thread, SIGTERM); /* blocked everywhere: only wakes the sentry */
	pthread_join(sentry->thread, NULL);
	free(sentry);
}
