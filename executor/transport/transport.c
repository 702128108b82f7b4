/* What all transports share: counting posts, sums, message identity, waiting for an exchange.
 *
 * Requires: a verified program. */
#include "executor/bf16.h"
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
		if (progress == PP_DONE) {
			pp_pause_end(&pause, watch);
			return true;
		}
		if (progress == PP_FAILED)
			return pp_fail(status, PP_EXIT_RUN, "%s", ops->failure(endpoint));
		if (!pp_pause(&pause, watch))
			return pp_fail(status, PP_EXIT_RUN, "other ranks did not answer within %.0f s while %s",
			               (double)watch->timeout * 1e-9, what);
	}
}

static void count_post(struct pp_post_count *count, const struct pp_instr *instr)
{
	uint64_t bytes = pp_payload_bytes(instr);
	count->posts++;
	count->bytes = bytes > count->bytes ? bytes : count->bytes;
}

static void count_stream(const struct pp_stream *stream, struct pp_post_counts *counts)
{
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op == PP_OP_SEND || instr->op == PP_OP_RECV) {
			count_post(&counts->channel[instr->a[0]], instr);
		} else if (instr->op == PP_OP_COLL) {
			count_post(&counts->group[instr->a[1]], instr);
			counts->colls++;
		}
	}
}

static void keep_larger(struct pp_post_count *most, const struct pp_post_count *other, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		most[i].posts = other[i].posts > most[i].posts ? other[i].posts : most[i].posts;
		most[i].bytes = other[i].bytes > most[i].bytes ? other[i].bytes : most[i].bytes;
	}
}

static struct pp_post_count count_body(const struct pp_body *body)
{
	enum { X, Y };
	struct pp_post_count count = {0};
	for (uint32_t i = 0; i < body->count; i++) {
		const struct pp_body_instr *instr = &body->items[i];
		bool scatters = instr->op == PP_BODY_REDUCESCATTER;
		if (instr->op != PP_BODY_ALLREDUCE && instr->op != PP_BODY_ALLGATHER && !scatters)
			continue;
		const struct pp_reg *share = &body->regs[instr->operand[scatters ? Y : X]];
		uint64_t bytes = (uint64_t)share->rows * share->columns * pp_dtype_size[share->dtype];
		count.posts++;
		count.bytes = bytes > count.bytes ? bytes : count.bytes;
	}
	return count;
}

bool pp_post_counts_make(const struct pp_program *program, uint32_t rank, struct pp_post_counts *counts)
{
	size_t both = (size_t)program->channel_count + program->group_count;
	struct pp_post_count *memory = calloc(2 * both + 1, sizeof *memory);
	*counts = (struct pp_post_counts){.channel = memory, .group = memory ? memory + program->channel_count : NULL};
	if (!memory)
		return false;
	struct pp_post_counts one = {.channel = memory + both, .group = memory + both + program->channel_count};
	for (uint32_t i = 0; i < program->program_count; i++) {
		memset(one.channel, 0, both * sizeof *one.channel);
		one.colls = 0;
		count_stream(&program->programs[i].streams[rank], &one);
		keep_larger(counts->channel, one.channel, both);
		counts->colls = one.colls > counts->colls ? one.colls : counts->colls;
	}
	for (uint32_t i = 0; i < program->body_count; i++) {
		struct pp_post_count body = count_body(&program->bodies[i]);
		if (program->stages[program->bodies[i].stage].rank == rank)
			keep_larger(&counts->body, &body, 1);
	}
	return true;
}

void pp_post_counts_free(struct pp_post_counts *counts)
{
	free(counts->channel);
	*counts = (struct pp_post_counts){0};
}

bool pp_transport_supports(const struct pp_instr *coll, struct pp_status *status)
{
	if (coll->sub != PP_ALLGATHER && coll->dtype == PP_I32)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "collective k%" PRIu32 " sums %s: piperun sums f32, bf16 and f64",
		               coll->a[0], pp_dtype_name[coll->dtype]);
	return true;
}

/* ---- sums ------------------------------------------------------------------------------------ */

enum { PIECE = 512 }; /* elements that are summed at once: in the cache, and read before any is written */

static void sum_f32(float *to, pp_given *given, const void *context, uint32_t members, size_t at, size_t count)
{
	float sum[PIECE];
	memcpy(sum, (const float *)given(context, 0) + at, count * sizeof *sum);
	for (uint32_t i = 1; i < members; i++) {
		const float *next = (const float *)given(context, i) + at;
		for (size_t k = 0; k < count; k++)
			sum[k] += next[k];
	}
	memcpy(to + at, sum, count * sizeof *sum);
}

static void sum_f64(double *to, pp_given *given, const void *context, uint32_t members, size_t at, size_t count)
{
	double sum[PIECE];
	memcpy(sum, (const double *)given(context, 0) + at, count * sizeof *sum);
	for (uint32_t i = 1; i < members; i++) {
		const double *next = (const double *)given(context, i) + at;
		for (size_t k = 0; k < count; k++)
			sum[k] += next[k];
	}
	memcpy(to + at, sum, count * sizeof *sum);
}

static void sum_bf16(pp_bf16 *to, pp_given *given, const void *context, uint32_t members, size_t at, size_t count)
{
	float sum[PIECE];
	const pp_bf16 *first = (const pp_bf16 *)given(context, 0) + at;
	for (size_t k = 0; k < count; k++)
		sum[k] = pp_bf16_to_f32(first[k]);
	for (uint32_t i = 1; i < members; i++) {
		const pp_bf16 *next = (const pp_bf16 *)given(context, i) + at;
		for (size_t k = 0; k < count; k++)
			sum[k] += pp_bf16_to_f32(next[k]);
	}
	for (size_t k = 0; k < count; k++)
		to[at + k] = pp_bf16_from_f32(sum[k]);
}

void pp_transport_sum(enum pp_dtype dtype, void *to, pp_given *given, const void *context, uint32_t members,
                      size_t count)
{
	for (size_t at = 0; at < count; at += PIECE) {
		size_t piece = count - at < PIECE ? count - at : PIECE;
		if (dtype == PP_F64)
			sum_f64(to, given, context, members, at, piece);
		else if (dtype == PP_BF16)
			sum_bf16(to, given, context, members, at, piece);
		else
			sum_f32(to, given, context, members, at, piece);
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
