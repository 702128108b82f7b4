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

void pp_fake_tsan_acquire(void *token);
void pp_fake_tsan_release(void *token);
/* The fiber comes after what the calling thread has done so far; `name` is for reports. */
void pp_fake_tsan_make(struct pp_fake_fiber *fiber, const char *name);
/* The thread works as the fiber until it leaves. */
void pp_fake_tsan_enter(struct pp_fake_fiber *fiber);
void pp_fake_tsan_leave(struct pp_fake_fiber *fiber);
/* Between these a thread of the pool frees what a stream has used, unseen: an edge for it would order the stream before
 * whoever takes the lock next. */
void pp_fake_tsan_ignore(void);
void pp_fake_tsan_heed(void);

#endif
