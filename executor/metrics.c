/* Log lines, progress bar, JSON lines. Requires: results in the order of steps. */
#include "metrics.h"

#include "watch.h"

#include "ir/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RECENT = 20, BAR_WIDTH = 30 };

static const uint64_t bar_period = 100000000; /* ns */

struct pp_metrics {
	const struct pp_program *program;
	struct pp_metrics_options options;
	FILE *file;
	uint64_t began, drawn;
	bool bar_visible;
	double recent[RECENT];
	uint64_t losses; /* seen */
};

double pp_step_tokens(const double *losses, uint32_t microbatches)
{
	double count = 0;
	for (uint32_t i = 0; i < microbatches; i++)
		count += losses[2 * i + 1];
	return count;
}

double pp_step_loss(const struct pp_train *train, const double *losses, uint32_t microbatches)
{
	double sum = 0, means = 0, count = pp_step_tokens(losses, microbatches);
	uint32_t with_tokens = 0;
	for (uint32_t i = 0; i < microbatches; i++) {
		sum += losses[2 * i];
		if (losses[2 * i + 1] > 0) {
			means += losses[2 * i] / losses[2 * i + 1];
			with_tokens++;
		}
	}
	if (with_tokens == 0)
		return NAN;
	return train->mean == PP_TOKEN_MEAN ? sum / count : means / with_tokens;
}

struct pp_metrics *pp_metrics_open(const struct pp_program *program, const struct pp_metrics_options *options,
                                   struct pp_status *status)
{
	struct pp_metrics *metrics = calloc(1, sizeof *metrics);
	if (!metrics) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
		return NULL;
	}
	metrics->program = program;
	metrics->options = *options;
	metrics->began = pp_clock();
	if (options->path) {
		metrics->file = strcmp(options->path, "-") == 0 ? stdout : fopen(options->path, options->append ? "a" : "w");
		if (!metrics->file) {
			pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write metrics to %s: %s", options->path, strerror(errno));
			free(metrics);
			return NULL;
		}
	}
	return metrics;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_json(struct pp_metrics *metrics, const struct pp_step_result *result)
{
	uint32_t microbatches = metrics->program->microbatches;
	struct pp_json json = pp_json_begin(metrics->file);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "piperun.step/1");
	pp_json_uint(&json, "step", result->step);
	if (result->has_loss) {
		double tokens = pp_step_tokens(result->losses, microbatches);
		pp_json_number(&json, "loss", pp_step_loss(&metrics->program->train, result->losses, microbatches));
		pp_json_open_array(&json, "microbatch_losses");
		for (uint32_t i = 0; i < microbatches; i++)
			pp_json_number(&json, NULL, result->losses[2 * i] / result->losses[2 * i + 1]);
		pp_json_close(&json);
		pp_json_number(&json, "lr", result->lr);
		pp_json_number(&json, "grad_norm", result->grad_norm);
		pp_json_bool(&json, "updated", result->updated);
		pp_json_number(&json, "tokens", tokens);
		pp_json_number(&json, "tokens_per_s", tokens / result->seconds);
	}
	pp_json_number(&json, "gflop_per_s", result->flops / result->seconds * 1e-9);
	pp_json_number(&json, "seconds", result->seconds);
	pp_json_close(&json);
}

/* Each line at once: what is on disk after a crash, and seen by who follows the file, is everything that finished. */
static bool end_line(struct pp_metrics *metrics, struct pp_status *status)
{
	fputc('\n', metrics->file);
	return (fflush(metrics->file) == 0 && !ferror(metrics->file)) ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write metrics to %s: %s", metrics->options.path,
	               strerror(errno));
}

/* ---- terminal -------------------------------------------------------------------------------- */

static void clear_bar(struct pp_metrics *metrics)
{
	if (metrics->bar_visible)
		fputs("\r\033[K", metrics->options.bar);
	metrics->bar_visible = false;
}

static void draw_bar(struct pp_metrics *metrics, uint64_t step, uint64_t now)
{
	char bar[BAR_WIDTH + 1];
	uint64_t steps = metrics->options.steps;
	unsigned full = (unsigned)(step * BAR_WIDTH / steps);
	memset(bar, '.', BAR_WIDTH);
	memset(bar, '#', full < BAR_WIDTH ? full : BAR_WIDTH);
	bar[BAR_WIDTH] = '\0';
	double left =
	    (double)(now - metrics->began) * 1e-9 / (double)(step - metrics->options.first) * (double)(steps - step);
	fprintf(metrics->options.bar, "\r[%s] %" PRIu64 "/%" PRIu64 ", %.0f s left\033[K", bar, step, steps, left);
	fflush(metrics->options.bar);
	metrics->bar_visible = true;
	metrics->drawn = now;
}

