/* What ranks that are processes do alike.
 *
 * Ensures: a run that fails is reported by every rank that can, and ends all of them with code 5. */
#include "launch_rank.h"

#include "link.h"
#include "run_agree.h"
#include "transport/queued.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- watch ----------------------------------------------------------------------------------- */

/* Others report for this rank if they can; else it does so itself. */
static void end_by_signal(void *context, const char *why)
{
	struct pp_rank_process *process = context;
	pp_star_signal(process->star, why);
	pp_watch_report(&process->watch, why, stderr);
}

static void stop_by_signal(void *context, const char *why)
{
	struct pp_rank_process *process = context;
	pp_star_stop(process->star, why);
}

/* The sentry comes first, so that all threads inherit its signal mask; until there is a star it has nobody to tell. */
bool pp_rank_keep_watch(struct pp_rank_process *process, uint32_t rank, struct pp_status *status)
{
	struct pp_launch *launch = process->launch;
	process->limits = pp_launch_limits(&launch->asked, 0, 0);
	pp_watch_init(&process->watch, NULL, rank, PP_NO_DEADLINE);
	signal(SIGPIPE, SIG_IGN); /* a launcher that is gone does not read what this rank says: no reason to die of it */
	if (!pp_sentry_block())
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot block signals");
	process->star = pp_star_start(&process->watch, &process->limits, &launch->files);
	if (!process->star)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot start the thread that keeps watch");
	process->sentry = pp_sentry_start(&(struct pp_sentry_calls){process, end_by_signal, stop_by_signal, false});
	return process->sentry || pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot start the thread that waits for signals");
}

void pp_rank_end_sentry(struct pp_rank_process *process)
{
	pp_sentry_stop(process->sentry);
	process->sentry = NULL;
}

bool pp_rank_agree(struct pp_rank_process *process, const char *what, bool fine, struct pp_status *status)
{
	return pp_run_agree(process->ops, process->endpoint, &process->watch, process->ranks, what, fine, status);
}

static void fail_rank(void *star, const struct pp_status *status)
{
	pp_star_fail(star, status);
}

/* ---- transports above the host's ------------------------------------------------------------- */

/* What the run talks through, top first in `ops` and `endpoint`. */
struct stack {
	const struct pp_transport_ops *ops;
	struct pp_endpoint *endpoint;
	const struct pp_link *link; /* NULL: the device works on host memory */
	struct pp_endpoint *linked; /* of the link, or NULL */
	struct pp_endpoint *queued; /* or NULL */
	bool shared;                /* two ranks have the same device; known where the link could be the direct one */
};

/* What a rank tells all others of its device. */
struct device_card {
	bool known;
	uint8_t id[PP_DEVICE_ID];
};

static int compare_devices(const void *a, const void *b)
{
	return memcmp(((const struct device_card *)a)->id, ((const struct device_card *)b)->id, PP_DEVICE_ID);
}

/* `known`: all ranks know their devices; `shared`: two of them have the same. The same on all ranks. */
static bool compare_all(struct pp_rank_process *process, const struct device_card *mine, bool *known, bool *shared,
                        struct pp_status *status)
{
	struct device_card *all = calloc(process->ranks, sizeof *all);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = pp_transport_exchange(process->ops, process->endpoint, &process->watch, "choosing how devices talk", mine,
	                                all, sizeof *mine, status);
	*known = true;
	*shared = false;
	for (uint32_t i = 0; i < process->ranks; i++)
		*known = *known && all[i].known;
	qsort(all, process->ranks, sizeof *all, compare_devices);
	for (uint32_t i = 1; i < process->ranks; i++)
		*shared = *shared || compare_devices(&all[i - 1], &all[i]) == 0;
	free(all);
	return ok;
}

/* The link that a device needs: the one asked for, else the direct one where every rank has a device of its own. */
static bool choose_link(struct pp_rank_process *process, uint32_t local, struct stack *stack, struct pp_status *status)
{
	const struct pp_launch *launch = process->launch;
	const struct pp_device_ops *device = launch->device;
	const bool demanded = launch->link == PP_LINK_DIRECT;
	if (!device->staged && demanded)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "--transport=nccl connects GPUs, and this run is on device %s",
		               device->name);
	stack->link = device->staged;
	if (!device->staged || launch->link == PP_LINK_STAGED)
		return true;
	if (!device->direct)
		return !demanded ||
		       pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "this piperun was built without NCCL: use --transport=auto, or build where nccl.h is found");
	struct device_card mine = {0};
	bool all_known = false;
	mine.known = device->direct->identify(launch->run.device.gpus, local, mine.id, status);
	if ((demanded && !pp_rank_agree(process, "looking for devices", mine.known, status)) ||
	    !compare_all(process, &mine, &all_known, &stack->shared, status))
		return false;
	if (demanded || (all_known && !stack->shared))
		stack->link = device->direct;
	return true;
}

