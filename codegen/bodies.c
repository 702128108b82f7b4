/* Bodies of all stages: strings the layers of a stage together, one body per phase in use.
 *
 * requires: shapes that fit (pp_layers_check); stages that cover the layers in order; tensors and uses built.
 * ensures:  values flow from layer to layer without copies: a layer writes its output where the next layer keeps its
 *           input (in that layer's stash), and its input gradient where the layer below keeps it (in extra in the
 *           split form, in workspace in the fused form). Only at the ends of a stage are values copied: `in` may be
 *           read by F alone, `dout` by B or I alone.
 *           F writes the same stash for both forms of backward, so a stage may mix them. R makes in extra, under the
 *           same names, what F has left out of the stash. */
#include "body_builder.h"

#include "ir/scratch.h"

#include <assert.h>
#include <string.h>

/* One stage on its way. */
struct stage_build {
	struct pp_program *program;
	const struct pp_spec *spec;
	const struct pp_stages *stages;
	const struct pp_layer_tensors *tensors;
	uint32_t stage, first, count;
	struct pp_flow in, out;
	bool split;
	uint64_t (*area_offset)[PP_AREA_COUNT]; /* [count] of each layer's shares */
	uint32_t *home;                         /* [count]: registers, of the body being written */
	struct pp_body_builder body;
	uint32_t ids, labels, loss;
};

static const struct pp_layer *layer_at(const struct stage_build *build, uint32_t i)
{
	return &build->spec->model.layers[build->first + i];
}

static const struct pp_kind *kind_at(const struct stage_build *build, uint32_t i)
{
	return pp_kinds[layer_at(build, i)->kind];
}

static struct pp_shape shape_at(const struct stage_build *build, uint32_t i)
{
	return pp_shape_make(layer_at(build, i), build->spec);
}

static bool is_trained(const struct stage_build *build, uint32_t i)
{
	return layer_at(build, i)->kind != PP_LAYER_CUSTOM;
}

/* ---- registers of a stage -------------------------------------------------------------------- */

static uint32_t flow_reg(struct stage_build *build, const char *name, enum pp_base base, const struct pp_flow *flow)
{
	struct pp_shape shape = {.tp = build->spec->parallel.tp};
	struct pp_reg reg = {.name = name,
	                     .base = (uint8_t)base,
	                     .dtype = flow->dtype,
	                     .slot = PP_NULL,
	                     .rows = (uint32_t)flow->rows,
	                     .columns = (uint32_t)flow->columns};
	pp_reg_spread(&reg, (enum pp_spread)flow->spread, &shape);
	return pp_body_reg(&build->body, reg);
}

/* Token ids, labels and the loss entry; ids stand before labels where a stage has both. */
static void data_regs(struct stage_build *build)
{
	const struct pp_stage *stage = &build->program->stages[build->stage];
	uint64_t tokens = (uint64_t)build->spec->train.microbatch * build->spec->model.seq;
	struct pp_reg reg = {.base = PP_BASE_AUX, .dtype = PP_I32, .slot = PP_NULL, .rows = (uint32_t)tokens, .columns = 1};
	build->ids = build->labels = build->loss = PP_NULL;
	if (stage->loads_tokens) {
		reg.name = "ids";
		build->ids = pp_body_reg(&build->body, reg);
		reg.offset = tokens * pp_dtype_size[PP_I32];
	}
	if (stage->loads_labels) {
		reg.name = "labels";
		build->labels = pp_body_reg(&build->body, reg);
		build->loss = pp_body_reg(
		    &build->body,
		    (struct pp_reg){
		        .name = "loss", .base = PP_BASE_LOSS, .dtype = PP_F64, .slot = PP_NULL, .rows = 2, .columns = 1});
	}
}

