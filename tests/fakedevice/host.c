/* Host threads (host.h). */
#include "host.h"
#include "runtime.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct {
	pthread_once_t once;
	pthread_key_t key;
	struct pp_fake_host *first;
	uint32_t made;
	pid_t process;
} hosts = {.once = PTHREAD_ONCE_INIT};

static _Thread_local bool runs_host_function;

/* A thread has ended. Its clock stays with its agent. */
static void forget(void *given)
{
	struct pp_fake_host *host = given;
	pp_fake_lock();
	struct pp_fake_host **link = &hosts.first;
	while (*link != host)
		link = &(*link)->next;
	*link = host->next;
	pp_fake_agent_give(host->agent, &host->clock);
	pp_fake_progressed();
	pp_fake_unlock();
	free(host);
}

static void make_key(void)
{
	pthread_key_create(&hosts.key, forget);
}

/* Whoever started a thread is ahead of it; who that was isn't known, so all that have ever called are taken to be. */
static struct pp_fake_host *make_host(void)
{
	if (hosts.made == 0)
		hosts.process = getpid();
	struct pp_fake_host *host = pp_fake_new(sizeof *host);
	host->number = hosts.made++;
	host->agent = pp_fake_agent_take(&host->clock);
	host->capture_mode = cudaStreamCaptureModeGlobal;
	for (struct pp_fake_host *other = hosts.first; other; other = other->next)
		pp_fake_clock_join(&host->clock, &other->clock);
	struct pp_fake_host **end = &hosts.first;
	while (*end)
		end = &(*end)->next;
	*end = host;
	pthread_setspecific(hosts.key, host);
	return host;
}

struct pp_fake_host *pp_fake_enter(const char *call)
{
	pthread_once(&hosts.once, make_key);
	struct pp_fake_host *host = pthread_getspecific(hosts.key);
	pp_fake_lock();
	if (runs_host_function)
		pp_fake_fault("%s from a host function: those must not call CUDA", call);
	if (!host)
		host = make_host();
	if (hosts.process != getpid())
		pp_fake_die("%s in a child forked after the first CUDA call of its parent", call);
	host->last_call = pp_fake_now();
	if (host->state == PP_FAKE_HOST_ELSEWHERE)
		snprintf(host->what, sizeof host->what, "last in %s", call);
	return host;
}

cudaError_t pp_fake_leave(struct pp_fake_host *host, cudaError_t error)
{
	if (error != cudaSuccess && error != cudaErrorNotReady)
		host->last_error = error;
	pp_fake_unlock();
	return error;
}

struct pp_fake_host *pp_fake_hosts(void)
{
	return hosts.first;
}

void pp_fake_host_worked(struct pp_fake_host *host)
{
	host->state = PP_FAKE_HOST_ELSEWHERE;
	host->polls = 0;
	pp_fake_progressed();
}

static void say(struct pp_fake_host *host, enum pp_fake_host_state state, const char *format, va_list arguments)
{
	host->state = state;
	vsnprintf(host->what, sizeof host->what, format, arguments);
}

void pp_fake_host_polled(struct pp_fake_host *host, const char *format, ...)
{
	if (host->state != PP_FAKE_HOST_POLLING || host->polling_since != pp_fake_progress()) {
		host->polls = 0;
		host->polling_since = pp_fake_progress();
	}
	host->polls++;
	va_list arguments;
	va_start(arguments, format);
	say(host, PP_FAKE_HOST_POLLING, format, arguments);
	va_end(arguments);
}

void pp_fake_host_blocked(struct pp_fake_host *host, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	say(host, PP_FAKE_HOST_BLOCKED, format, arguments);
	va_end(arguments);
}

void pp_fake_host_freed(struct pp_fake_host *host)
{
	host->state = PP_FAKE_HOST_ELSEWHERE;
	host->polls = 0;
	host->awaits = NULL;
	pp_fake_progressed();
}

bool pp_fake_host_waits(const struct pp_fake_host *host)
{
	return host->state == PP_FAKE_HOST_BLOCKED && (!host->awaits || atomic_load(host->awaits) < host->until);
}

void pp_fake_host_pause(void)
{
	static _Thread_local uint32_t pauses;
	pp_fake_unlock();
	if (++pauses % 32 != 0)
		sched_yield();
	else
		nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	pp_fake_lock();
}

void pp_fake_host_function(bool runs)
{
	runs_host_function = runs;
}
