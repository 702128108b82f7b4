/* The embedding and its gradient, whole tables and shards, rows of few and of many tokens. */
#include "ops.h"

struct embed_case {
	size_t tokens, columns, seq, vocab, first, rows;
	bool positions;
};

static const struct embed_case cases[] = {
    {1, 1, 1, 1, 0, 1, true},       {6, 5, 3, 7, 0, 7, true},          {64, 32, 16, 11, 0, 11, false},
    {96, 24, 32, 40, 10, 13, true}, {300, 16, 100, 3, 0, 3, true},     {1100, 8, 1100, 50, 0, 50, true},
    {40, 1030, 20, 9, 0, 9, true},  {130, 7, 65, 1000, 500, 2, false},
};

static void check_embed(struct ops *ops, const void *shape)
{
	const struct embed_case *c = shape;
	struct pp_table_part part = {c->first, c->rows};
	int32_t *ids = ops_ids(ops, c->tokens, c->vocab, false);
	double *wte = ops_values(ops, ops->element, c->rows * c->columns);
	double *wpe = c->positions ? ops_values(ops, ops->element, c->seq * c->columns) : NULL;
	double *want = ops_zeros(ops, c->tokens * c->columns);
	pp_cpu_embed_part(c->tokens, c->columns, c->seq, &part, ids, wte, wpe, want);
	void *y = ops_room(ops, ops->element, c->tokens * c->columns);
	pp_cuda_embed(ops->stream, ops->type, c->tokens, c->columns, c->seq, &part, ops_give_ids(ops, c->tokens, ids),
	              ops_give(ops, ops->element, c->rows * c->columns, wte),
	              wpe ? ops_give(ops, ops->element, c->seq * c->columns, wpe) : NULL, y);
	ops_expect(ops, "y", ops->element, c->tokens * c->columns, y, want);
}

static void check_embed_dw(struct ops *ops, const void *shape, bool accumulate)
{
	const struct embed_case *c = shape;
	struct pp_table_part part = {c->first, c->rows};
	size_t positions = c->positions ? c->seq + 2 : 0, table = c->rows * c->columns; /* two rows that no token has */
	int32_t *ids = ops_ids(ops, c->tokens, c->vocab, false);
	double *dy = ops_values(ops, ops->element, c->tokens * c->columns);
	double *dwte = ops_values(ops, OPS_F32, table), *dwpe = ops_values(ops, OPS_F32, positions * c->columns);
	float *got_wte = ops_give(ops, OPS_F32, table, dwte);
	float *got_wpe = c->positions ? ops_give(ops, OPS_F32, positions * c->columns, dwpe) : NULL;
	pp_cpu_embed_part_dw(c->tokens, c->columns, c->seq, &part, positions, ids, dy, dwte, accumulate,
	                     c->positions ? dwpe : NULL, accumulate);
	pp_cuda_embed_dw(ops->stream, ops->type, c->tokens, c->columns, c->seq, &part, positions,
	                 ops_give_ids(ops, c->tokens, ids), ops_give(ops, ops->element, c->tokens * c->columns, dy),
	                 got_wte, accumulate, got_wpe, accumulate, ops_scratch(ops, pp_scratch_embed_dw(c->tokens)));
	ops_expect(ops, "dwte", OPS_F32, table, got_wte, dwte);
	if (c->positions)
		ops_expect(ops, "dwpe", OPS_F32, positions * c->columns, got_wpe, dwpe);
}

static void check_embed_dw_written(struct ops *ops, const void *shape)
{
	check_embed_dw(ops, shape, false);
}

static void check_embed_dw_added(struct ops *ops, const void *shape)
{
	check_embed_dw(ops, shape, true);
}

void ops_embed(struct ops *ops)
{
	size_t count = sizeof cases / sizeof *cases;
	ops_run(ops, "embed", check_embed, cases, count, sizeof *cases, OPS_CLOSE_AND_EXACT);
	ops_run(ops, "embed_dw", check_embed_dw_written, cases, count, sizeof *cases, OPS_CLOSE_AND_EXACT);
	ops_run(ops, "embed_dw accumulate", check_embed_dw_added, cases, count, sizeof *cases, OPS_CLOSE_AND_EXACT);
}
