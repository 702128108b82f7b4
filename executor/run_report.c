/* Measured against predicted, after the run. Requires: all ranks call the same functions in the same order. */
#include "run_report.h"

#include "ir/hash.h"

#include "run_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Sums over the counted steps of one rank, ns. */
struct measured {
	uint64_t steps;
	uint64_t step;     /* begin to end */
	uint64_t span;     /* begin of the step to the end of its last compute */
	uint64_t computed; /* in bodies */
	uint64_t resident; /* peak of the process, bytes */
};

struct pp_run_report {
	const struct pp_program *program;
	const struct pp_named_program *named;
	uint32_t rank;
	uint64_t steps, seen;
	struct measured measured;
	const char *trace_path;
	FILE *trace_file; /* rank 0 */
	uint64_t zero;    /* pp_clock() at the start of the trace */
	uint64_t longest; /* instructions of the longest stream */
	uint64_t traced;  /* steps */
	uint64_t *times;  /* [traced][2 * longest] */
};

static bool open_trace(struct pp_run_report *report, const char *path, struct pp_status *status)
{
	const uint64_t most = UINT64_C(256) << 20, of_step = 2 * sizeof(uint64_t) * report->longest;
	report->trace_path = path;
	report->traced = report->steps < most / of_step ? report->steps : most / of_step;
	report->times = calloc(report->traced + 1, of_step);
	if (!report->times)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the trace of rank %" PRIu32, report->rank);
	if (report->rank == 0)
		report->trace_file = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
	if (report->rank == 0 && !report->trace_file)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write the trace to %s: %s", path, strerror(errno));
	return true;
}

struct pp_run_report *pp_run_report_open(const struct pp_program *program, const struct pp_named_program *named,
                                         uint32_t rank, uint64_t steps, const char *trace_path,
                                         struct pp_status *status)
{
	struct pp_run_report *report = calloc(1, sizeof *report);
	if (!report) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the measurements of rank %" PRIu32, rank);
		return NULL;
	}
	*report = (struct pp_run_report){.program = program, .named = named, .rank = rank, .steps = steps, .longest = 1};
	for (uint32_t i = 0; i < program->ranks; i++)
		if (named->streams[i].count > report->longest)
			report->longest = named->streams[i].count;
	if (!trace_path || open_trace(report, trace_path, status))
		return report;
	pp_run_report_close(report);
	return NULL;
}

void pp_run_report_close(struct pp_run_report *report)
{
	if (report->trace_file && report->trace_file != stdout)
		fclose(report->trace_file);
	free(report->times);
	free(report);
}

void pp_run_report_start(struct pp_run_report *report)
{
	report->zero = pp_clock();
}

uint64_t *pp_run_report_times(struct pp_run_report *report, uint64_t step)
{
	return step <= report->traced ? report->times + (step - 1) * 2 * report->longest : NULL;
}

void pp_run_report_step(struct pp_run_report *report, const struct pp_interp *interp)
{
	struct measured *measured = &report->measured;
	if (report->seen++ == 0 && report->steps > 1)
		return;
	measured->steps++;
	measured->step += interp->ended - interp->began;
	measured->span += interp->last_compute_end - interp->began;
	measured->computed += interp->computed;
}

static double percent_idle(double busy, double span)
{
	return span > 0 ? 100 * (1 - busy / span) : 0;
}

static void print_rank(const struct pp_program *program, uint32_t rank, const struct measured *of_rank, double span,
                       const struct pp_sim *predicted, FILE *out)
{
	char label[32];
	snprintf(label, sizeof label, "idle of rank %" PRIu32, rank);
	fprintf(out, "%-16s", label);
	if (predicted)
		fprintf(out, " %10.1f %%", percent_idle((double)predicted->rank[rank].busy, (double)predicted->makespan));
	fprintf(out, " %10.1f %%   arena %.2f MiB, process at most %.1f MiB\n",
	        percent_idle((double)of_rank->computed / (double)of_rank->steps, span),
	        (double)program->rank[rank].arena_bytes / 1048576, (double)of_rank->resident / 1048576);
}

/* Ranks that compute and share processors measure each other's work too. */
static void print_sharing(const struct pp_program *program, const struct pp_run_options *options, FILE *out)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	if (processors > 0 && options->here > (unsigned long)processors && program->train.vocab)
		fprintf(out, "note: %" PRIu32 " ranks share %ld processors: measured times include waiting for one\n",
		        options->here, processors);
}

static void print_table(const struct pp_program *program, const struct measured *all,
                        const struct pp_run_options *options, FILE *out)
{
	const struct pp_sim *predicted = options->predicted;
	double span = 0, step = 0;
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		double steps = (double)all[rank].steps;
		span = (double)all[rank].span / steps > span ? (double)all[rank].span / steps : span;
		step = (double)all[rank].step / steps > step ? (double)all[rank].step / steps : step;
	}
	fprintf(out, "%-16s%s    measured\n", "", predicted ? "    predicted" : "");
	fprintf(out, "%-16s", "step");
	if (predicted)
		fprintf(out, " %9.3f ms", (double)(predicted->makespan + predicted->tail) * 1e-6);
	fprintf(out, " %9.3f ms   first to last compute %.3f ms\n", step * 1e-6, span * 1e-6);
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		print_rank(program, rank, &all[rank], span, predicted, out);
	print_sharing(program, options, out);
	fflush(out);
}

