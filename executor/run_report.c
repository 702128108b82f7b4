/* Measured against predicted, after the run. Requires: all ranks call the same functions in the same order. */
#include "run_report.h"

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
	uint64_t seen;
	struct measured measured;
};

struct pp_run_report *pp_run_report_open(const struct pp_program *program, uint32_t world, struct pp_status *status)
{
	struct pp_run_report *report = calloc(1, sizeof *report);
	if (!report) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the measurements of rank %" PRIu32, world);
		return NULL;
	}
	*report = (struct pp_run_report){.program = program};
	return report;
}

void pp_run_report_close(struct pp_run_report *report)
{
	free(report);
}

void pp_run_report_step(struct pp_run_report *report, const struct pp_interp *interp)
{
	struct measured *measured = &report->measured;
	if (!interp->timed)
		return;
	if (report->seen++ == 1)
		*measured = (struct measured){0};
	measured->steps++;
	measured->step += interp->ended - interp->began;
	measured->span += interp->last_compute_end - interp->began;
	measured->computed += interp->computed;
}

static double percent_idle(double busy, double span)
{
	return span > 0 ? 100 * (1 - busy / span) : 0;
}

/* Of the column that names ranks. */
static int label_width(const struct pp_program *program)
{
	return pp_grid_world(program) == program->ranks ? 16 : 40;
}

static void print_rank(const struct pp_program *program, uint32_t world, const struct measured *of_rank, double span,
                       const struct pp_sim *predicted, FILE *out)
{
	uint32_t rank = pp_grid_coord(program, world).pp;
	char name[PP_GRID_NAME];
	fprintf(out, "idle of %-*s", label_width(program) - 8, pp_grid_name(program, world, name));
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

static void print_table(const struct pp_program *program, const struct measured *all, uint64_t seen,
                        const struct pp_run_options *options, const char *transport, FILE *out)
{
	const struct pp_sim *predicted = options->predicted;
	double span = 0, step = 0;
	uint32_t world = (uint32_t)pp_grid_world(program);
	int width = label_width(program);
	for (uint32_t i = 0; i < world; i++) {
		double steps = (double)all[i].steps;
		span = (double)all[i].span / steps > span ? (double)all[i].span / steps : span;
		step = (double)all[i].step / steps > step ? (double)all[i].step / steps : step;
	}
	fprintf(out, "over %-*s%s    measured\n", width - 5, transport, predicted ? "    predicted" : "");
	fprintf(out, "%-*s", width, "step");
	if (predicted)
		fprintf(out, " %9.3f ms", (double)(predicted->makespan + predicted->tail) * 1e-6);
	fprintf(out, " %9.3f ms   first to last compute %.3f ms\n", step * 1e-6, span * 1e-6);
	for (uint32_t i = 0; i < world; i++)
		print_rank(program, i, &all[i], span, predicted, out);
	print_sharing(program, options, out);
	if (seen == 1)
		fputs("note: of a single step: measured times include warming caches up\n", out);
	fflush(out);
}

bool pp_run_report_print(struct pp_run_report *report, const struct pp_report_link *link,
                         const struct pp_run_options *options, FILE *out, struct pp_status *status)
{
	struct rusage usage;
	if (getrusage(RUSAGE_SELF, &usage) == 0)
		report->measured.resident = (uint64_t)usage.ru_maxrss * 1024;
	struct measured *all = calloc(pp_grid_world(report->program), sizeof *all);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering times", &report->measured,
	                                all, sizeof *all, status);
	if (ok && out)
		print_table(report->program, all, report->seen, options, link->transport->name, out);
	free(all);
	return ok;
}
