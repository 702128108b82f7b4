/* Rank 0's part of the star: hears all, notices that the run is lost, reports, ends all. Stops the run when asked.
 *
 * Ensures: once a report is due it is printed and all processes are told to end within a second. */
#include "star_state.h"

#include "report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const uint64_t millisecond = 1000000;

enum {
	STRANGER_MS = 5000, /* to say the token */
	ASK_MS = 10,        /* between questions while a report is due */
	SETTLE_MS = 400,    /* for ranks to come to where they miss the lost one: launchers kill the rest after a second */
	SIGNAL_MS = 100,    /* for others' word that they got the signal too, or for the rank to be missed that caused it */
	END_MS = 400,       /* for others to leave after the report */
	STOP_FILE_MS = 250,
};

/* ---- connections ----------------------------------------------------------------------------- */

static void accept_all(struct pp_star *star, uint64_t now)
{
	int connection;
	while (star->listener >= 0 && (connection = pp_star_accept(star->listener)) >= 0) {
		int free_place = -1;
		for (int i = 0; i < PP_STRANGERS; i++)
			if (star->strangers[i].wire.socket < 0)
				free_place = i;
		if (free_place < 0)
			close(connection);
		else
			star->strangers[free_place] = (struct pp_stranger){.wire = {.socket = connection}, .since = now};
	}
}

/* The same time whatever differs. */
static bool same_token(const unsigned char *a, const unsigned char *b)
{
	unsigned char differs = 0;
	for (int i = 0; i < PP_TOKEN_BYTES; i++)
		differs |= (unsigned char)(a[i] ^ b[i]);
	return differs == 0;
}

static void hear_stranger(struct pp_star *star, struct pp_stranger *stranger, uint64_t now)
{
	enum pp_arrival arrival = pp_wire_receive(&stranger->wire);
	const struct pp_frame *frame = &stranger->wire.in.frame;
	if (arrival == PP_FRAME && frame->word == PP_WORD_HELLO && frame->rank > 0 && frame->rank < star->world &&
	    !star->peers[frame->rank].connected && same_token(frame->data.token, star->token)) {
		struct pp_peer *peer = &star->peers[frame->rank];
		uint32_t rank = frame->rank;
		peer->wire = (struct pp_wire){.socket = stranger->wire.socket};
		peer->connected = true;
		peer->heard = now;
		stranger->wire.socket = -1;
		star->connected++;
		pp_wire_send(&peer->wire, PP_WORD_WELCOME, rank, 0, star->token, PP_TOKEN_BYTES);
	} else if (arrival == PP_FRAME || now - stranger->since > STRANGER_MS * millisecond) {
		pp_wire_close(&stranger->wire);
	}
}

static void close_listener(struct pp_star *star)
{
	for (int i = 0; i < PP_STRANGERS; i++)
		pp_wire_close(&star->strangers[i].wire);
	if (star->listener >= 0)
		close(star->listener);
	star->listener = -1;
}

size_t pp_hub_sockets(const struct pp_star *star, int *sockets)
{
	size_t count = 0;
	if (star->listener >= 0)
		sockets[count++] = star->listener;
	for (int i = 0; i < PP_STRANGERS; i++)
		if (star->strangers[i].wire.socket >= 0)
			sockets[count++] = star->strangers[i].wire.socket;
	for (uint32_t i = 1; i < star->world; i++)
		if (star->peers[i].wire.socket >= 0)
			sockets[count++] = star->peers[i].wire.socket;
	return count;
}

void pp_hub_mark(struct pp_star *star, const struct pollfd *polls, size_t count)
{
	/* Ranks come last, in their order. */
	for (uint32_t i = star->world; i-- > 1 && count > 0;)
		if (star->peers[i].wire.socket >= 0)
			star->peers[i].ready = polls[--count].revents != 0;
}

static void tell_all(struct pp_star *star, enum pp_word word, uint64_t number, const void *data, size_t bytes)
{
	for (uint32_t i = 1; i < star->world && !atomic_load(&star->watch->cut); i++)
		pp_wire_send(&star->peers[i].wire, word, 0, number, data, bytes);
}