static void write_log(struct pp_metrics *metrics, const struct pp_step_result *result)
{
	FILE *log = metrics->options.log;
	fprintf(log, "step %6" PRIu64, result->step);
	if (result->has_loss) {
		double loss = pp_step_loss(&metrics->program->train, result->losses, metrics->program->microbatches);
		double tokens = pp_step_tokens(result->losses, metrics->program->microbatches);
		fprintf(log, "  loss %8.4f  lr %.3e  grad norm %8.3f%s  %8.0f tokens/s", loss, result->lr, result->grad_norm,
		        result->updated ? "" : " (not finite: no update)", tokens / result->seconds);
	}
	if (result->flops > 0)
		fprintf(log, "  %6.2f GFLOP/s", result->flops / result->seconds * 1e-9);
	fprintf(log, "  %.2f ms\n", result->seconds * 1e3);
	fflush(log);
}

bool pp_metrics_step(struct pp_metrics *metrics, const struct pp_step_result *result, struct pp_status *status)
{
	uint64_t every = metrics->program->train.log_every ? metrics->program->train.log_every : 1, now = pp_clock();
	bool last = result->step == metrics->options.steps;
	if (result->has_loss)
		metrics->recent[metrics->losses++ % RECENT] =
		    pp_step_loss(&metrics->program->train, result->losses, metrics->program->microbatches);
	if (metrics->options.log && (result->step == metrics->options.first + 1 || result->step % every == 0 || last ||
	                             (result->has_loss && !result->updated))) {
		clear_bar(metrics);
		write_log(metrics, result);
	}
	if (metrics->options.bar && !last && now - metrics->drawn >= bar_period)
		draw_bar(metrics, result->step, now);
	if (!metrics->file)
		return true;
	write_json(metrics, result);
	return end_line(metrics, status);
}

bool pp_metrics_evaluated(struct pp_metrics *metrics, const struct pp_evaluation_result *result,
                          struct pp_status *status)
{
	FILE *log = metrics->options.log;
	if (log) {
		clear_bar(metrics);
		fprintf(log, "step %6" PRIu64 "  validation loss %8.4f  of %.0f tokens  %.2f ms\n", result->step, result->loss,
		        result->tokens, result->seconds * 1e3);
		fflush(log);
	}
	if (!metrics->file)
		return true;
	struct pp_json json = pp_json_begin(metrics->file);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "piperun.eval/1");
	pp_json_uint(&json, "step", result->step);
	pp_json_number(&json, "val_loss", result->loss);
	pp_json_number(&json, "tokens", result->tokens);
	pp_json_number(&json, "tokens_per_s", result->tokens / result->seconds);
	pp_json_number(&json, "seconds", result->seconds);
	pp_json_close(&json);
	return end_line(metrics, status);
}

void pp_metrics_saved(struct pp_metrics *metrics, const char *folder, uint64_t step, uint64_t bytes, double seconds)
{
	FILE *log = metrics->options.log;
	if (!log)
		return;
	clear_bar(metrics);
	fprintf(log, "saved %s/step-%08" PRIu64 ": %.1f MiB in %.0f ms\n", folder, step, (double)bytes / 1048576,
	        seconds * 1e3);
	fflush(log);
}

double pp_metrics_recent_loss(const struct pp_metrics *metrics, uint64_t *steps)
{
	double sum = 0;
	*steps = metrics->losses < RECENT ? metrics->losses : RECENT;
	for (uint64_t i = 0; i < *steps; i++)
		sum += metrics->recent[i];
	return *steps ? sum / (double)*steps : NAN;
}

bool pp_metrics_close(struct pp_metrics *metrics, struct pp_status *status)
{
	clear_bar(metrics);
	bool ok = true;
	if (metrics->file) {
		ok = fflush(metrics->file) == 0 && !ferror(metrics->file);
		if (metrics->file != stdout)
			ok = fclose(metrics->file) == 0 && ok;
		if (!ok)
			pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write metrics to %s: %s", metrics->options.path,
			        strerror(errno));
	}
	free(metrics);
	return ok;
}
