/* Beam search for patterns.
 *
 * Stages are laid from the last one outwards, F ever earlier and I (B) ever later: a state is where they lie on the
 * circles of the ranks, and how long the microbatch has been under way between this stage's F and its I. An action goes
 * to the first place that its neighbour in the chain allows, or to one that touches an action there already, for little
 * gaps are lost for good. W come last, each to the first gap that holds it. */
#include "periodic.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PLACES = 6, MOST_GROUP = 4 };

struct block {
	int64_t start, length; /* start within the period */
};

struct node {
	/* Starts of F and I of every microbatch of the group, on the stage that it was laid on last. */
	int64_t forward_at[MOST_GROUP], backward_at[MOST_GROUP];
	uint32_t parent; /* in the level before */
	uint32_t serial;
	uint64_t hash;
	int64_t score;
};

struct level {
	struct node *node;
	struct block *block; /* [nodes][blocks of all ranks] */
	uint32_t *count;     /* [nodes][ranks]: blocks laid */
	uint32_t nodes;
};

struct beam {
	const struct pp_packed *packed;
	int64_t period;
	uint32_t group, width, blocks; /* blocks: of all ranks together */
	uint8_t backward;
	const uint32_t *first; /* [ranks + 1] into a node's blocks */
	struct level *level;   /* [stages * group + 1]; level[k]: k times a stage of a microbatch laid */
	struct node *fresh;    /* children of a level before the cut */
	uint32_t fresh_count, fresh_capacity;
	uint32_t *keep;
};

static int64_t modulo(int64_t value, int64_t period)
{
	int64_t rest = value % period;
	return rest < 0 ? rest + period : rest;
}

static int64_t ticks_of(const struct beam *b, uint32_t s, uint32_t kind)
{
	const struct pp_packed_stage *stage = &b->packed->stage[s];
	return (int64_t)(stage->ticks[kind] + (kind == PP_I || kind == PP_B ? stage->recompute : 0));
}

/* ---- circles --------------------------------------------------------------------------------- */

static bool is_free(const struct beam *b, const struct block *blocks, uint32_t count, int64_t at, int64_t length)
{
	if (length > b->period)
		return false;
	int64_t start = modulo(at, b->period);
	for (uint32_t i = 0; i < count; i++) {
		int64_t ahead = modulo(blocks[i].start - start, b->period); /* from our start to the block's */
		if (blocks[i].length > 0 && length > 0 && (ahead < length || ahead + blocks[i].length > b->period))
			return false;
	}
	return true;
}

/* Whether actions of these lengths, longest first, still fit into the gaps between blocks. */
static bool room_left(const struct beam *b, const struct block *blocks, uint32_t count, const int64_t *lengths,
                      uint32_t length_count)
{
	int64_t gaps[64];
	struct block sorted[64];
	if (count == 0 || count > 64)
		return true;
	memcpy(sorted, blocks, count * sizeof *sorted);
	for (uint32_t i = 1; i < count; i++)
		for (uint32_t j = i; j > 0 && sorted[j].start < sorted[j - 1].start; j--) {
			struct block swap = sorted[j];
			sorted[j] = sorted[j - 1];
			sorted[j - 1] = swap;
		}
	for (uint32_t i = 0; i < count; i++) {
		int64_t next = i + 1 < count ? sorted[i + 1].start : sorted[0].start + b->period;
		gaps[i] = next - sorted[i].start - sorted[i].length;
	}
	for (uint32_t k = 0; k < length_count; k++) {
		uint32_t tightest = count;
		for (uint32_t i = 0; i < count; i++)
			if (gaps[i] >= lengths[k] && (tightest == count || gaps[i] < gaps[tightest]))
				tightest = i;
		if (tightest == count)
			return false;
		gaps[tightest] -= lengths[k];
	}
	return true;
}

/* What a rank has still to lay once microbatch g of stage s is there: W of all its stages, F and I of the next
 * microbatches and of the stages before. Longest first. */
