/* Ranks whose stashes are all alike: then a forward waits for a number of W of any stages, not for certain ones.
 *
 * With room for c stashes, when F_s(k) starts at least sum over the rank's stages t of (F_t started) - c of its W have
 * ended: F_t has started k + 1 times for t <= s, and k + 1 + lag times where lag says so for t > s. All of them are of
 * microbatches before k. So the n-th W of the rank, in whatever order, comes before that forward if n is below this
 * number, and starts no earlier than the n-th smallest earliest start of the W of microbatches before k. For single
 * stages the lags of bounds_before.c say the same; in a V they only say what each stage must give back if the other
 * gives back all that it can. */
#include "bounds_state.h"

uint32_t pp_bound_pool(const struct pp_bound_state *state, const struct pp_bound_rank *rank)
{
	if (!rank->related || rank->room == PP_ROOM_UNLIMITED || rank->count < 2 || state->window < state->microbatches)
		return 0;
	uint64_t held = state->stage[rank->stages[0]].held;
	for (uint32_t i = 0; i < rank->count; i++)
		if (state->stage[rank->stages[i]].held != held || state->stage[rank->stages[i]].early)
			return 0;
	uint64_t most = (uint64_t)rank->count * state->microbatches;
	return held == 0 || rank->room / held >= most ? 0 : (uint32_t)(rank->room / held);
}

/* Before F of microbatch k on the stage at `place`. */
static int64_t before_forward(const struct pp_bound_rank *rank, uint32_t place, int64_t k)
{
	int64_t started = -(int64_t)rank->pool;
	for (uint32_t t = 0; t < rank->count; t++) {
		int32_t lag = t <= place ? 0 : pp_bound_lag(rank, t, PP_BOUND_F, place, PP_BOUND_F);
		if (lag != PP_BOUND_NEVER && k + 1 + lag > 0)
			started += k + 1 + lag;
	}
	return started;
}

uint32_t pp_bound_pool_ended(const struct pp_bound_state *state, const struct pp_bound_rank *rank, uint32_t place,
                             enum pp_bound_kind kind, uint32_t k)
{
	int64_t most = kind == PP_BOUND_F ? before_forward(rank, place, k) : 0;
	for (uint32_t u = 0; u < rank->count; u++) {
		int32_t lag = pp_bound_lag(rank, u, PP_BOUND_F, place, kind);
		if (lag == PP_BOUND_NEVER || (int64_t)k + lag < 0)
			continue;
		int64_t ended = before_forward(rank, u, (int64_t)k + lag);
		most = ended > most ? ended : most;
	}
	int64_t all = (int64_t)rank->count * state->microbatches;
	return (uint32_t)(most < 0 ? 0 : most < all ? most : all);
}

int64_t pp_bound_pool_length(const struct pp_bound_state *state, const struct pp_bound_rank *rank)
{
	int64_t length = INT64_MAX;
	for (uint32_t i = 0; i < rank->count; i++) {
		int64_t ticks = state->stage[rank->stages[i]].ticks[PP_BOUND_W];
		length = ticks < length ? ticks : length;
	}
	return length;
}

int64_t *pp_bound_pool_tails(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t r,
                             const struct pp_bound_times *tails)
{
	const struct pp_bound_rank *rank = &state->rank[r];
	uint32_t m = state->microbatches, all = rank->count * m;
	int64_t *out = PP_NEW_ARRAY(arena, int64_t, all);
	/* The last W of all ends no later than the rank does, if that counts. */
	int64_t base = tails->begin[pp_bound_at(state, rank->stages[0], PP_BOUND_W, 0)];
	for (uint32_t i = 1; i < rank->count; i++) {
		int64_t other = tails->begin[pp_bound_at(state, rank->stages[i], PP_BOUND_W, 0)];
		base = other < base ? other : base;
	}
	for (uint32_t n = 0; n < all; n++)
		out[n] = base;
	for (uint32_t place = 0; place < rank->count; place++) {
		uint32_t n = 0;
		for (uint32_t k = 0; k < m; k++) {
			uint32_t ended = pp_bound_pool_ended(state, rank, place, PP_BOUND_F, k);
			int64_t tail = tails->end[pp_bound_at(state, rank->stages[place], PP_BOUND_F, m - 1 - k)];
			for (; n < ended && n < all; n++)
				out[n] = tail > out[n] ? tail : out[n];
		}
	}
	return out;
}
