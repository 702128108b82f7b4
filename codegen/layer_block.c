/* Layer kind `block`: a transformer block of GPT-2's kind.
 *
 *     n1 = norm1(x)   q, k, v = n1 Wq, n1 Wk, n1 Wv   o = attention(q, k, v)   x2 = x + o Wo
 *     n2 = norm2(x2)  f = n2 W1                       g = act(f)               y = x2 + g W2 */
#include "body_builder.h"
#include "layer_traffic.h"

/* clang-format off */
enum {
	NORM1_WEIGHT, NORM1_BIAS, Q_WEIGHT, Q_BIAS, K_WEIGHT, K_BIAS, V_WEIGHT, V_BIAS, O_WEIGHT, O_BIAS,
	NORM2_WEIGHT, NORM2_BIAS, FC1_WEIGHT, FC1_BIAS, FC2_WEIGHT, FC2_BIAS, PARAM_COUNT
};
enum {
	X, MEAN1, RSTD1, N1, Q, K, V, O, LSE, X2, MEAN2, RSTD2, N2, F, G, /* kept by F */
	DY, DF, DN2, DX2, DQ, DK, DV, DN1, PART_COUNT                     /* output gradients, for W */
};
/* clang-format on */
_Static_assert((int)PARAM_COUNT <= (int)PP_PARAMS_MAX && (int)PART_COUNT <= (int)PP_PARTS_MAX,
               "the lists are long enough");

static uint64_t query_width(const struct pp_layer *layer)
{
	return pp_times(layer->heads, layer->head_dim);
}

static uint64_t key_width(const struct pp_layer *layer)
{
	return pp_times(layer->kv_heads, layer->head_dim);
}

static void norm_params(const struct pp_layer *layer, const char *weight, const char *bias, struct pp_param *list)
{
	list[0] = (struct pp_param){.suffix = weight, .rows = layer->hidden, .init = PP_INIT_ONE, .shard = PP_NOT_SHARDED};
	if (pp_norm_has_beta(layer))
		list[1] =
		    (struct pp_param){.suffix = bias, .rows = layer->hidden, .init = PP_INIT_ZERO, .shard = PP_NOT_SHARDED};
}

/* A projection [outputs, inputs]: column-parallel splits its outputs over tp, row-parallel its inputs and leaves the
 * bias whole. Row-parallel projections are those that write to the residual stream. */
static void linear_params(const struct pp_layer *layer, const char *weight, const char *bias, uint64_t outputs,
                          uint64_t inputs, bool row_parallel, struct pp_param *list)
{
	list[0] = (struct pp_param){.suffix = weight,
	                            .rows = outputs,
	                            .columns = inputs,
	                            .init = PP_INIT_NORMAL,
	                            .shard = row_parallel ? 1 : 0,
	                            .residual = row_parallel};
	if (layer->bias)
		list[1] = (struct pp_param){
		    .suffix = bias, .rows = outputs, .init = PP_INIT_ZERO, .shard = row_parallel ? PP_NOT_SHARDED : 0};
}

/* Attention h(q+2w)+q*h, MLP 2*h*f, two norms of 2h, biases q+2w+h and f+h (cost model 1.1). */
static void params(const struct pp_layer *layer, struct pp_param *list)
{
	uint64_t hidden = layer->hidden, query = query_width(layer), key = key_width(layer);
	norm_params(layer, "norm1.weight", "norm1.bias", list + NORM1_WEIGHT);
	linear_params(layer, "attn.q.weight", "attn.q.bias", query, hidden, false, list + Q_WEIGHT);
	linear_params(layer, "attn.k.weight", "attn.k.bias", key, hidden, false, list + K_WEIGHT);
	linear_params(layer, "attn.v.weight", "attn.v.bias", key, hidden, false, list + V_WEIGHT);
	linear_params(layer, "attn.o.weight", "attn.o.bias", hidden, query, true, list + O_WEIGHT);
	norm_params(layer, "norm2.weight", "norm2.bias", list + NORM2_WEIGHT);
	linear_params(layer, "mlp.fc1.weight", "mlp.fc1.bias", layer->ffn, hidden, false, list + FC1_WEIGHT);
	linear_params(layer, "mlp.fc2.weight", "mlp.fc2.bias", hidden, layer->ffn, true, list + FC2_WEIGHT);
}

/* What F keeps: two norm inputs, QKV input, MLP input (4h per token), q, k, v, o, log-sum-exp, MLP inside (2f): the
 * general form of cost model 1.3. W reads every one of them but f, q, k, v, lse and the output gradients dy, df,
 * dn2, dx2, dq, dk, dv, dn1; of these df, dq, dk, dv take over the bytes of f, q, k, v. */
