/* Parameter tensors, their uses by stages, and the static slots that hold them.
 *
 * requires: a resolved model; stages that cover its layers in order.
 * ensures:  tensor ids ascend in layer order and depend on the model alone; a tied tensor is one tensor with several
 *           uses; uses sorted by (tensor, layer); on each rank one weight slot, one set of moments and, where
 *           weights are not f32, one master slot per tensor, one gradient slot per use. */
#include "layer_kind.h"

#include <math.h>
#include <string.h>

const char *pp_layer_prefix(struct pp_arena *arena, const struct pp_layer *layer)
{
	return layer->indexed ? pp_arena_printf(arena, "%s.%u", layer->name, layer->index) : layer->name;
}

static bool is_tied(const struct pp_layer *layer)
{
	return layer->kind == PP_LAYER_HEAD && layer->tie != PP_NULL;
}

static void list_params(const struct pp_spec *spec, const struct pp_layer *layer, struct pp_param params[PP_PARAMS_MAX])
{
	struct pp_shape shape = pp_shape_make(layer, spec);
	for (unsigned k = 0; k < PP_PARAMS_MAX; k++)
		params[k] = (struct pp_param){0};
	pp_kinds[layer->kind]->params(layer, &shape, params);
}

struct pp_layer_tensors *pp_layer_tensors_make(struct pp_arena *arena, const struct pp_spec *spec,
                                               uint32_t *tensor_count, uint32_t *use_count)
{
	const struct pp_model *model = &spec->model;
	struct pp_layer_tensors *table = PP_NEW_ARRAY(arena, struct pp_layer_tensors, model->layer_count);
	struct pp_param params[PP_PARAMS_MAX];
	uint32_t tensors = 0, uses = 0;
	for (uint32_t i = 0; i < model->layer_count; i++) {
		list_params(spec, &model->layers[i], params);
		for (unsigned k = 0; k < PP_PARAMS_MAX; k++)
			table[i].tensor[k] = params[k].rows && !is_tied(&model->layers[i]) ? tensors++ : PP_NULL;
	}
	for (uint32_t i = 0; i < model->layer_count; i++)
		if (is_tied(&model->layers[i]))
			table[i].tensor[0] = table[model->layers[i].tie].tensor[0];
	/* Number the uses: all of tensor 0 in layer order, then all of tensor 1, … */
	uint32_t *next = PP_NEW_ARRAY(arena, uint32_t, tensors + 1);
	for (uint32_t i = 0; i < model->layer_count; i++)
		for (unsigned k = 0; k < PP_PARAMS_MAX; k++)
			if (table[i].tensor[k] != PP_NULL)
				next[table[i].tensor[k] + 1]++;
	for (uint32_t t = 0; t < tensors; t++)
		next[t + 1] += next[t];
	for (uint32_t i = 0; i < model->layer_count; i++) {
		for (unsigned k = 0; k < PP_PARAMS_MAX; k++) {
			table[i].use[k] = table[i].tensor[k] == PP_NULL ? PP_NULL : next[table[i].tensor[k]]++;
			uses += table[i].tensor[k] != PP_NULL;
		}
	}
	*tensor_count = tensors;
	*use_count = uses;
	return table;
}

/* Normal with the model's deviation; projections onto the residual stream, of which there are two a block, start
 * smaller by sqrt(2 * blocks), so that the stream's variance does not grow with depth (GPT-2). */
static double deviation(const struct pp_model *model, const struct pp_layer *layer, const struct pp_param *param)
{
	if (param->init != PP_INIT_NORMAL)
		return 0;
	return param->residual && layer->block_total ? model->init_std / sqrt(2.0 * layer->block_total) : model->init_std;
}

static uint8_t tp_grad(const struct pp_param *param)
{
	if (param->shard != PP_NOT_SHARDED)
		return PP_TP_SHARDED;
	return param->partial ? PP_TP_REPLICATED_PARTIAL : PP_TP_REPLICATED_EQUAL;
}