bool pp_run_report_print(struct pp_run_report *report, const struct pp_report_link *link,
                         const struct pp_run_options *options, FILE *out, struct pp_status *status)
{
	struct rusage usage;
	if (getrusage(RUSAGE_SELF, &usage) == 0)
		report->measured.resident = (uint64_t)usage.ru_maxrss * 1024;
	struct measured *all = calloc(report->program->ranks, sizeof *all);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering times", &report->measured,
	                                all, sizeof *all, status);
	if (ok && out)
		print_table(report->program, all, options, out);
	free(all);
	return ok;
}

/* ---- trace ----------------------------------------------------------------------------------- */

/* Times of the rank's stream become relative to its own time 0: clocks of different machines do not agree. */
static void make_relative(const struct pp_run_report *report, uint64_t *times)
{
	for (uint64_t i = 0; i < 2 * report->longest; i++)
		times[i] = times[i] > report->zero ? times[i] - report->zero : 0;
}

static bool close_trace(struct pp_run_report *report, struct pp_status *status)
{
	FILE *out = report->trace_file;
	report->trace_file = NULL;
	bool ok = !out || !ferror(out);
	if (out && (out == stdout ? fflush(out) : fclose(out)) != 0)
		ok = false;
	if (!ok)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write the trace to %s: %s", report->trace_path,
		               strerror(errno));
	if (out && report->traced < report->steps)
		fprintf(stderr, "piperun: the trace holds the first %" PRIu64 " of %" PRIu64 " steps\n", report->traced,
		        report->steps);
	return true;
}

bool pp_run_report_trace(struct pp_run_report *report, const struct pp_report_link *link, struct pp_status *status)
{
	struct pp_trace trace;
	FILE *out = report->trace_file;
	size_t bytes = 2 * sizeof(uint64_t) * (size_t)report->longest;
	uint64_t *all = calloc(report->program->ranks, bytes);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the trace");
	if (out)
		pp_trace_begin(&trace, out, report->program->ranks);
	bool ok = true;
	for (uint64_t step = 1; ok && step <= report->traced; step++) {
		uint64_t *mine = pp_run_report_times(report, step);
		make_relative(report, mine);
		ok = pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering the trace", mine, all,
		                           bytes, status);
		if (ok && out)
			pp_run_trace_step(&trace, report->program, report->named, step, all, report->longest);
	}
	if (ok && out)
		pp_trace_end(&trace);
	free(all);
	return ok && close_trace(report, status);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Never 0, which stands for a tensor that is not here. */
static uint64_t weights_hash(const unsigned char *bytes, uint64_t length)
{
	uint64_t hash = pp_hash_bytes(bytes, length);
	return hash ? hash : 1;
}

static bool print_hashes(const struct pp_program *program, const uint64_t *all, FILE *out, struct pp_status *status)
{
	for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++) {
		uint32_t owner = PP_NULL;
		for (uint32_t rank = 0; rank < program->ranks; rank++) {
			uint64_t hash = all[(uint64_t)rank * program->tensor_count + tensor];
			if (hash && owner == PP_NULL)
				owner = rank;
			else if (hash && hash != all[(uint64_t)owner * program->tensor_count + tensor])
				return pp_fail(status, PP_EXIT_RUN,
				               "copies of tensor `%s` differ between ranks %" PRIu32 " and %" PRIu32
				               " after the last step",
				               program->tensors[tensor].name, owner, rank);
		}
		if (out && owner != PP_NULL)
			fprintf(out, "weights %s %016" PRIx64 "\n", program->tensors[tensor].name,
			        all[(uint64_t)owner * program->tensor_count + tensor]);
	}
	return true;
}

bool pp_run_report_weights(const struct pp_report_link *link, FILE *out, struct pp_status *status)
{
	const struct pp_program *program = link->interp->program;
	uint32_t rank = link->interp->coord.pp;
	uint64_t *mine = calloc((size_t)program->tensor_count + 1, sizeof *mine);
	uint64_t *all = calloc((size_t)program->tensor_count * program->ranks + 1, sizeof *all);
	bool ok = mine && all;
	if (!ok)
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	for (uint32_t i = 0; ok && i < program->use_count; i++) {
		const struct pp_use *use = &program->uses[i];
		if (program->stages[use->stage].rank == rank && !mine[use->tensor])
			mine[use->tensor] =
			    weights_hash(link->interp->slots[use->weight], program->rank[rank].slots[use->weight].bytes);
	}
	ok = ok && pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering hashes of weights", mine,
	                                 all, program->tensor_count * sizeof *mine, status);
	ok = ok && print_hashes(program, all, out, status);
	free(mine);
	free(all);
	return ok;
}
