/* The heads of a block: projections to q, k, v, then qk-norm and rope of q and k where the layer has them, attention,
 * and the way back.
 *
 * Every value on the way has a name of its own and no step works in place, so that V10 finds a step that is missing.
 * F keeps q and k as attention reads them and, for qk-norm, as they were before it. */
#include "layer_block.h"

/* The way of q, or of k. */
struct way {
	unsigned weight, norm;                 /* parameters */
	unsigned plain, rstd, final;           /* parts: as projected (qk-norm only), statistics, as attention reads it */
	unsigned gradient, normed_gradient;    /* parts: of the projection's output, of the norm's (qk-norm only) */
	const char *projected, *normed, *made; /* temporaries: before rope, and what the attention gradient makes */
};

static const struct way ways[2] = {
    {Q_WEIGHT, Q_NORM_WEIGHT, Q_PLAIN, Q_RSTD, Q, DQ, DQ_NORMED, "q_plain", "q_normed", "dq_new"},
    {K_WEIGHT, K_NORM_WEIGHT, K_PLAIN, K_RSTD, K, DK, DK_NORMED, "k_plain", "k_normed", "dk_new"},
};

static uint32_t heads_of(const struct pp_layer *layer, const struct pp_shape *shape, const struct way *way)
{
	return way->final == Q ? pp_local_heads(layer, shape) : pp_local_kv_heads(layer, shape);
}

static uint64_t width_of(const struct pp_layer *layer, const struct pp_shape *shape, const struct way *way)
{
	return pp_times(heads_of(layer, shape, way), layer->head_dim);
}

static struct pp_body_instr rope(const struct pp_layer_build *build, const struct way *way, enum pp_body_op op,
                                 uint32_t from, uint32_t to)
{
	return (struct pp_body_instr){
	    .op = (uint8_t)op,
	    .operand = {from, to},
	    .imm = {build->shape.seq, heads_of(build->layer, &build->shape, way), build->layer->rope_theta},
	};
}

/* Project n1. Where ranks share the heads of k and v, each makes all of them and takes its own. */
static void project(struct pp_layer_build *build, unsigned weight, uint32_t n1, uint32_t to)
{
	if (weight == Q_WEIGHT || !pp_shares_heads(build->layer, &build->shape)) {
		pp_linear(build, weight, n1, to);
		return;
	}
	uint32_t all = pp_temporary(build, weight == K_WEIGHT ? "k_all" : "v_all", PP_WHOLE, pp_key_width(build->layer));
	pp_linear(build, weight, n1, all);
	pp_body_emit(build->body,
	             (struct pp_body_instr){.op = PP_BODY_OWN_HEAD, .operand = {all, to}, .imm = {build->layer->kv_heads}});
}

/* Project, normalise, rotate: the last of the three that the layer has writes the part. */
static void way_forward(struct pp_layer_build *build, const struct way *way, uint32_t n1)
{
	const struct pp_layer *layer = build->layer;
	bool rotates = layer->rope_theta != 0;
	uint64_t width = width_of(layer, &build->shape, way);
	uint32_t final = pp_part(build, way->final), value = final;
	if (layer->qk_norm)
		value = pp_part(build, way->plain);
	else if (rotates)
		value = pp_temporary(build, way->projected, PP_COLUMNS, width);
	project(build, way->weight, n1, value);
	if (layer->qk_norm) {
		uint32_t normed = rotates ? pp_temporary(build, way->normed, PP_COLUMNS, width) : final;
		pp_body_emit(build->body, (struct pp_body_instr){.op = PP_BODY_NORM,
		                                                 .operand = {value, pp_weight(build, way->norm), PP_NULL,
		                                                             normed, PP_NULL, pp_part(build, way->rstd)},
		                                                 .imm = {true}});
		value = normed;
	}
	if (rotates)
		pp_body_emit(build->body, rope(build, way, PP_BODY_ROPE, value, final));
}

