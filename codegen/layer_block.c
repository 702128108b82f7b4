/* Layer kind `block`: a transformer block, of GPT-2's kind, of Llama's, or of a mixture of the two.
 *
 *     n1 = norm1(x)   q, k, v = n1 Wq, n1 Wk, n1 Wv   o = attention(q, k, v)   x2 = x + o Wo
 *     n2 = norm2(x2)  f = n2 W1                       g = act(f)               y = x2 + g W2
 *
 * With swiglu f is the gate, u = n2 Wup and g = swiglu(f, u). With qk-norm each head of q and k is normalised, with
 * rope it is then rotated, before attention sees it (layer_heads.c). */
#include "layer_block.h"

_Static_assert((int)PP_BLOCK_PARAM_COUNT <= (int)PP_PARAMS_MAX && (int)PP_BLOCK_PART_COUNT <= (int)PP_PARTS_MAX,
               "the lists are long enough");

/* With sequence parallelism a rank sees only its rows. */
static void norm_params(const struct pp_layer *layer, const struct pp_shape *shape, const char *weight,
                        const char *bias, struct pp_param *list)
{
	struct pp_param vector = {.rows = layer->hidden, .shard = PP_NOT_SHARDED, .partial = shape->sp};
	list[0] = vector;
	list[0].suffix = weight;
	list[0].init = PP_INIT_ONE;
	if (!pp_norm_has_beta(layer))
		return;
	list[1] = vector;
	list[1].suffix = bias;
	list[1].init = PP_INIT_ZERO;
}

static const char *optional(bool exists, const char *suffix)
{
	return exists ? suffix : NULL;
}

/* A projection [outputs, inputs]: column-parallel splits its outputs over tp, row-parallel its inputs and leaves the
 * bias whole. Row-parallel projections are those that write to the residual stream. `bias`: NULL for none. */
static void linear_params(const char *weight, const char *bias, uint64_t outputs, uint64_t inputs, bool row_parallel,
                          struct pp_param *list)
{
	list[0] = (struct pp_param){.suffix = weight,
	                            .rows = outputs,
	                            .columns = inputs,
	                            .init = PP_INIT_NORMAL,
	                            .shard = row_parallel ? 1 : 0,
	                            .residual = row_parallel};
	if (bias)
		list[1] = (struct pp_param){
		    .suffix = bias, .rows = outputs, .init = PP_INIT_ZERO, .shard = row_parallel ? PP_NOT_SHARDED : 0};
}

static void mlp_params(const struct pp_layer *layer, struct pp_param *list)
{
	uint64_t hidden = layer->hidden, ffn = layer->ffn;
	if (!pp_is_gated(layer)) {
		linear_params("mlp.fc1.weight", optional(layer->bias, "mlp.fc1.bias"), ffn, hidden, false, list + FC1_WEIGHT);
		linear_params("mlp.fc2.weight", optional(layer->bias, "mlp.fc2.bias"), hidden, ffn, true, list + FC2_WEIGHT);
		return;
	}
	linear_params("mlp.gate.weight", optional(layer->bias, "mlp.gate.bias"), ffn, hidden, false, list + FC1_WEIGHT);
	linear_params("mlp.up.weight", optional(layer->bias, "mlp.up.bias"), ffn, hidden, false, list + UP_WEIGHT);
	linear_params("mlp.down.weight", optional(layer->bias, "mlp.down.bias"), hidden, ffn, true, list + FC2_WEIGHT);
}

/* Attention h(q+2w)+q*h, MLP 2*h*f or gated 3*h*f, two norms of 2h (h without bias), qk-norm 2e; biases q+2w+h and f+h,
 * gated 2f+h (cost model 1.1); with qkv_bias alone q+2w. */
static void params(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_param *list)
{
	uint64_t hidden = layer->hidden, query = pp_query_width(layer), key = pp_key_width(layer);
	bool qkv = layer->bias || layer->qkv_bias;
	norm_params(layer, shape, "norm1.weight", "norm1.bias", list + NORM1_WEIGHT);
	linear_params("attn.q.weight", optional(qkv, "attn.q.bias"), query, hidden, false, list + Q_WEIGHT);
	linear_params("attn.k.weight", optional(qkv, "attn.k.bias"), key, hidden, false, list + K_WEIGHT);
	linear_params("attn.v.weight", optional(qkv, "attn.v.bias"), key, hidden, false, list + V_WEIGHT);
	for (unsigned i = K_WEIGHT; i <= V_BIAS && pp_shares_heads(layer, shape); i++) {
		list[i].shard = PP_NOT_SHARDED; /* the gradient of a head comes from all ranks that use it */
		list[i].partial = true;
	}
	if (layer->qk_norm) {
		struct pp_param norm = {.rows = layer->head_dim, .init = PP_INIT_ONE, .shard = PP_NOT_SHARDED, .partial = true};
		list[Q_NORM_WEIGHT] = list[K_NORM_WEIGHT] = norm;
		list[Q_NORM_WEIGHT].suffix = "attn.q_norm.weight";
		list[K_NORM_WEIGHT].suffix = "attn.k_norm.weight";
	}
	linear_params("attn.o.weight", optional(layer->bias, "attn.o.bias"), hidden, query, true, list + O_WEIGHT);
	norm_params(layer, shape, "norm2.weight", "norm2.bias", list + NORM2_WEIGHT);
	mlp_params(layer, list);
}

