/* The cost model: ticks from counts, sums over stages.
 *
 * requires: counts from codegen/layer.h.
 * ensures:  times are whole nanoseconds, B = I + W exactly in every layer and stage where tp = 1, and with tp > 1 but
 * for the collectives, which B hides behind weight gradients; the same numbers on every machine: IEEE double products
 * and quotients only, rounded once per layer and phase. */
#include "cost.h"

#include "codegen/layer.h"
#include "codegen/layer_kind.h"

#include <math.h>

/* Share of the memory bandwidth that memory-bound instructions reach (cost model 1.7). */
static const double bandwidth_share = 0.85;

/* FLOPs / (peak * efficiency) for linears and attention, bytes / (0.85 * bandwidth) for the rest (cost model 1.7);
 * rounded to the nearest ns, at least 1 when there is work. A peak or bandwidth of 0 is unlimited. */
static uint64_t ticks_of(const struct pp_layer_counts *counts, enum pp_phase phase, const struct pp_gpu *gpu,
                         enum pp_dtype dtype)
{
	uint64_t flops = pp_plus(counts->matmul_flops[phase], counts->attention_flops[phase]);
	uint64_t bytes = counts->memory_bytes[phase];
	double compute = (double)gpu->flops[dtype] * gpu->efficiency, memory = (double)gpu->bandwidth * bandwidth_share;
	double nanoseconds = 0;
	if (compute > 0)
		nanoseconds += (double)flops * 1e9 / compute;
	if (memory > 0)
		nanoseconds += (double)bytes * 1e9 / memory;
	if (nanoseconds >= 9e18)
		return UINT64_MAX;
	uint64_t ticks = (uint64_t)floor(nanoseconds + 0.5);
	if (ticks == 0 && (flops || bytes))
		ticks = 1;
	return pp_plus(ticks, counts->fixed_ns[phase]);
}

/* ---- collectives of bodies ------------------------------------------------------------------- */

/* The link of the slowest tensor-parallel group. */
static struct pp_link tensor_link(const struct pp_spec *spec)
{
	uint64_t first, stride;
	return pp_tp_crosses_nodes(spec, &first, &stride) ? spec->cluster.inter : spec->cluster.intra;
}

/* As a ring of n: 2(n-1) steps of an n-th of the bytes for an allreduce, half as many for the others (cost model 1.5).
 */
static uint64_t ring_ticks(const struct pp_layer_collective *collective, const struct pp_link *link, uint64_t members)
{
	uint64_t steps = (collective->kind == PP_ALLREDUCE ? 2 : 1) * (members - 1);
	uint64_t part = collective->bytes / members + (collective->bytes % members != 0);
	return pp_times(steps, pp_transfer_ticks(link->latency, link->bandwidth, part));
}

/* exposed = max(0, comm - window) (cost model 1.6): the window is what the body computes between post and await. */
static uint64_t exposed_ticks(const struct pp_spec *spec, const struct pp_layer_collectives *list, enum pp_phase phase)
{
	const struct pp_gpu *gpu = &spec->cluster.gpu;
	struct pp_link link = tensor_link(spec);
	uint64_t total = 0;
	for (uint32_t i = 0; i < list->count; i++) {
		if (!(list->items[i].phases >> phase & 1))
			continue;
		struct pp_layer_counts window = {.matmul_flops = {[PP_PHASE_F] = list->items[i].window}};
		uint64_t hidden = list->items[i].window ? ticks_of(&window, PP_PHASE_F, gpu, (enum pp_dtype)spec->dtype) : 0;
		uint64_t ticks = ring_ticks(&list->items[i], &link, spec->parallel.tp);
		total = pp_plus(total, ticks > hidden ? ticks - hidden : 0);
	}
	return total;
}

static void add_collectives(const struct pp_spec *spec, const struct pp_layer *layer, uint64_t ticks[PP_PHASE_COUNT])
{
	struct pp_layer_collectives list;
	pp_layer_collectives_list(layer, spec, &list);
	for (unsigned phase = 0; phase < PP_PHASE_COUNT && list.count; phase++)
		ticks[phase] = pp_plus(ticks[phase], exposed_ticks(spec, &list, (enum pp_phase)phase));
}

/* ---- layers and stages ----------------------------------------------------------------------- */

/* Whether two layers have the same counts: all that distinguishes them is their place. */
static bool same_sizes(const struct pp_layer *a, const struct pp_layer *b)
{
	return a->kind == b->kind && a->kind != PP_LAYER_CUSTOM && a->hidden == b->hidden && a->heads == b->heads &&
	       a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->ffn == b->ffn &&
	       a->padded_vocab == b->padded_vocab && a->seq == b->seq && a->bias == b->bias && a->rms == b->rms &&
	       (a->act == PP_ACT_SWIGLU) == (b->act == PP_ACT_SWIGLU) && a->qkv_bias == b->qkv_bias &&
	       a->qk_norm == b->qk_norm && (a->rope_theta != 0) == (b->rope_theta != 0) && a->recompute == b->recompute;
}

