/* Runs one rank of a hand-built program on the null device, or all of them as threads. */
#ifndef PP_RUN_RANK_H
#define PP_RUN_RANK_H

#include "device_null.h"
#include "world.h"

#include "executor/interp.h"

struct pp_test_run {
	const struct pp_program *program;
	const struct pp_transport_ops *transport;
	struct pp_transport_options options;
	uint64_t steps, timeout, jitter;
	struct pp_fault fault;
	struct pp_watch *watches; /* [ranks]; may be NULL */
};

struct pp_test_result {
	bool ok;
	struct pp_status status;
	unsigned errors;
	char first[160];
	uint64_t digest;
	struct pp_device *device; /* until all ranks have stopped: others may still be copying to it */
};

/* Run a rank over an endpoint that the caller made. The caller destroys the result's device. */
struct pp_test_result pp_test_run_rank(const struct pp_test_run *run, uint32_t rank, struct pp_endpoint *endpoint);

/* Run all ranks as threads of such a world, or over the loop transport. results[ranks]. */
void pp_test_run_threads(const struct pp_test_world *world, const struct pp_test_run *run,
                         struct pp_test_result *results);
void pp_test_run_loop(const struct pp_test_run *run, struct pp_test_result *results);

#endif
