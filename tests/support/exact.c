/* Depth first over the actions of all ranks, the next to end first. A state is what has been done; of two ways to it,
 * one that is late in nothing is enough. */
#include "exact.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TRACKS = 20, MOST_MICROBATCHES = 7, MOST_RANKS = 4, MOST_STAGES = MOST_TRACKS / 2 };

struct way {
	uint64_t key;
	uint32_t next; /* of the same bucket, +1 */
	uint64_t times[];
};

struct solver {
	const struct pp_order_problem *problem;
	struct exact *exact;
	uint32_t stages, ranks, m, kinds; /* kinds per stage: 2 or 3 */
	uint32_t done[MOST_TRACKS];
	uint64_t end[MOST_TRACKS][MOST_MICROBATCHES];
	const uint32_t *channel;        /* pp_order_channels */
	uint64_t busy[2 * MOST_STAGES]; /* until when the hops of a channel take */
	uint64_t clock[MOST_RANKS], first[MOST_RANKS], bytes[MOST_RANKS], left[MOST_RANKS], best, met;
	bool began[MOST_RANKS], limit;
	uint32_t *buckets;
	size_t bucket_count;
	unsigned char *ways;
	uint32_t way_count;
	size_t way_capacity, way_size;
};

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static enum pp_action_kind kind_of(const struct solver *s, uint32_t track)
{
	static const enum pp_action_kind split[] = {PP_F, PP_I, PP_W}, fused[] = {PP_F, PP_B};
	return s->exact->fused ? fused[track % 2] : split[track % 3];
}

/* Of the work that is left, what is done with the next action of a track. I and W, or B, take the less of both. */
static uint64_t length_of(const struct solver *s, uint32_t track)
{
	const struct pp_order_stage *stage = &s->problem->stage[track / s->kinds];
	uint64_t weight =
	    s->exact->fused || stage->ticks[PP_W] < stage->ticks[PP_B] ? stage->ticks[PP_W] : stage->ticks[PP_B];
	uint64_t split = stage->ticks[PP_I] + stage->ticks[PP_W], fused = stage->ticks[PP_B];
	switch (kind_of(s, track)) {
	case PP_F:
		return stage->ticks[PP_F];
	case PP_B:
		return fused + stage->recompute;
	case PP_I:
		return (split < fused ? split : fused) - weight + stage->recompute;
	case PP_W:
		return weight;
	case PP_ACTION_KINDS:
		break;
	}
	return 0;
}

/* ---- ways to a state ------------------------------------------------------------------------- */

static uint64_t key_of(const struct solver *s)
{
	uint64_t key = 0;
	for (uint32_t track = 0; track < s->stages * s->kinds; track++)
		key = key << 3 | s->done[track];
	return key;
}

/* All that later actions can see. */
static void see(const struct solver *s, uint64_t *times)
{
	size_t at = 0;
	for (uint32_t r = 0; r < s->ranks; r++) {
		times[at++] = s->clock[r];
		times[at++] = s->began[r] && s->exact->span ? UINT64_MAX - s->first[r] : 0;
	}
	for (uint32_t i = 0; i < 2 * s->stages; i++)
		times[at++] = s->busy[i];
	for (uint32_t stage = 0; stage < s->stages; stage++) {
		const uint32_t *done = &s->done[stage * s->kinds];
		for (uint32_t k = 0; k < s->m; k++) {
			bool forward = k < done[0] && stage + 1 < s->stages && k >= s->done[(stage + 1) * s->kinds];
			bool backward = k < done[1] && stage > 0 && k >= s->done[(stage - 1) * s->kinds + 1];
			times[at++] = forward ? s->end[stage * s->kinds][k] : 0;
			times[at++] = backward ? s->end[stage * s->kinds + 1][k] : 0;
		}
	}
}

static bool no_later(const uint64_t *a, const uint64_t *b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (a[i] > b[i])
			return false;
	return true;
}

static struct way *way_at(const struct solver *s, uint32_t index)
{
	return (struct way *)(void *)(s->ways + index * s->way_size);
}

static size_t times_of(const struct solver *s)
{
	return 2 * (s->ranks + (size_t)s->stages * (s->m + 1));
}