static void layer_build_make(struct stage_build *build, uint32_t i, struct pp_layer_build *layer)
{
	const struct pp_layer_tensors *tensors = &build->tensors[build->first + i];
	memset(layer, 0, sizeof *layer);
	layer->body = &build->body;
	layer->layer = layer_at(build, i);
	layer->shape = shape_at(build, i);
	layer->prefix = pp_layer_prefix(build->program->arena, layer->layer);
	memcpy(layer->area_offset, build->area_offset[i], sizeof layer->area_offset);
	layer->ids = build->ids;
	layer->labels = build->labels;
	layer->loss = build->loss;
	layer->ticks = build->stages->layer_ticks[build->first + i];
	layer->mb_mean = build->spec->train.mean == PP_MB_MEAN;
	layer->input = layer->output = layer->dy = layer->dx = PP_NULL;
	pp_part_layout_make(layer->layer, &layer->shape, build->split, &layer->layout);
	kind_at(build, i)->params(layer->layer, &layer->shape, layer->params);
	for (unsigned k = 0; k < PP_PARAMS_MAX; k++) {
		layer->params[k] = pp_param_local(&layer->params[k], &layer->shape);
		const struct pp_use *use = tensors->use[k] == PP_NULL ? NULL : &build->program->uses[tensors->use[k]];
		layer->weight_slot[k] = use ? use->weight : PP_NULL;
		layer->grad_slot[k] = use ? use->grad : PP_NULL;
		layer->weight_reg[k] = layer->grad_reg[k] = PP_NULL;
	}
	for (unsigned k = 0; k < PP_PARTS_MAX; k++)
		layer->part_reg[k] = PP_NULL;
}

/* home[i]: the register of part 0 (F) or of the gradient part (backward) of layer i. */
static void homes_make(struct stage_build *build)
{
	bool forward = build->body.phase == PP_PHASE_F;
	for (uint32_t i = 0; i < build->count; i++) {
		const struct pp_kind *kind = kind_at(build, i);
		build->home[i] = PP_NULL;
		if (forward ? !kind->wants_input : kind->gradient_part == PP_NO_PART)
			continue;
		struct pp_layer_build layer;
		layer_build_make(build, i, &layer);
		build->home[i] = pp_part(&layer, forward ? 0 : kind->gradient_part);
	}
}

/* Make the register `to` hold the value of `from`; a value that nobody makes is 0. */
static void move(struct stage_build *build, uint32_t from, uint32_t to)
{
	if (from == to)
		return;
	if (from == PP_NULL)
		pp_body_emit(&build->body, (struct pp_body_instr){.op = PP_BODY_FILL, .operand = {to}});
	else
		pp_body_emit(&build->body, (struct pp_body_instr){.op = PP_BODY_COPY, .operand = {from, to}});
}

