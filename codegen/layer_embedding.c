/* Layer kind `embedding`: token vectors, plus learned positions where the blocks don't rotate. No input, hence no input
 * gradient. */
#include "body_builder.h"
#include "layer_traffic.h"

enum { WEIGHT, POSITION };
enum { DY };

/* V*h, and s*h learned positions, none with rope (cost model 1.1). */
static void params(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_param *list)
{
	(void)shape;
	list[WEIGHT] = (struct pp_param){.suffix = "weight",
	                                 .rows = layer->padded_vocab,
	                                 .columns = layer->hidden,
	                                 .padding = layer->padded_vocab - layer->vocab,
	                                 .init = PP_INIT_NORMAL,
	                                 .shard = 0};
	if (layer->rope_theta)
		return;
	list[POSITION] = (struct pp_param){.suffix = "position",
	                                   .rows = layer->seq,
	                                   .columns = layer->hidden,
	                                   .init = PP_INIT_NORMAL,
	                                   .shard = PP_NOT_SHARDED};
}

static void parts(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_part *list)
{
	list[DY] = (struct pp_part){.name = "dy",
	                            .rows = shape->rows,
	                            .columns = layer->hidden,
	                            .dtype = (uint8_t)shape->dtype,
	                            .weight_pass = true,
	                            .spread = (uint8_t)pp_hidden_spread(shape),
	                            .over = PP_NO_PART};
}

/* A look-up has no FLOPs (cost model 1.2). F reads a row of each table and writes their sum for each token; W reads
 * the gradient and reads and writes a row of each gradient (f32) for each token; both read the ids. */
static void count(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	uint64_t size = pp_dtype_size[shape->dtype], ids = pp_times(shape->tokens, 4);
	uint64_t values = pp_times(shape->tokens, layer->hidden);
	uint64_t tables = layer->rope_theta ? 1 : 2;
	counts->memory_bytes[PP_PHASE_F] = pp_plus(pp_times(values, (tables + 1) * size), ids);
	counts->memory_bytes[PP_PHASE_W] = pp_plus(pp_times(values, size + tables * 2 * 4), ids);
	counts->output_bytes = pp_times(pp_times(shape->rows, layer->hidden), size);
}

static void collectives(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_collectives *list)
{
	uint64_t bytes = pp_traffic_rows(shape, 1, layer->hidden);
	pp_collective_add(list, pp_reduction_kind(shape), PP_IN_F, bytes, 0);
	if (shape->sp)
		pp_collective_add(list, PP_ALLGATHER, PP_IN_B | PP_IN_W, bytes, 0);
}

static void forward(struct pp_layer_build *build)
{
	bool split = build->shape.tp > 1; /* the table: each rank knows the vectors of its own tokens */
	uint32_t y = split ? pp_temporary(build, "y_part", PP_SUMS, build->layer->hidden) : build->output;
	pp_body_emit(build->body, (struct pp_body_instr){
	                              .op = PP_BODY_EMBED,
	                              .operand = {build->ids, pp_weight(build, WEIGHT), pp_weight(build, POSITION), y},
	                              .imm = {build->shape.seq}});
	if (!split)
		return;
	pp_reduce(build, y, build->output);
	pp_await(build, build->output);
}

static void backward(struct pp_layer_build *build)
{
	if (build->body->phase == PP_PHASE_I)
		return;
	uint32_t dy = pp_gather(build, "dy_all", build->dy);
	pp_await_whole(build, dy, build->dy);
	pp_emit_dw(build,
	           (struct pp_body_instr){.op = PP_BODY_EMBED_DW,
	                                  .operand = {build->ids, dy, pp_grad(build, WEIGHT), pp_grad(build, POSITION)},
	                                  .imm = {build->shape.seq}});
}

const struct pp_kind pp_kind_embedding = {
    .name = "embedding",
    .makes_hidden = true,
    .gradient_part = DY,
    .params = params,
    .parts = parts,
    .count = count,
    .collectives = collectives,
    .forward = forward,
    .backward = backward,
};
