/* Cross-entropy, whole and in shards whose stats are combined; tokens without a label, padding columns, logits of all
 * sizes, gradient in place. */
#include "ops.h"

#include <math.h>

enum { STATS = 3 };

struct loss_case {
	size_t tokens, vocab, columns; /* columns: of one member */
	size_t members;
	bool mean;
	double spread; /* of the logits */
};

static const struct loss_case cases[] = {
    {1, 1, 1, 1, false, 1},      {5, 7, 9, 1, true, 4},       {17, 64, 64, 1, false, 30},
    {12, 300, 304, 1, true, 90}, {9, 5003, 5003, 1, true, 8}, {3, 20000, 20008, 1, false, 1},
};

static const struct loss_case shards[] = {
    {4, 10, 8, 2, true, 5},
    {11, 301, 152, 2, false, 40},
    {6, 1000, 512, 3, true, 2},
    {7, 4, 4, 2, false, 3},
};

static double *logits_of(struct ops *ops, const struct loss_case *c)
{
	size_t count = c->tokens * c->columns;
	double *logits = ops_values(ops, ops->element, count);
	for (size_t i = 0; i < count; i++)
		logits[i] = ops_rounded(ops->element, logits[i] * c->spread);
	return logits;
}

static void check_loss(struct ops *ops, const void *shape)
{
	const struct loss_case *c = shape;
	size_t count = c->tokens * c->columns;
	int32_t *labels = ops_ids(ops, c->tokens, c->vocab, c->tokens > 1);
	double *logits = logits_of(ops, c), *want = ops_zeros(ops, count), want_loss[2];
	pp_cpu_cross_entropy(c->tokens, c->vocab, c->columns, c->mean, logits, labels, want, want_loss);
	void *dlogits = ops_give(ops, ops->element, count, logits);
	double *loss = ops_room(ops, OPS_F64, 2);
	pp_cuda_cross_entropy(ops->stream, ops->type, c->tokens, c->vocab, c->columns, c->mean, dlogits,
	                      ops_give_ids(ops, c->tokens, labels), dlogits, loss,
	                      ops_scratch(ops, pp_scratch_cross_entropy(c->tokens)));
	ops_expect(ops, "dlogits", ops->element, count, dlogits, want);
	ops_expect(ops, "loss", OPS_F64, 1, loss, want_loss);
	ops_expect_equal(ops, "count", OPS_F64, 1, loss + 1, want_loss + 1);
}

/* A logit that is not a number makes the loss none. */
static void check_loss_nan(struct ops *ops, const void *shape)
{
	const struct loss_case *c = shape;
	double *logits = logits_of(ops, c), want = (double)NAN;
	int32_t *labels = ops_ids(ops, c->tokens, c->vocab, false);
	logits[c->vocab / 2] = (double)NAN;
	double *loss = ops_room(ops, OPS_F64, 2);
	void *dlogits = ops_give(ops, ops->element, c->tokens * c->columns, logits);
	pp_cuda_cross_entropy(ops->stream, ops->type, c->tokens, c->vocab, c->columns, c->mean, dlogits,
	                      ops_give_ids(ops, c->tokens, labels), dlogits, loss,
	                      ops_scratch(ops, pp_scratch_cross_entropy(c->tokens)));
	ops_expect(ops, "loss", OPS_F64, 1, loss, &want);
}

/* Labels are over all columns; each member has its own. The device gets the stats that it found itself. */
static void check_shards(struct ops *ops, const void *shape)
{
	const struct loss_case *c = shape;
	size_t count = c->tokens * c->columns, stats_count = c->members * c->tokens * STATS;
	int32_t *labels = ops_ids(ops, c->tokens, c->vocab, true), *device_labels = ops_give_ids(ops, c->tokens, labels);
	double *stats = ops_zeros(ops, stats_count), *want = ops_zeros(ops, count), want_loss[2];
	double *logits[4];
	void *device_logits[4];
	float *device_stats = ops_room(ops, OPS_F32, stats_count);
	for (size_t m = 0; m < c->members; m++) {
		struct pp_vocab_part part = {c->vocab, m * c->columns, c->columns};
		logits[m] = logits_of(ops, c);
		device_logits[m] = ops_give(ops, ops->element, count, logits[m]);
		pp_cpu_cross_entropy_stats(&part, c->tokens, logits[m], labels, stats + m * c->tokens * STATS);
		pp_cuda_cross_entropy_stats(ops->stream, ops->type, &part, c->tokens, device_logits[m], device_labels,
		                            device_stats + m * c->tokens * STATS);
	}
	ops_expect(ops, "stats", OPS_F32, stats_count, device_stats, stats);
	for (size_t m = 0; m < c->members; m++) {
		struct pp_vocab_part part = {c->vocab, m * c->columns, c->columns};
		pp_cpu_cross_entropy_part(&part, c->tokens, c->members, c->mean, logits[m], labels, stats, want, want_loss);
		double *loss = ops_room(ops, OPS_F64, 2);
		pp_cuda_cross_entropy_part(ops->stream, ops->type, &part, c->tokens, c->members, c->mean, device_logits[m],
		                           device_labels, device_stats, device_logits[m], loss,
		                           ops_scratch(ops, pp_scratch_cross_entropy(c->tokens)));
		ops_expect(ops, "dlogits", ops->element, count, device_logits[m], want);
		ops_expect(ops, "loss", OPS_F64, 1, loss, want_loss);
		ops_expect_equal(ops, "count", OPS_F64, 1, loss + 1, want_loss + 1);
	}
}

void ops_loss(struct ops *ops)
{
	ops_run(ops, "xent", check_loss, cases, sizeof cases / sizeof *cases, sizeof *cases, OPS_CLOSE);
	ops_run(ops, "xent of NaN", check_loss_nan, cases, sizeof cases / sizeof *cases, sizeof *cases, OPS_CLOSE);
	ops_run(ops, "xent_stats, xent_shard", check_shards, shards, sizeof shards / sizeof *shards, sizeof *shards,
	        OPS_CLOSE);
}