static struct pp_tensor tensor_make(struct pp_arena *arena, const struct pp_model *model, const struct pp_layer *layer,
                                    const struct pp_param *param, enum pp_dtype dtype)
{
	bool matrix = param->columns != 0;
	return (struct pp_tensor){
	    .name = pp_arena_printf(arena, "%s.%s", pp_layer_prefix(arena, layer), param->suffix),
	    .rows = (uint32_t)param->rows,
	    .columns = matrix ? (uint32_t)param->columns : 1,
	    .dims = matrix ? 2 : 1,
	    .dtype = (uint8_t)dtype,
	    .init = param->init,
	    .tp_grad = tp_grad(param),
	    .shard = param->shard,
	    .decay = matrix,
	    .std = deviation(model, layer, param),
	};
}

void pp_tensors_build(struct pp_program *program, const struct pp_spec *spec, const struct pp_stages *stages)
{
	const struct pp_model *model = &spec->model;
	struct pp_arena *arena = program->arena;
	struct pp_layer_tensors *table = pp_layer_tensors_make(arena, spec, &program->tensor_count, &program->use_count);
	program->tensors = PP_NEW_ARRAY(arena, struct pp_tensor, program->tensor_count);
	program->uses = PP_NEW_ARRAY(arena, struct pp_use, program->use_count);
	for (uint32_t s = 0; s < stages->count; s++) {
		const struct pp_stage_plan *item = &stages->items[s];
		for (uint32_t i = item->first_layer; i < item->first_layer + item->layer_count; i++) {
			struct pp_param params[PP_PARAMS_MAX];
			list_params(spec, &model->layers[i], params);
			for (unsigned k = 0; k < PP_PARAMS_MAX; k++) {
				uint32_t tensor = table[i].tensor[k];
				if (tensor == PP_NULL)
					continue;
				program->uses[table[i].use[k]] =
				    (struct pp_use){.tensor = tensor, .stage = s, .weight = PP_NULL, .grad = PP_NULL};
				if (!is_tied(&model->layers[i]))
					program->tensors[tensor] =
					    tensor_make(arena, model, &model->layers[i], &params[k], (enum pp_dtype)spec->dtype);
			}
		}
	}
}

/* ---- static slots ---------------------------------------------------------------------------- */

struct slot_list {
	struct pp_slot *items;
	size_t count, capacity;
};

static uint32_t slot_add(struct pp_program *program, struct slot_list *list, enum pp_slot_class class, uint32_t tensor,
                         uint64_t bytes)
{
	*PP_PUSH(program->arena, &list->items, &list->count, &list->capacity, struct pp_slot) =
	    (struct pp_slot){.class = (uint8_t) class, .tensor = tensor, .bytes = bytes};
	return (uint32_t)list->count - 1;
}

/* A slot as long as what it holds. */
static uint32_t content_slot_add(struct pp_program *program, struct slot_list *list, enum pp_slot_class class,
                                 uint32_t tensor)
{
	struct pp_slot slot = {.class = (uint8_t) class, .tensor = tensor};
	uint64_t bytes = 0;
	pp_slot_content_bytes(program, &slot, &bytes);
	return slot_add(program, list, class, tensor, bytes);
}

/* The earlier use of the same tensor on the same rank, or NULL. A tensor has few uses. */
static const struct pp_use *sharer(const struct pp_program *program, uint32_t use)
{
	const struct pp_use *own = &program->uses[use];
	for (const struct pp_use *other = own; other > program->uses && other[-1].tensor == own->tensor;) {
		other--;
		if (program->stages[other->stage].rank == program->stages[own->stage].rank)
			return other;
	}
	return NULL;
}