static void parts(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_part *list)
{
	const struct {
		const char *name;
		uint64_t columns;
		uint8_t over;
	} table[PART_COUNT] = {
	    [X] = {"x", layer->hidden, PP_NO_PART},
	    [MEAN1] = {"mean1", layer->rms ? 0 : 1, PP_NO_PART},
	    [RSTD1] = {"rstd1", 1, PP_NO_PART},
	    [N1] = {"n1", layer->hidden, PP_NO_PART},
	    [Q] = {"q", query_width(layer), PP_NO_PART},
	    [K] = {"k", key_width(layer), PP_NO_PART},
	    [V] = {"v", key_width(layer), PP_NO_PART},
	    [O] = {"o", query_width(layer), PP_NO_PART},
	    [LSE] = {"lse", layer->heads, PP_NO_PART},
	    [X2] = {"x2", layer->hidden, PP_NO_PART},
	    [MEAN2] = {"mean2", layer->rms ? 0 : 1, PP_NO_PART},
	    [RSTD2] = {"rstd2", 1, PP_NO_PART},
	    [N2] = {"n2", layer->hidden, PP_NO_PART},
	    [F] = {"f", layer->ffn, PP_NO_PART},
	    [G] = {"g", layer->ffn, PP_NO_PART},
	    [DY] = {"dy", layer->hidden, PP_NO_PART},
	    [DF] = {"df", layer->ffn, F},
	    [DN2] = {"dn2", layer->hidden, PP_NO_PART},
	    [DX2] = {"dx2", layer->hidden, PP_NO_PART},
	    [DQ] = {"dq", query_width(layer), Q},
	    [DK] = {"dk", key_width(layer), K},
	    [DV] = {"dv", key_width(layer), V},
	    [DN1] = {"dn1", layer->hidden, PP_NO_PART},
	};
	for (unsigned i = 0; i < PART_COUNT; i++) {
		bool statistic = i == MEAN1 || i == RSTD1 || i == MEAN2 || i == RSTD2 || i == LSE;
		list[i] = (struct pp_part){.name = table[i].name,
		                           .rows = table[i].columns ? shape->tokens : 0,
		                           .columns = table[i].columns,
		                           .dtype = (uint8_t)(statistic ? PP_F32 : shape->dtype),
		                           .weight_pass = i >= DY,
		                           .over = table[i].over};
	}
}

/* F = G + C, I = G + 2C, W = G with G = 2T(h(q+2w) + q*h + 2*h*f), C = 4*T*s*q, attention counted in full
 * (cost model 1.2). */
static void count_flops(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	uint64_t query = query_width(layer), key = key_width(layer);
	uint64_t weights = pp_times(layer->hidden, pp_plus(pp_times(2, pp_plus(query, key)), pp_times(2, layer->ffn)));
	uint64_t linear = pp_times(pp_times(2, shape->tokens), weights);
	uint64_t attention = pp_times(pp_times(4, shape->tokens), pp_times(shape->seq, query));
	counts->matmul_flops[PP_PHASE_F] = linear;
	counts->matmul_flops[PP_PHASE_I] = linear;
	counts->matmul_flops[PP_PHASE_W] = linear;
	counts->attention_flops[PP_PHASE_F] = attention;
	counts->attention_flops[PP_PHASE_I] = pp_times(2, attention);
}

/* Memory-bound (cost model 1.7): F two norms, the activation, two residual sums; I their input gradients, two sums on
 * the residual stream and two that join the gradients of q, k, v; W the gradients of the norms. */
static void count(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	count_flops(layer, shape, counts);
	uint64_t sum = pp_traffic_rows(shape, 3, layer->hidden);
	counts->memory_bytes[PP_PHASE_F] =
	    pp_plus(pp_times(2, pp_plus(pp_traffic_norm(layer, shape), sum)), pp_traffic_rows(shape, 2, layer->ffn));
	counts->memory_bytes[PP_PHASE_I] = pp_plus(pp_plus(pp_times(2, pp_traffic_norm_dx(layer, shape)), pp_times(4, sum)),
	                                           pp_traffic_rows(shape, 3, layer->ffn));
	counts->memory_bytes[PP_PHASE_W] = pp_times(2, pp_traffic_norm_dw(layer, shape));
	counts->output_bytes = pp_traffic_rows(shape, 1, layer->hidden);
}

static void add(struct pp_layer_build *build, uint32_t a, uint32_t b, uint32_t y)
{
	pp_body_emit(build->body, (struct pp_body_instr){.op = PP_BODY_ADD, .operand = {a, b, y}});
}

static void add_dx(struct pp_layer_build *build, uint32_t a, uint32_t b, uint32_t y)
{
	pp_emit_dx(build, (struct pp_body_instr){.op = PP_BODY_ADD, .operand = {a, b, y}});
}