/* What makes R compute a part again: the sort of instruction that made it (enum pp_recompute). */
static uint8_t made_again_by(const struct pp_layer *layer, unsigned part)
{
	switch (part) {
	case MEAN1:
	case RSTD1:
	case N1:
	case Q_RSTD:
	case K_RSTD:
	case MEAN2:
	case RSTD2:
	case N2:
		return PP_RECOMPUTE_NORM;
	case Q:
	case K:
		return layer->qk_norm ? PP_RECOMPUTE_NORM : PP_RECOMPUTE_LINEAR;
	case O:
	case LSE:
		return PP_RECOMPUTE_ATTENTION;
	case G:
		return PP_RECOMPUTE_ACT;
	case V:
	case Q_PLAIN:
	case K_PLAIN:
	case X2:
	case F:
	case U:
		return PP_RECOMPUTE_LINEAR;
	}
	return 0; /* the input, which is all that F knows; output gradients */
}

/* What F keeps: two norm inputs, QKV input, MLP input (4h per token), q, k, v, o, log-sum-exp, MLP inside (2f, gated
 * 3f): the general form of cost model 1.3; with qk-norm q and k as they were before it, and its statistics. W reads
 * every one of them but f, u, q, k, v, lse, and the output gradients from dy on; of these df, du, dq, dk, dv take over
 * the bytes of f, u, q, k, v. With tp > 1 what lies between a column- and a row-parallel projection is a tp-th of it;
 * with sequence parallelism the rest is too. */
static void parts(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_part *list)
{
	uint64_t hidden = layer->hidden, query = pp_local_query(layer, shape), key = pp_local_key(layer, shape);
	uint64_t ffn = pp_local_ffn(layer, shape), up = pp_is_gated(layer) ? ffn : 0, normed = layer->qk_norm;
	uint64_t heads = pp_local_heads(layer, shape), kv_heads = pp_local_kv_heads(layer, shape);
	enum sort { STATE, STATE_STATISTIC, INNER, INNER_STATISTIC };
	const struct {
		const char *name;
		uint64_t columns;
		uint8_t over;
		enum sort sort;
	} table[PP_BLOCK_PART_COUNT] = {
	    [X] = {"x", hidden, PP_NO_PART, STATE},
	    [MEAN1] = {"mean1", layer->rms ? 0 : 1, PP_NO_PART, STATE_STATISTIC},
	    [RSTD1] = {"rstd1", 1, PP_NO_PART, STATE_STATISTIC},
	    [N1] = {"n1", hidden, PP_NO_PART, STATE},
	    [Q] = {"q", query, PP_NO_PART, INNER},
	    [K] = {"k", key, PP_NO_PART, INNER},
	    [V] = {"v", key, PP_NO_PART, INNER},
	    [Q_PLAIN] = {"q_plain", pp_times(normed, query), PP_NO_PART, INNER},
	    [K_PLAIN] = {"k_plain", pp_times(normed, key), PP_NO_PART, INNER},
	    [Q_RSTD] = {"q_rstd", pp_times(normed, heads), PP_NO_PART, INNER_STATISTIC},
	    [K_RSTD] = {"k_rstd", pp_times(normed, kv_heads), PP_NO_PART, INNER_STATISTIC},
	    [O] = {"o", query, PP_NO_PART, INNER},
	    [LSE] = {"lse", heads, PP_NO_PART, INNER_STATISTIC},
	    [X2] = {"x2", hidden, PP_NO_PART, STATE},
	    [MEAN2] = {"mean2", layer->rms ? 0 : 1, PP_NO_PART, STATE_STATISTIC},
	    [RSTD2] = {"rstd2", 1, PP_NO_PART, STATE_STATISTIC},
	    [N2] = {"n2", hidden, PP_NO_PART, STATE},
	    [F] = {"f", ffn, PP_NO_PART, INNER},
	    [U] = {"u", up, PP_NO_PART, INNER},
	    [G] = {"g", ffn, PP_NO_PART, INNER},
	    [DY] = {"dy", hidden, PP_NO_PART, STATE},
	    [DF] = {"df", ffn, F, INNER},
	    [DU] = {"du", up, U, INNER},
	    [DN2] = {"dn2", hidden, PP_NO_PART, STATE},
	    [DX2] = {"dx2", hidden, PP_NO_PART, STATE},
	    [DQ] = {"dq", query, Q, INNER},
	    [DK] = {"dk", key, K, INNER},
	    [DV] = {"dv", key, V, INNER},
	    [DQ_NORMED] = {"dq_normed", pp_times(normed, query), PP_NO_PART, INNER},
	    [DK_NORMED] = {"dk_normed", pp_times(normed, key), PP_NO_PART, INNER},
	    [DN1] = {"dn1", hidden, PP_NO_PART, STATE},
	};
	for (unsigned i = 0; i < PP_BLOCK_PART_COUNT; i++) {
		enum sort sort = table[i].sort;
		bool state = sort == STATE || sort == STATE_STATISTIC;
		list[i] = (struct pp_part){
		    .name = table[i].name,
		    .rows = table[i].columns == 0 ? 0
		            : state               ? shape->rows
		                                  : shape->tokens,
		    .columns = table[i].columns,
		    .dtype = (uint8_t)(sort == STATE || sort == INNER ? shape->dtype : PP_F32),
		    .weight_pass = i >= DY,
		    .again = made_again_by(layer, i),
		    .spread = (uint8_t)(state ? pp_hidden_spread(shape) : PP_COLUMNS),
		    .over = table[i].over,
		};
	}
}

