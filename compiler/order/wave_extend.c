/* An order of few microbatches, made one of many: a stretch of it in which every rank does everything as often as
 * everything else is repeated.
 *
 * requires: an order that can finish; both problems alike but for the number of microbatches. ensures: an order within
 * the room if the first one is, or false. O(n) per place tried.
 *
 * A cut gives every rank a place in its row so that whatever lies before it has its input before a cut too. Where the
 * next `group` times all kinds and stages of every rank hold each of them `group` times, behind that stretch is a cut
 * again, with every stage `group` microbatches further: as much memory is held as before, and the stretch can follow
 * itself any number of times. */
#include "wave.h"

#include <string.h>

enum { MOST_GROUP = 4, MOST_PLACES = 48, REACH = 8 };

struct extension {
	const struct pp_wave *few, *many;
	const struct pp_wave_order *order;
	const struct pp_wave_clock *times; /* of `order` */
	uint32_t group;
	uint32_t *cut;   /* [ranks]: actions before it in the row */
	uint32_t *count; /* [kinds][stages]: of these before the cut */
	uint32_t *seen;  /* likewise, scratch */
};

static uint32_t per_microbatch(const struct pp_wave *wave, uint32_t rank)
{
	return (wave->rank_first[rank + 1] - wave->rank_first[rank]) * PP_WAVE_KINDS;
}

static const uint32_t *row_of(const struct extension *x, uint32_t rank)
{
	return x->order->operations + (size_t)x->few->rank_first[rank] * PP_WAVE_KINDS * x->few->microbatches;
}

/* Whether the actions from `at` on hold everything of the rank `group` times. */
static bool even_stretch(const struct extension *x, uint32_t rank, uint32_t at)
{
	uint32_t length = per_microbatch(x->few, rank) * x->group, m = x->few->microbatches;
	const uint32_t *row = row_of(x, rank) + at;
	if (at + length > per_microbatch(x->few, rank) * m)
		return false;
	bool even = true;
	for (uint32_t i = 0; i < length; i++)
		even &= ++x->seen[row[i] / m] <= x->group;
	for (uint32_t i = 0; i < length; i++)
		x->seen[row[i] / m] = 0;
	return even;
}

/* The place in a row nearest to a time at which a stretch can begin. */
static bool place_cut(const struct extension *x, uint32_t rank, uint64_t time)
{
	const uint32_t *row = row_of(x, rank);
	uint32_t count = per_microbatch(x->few, rank) * x->few->microbatches, low = 0, high = count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (x->times->start[row[middle]] < time)
			low = middle + 1;
		else
			high = middle;
	}
	for (uint32_t distance = 0; distance <= REACH; distance++) {
		if (low >= distance && even_stretch(x, rank, low - distance)) {
			x->cut[rank] = low - distance;
			return true;
		}
		if (distance && even_stretch(x, rank, low + distance)) {
			x->cut[rank] = low + distance;
			return true;
		}
	}
	return false;
}

/* Whether everything before the cut has its input before it. */
static bool closed(const struct extension *x)
{
	const struct pp_wave *few = x->few;
	uint32_t m = few->microbatches;
	memset(x->count, 0, (size_t)PP_WAVE_KINDS * few->stages * sizeof *x->count);
	for (uint32_t r = 0; r < few->ranks; r++) {
		const uint32_t *row = row_of(x, r);
		for (uint32_t i = 0; i < x->cut[r]; i++)
			x->count[row[i] / m]++;
	}
	for (uint32_t token = 0; token < PP_WAVE_KINDS * few->stages; token++) {
		uint64_t hop;
		uint32_t input = pp_wave_input(few, token * m, &hop);
		if (input != PP_WAVE_NONE && x->count[input / m] < x->count[token])
			return false;
	}
	return true;
}

static void write_row(const struct extension *x, uint32_t rank, struct pp_wave_order *out)
{
	uint32_t each = per_microbatch(x->few, rank), m = x->few->microbatches, more = x->many->microbatches - m;
	const uint32_t *row = row_of(x, rank);
	uint32_t *to = out->operations + (size_t)x->many->rank_first[rank] * PP_WAVE_KINDS * x->many->microbatches;
	uint32_t cut = x->cut[rank], length = each * x->group, repeats = more / x->group + 1, written = 0;
	for (uint32_t i = 0; i < cut; i++)
		to[written++] = row[i] / m;
	for (uint32_t repeat = 0; repeat < repeats; repeat++) {
		for (uint32_t i = 0; i < length; i++)
			to[written++] = row[cut + i] / m;
	}
	for (uint32_t i = cut + length; i < each * m; i++)
		to[written++] = row[i] / m;
	for (uint32_t i = 0; i < written; i++)
		to[i] = to[i] * x->many->microbatches + x->seen[to[i]]++;
	for (uint32_t i = x->few->rank_first[rank]; i < x->few->rank_first[rank + 1]; i++) {
		for (uint32_t kind = 0; kind < PP_WAVE_KINDS; kind++)
			x->seen[kind * x->few->stages + x->few->of_rank[i]] = 0;
	}
}

/* Repeat what begins near `time`, and keep it if it is the best so far. */
static void try_at(struct extension *x, uint64_t time, struct pp_wave_clock *clock, struct pp_wave_order *trial,
                   struct pp_wave_order *best)
{
	for (uint32_t r = 0; r < x->few->ranks; r++) {
		if (!place_cut(x, r, time))
			return;
	}
	if (!closed(x))
		return;
	for (uint32_t r = 0; r < x->few->ranks; r++)
		write_row(x, r, trial);
	if (pp_wave_clock_run(clock, clock->span ? best->span : best->makespan, trial))
		pp_wave_order_copy(x->many, best, trial);
}

bool pp_wave_extend(struct pp_arena *owner, const struct pp_wave *few, const struct pp_wave_order *order,
                    const struct pp_wave *many, bool span, struct pp_wave_order *best)
{
	struct pp_arena *arena = pp_arena_scratch(owner);
	struct pp_wave_clock *times = pp_wave_clock_new(arena, few, span), *clock = pp_wave_clock_new(arena, many, span);
	struct pp_wave_order *copy = pp_wave_order_new(arena, few), *trial = pp_wave_order_new(arena, many);
	struct extension x = {.few = few,
	                      .many = many,
	                      .order = copy,
	                      .times = times,
	                      .cut = PP_NEW_ARRAY(arena, uint32_t, few->ranks),
	                      .count = PP_NEW_ARRAY(arena, uint32_t, (size_t)PP_WAVE_KINDS * few->stages),
	                      .seen = PP_NEW_ARRAY(arena, uint32_t, (size_t)PP_WAVE_KINDS * few->stages)};
	pp_wave_order_copy(few, copy, order);
	best->makespan = best->span = UINT64_MAX;
	bool runs = pp_wave_clock_run(times, UINT64_MAX, copy);
	uint32_t more = many->microbatches - few->microbatches;
	for (x.group = 1; runs && x.group <= MOST_GROUP; x.group++) {
		for (uint32_t i = 1; i < MOST_PLACES && more % x.group == 0; i++)
			try_at(&x, copy->makespan / MOST_PLACES * i, clock, trial, best);
	}
	pp_arena_destroy(arena);
	return best->makespan != UINT64_MAX;
}
