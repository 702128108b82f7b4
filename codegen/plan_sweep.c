/* Place lifetimes in the order of their start, knowing when each one ends.
 *
 * A value goes to an end of a free gap. Which one: live values that end at different times, side by side, will leave
 * free bytes between bytes in use; so a placement costs, for every two neighbours, the time between their ends, a gap
 * counting as a value that ends now. Low cost means that values which touch die together and leave large gaps. Raising
 * the ceiling costs more than anything else.
 *
 * Several states of the memory are carried along: all placements of the next value in all states are rated, and the
 * cheapest ones become the states of the next step. So a schedule of any length is searched in linear time: O(count *
 * states * gaps) and a copy of the live values per state. */
#include "plan.h"

#include <string.h>

/* Values that live at once; with more it gives up. */
enum { NODES_MAX = 4096 };

/* Sizes that room may be left for. */
enum { SIZES_MAX = 8 };

/* Work that takes about as long as rating one choice. */
enum { WORDS_PER_STEP = 16, SPOTS_PER_STEP = 64 };

/* With a gap weight of this much a gap counts as a value that ends now. */
enum { GAP_SCALE = 8 };

enum { FLOOR, CEILING, FIRST_NODE };

/* What all states share about a live value; the values that live at one time have different nodes. */
struct node {
	uint64_t last;
	uint32_t units; /* of PP_ALIGN bytes */
};

/* A node in one state, linked to its neighbours. */
struct spot {
	uint32_t offset; /* units */
	uint32_t below, above;
};

/* Times between the ends of neighbours: of values that touch their sum; for the sides of gaps ends - sides * now. */
struct cost {
	int64_t times;
	int64_t ends, sides;
};

struct state {
	struct spot *spots; /* [nodes] */
	uint64_t *gaps;     /* bitmap over nodes: free bytes above it */
	struct cost cost;
	uint32_t record;
};

/* How a state came to be: a chain back to the first value. */
struct record {
	uint32_t parent, offset;
};

/* A placement of the value at hand in one of the states. */
struct choice {
	uint32_t ceiling;
	int64_t rating;
	struct cost cost;
	uint32_t state, below, offset;
};

struct sweep {
	struct pp_arena *scratch;
	struct pp_lifetime *const *items;
	uint32_t count;
	const uint32_t *ending; /* [count] */
	uint32_t *node_of;      /* [count] */
	struct node *nodes;
	uint32_t node_count, words;
	struct state *states, *next;
	uint32_t state_count, width, gap_weight;
	uint32_t *children; /* [width] */
	struct choice *choices;
	uint32_t choice_count;
	struct record *records;
	uint32_t record_count;
	uint64_t steps;                        /* left */
	uint32_t sizes[SIZES_MAX], size_count; /* units */
};

/* ---- before the first value ------------------------------------------------------------------ */

uint32_t *pp_plan_ends(struct pp_arena *scratch, struct pp_lifetime *const *items, uint32_t count, uint64_t horizon)
{
	/* A list for each position, of numbers from 1. */
	uint32_t *first = PP_NEW_ARRAY(scratch, uint32_t, horizon), *next = PP_NEW_ARRAY(scratch, uint32_t, count);
	uint32_t *ends = PP_NEW_ARRAY(scratch, uint32_t, count), sorted = 0;
	for (uint32_t i = count; i-- > 0;) {
		next[i] = first[items[i]->last];
		first[items[i]->last] = i + 1;
	}
	for (uint64_t position = 0; position < horizon; position++)
		for (uint32_t i = first[position]; i; i = next[i - 1])
			ends[sorted++] = i - 1;
	return ends;
}

static void number_nodes(struct sweep *sweep)
{
	uint32_t *idle = PP_NEW_ARRAY(sweep->scratch, uint32_t, sweep->count), idle_count = 0, ended = 0;
	sweep->node_of = PP_NEW_ARRAY(sweep->scratch, uint32_t, sweep->count);
	sweep->node_count = FIRST_NODE;
	for (uint32_t i = 0; i < sweep->count; i++) {
		for (; sweep->items[sweep->ending[ended]]->last < sweep->items[i]->first; ended++)
			idle[idle_count++] = sweep->node_of[sweep->ending[ended]];
		sweep->node_of[i] = idle_count ? idle[--idle_count] : sweep->node_count++;
	}
	sweep->nodes = PP_NEW_ARRAY(sweep->scratch, struct node, sweep->node_count);
	sweep->words = sweep->node_count / 64 + 1;
}