/* ---- stopping together ----------------------------------------------------------------------- */

static void ask_stop(struct pp_star *star, const char *why)
{
	if (star->stopping)
		return;
	star->stopping = true;
	snprintf(star->watch->gate.why, sizeof star->watch->gate.why, "%.*s", (int)sizeof star->watch->gate.why - 1, why);
	atomic_store(&star->watch->gate.held, true);
	tell_all(star, PP_WORD_HOLD, 0, NULL, 0);
}

/* Once it is known of all which step they have begun, the latest of these is the last. */
static void settle_stop(struct pp_star *star)
{
	if (!star->stopping || star->stop_known)
		return;
	uint64_t last = atomic_load(&star->watch->gate.begun);
	for (uint32_t i = 1; i < star->world; i++) {
		const struct pp_peer *peer = &star->peers[i];
		if (star->accounts[i].standing != PP_PRESENT)
			continue;
		if (!peer->has_begun)
			return;
		if (peer->begun > last)
			last = peer->begun;
	}
	star->stop_known = true;
	tell_all(star, PP_WORD_LAST, last, star->watch->gate.why, strlen(star->watch->gate.why) + 1);
	atomic_store(&star->watch->gate.last, last);
}

static void look_for_stop_file(struct pp_star *star, uint64_t now)
{
	if (!star->files.stop || star->stopping || now - star->stop_looked < STOP_FILE_MS * millisecond)
		return;
	star->stop_looked = now;
	if (access(star->files.stop, F_OK) != 0)
		return;
	unlink(star->files.stop); /* it has done its work: not to stop the next run as well */
	ask_stop(star, "the stop file");
}

/* ---- hearing --------------------------------------------------------------------------------- */

static void set_standing(struct pp_star *star, uint32_t rank, enum pp_standing standing, const char *why)
{
	struct pp_account *account = &star->accounts[rank];
	account->standing = standing;
	star->alarmed = star->alarmed || standing != PP_ENDED;
	snprintf(account->why, sizeof account->why, "%.*s", PP_WHY_BYTES - 1, why);
}

static void hear_place(struct pp_star *star, uint32_t from, const struct pp_frame *frame)
{
	struct pp_account *account = &star->accounts[frame->rank];
	/* What others say of a rank on their machine counts while it says nothing itself. */
	bool own = frame->rank == from;
	account->place = frame->data.place;
	account->placed = true;
	if (own && (account->standing == PP_SILENT || account->standing == PP_STOPPED))
		account->standing = PP_PRESENT;
	else if (!own && frame->number && (account->standing == PP_SILENT || account->standing == PP_PRESENT))
		account->standing = PP_STOPPED;
}

static void hear_frame(struct pp_star *star, uint32_t from, const struct pp_frame *frame)
{
	struct pp_peer *peer = &star->peers[from];
	if (frame->rank >= star->world)
		return;
	switch ((enum pp_word)frame->word) {
	case PP_WORD_PLACE:
		hear_place(star, from, frame);
		peer->answered = true;
		return;
	case PP_WORD_FAILED:
		set_standing(star, from, PP_GAVE_UP, frame->data.text);
		star->code = (int)frame->number;
		return;
	case PP_WORD_SIGNAL:
		set_standing(star, from, PP_SIGNALLED, frame->data.text);
		return;
	case PP_WORD_ENDED:
		set_standing(star, from, PP_ENDED, "");
		return;
	case PP_WORD_STOP:
		ask_stop(star, frame->data.text);
		return;
	case PP_WORD_BEGUN:
		peer->has_begun = true;
		peer->begun = frame->number;
		return;
	case PP_WORD_HELLO:
	case PP_WORD_WELCOME:
	case PP_WORD_ASK:
	case PP_WORD_HOLD:
	case PP_WORD_LAST:
	case PP_WORD_END:
	case PP_WORD_COUNT:
		return;
	}
}

