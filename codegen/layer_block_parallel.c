/* A block with tp > 1: Megatron's column- and row-parallel pairs (Shoeybi et al., arXiv 1909.08053), with sequence
 * parallelism (Korthikanti et al., arXiv 2205.05198).
 *
 * Each pair of projections (q, k, v, then o; fc1, then fc2) ends in one reduction of partial sums, and so does each way
 * back, where the gradients of q, k, v, or of gate and up, are joined first. A row-parallel bias is added behind the
 * reduction, once. Going back, the weight gradients stand between the post of a reduction and its await.
 *
 * With sequence parallelism the hidden state is a tp-th of the rows: the reduction is a reduce-scatter, and what a
 * column-parallel projection reads is gathered before it. The stash holds the part; the weight gradients gather it once
 * more. */
#include "layer_block.h"

static void add_dx(struct pp_layer_build *build, uint32_t a, uint32_t b, uint32_t y)
{
	pp_emit_dx(build, (struct pp_body_instr){.op = PP_BODY_ADD, .operand = {a, b, y}});
}

static bool has_dx(const struct pp_layer_build *build)
{
	return build->body->phase != PP_PHASE_W;
}

static bool has_dw(const struct pp_layer_build *build)
{
	return build->body->phase != PP_PHASE_I;
}

static uint32_t sums(struct pp_layer_build *build, const char *name)
{
	return pp_temporary(build, name, PP_SUMS, build->layer->hidden);
}

/* residual + the row-parallel projection of x, with its bias. */
static void project_back(struct pp_layer_build *build, unsigned weight, const char *name, uint32_t x, uint32_t residual,
                         uint32_t to)
{
	uint32_t parts = sums(build, name);
	pp_linear_sums(build, weight, x, parts);
	pp_reduce(build, parts, to);
	pp_await(build, to);
	pp_add_bias(build, weight + 1, residual, to, to);
}