static void tensor_slots(struct pp_program *program, const struct pp_spec *spec, struct slot_list *lists)
{
	for (uint32_t u = 0; u < program->use_count; u++) {
		struct pp_use *use = &program->uses[u];
		const struct pp_use *shared = sharer(program, u);
		use->weight =
		    shared ? shared->weight
		           : content_slot_add(program, &lists[program->stages[use->stage].rank], PP_SLOT_WEIGHT, use->tensor);
	}
	for (uint32_t u = 0; u < program->use_count; u++) {
		struct pp_use *use = &program->uses[u];
		use->grad = content_slot_add(program, &lists[program->stages[use->stage].rank], PP_SLOT_GRAD, use->tensor);
	}
	for (uint32_t u = 0; u < program->use_count && spec->train.optimizer == PP_ADAMW; u++) {
		const struct pp_use *use = &program->uses[u];
		for (unsigned moment = 0; moment < 2 && !sharer(program, u); moment++)
			content_slot_add(program, &lists[program->stages[use->stage].rank], PP_SLOT_MOMENT, use->tensor);
	}
	for (uint32_t u = 0; u < program->use_count; u++) {
		const struct pp_use *use = &program->uses[u];
		if (pp_tensor_has_master(&program->tensors[use->tensor]) && !sharer(program, u))
			content_slot_add(program, &lists[program->stages[use->stage].rank], PP_SLOT_MASTER, use->tensor);
	}
}

/* Parameters of custom layers belong to no tensor, but take up their room. */
static void custom_slots(struct pp_program *program, const struct pp_spec *spec, const struct pp_stages *stages,
                         struct slot_list *lists)
{
	for (uint32_t s = 0; s < stages->count; s++) {
		const struct pp_stage_plan *item = &stages->items[s];
		for (uint32_t i = item->first_layer; i < item->first_layer + item->layer_count; i++) {
			const struct pp_layer *layer = &spec->model.layers[i];
			if (layer->kind != PP_LAYER_CUSTOM || layer->custom.params == 0)
				continue;
			uint32_t shards = pp_spec_shards(spec);
			uint64_t shard = layer->custom.params / shards + (layer->custom.params % shards != 0),
			         padded = pp_times(shard, shards);
			slot_add(program, &lists[item->rank], PP_SLOT_WEIGHT, PP_NULL,
			         pp_times(padded, pp_dtype_size[spec->dtype]));
			slot_add(program, &lists[item->rank], PP_SLOT_GRAD, PP_NULL, pp_times(padded, 4));
			for (unsigned moment = 0; moment < 2 && spec->train.optimizer == PP_ADAMW; moment++)
				slot_add(program, &lists[item->rank], PP_SLOT_MOMENT, PP_NULL, pp_times(shard, 4));
			if (spec->dtype != PP_F32)
				slot_add(program, &lists[item->rank], PP_SLOT_MASTER, PP_NULL, pp_times(shard, 4));
		}
	}
}

/* An array of exactly as many as there are: the lowering adds dynamic slots behind them. */
static void slots_keep(struct pp_arena *arena, struct pp_rank *rank, const struct slot_list *list)
{
	rank->slot_count = (uint32_t)list->count;
	rank->slots = PP_NEW_ARRAY(arena, struct pp_slot, list->count);
	memcpy(rank->slots, list->items, list->count * sizeof *list->items);
}

void pp_static_slots_build(struct pp_program *program, const struct pp_spec *spec, const struct pp_stages *stages)
{
	struct slot_list *lists = PP_NEW_ARRAY(program->arena, struct slot_list, program->ranks);
	tensor_slots(program, spec, lists);
	custom_slots(program, spec, stages, lists);
	for (uint32_t r = 0; r < program->ranks; r++) {
		if (spec->model.trains) {
			content_slot_add(program, &lists[r], PP_SLOT_LOSSES, PP_NULL);
			content_slot_add(program, &lists[r], PP_SLOT_NORMS, PP_NULL);
			content_slot_add(program, &lists[r], PP_SLOT_SCALE, PP_NULL);
		}
		slot_add(program, &lists[r], PP_SLOT_WORK, PP_NULL, 0);
		slot_add(program, &lists[r], PP_SLOT_SCRATCH, PP_NULL, 0);
		slots_keep(program->arena, &program->rank[r], &lists[r]);
	}
}
