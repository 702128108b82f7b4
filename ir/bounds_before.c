/* The problem as the bounds see it, and which actions of a rank come before which others.
 * requires: stages on ranks below `ranks`.
 * ensures:  times small enough that no sum of them overflows; lags closed under composition.
 *
 * Relations between tracks of one rank, for its stages a < b and microbatch k:
 *   data flow  F_a(k) < F_b(k) < I_b(k) < I_a(k) < W_a(k), and every track in order.
 *   memory     with h_t held by stage t, x_t the part of it that stays after I, and the room M:
 *     - when F_s(k) starts, F_t of k+1 microbatches has started for every t <= s, and microbatch k itself is still held
 *       there. If only n of W_t have ended: (k - n) x_t + sum of h_t over t <= s fits into M.
 *     - if only n of I_u have ended, u >= s, microbatches n..k hold all of t <= s, since I_t follows I_u. Nothing of
 *       them is given back before I_u(n) ends, and that needs F of the stages between s and u too:
 *       (k + 1 - n) sum of h_t over t <= s, + sum of h_t over s < t <= u, + what I_u takes besides fit into M.
 *     - if only n of I_u have ended when F_s(k) starts, u < s: microbatches n..k hold all of t <= u, and k all of t <=
 * s: (k + 1 - n) sum of h_t over t <= u, + sum of h_t over u < t <= s fit into M. Whatever is held, the next bytes to
 * be given back need an I that is still to start, or one whose W is pending: so the least of what any stage's I takes
 * besides is never free for stashes, and comes off M from the start. */
#include "bounds_state.h"

#include "capped.h"

#include <string.h>

/* More stages on one rank than this, and only their data flow is looked at: the closure is cubic in them. */
enum { MOST_RELATED = 32 };

/* Actions that a pass looks at, about; and microbatches, at least. */
enum { PASS_ACTIONS = 1 << 15, LEAST_WINDOW = 64, FEW_RANKS = 128 };

