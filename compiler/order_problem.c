/* order_problem.h. O(stages log stages).
 *
 * Bytes of stashes, extras and messages are those of their slots, so an order takes of an arena what the plan will give
 * to its stashes and extras. Beside that come static slots, messages and workspace: an estimate before there is a plan,
 * and afterwards what the plan took. */
#include "order_problem.h"

#include "codegen/crossings.h"
#include "codegen/link.h"
#include "ir/grid.h"
#include "ir/order_program.h"

/* Bytes of the message after a stage: the output of the last layer so far. */
static uint64_t border_bytes(const struct pp_stages *stages, uint32_t stage)
{
	const struct pp_stage_plan *item = &stages->items[stage];
	uint32_t layers = item->first_layer + item->layer_count;
	return layers ? stages->layers[layers - 1].output_bytes : 0;
}

/* A channel has the link of its first message, as in the lowering. */
static void price_hops(struct pp_arena *scratch, const struct pp_spec *spec, const struct pp_stages *stages,
                       const uint32_t *stage_rank, struct pp_order_stage *out)
{
	struct pp_program grid = {.ranks = spec->parallel.pp,
	                          .tp = spec->parallel.tp,
	                          .dp = spec->parallel.dp,
	                          .rank_order = (uint8_t)pp_rank_order_of(spec->parallel.rank_order),
	                          .gpus = spec->cluster.gpus};
	struct pp_crossing *crossings;
	uint32_t count = pp_crossings_find(scratch, stage_rank, stages->count, &crossings);
	struct pp_link link = {0};
	for (uint32_t i = 0; i < count; i++) {
		const struct pp_crossing *at = &crossings[i];
		uint64_t bytes = border_bytes(stages, at->border);
		if (i == 0 || !pp_crossings_share(at - 1, at))
			link = pp_link_channel(&grid, spec, at->source, at->destination, (enum pp_value)at->kind, bytes);
		uint64_t hop = pp_transfer_ticks(link.latency, link.bandwidth, bytes);
		if (at->kind == PP_ACT)
			out[pp_crossing_maker(at)].forward_hop = hop;
		else
			out[pp_crossing_maker(at)].backward_hop = hop;
	}
}

/* ---- room ------------------------------------------------------------------------------------ */

/* What every rank needs beside its layers at least: the workspace of its hungriest layer, and what comes into and goes
 * out of one of its stages. `messages`: [ranks], zeroed. */
static void guess_headroom(const struct pp_stages *stages, const uint32_t *stage_rank, uint64_t *messages,
                           uint64_t *bytes)
{
	for (uint32_t s = 0; s < stages->count; s++) {
		const struct pp_stage_plan *item = &stages->items[s];
		uint64_t *work = &bytes[stage_rank[s]], *most = &messages[stage_rank[s]];
		for (uint32_t i = item->first_layer; i < item->first_layer + item->layer_count; i++)
			*work = stages->layers[i].work_bytes > *work ? stages->layers[i].work_bytes : *work;
		uint64_t in = s ? border_bytes(stages, s - 1) : 0, out = s + 1 < stages->count ? border_bytes(stages, s) : 0;
		*most = pp_plus(in, out) > *most ? pp_plus(in, out) : *most;
	}
}

uint64_t pp_order_limit(const struct pp_spec *spec, uint64_t memory)
{
	const struct pp_gpu *gpu = &spec->cluster.gpu;
	uint64_t most =
	    gpu->memory ? gpu->memory - (gpu->reserve < gpu->memory ? gpu->reserve : gpu->memory) : PP_ROOM_UNLIMITED;
	return memory && memory < most ? memory : most;
}

