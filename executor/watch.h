/* A rank's position, its waits without blocking, and the gate in front of each step.
 *
 * Every wait of the executor polls with back-off (100 polls, 100 yields, then 50 us sleeps: measured to be within 2x of
 * ideal even with more ranks than cores). Where a keeper looks at all ranks (control/), waits have no deadline of their
 * own; it ends the process. */
#ifndef PP_WATCH_H
#define PP_WATCH_H

#include "clock.h"
#include "control/whereabouts.h"

#include "ir/grid.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PP_NO_DEADLINE UINT64_MAX

/* Stopping at the end of a step, all ranks at the same one: the keeper holds the gates, learns which steps have begun,
 * and names the latest of them as the last. */
struct pp_gate {
	atomic_uint_least64_t begun; /* step */
	atomic_bool held;
	atomic_uint_least64_t last; /* step to stop after; UINT64_MAX: not known yet */
	char why[32];               /* who asked: written before `last` */
};

/* One per rank. The owner writes, anyone may read and report. */
struct pp_watch {
	_Atomic(const struct pp_program *) program; /* NULL before it is loaded */
	uint32_t world;                             /* world rank */
	uint64_t timeout;                           /* ns of one wait, or PP_NO_DEADLINE */
	struct pp_whereabouts *at;                  /* `own`, or a place in a page */
	struct pp_whereabouts own;
	struct pp_gate gate;
	atomic_bool reported;
	atomic_bool cut; /* a planted fault: the keeper is to hear and say nothing more */
};

void pp_watch_init(struct pp_watch *watch, const struct pp_program *program, uint32_t world, uint64_t timeout);

/* The rank is outside of its stream, at `what` ("comparing programs"). */
void pp_watch_doing(struct pp_watch *watch, const char *what);

/* What limits the time without progress from here on. Returns what did before. */
enum pp_stretch pp_watch_stretch(struct pp_watch *watch, enum pp_stretch stretch);

static inline void pp_watch_at(struct pp_watch *watch, uint32_t index)
{
	atomic_store_explicit(&watch->at->index, index, memory_order_relaxed);
	atomic_store_explicit(&watch->at->waiting, 0, memory_order_relaxed);
}

/* A send, receive or collective was posted. */
static inline void pp_watch_posted(struct pp_watch *watch)
{
	uint32_t posts = atomic_load_explicit(&watch->at->posts, memory_order_relaxed);
	atomic_store_explicit(&watch->at->posts, posts + 1, memory_order_relaxed);
}

/* Something else got on: an operation of a body, a piece of a file. */
static inline void pp_watch_worked(struct pp_watch *watch)
{
	uint32_t work = atomic_load_explicit(&watch->at->work, memory_order_relaxed);
	atomic_store_explicit(&watch->at->work, work + 1, memory_order_relaxed);
}

/* The rank enters a stream for this step, or for this batch (from 1) of the evaluation after it. */
void pp_watch_enter(struct pp_watch *watch, const struct pp_stream *stream, uint64_t step, uint64_t batch);

/* Before each step: false if the run is to stop before it. All ranks get the same answer. */
bool pp_watch_pass(struct pp_watch *watch, uint64_t step);

/* One line about this rank on its own: control/report.h, and WHY, which may be NULL. Only the first call for a watch
 * prints; returns whether it did. */
bool pp_watch_report(struct pp_watch *watch, const char *why, FILE *out);

/* One wait: start with {0}, call pp_pause after each unsuccessful poll and pp_pause_end once it is over. False: the
 * deadline has passed. */
struct pp_pause {
	unsigned polls;
	uint64_t start;
};

bool pp_pause(struct pp_pause *pause, struct pp_watch *watch);

static inline void pp_pause_end(const struct pp_pause *pause, struct pp_watch *watch)
{
	if (pause->start)
		atomic_store_explicit(&watch->at->waiting, 0, memory_order_relaxed);
}

#endif
