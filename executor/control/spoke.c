/* The other ranks' part of the star: heartbeats, answers; and a report for this machine where rank 0 is lost. */
#include "star_state.h"

#include "report.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const uint64_t millisecond = 1000000;

enum { SETTLE_MS = 300, YIELD_MS = 200 };

static bool say(struct pp_star *star, enum pp_word word, uint64_t number, const char *text)
{
	return !atomic_load(&star->watch->cut) &&
	       pp_wire_send(&star->hub, word, star->rank, number, text, text ? strlen(text) + 1 : 0);
}

static void say_place(struct pp_star *star, uint32_t rank)
{
	struct pp_page_rank *entry = &star->page->ranks[rank];
	struct pp_seen place = pp_whereabouts_read(&entry->position);
	bool stopped = rank != star->rank && pp_process_is_stopped(atomic_load(&entry->pid));
	if (!atomic_load(&star->watch->cut))
		pp_wire_send(&star->hub, PP_WORD_PLACE, rank, stopped, &place, sizeof place);
}

static void hear_frame(struct pp_star *star, const struct pp_frame *frame)
{
	struct pp_gate *gate = &star->watch->gate;
	switch ((enum pp_word)frame->word) {
	case PP_WORD_ASK:
		for (uint32_t i = 0; i < star->world; i++)
			if (atomic_load(&star->page->ranks[i].pid))
				say_place(star, i);
		return;
	case PP_WORD_HOLD:
		atomic_store(&gate->held, true);
		say(star, PP_WORD_BEGUN, atomic_load(&gate->begun), NULL);
		return;
	case PP_WORD_LAST:
		snprintf(gate->why, sizeof gate->why, "%.*s", (int)sizeof gate->why - 1, frame->data.text);
		atomic_store(&gate->last, frame->number);
		return;
	case PP_WORD_END:
		pp_page_resume(star->page, star->world);
		pp_star_exit((int)frame->number);
		return;
	case PP_WORD_ENDED:
		star->hub_ended = true;
		return;
	case PP_WORD_HELLO:
	case PP_WORD_WELCOME:
	case PP_WORD_PLACE: /* a heartbeat */
	case PP_WORD_FAILED:
	case PP_WORD_SIGNAL:
	case PP_WORD_STOP:
	case PP_WORD_BEGUN:
	case PP_WORD_COUNT:
		return;
	}
}

static void say_what_is_asked(struct pp_star *star)
{
	if (atomic_load(&star->failed) && !star->told_failed) {
		star->told_failed = true;
		say(star, PP_WORD_FAILED, (uint64_t)star->failed_code, star->failed_text);
	}
	if (atomic_load(&star->signalled) && !star->told_signalled) {
		star->told_signalled = true;
		say(star, PP_WORD_SIGNAL, 0, star->signal_text);
	}
	if (atomic_load(&star->stop_wanted) && !star->told_stop) {
		star->told_stop = true;
		say(star, PP_WORD_STOP, 0, star->stop_text);
	}
}

/* ---- without rank 0 -------------------------------------------------------------------------- */

static void account_for(struct pp_star *star, uint32_t rank, uint64_t now)
{
	struct pp_page_rank *entry = &star->page->ranks[rank];
	struct pp_account *account = &star->accounts[rank];
	int pid = atomic_load(&entry->pid);
	if (pid == 0)
		return;
	account->place = pp_whereabouts_read(&entry->position);
	account->placed = true;
	uint64_t beat = atomic_load(&entry->beat);
	account->silent = now > beat ? now - beat : 0;
	if (rank == 0)
		return;
	if (kill(pid, 0) != 0 && errno == ESRCH)
		account->standing = PP_LOST;
	else if (pp_process_is_stopped(pid))
		account->standing = PP_STOPPED;
	else if (account->silent > atomic_load(&star->limits)->heartbeat)
		account->standing = PP_SILENT;
}

/* What this machine knows; its first rank to come here says it. The process ends. */
static void report(struct pp_star *star, uint64_t now)
{
	if (atomic_fetch_add(&star->page->reported, 1) == 0) {
		for (uint32_t rank = 0; rank < star->world; rank++)
			account_for(star, rank, now);
		struct pp_account *hub = &star->accounts[0];
		int pid = atomic_load(&star->page->ranks[0].pid);
		hub->silent = now - star->hub_heard;
		if (star->hub_ended)
			hub->standing = PP_ENDED;
		else if (star->hub.socket < 0)
			hub->standing = PP_LOST;
		else
			hub->standing = pid && pp_process_is_stopped(pid) ? PP_STOPPED : PP_SILENT;
		if (star->told_failed) {
			struct pp_account *own = &star->accounts[star->rank];
			own->standing = PP_GAVE_UP;
			snprintf(own->why, sizeof own->why, "%s", star->failed_text);
		}
		struct pp_scene scene = {atomic_load(&star->watch->program), star->accounts, star->world};
		pp_report_publish(&scene, star->occasion, star->files.report);
	} else {
		nanosleep(&(struct timespec){0, YIELD_MS * 1000000L}, NULL); /* launchers may kill the one that reports */
	}
	pp_page_resume(star->page, star->world);
	pp_star_exit(PP_EXIT_RUN);
}

/* ---- turns ----------------------------------------------------------------------------------- */

void pp_spoke_turn(struct pp_star *star, uint64_t now)
{
	enum pp_arrival arrival = PP_NOTHING;
	while (!atomic_load(&star->watch->cut) && (arrival = pp_wire_receive(&star->hub)) == PP_FRAME) {
		star->hub_heard = now;
		hear_frame(star, &star->hub.in.frame);
	}
	say_what_is_asked(star);
	atomic_store(&star->page->ranks[star->rank].beat, now);
	if (now >= star->next_beat)
		say_place(star, star->rank);
	if (star->due_since) {
		if (now >= star->not_after)
			report(star, now);
		return;
	}
	/* After rank 0 has left in good order, only this rank's own end can take too long. Before, a quarter more patience
	 * than rank 0 has: where the link between the two is cut, it judges first, since it sees all ranks. */
	const struct pp_limits *limits = atomic_load(&star->limits);
	uint64_t limit = star->hub_ended ? limits->stretch[PP_STRETCH_START] : limits->heartbeat + limits->heartbeat / 4;
	if (now - star->hub_heard <= limit && (star->hub_ended || arrival != PP_CLOSED))
		return;
	star->due_since = now;
	star->not_after = now + SETTLE_MS * millisecond; /* for the others to come to where they miss it */
}

void pp_spoke_leave(struct pp_star *star)
{
	atomic_store(&star->page->ranks[star->rank].pid, 0);
	say(star, PP_WORD_ENDED, 0, NULL);
	pp_wire_close(&star->hub);
}