/* Leave the value in the operand through which the stage passes it on. */
static void leave(struct stage_build *build, const struct pp_flow *flow, uint32_t value, uint32_t operand)
{
	if (flow->kind != PP_FLOW_NONE)
		move(build, flow->kind == PP_FLOW_HIDDEN ? value : PP_NULL, operand);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Where layer i writes its output: the next trained layer's input, `out`, or workspace when nobody keeps it. */
static uint32_t output_home(struct stage_build *build, uint32_t i, uint32_t out, struct pp_layer_build *layer)
{
	uint32_t next = i + 1;
	while (next < build->count && !is_trained(build, next))
		next++;
	uint32_t home = next < build->count ? build->home[next] : build->out.kind == PP_FLOW_HIDDEN ? out : PP_NULL;
	return home != PP_NULL ? home : pp_temporary(layer, "y", pp_hidden_spread(&layer->shape), layer->layer->hidden);
}

static void forward_write(struct stage_build *build)
{
	uint32_t in = build->in.kind == PP_FLOW_HIDDEN ? flow_reg(build, "in", PP_BASE_IN, &build->in) : PP_NULL;
	uint32_t out = build->out.kind == PP_FLOW_NONE ? PP_NULL : flow_reg(build, "out", PP_BASE_OUT, &build->out);
	uint32_t value = in;
	data_regs(build);
	homes_make(build);
	for (uint32_t i = 0; i < build->count; i++) {
		struct pp_layer_build layer;
		layer_build_make(build, i, &layer);
		if (kind_at(build, i)->wants_input) {
			move(build, value, build->home[i]);
			layer.part_reg[0] = layer.input = build->home[i];
		}
		if (kind_at(build, i)->makes_hidden)
			layer.output = output_home(build, i, out, &layer);
		kind_at(build, i)->forward(&layer);
		if (is_trained(build, i))
			value = layer.output;
	}
	leave(build, &build->out, value, out);
}

/* ---- recompute ------------------------------------------------------------------------------- */

/* The forward of each layer that recomputes, from its input in the stash; the builder leaves out what is not needed. */
static void recompute_write(struct stage_build *build)
{
	data_regs(build);
	for (uint32_t i = 0; i < build->count; i++) {
		if (!layer_at(build, i)->recompute)
			continue;
		struct pp_layer_build layer;
		layer_build_make(build, i, &layer);
		layer.input = pp_part(&layer, 0);
		layer.output = pp_temporary(&layer, "y", pp_hidden_spread(&layer.shape), layer.layer->hidden);
		kind_at(build, i)->forward(&layer);
	}
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Where layer i writes its input gradient: where the trained layer below keeps it, `din`, or nowhere. */
static uint32_t gradient_home(const struct stage_build *build, uint32_t i, uint32_t din)
{
	while (i > 0 && !is_trained(build, i - 1))
		i--;
	if (i > 0)
		return build->home[i - 1];
	return build->in.kind == PP_FLOW_HIDDEN ? din : PP_NULL;
}

/* The gradient of layer i's output as its instructions name it: the fused form reads it where it is, I leaves it in
 * extra, where W finds it. */
static uint32_t gradient_take(struct stage_build *build, uint32_t i, uint32_t value)
{
	if (build->body.phase == PP_PHASE_B && value != PP_NULL)
		return value;
	if (build->body.phase != PP_PHASE_W)
		move(build, value, build->home[i]);
	return build->home[i];
}

static void backward_write(struct stage_build *build)
{
	bool weights_only = build->body.phase == PP_PHASE_W;
	bool takes = !weights_only && build->out.kind == PP_FLOW_HIDDEN,
	     gives = !weights_only && build->in.kind != PP_FLOW_NONE;
	uint32_t dout = takes ? flow_reg(build, "dout", PP_BASE_DOUT, &build->out) : PP_NULL;
	uint32_t din = gives ? flow_reg(build, "din", PP_BASE_DIN, &build->in) : PP_NULL;
	uint32_t value = dout;
	data_regs(build);
	homes_make(build);
	for (uint32_t i = build->count; i-- > 0;) {
		struct pp_layer_build layer;
		uint8_t part = kind_at(build, i)->gradient_part;
		layer_build_make(build, i, &layer);
		if (part != PP_NO_PART) {
			layer.dy = gradient_take(build, i, value);
			layer.part_reg[part] = build->home[i];
		}
		if (kind_at(build, i)->wants_input)
			layer.dx = gradient_home(build, i, din);
		kind_at(build, i)->backward(&layer);
		if (is_trained(build, i))
			value = layer.dx;
	}
	if (gives)
		leave(build, &build->in, value, din);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void stage_begin(struct stage_build *build, uint32_t s)
{
	const struct pp_stage_plan *item = &build->stages->items[s];
	build->stage = s;
	build->first = item->first_layer;
	build->count = item->layer_count;
	build->in = s ? build->out : (struct pp_flow){.kind = PP_FLOW_NONE};
	build->out = build->in;
	for (uint32_t i = 0; i < build->count; i++) {
		struct pp_shape shape = shape_at(build, i);
		build->out = pp_flow_after(layer_at(build, i), &shape, build->out);
	}
	if (s + 1 == build->stages->count)
		build->out = (struct pp_flow){.kind = PP_FLOW_NONE};
}

/* The layers' shares of stash and extra one after the other, and what the stage loads. */
static void stage_measure(struct stage_build *build, struct pp_stage *stage)
{
	uint64_t tokens = (uint64_t)build->spec->train.microbatch * build->spec->model.seq;
	uint64_t bytes[PP_AREA_COUNT] = {0};
	for (uint32_t i = 0; i < build->count; i++) {
		struct pp_shape shape = shape_at(build, i);
		struct pp_part_layout layout;
		pp_part_layout_make(layer_at(build, i), &shape, build->split, &layout);
		for (unsigned area = 0; area < PP_AREA_COUNT; area++) {
			build->area_offset[i][area] = bytes[area];
			bytes[area] += layout.bytes[area];
		}
		stage->recomputes |= layer_at(build, i)->recompute != 0;
		stage->loads_tokens |= layer_at(build, i)->kind == PP_LAYER_EMBEDDING;
		stage->loads_labels |= layer_at(build, i)->kind == PP_LAYER_HEAD;
	}
	stage->stash_bytes = bytes[PP_AREA_STASH];
	stage->extra_bytes = bytes[PP_AREA_EXTRA];
	stage->aux_bytes =
	    tokens * pp_dtype_size[PP_I32] * ((stage->loads_tokens ? 1u : 0u) + (stage->loads_labels ? 1u : 0u));
}

static void stage_fill(struct stage_build *build, struct pp_stage *stage)
{
	const struct pp_stage_plan *item = &build->stages->items[build->stage];
	stage->rank = item->rank;
	stage->title = pp_layers_title(build->program->arena, build->spec->model.layers + build->first, build->count);
	stage->first_layer = build->first;
	stage->layer_count = build->count;
	stage->out_count = (uint32_t)(build->out.rows * build->out.columns);
	stage->out_dtype = build->out.kind == PP_FLOW_NONE ? build->spec->dtype : build->out.dtype;
	memcpy(stage->ticks, item->ticks, sizeof stage->ticks);
	memcpy(stage->flops, item->flops, sizeof stage->flops);
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		stage->body[phase] = PP_NULL;
	stage_measure(build, stage);
}

static void body_write(struct stage_build *build, enum pp_phase phase, struct pp_body *out)
{
	build->body = (struct pp_body_builder){.arena = build->program->arena, .stage = build->stage, .phase = phase};
	if (phase == PP_PHASE_F)
		forward_write(build);
	else if (phase == PP_PHASE_R)
		recompute_write(build);
	else
		backward_write(build);
	pp_body_finish(&build->body, out);
}

/* Tables that hold for all stages: room for the largest stage, tensors by layer. */
static void build_begin(struct stage_build *build, uint32_t most_layers)
{
	struct pp_arena *arena = build->program->arena;
	uint32_t tensor_count, use_count;
	build->tensors = pp_layer_tensors_make(arena, build->spec, &tensor_count, &use_count);
	assert(tensor_count == build->program->tensor_count && use_count == build->program->use_count);
	build->area_offset = pp_arena_alloc(arena, most_layers, sizeof *build->area_offset);
	build->home = PP_NEW_ARRAY(arena, uint32_t, most_layers);
}

static uint32_t ranks_and_stages_make(struct pp_program *program, const struct pp_stages *stages)
{
	uint32_t most_layers = 0;
	if (!program->rank)
		program->rank = PP_NEW_ARRAY(program->arena, struct pp_rank, program->ranks);
	program->stage_count = stages->count;
	program->stages = PP_NEW_ARRAY(program->arena, struct pp_stage, stages->count);
	program->bodies = pp_arena_alloc(program->arena, (size_t)stages->count * PP_PHASE_COUNT, sizeof *program->bodies);
	program->body_count = 0;
	for (uint32_t s = 0; s < stages->count; s++) {
		program->stages[s].rank = stages->items[s].rank;
		most_layers = stages->items[s].layer_count > most_layers ? stages->items[s].layer_count : most_layers;
	}
	return most_layers;
}

/* The last two slots of a rank, each as large as its hungriest body wants, or not there: workspace, and on a GPU
 * scratch. */
static void workspaces_make(struct pp_program *program, const struct pp_spec *spec)
{
	uint64_t *bytes = PP_NEW_ARRAY(program->arena, uint64_t, program->ranks);
	for (uint32_t b = 0; b < program->body_count; b++) {
		uint32_t rank = program->stages[program->bodies[b].stage].rank;
		bytes[rank] = program->bodies[b].work_bytes > bytes[rank] ? program->bodies[b].work_bytes : bytes[rank];
	}
	for (uint32_t r = 0; r < program->ranks; r++) {
		struct pp_rank *rank = &program->rank[r];
		struct pp_slot *work = &rank->slots[rank->slot_count - 2], *scratch = work + 1;
		work->bytes = bytes[r];
		scratch->bytes = spec->cluster.gpu.sms ? pp_scratch_rank_bytes(program, r) : 0;
		if (!work->bytes)
			*work = *scratch;
		rank->slot_count -= (bytes[r] == 0 ? 1u : 0u) + (scratch->bytes == 0 ? 1u : 0u);
	}
}

void pp_bodies_build(struct pp_program *program, const struct pp_spec *spec, const struct pp_stages *stages,
                     const uint8_t *phases)
{
	struct stage_build build = {.program = program, .spec = spec, .stages = stages};
	build_begin(&build, ranks_and_stages_make(program, stages));
	pp_static_slots_build(program, spec, stages);
	for (uint32_t s = 0; s < stages->count; s++) {
		struct pp_stage *stage = &program->stages[s];
		build.split = phases[s] & (1u << PP_PHASE_I | 1u << PP_PHASE_W);
		stage_begin(&build, s);
		stage_fill(&build, stage);
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			if (phase == PP_PHASE_R ? !stage->recomputes : !(phases[s] & 1u << phase))
				continue;
			stage->body[phase] = program->body_count;
			body_write(&build, (enum pp_phase)phase, &program->bodies[program->body_count++]);
		}
	}
	workspaces_make(program, spec);
}

/* ---- one layer, for its counts --------------------------------------------------------------- */

/* The layer between two norms, whose own backward takes no more than any layer's: two gradients of the hidden state. */
uint64_t pp_layer_work_bytes(const struct pp_layer *layer, const struct pp_spec *whole)
{
	const struct pp_kind *kind = pp_kinds[layer->kind];
	if (!kind->wants_input && !kind->makes_hidden)
		return 0;
	struct pp_layer layers[3], norm = *layer;
	uint64_t ticks[3][PP_PHASE_COUNT] = {0};
	norm.kind = PP_LAYER_NORM;
	norm.name = "before";
	struct pp_spec spec = {.dtype = whole->dtype,
	                       .parallel = whole->parallel,
	                       .train = {.microbatch = whole->train.microbatch},
	                       .model = {.layers = layers, .seq = layer->seq}};
	if (kind->wants_input)
		layers[spec.model.layer_count++] = norm;
	layers[spec.model.layer_count] = *layer;
	layers[spec.model.layer_count++].tie = PP_NULL;
	norm.name = "after";
	if (kind->makes_hidden)
		layers[spec.model.layer_count++] = norm;
	struct pp_stage_plan item = {.layer_count = spec.model.layer_count};
	struct pp_stages stages = {.items = &item, .count = 1, .layer_ticks = ticks};
	struct pp_program program = {.arena = pp_arena_create(NULL), .ranks = 1, .tp = whole->parallel.tp};
	pp_tensors_build(&program, &spec, &stages);
	struct stage_build build = {.program = &program, .spec = &spec, .stages = &stages, .split = true};
	build_begin(&build, ranks_and_stages_make(&program, &stages));
	stage_begin(&build, 0);
	stage_fill(&build, program.stages);
	struct pp_shape shape = pp_shape_make(layer, &spec);
	struct pp_flow hidden = {PP_FLOW_HIDDEN, spec.dtype, (uint8_t)pp_hidden_spread(&shape), shape.rows, layer->hidden};
	build.in = kind->wants_input ? hidden : (struct pp_flow){.kind = PP_FLOW_NONE};
	build.out = kind->makes_hidden ? hidden : (struct pp_flow){.kind = PP_FLOW_NONE};
	uint64_t most = 0;
	for (unsigned phase = 0; phase < (layer->recompute ? PP_PHASE_COUNT : PP_PHASE_R); phase++) {
		struct pp_body body;
		if (shape.tp == 1 && !layer->recompute && phase != PP_PHASE_B && phase != PP_PHASE_I)
			continue; /* never the larger ones */
		body_write(&build, (enum pp_phase)phase, &body);
		most = body.work_bytes > most ? body.work_bytes : most;
	}
	pp_arena_destroy(program.arena);
	return most;
}
