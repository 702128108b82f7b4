/* Under ThreadSanitizer every stream is a fiber of its own, and edges exist only where CUDA has them: from the call
 * that gives work to the work, along a stream, from a record to those who wait for it, and to the host that waited. The
 * lock and the threads of the pool then order nothing, so a missing wait shows as a data race in the emulated kernels
 * themselves. Without the sanitizer all of this is nothing. */
#ifndef PP_FAKE_THREAD_SANITIZER_H
#define PP_FAKE_THREAD_SANITIZER_H

struct pp_fake_fiber {
	void *fiber, *outside;
	char token;
};

#if defined(__SANITIZE_THREAD__)
void *__tsan_create_fiber(unsigned flags);
void *__tsan_get_current_fiber(void);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_set_fiber_name(void *fiber, const char *name);
void __tsan_acquire(void *address);
void __tsan_release(void *address);

static inline void pp_fake_tsan_acquire(void *token)
{
	__tsan_acquire(token);
}

static inline void pp_fake_tsan_release(void *token)
{
	__tsan_release(token);
}

static inline void pp_fake_tsan_enter(struct pp_fake_fiber *fiber, const char *name)
{
	enum { NO_ORDER = 1 }; /* flag of the interface: the switch orders nothing */
	fiber->outside = __tsan_get_current_fiber();
	if (!fiber->fiber) {
		fiber->fiber = __tsan_create_fiber(0);
		__tsan_set_fiber_name(fiber->fiber, name);
	}
	__tsan_switch_to_fiber(fiber->fiber, NO_ORDER);
}

static inline void pp_fake_tsan_leave(struct pp_fake_fiber *fiber)
{
	enum { NO_ORDER = 1 };
	__tsan_switch_to_fiber(fiber->outside, NO_ORDER);
}
#define PP_FAKE_UNSANITIZED __attribute__((no_sanitize("thread")))
#else
static inline void pp_fake_tsan_acquire(void *token)
{
	(void)token;
}

static inline void pp_fake_tsan_release(void *token)
{
	(void)token;
}

static inline void pp_fake_tsan_enter(struct pp_fake_fiber *fiber, const char *name)
{
	(void)fiber;
	(void)name;
}

static inline void pp_fake_tsan_leave(struct pp_fake_fiber *fiber)
{
	(void)fiber;
}
#define PP_FAKE_UNSANITIZED
#endif

#endif