/* The first distinct ones. */
static void find_sizes(struct sweep *sweep)
{
	for (uint32_t i = 0; i < sweep->count && sweep->size_count < SIZES_MAX; i++) {
		uint32_t at = 0, units = (uint32_t)(sweep->items[i]->bytes / PP_ALIGN);
		while (at < sweep->size_count && sweep->sizes[at] != units)
			at++;
		if (at == sweep->size_count)
			sweep->sizes[sweep->size_count++] = units;
	}
}

static struct state *make_states(struct sweep *sweep)
{
	struct state *states = PP_NEW_ARRAY(sweep->scratch, struct state, sweep->width);
	for (uint32_t i = 0; i < sweep->width; i++) {
		states[i].spots = PP_NEW_ARRAY(sweep->scratch, struct spot, sweep->node_count);
		states[i].gaps = PP_NEW_ARRAY(sweep->scratch, uint64_t, sweep->words);
	}
	return states;
}

static void make_first_state(struct sweep *sweep, uint32_t ceiling)
{
	sweep->states = make_states(sweep);
	sweep->next = make_states(sweep);
	sweep->state_count = 1;
	struct state *state = &sweep->states[0];
	state->spots[FLOOR] = (struct spot){.offset = 0, .above = CEILING};
	state->spots[CEILING] = (struct spot){.offset = ceiling, .below = FLOOR};
	state->gaps[0] = 1u << FLOOR;
	state->record = PP_NULL;
	sweep->children = PP_NEW_ARRAY(sweep->scratch, uint32_t, sweep->width);
	sweep->choices = PP_NEW_ARRAY(sweep->scratch, struct choice, (size_t)sweep->width + 1);
	sweep->records = PP_NEW_ARRAY(sweep->scratch, struct record, (size_t)sweep->count * sweep->width);
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* Of a gap's side that `node` is. Floor and ceiling never end and cost nothing. */
static void add_side(const struct sweep *sweep, struct cost *cost, uint32_t node, int sign)
{
	if (node < FIRST_NODE)
		return;
	cost->ends += sign * (int64_t)sweep->nodes[node].last;
	cost->sides += sign;
}

static void add_touch(const struct sweep *sweep, struct cost *cost, uint32_t below, uint32_t above, int sign)
{
	if (below < FIRST_NODE || above < FIRST_NODE)
		return;
	int64_t apart = (int64_t)sweep->nodes[below].last - (int64_t)sweep->nodes[above].last;
	cost->times += sign * (apart < 0 ? -apart : apart);
}

static bool has_gap(const struct state *state, uint32_t node)
{
	return state->gaps[node / 64] >> node % 64 & 1;
}

static void set_gap(struct state *state, uint32_t node, bool gap)
{
	uint64_t bit = 1ull << node % 64;
	state->gaps[node / 64] = gap ? state->gaps[node / 64] | bit : state->gaps[node / 64] & ~bit;
}

/* ---- a value ends ---------------------------------------------------------------------------- */

static void end_value(const struct sweep *sweep, struct state *state, uint32_t node)
{
	uint32_t below = state->spots[node].below, above = state->spots[node].above;
	if (has_gap(state, below)) {
		add_side(sweep, &state->cost, node, -1);
	} else {
		add_touch(sweep, &state->cost, below, node, -1);
		add_side(sweep, &state->cost, below, 1);
	}
	if (has_gap(state, node)) {
		add_side(sweep, &state->cost, node, -1);
	} else {
		add_touch(sweep, &state->cost, node, above, -1);
		add_side(sweep, &state->cost, above, 1);
	}
	set_gap(state, node, false);
	set_gap(state, below, true);
	state->spots[below].above = above;
	state->spots[above].below = below;
}

/* ---- a value begins -------------------------------------------------------------------------- */

static bool is_cheaper(const struct choice *a, const struct choice *b)
{
	return a->ceiling != b->ceiling ? a->ceiling < b->ceiling : a->rating < b->rating;
}

static void spend(struct sweep *sweep, uint32_t steps)
{
	sweep->steps -= steps < sweep->steps ? steps : sweep->steps;
}

/* Keep the cheapest `width` choices in order; of choices that cost the same the first, since they are often the same
 * memory come to in two ways. */
static void keep_choice(struct sweep *sweep, const struct choice *choice)
{
	uint32_t at = sweep->choice_count;
	while (at && is_cheaper(choice, &sweep->choices[at - 1]))
		at--;
	if (at == sweep->width || (at && !is_cheaper(&sweep->choices[at - 1], choice)))
		return;
	memmove(&sweep->choices[at + 1], &sweep->choices[at], (sweep->choice_count - at) * sizeof *choice);
	sweep->choices[at] = *choice;
	sweep->choice_count += sweep->choice_count < sweep->width;
}

static uint32_t end_of(const struct sweep *sweep, const struct state *state, uint32_t node)
{
	return state->spots[node].offset + sweep->nodes[node].units;
}

/* The value of `node` in the gap above `below`, from `offset` on. */
static void rate(struct sweep *sweep, uint32_t index, uint32_t node, uint32_t below, uint32_t offset, uint64_t now)
{
	const struct state *state = &sweep->states[index];
	uint32_t above = state->spots[below].above, end = offset + sweep->nodes[node].units;
	struct choice choice = {
	    .state = index, .below = below, .cost = state->cost, .offset = offset, .ceiling = state->spots[CEILING].offset};
	if (end > choice.ceiling)
		choice.ceiling = end;
	if (offset == end_of(sweep, state, below)) {
		add_touch(sweep, &choice.cost, below, node, 1);
		if (has_gap(state, below))
			add_side(sweep, &choice.cost, below, -1);
	} else {
		add_side(sweep, &choice.cost, node, 1);
	}
	if (end >= state->spots[above].offset) {
		add_touch(sweep, &choice.cost, node, above, 1);
		if (has_gap(state, below))
			add_side(sweep, &choice.cost, above, -1);
	} else {
		add_side(sweep, &choice.cost, node, 1);
	}
	choice.rating =
	    GAP_SCALE * choice.cost.times + sweep->gap_weight * (choice.cost.ends - choice.cost.sides * (int64_t)now);
	keep_choice(sweep, &choice);
	spend(sweep, 1);
}

/* At both ends of the gap, and where another size fits between the value and one of them. */
static void rate_gap(struct sweep *sweep, uint32_t index, uint32_t node, uint32_t below, uint64_t now)
{
	const struct state *state = &sweep->states[index];
	uint32_t from = end_of(sweep, state, below), to = state->spots[state->spots[below].above].offset;
	if (to - from < sweep->nodes[node].units)
		return;
	uint32_t rest = to - from - sweep->nodes[node].units;
	rate(sweep, index, node, below, from, now);
	if (!rest)
		return;
	rate(sweep, index, node, below, from + rest, now);
	for (uint32_t i = 0; i < sweep->size_count; i++)
		if (sweep->sizes[i] < rest) {
			rate(sweep, index, node, below, from + sweep->sizes[i], now);
			rate(sweep, index, node, below, from + rest - sweep->sizes[i], now);
		}
}

static void rate_state(struct sweep *sweep, uint32_t index, uint32_t node, uint64_t now)
{
	const struct state *state = &sweep->states[index];
	spend(sweep, sweep->words / WORDS_PER_STEP);
	for (uint32_t word = 0; word < sweep->words; word++)
		for (uint64_t bits = state->gaps[word]; bits; bits &= bits - 1)
			rate_gap(sweep, index, node, word * 64 + (uint32_t)__builtin_ctzll(bits), now);
	uint32_t highest = state->spots[CEILING].below;
	if (state->spots[CEILING].offset - end_of(sweep, state, highest) < sweep->nodes[node].units)
		rate(sweep, index, node, highest, end_of(sweep, state, highest), now);
}

static void put_value(const struct sweep *sweep, struct state *state, uint32_t node, const struct choice *choice)
{
	uint32_t below = choice->below, above = state->spots[below].above, end = choice->offset + sweep->nodes[node].units;
	state->spots[CEILING].offset = choice->ceiling;
	state->spots[node] = (struct spot){.offset = choice->offset, .below = below, .above = above};
	state->spots[below].above = state->spots[above].below = node;
	set_gap(state, below, choice->offset != end_of(sweep, state, below));
	set_gap(state, node, end != state->spots[above].offset);
	state->cost = choice->cost;
}

static void copy_state(const struct sweep *sweep, struct state *to, const struct state *from)
{
	memcpy(to->spots, from->spots, sweep->node_count * sizeof *to->spots);
	memcpy(to->gaps, from->gaps, sweep->words * sizeof *to->gaps);
	to->record = from->record;
}

/* The choices become the states; the last child of a state takes over its memory. */
static void step(struct sweep *sweep, uint32_t node)
{
	memset(sweep->children, 0, sweep->width * sizeof *sweep->children);
	for (uint32_t i = 0; i < sweep->choice_count; i++)
		sweep->children[sweep->choices[i].state]++;
	for (uint32_t i = 0; i < sweep->choice_count; i++) {
		const struct choice *choice = &sweep->choices[i];
		struct state *parent = &sweep->states[choice->state], *child = &sweep->next[i];
		if (--sweep->children[choice->state]) {
			copy_state(sweep, child, parent);
			spend(sweep, sweep->node_count / SPOTS_PER_STEP);
		} else {
			struct state kept = *child;
			*child = *parent;
			*parent = kept;
		}
		put_value(sweep, child, node, choice);
		sweep->records[sweep->record_count] = (struct record){child->record, choice->offset};
		child->record = sweep->record_count++;
	}
	struct state *states = sweep->states;
	sweep->states = sweep->next;
	sweep->next = states;
	sweep->state_count = sweep->choice_count;
	sweep->choice_count = 0;
}

/* False: every state is as high as `limit`, or too many steps. */
static bool run(struct sweep *sweep, uint32_t limit)
{
	for (uint32_t i = 0, ended = 0; i < sweep->count; i++) {
		const struct pp_lifetime *item = sweep->items[i];
		for (; sweep->items[sweep->ending[ended]]->last < item->first; ended++)
			for (uint32_t index = 0; index < sweep->state_count; index++)
				end_value(sweep, &sweep->states[index], sweep->node_of[sweep->ending[ended]]);
		uint32_t node = sweep->node_of[i];
		sweep->nodes[node] = (struct node){.last = item->last, .units = (uint32_t)(item->bytes / PP_ALIGN)};
		for (uint32_t index = 0; index < sweep->state_count; index++)
			rate_state(sweep, index, node, item->first);
		step(sweep, node);
		if (sweep->states[0].spots[CEILING].offset >= limit || !sweep->steps)
			return false;
	}
	return true;
}

bool pp_plan_sweep(struct pp_arena *owner, struct pp_lifetime **items, uint32_t count, uint64_t horizon,
                   const struct pp_sweep_options *options, uint64_t *steps)
{
	if (options->limit > (uint64_t)UINT32_MAX / 2 * PP_ALIGN || !count)
		return false;
	struct sweep sweep = {.scratch = pp_arena_scratch(owner),
	                      .items = items,
	                      .count = count,
	                      .width = options->states,
	                      .gap_weight = options->gap_weight,
	                      .steps = *steps};
	sweep.ending = pp_plan_ends(sweep.scratch, items, count, horizon);
	number_nodes(&sweep);
	if (options->leaves_room)
		find_sizes(&sweep);
	bool placed = sweep.node_count <= NODES_MAX;
	if (placed) {
		make_first_state(&sweep, (uint32_t)(options->ceiling / PP_ALIGN));
		placed = run(&sweep, (uint32_t)(options->limit / PP_ALIGN));
	}
	uint32_t record = placed ? sweep.states[0].record : PP_NULL;
	for (uint32_t i = placed ? count : 0; i-- > 0; record = sweep.records[record].parent)
		items[i]->offset = (uint64_t)sweep.records[record].offset * PP_ALIGN;
	*steps = sweep.steps;
	pp_arena_destroy(sweep.scratch);
	return placed;
}
