/* Times of instructions: run_times.h. Requires: all ranks call the same functions in the same order. */
#include "run_times.h"

#include "run_agree.h"
#include "run_trace.h"

#include "ir/compare.h"
#include "ir/file.h"
#include "ir/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROFILE_STEPS = 64 };

struct pp_run_times {
	const struct pp_program *program;
	const struct pp_named_program *named;
	const struct pp_run_options *options;
	uint32_t world;
	uint64_t steps;   /* of the run */
	uint64_t longest; /* instructions of the longest stream */
	uint64_t kept;    /* steps, at most */
	uint64_t ran;     /* of those */
	uint64_t *items;  /* [kept][2 * longest] */
	uint64_t zero;    /* pp_clock() at the start of the steps */
	FILE *trace;      /* rank 0 */
};

/* What ranks must know of each other to compare times. */
struct origin {
	uint64_t clock; /* equal numbers: one clock */
	uint64_t zero;
};

/* ---- keeping --------------------------------------------------------------------------------- */

static bool open_files(struct pp_run_times *times, struct pp_status *status)
{
	const char *trace = times->options->trace_path, *profile = times->options->profile_path;
	if (times->world != 0)
		return true;
	if (trace)
		times->trace = strcmp(trace, "-") == 0 ? stdout : fopen(trace, "w");
	if (trace && !times->trace)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write the trace to %s: %s", trace, strerror(errno));
	return !profile || pp_file_can_write(profile, status);
}

struct pp_run_times *pp_run_times_open(const struct pp_interp *interp, const struct pp_named_program *named,
                                       uint64_t steps, const struct pp_run_options *options, struct pp_status *status)
{
	struct pp_run_times *times = calloc(1, sizeof *times);
	if (!times) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the times of rank %" PRIu32, interp->world);
		return NULL;
	}
	*times = (struct pp_run_times){.program = interp->program,
	                               .named = named,
	                               .options = options,
	                               .world = interp->world,
	                               .steps = steps,
	                               .longest = 1};
	for (uint32_t i = 0; i < interp->program->ranks; i++)
		if (named->streams[i].count > times->longest)
			times->longest = named->streams[i].count;
	const uint64_t most = UINT64_C(256) << 20, of_step = 2 * sizeof(uint64_t) * times->longest;
	uint64_t limit = most / of_step;
	if (!options->trace_path && limit > PROFILE_STEPS + 1)
		limit = PROFILE_STEPS + 1;
	times->kept = steps < limit ? steps : limit;
	times->items = calloc(times->kept + 1, of_step);
	if (!times->items)
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the times of rank %" PRIu32, interp->world);
	else if (open_files(times, status))
		return times;
	pp_run_times_close(times);
	return NULL;
}

void pp_run_times_close(struct pp_run_times *times)
{
	if (!times)
		return;
	if (times->trace && times->trace != stdout)
		fclose(times->trace);
	free(times->items);
	free(times);
}

void pp_run_times_start(struct pp_run_times *times)
{
	times->zero = pp_clock();
}

uint64_t *pp_run_times_of(struct pp_run_times *times, uint64_t step)
{
	if (step > times->kept)
		return NULL;
	times->ran = step;
	return times->items + (step - 1) * 2 * times->longest;
}

uint64_t pp_run_times_kept(const struct pp_run_times *times)
{
	return times->kept;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* One number per clock: processes of one running system share theirs. */
static uint64_t clock_number(void)
{
	char text[300] = "";
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
	size_t length = file ? fread(text, 1, 64, file) : 0;
	if (file)
		fclose(file);
	if (length == 0 && gethostname(text, sizeof text - 1) == 0)
		length = strlen(text);
	return pp_hash_bytes(text, length);
}

/* Times become relative to the earliest start on the rank's clock. */
static void make_relative(const struct pp_run_times *times, uint64_t zero, uint64_t *of_step)
{
	for (uint64_t i = 0; i < 2 * times->longest; i++)
		of_step[i] = of_step[i] > zero ? of_step[i] - zero : 0;
}

static uint64_t earliest(const struct origin *origins, uint64_t count, const struct origin *mine)
{
	uint64_t zero = mine->zero;
	for (uint64_t i = 0; i < count; i++)
		if (origins[i].clock == mine->clock && origins[i].zero < zero)
			zero = origins[i].zero;
	return zero;
}

/* Where the gathered times go on rank 0. */
struct sinks {
	struct pp_trace *trace;
	struct pp_measure *measure;
};

static void take_step(const struct pp_run_times *times, const struct sinks *sinks, uint64_t step, const uint64_t *all)
{
	bool counts = times->ran == 1 || (step > 1 && step <= PROFILE_STEPS + 1);
	if (sinks->trace)
		pp_run_trace_step(sinks->trace, times->program, times->named, step, all, times->longest);
	if (sinks->measure && counts)
		pp_measure_step(sinks->measure, all, times->longest);
}

static bool gather(struct pp_run_times *times, const struct pp_report_link *link, const struct sinks *sinks,
                   uint64_t zero, uint64_t *all, struct pp_status *status)
{
	size_t bytes = 2 * sizeof(uint64_t) * (size_t)times->longest;
	for (uint64_t step = 1; step <= times->ran; step++) {
		uint64_t *mine = times->items + (step - 1) * 2 * times->longest;
		make_relative(times, zero, mine);
		if (!pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering times of instructions",
		                           mine, all, bytes, status))
			return false;
		if (times->world == 0)
			take_step(times, sinks, step, all);
	}
	return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool close_trace(struct pp_run_times *times, struct pp_trace *trace, struct pp_status *status)
{
	FILE *out = times->trace;
	if (!out)
		return true;
	pp_trace_end(trace);
	times->trace = NULL;
	bool ok = !ferror(out);
	if ((out == stdout ? fflush(out) : fclose(out)) != 0)
		ok = false;
	if (!ok)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write the trace to %s: %s", times->options->trace_path,
		               strerror(errno));
	if (times->kept < times->steps)
		fprintf(stderr, "piperun: the trace holds the first %" PRIu64 " of %" PRIu64 " steps\n", times->kept,
		        times->steps);
	return true;
}