static void hear_peer(struct pp_star *star, uint32_t rank, uint64_t now)
{
	struct pp_peer *peer = &star->peers[rank];
	struct pp_account *account = &star->accounts[rank];
	enum pp_arrival arrival = PP_NOTHING;
	if (!peer->connected || !peer->ready)
		return;
	peer->ready = false;
	while (!atomic_load(&star->watch->cut) && (arrival = pp_wire_receive(&peer->wire)) == PP_FRAME) {
		peer->heard = now;
		hear_frame(star, rank, &peer->wire.in.frame);
	}
	bool present = account->standing == PP_PRESENT || account->standing == PP_SILENT || account->standing == PP_STOPPED;
	if (arrival == PP_CLOSED && present)
		set_standing(star, rank, PP_LOST, "");
}

/* At every beat, and while a report is due: is it silent, and where is it? The page knows better where ranks of this
 * machine are. */
static void look_at_peer(struct pp_star *star, uint32_t rank, uint64_t now)
{
	const struct pp_peer *peer = &star->peers[rank];
	struct pp_account *account = &star->accounts[rank];
	if (!peer->connected)
		return;
	account->silent = now - peer->heard;
	if (account->standing == PP_PRESENT && account->silent > atomic_load(&star->limits)->heartbeat)
		set_standing(star, rank, PP_SILENT, "");
	int pid = atomic_load(&star->page->ranks[rank].pid);
	if (!pid || (!star->due_since && account->standing == PP_PRESENT))
		return;
	account->place = pp_whereabouts_read(&star->page->ranks[rank].position);
	account->placed = true;
	bool silent = account->standing == PP_SILENT || account->standing == PP_PRESENT;
	if (silent && pp_process_is_stopped(pid))
		account->standing = PP_STOPPED;
}

static void look_at_self(struct pp_star *star)
{
	struct pp_account *account = &star->accounts[0];
	account->place = pp_whereabouts_read(star->watch->at);
	account->placed = true;
	if (atomic_load(&star->failed) && !star->told_failed) {
		star->told_failed = true;
		set_standing(star, 0, PP_GAVE_UP, star->failed_text);
		star->code = star->failed_code;
	} else if (atomic_load(&star->signalled) && !star->told_signalled) {
		star->told_signalled = true;
		if (account->standing == PP_PRESENT)
			set_standing(star, 0, PP_SIGNALLED, star->signal_text);
	}
	if (atomic_load(&star->stop_wanted) && !star->told_stop) {
		star->told_stop = true;
		ask_stop(star, star->stop_text);
	}
}

/* ---- the report ------------------------------------------------------------------------------ */

static struct pp_scene scene_of(const struct pp_star *star)
{
	return (struct pp_scene){atomic_load(&star->watch->program), star->accounts, star->world};
}

static void notice(struct pp_star *star, uint64_t now)
{
	struct pp_scene scene = scene_of(star);
	enum pp_standing worst = PP_PRESENT;
	for (uint32_t rank = 0; rank < star->world; rank++) {
		enum pp_standing standing = star->accounts[rank].standing;
		if (standing != PP_PRESENT && standing != PP_ENDED && (worst == PP_PRESENT || worst == PP_SIGNALLED))
			worst = standing;
	}
	bool stalled =
	    worst == PP_PRESENT && pp_stall_look(&star->stall, &scene, atomic_load(&star->limits), star->occasion);
	if (worst == PP_PRESENT && !stalled)
		return;
	star->due_since = now;
	/* A launcher may be about to kill this process as well: be quick if a rank is gone. */
	star->not_before = now + (worst == PP_SIGNALLED ? SIGNAL_MS * millisecond : 0);
	star->not_after = now + (worst == PP_SIGNALLED ? SIGNAL_MS : SETTLE_MS) * millisecond;
}

static bool only_signalled(const struct pp_star *star)
{
	for (uint32_t rank = 0; rank < star->world; rank++) {
		enum pp_standing standing = star->accounts[rank].standing;
		if (standing != PP_PRESENT && standing != PP_ENDED && standing != PP_SIGNALLED)
			return false;
	}
	return true;
}

