/* Steps of piperun_fake, frozen: the linker puts this around pp_interp_step (--wrap), so that whatever a step must not
 * do is reported, and the executor knows nothing of it. So it does with setenv, which is for processes of one thread.
 */
#include "executor/interp.h"
#include "fake.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

bool __real_pp_interp_step(struct pp_interp *interp, const struct pp_stream *stream, struct pp_status *status);
bool __wrap_pp_interp_step(struct pp_interp *interp, const struct pp_stream *stream, struct pp_status *status);

bool __wrap_pp_interp_step(struct pp_interp *interp, const struct pp_stream *stream, struct pp_status *status)
{
	pp_fake_freeze();
	bool good = __real_pp_interp_step(interp, stream, status);
	pp_fake_thaw();
	return good;
}

static atomic_bool threads_run; /* of ours: those of libraries are not asked */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __real_setenv(const char *name, const char *value, int replace);
int __wrap_setenv(const char *name, const char *value, int replace);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	atomic_store(&threads_run, true);
	return __real_pthread_create(thread, attributes, run, argument);
}

int __wrap_setenv(const char *name, const char *value, int replace)
{
	if (atomic_load(&threads_run)) {
		fprintf(stderr, "fake cuda: setenv of %s while other threads run, which may read the environment\n", name);
		_exit(PP_FAKE_EXIT);
	}
	return __real_setenv(name, value, replace);
}