/* ---- work ------------------------------------------------------------------------------------ */

/* F = G + C, I = G + 2C, W = G with G = 2T(h(q+2w) + q*h + 2*h*f, gated 3*h*f), C = 4*T*s*q, attention counted in full
 * (cost model 1.2). Ranks that share key/value heads all project onto all of them; the model does it once. */
static void count_flops(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	uint64_t query = pp_local_query(layer, shape), key = pp_projected_key(layer, shape);
	uint64_t mlp = pp_times(pp_is_gated(layer) ? 3 : 2, pp_local_ffn(layer, shape));
	uint64_t weights = pp_times(layer->hidden, pp_plus(pp_times(2, pp_plus(query, key)), mlp));
	uint64_t linear = pp_times(pp_times(2, shape->tokens), weights);
	uint64_t attention = pp_times(pp_times(4, shape->tokens), pp_times(shape->seq, query));
	counts->matmul_flops[PP_PHASE_F] = linear;
	counts->matmul_flops[PP_PHASE_I] = linear;
	counts->matmul_flops[PP_PHASE_W] = linear;
	counts->attention_flops[PP_PHASE_F] = attention;
	counts->attention_flops[PP_PHASE_I] = pp_times(2, attention);
	uint64_t shared = pp_times(pp_times(4, shape->tokens), pp_times(layer->hidden, key)); /* to k and v */
	uint64_t repeated = pp_shares_heads(layer, shape) ? shared - shared / shape->tp : 0;
	counts->repeated_flops[PP_PHASE_F] = counts->repeated_flops[PP_PHASE_I] = counts->repeated_flops[PP_PHASE_W] =
	    repeated;
}

/* R: what F does again for the parts that are not kept. All of it is F without its last linear layer and sum, whose
 * output is the next layer's input and kept there: so G + C of the cost model 1.2 less 2*T*h*f. */
static void count_recompute(const struct pp_layer *layer, const struct pp_shape *shape, uint64_t sum,
                            struct pp_layer_counts *counts)
{
	uint64_t *bytes = &counts->memory_bytes[PP_PHASE_R], ffn = pp_local_ffn(layer, shape);
	bool all = layer->recompute & PP_RECOMPUTE_LINEAR;
	if (all) {
		counts->matmul_flops[PP_PHASE_R] =
		    counts->matmul_flops[PP_PHASE_F] - pp_times(pp_times(2, shape->tokens), pp_times(layer->hidden, ffn));
		counts->repeated_flops[PP_PHASE_R] = counts->repeated_flops[PP_PHASE_F];
	}
	if (layer->recompute & PP_RECOMPUTE_ATTENTION)
		counts->attention_flops[PP_PHASE_R] = counts->attention_flops[PP_PHASE_F];
	if (all)
		*bytes = pp_plus(*bytes, sum);
	if (layer->recompute & PP_RECOMPUTE_NORM)
		*bytes = pp_plus(*bytes, pp_times(2, pp_traffic_norm(layer, shape)));
	if (layer->recompute & PP_RECOMPUTE_ACT)
		*bytes = pp_plus(*bytes, pp_traffic_rows(shape, pp_is_gated(layer) ? 3 : 2, ffn));
	if (all || (layer->recompute & PP_RECOMPUTE_NORM && layer->qk_norm))
		*bytes = pp_plus(*bytes, pp_heads_traffic(layer, shape, PP_PHASE_F));
}

