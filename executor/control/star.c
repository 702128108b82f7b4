/* The thread, opening and closing, and what other threads ask of it. */
#include "star_state.h"

#include "executor/run_agree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const uint64_t millisecond = 1000000;

/* What can go on while the report is being made: after that the process ends whatever happens. */
enum { FAIL_GRACE_MS = 5000, SIGNAL_GRACE_MS = 450, REPORT_POLL_MS = 1 };

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void wait_for_events(struct pp_star *star, int mode, struct pollfd *polls, int *sockets)
{
	size_t count = 0;
	bool cut = atomic_load(&star->watch->cut);
	if (mode == PP_STAR_HUB && !cut)
		count = pp_hub_sockets(star, sockets);
	else if (mode == PP_STAR_SPOKE && !cut && star->hub.socket >= 0)
		sockets[count++] = star->hub.socket;
	for (size_t i = 0; i < count; i++)
		polls[i + 1] = (struct pollfd){.fd = sockets[i], .events = POLLIN};
	polls[0] = (struct pollfd){.fd = star->wake[0], .events = POLLIN};
	uint64_t now = pp_clock();
	uint64_t left = star->next_beat > now ? (star->next_beat - now) / millisecond + 1 : 0;
	if (star->due_since && left > REPORT_POLL_MS)
		left = REPORT_POLL_MS;
	poll(polls, (nfds_t)(count + 1), (int)left);
	if (mode == PP_STAR_HUB && !cut)
		pp_hub_mark(star, polls + 1, count);
	char drained[64];
	while (read(star->wake[0], drained, sizeof drained) > 0)
		continue;
}

/* Nobody is connected yet: a start that takes too long ends. */
static void alone_turn(struct pp_star *star, uint64_t now)
{
	uint64_t limit = atomic_load(&star->limits)->stretch[PP_STRETCH_START];
	if (now - star->started <= limit)
		return;
	fprintf(stderr,
	        "error[E0904]: rank %" PRIu32 " has waited for the other processes to start for %.1f s (the limit is that "
	        "of --timeout-init)\n",
	        star->watch->world, (double)limit * 1e-9);
	pp_star_exit(PP_EXIT_RUN);
}

static void *keep(void *argument)
{
	struct pp_star *star = argument;
	struct pollfd own[2], *polls = own;
	int own_sockets[1], *sockets = own_sockets;
	for (;;) {
		int mode = atomic_load(&star->mode);
		if (mode == PP_STAR_HUB && polls == own) {
			size_t most = (size_t)star->world + PP_STRANGERS + 2;
			polls = calloc(most, sizeof *polls);
			sockets = calloc(most, sizeof *sockets);
			if (!polls || !sockets)
				pp_star_exit(PP_EXIT_ENVIRONMENT);
		}
		wait_for_events(star, mode, polls, sockets);
		uint64_t now = pp_clock();
		if (atomic_load(&star->leaving) && !star->due_since)
			break;
		if (mode == PP_STAR_HUB)
			pp_hub_turn(star, now);
		else if (mode == PP_STAR_SPOKE)
			pp_spoke_turn(star, now);
		else
			alone_turn(star, now);
		if (now >= star->next_beat)
			star->next_beat = now + star->beat;
	}
	if (atomic_load(&star->mode) == PP_STAR_HUB)
		pp_hub_leave(star);
	else if (atomic_load(&star->mode) == PP_STAR_SPOKE)
		pp_spoke_leave(star);
	if (polls != own) {
		free(polls);
		free(sockets);
	}
	atomic_store(&star->over, true);
	return NULL;
}

