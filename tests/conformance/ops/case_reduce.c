/* Sums over rows and squared norms: one chunk and many, items that share a norm, more items than a launch takes. */
#include "ops.h"

struct sums_case {
	size_t tokens, columns;
};

static const struct sums_case sums[] = {{1, 1}, {64, 5}, {65, 128}, {1000, 257}, {9000, 8}};

static void check_sums(struct ops *ops, const struct sums_case *c, bool accumulate)
{
	double *x = ops_values(ops, ops->element, c->tokens * c->columns), *want = ops_values(ops, OPS_F32, c->columns);
	float *got = ops_give(ops, OPS_F32, c->columns, want);
	for (size_t j = 0; j < c->columns; j++) {
		want[j] = accumulate ? want[j] : 0;
		for (size_t t = 0; t < c->tokens; t++)
			want[j] += x[t * c->columns + j];
	}
	pp_cuda_column_sums(ops->stream, ops->type, c->tokens, c->columns,
	                    ops_give(ops, ops->element, c->tokens * c->columns, x), got, accumulate,
	                    ops_scratch(ops, pp_scratch_column_sums(c->tokens, c->columns)));
	ops_expect(ops, "sums", OPS_F32, c->columns, got, want);
}

static void check_sums_written(struct ops *ops, const void *shape)
{
	check_sums(ops, shape, false);
}

static void check_sums_added(struct ops *ops, const void *shape)
{
	check_sums(ops, shape, true);
}

/* `items` arrays, number i of (i * step) mod bound elements; each run of `shared` items has one norm. */
struct norms_case {
	size_t items, step, bound, shared;
};

static const struct norms_case norms[] = {{1, 1, 2, 1}, {5, 1001, 4096, 2}, {150, 37, 500, 3}, {3, 40009, 130000, 1}};

static void check_norms(struct ops *ops, const void *shape)
{
	const struct norms_case *c = shape;
	struct pp_cuda_norm_item items[150];
	size_t count = (c->items + c->shared - 1) / c->shared;
	double *want = ops_zeros(ops, count), *got = ops_room(ops, OPS_F64, count);
	double *values = ops_values(ops, OPS_F32, c->bound);
	float *elements = ops_give(ops, OPS_F32, c->bound, values);
	for (size_t i = 0; i < c->items; i++) {
		size_t length = (i + 1) * c->step % c->bound;
		items[i] = (struct pp_cuda_norm_item){elements, length, got + i / c->shared, i % c->shared != 0};
		want[i / c->shared] += pp_cpu_square_norm(length, values);
	}
	pp_cuda_square_norms(ops->stream, c->items, items, ops_scratch(ops, pp_scratch_square_norms()));
	ops_expect(ops, "norms", OPS_F64, count, got, want);
}

void ops_reduce(struct ops *ops)
{
	size_t count = sizeof sums / sizeof *sums;
	ops_run(ops, "column sums", check_sums_written, sums, count, sizeof *sums, OPS_CLOSE_AND_EXACT);
	ops_run(ops, "column sums accumulate", check_sums_added, sums, count, sizeof *sums, OPS_CLOSE_AND_EXACT);
	ops_run(ops, "sqnorm", check_norms, norms, sizeof norms / sizeof *norms, sizeof *norms, OPS_CLOSE_AND_EXACT);
}