static bool add_queues(struct pp_rank_process *process, const struct pp_program *program, struct stack *stack,
                       struct pp_status *status)
{
	enum pp_layout queues = process->launch->queues;
	if (queues == PP_LAYOUT_CHANNEL || (stack->link && stack->link->has_queues))
		return true;
	stack->queued =
	    pp_queued_open(program, pp_grid_coord(program, process->rank), queues, stack->ops, stack->endpoint, status);
	if (!stack->queued)
		return false;
	stack->ops = stack->link ? &pp_transport_queued_ordered : &pp_transport_queued;
	stack->endpoint = stack->queued;
	return true;
}

static bool add_link(struct pp_rank_process *process, const struct pp_program *program, struct stack *stack,
                     struct pp_status *status)
{
	const struct pp_link_start start = {.program = program,
	                                    .world = process->rank,
	                                    .shared = stack->shared,
	                                    .below = process->ops,
	                                    .endpoint = process->endpoint,
	                                    .options = process->launch->transport,
	                                    .queues = process->launch->queues,
	                                    .through_host = process->launch->through_host,
	                                    .environment = &process->launch->environment,
	                                    .quiet = process->launch->run.quiet};
	if (!stack->link)
		return true;
	stack->linked = stack->link->open(&start, status);
	stack->ops = stack->link->ops;
	stack->endpoint = stack->linked;
	return stack->linked != NULL;
}

static void take_down(struct stack *stack)
{
	pp_queued_close(stack->queued);
	if (stack->linked)
		stack->link->close(stack->linked);
}

/* ---- the run --------------------------------------------------------------------------------- */

static int end(struct pp_rank_process *process, bool ok, const struct pp_status *status)
{
	return ok ? PP_EXIT_OK : pp_launch_failed(&(struct pp_loaded){0}, status, process->rank == 0);
}

int pp_rank_run(struct pp_rank_process *process, const struct pp_program *program, const bool *here,
                bool (*bind)(struct pp_rank_process *process, const struct pp_program *program,
                             struct pp_status *status))
{
	struct pp_launch *launch = process->launch;
	struct pp_status status = {0};
	uint32_t local = 0;
	launch->run.apart = true;
	for (uint32_t i = 0; i < process->ranks; i++) {
		launch->run.here += here[i];
		local += here[i] && i < process->rank;
	}
	pp_launch_predict(launch, program, process->ops->name);
	pp_star_limits(process->star, &launch->limits);
	atomic_store(&process->watch.program, program);
	launch->run.marks.program = pp_resident_bytes();
	struct stack stack = {.ops = process->ops, .endpoint = process->endpoint};
	bool ok = !bind || bind(process, program, &status);
	ok = pp_rank_agree(process, "opening channels", ok, &status) && choose_link(process, local, &stack, &status);
	bool open = ok && add_link(process, program, &stack, &status) && add_queues(process, program, &stack, &status);
	ok = ok && pp_rank_agree(process, "opening channels", open, &status);
	if (!ok) {
		take_down(&stack);
		return end(process, false, &status);
	}
	launch->run.marks.transport = pp_resident_bytes();
	struct pp_rank_run run = {.program = program,
	                          .world = process->rank,
	                          .local = local,
	                          .device_ops = launch->device,
	                          .transport = stack.ops,
	                          .endpoint = stack.endpoint,
	                          .watch = &process->watch,
	                          .options = &launch->run,
	                          .fail = fail_rank,
	                          .keeper = process->star};
	ok = pp_run_rank(&run, &status);
	if (run.lost)
		_exit(PP_EXIT_RUN);
	take_down(&stack); /* what NCCL still runs uses the device's memory, whose freeing would wait for it */
	pp_run_rank_free(&run);
	return end(process, ok, &status);
}

void pp_rank_leave(struct pp_rank_process *process, int code)
{
	struct pp_status ignored;
	/* Launchers kill the job at the first bad exit. What they send is no news then. */
	if (code != PP_EXIT_OK)
		pp_rank_end_sentry(process);
	pp_transport_exchange(process->ops, process->endpoint, &process->watch, "leaving", NULL, NULL, 0, &ignored);
}