static bool write_profile(const struct pp_run_times *times, const struct pp_profile *profile, struct pp_status *status)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	if (out)
		pp_profile_print(profile, out);
	bool ok = out && fclose(out) == 0;
	ok = ok ? pp_file_write(times->options->profile_path, text, length, status)
	        : pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the profile");
	free(text);
	return ok;
}

static bool end_measure(const struct pp_run_times *times, struct pp_arena *arena, struct pp_measure *measure,
                        const struct pp_report_link *link, FILE *out, struct pp_status *status)
{
	struct pp_profile *profile = pp_measure_end(measure);
	profile->tool = "piperun " PP_VERSION;
	profile->transport = link->transport->name;
	profile->device = link->interp->device_ops->name;
	const struct pp_sim *predicted = times->options->predicted;
	if (out && predicted && predicted->instr) {
		struct pp_compare compare = {.arena = arena,
		                             .program = times->program,
		                             .named = times->named,
		                             .sim = predicted,
		                             .profile = profile,
		                             .measure = measure};
		pp_compare_classes(&compare, out);
		fflush(out);
	}
	return !times->options->profile_path || times->ran == 1 || write_profile(times, profile, status);
}

/* A resumed run may be complete already, and one that is stopped may have run the first step only. */
static void say_nothing_measured(const struct pp_run_times *times)
{
	if (times->world == 0 && times->options->profile_path && times->ran <= 1)
		fprintf(stderr, "piperun: %s, so %s was not written\n",
		        times->ran ? "only the first step was run, which warms caches up" : "no step was run",
		        times->options->profile_path);
}

static bool finish(struct pp_run_times *times, const struct pp_report_link *link, struct pp_arena *arena,
                   struct origin *origins, uint64_t *all, FILE *out, struct pp_status *status)
{
	struct pp_trace trace;
	struct sinks sinks = {.trace = times->trace ? &trace : NULL};
	uint64_t world = pp_grid_world(times->program);
	struct origin mine = {.clock = clock_number(), .zero = times->zero};
	if (!pp_transport_exchange(link->transport, link->endpoint, link->watch, "comparing clocks", &mine, origins,
	                           sizeof mine, status))
		return false;
	if (times->world == 0) {
		uint64_t *clocks = PP_NEW_ARRAY(arena, uint64_t, world);
		for (uint64_t i = 0; i < world; i++)
			clocks[i] = origins[i].clock;
		if (times->ran)
			sinks.measure = pp_measure_begin(arena, times->program, times->named, clocks);
	}
	if (times->trace)
		pp_trace_begin(&trace, times->trace, (uint32_t)world, times->program, link->transport->name);
	if (!gather(times, link, &sinks, earliest(origins, world, &mine), all, status))
		return false;
	say_nothing_measured(times);
	bool fine = close_trace(times, &trace, status) &&
	            (!sinks.measure || end_measure(times, arena, sinks.measure, link, out, status));
	return pp_run_agree(link->transport, link->endpoint, link->watch, (uint32_t)world, "writing times of instructions",
	                    fine, status);
}

bool pp_run_times_finish(struct pp_run_times *times, const struct pp_report_link *link, FILE *out,
                         struct pp_status *status)
{
	uint64_t world = pp_grid_world(times->program);
	struct origin *origins = calloc(world, sizeof *origins);
	uint64_t *all = calloc(world * 2 * times->longest, sizeof *all);
	struct pp_arena *arena = pp_arena_scratch(times->options->arena);
	bool ok = origins && all ? finish(times, link, arena, origins, all, out, status)
	                         : pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the times of all ranks");
	pp_arena_destroy(arena);
	free(origins);
	free(all);
	return ok;
}
