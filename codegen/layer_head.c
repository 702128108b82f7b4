/* Layer kind `head`: logits and loss. The weight is its own, or the table of an embedding (tied). F forms the
 * gradient of the logits in their place, so the backward pass needs no labels. */
#include "body_builder.h"

enum { WEIGHT };
enum { X, LOGITS };

/* V*h, no bias (cost model 1.1). */
static void params(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_param *list)
{
	(void)shape;
	list[WEIGHT] = (struct pp_param){
	    .suffix = "weight", .rows = layer->padded_vocab, .columns = layer->hidden, .init = PP_INIT_NORMAL, .shard = 0};
}

/* Head input and logits (cost model 1.3); the logits become their gradient in place. */
static void parts(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_part *list)
{
	uint8_t dtype = (uint8_t)shape->dtype;
	list[X] = (struct pp_part){
	    .name = "x", .rows = shape->tokens, .columns = layer->hidden, .dtype = dtype, .over = PP_NO_PART};
	list[LOGITS] = (struct pp_part){
	    .name = "logits", .rows = shape->tokens, .columns = layer->padded_vocab, .dtype = dtype, .over = PP_NO_PART};
}

/* 2TVh in each of F, I, W (cost model 1.2); the loss reads the logits and labels, writes the gradient and two f64. */
static void count(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	uint64_t logits = pp_times(shape->tokens, layer->padded_vocab);
	uint64_t flops = pp_times(logits, pp_times(2, layer->hidden));
	counts->matmul_flops[PP_PHASE_F] = flops;
	counts->matmul_flops[PP_PHASE_I] = flops;
	counts->matmul_flops[PP_PHASE_W] = flops;
	counts->memory_bytes[PP_PHASE_F] =
	    pp_plus(pp_times(logits, 2 * pp_dtype_size[shape->dtype]), pp_plus(pp_times(shape->tokens, 4), 16));
}

static void forward(struct pp_layer_build *build)
{
	uint32_t logits = pp_part(build, LOGITS);
	pp_linear(build, WEIGHT, build->input, logits);
	pp_body_emit(build->body, (struct pp_body_instr){.op = PP_BODY_XENT,
	                                                 .operand = {logits, build->labels, logits, build->loss},
	                                                 .imm = {build->layer->vocab, build->mb_mean}});
}

static void backward(struct pp_layer_build *build)
{
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
    .forward = forward,
    .backward = backward,
};