static uint32_t still_to_lay(const struct beam *b, uint32_t s, uint32_t g, int64_t *lengths)
{
	const struct pp_packed *packed = b->packed;
	uint32_t count = 0, r = packed->stage[s].rank;
	for (uint32_t i = packed->first_stage[r]; i < packed->first_stage[r + 1]; i++) {
		uint32_t other = packed->stages_of[i];
		for (uint32_t k = 0; k < b->group && count + 3 < 64; k++) {
			if (!packed->fused)
				lengths[count++] = ticks_of(b, other, PP_W);
			if (other > s || (other == s && k <= g))
				continue;
			lengths[count++] = ticks_of(b, other, PP_F);
			lengths[count++] = ticks_of(b, other, b->backward);
		}
	}
	for (uint32_t i = 1; i < count; i++)
		for (uint32_t j = i; j > 0 && lengths[j] > lengths[j - 1]; j--) {
			int64_t swap = lengths[j];
			lengths[j] = lengths[j - 1];
			lengths[j - 1] = swap;
		}
	return count;
}

/* Places for an action of `length` no later (`sign` -1) or no earlier (1) than `limit`, nearest first. */
static uint32_t places(const struct beam *b, const struct block *blocks, uint32_t count, int64_t limit, int64_t length,
                       int sign, int64_t *found)
{
	uint32_t total = 0;
	int64_t tried[130];
	uint32_t tries = 0;
	tried[tries++] = limit;
	for (uint32_t i = 0; i < count && tries + 2 < 130; i++) {
		int64_t touch[] = {blocks[i].start - length, blocks[i].start + blocks[i].length};
		for (unsigned k = 0; k < 2; k++)
			tried[tries++] = limit + sign * modulo(sign * (touch[k] - limit), b->period);
	}
	for (uint32_t k = 0; k < tries; k++) {
		if (!is_free(b, blocks, count, tried[k], length))
			continue;
		uint32_t at = total < MOST_PLACES ? total : MOST_PLACES;
		bool known = false;
		for (uint32_t i = 0; i < total; i++)
			known |= found[i] == tried[k];
		if (known)
			continue;
		while (at > 0 && sign * (tried[k] - found[at - 1]) < 0)
			at--;
		if (at == MOST_PLACES)
			continue;
		total += total < MOST_PLACES;
		memmove(&found[at + 1], &found[at], (total - 1 - at) * sizeof *found);
		found[at] = tried[k];
	}
	return total;
}

/* ---- growing --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = (a ^ (b + UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xbf58476d1ce4e5b9);
	return (x ^ x >> 29) * UINT64_C(0x94d049bb133111eb);
}

static void add_child(struct beam *b, struct pp_arena *scratch, const struct node *child)
{
	if (b->fresh_count == b->fresh_capacity) {
		uint32_t capacity = b->fresh_capacity ? b->fresh_capacity * 2 : 256;
		b->fresh = pp_arena_grow(scratch, b->fresh, b->fresh_capacity, capacity, sizeof *b->fresh);
		b->fresh_capacity = capacity;
	}
	b->fresh[b->fresh_count] = *child;
	b->fresh[b->fresh_count].serial = b->fresh_count;
	b->fresh_count++;
}

/* Places of the forward of microbatch g on stage s. On the last stage the later microbatches of a group may begin
 * anywhere within a period after the one before. */
static uint32_t forward_places(const struct beam *b, const struct node *node, const struct block *blocks,
                               uint32_t count, uint32_t s, uint32_t g, int64_t *found)
{
	int64_t ticks = ticks_of(b, s, PP_F);
	if (s + 1 < b->packed->stages)
		return places(b, blocks, count, node->forward_at[g] - (int64_t)b->packed->stage[s + 1].forward_hop - ticks,
		              ticks, -1, found);
	if (g == 0) {
		found[0] = 0;
		return 1;
	}
	return places(b, blocks, count, node->forward_at[g - 1] + ticks, ticks, 1, found);
}

/* Microbatches of a group follow each other, and the first of the next group follows the last. */
static bool in_turn(const struct beam *b, const int64_t *at, uint32_t g, int64_t here)
{
	if (g > 0 && here <= at[g - 1])
		return false;
	return g == 0 || here < at[0] + b->period;
}