/* The process ends here. */
static void report(struct pp_star *star)
{
	if (star->slept) {
		fputs("piperun: rank 0 was paused itself; the other ranks have ended the run\n", stderr);
		pp_star_exit(PP_EXIT_RUN);
	}
	struct pp_scene scene = scene_of(star);
	pp_report_publish(&scene, star->occasion, star->files.report);
	int code = star->code ? star->code : PP_EXIT_RUN;
	tell_all(star, PP_WORD_END, (uint64_t)code, NULL, 0);
	pp_page_resume(star->page, star->world);
	for (uint64_t start = pp_clock(); pp_clock() - start < END_MS * millisecond;) {
		uint32_t left = 0;
		for (uint32_t i = 1; i < star->world; i++) {
			enum pp_arrival arrival;
			while ((arrival = pp_wire_receive(&star->peers[i].wire)) == PP_FRAME)
				continue;
			bool live = star->accounts[i].standing != PP_SILENT && star->accounts[i].standing != PP_STOPPED;
			left += arrival == PP_NOTHING && live;
		}
		if (left == 0)
			break;
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	pp_star_exit(code);
}

static bool all_answered(const struct pp_star *star)
{
	for (uint32_t i = 1; i < star->world; i++)
		if (star->accounts[i].standing == PP_PRESENT && !star->peers[i].answered)
			return false;
	return true;
}

static void gather(struct pp_star *star, uint64_t now)
{
	if (now - star->asked >= ASK_MS * millisecond) {
		star->asked = now;
		for (uint32_t i = 1; i < star->world; i++)
			star->peers[i].answered = false;
		tell_all(star, PP_WORD_ASK, 0, NULL, 0);
	}
	/* Signals may be a launcher's answer to the loss of a rank, which then takes more time to gather. */
	if (!only_signalled(star) && star->not_after == star->not_before)
		star->not_after = star->due_since + SETTLE_MS * millisecond;
	/* Who has not answered at all is out of reach, though its heartbeat is not overdue yet. */
	for (uint32_t i = 1; i < star->world && now >= star->not_after; i++)
		if (star->accounts[i].standing == PP_PRESENT && star->peers[i].heard < star->due_since)
			set_standing(star, i, PP_SILENT, "");
	struct pp_scene scene = scene_of(star);
	if (now >= star->not_before && (now >= star->not_after || (all_answered(star) && pp_scene_settled(&scene))))
		report(star);
}

/* ---- turns ----------------------------------------------------------------------------------- */

void pp_hub_turn(struct pp_star *star, uint64_t now)
{
	star->slept = star->slept || (star->last_turn && now - star->last_turn > atomic_load(&star->limits)->heartbeat);
	star->last_turn = now;
	accept_all(star, now);
	for (int i = 0; i < PP_STRANGERS; i++)
		if (star->strangers[i].wire.socket >= 0)
			hear_stranger(star, &star->strangers[i], now);
	if (star->connected + 1 == star->world)
		close_listener(star);
	bool beat = now >= star->next_beat;
	for (uint32_t i = 1; i < star->world; i++)
		hear_peer(star, i, now);
	for (uint32_t i = 1; i < star->world && (beat || star->due_since || star->alarmed); i++)
		look_at_peer(star, i, now);
	look_at_self(star);
	look_for_stop_file(star, now);
	settle_stop(star);
	atomic_store(&star->page->ranks[0].beat, now);
	if (beat)
		tell_all(star, PP_WORD_PLACE, 0, &star->accounts[0].place, sizeof star->accounts[0].place);
	if (star->due_since)
		gather(star, now);
	else if (beat || star->alarmed)
		notice(star, now);
}

void pp_hub_leave(struct pp_star *star)
{
	close_listener(star);
	tell_all(star, PP_WORD_ENDED, 0, NULL, 0);
	for (uint32_t i = 1; i < star->world; i++)
		pp_wire_close(&star->peers[i].wire);
}
