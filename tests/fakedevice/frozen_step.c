/* Steps of piperun_fake, frozen: the linker puts this around pp_interp_step (--wrap), so that whatever a step must not
 * do is reported, and the executor knows nothing of it. */
#include "executor/interp.h"
#include "fake.h"

bool __real_pp_interp_step(struct pp_interp *interp, const struct pp_stream *stream, struct pp_status *status);
bool __wrap_pp_interp_step(struct pp_interp *interp, const struct pp_stream *stream, struct pp_status *status);

bool __wrap_pp_interp_step(struct pp_interp *interp, const struct pp_stream *stream, struct pp_status *status)
{
	pp_fake_freeze();
	bool good = __real_pp_interp_step(interp, stream, status);
	pp_fake_thaw();
	return good;
}
