/* Rotary positions, also far ones. */
#include "ops.h"

static const struct pp_rotation cases[] = {
    {1, 1, 1, 2, 10000, false},  {6, 3, 2, 6, 10000, false},   {24, 12, 3, 16, 500000, true},
    {8, 8, 5, 64, 10000, false}, {10, 5, 4, 128, 10000, true}, {4000, 4000, 1, 4, 10000, false},
};

static void check_rotate(struct ops *ops, const void *shape)
{
	const struct pp_rotation *c = shape;
	size_t count = c->tokens * c->heads * c->head_columns;
	double *x = ops_values(ops, ops->element, count), *want = ops_zeros(ops, count);
	pp_cpu_rotate(c, x, want);
	void *y = ops_room(ops, ops->element, count);
	pp_cuda_rotate(ops->stream, ops->type, c, ops_give(ops, ops->element, count, x), y,
	               ops_scratch(ops, pp_scratch_rotate(c->seq, c->head_columns)));
	ops_expect(ops, "y", ops->element, count, y, want);
}

void ops_rope(struct ops *ops)
{
	ops_run(ops, "rope", check_rotate, cases, sizeof cases / sizeof *cases, sizeof *cases, OPS_CLOSE);
}