/* Memory-bound (cost model 1.7): F two norms, the activation, two residual sums; I their input gradients, two sums on
 * the residual stream, two that join the gradients of q, k, v and, gated, one that joins those of gate and up; W the
 * gradients of the norms; in each what heads of q and k go through. The norms and the residual stream are whole on
 * every tensor-parallel rank, with sequence parallelism a tp-th; biases behind a row-parallel projection are added with
 * the residual. */
static void count(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	bool gated = pp_is_gated(layer);
	uint64_t ffn = pp_local_ffn(layer, shape);
	uint64_t sum = pp_traffic_hidden(shape, 3, layer->hidden), join = pp_traffic_rows(shape, 3, layer->hidden);
	uint64_t bias = shape->tp > 1 && layer->bias ? pp_times(layer->hidden, pp_dtype_size[shape->dtype]) : 0;
	count_flops(layer, shape, counts);
	counts->memory_bytes[PP_PHASE_F] = pp_plus(pp_times(2, pp_plus(pp_traffic_norm(layer, shape), pp_plus(sum, bias))),
	                                           pp_traffic_rows(shape, gated ? 3 : 2, ffn));
	counts->memory_bytes[PP_PHASE_I] =
	    pp_plus(pp_plus(pp_times(2, pp_plus(pp_traffic_norm_dx(layer, shape), sum)), pp_times(gated ? 3 : 2, join)),
	            pp_traffic_rows(shape, gated ? 5 : 3, ffn));
	counts->memory_bytes[PP_PHASE_W] = pp_times(2, pp_traffic_norm_dw(layer, shape));
	for (unsigned phase = 0; phase < PP_PHASE_R; phase++)
		counts->memory_bytes[phase] =
		    pp_plus(counts->memory_bytes[phase], pp_heads_traffic(layer, shape, (enum pp_phase)phase));
	count_recompute(layer, shape, pp_plus(sum, bias), counts);
	counts->output_bytes = pp_traffic_hidden(shape, 1, layer->hidden);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static void add(struct pp_layer_build *build, uint32_t a, uint32_t b, uint32_t y)
{
	pp_body_emit(build->body, (struct pp_body_instr){.op = PP_BODY_ADD, .operand = {a, b, y}});
}

static void add_dx(struct pp_layer_build *build, uint32_t a, uint32_t b, uint32_t y)
{
	pp_emit_dx(build, (struct pp_body_instr){.op = PP_BODY_ADD, .operand = {a, b, y}});
}

void pp_mlp_inner_forward(struct pp_layer_build *build, uint32_t n2)
{
	uint32_t f = pp_part(build, F), g = pp_part(build, G);
	pp_linear(build, FC1_WEIGHT, n2, f);
	if (pp_is_gated(build->layer)) {
		uint32_t u = pp_part(build, U);
		pp_linear(build, UP_WEIGHT, n2, u);
		pp_body_emit(build->body, (struct pp_body_instr){.op = PP_BODY_SWIGLU, .operand = {f, u, g}});
	} else {
		pp_body_emit(build->body,
		             (struct pp_body_instr){.op = PP_BODY_ACT, .operand = {f, g}, .imm = {build->layer->act}});
	}
}

static void forward(struct pp_layer_build *build)
{
	if (build->shape.tp > 1) {
		pp_block_parallel_forward(build);
		return;
	}
	uint32_t x = build->input, x2 = pp_part(build, X2), y = build->output;
	pp_norm(build, NORM1_WEIGHT, MEAN1, x, pp_part(build, N1));
	pp_heads_forward(build, pp_part(build, N1));
	pp_linear(build, O_WEIGHT, pp_part(build, O), x2);
	add(build, x, x2, x2);
	pp_norm(build, NORM2_WEIGHT, MEAN2, x2, pp_part(build, N2));
	pp_mlp_inner_forward(build, pp_part(build, N2));
	pp_linear(build, FC2_WEIGHT, pp_part(build, G), y);
	add(build, x2, y, y);
}

/* From the gradient of g to those of f and u. The gradient of g is needed no longer than this step: the fused form
 * overwrites it with df; I keeps it apart because its df takes over f. */
void pp_activation_backward(struct pp_layer_build *build, uint32_t dg)
{
	uint32_t f = pp_part(build, F), df = pp_part(build, DF);
	if (pp_is_gated(build->layer))
		pp_emit_dx(build, (struct pp_body_instr){.op = PP_BODY_SWIGLU_DX,
		                                         .operand = {dg, f, pp_part(build, U), df, pp_part(build, DU)}});
	else
		pp_emit_dx(build,
		           (struct pp_body_instr){.op = PP_BODY_ACT_DX, .operand = {dg, f, df}, .imm = {build->layer->act}});
}

/* Gradient of x2 and of the MLP's parameters. */
static void mlp_backward(struct pp_layer_build *build)
{
	uint32_t dy = build->dy, df = pp_part(build, DF), dn2 = pp_part(build, DN2), dx2 = pp_part(build, DX2);
	uint32_t x2 = pp_part(build, X2),
	         dg = build->body->phase == PP_PHASE_B ? df : pp_temporary(build, "dg", PP_COLUMNS, build->layer->ffn);
	pp_linear_dx(build, FC2_WEIGHT, dy, dg);
	pp_linear_dw(build, FC2_WEIGHT, dy, pp_part(build, G));
	pp_activation_backward(build, dg);
	pp_linear_dx(build, FC1_WEIGHT, df, dn2);
	pp_linear_dw(build, FC1_WEIGHT, df, pp_part(build, N2));
	if (pp_is_gated(build->layer)) {
		uint32_t from_up = pp_temporary(build, "dn2_up", PP_WHOLE, build->layer->hidden);
		pp_linear_dx(build, UP_WEIGHT, pp_part(build, DU), from_up);
		pp_linear_dw(build, UP_WEIGHT, pp_part(build, DU), pp_part(build, N2));
		add_dx(build, dn2, from_up, dn2);
	}
	pp_norm_dx(build, NORM2_WEIGHT, MEAN2, dn2, x2, dx2);
	pp_norm_dw(build, NORM2_WEIGHT, MEAN2, dn2, x2);
	add_dx(build, dy, dx2, dx2);
}

/* Gradient of x and of attention's parameters. */
static void attention_backward(struct pp_layer_build *build)
{
	uint32_t x = pp_part(build, X), n1 = pp_part(build, N1), dn1 = pp_part(build, DN1), dx2 = pp_part(build, DX2);
	uint32_t output_gradient = pp_temporary(build, "do", PP_COLUMNS, pp_query_width(build->layer));
	uint32_t from_k = pp_temporary(build, "dn1_k", PP_WHOLE, build->layer->hidden),
	         from_v = pp_temporary(build, "dn1_v", PP_WHOLE, build->layer->hidden);
	pp_linear_dx(build, O_WEIGHT, dx2, output_gradient);
	pp_linear_dw(build, O_WEIGHT, dx2, pp_part(build, O));
	pp_heads_backward(build, output_gradient);
	pp_linear_dx(build, Q_WEIGHT, pp_part(build, DQ), dn1);
	pp_linear_dw(build, Q_WEIGHT, pp_part(build, DQ), n1);
	pp_linear_dx(build, K_WEIGHT, pp_part(build, DK), from_k);
	pp_linear_dw(build, K_WEIGHT, pp_part(build, DK), n1);
	add_dx(build, dn1, from_k, dn1);
	pp_linear_dx(build, V_WEIGHT, pp_part(build, DV), from_v);
	pp_linear_dw(build, V_WEIGHT, pp_part(build, DV), n1);
	add_dx(build, dn1, from_v, dn1);
	pp_norm_dw(build, NORM1_WEIGHT, MEAN1, dn1, x);
	if (build->dx == PP_NULL)
		return;
	pp_norm_dx(build, NORM1_WEIGHT, MEAN1, dn1, x, build->dx);
	add_dx(build, dx2, build->dx, build->dx);
}

static void backward(struct pp_layer_build *build)
{
	if (build->shape.tp > 1) {
		pp_block_parallel_backward(build);
		return;
	}
	mlp_backward(build);
	attention_backward(build);
}

const struct pp_kind pp_kind_block = {
    .name = "block",
    .wants_input = true,
    .makes_hidden = true,
    .gradient_part = DY,
    .params = params,
    .parts = parts,
    .count = count,
    .collectives = pp_block_collectives,
    .forward = forward,
    .backward = backward,
};