static void wake(struct pp_star *star)
{
	ssize_t written = write(star->wake[1], "", 1); /* a full pipe wakes it as well */
	(void)written;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool make_pipe(int ends[2])
{
	if (pipe(ends) != 0)
		return false;
	for (int i = 0; i < 2; i++) {
		fcntl(ends[i], F_SETFL, O_NONBLOCK);
		fcntl(ends[i], F_SETFD, FD_CLOEXEC);
	}
	return true;
}

struct pp_star *pp_star_start(struct pp_watch *watch, const struct pp_limits *limits,
                              const struct pp_keeper_files *files)
{
	struct pp_star *star = calloc(1, sizeof *star);
	if (!star || !make_pipe(star->wake)) {
		free(star);
		return NULL;
	}
	atomic_store(&star->limits, limits);
	star->files = *files;
	star->watch = watch;
	star->started = pp_clock();
	star->listener = star->hub.socket = -1;
	star->beat = limits->heartbeat / 20;
	if (star->beat > 500 * millisecond)
		star->beat = 500 * millisecond;
	for (int i = 0; i < PP_STRANGERS; i++)
		star->strangers[i].wire.socket = -1;
	if (pthread_create(&star->thread, NULL, keep, star) == 0)
		return star;
	close(star->wake[0]);
	close(star->wake[1]);
	free(star);
	return NULL;
}

void pp_star_limits(struct pp_star *star, const struct pp_limits *limits)
{
	atomic_store(&star->limits, limits);
}

/* Equal for two processes on one machine. */
struct identity {
	char host[PP_HOST_BYTES];
	char boot[40];
};

static struct identity own_identity(void)
{
	struct identity identity;
	memset(&identity, 0, sizeof identity);
	if (gethostname(identity.host, sizeof identity.host - 1) != 0)
		identity.host[0] = '\0';
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
	if (file && !fgets(identity.boot, sizeof identity.boot, file))
		identity.boot[0] = '\0';
	if (file)
		fclose(file);
	return identity;
}

static bool allocate(struct pp_star *star)
{
	star->accounts = calloc((size_t)star->world + 1, sizeof *star->accounts);
	if (star->rank == 0) {
		star->peers = calloc((size_t)star->world + 1, sizeof *star->peers);
		if (!star->peers || !pp_stall_open(&star->stall, star->world))
			return false;
		for (uint32_t i = 0; i < star->world; i++)
			star->peers[i].wire.socket = -1;
	}
	return star->accounts != NULL;
}

/* The page of this machine, or one for this process only where memory cannot be shared. */
static void take_page(struct pp_star *star, const char *name, bool first)
{
	struct pp_status ignored;
	if (!first)
		star->page = pp_page_open(name, star->world, &ignored);
	if (!star->page) {
		star->page = calloc(1, sizeof *star->page + (size_t)star->world * sizeof *star->page->ranks);
		star->page_is_private = true;
	}
	if (!star->page)
		return;
	struct pp_page_rank *mine = &star->page->ranks[star->rank];
	atomic_store(&mine->pid, (int)getpid());
	star->watch->at = &mine->position;
	pp_watch_doing(star->watch, "opening the control star");
}

struct meeting {
	struct pp_star *star;
	const struct pp_transport_ops *transport;
	struct pp_endpoint *endpoint;
};

static bool exchange(const struct meeting *meeting, const void *mine, void *all, size_t bytes, struct pp_status *status)
{
	return pp_transport_exchange(meeting->transport, meeting->endpoint, meeting->star->watch,
	                             "opening the control star", mine, all, bytes, status);
}

static bool agree(const struct meeting *meeting, bool fine, struct pp_status *status)
{
	return pp_run_agree(meeting->transport, meeting->endpoint, meeting->star->watch, meeting->star->world,
	                    "opening the control star", fine, status);
}

/* Who is on which machine. *first: the lowest rank of this one; *alone: there is no other machine. */
static bool meet(const struct meeting *meeting, uint32_t *first, bool *alone, struct pp_status *status)
{
	struct pp_star *star = meeting->star;
	struct identity mine = own_identity(), *all = calloc((size_t)star->world, sizeof *all);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = exchange(meeting, &mine, all, sizeof mine, status);
	*first = star->rank;
	*alone = true;
	for (uint32_t i = 0; ok && i < star->world; i++) {
		bool here = memcmp(&all[i], &mine, sizeof mine) == 0;
		if (here && i < *first)
			*first = i;
		*alone = *alone && here;
	}
	for (uint32_t i = 0; ok && !*alone && i < star->world; i++)
		memcpy(star->accounts[i].host, all[i].host, PP_HOST_BYTES);
	free(all);
	return ok;
}

static bool tell_address(const struct meeting *meeting, struct pp_star_address *address, struct pp_status *status)
{
	uint32_t world = meeting->star->world;
	struct pp_star_address *all = calloc((size_t)world, sizeof *all);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = exchange(meeting, address, all, sizeof *address, status);
	if (ok)
		*address = all[0];
	free(all);
	return ok;
}

static bool join(const struct meeting *meeting, const struct pp_star_address *address, struct pp_status *status)
{
	struct pp_star *star = meeting->star;
	uint64_t patience = atomic_load(&star->limits)->stretch[PP_STRETCH_START] / 2;
	const uint64_t most = 30000 * millisecond;
	if (star->rank == 0) {
		atomic_store(&star->mode, PP_STAR_HUB);
		wake(star);
	} else if (!pp_star_connect(address, star->rank, patience < most ? patience : most, &star->hub, status)) {
		return false;
	} else {
		star->hub_heard = pp_clock();
		atomic_store(&star->mode, PP_STAR_SPOKE);
		wake(star);
	}
	return true;
}

static void name_page(const struct pp_star_address *address, uint32_t first, char name[64])
{
	int length = snprintf(name, 64, "/piperun-");
	for (int i = 0; i < PP_TOKEN_BYTES; i++)
		length += snprintf(name + length, 64 - (size_t)length, "%02x", address->token[i]);
	snprintf(name + length, 64 - (size_t)length, "-%" PRIu32, first);
}

/* Rank 0 has a connection to each other rank, more than a shell's usual limit (1024) in a large job. The listener has
 * the lowest number that was free. */
static bool may_connect(const struct pp_star *star, struct pp_status *status)
{
	enum { SPARE = 64 }; /* for data, checkpoints, transports */
	struct rlimit limit;
	rlim_t least = (rlim_t)star->listener + star->world, wanted = least + SPARE;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
		return true;
	limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
	setrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_max >= least ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "rank 0 keeps a connection to each of %" PRIu32
	               " ranks, but may have %llu files open: raise the limit to %llu (ulimit -n)",
	               star->world, (unsigned long long)limit.rlim_max, (unsigned long long)wanted);
}