/* Whether a way as good led here before; else remember this one. */
static bool known(struct solver *s)
{
	size_t count = times_of(s);
	uint64_t key = key_of(s), hash = key * 0x9e3779b97f4a7c15u,
	         times[2 * (MOST_RANKS + MOST_STAGES * (MOST_MICROBATCHES + 1))];
	see(s, times);
	uint32_t *bucket = &s->buckets[hash >> 32 & (s->bucket_count - 1)];
	for (uint32_t at = *bucket; at; at = way_at(s, at - 1)->next)
		if (way_at(s, at - 1)->key == key && no_later(way_at(s, at - 1)->times, times, count))
			return true;
	if (s->way_count == s->way_capacity) {
		s->way_capacity = s->way_capacity ? 2 * s->way_capacity : 1024;
		s->ways = realloc(s->ways, s->way_capacity * s->way_size);
		assert(s->ways);
	}
	struct way *way = way_at(s, s->way_count);
	way->key = key;
	way->next = *bucket;
	memcpy(way->times, times, count * sizeof *times);
	*bucket = ++s->way_count;
	return false;
}

/* ---- actions --------------------------------------------------------------------------------- */

/* The channel of the input of an action: 2 stages if it has none. */
static uint32_t channel_of(const struct solver *s, uint32_t stage, enum pp_action_kind kind)
{
	bool forward = kind == PP_F, local = forward ? stage == 0 : kind == PP_W || stage + 1 == s->stages;
	uint32_t channel =
	    local || !s->channel ? PP_NO_CHANNEL : s->channel[forward ? 2 * (stage - 1) : 2 * (stage + 1) + 1];
	return channel == PP_NO_CHANNEL ? 2 * s->stages : channel;
}

static uint64_t hop_over(const struct solver *s, uint32_t channel, uint64_t end, uint64_t hop)
{
	return (channel < 2 * s->stages ? later(s->busy[channel], end) : end) + hop;
}

/* Earliest start of the next action of a track in this state, recompute included, and when its input is there; false:
 * it is not. */
static bool can_start(const struct solver *s, uint32_t track, enum pp_action_kind kind, uint64_t *start, uint64_t *end,
                      uint64_t *came)
{
	uint32_t stage = track / s->kinds, k = s->done[track];
	const struct pp_order_stage *given = &s->problem->stage[stage];
	uint64_t there = 0, recompute = 0;
	if (k == s->m)
		return false;
	if (kind == PP_F && stage > 0) {
		if (s->done[track - s->kinds] <= k)
			return false;
		there = hop_over(s, channel_of(s, stage, kind), s->end[track - s->kinds][k],
		                 s->problem->stage[stage - 1].forward_hop);
	} else if (kind == PP_W) {
		if (s->done[track - 1] <= k)
			return false;
		there = s->end[track - 1][k];
	} else if (kind != PP_F) {
		if (s->done[track - 1] <= k)
			return false;
		there = s->end[track - 1][k];
		recompute = given->recompute;
		if (stage + 1 < s->stages) {
			if (s->done[track + s->kinds] <= k)
				return false;
			there = later(there, hop_over(s, channel_of(s, stage, kind), s->end[track + s->kinds][k],
			                              s->problem->stage[stage + 1].backward_hop));
		}
	}
	uint64_t clock = s->clock[given->rank];
	*came = there;
	*start = recompute ? clock : later(clock, there);
	*end = later(*start + recompute, there) + given->ticks[kind];
	return true;
}

static bool has_room(const struct solver *s, uint32_t track, enum pp_action_kind kind)
{
	const struct pp_order_stage *stage = &s->problem->stage[track / s->kinds];
	uint64_t more = kind == PP_F   ? stage->held
	                : kind == PP_B ? stage->more_fused
	                : kind == PP_I ? stage->more_split
	                               : 0;
	return s->bytes[stage->rank] + more <= s->problem->room[stage->rank];
}

static uint64_t bytes_after(const struct solver *s, uint32_t track, enum pp_action_kind kind)
{
	const struct pp_order_stage *stage = &s->problem->stage[track / s->kinds];
	uint64_t bytes = s->bytes[stage->rank];
	switch (kind) {
	case PP_F:
		return bytes + stage->held;
	case PP_B:
		return bytes - stage->held;
	case PP_I:
		return bytes + stage->more_split - stage->early;
	case PP_W:
		return bytes - (stage->held - stage->early) - stage->more_split;
	case PP_ACTION_KINDS:
		break;
	}
	return bytes;
}

static uint64_t value_of(const struct solver *s)
{
	uint64_t value = 0;
	for (uint32_t r = 0; r < s->ranks; r++)
		value = later(value, s->clock[r] - (s->exact->span ? s->first[r] : 0));
	return value;
}

