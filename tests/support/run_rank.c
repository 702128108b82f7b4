/* Running hand-built programs on the null device. */
#include "run_rank.h"

#include <stdio.h>

static bool run_steps(const struct pp_test_run *run, struct pp_interp *interp, struct pp_status *status)
{
	for (uint64_t step = 1; step <= run->steps; step++) {
		interp->step = step;
		if (!pp_interp_step(interp, &run->program->programs[0].streams[pp_grid_coord(run->program, interp->world).pp],
		                    status)) {
			if (!interp->lost)
				run->transport->give_up(interp->endpoint, status->text);
			return false;
		}
	}
	return true;
}

struct pp_test_result pp_test_run_rank(const struct pp_test_run *run, uint32_t rank, struct pp_endpoint *endpoint)
{
	struct pp_test_result result = {0};
	struct pp_watch own, *watch = run->watches ? &run->watches[rank] : &own;
	pp_watch_init(watch, run->program, rank, run->timeout);
	struct pp_interp interp = {
	    .program = run->program,
	    .world = rank,
	    .device_ops = &pp_device_null,
	    .transport = run->transport,
	    .endpoint = endpoint,
	    .watch = watch,
	    .jitter = run->jitter,
	    .fault = run->fault,
	};
	interp.device = pp_device_null.create(run->program, pp_grid_coord(run->program, rank), NULL, &result.status);
	if (!interp.device || !pp_interp_open(&interp, &result.status))
		return result;
	bool ran = run_steps(run, &interp, &result.status);
	struct pp_status ignored;
	if (!interp.lost)
		pp_transport_exchange(run->transport, endpoint, watch, "finishing", NULL, NULL, 0,
		                      ran ? &result.status : &ignored);
	result.ok = ran;
	result.device = interp.device;
	const char *first;
	result.errors = pp_device_null_errors(interp.device, &first);
	snprintf(result.first, sizeof result.first, "%s", first);
	result.digest = pp_device_null_digest(interp.device);
	pp_interp_close(&interp);
	return result;
}

struct job {
	const struct pp_test_run *run;
	struct pp_test_result *results;
};

static bool run_job(void *context, const struct pp_test_seat *seat)
{
	const struct job *job = context;
	struct pp_test_run run = *job->run;
	run.transport = seat->ops;
	job->results[seat->rank] = pp_test_run_rank(&run, seat->rank, seat->endpoint);
	return job->results[seat->rank].ok;
}

void pp_test_run_threads(const struct pp_test_world *world, const struct pp_test_run *run,
                         struct pp_test_result *results)
{
	struct job job = {run, results};
	pp_test_threads(world, run->program, &run->options, run_job, &job);
	for (uint32_t rank = 0; rank < run->program->ranks; rank++) {
		if (results[rank].device)
			pp_device_null.destroy(results[rank].device);
		results[rank].device = NULL;
	}
}

void pp_test_run_loop(const struct pp_test_run *run, struct pp_test_result *results)
{
	pp_test_run_threads(&pp_test_world_loop, run, results);
}