static void forward(struct pp_layer_build *build)
{
	const struct pp_layer *layer = build->layer;
	uint32_t x = build->input, n1 = pp_part(build, N1), x2 = pp_part(build, X2), n2 = pp_part(build, N2);
	uint32_t f = pp_part(build, F), g = pp_part(build, G), y = build->output;
	pp_norm(build, NORM1_WEIGHT, MEAN1, x, n1);
	pp_linear(build, Q_WEIGHT, n1, pp_part(build, Q));
	pp_linear(build, K_WEIGHT, n1, pp_part(build, K));
	pp_linear(build, V_WEIGHT, n1, pp_part(build, V));
	pp_body_emit(build->body,
	             (struct pp_body_instr){.op = PP_BODY_ATTN,
	                                    .operand = {pp_part(build, Q), pp_part(build, K), pp_part(build, V),
	                                                pp_part(build, O), pp_part(build, LSE)},
	                                    .imm = {build->shape.seq, layer->heads, layer->kv_heads, layer->window}});
	pp_linear(build, O_WEIGHT, pp_part(build, O), x2);
	add(build, x, x2, x2);
	pp_norm(build, NORM2_WEIGHT, MEAN2, x2, n2);
	pp_linear(build, FC1_WEIGHT, n2, f);
	pp_body_emit(build->body, (struct pp_body_instr){.op = PP_BODY_ACT, .operand = {f, g}, .imm = {layer->act}});
	pp_linear(build, FC2_WEIGHT, g, y);
	add(build, x2, y, y);
}

/* Gradient of x2 and of the MLP's parameters. The gradient of g is needed no longer than the activation's own step:
 * the fused form overwrites it with df; I keeps it apart because its df takes over f. */
static void mlp_backward(struct pp_layer_build *build)
{
	uint32_t dy = build->dy, df = pp_part(build, DF), dn2 = pp_part(build, DN2), dx2 = pp_part(build, DX2);
	uint32_t x2 = pp_part(build, X2),
	         dg = build->body->phase == PP_PHASE_B ? df : pp_temporary(build, "dg", build->layer->ffn);
	pp_linear_dx(build, FC2_WEIGHT, dy, dg);
	pp_linear_dw(build, FC2_WEIGHT, dy, pp_part(build, G));
	pp_emit_dx(build, (struct pp_body_instr){
	                      .op = PP_BODY_ACT_DX, .operand = {dg, pp_part(build, F), df}, .imm = {build->layer->act}});
	pp_linear_dx(build, FC1_WEIGHT, df, dn2);
	pp_linear_dw(build, FC1_WEIGHT, df, pp_part(build, N2));
	pp_norm_dx(build, NORM2_WEIGHT, MEAN2, dn2, x2, dx2);
	pp_norm_dw(build, NORM2_WEIGHT, MEAN2, dn2, x2);
	add_dx(build, dy, dx2, dx2);
}

/* Gradients of q, k, v. The attention gradient reads q, k, v to its end, so I makes them in workspace and then moves
 * them onto the bytes of q, k, v. */
static void attention_core_backward(struct pp_layer_build *build, uint32_t output_gradient)
{
	static const unsigned parts[3] = {DQ, DK, DV};
	static const char *const names[3] = {"dq_new", "dk_new", "dv_new"};
	const struct pp_layer *layer = build->layer;
	uint32_t made[3];
	for (unsigned i = 0; i < 3; i++)
		made[i] = build->body->phase == PP_PHASE_I
		              ? pp_temporary(build, names[i], build->layout.parts[parts[i]].columns)
		              : pp_part(build, parts[i]);
	pp_emit_dx(build, (struct pp_body_instr){.op = PP_BODY_ATTN_DX,
	                                         .operand = {output_gradient, pp_part(build, Q), pp_part(build, K),
	                                                     pp_part(build, V), pp_part(build, O), pp_part(build, LSE),
	                                                     made[0], made[1], made[2]},
	                                         .imm = {build->shape.seq, layer->heads, layer->kv_heads, layer->window}});
	for (unsigned i = 0; i < 3; i++)
		if (build->body->phase == PP_PHASE_I)
			pp_body_emit(build->body,
			             (struct pp_body_instr){.op = PP_BODY_COPY, .operand = {made[i], pp_part(build, parts[i])}});
}

/* Gradient of x and of attention's parameters. */
static void attention_backward(struct pp_layer_build *build)
{
	uint32_t x = pp_part(build, X), n1 = pp_part(build, N1), dn1 = pp_part(build, DN1), dx2 = pp_part(build, DX2);
	uint32_t output_gradient = pp_temporary(build, "do", query_width(build->layer));
	uint32_t from_k = pp_temporary(build, "dn1_k", build->layer->hidden),
	         from_v = pp_temporary(build, "dn1_v", build->layer->hidden);
	pp_linear_dx(build, O_WEIGHT, dx2, output_gradient);
	pp_linear_dw(build, O_WEIGHT, dx2, pp_part(build, O));
	attention_core_backward(build, output_gradient);
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
    .forward = forward,
    .backward = backward,
};