static bool hopeless(const struct solver *s)
{
	for (uint32_t r = 0; r < s->ranks; r++)
		if (s->began[r] && s->clock[r] + s->left[r] - (s->exact->span ? s->first[r] : 0) >= s->best)
			return true;
	return !s->exact->span && value_of(s) >= s->best;
}

static void look(struct solver *s);

struct option {
	uint32_t track;
	enum pp_action_kind kind;
	uint64_t start, end, came;
};

static void try_option(struct solver *s, const struct option *option)
{
	uint32_t track = option->track, r = s->problem->stage[track / s->kinds].rank;
	enum pp_action_kind kind = option->kind;
	uint32_t channel = channel_of(s, track / s->kinds, kind);
	uint64_t end = option->end, busy = channel < 2 * s->stages ? s->busy[channel] : 0;
	uint64_t clock = s->clock[r], bytes = s->bytes[r], first = s->first[r], length = length_of(s, track);
	bool began = s->began[r], whole = kind == PP_B && s->kinds == 3;
	length += whole ? length_of(s, track + 1) : 0;
	s->bytes[r] = bytes_after(s, track, kind);
	if (whole) /* W of another microbatch may be pending; which one is all the same */
		s->end[track + 1][s->done[track + 1]++] = end;
	s->end[track][s->done[track]++] = s->clock[r] = end;
	s->left[r] -= length;
	s->first[r] = began ? first : option->start;
	if (channel < 2 * s->stages)
		s->busy[channel] = option->came;
	s->began[r] = true;
	if (!hopeless(s))
		look(s);
	if (channel < 2 * s->stages)
		s->busy[channel] = busy;
	s->began[r] = began;
	s->first[r] = first;
	s->left[r] += length;
	s->done[track]--;
	s->done[track + 1] -= whole;
	s->clock[r] = clock;
	s->bytes[r] = bytes;
}

static void add_option(const struct solver *s, struct option *options, uint32_t *count, uint32_t track,
                       enum pp_action_kind kind)
{
	struct option option = {.track = track, .kind = kind};
	if (!can_start(s, track, kind, &option.start, &option.end, &option.came) || !has_room(s, track, kind))
		return;
	uint32_t at = (*count)++;
	for (; at && options[at - 1].end > option.end; at--)
		options[at] = options[at - 1];
	options[at] = option;
}

static void look(struct solver *s)
{
	struct option options[2 * MOST_TRACKS];
	uint32_t count = 0, tracks = s->stages * s->kinds;
	bool whole = true;
	if (s->limit || known(s))
		return;
	if (++s->met > s->exact->states)
		s->limit = true;
	for (uint32_t track = 0; track < tracks; track++) {
		enum pp_action_kind kind = kind_of(s, track);
		whole &= s->done[track] == s->m;
		add_option(s, options, &count, track, kind);
		if (kind == PP_I)
			add_option(s, options, &count, track, PP_B);
	}
	if (whole)
		s->best = value_of(s) < s->best ? value_of(s) : s->best;
	for (uint32_t i = 0; i < count; i++)
		try_option(s, &options[i]);
}

enum exact_result exact_order(const struct pp_order_problem *problem, struct exact *exact)
{
	struct solver s = {.problem = problem,
	                   .exact = exact,
	                   .stages = problem->stages,
	                   .ranks = problem->ranks,
	                   .m = problem->microbatches,
	                   .kinds = exact->fused ? 2 : 3,
	                   .best = exact->start,
	                   .bucket_count = 1u << 20};
	assert(s.stages * s.kinds <= MOST_TRACKS && s.m <= MOST_MICROBATCHES && s.ranks <= MOST_RANKS);
	s.way_size = sizeof(struct way) + times_of(&s) * sizeof(uint64_t);
	struct pp_arena *arena = pp_arena_create(NULL);
	s.channel = pp_order_channels(arena, problem);
	s.buckets = calloc(s.bucket_count, sizeof *s.buckets);
	assert(s.buckets);
	for (uint32_t track = 0; track < s.stages * s.kinds; track++)
		s.left[problem->stage[track / s.kinds].rank] += length_of(&s, track) * s.m;
	look(&s);
	free(s.buckets);
	free(s.ways);
	pp_arena_destroy(arena);
	exact->value = s.best;
	return s.limit ? EXACT_LIMIT : s.best == exact->start ? EXACT_NONE : EXACT_FOUND;
}
