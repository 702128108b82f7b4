/* The watchdog: a thread that sees when every stream and every host thread waits for something and nothing moves, and
 * ends the process with a table of who waits for what (watchdog.c). */
#ifndef PP_FAKE_WATCHDOG_H
#define PP_FAKE_WATCHDOG_H

/* With the lock; only the first call does something. */
void pp_fake_watchdog_start(void);

#endif
