/* The watchdog (watchdog.h). A deadlock: every stream with work is blocked, every host thread is blocked in a call or
 * has asked again and again for what isn't there, and nothing has moved for a while. A host thread that is elsewhere
 * may come back, so that takes longer. */
#include "watchdog.h"
#include "board.h"
#include "host.h"
#include "runtime.h"
#include "stream.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

enum { LOOK_MS = 20, POLLS_ENOUGH = 20, TABLE_BYTES = 16384 };

static struct {
	bool started;
	uint64_t progress, since; /* nothing has moved since */
	bool asked;               /* everybody has been asked once more since then */
} watchdog;

static bool streams_stuck(void)
{
	uint32_t blocked = 0;
	for (const struct CUstream_st *stream = pp_fake_streams(); stream; stream = stream->next) {
		if (!pp_fake_stream_stuck(stream))
			return false;
		blocked += stream->head != NULL;
	}
	return blocked > 0;
}

static bool hosts_stuck(void)
{
	for (const struct pp_fake_host *host = pp_fake_hosts(); host; host = host->next) {
		bool polls = host->state == PP_FAKE_HOST_POLLING && host->polls >= POLLS_ENOUGH;
		if (!polls && !pp_fake_host_waits(host))
			return false;
	}
	return true;
}

/* Every host thread that there is waits in a call, though no stream has work: for another one's first contact. */
static bool hosts_in_calls(void)
{
	if (!pp_fake_hosts())
		return false;
	for (const struct CUstream_st *stream = pp_fake_streams(); stream; stream = stream->next)
		if (stream->head)
			return false;
	for (const struct pp_fake_host *host = pp_fake_hosts(); host; host = host->next)
		if (!pp_fake_host_waits(host))
			return false;
	return true;
}

/* Threads that a busy machine does not run look like ones that can't go on. So before it says so the watchdog forgets
 * what they have tried in vain, and they must have tried again. */
static void ask_again(void)
{
	watchdog.asked = true;
	for (struct CUstream_st *stream = pp_fake_streams(); stream; stream = stream->next)
		stream->blocked = false;
	for (struct pp_fake_host *host = pp_fake_hosts(); host; host = host->next)
		host->polls = 0;
	pp_fake_hire();
}

static void tabulate(char *table, size_t size)
{
	size_t length = 0;
	for (const struct pp_fake_host *host = pp_fake_hosts(); host && length < size; host = host->next) {
		static const char *const states[] = {"is elsewhere,", "polls", "waits in"};
		length += (size_t)snprintf(table + length, size - length, "  host %u %s %s\n", host->number,
		                           states[host->state], host->what);
	}
	for (const struct CUstream_st *stream = pp_fake_streams(); stream && length < size; stream = stream->next) {
		if (!stream->head)
			continue;
		char text[256];
		pp_fake_operation_text(stream->head, text, sizeof text);
		length += (size_t)snprintf(table + length, size - length, "  %s (device %d): %s; %llu more behind it\n",
		                           stream->where, stream->device, text,
		                           (unsigned long long)(stream->given - stream->finished - 1));
	}
}

static void look(void)
{
	static char table[TABLE_BYTES], tables[4 * TABLE_BYTES];
	const struct pp_fake_settings *settings = pp_fake_settings();
	uint64_t now = pp_fake_now();
	if (watchdog.progress != pp_fake_progress()) {
		watchdog.progress = pp_fake_progress();
		watchdog.since = now;
		watchdog.asked = false;
	}
	uint64_t quiet = (now - watchdog.since) / 1000000, least = hosts_stuck() ? settings->quiet_ms : settings->stall_ms;
	bool stuck = quiet >= least && (streams_stuck() || hosts_in_calls());
	if (stuck && !watchdog.asked) {
		ask_again();
		stuck = false;
	}
	table[0] = '\0';
	if (stuck || quiet >= settings->stall_ms)
		tabulate(table, sizeof table);
	pp_fake_board_tell(watchdog.progress, quiet, stuck, table);
	if (!stuck)
		return;
	snprintf(tables, sizeof tables, "%s", table);
	if (pp_fake_board_all_stuck(tables, sizeof tables))
		pp_fake_die("deadlock: nothing has moved for %llu ms and nothing can\n%s", (unsigned long long)quiet, tables);
}

static void *watch(void *unused)
{
	(void)unused;
	for (;;) {
		nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
		pp_fake_lock();
		look();
		pp_fake_unlock();
	}
	return NULL;
}

void pp_fake_watchdog_start(void)
{
	if (watchdog.started || !pp_fake_settings()->watchdog)
		return;
	watchdog.started = true;
	watchdog.since = pp_fake_now();
	pthread_t thread;
	if (pthread_create(&thread, NULL, watch, NULL) != 0)
		pp_fake_die("no thread for the watchdog");
	pthread_detach(thread);
}
