/* Measured against predicted, after the run. Requires: all ranks call the same functions in the same order. */
#include "run_report.h"

#include "ir/hash.h"

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
	uint32_t rank;
	uint64_t steps, seen;
	struct measured measured;
};

struct pp_run_report *pp_run_report_open(const struct pp_program *program, uint32_t rank, uint64_t steps,
                                         struct pp_status *status)
{
	struct pp_run_report *report = calloc(1, sizeof *report);
	if (!report) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the measurements of rank %" PRIu32, rank);
		return NULL;
	}
	*report = (struct pp_run_report){.program = program, .rank = rank, .steps = steps};
	return report;
}

void pp_run_report_close(struct pp_run_report *report)
{
	free(report);
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
