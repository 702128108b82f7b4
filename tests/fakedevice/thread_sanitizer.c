/* Streams as fibers of ThreadSanitizer (thread_sanitizer.h), by the functions that its run-time library offers. */
#include "thread_sanitizer.h"

#if defined(__SANITIZE_THREAD__)
void *__tsan_create_fiber(unsigned flags);
void *__tsan_get_current_fiber(void);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_set_fiber_name(void *fiber, const char *name);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

enum { NO_ORDER = 1 }; /* flag of a switch: it orders nothing */

void pp_fake_tsan_acquire(void *token)
{
	__tsan_acquire(token);
}

void pp_fake_tsan_release(void *token)
{
	__tsan_release(token);
}

void pp_fake_tsan_make(struct pp_fake_fiber *fiber, const char *name)
{
	fiber->fiber = __tsan_create_fiber(0);
	__tsan_set_fiber_name(fiber->fiber, name);
}

/* The switches themselves are no business of the fibers. */
__attribute__((no_sanitize("thread"))) void pp_fake_tsan_enter(struct pp_fake_fiber *fiber)
{
	fiber->outside = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(fiber->fiber, NO_ORDER);
}

__attribute__((no_sanitize("thread"))) void pp_fake_tsan_leave(struct pp_fake_fiber *fiber)
{
	__tsan_switch_to_fiber(fiber->outside, NO_ORDER);
}

void pp_fake_tsan_ignore(void)
{
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

void pp_fake_tsan_heed(void)
{
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}
#else
void pp_fake_tsan_acquire(void *token)
{
	(void)token;
}

void pp_fake_tsan_release(void *token)
{
	(void)token;
}

void pp_fake_tsan_make(struct pp_fake_fiber *fiber, const char *name)
{
	(void)fiber;
	(void)name;
}

void pp_fake_tsan_enter(struct pp_fake_fiber *fiber)
{
	(void)fiber;
}

void pp_fake_tsan_leave(struct pp_fake_fiber *fiber)
{
	(void)fiber;
}

void pp_fake_tsan_ignore(void)
{
}

void pp_fake_tsan_heed(void)
{
}
#endif