static uint64_t *find_room(struct pp_arena *arena, const struct pp_spec *spec, const uint32_t *stage_rank,
                           const struct pp_stages *stages, const uint64_t *headroom, uint64_t memory)
{
	uint32_t ranks = spec->parallel.pp;
	uint64_t *room = PP_NEW_ARRAY(arena, uint64_t, ranks), *taken = PP_NEW_ARRAY(arena, uint64_t, ranks),
	         *messages = PP_NEW_ARRAY(arena, uint64_t, ranks);
	if (!headroom)
		guess_headroom(stages, stage_rank, messages, taken);
	for (uint32_t r = 0; r < ranks; r++)
		taken[r] = pp_plus(taken[r], messages[r]);
	for (uint32_t s = 0; s < stages->count; s++)
		taken[stage_rank[s]] = pp_plus(taken[stage_rank[s]], stages->items[s].static_bytes);
	for (uint32_t r = 0; r < ranks; r++) {
		uint64_t used = pp_plus(taken[r], headroom ? headroom[r] : 0), most = pp_order_limit(spec, memory);
		room[r] = most == PP_ROOM_UNLIMITED ? most : most - (used < most ? used : most);
	}
	return room;
}

/* Tokens and labels that a microbatch brings to a stage, kept until its backward is over; 0: it loads none. */
static uint64_t loaded_bytes(const struct pp_spec *spec, const struct pp_stage_plan *item)
{
	bool tokens = false, labels = false;
	for (uint32_t i = item->first_layer; i < item->first_layer + item->layer_count; i++) {
		tokens |= spec->model.layers[i].kind == PP_LAYER_EMBEDDING;
		labels |= spec->model.layers[i].kind == PP_LAYER_HEAD;
	}
	uint64_t each = pp_times(pp_times(spec->train.microbatch, spec->model.seq), pp_dtype_size[PP_I32]);
	return tokens || labels ? pp_aligned(pp_times(each, tokens && labels ? 2 : 1)) : 0;
}

/* Of a slot that is there only where it holds something. */
static uint64_t slot_bytes(uint64_t bytes)
{
	return bytes ? pp_aligned(bytes) : 0;
}

struct pp_order_problem *pp_order_of_stages(struct pp_arena *arena, const struct pp_spec *spec,
                                            const uint32_t *stage_rank, const struct pp_stages *stages,
                                            const uint64_t *headroom, uint64_t memory)
{
	struct pp_order_stage *out = PP_NEW_ARRAY(arena, struct pp_order_stage, stages->count);
	for (uint32_t s = 0; s < stages->count; s++) {
		const struct pp_stage_plan *item = &stages->items[s];
		uint64_t both = pp_plus(item->extra_bytes, item->split_bytes);
		bool recomputes = false;
		for (uint32_t i = item->first_layer; i < item->first_layer + item->layer_count; i++)
			recomputes |= spec->model.layers[i].recompute != 0;
		out[s] = (struct pp_order_stage){.rank = stage_rank[s],
		                                 .ticks = {[PP_F] = item->ticks[PP_PHASE_F],
		                                           [PP_B] = item->ticks[PP_PHASE_B],
		                                           [PP_I] = item->ticks[PP_PHASE_I],
		                                           [PP_W] = item->ticks[PP_PHASE_W]},
		                                 .recompute = recomputes ? item->ticks[PP_PHASE_R] : 0,
		                                 .held = pp_plus(pp_aligned(item->stash_bytes), loaded_bytes(spec, item)),
		                                 .more_fused = recomputes ? pp_aligned(item->extra_bytes) : 0,
		                                 .more_split = recomputes ? pp_aligned(both) : slot_bytes(both)};
	}
	struct pp_arena *scratch = pp_arena_scratch(arena);
	price_hops(scratch, spec, stages, stage_rank, out);
	pp_arena_destroy(scratch);
	struct pp_order_problem *problem = PP_NEW(arena, struct pp_order_problem);
	*problem = (struct pp_order_problem){.ranks = spec->parallel.pp,
	                                     .stages = stages->count,
	                                     .microbatches = spec->microbatches,
	                                     .stage = out,
	                                     .room = find_room(arena, spec, stage_rank, stages, headroom, memory),
	                                     .pair_permille = spec->pair_permille,
	                                     .queued = true};
	return problem;
}

