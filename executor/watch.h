/* Waiting without blocking, and saying where a rank is when it waits too long.
 *
 * Every wait of the executor polls with back-off (100 polls, 100 yields, then 50 us sleeps: measured to be within 2x of
 * ideal even with more ranks than cores) and has a deadline. The position of a rank is kept where other threads can
 * read it, so that a report can be printed for a rank that is itself stuck. */
#ifndef PP_WATCH_H
#define PP_WATCH_H

#include "ir/grid.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* One per rank. The owner writes, anyone may read and report. */
struct pp_watch {
	const struct pp_program *program; /* NULL before it is loaded */
	_Atomic(const struct pp_stream *) stream;
	uint32_t world;              /* world rank */
	uint64_t timeout;            /* ns of one wait */
	_Atomic(const char *) doing; /* outside of streams; NULL: at instruction `index` */
	atomic_uint index;
	atomic_uint_least64_t step;    /* from 1 */
	atomic_uint_least64_t batch;   /* of an evaluation after that step, from 1; 0: none */
	atomic_uint_least64_t entered; /* pp_clock() when the present wait got slow, 0: it did not */
	atomic_bool reported;
};

void pp_watch_init(struct pp_watch *watch, const struct pp_program *program, uint32_t world, uint64_t timeout);

/* The rank is outside of its stream, at `what` ("comparing programs"): a literal. */
void pp_watch_doing(struct pp_watch *watch, const char *what);

static inline void pp_watch_at(struct pp_watch *watch, uint32_t index)
{
	atomic_store_explicit(&watch->index, index, memory_order_relaxed);
	atomic_store_explicit(&watch->entered, 0, memory_order_relaxed);
}

/* The rank enters a stream for this step, or for this batch (from 1) of the evaluation after it. */
void pp_watch_enter(struct pp_watch *watch, const struct pp_stream *stream, uint64_t step, uint64_t batch);

/* One line: `rank 2 waits: wait c3 #5 for recv c3 #5 … from rank 3 (step 4, instruction 17 of 60, for 20.0 s); last
 * finished: fwd s3 m6 …; WHY`. `why` may be NULL. Only the first call for a watch prints; returns whether it did. */
bool pp_watch_report(struct pp_watch *watch, const char *why, FILE *out);

/* Monotonic ns. */
uint64_t pp_clock(void);

/* One wait: start with {0}, call pp_pause after each unsuccessful poll. False: the deadline has passed. */
struct pp_pause {
	unsigned polls;
	uint64_t start;
};

bool pp_pause(struct pp_pause *pause, struct pp_watch *watch);

/* ---- signals --------------------------------------------------------------------------------- */

/* A thread that turns SIGINT and SIGTERM into a report of these ranks on stderr and the process's end with exit code 5,
 * also while ranks compute or sleep. Start it before any other thread (signal masks are inherited). */
struct pp_sentry;

struct pp_sentry *pp_sentry_start(struct pp_watch *watches, uint32_t count);
void pp_sentry_stop(struct pp_sentry *sentry);

#endif