void pp_cost_layers(struct pp_arena *arena, const struct pp_spec *spec, struct pp_stages *stages)
{
	const struct pp_model *model = &spec->model;
	enum pp_dtype dtype = (enum pp_dtype)spec->dtype;
	struct pp_flow flow = {.kind = PP_FLOW_NONE};
	stages->layers = PP_NEW_ARRAY(arena, struct pp_layer_counts, model->layer_count);
	stages->layer_ticks = pp_arena_alloc(arena, model->layer_count, sizeof *stages->layer_ticks);
	for (uint32_t i = 0; i < model->layer_count; i++) {
		const struct pp_layer *layer = &model->layers[i];
		struct pp_layer_counts *counts = &stages->layers[i];
		uint64_t *ticks = stages->layer_ticks[i];
		struct pp_shape shape = pp_shape_make(layer, spec);
		if (i && same_sizes(layer, layer - 1))
			*counts = counts[-1];
		else
			pp_layer_count(layer, spec, counts);
		flow = pp_flow_after(layer, &shape, flow);
		counts->output_bytes = pp_flow_bytes(&flow);
		ticks[PP_PHASE_F] = ticks_of(counts, PP_PHASE_F, &spec->cluster.gpu, dtype);
		ticks[PP_PHASE_I] = ticks_of(counts, PP_PHASE_I, &spec->cluster.gpu, dtype);
		ticks[PP_PHASE_W] = ticks_of(counts, PP_PHASE_W, &spec->cluster.gpu, dtype);
		ticks[PP_PHASE_B] = pp_plus(ticks[PP_PHASE_I], ticks[PP_PHASE_W]);
		ticks[PP_PHASE_R] = ticks_of(counts, PP_PHASE_R, &spec->cluster.gpu, dtype);
		add_collectives(spec, layer, ticks);
	}
}

/* Weights in the spec's dtype, gradients in fp32, two fp32 moments for Adam and none for SGD; where weights are bf16,
 * an fp32 master copy (cost model 1.4: fp32 Adam 4 + 4 + 8 = 16, in d shards 8 + 8 / d; bf16 weights and fp32 main
 * gradients 2 + 4 + 12 = 18 and 6 + 12 / d, where opt 12 = fp32 master 4 + m 4 + v 4). Slots of weights and gradients
 * are as long as all their shards. */
struct pp_layer_states pp_cost_states(const struct pp_spec *spec, const struct pp_layer_counts *counts)
{
	uint64_t padded = pp_times(counts->shard_params, pp_spec_shards(spec)), each = pp_dtype_size[spec->dtype];
	return (struct pp_layer_states){.weights = pp_times(padded, each),
	                                .gradients = pp_times(padded, 4),
	                                .moments =
	                                    pp_times(counts->shard_params, spec->train.optimizer == PP_ADAMW ? 8 : 0),
	                                .masters = pp_times(counts->shard_params, spec->dtype == PP_F32 ? 0 : 4)};
}

uint64_t pp_cost_static_bytes(const struct pp_spec *spec, const struct pp_layer_counts *counts)
{
	struct pp_layer_states states = pp_cost_states(spec, counts);
	return pp_plus(pp_plus(states.weights, states.gradients), pp_plus(states.moments, states.masters));
}

static void stage_sum(const struct pp_spec *spec, struct pp_stages *stages, struct pp_stage_plan *item)
{
	item->params = item->static_bytes = item->stash_bytes = item->extra_bytes = item->split_bytes = 0;
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		item->ticks[phase] = item->flops[phase] = 0;
	for (uint32_t i = item->first_layer; i < item->first_layer + item->layer_count; i++) {
		const struct pp_layer_counts *counts = &stages->layers[i];
		item->params = pp_plus(item->params, counts->params);
		item->static_bytes = pp_plus(item->static_bytes, pp_cost_static_bytes(spec, counts));
		item->stash_bytes = pp_plus(item->stash_bytes, counts->stash_bytes);
		item->extra_bytes = pp_plus(item->extra_bytes, counts->extra_bytes);
		item->split_bytes = pp_plus(item->split_bytes, counts->split_bytes);
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			item->ticks[phase] = pp_plus(item->ticks[phase], stages->layer_ticks[i][phase]);
			item->flops[phase] = pp_plus(item->flops[phase], pp_layer_flops(counts, phase));
		}
	}
}

static uint32_t stage_of(const struct pp_stages *stages, uint32_t layer)
{
	for (uint32_t s = 0; s < stages->count; s++)
		if (layer >= stages->items[s].first_layer &&
		    layer < stages->items[s].first_layer + stages->items[s].layer_count)
			return s;
	return PP_NULL;
}

/* Whether a tied head finds its weights on its own rank: from the embedding, or from an earlier head tied to it. */
static bool finds_copy(const struct pp_model *model, const struct pp_stages *stages, uint32_t head)
{
	uint32_t tie = model->layers[head].tie, own = stage_of(stages, head);
	for (uint32_t i = tie; i < head; i++) {
		bool shares = i == tie || (model->layers[i].kind == PP_LAYER_HEAD && model->layers[i].tie == tie);
		uint32_t other = shares ? stage_of(stages, i) : PP_NULL;
		if (other != PP_NULL && own != PP_NULL && stages->items[other].rank == stages->items[own].rank)
			return true;
	}
	return false;
}

void pp_cost_stages(const struct pp_spec *spec, struct pp_stages *stages)
{
	for (uint32_t s = 0; s < stages->count; s++)
		stage_sum(spec, stages, &stages->items[s]);
	for (uint32_t i = 0; i < spec->model.layer_count; i++) {
		const struct pp_layer *layer = &spec->model.layers[i];
		if (layer->kind != PP_LAYER_HEAD || layer->tie == PP_NULL || !finds_copy(&spec->model, stages, i))
			continue;
		/* Weight, moments and master are there already; the gradient of this use is its own. */
		struct pp_stage_plan *item = &stages->items[stage_of(stages, i)];
		item->params -= stages->layers[i].params;
		struct pp_layer_states states = pp_cost_states(spec, &stages->layers[i]);
		item->static_bytes -= pp_plus(pp_plus(states.weights, states.moments), states.masters);
	}
}