void pp_order_be_certain(struct pp_arena *arena, const struct pp_spec *spec, const uint64_t *least, uint64_t memory,
                         bool planned, struct pp_order_problem *problem)
{
	uint64_t *most = PP_NEW_ARRAY(arena, uint64_t, problem->ranks);
	for (uint32_t r = 0; r < problem->ranks; r++) {
		most[r] = pp_order_limit(spec, memory);
		if (most[r] != PP_ROOM_UNLIMITED)
			most[r] -= least[r] < most[r] ? least[r] : most[r];
	}
	problem->most_room = most;
	if (!planned)
		problem->room = most;
}

/* Bytes that one microbatch takes of a rank, the others done; by the form of the backward that holds more, or less. */
static uint64_t one_microbatch(const struct pp_order_problem *problem, uint32_t rank, bool split)
{
	uint64_t held = 0, more = 0;
	for (uint32_t s = 0; s < problem->stages; s++) {
		const struct pp_order_stage *stage = &problem->stage[s];
		if (stage->rank != rank)
			continue;
		uint64_t least = stage->more_fused < stage->more_split ? stage->more_fused : stage->more_split;
		uint64_t here = split ? stage->more_split : least;
		held = pp_plus(held, stage->held);
		more = here > more ? here : more;
	}
	return pp_plus(held, more);
}

void pp_order_squeeze(struct pp_arena *arena, unsigned halvings, struct pp_order_problem *problem)
{
	uint64_t *room = PP_NEW_ARRAY(arena, uint64_t, problem->ranks);
	const uint64_t *most = problem->most_room ? problem->most_room : problem->room;
	for (uint32_t r = 0; r < problem->ranks; r++) {
		uint64_t least = one_microbatch(problem, r, true);
		if (least > most[r])
			least = one_microbatch(problem, r, false);
		room[r] = problem->room[r] < least && least <= most[r] ? least : problem->room[r];
		if (room[r] != PP_ROOM_UNLIMITED && room[r] > least)
			room[r] = least + ((room[r] - least) >> halvings);
	}
	problem->room = room;
}

bool pp_order_shortage(const struct pp_order_problem *problem, uint64_t *bytes)
{
	bool any = false;
	for (uint32_t r = 0; r < problem->ranks; r++) {
		uint64_t needed = one_microbatch(problem, r, false);
		if (problem->room[r] >= needed)
			continue;
		bytes[r] = pp_plus(bytes[r], needed - problem->room[r]);
		any = true;
	}
	return any;
}

uint64_t *pp_order_headroom(struct pp_arena *arena, const struct pp_program *program, const struct pp_stages *stages,
                            const uint64_t *before)
{
	uint64_t *headroom = PP_NEW_ARRAY(arena, uint64_t, program->ranks);
	struct pp_arena *scratch = pp_arena_scratch(arena);
	uint64_t *counted = PP_NEW_ARRAY(scratch, uint64_t, program->ranks);
	struct pp_order_times times;
	const struct pp_named_program *train = pp_program_find(program, "train");
	const struct pp_order_problem *problem = pp_order_of_program(scratch, program);
	bool ran = pp_order_run(scratch, problem, pp_order_rows_of(scratch, program, train), false, &times);
	for (uint32_t s = 0; s < stages->count; s++)
		counted[stages->items[s].rank] = pp_plus(counted[stages->items[s].rank], stages->items[s].static_bytes);
	for (uint32_t r = 0; r < program->ranks; r++) {
		uint64_t planned = program->rank[r].arena_bytes;
		counted[r] = pp_plus(counted[r], ran ? times.rank[r].peak : 0);
		headroom[r] = planned > counted[r] ? planned - counted[r] : 0;
		if (before && before[r] > headroom[r])
			headroom[r] = before[r];
	}
	pp_arena_destroy(scratch);
	return headroom;
}
