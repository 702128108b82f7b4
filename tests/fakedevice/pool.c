/* The threads that run the streams: each takes a stream whose head can go on, steps it, and looks again. With jitter
 * the choice is random, and streams are held back for a while now and then. */
#include "runtime.h"
#include "stream.h"
#include "watchdog.h"

#include <pthread.h>

enum { JITTER_NS = 80000, REST_NS = 100000, YIELDS = 8 };

static struct {
	bool started;
	uint64_t attempts; /* grows when blocked heads are worth another step */
	uint32_t idle;     /* attempts in vain, one after another */
	uint32_t watching; /* threads that rest and will look again by themselves */
	uint32_t turn;
} pool;

static bool can_go(const struct CUstream_st *stream, uint64_t now)
{
	if (!stream->head || stream->running || stream->rests_until > now)
		return false;
	if (stream->head->awaits && !stream->head->awaits->done)
		return false;
	return !stream->blocked || stream->tried_at != pool.attempts;
}

bool pp_fake_stream_stuck(const struct CUstream_st *stream)
{
	if (!stream->head)
		return true;
	if (stream->running && (!stream->head->kind->talks || stream->head->kind->computes))
		return false;
	return (stream->head->awaits && !stream->head->awaits->done) || stream->blocked;
}

/* The next stream in turn, a random one with jitter, of `*able` that can go on; NULL: none, `*next_rest` says when one
 * will have rested. */
static struct CUstream_st *choose(uint32_t *able, uint64_t *next_rest)
{
	uint64_t now = pp_fake_settings()->jitter ? pp_fake_now() : 0;
	*able = 0;
	*next_rest = 0;
	struct CUstream_st *chosen = NULL;
	for (struct CUstream_st *stream = pp_fake_streams(); stream; stream = stream->next) {
		if (stream->head && stream->rests_until > now && (!*next_rest || stream->rests_until < *next_rest))
			*next_rest = stream->rests_until;
		if (!can_go(stream, now))
			continue;
		++*able;
		uint64_t dice = pp_fake_settings()->jitter ? pp_fake_random() : pool.turn++;
		if (!chosen || dice % *able == 0)
			chosen = stream;
	}
	return chosen;
}

static bool anything_talks(void)
{
	for (struct CUstream_st *stream = pp_fake_streams(); stream; stream = stream->next)
		if (stream->head && stream->blocked && !stream->running && stream->head->kind->talks)
			return true;
	return false;
}

static void finish(struct CUstream_st *stream, struct pp_fake_operation *operation)
{
	stream->head = operation->next;
	if (!stream->head)
		stream->tail = NULL;
	stream->finished++;
	stream->blocked = false;
	if (operation->records) {
		operation->records->done = true;
		operation->records->time = pp_fake_now();
	}
	pp_fake_tsan_ignore();
	pp_fake_operation_free(operation);
	pp_fake_tsan_heed();
	pool.attempts++;
	pp_fake_progressed();
	if (pp_fake_settings()->jitter && pp_fake_random() % 4 == 0)
		stream->rests_until = pp_fake_now() + pp_fake_random() % JITTER_NS;
	pp_fake_stream_reap(stream);
}

static void mark_start(struct pp_fake_operation *operation)
{
	if (!operation->starts || operation->starts->done)
		return;
	operation->starts->done = true;
	pool.attempts++;
	pp_fake_progressed();
}

/* Returns whether something moved; the stream may be gone. */
static bool step(struct CUstream_st *stream)
{
	struct pp_fake_operation *operation = stream->head;
	uint64_t attempts = pool.attempts;
	stream->running = true;
	pp_fake_unlock();
	pp_fake_tsan_enter(&stream->fiber);
	pp_fake_tsan_acquire(&operation->token);
	if (operation->awaits)
		pp_fake_tsan_acquire(&operation->awaits->token);
	enum pp_fake_outcome outcome = operation->kind->step ? operation->kind->step(operation) : PP_FAKE_FINISHED;
	if (operation->records && outcome == PP_FAKE_FINISHED)
		pp_fake_tsan_release(&operation->records->token);
	pp_fake_tsan_release(&stream->fiber.token);
	pp_fake_tsan_leave(&stream->fiber);
	pp_fake_lock();
	stream->running = false;
	if (outcome != PP_FAKE_REFUSED)
		mark_start(operation);
	if (outcome == PP_FAKE_FINISHED) {
		finish(stream, operation);
		return true;
	}
	stream->blocked = outcome < PP_FAKE_MOVED;
	stream->tried_at = attempts;
	if (outcome == PP_FAKE_MOVED) {
		pool.attempts++;
		pp_fake_progressed();
	}
	return outcome == PP_FAKE_MOVED;
}

/* Nothing can go on. What talks to other processes is tried again soon. */
static void rest(uint64_t next_rest)
{
	bool talks = anything_talks();
	uint64_t until = talks ? pp_fake_now() + (pool.idle < YIELDS ? REST_NS / 10 : REST_NS) : next_rest;
	if (next_rest && next_rest < until)
		until = next_rest;
	bool watches = until != 0;
	pool.watching += watches;
	pp_fake_rest(until);
	pool.watching -= watches;
	if (talks) {
		pool.idle++;
		pool.attempts++;
	}
}

static void *work(void *unused)
{
	(void)unused;
	pp_fake_lock();
	for (;;) {
		uint32_t able;
		uint64_t next_rest;
		struct CUstream_st *stream = choose(&able, &next_rest);
		if (!stream) {
			rest(next_rest);
			continue;
		}
		/* A thread woken for nothing costs more than most operations do. */
		if (able > 1 || (pool.watching == 0 && (next_rest || anything_talks())))
			pp_fake_hire();
		if (step(stream))
			pool.idle = 0;
	}
	return NULL;
}

void pp_fake_pool_start(void)
{
	if (pool.started)
		return;
	pool.started = true;
	for (uint32_t i = 0; i < pp_fake_settings()->threads; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, work, NULL) != 0)
			pp_fake_die("no thread for the streams");
		pthread_detach(thread);
	}
	pp_fake_watchdog_start();
}