bool pp_star_open(struct pp_star *star, const struct pp_transport_ops *transport, struct pp_endpoint *endpoint,
                  uint32_t world, struct pp_status *status)
{
	struct meeting meeting = {star, transport, endpoint};
	struct pp_star_address address = {.count = 0};
	uint32_t first = 0;
	bool alone = true;
	star->rank = star->watch->world;
	star->world = world;
	bool fine = allocate(star) || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the control star");
	if (!agree(&meeting, fine, status) || !meet(&meeting, &first, &alone, status))
		return false;
	if (star->rank == 0) {
		star->listener = pp_star_listen(&address, alone, status);
		fine = star->listener >= 0 && may_connect(star, status);
		memcpy(star->token, address.token, sizeof star->token);
	}
	if (!agree(&meeting, fine, status) || !tell_address(&meeting, &address, status))
		return false;
	char name[64];
	struct pp_status ignored;
	name_page(&address, first, name);
	if (first == star->rank)
		star->page = pp_page_make(name, world, &ignored);
	if (!exchange(&meeting, NULL, NULL, 0, status))
		return false;
	take_page(star, name, first == star->rank);
	fine = star->page || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the control star");
	fine = fine && join(&meeting, &address, status);
	bool ok = agree(&meeting, fine, status);
	if (first == star->rank)
		pp_page_forget(name);
	return ok;
}

/* ---- asked by other threads ------------------------------------------------------------------ */

void pp_star_fail(struct pp_star *star, const struct pp_status *status)
{
	snprintf(star->failed_text, sizeof star->failed_text, "%.*s", PP_WHY_BYTES - 1, status->text);
	star->failed_code = (int)status->code;
	atomic_store(&star->failed, true);
	wake(star);
	sleep_ms(FAIL_GRACE_MS);
	pp_star_exit((int)status->code);
}

void pp_star_signal(struct pp_star *star, const char *why)
{
	if (atomic_load(&star->mode) == PP_STAR_ALONE)
		return;
	snprintf(star->signal_text, sizeof star->signal_text, "%s", why);
	atomic_store(&star->signalled, true);
	wake(star);
	sleep_ms(SIGNAL_GRACE_MS);
}

void pp_star_stop(struct pp_star *star, const char *why)
{
	if (atomic_load(&star->stop_wanted))
		return;
	snprintf(star->stop_text, sizeof star->stop_text, "%s", why);
	atomic_store(&star->stop_wanted, true);
	wake(star);
}

void pp_star_close(struct pp_star *star)
{
	if (!star)
		return;
	atomic_store(&star->leaving, true);
	wake(star);
	pthread_join(star->thread, NULL);
	star->watch->at = &star->watch->own;
	if (star->page_is_private)
		free(star->page);
	else
		pp_page_close(star->page, star->world);
	pp_stall_close(&star->stall);
	free(star->peers);
	free(star->accounts);
	close(star->wake[0]);
	close(star->wake[1]);
	free(star);
}
