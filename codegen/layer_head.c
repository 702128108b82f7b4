/* Layer kind `head`: logits and loss. The weight is its own, or the table of an embedding (tied). F forms the
 * gradient of the logits in their place, so the backward pass needs no labels. */
#include "body_builder.h"
#include "layer_traffic.h"

enum { WEIGHT };
enum { X, LOGITS };

/* V*h, no bias (cost model 1.1). */
static void params(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_param *list)
{
	(void)shape;
	list[WEIGHT] = (struct pp_param){.suffix = "weight",
	                                 .rows = layer->padded_vocab,
	                                 .columns = layer->hidden,
	                                 .padding = layer->padded_vocab - layer->vocab,
	                                 .init = PP_INIT_NORMAL,
	                                 .shard = 0};
}

/* Head input and logits (cost model 1.3); the logits become their gradient in place. */
static void parts(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_part *list)
{
	uint8_t dtype = (uint8_t)shape->dtype;
	list[X] = (struct pp_part){.name = "x",
	                           .rows = shape->rows,
	                           .columns = layer->hidden,
	                           .dtype = dtype,
	                           .spread = (uint8_t)pp_hidden_spread(shape),
	                           .over = PP_NO_PART};
	list[LOGITS] = (struct pp_part){.name = "logits",
	                                .rows = shape->tokens,
	                                .columns = layer->padded_vocab / shape->tp,
	                                .dtype = dtype,
	                                .spread = PP_COLUMNS,
	                                .over = PP_NO_PART};
}

/* 2TVh in each of F, I, W (cost model 1.2); the loss reads the logits and labels, writes the gradient and two f64. */
static void count(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	uint64_t logits = pp_times(shape->tokens, layer->padded_vocab / shape->tp);
	uint64_t flops = pp_times(logits, pp_times(2, layer->hidden));
	counts->matmul_flops[PP_PHASE_F] = flops;
	counts->matmul_flops[PP_PHASE_I] = flops;
	counts->matmul_flops[PP_PHASE_W] = flops;
	counts->memory_bytes[PP_PHASE_F] =
	    pp_plus(pp_times(logits, 2 * pp_dtype_size[shape->dtype]), pp_plus(pp_times(shape->tokens, 4), 16));
	if (shape->tp == 1)
		return;
	/* The logits once more, and three numbers of each token: written, and those of all ranks read. */
	uint64_t stats = pp_times(pp_times(shape->tokens, 12), 1 + (uint64_t)shape->tp);
	counts->memory_bytes[PP_PHASE_F] =
	    pp_plus(counts->memory_bytes[PP_PHASE_F],
	            pp_plus(pp_times(logits, pp_dtype_size[shape->dtype]), pp_plus(pp_times(shape->tokens, 4), stats)));
}

static void collectives(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_collectives *list)
{
	uint64_t bytes = pp_traffic_rows(shape, 1, layer->hidden);
	uint64_t flops = pp_times(pp_times(2, shape->tokens), pp_times(layer->padded_vocab / shape->tp, layer->hidden));
	pp_collective_add(list, PP_ALLGATHER, PP_IN_F, pp_times(pp_times(shape->tokens, 12), shape->tp), 0);
	pp_collective_add(list, pp_reduction_kind(shape), PP_IN_B, bytes, flops);
	pp_collective_add(list, pp_reduction_kind(shape), PP_IN_I, bytes, 0);
	if (!shape->sp)
		return;
	pp_collective_add(list, PP_ALLGATHER, PP_IN_F | PP_IN_W, bytes, 0);
	pp_collective_add(list, PP_ALLGATHER, PP_IN_B, bytes, flops);
}

/* Each rank makes the logits of its part of the vocabulary; three numbers of each token tell the others what they need
 * of it. */
static void shards_forward(struct pp_layer_build *build)
{
	struct pp_body_builder *body = build->body;
	uint32_t logits = pp_part(build, LOGITS), x = pp_gather(build, "x_all", build->input);
	struct pp_reg reg = {.name = pp_arena_printf(body->arena, "%s.stats", build->prefix),
	                     .base = PP_BASE_WORK,
	                     .dtype = PP_F32,
	                     .slot = PP_NULL,
	                     .rows = (uint32_t)build->shape.tokens,
	                     .columns = 3};
	pp_reg_spread(&reg, PP_ROWS, &build->shape);
	uint32_t own = pp_body_reg(body, reg);
	reg.name = pp_arena_printf(body->arena, "%s.stats_all", build->prefix);
	reg.rows *= build->shape.tp;
	pp_reg_spread(&reg, PP_WHOLE, &build->shape);
	uint32_t all = pp_body_reg(body, reg);
	pp_await_whole(build, x, build->input);
	pp_linear(build, WEIGHT, x, logits);
	pp_body_emit(body, (struct pp_body_instr){.op = PP_BODY_XENT_STATS,
	                                          .operand = {logits, build->labels, own},
	                                          .imm = {build->layer->vocab}});
	pp_body_emit(body, (struct pp_body_instr){.op = PP_BODY_ALLGATHER, .operand = {own, all}});
	pp_await(build, all);
	pp_body_emit(body, (struct pp_body_instr){.op = PP_BODY_XENT_SHARD,
	                                          .operand = {logits, build->labels, all, logits, build->loss},
	                                          .imm = {build->layer->vocab, build->mb_mean}});
}

static void shards_backward(struct pp_layer_build *build)
{
	bool reduces = build->dx != PP_NULL && build->body->phase != PP_PHASE_W, weights = build->body->phase != PP_PHASE_I;
	uint32_t logits = pp_part(build, LOGITS), x = pp_part(build, X);
	uint32_t whole = weights ? pp_gather(build, "x_all", x) : PP_NULL;
	if (reduces) {
		uint32_t sums = pp_temporary(build, "dx_part", PP_SUMS, build->layer->hidden);
		pp_linear_dx(build, WEIGHT, logits, sums);
		pp_reduce(build, sums, build->dx);
	}
	if (weights) {
		pp_await_whole(build, whole, x);
		pp_linear_dw(build, WEIGHT, logits, whole);
	}
	if (reduces)
		pp_await(build, build->dx);
}

static void forward(struct pp_layer_build *build)
{
	if (build->shape.tp > 1) {
		shards_forward(build);
		return;
	}
	uint32_t logits = pp_part(build, LOGITS);
	pp_linear(build, WEIGHT, build->input, logits);
	pp_body_emit(build->body, (struct pp_body_instr){.op = PP_BODY_XENT,
	                                                 .operand = {logits, build->labels, logits, build->loss},
	                                                 .imm = {build->layer->vocab, build->mb_mean}});
}

static void backward(struct pp_layer_build *build)
{
	if (build->shape.tp > 1) {
		shards_backward(build);
		return;
	}
	if (build->dx != PP_NULL)
		pp_linear_dx(build, WEIGHT, pp_part(build, LOGITS), build->dx);
	pp_linear_dw(build, WEIGHT, pp_part(build, LOGITS), pp_part(build, X));
}

const struct pp_kind pp_kind_head = {
    .name = "head",
    .wants_input = true,
    .gradient_part = PP_NO_PART,
    .params = params,
    .parts = parts,
    .count = count,
    .collectives = collectives,
    .forward = forward,
    .backward = backward,
};