void pp_heads_forward(struct pp_layer_build *build, uint32_t n1)
{
	const struct pp_layer *layer = build->layer;
	way_forward(build, &ways[0], n1);
	way_forward(build, &ways[1], n1);
	project(build, V_WEIGHT, n1, pp_part(build, V));
	pp_body_emit(build->body,
	             (struct pp_body_instr){.op = PP_BODY_ATTN,
	                                    .operand = {pp_part(build, Q), pp_part(build, K), pp_part(build, V),
	                                                pp_part(build, O), pp_part(build, LSE)},
	                                    .imm = {build->shape.seq, pp_local_heads(layer, &build->shape),
	                                            pp_local_kv_heads(layer, &build->shape), layer->window}});
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Where the attention gradient writes: it reads q, k, v to its end, so in I nothing that takes over their bytes will
 * do, and before a rotation nothing that is kept. */
static uint32_t attention_writes(struct pp_layer_build *build, const struct way *way)
{
	const struct pp_layer *layer = build->layer;
	if (layer->rope_theta || (!layer->qk_norm && build->body->phase == PP_PHASE_I))
		return pp_temporary(build, way->made, PP_COLUMNS, width_of(layer, &build->shape, way));
	return pp_part(build, layer->qk_norm ? way->normed_gradient : way->gradient);
}

/* Rotate back, through the norm; or only move. */
static void way_backward(struct pp_layer_build *build, const struct way *way, uint32_t made)
{
	const struct pp_layer *layer = build->layer;
	uint32_t gradient = pp_part(build, way->gradient);
	uint32_t normed = layer->qk_norm ? pp_part(build, way->normed_gradient) : gradient;
	if (layer->rope_theta)
		pp_emit_dx(build, rope(build, way, PP_BODY_ROPE_DX, made, normed));
	else if (made != normed)
		pp_emit_dx(build, (struct pp_body_instr){.op = PP_BODY_COPY, .operand = {made, normed}});
	if (!layer->qk_norm)
		return;
	uint32_t plain = pp_part(build, way->plain), rstd = pp_part(build, way->rstd);
	pp_emit_dx(build, (struct pp_body_instr){
	                      .op = PP_BODY_NORM_DX,
	                      .operand = {normed, plain, pp_weight(build, way->norm), PP_NULL, rstd, gradient},
	                      .imm = {true},
	                  });
	pp_emit_dw(build, (struct pp_body_instr){
	                      .op = PP_BODY_NORM_DW,
	                      .operand = {normed, plain, PP_NULL, rstd, pp_grad(build, way->norm), PP_NULL},
	                      .imm = {true},
	                  });
}

void pp_heads_backward(struct pp_layer_build *build, uint32_t output_gradient)
{
	const struct pp_layer *layer = build->layer;
	uint32_t dq = attention_writes(build, &ways[0]), dk = attention_writes(build, &ways[1]);
	uint32_t value = build->body->phase == PP_PHASE_I
	                     ? pp_temporary(build, "dv_new", PP_COLUMNS, pp_local_key(layer, &build->shape))
	                     : pp_part(build, DV);
	pp_emit_dx(build, (struct pp_body_instr){.op = PP_BODY_ATTN_DX,
	                                         .operand = {output_gradient, pp_part(build, Q), pp_part(build, K),
	                                                     pp_part(build, V), pp_part(build, O), pp_part(build, LSE), dq,
	                                                     dk, value},
	                                         .imm = {build->shape.seq, pp_local_heads(layer, &build->shape),
	                                                 pp_local_kv_heads(layer, &build->shape), layer->window}});
	way_backward(build, &ways[0], dq);
	way_backward(build, &ways[1], dk);
	if (build->body->phase == PP_PHASE_I)
		pp_body_emit(build->body, (struct pp_body_instr){.op = PP_BODY_COPY, .operand = {value, pp_part(build, DV)}});
}

static uint32_t all_heads(struct pp_layer_build *build, const char *name, uint32_t own)
{
	uint32_t all = pp_temporary(build, name, PP_SUMS, pp_key_width(build->layer));
	pp_body_emit(build->body, (struct pp_body_instr){
	                              .op = PP_BODY_OWN_HEAD_DX, .operand = {own, all}, .imm = {build->layer->kv_heads}});
	return all;
}

struct pp_key_gradients pp_heads_projected(struct pp_layer_build *build)
{
	struct pp_key_gradients own = {pp_part(build, DK), pp_part(build, DV)};
	if (!pp_shares_heads(build->layer, &build->shape))
		return own;
	return (struct pp_key_gradients){all_heads(build, "dk_all", own.key), all_heads(build, "dv_all", own.value)};
}

/* ---- traffic --------------------------------------------------------------------------------- */

/* qk-norm: x, y (I: dy, x, dx; W: dy, x) with gamma (W: dgamma, f32) and a statistic (f32) for each head of a token;
 * rope: from and to. */
static uint64_t way_traffic(const struct pp_layer *layer, const struct pp_shape *shape, const struct way *way,
                            enum pp_phase phase)
{
	uint64_t width = width_of(layer, shape, way), total = 0;
	if (layer->qk_norm) {
		uint64_t gamma = pp_times(layer->head_dim, phase == PP_PHASE_W ? 4 : pp_dtype_size[shape->dtype]);
		uint64_t statistics = pp_times(pp_times(shape->tokens, heads_of(layer, shape, way)), 4);
		uint64_t rows = pp_traffic_rows(shape, phase == PP_PHASE_I ? 3 : 2, width);
		total = pp_plus(rows, pp_plus(gamma, statistics));
	}
	if (layer->rope_theta && phase != PP_PHASE_W)
		total = pp_plus(total, pp_traffic_rows(shape, 2, width));
	return total;
}

uint64_t pp_heads_traffic(const struct pp_layer *layer, const struct pp_shape *shape, enum pp_phase phase)
{
	if (phase == PP_PHASE_B) /* the caller's sum */
		return 0;
	uint64_t total = pp_plus(way_traffic(layer, shape, &ways[0], phase), way_traffic(layer, shape, &ways[1], phase));
	if (pp_shares_heads(layer, shape)) /* k and v between all heads and the own one */
		total = pp_plus(total, pp_traffic_rows(shape, 2, pp_plus(pp_key_width(layer), layer->head_dim)));
	return total;
}