static void expand(struct beam *b, struct pp_arena *scratch, const struct level *from, uint32_t parent, uint32_t s,
                   uint32_t g)
{
	const struct pp_packed *packed = b->packed;
	const struct pp_packed_stage *stage = &packed->stage[s];
	const struct node *node = &from->node[parent];
	uint32_t r = stage->rank, count = from->count[(size_t)parent * packed->ranks + r];
	struct block blocks[66];
	if (count + 2 > 64)
		return;
	memcpy(blocks, &from->block[(size_t)parent * b->blocks + b->first[r]], count * sizeof *blocks);
	int64_t forward = ticks_of(b, s, PP_F), backward = ticks_of(b, s, b->backward);
	bool last = s + 1 == packed->stages;
	int64_t lengths[64], forwards_at[MOST_PLACES + 1], backwards_at[MOST_PLACES + 1];
	uint32_t length_count = still_to_lay(b, s, g, lengths);
	uint32_t forwards = forward_places(b, node, blocks, count, s, g, forwards_at);
	for (uint32_t i = 0; i < forwards; i++) {
		if (!in_turn(b, node->forward_at, g, forwards_at[i]))
			continue;
		blocks[count] = (struct block){modulo(forwards_at[i], b->period), forward};
		int64_t earliest = last ? forwards_at[i] + forward
		                        : node->backward_at[g] + ticks_of(b, s + 1, b->backward) + (int64_t)stage->backward_hop;
		uint32_t backwards = places(b, blocks, count + 1, earliest, backward, 1, backwards_at);
		for (uint32_t k = 0; k < backwards; k++) {
			blocks[count + 1] = (struct block){modulo(backwards_at[k], b->period), backward};
			if (!in_turn(b, node->backward_at, g, backwards_at[k]) ||
			    !room_left(b, blocks, count + 2, lengths, length_count))
				continue;
			struct node child = *node;
			child.parent = parent;
			child.forward_at[g] = forwards_at[i];
			child.backward_at[g] = backwards_at[k];
			child.score = 0;
			for (uint32_t j = 0; j < b->group; j++)
				child.score += child.backward_at[j] - child.forward_at[j];
			child.hash = mix(node->hash, mix((uint64_t)blocks[count].start * 3 + s, (uint64_t)blocks[count + 1].start));
			child.hash += (uint64_t)child.score;
			add_child(b, scratch, &child);
		}
	}
}

static int by_score(const void *left, const void *right)
{
	const struct node *a = left, *b = right;
	if (a->score != b->score)
		return a->score < b->score ? -1 : 1;
	return a->serial < b->serial ? -1 : a->serial > b->serial;
}

static struct level new_level(struct pp_arena *scratch, const struct beam *b, uint32_t nodes)
{
	return (struct level){.node = PP_NEW_ARRAY(scratch, struct node, nodes),
	                      .block = PP_NEW_ARRAY(scratch, struct block, (size_t)nodes * b->blocks),
	                      .count = PP_NEW_ARRAY(scratch, uint32_t, (size_t)nodes * b->packed->ranks)};
}

/* The best children become the next level. */
static void cut(struct beam *b, const struct level *from, struct level *to, uint32_t s, uint32_t g)
{
	const struct pp_packed *packed = b->packed;
	qsort(b->fresh, b->fresh_count, sizeof *b->fresh, by_score);
	uint32_t r = packed->stage[s].rank;
	for (uint32_t i = 0; i < b->fresh_count && to->nodes < b->width; i++) {
		bool known = false;
		for (uint32_t k = to->nodes; k-- > 0 && to->node[k].score == b->fresh[i].score && !known;)
			known = to->node[k].hash == b->fresh[i].hash;
		if (known)
			continue;
		uint32_t at = to->nodes++;
		const struct node *node = &b->fresh[i];
		to->node[at] = *node;
		struct block *blocks = &to->block[(size_t)at * b->blocks];
		uint32_t *counts = &to->count[(size_t)at * packed->ranks];
		memcpy(blocks, &from->block[(size_t)node->parent * b->blocks], b->blocks * sizeof *blocks);
		memcpy(counts, &from->count[(size_t)node->parent * packed->ranks], packed->ranks * sizeof *counts);
		blocks[b->first[r] + counts[r]++] =
		    (struct block){modulo(node->forward_at[g], b->period), ticks_of(b, s, PP_F)};
		blocks[b->first[r] + counts[r]++] =
		    (struct block){modulo(node->backward_at[g], b->period), ticks_of(b, s, b->backward)};
	}
}

