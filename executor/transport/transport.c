/* What all transports share: counting posts, member order sums, message identity, waiting for an exchange.
 *
 * Requires: a verified program. */
#include "executor/transport.h"
#include "executor/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pp_transport_exchange(const struct pp_transport_ops *ops, struct pp_endpoint *endpoint, struct pp_watch *watch,
                           const char *what, const void *mine, void *all, size_t bytes, struct pp_status *status)
{
	pp_watch_doing(watch, what);
	ops->exchange(endpoint, mine, all, bytes);
	struct pp_pause pause = {0};
	for (;;) {
		enum pp_progress progress = ops->test_exchange(endpoint);
		if (progress == PP_DONE)
			return true;
		if (progress == PP_FAILED)
			return pp_fail(status, PP_EXIT_RUN, "%s", ops->failure(endpoint));
		if (!pp_pause(&pause, watch))
			return pp_fail(status, PP_EXIT_RUN, "other ranks did not answer within %.0f s while %s",
			               (double)watch->timeout * 1e-9, what);
	}
}

static void count_stream(const struct pp_stream *stream, uint32_t *channel, uint32_t *group, uint32_t *colls)
{
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op == PP_OP_SEND || instr->op == PP_OP_RECV) {
			channel[instr->a[0]]++;
		} else if (instr->op == PP_OP_COLL) {
			group[instr->a[1]]++;
			++*colls;
		}
	}
}

static void keep_larger(uint32_t *most, const uint32_t *counts, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (counts[i] > most[i])
			most[i] = counts[i];
}

bool pp_post_counts_make(const struct pp_program *program, uint32_t rank, struct pp_post_counts *counts)
{
	size_t channels = program->channel_count, groups = program->group_count;
	uint32_t *memory = calloc(2 * (channels + groups) + 1, sizeof *memory);
	*counts = (struct pp_post_counts){.channel = memory, .group = memory ? memory + channels : NULL};
	if (!memory)
		return false;
	uint32_t *channel = memory + channels + groups, *group = channel + channels;
	for (uint32_t i = 0; i < program->program_count; i++) {
		uint32_t colls = 0;
		memset(channel, 0, (channels + groups) * sizeof *channel);
		count_stream(&program->programs[i].streams[rank], channel, group, &colls);
		keep_larger(counts->channel, channel, program->channel_count);
		keep_larger(counts->group, group, program->group_count);
		if (colls > counts->colls)
			counts->colls = colls;
	}
	return true;
}

void pp_post_counts_free(struct pp_post_counts *counts)
{
	free(counts->channel);
	*counts = (struct pp_post_counts){0};
}

bool pp_transport_supports(const struct pp_program *program, const struct pp_instr *coll, struct pp_status *status)
{
	if (coll->sub != PP_ALLREDUCE)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "collective k%" PRIu32 " is %s: this piperun runs allreduce only",
		               coll->a[0], pp_collective_name[coll->sub]);
	if (coll->dtype != PP_F32 && coll->dtype != PP_F64)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "collective k%" PRIu32 " sums %s: this piperun sums f32 and f64 only", coll->a[0],
		               pp_dtype_name[coll->dtype]);
	if (program->groups[coll->a[1]].axis != PP_AXIS_PP && (program->tp != 1 || program->dp != 1))
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "collective k%" PRIu32 " runs over %s: this piperun wants tp = 1 and dp = 1", coll->a[0],
		               pp_axis_name[program->groups[coll->a[1]].axis]);
	return true;
}

void pp_transport_sum(enum pp_dtype dtype, void *to, const void *a, const void *b, size_t count)
{
	if (dtype == PP_F64) {
		double *sum = to;
		const double *x = a, *y = b;
		for (size_t i = 0; i < count; i++)
			sum[i] = x[i] + y[i];
	} else {
		float *sum = to;
		const float *x = a, *y = b;
		for (size_t i = 0; i < count; i++)
			sum[i] = x[i] + y[i];
	}
}

struct pp_identity pp_identity_of(const struct pp_program *program, const struct pp_instr *instr)
{
	return (struct pp_identity){
	    .channel = instr->a[0],
	    .seq = instr->a[1],
	    .stage = instr->stage,
	    .mb = instr->mb,
	    .bytes = pp_payload_bytes(instr),
	    .dtype = instr->dtype,
	    .kind = program->channels[instr->a[0]].kind,
	};
}

bool pp_identity_equal(const struct pp_identity *a, const struct pp_identity *b)
{
	return a->channel == b->channel && a->seq == b->seq && a->stage == b->stage && a->mb == b->mb &&
	       a->bytes == b->bytes && a->dtype == b->dtype && a->kind == b->kind;
}

void pp_identity_explain(const struct pp_identity *sent, const struct pp_identity *expected, char *text, size_t size)
{
	const struct pp_identity *both[] = {sent, expected};
	char parts[2][128];
	for (int i = 0; i < 2; i++) {
		const struct pp_identity *one = both[i];
		const char *dtype = one->dtype < PP_DTYPE_COUNT ? pp_dtype_name[one->dtype] : "?";
		const char *kind = one->kind < PP_VALUE_COUNT ? pp_value_name[one->kind] : "?";
		snprintf(parts[i], sizeof parts[i],
		         "c%" PRIu32 " #%" PRIu32 " %s s%" PRIu32 " m%" PRIu32 ", %" PRIu64 " bytes of %s", one->channel,
		         one->seq, kind, one->stage, one->mb, one->bytes, dtype);
	}
	snprintf(text, size, "message identity differs: sent %s; expected %s", parts[0], parts[1]);
}
