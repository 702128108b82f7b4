/* What tensor parallelism adds beside the loss. */
#include "ops.h"

struct columns_case {
	size_t tokens, columns, first, count;
};

static const struct columns_case cases[] = {
    {1, 1, 0, 1}, {3, 10, 4, 3}, {9, 64, 16, 32}, {20, 512, 256, 128}, {5, 1030, 515, 515},
};

static void check_add_bias(struct ops *ops, const void *shape)
{
	const struct columns_case *c = shape;
	size_t count = c->tokens * c->columns;
	double *a = ops_values(ops, ops->element, count), *b = ops_values(ops, ops->element, count);
	double *bias = ops_values(ops, ops->element, c->columns), *want = ops_zeros(ops, count);
	void *y = ops_give(ops, ops->element, count, b);
	pp_cpu_add_bias(c->tokens, c->columns, a, b, bias, want);
	pp_cuda_add_bias(ops->stream, ops->type, c->tokens, c->columns, ops_give(ops, ops->element, count, a), y,
	                 ops_give(ops, ops->element, c->columns, bias), y);
	ops_expect(ops, "y", ops->element, count, y, want);
}

static void check_take(struct ops *ops, const void *shape)
{
	const struct columns_case *c = shape;
	double *x = ops_values(ops, ops->element, c->tokens * c->columns), *want = ops_zeros(ops, c->tokens * c->count);
	pp_cpu_take_columns(c->tokens, c->columns, c->first, c->count, x, want);
	void *y = ops_room(ops, ops->element, c->tokens * c->count);
	pp_cuda_take_columns(ops->stream, ops->type, c->tokens, c->columns, c->first, c->count,
	                     ops_give(ops, ops->element, c->tokens * c->columns, x), y);
	ops_expect_equal(ops, "y", ops->element, c->tokens * c->count, y, want);
}

static void check_put(struct ops *ops, const void *shape)
{
	const struct columns_case *c = shape;
	double *x = ops_values(ops, ops->element, c->tokens * c->count), *want = ops_zeros(ops, c->tokens * c->columns);
	pp_cpu_put_columns(c->tokens, c->columns, c->first, c->count, x, want);
	void *y = ops_room(ops, ops->element, c->tokens * c->columns);
	pp_cuda_put_columns(ops->stream, ops->type, c->tokens, c->columns, c->first, c->count,
	                    ops_give(ops, ops->element, c->tokens * c->count, x), y);
	ops_expect_equal(ops, "y", ops->element, c->tokens * c->columns, y, want);
}

void ops_shard(struct ops *ops)
{
	size_t count = sizeof cases / sizeof *cases;
	ops_run(ops, "add_bias", check_add_bias, cases, count, sizeof *cases, OPS_CLOSE_AND_EXACT);
	ops_run(ops, "own_head", check_take, cases, count, sizeof *cases, OPS_CLOSE);
	ops_run(ops, "own_head_dx", check_put, cases, count, sizeof *cases, OPS_CLOSE);
}