void pp_block_parallel_forward(struct pp_layer_build *build)
{
	uint32_t x = build->input, x2 = pp_part(build, X2), n1 = pp_part(build, N1), n2 = pp_part(build, N2);
	pp_norm(build, NORM1_WEIGHT, MEAN1, x, n1);
	uint32_t whole1 = pp_gather(build, "n1_all", n1);
	pp_await_whole(build, whole1, n1);
	pp_heads_forward(build, whole1);
	project_back(build, O_WEIGHT, "x2_part", pp_part(build, O), x, x2);
	pp_norm(build, NORM2_WEIGHT, MEAN2, x2, n2);
	uint32_t whole2 = pp_gather(build, "n2_all", n2);
	pp_await_whole(build, whole2, n2);
	pp_mlp_inner_forward(build, whole2);
	project_back(build, FC2_WEIGHT, "y_part", pp_part(build, G), x2, build->output);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* What both halves of a block need: the gradient behind the row-parallel projection, and the input of the
 * column-parallel ones, which only weight gradients read. */
struct wholes {
	uint32_t gradient, input;
};

static struct wholes wholes_post(struct pp_layer_build *build, const char *gradient_name, uint32_t gradient,
                                 const char *input_name, uint32_t input)
{
	struct wholes wholes = {pp_gather(build, gradient_name, gradient),
	                        has_dw(build) ? pp_gather(build, input_name, input) : PP_NULL};
	pp_await_whole(build, wholes.gradient, gradient);
	return wholes;
}

static void mlp_weights(struct pp_layer_build *build, const struct wholes *wholes)
{
	if (!has_dw(build))
		return;
	pp_await_whole(build, wholes->input, pp_part(build, N2));
	pp_linear_dw(build, FC1_WEIGHT, pp_part(build, DF), wholes->input);
	if (pp_is_gated(build->layer))
		pp_linear_dw(build, UP_WEIGHT, pp_part(build, DU), wholes->input);
}

/* Gradient of x2 and of the MLP's parameters. */
static void mlp_backward(struct pp_layer_build *build)
{
	uint32_t dy = build->dy, df = pp_part(build, DF), dn2 = pp_part(build, DN2), dx2 = pp_part(build, DX2);
	uint32_t x2 = pp_part(build, X2), parts = sums(build, "dn2_part"), from_up = sums(build, "dn2_up");
	uint32_t dg = build->body->phase == PP_PHASE_B
	                  ? df
	                  : pp_temporary(build, "dg", PP_COLUMNS, pp_local_ffn(build->layer, &build->shape));
	struct wholes wholes = wholes_post(build, "dy_all", dy, "n2_all", pp_part(build, N2));
	pp_linear_dx(build, FC2_WEIGHT, wholes.gradient, dg);
	pp_linear_dw(build, FC2_WEIGHT, wholes.gradient, pp_part(build, G));
	pp_activation_backward(build, dg);
	pp_linear_dx(build, FC1_WEIGHT, df, parts);
	if (pp_is_gated(build->layer)) {
		pp_linear_dx(build, UP_WEIGHT, pp_part(build, DU), from_up);
		add_dx(build, parts, from_up, parts);
	}
	if (has_dx(build))
		pp_reduce(build, parts, dn2);
	mlp_weights(build, &wholes);
	if (has_dx(build))
		pp_await(build, dn2);
	pp_norm_dx(build, NORM2_WEIGHT, MEAN2, dn2, x2, dx2);
	pp_norm_dw(build, NORM2_WEIGHT, MEAN2, dn2, x2);
	add_dx(build, dy, dx2, dx2);
}

static void attention_weights(struct pp_layer_build *build, const struct wholes *wholes, struct pp_key_gradients keys)
{
	if (!has_dw(build))
		return;
	pp_await_whole(build, wholes->input, pp_part(build, N1));
	pp_linear_dw(build, Q_WEIGHT, pp_part(build, DQ), wholes->input);
	pp_linear_dw(build, K_WEIGHT, keys.key, wholes->input);
	pp_linear_dw(build, V_WEIGHT, keys.value, wholes->input);
}

/* Gradient of x and of attention's parameters. */
static void attention_backward(struct pp_layer_build *build)
{
	uint32_t x = pp_part(build, X), dn1 = pp_part(build, DN1), dx2 = pp_part(build, DX2);
	uint32_t output_gradient = pp_temporary(build, "do", PP_COLUMNS, pp_local_query(build->layer, &build->shape));
	uint32_t parts = sums(build, "dn1_part"), from_k = sums(build, "dn1_k"), from_v = sums(build, "dn1_v");
	struct wholes wholes = wholes_post(build, "dx2_all", dx2, "n1_all", pp_part(build, N1));
	pp_linear_dx(build, O_WEIGHT, wholes.gradient, output_gradient);
	pp_linear_dw(build, O_WEIGHT, wholes.gradient, pp_part(build, O));
	pp_heads_backward(build, output_gradient);
	struct pp_key_gradients keys = pp_heads_projected(build);
	pp_linear_dx(build, Q_WEIGHT, pp_part(build, DQ), parts);
	pp_linear_dx(build, K_WEIGHT, keys.key, from_k);
	add_dx(build, parts, from_k, parts);
	pp_linear_dx(build, V_WEIGHT, keys.value, from_v);
	add_dx(build, parts, from_v, parts);
	if (has_dx(build))
		pp_reduce(build, parts, dn1);
	attention_weights(build, &wholes, keys);
	if (has_dx(build))
		pp_await(build, dn1);
	pp_norm_dw(build, NORM1_WEIGHT, MEAN1, dn1, x);
	if (build->dx == PP_NULL)
		return;
	pp_norm_dx(build, NORM1_WEIGHT, MEAN1, dn1, x, build->dx);
	add_dx(build, dx2, build->dx, build->dx);
}

void pp_block_parallel_backward(struct pp_layer_build *build)
{
	mlp_backward(build);
	attention_backward(build);
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* One reduction of M = tokens * hidden for each pair of projections on either way; with sequence parallelism two
 * gathers of M forward, two back, and two for the weight gradients (cost model 1.6); recompute of all repeats those of
 * the forward but for its last reduction. Windows: what stands between post and await above. */
void pp_block_collectives(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_collectives *list)
{
	uint64_t bytes = pp_traffic_rows(shape, 1, layer->hidden);
	uint64_t unit = pp_times(pp_times(2, shape->tokens), layer->hidden); /* flops of a column of a projection */
	uint64_t out = pp_times(unit, pp_local_query(layer, shape)), down = pp_times(unit, pp_local_ffn(layer, shape));
	uint64_t up = pp_times(down, pp_is_gated(layer) ? 2 : 1);
	uint64_t heads = pp_plus(out, pp_times(pp_times(2, unit), pp_projected_key(layer, shape)));
	uint64_t attention = pp_times(pp_times(8, shape->tokens), pp_times(shape->seq, pp_local_query(layer, shape)));
	enum pp_collective reduction = pp_reduction_kind(shape);
	unsigned again = layer->recompute & PP_RECOMPUTE_LINEAR ? PP_IN_R : 0;
	for (unsigned pair = 0; pair < 2; pair++) {
		pp_collective_add(list, reduction, PP_IN_F | PP_IN_I | (pair ? again : 0), bytes, 0);
		pp_collective_add(list, reduction, PP_IN_B, bytes, pair ? heads : up);
		if (!shape->sp)
			continue;
		pp_collective_add(list, PP_ALLGATHER, PP_IN_F | PP_IN_I | PP_IN_B | PP_IN_W | again, bytes, 0);
		pp_collective_add(list, PP_ALLGATHER, PP_IN_B, bytes,
		                  pair ? pp_plus(pp_times(2, out), attention) : pp_times(2, down));
		pp_collective_add(list, PP_ALLGATHER, PP_IN_W, bytes, pair ? out : down);
	}
}