/* ---- the end --------------------------------------------------------------------------------- */

static int64_t *at_of(const struct beam *b, const struct pp_pattern *pattern, uint32_t s, uint32_t g)
{
	return &pattern->at[((size_t)s * b->group + g) * PP_ACTION_KINDS];
}

static void lay_weights(const struct beam *b, const struct level *level, uint32_t index, struct pp_pattern *pattern)
{
	const struct pp_packed *packed = b->packed;
	for (uint32_t r = 0; r < packed->ranks; r++) {
		struct block blocks[96];
		uint32_t count = level->count[(size_t)index * packed->ranks + r];
		memcpy(blocks, &level->block[(size_t)index * b->blocks + b->first[r]], count * sizeof *blocks);
		for (uint32_t i = packed->first_stage[r + 1]; i-- > packed->first_stage[r];)
			for (uint32_t g = 0; g < b->group; g++) {
				uint32_t s = packed->stages_of[i];
				int64_t *at = at_of(b, pattern, s, g), found[MOST_PLACES + 1];
				int64_t ticks = ticks_of(b, s, PP_W), earliest = at[PP_I] + ticks_of(b, s, PP_I);
				/* Where gaps have become too small, it overlaps; the run sorts that out. */
				bool ok = count < 96 && places(b, blocks, count, earliest, ticks, 1, found) > 0;
				at[PP_W] = ok ? found[0] : earliest;
				if (ok)
					blocks[count++] = (struct block){modulo(at[PP_W], b->period), ticks};
			}
	}
}

/* Microbatches between two of their actions at the moment `now`, once the pattern repeats for good. */
static int64_t alive(const struct beam *b, int64_t begin, int64_t end, int64_t now)
{
	int64_t since = modulo(now - begin, b->period); /* of the youngest one that has begun */
	int64_t length = end - begin;
	return length <= since ? 0 : (length - since - 1) / b->period + 1;
}

static int64_t held_at(const struct beam *b, const struct pp_pattern *pattern, uint32_t r, int64_t now)
{
	const struct pp_packed *packed = b->packed;
	int64_t held = 0;
	for (uint32_t k = packed->first_stage[r]; k < packed->first_stage[r + 1]; k++)
		for (uint32_t g = 0; g < b->group; g++) {
			uint32_t s = packed->stages_of[k];
			const struct pp_packed_stage *stage = &packed->stage[s];
			const int64_t *at = at_of(b, pattern, s, g);
			int64_t turned = at[b->backward] + ticks_of(b, s, b->backward);
			int64_t early = packed->fused ? 0 : stage->give[PP_I];
			int64_t end = packed->fused ? turned : at[PP_W] + ticks_of(b, s, PP_W);
			held += alive(b, at[PP_F], end, now) * (stage->take[PP_F] - early);
			held += alive(b, at[PP_F], turned, now) * early;
		}
	return held;
}

static void measure_peaks(const struct beam *b, struct pp_pattern *pattern)
{
	const struct pp_packed *packed = b->packed;
	for (uint32_t r = 0; r < packed->ranks; r++) {
		int64_t peak = 0;
		for (uint32_t i = packed->first_stage[r]; i < packed->first_stage[r + 1]; i++)
			for (uint32_t g = 0; g < b->group; g++) {
				int64_t held = held_at(b, pattern, r, at_of(b, pattern, packed->stages_of[i], g)[PP_F]);
				peak = held > peak ? held : peak;
			}
		pattern->peak[r] = peak;
	}
}

