/* A thread that waits for SIGINT, SIGTERM and SIGUSR1. */
#include "sentry.h"

#include "ir/status.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct pp_sentry {
	pthread_t thread;
	sigset_t signals;
	struct pp_sentry_calls calls;
	atomic_bool stop;
};

static void *stand_guard(void *argument)
{
	struct pp_sentry *sentry = argument;
	const struct pp_sentry_calls *calls = &sentry->calls;
	bool gentle = calls->gentle;
	for (;;) {
		int signal = sigwaitinfo(&sentry->signals, NULL);
		if (atomic_load(&sentry->stop))
			return NULL;
		if (signal == SIGUSR1 || (signal == SIGINT && gentle)) {
			calls->stop(calls->context, signal == SIGUSR1 ? "SIGUSR1" : "SIGINT");
			gentle = gentle && signal != SIGINT;
		} else if (signal == SIGINT || signal == SIGTERM) {
			calls->end(calls->context, signal == SIGINT ? "stopped by SIGINT" : "stopped by SIGTERM");
			fflush(stdout);
			_exit(PP_EXIT_RUN);
		}
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

static sigset_t our_signals(void)
{
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGUSR1);
	return signals;
}

bool pp_sentry_block(void)
{
	sigset_t signals = our_signals();
	struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigemptyset(&action.sa_mask);
	return pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0 && sigaction(SIGINT, &action, NULL) == 0 &&
	       sigaction(SIGTERM, &action, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0;
}

struct pp_sentry *pp_sentry_start(const struct pp_sentry_calls *calls)
{
	struct pp_sentry *sentry = calloc(1, sizeof *sentry);
	if (!sentry)
		return NULL;
	sentry->calls = *calls;
	sentry->signals = our_signals();
	if (!pp_sentry_block() || pthread_create(&sentry->thread, NULL, stand_guard, sentry) != 0) {
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