static int64_t capped(uint64_t ticks, uint64_t most)
{
	return (int64_t)(ticks < most ? ticks : most);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t scaled(const struct pp_order_problem *problem, uint64_t ticks)
{
	uint64_t permille = problem->pair_permille;
	return permille && permille < 1000 ? ticks / 1000 * permille + ticks % 1000 * permille / 1000 : ticks;
}

/* Times of a stage for a way to do the backward. Where both are allowed, B is an I as short as the shorter of them and
 * what is left of it a W, and W as short as the shorter of these. */
static void read_stage(struct pp_bound_stage *stage, const struct pp_order_problem *problem,
                       const struct pp_order_stage *given, enum pp_bound_mode mode, uint64_t most)
{
	uint64_t forward = scaled(problem, given->ticks[PP_F]), fused = scaled(problem, given->ticks[PP_B]);
	uint64_t input = scaled(problem, given->ticks[PP_I]), weight = scaled(problem, given->ticks[PP_W]);
	*stage = (struct pp_bound_stage){.rank = given->rank,
	                                 .place = stage->place,
	                                 .ticks[PP_BOUND_F] = capped(forward, most),
	                                 .forward_hop = capped(given->forward_hop, most)};
	if (mode == PP_BOUND_FORWARD)
		return;
	stage->recompute = capped(given->recompute, most);
	stage->backward_hop = capped(given->backward_hop, most);
	stage->held = given->held;
	if (mode == PP_BOUND_FUSED) {
		stage->ticks[PP_BOUND_I] = capped(fused, most);
		stage->more = given->more_fused;
		return;
	}
	stage->ticks[PP_BOUND_I] = capped(least(fused, input), most);
	stage->ticks[PP_BOUND_W] = capped(fused > input ? least(fused - input, weight) : 0, most);
	stage->more = least(given->more_fused, given->more_split);
	stage->early = least(given->early, given->held);
}

static void list_stages(struct pp_bound_state *state)
{
	for (uint32_t s = 0; s < state->stages; s++)
		state->rank[state->stage[s].rank].count++;
	for (uint32_t r = 0; r < state->ranks; r++) {
		state->rank[r].stages = PP_NEW_ARRAY(state->arena, uint32_t, state->rank[r].count);
		state->rank[r].count = 0;
	}
	for (uint32_t s = 0; s < state->stages; s++) {
		struct pp_bound_rank *rank = &state->rank[state->stage[s].rank];
		state->stage[s].place = rank->count;
		rank->stages[rank->count++] = s;
	}
}

/* Where memory has no room for what I keeps for W, even with a single microbatch, there is only B. */
static void leave_out_split(struct pp_bound_state *state, const struct pp_order_problem *problem, uint64_t most)
{
	for (uint32_t r = 0; r < state->ranks; r++) {
		uint64_t held = 0;
		for (uint32_t i = 0; i < state->rank[r].count; i++) {
			uint32_t s = state->rank[r].stages[i];
			held = pp_plus(held, problem->stage[s].held);
			if (pp_plus(held, problem->stage[s].more_split) > state->rank[r].room)
				read_stage(&state->stage[s], problem, &problem->stage[s], PP_BOUND_FUSED, most);
		}
	}
}

struct pp_bound_state pp_bound_begin(struct pp_arena *arena, const struct pp_order_problem *problem,
                                     enum pp_bound_mode mode, bool roomy)
{
	struct pp_bound_state state = {.arena = arena,
	                               .ranks = problem->ranks,
	                               .stages = problem->stages,
	                               .microbatches = problem->microbatches,
	                               .stage = PP_NEW_ARRAY(arena, struct pp_bound_stage, problem->stages),
	                               .rank = PP_NEW_ARRAY(arena, struct pp_bound_rank, problem->ranks)};
	/* Every time of the bounds is a sum of lengths and hops of different actions, or less: with each of these at most
	 * this long, none overflows. Shorter times are a relaxation too. */
	uint64_t parts = pp_plus(pp_times(pp_times(problem->stages, problem->microbatches), 8), 8);
	uint64_t most = ((uint64_t)1 << 60) / parts;
	for (uint32_t s = 0; s < problem->stages; s++)
		read_stage(&state.stage[s], problem, &problem->stage[s], mode, most);
	list_stages(&state);
	/* Warm-ups that memory cuts short are seen to the end where ranks have room for about what 1f1b takes. */
	uint64_t window = PASS_ACTIONS / PP_BOUND_KINDS / problem->stages;
	uint64_t needed = LEAST_WINDOW + (problem->ranks <= FEW_RANKS ? 2 * problem->ranks : 0);
	window = window > needed ? window : needed;
	state.window = (uint32_t)least(window, problem->microbatches);
	for (uint32_t r = 0; r < problem->ranks; r++)
		state.rank[r].room = roomy || mode == PP_BOUND_FORWARD ? PP_ROOM_UNLIMITED : problem->room[r];
	if (mode == PP_BOUND_MIXED)
		leave_out_split(&state, problem, most);
	state.channel = pp_order_queues(arena, problem);
	return state;
}

/* ---- relations ------------------------------------------------------------------------------- */

static int32_t *lag_of(const struct pp_bound_rank *rank, uint32_t place, enum pp_bound_kind kind, uint32_t to_place,
                       enum pp_bound_kind to_kind)
{
	return &rank->lag[(size_t)(place * PP_BOUND_KINDS + kind) * rank->count * PP_BOUND_KINDS +
	                  to_place * PP_BOUND_KINDS + to_kind];
}

static void relate_flow(const struct pp_bound_rank *rank)
{
	for (uint32_t a = 0; a < rank->count; a++) {
		for (unsigned kind = 0; kind < PP_BOUND_KINDS; kind++)
			*lag_of(rank, a, kind, a, kind) = -1;
		*lag_of(rank, a, PP_BOUND_F, a, PP_BOUND_I) = 0;
		*lag_of(rank, a, PP_BOUND_I, a, PP_BOUND_W) = 0;
		if (a + 1 == rank->count)
			continue;
		*lag_of(rank, a, PP_BOUND_F, a + 1, PP_BOUND_F) = 0;
		*lag_of(rank, a + 1, PP_BOUND_I, a, PP_BOUND_I) = 0;
	}
}

static void tighten(int32_t *lag, uint64_t behind, uint32_t microbatches)
{
	if (behind < microbatches && -(int64_t)behind > *lag)
		*lag = (int32_t) - (int64_t)behind;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static void relate_memory(const struct pp_bound_state *state, const struct pp_bound_rank *rank, uint64_t whole)
{
	uint64_t up_to = 0; /* held by one microbatch on the stages up to place s */
	for (uint32_t s = 0; s < rank->count; s++) {
		up_to = pp_plus(up_to, state->stage[rank->stages[s]].held);
		uint64_t up_to_t = 0;
		for (uint32_t t = 0; t <= s; t++) {
			const struct pp_bound_stage *stage = &state->stage[rank->stages[t]];
			uint64_t stays = stage->held - stage->early;
			up_to_t = pp_plus(up_to_t, stage->held);
			if (stays)
				tighten(lag_of(rank, t, PP_BOUND_W, s, PP_BOUND_F), less(rank->room, up_to) / stays + 1,
				        state->microbatches);
			if (up_to_t)
				tighten(lag_of(rank, t, PP_BOUND_I, s, PP_BOUND_F), less(rank->room, less(up_to, up_to_t)) / up_to_t,
				        state->microbatches);
		}
		uint64_t between = 0;
		for (uint32_t u = s; u < rank->count && up_to; u++) {
			const struct pp_bound_stage *stage = &state->stage[rank->stages[u]];
			if (u > s)
				between = pp_plus(between, stage->held);
			tighten(lag_of(rank, u, PP_BOUND_I, s, PP_BOUND_F), less(whole, pp_plus(between, stage->more)) / up_to,
			        state->microbatches);
		}
	}
}

/* x(k + a) before y(k) and y(k + b) before z(k) give x(k + a + b) before z(k). */
static void close_relations(const struct pp_bound_rank *rank, uint32_t microbatches)
{
	uint32_t tracks = rank->count * PP_BOUND_KINDS;
	for (uint32_t y = 0; y < tracks; y++) {
		for (uint32_t x = 0; x < tracks; x++) {
			int32_t first = rank->lag[(size_t)x * tracks + y];
			if (first == PP_BOUND_NEVER || x == y)
				continue;
			for (uint32_t z = 0; z < tracks; z++) {
				int32_t second = rank->lag[(size_t)y * tracks + z], *lag = &rank->lag[(size_t)x * tracks + z];
				if (second == PP_BOUND_NEVER || z == y || (int64_t)first + second <= -(int64_t)microbatches)
					continue;
				if (first + second > *lag)
					*lag = first + second;
			}
		}
	}
}

/* Take off what is never free for stashes; false: one microbatch does not fit. Room for everything at once is no limit.
 */
static bool fit_room(struct pp_bound_state *state, struct pp_bound_rank *rank, uint64_t *needed)
{
	uint64_t up_to = 0, spare = UINT64_MAX, all = 0;
	*needed = 0;
	for (uint32_t s = 0; s < rank->count; s++) {
		const struct pp_bound_stage *stage = &state->stage[rank->stages[s]];
		up_to = pp_plus(up_to, stage->held);
		spare = least(spare, stage->more);
		all = pp_plus(all, pp_times(pp_plus(stage->held, stage->more), state->microbatches));
		if (pp_plus(up_to, stage->more) > *needed)
			*needed = pp_plus(up_to, stage->more);
	}
	if (rank->room == PP_ROOM_UNLIMITED || rank->count == 0)
		return true;
	if (*needed > rank->room)
		return false;
	rank->room = rank->room < all ? rank->room - spare : PP_ROOM_UNLIMITED;
	state->cramped |= rank->room != PP_ROOM_UNLIMITED;
	return true;
}

bool pp_bound_before(struct pp_bound_state *state, const struct pp_order_problem *problem, uint32_t *narrow,
                     uint64_t *needed)
{
	for (uint32_t r = 0; r < state->ranks; r++) {
		struct pp_bound_rank *rank = &state->rank[r];
		*narrow = r;
		if (!fit_room(state, rank, needed))
			return false;
		rank->related = rank->count > 0 && rank->count <= MOST_RELATED;
		if (!rank->related)
			continue;
		size_t tracks = (size_t)rank->count * PP_BOUND_KINDS;
		rank->lag = PP_NEW_ARRAY(state->arena, int32_t, tracks * tracks);
		for (size_t i = 0; i < tracks * tracks; i++)
			rank->lag[i] = PP_BOUND_NEVER;
		relate_flow(rank);
		if (rank->room != PP_ROOM_UNLIMITED)
			relate_memory(state, rank, problem->room[r]);
		close_relations(rank, state->microbatches);
		rank->pool = pp_bound_pool(state, rank);
	}
	return true;
}