static void read_out(const struct beam *b, uint32_t index, struct pp_pattern *pattern)
{
	const struct pp_packed *packed = b->packed;
	uint32_t node = index;
	for (uint32_t laid = packed->stages * b->group; laid-- > 0;) {
		const struct node *here = &b->level[laid + 1].node[node];
		uint32_t g = laid % b->group;
		int64_t *at = at_of(b, pattern, packed->stages - 1 - laid / b->group, g);
		at[PP_F] = here->forward_at[g];
		at[b->backward] = here->backward_at[g];
		node = here->parent;
	}
	if (!packed->fused)
		lay_weights(b, &b->level[packed->stages * b->group], index, pattern);
	measure_peaks(b, pattern);
	int64_t first = pattern->at[PP_F];
	for (uint32_t i = 0; i < packed->stages * b->group * PP_ACTION_KINDS; i++)
		pattern->at[i] -= first;
}

uint32_t pp_patterns(struct pp_arena *arena, const struct pp_packed *packed, uint64_t period, uint32_t group,
                     uint32_t width, struct pp_pattern *patterns, uint32_t most)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	uint32_t levels = packed->stages * group;
	struct beam b = {.packed = packed, .period = (int64_t)period, .group = group, .width = width, .blocks = levels * 2};
	b.backward = packed->fused ? PP_B : PP_I;
	uint32_t *first = PP_NEW_ARRAY(scratch, uint32_t, packed->ranks + 1);
	for (uint32_t r = 0; r <= packed->ranks; r++)
		first[r] = packed->first_stage[r] * 2 * group;
	b.first = first;
	b.level = PP_NEW_ARRAY(scratch, struct level, levels + 1);
	b.level[0] = new_level(scratch, &b, 1);
	b.level[0].nodes = 1;
	for (uint32_t laid = 0; laid < levels; laid++) {
		uint32_t s = packed->stages - 1 - laid / group, g = laid % group;
		b.fresh_count = 0;
		for (uint32_t i = 0; i < b.level[laid].nodes; i++)
			expand(&b, scratch, &b.level[laid], i, s, g);
		b.level[laid + 1] = new_level(scratch, &b, b.fresh_count < width ? b.fresh_count + 1 : width);
		cut(&b, &b.level[laid], &b.level[laid + 1], s, g);
	}
	*packed->effort += (uint64_t)width * levels * 8;
	uint32_t found = b.level[levels].nodes < most ? b.level[levels].nodes : most;
	for (uint32_t i = 0; i < found; i++) {
		patterns[i] = (struct pp_pattern){
		    .period = period,
		    .group = group,
		    .at = PP_NEW_ARRAY(arena, int64_t, (size_t)levels * PP_ACTION_KINDS),
		    .peak = PP_NEW_ARRAY(arena, int64_t, packed->ranks),
		};
		read_out(&b, i, &patterns[i]);
	}
	pp_arena_destroy(scratch);
	return found;
}

void pp_pattern_keys(const struct pp_packed *packed, const struct pp_pattern *pattern, uint64_t *key)
{
	for (uint32_t s = 0; s < packed->stages; s++)
		for (uint32_t mb = 0; mb < packed->microbatches; mb++) {
			const int64_t *at = &pattern->at[((size_t)s * pattern->group + mb % pattern->group) * PP_ACTION_KINDS];
			for (uint32_t kind = 0; kind < PP_ACTION_KINDS; kind++)
				key[pp_action_id(packed, s, mb, kind)] = (uint64_t)at[kind] + mb / pattern->group * pattern->period;
		}
}

uint64_t pp_period_least(const struct pp_packed *packed)
{
	uint64_t most = 1;
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint64_t sum = 0;
		for (uint32_t i = packed->first_stage[r]; i < packed->first_stage[r + 1]; i++) {
			const struct pp_packed_stage *stage = &packed->stage[packed->stages_of[i]];
			sum += stage->recompute + stage->ticks[PP_F];
			sum += packed->fused ? stage->ticks[PP_B] : stage->ticks[PP_I] + stage->ticks[PP_W];
		}
		most = sum > most ? sum : most;
	}
	for (uint32_t channel = 0; packed->queued && channel < 2 * packed->stages; channel++) {
		uint64_t sum = 0;
		for (uint32_t s = 0; s < packed->stages; s++) {
			const struct pp_packed_stage *stage = &packed->stage[s];
			sum += stage->forward_channel == channel ? stage->forward_hop : 0;
			sum += stage->backward_channel == channel ? stage->backward_hop : 0;
		}
		most = sum > most ? sum : most;
	}
	return most;
}
