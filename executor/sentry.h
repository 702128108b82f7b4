/* Signals that end or stop a run. */
#ifndef PP_SENTRY_H
#define PP_SENTRY_H

#include <stdbool.h>

/* What signals lead to; called by the sentry's thread, also while ranks compute or sleep. */
struct pp_sentry_calls {
	void *context;
	void (*end)(void *context, const char *why);  /* SIGTERM, SIGINT: report; then the process ends with code 5 */
	void (*stop)(void *context, const char *why); /* SIGUSR1: stop after the step */
	bool gentle;                                  /* the first SIGINT stops as SIGUSR1 does */
};

struct pp_sentry;

/* Keep the signals from this thread and all that it starts from here on. pp_sentry_start does so too. */
bool pp_sentry_block(void);

/* Start it, or block, before any other thread: signal masks are inherited. */
struct pp_sentry *pp_sentry_start(const struct pp_sentry_calls *calls);
void pp_sentry_stop(struct pp_sentry *sentry);

#endif
