/* Multisets of contributions as shared trees.
 *
 * `add` and a sum over a group unite multisets; a sum is shared by all members of its group. Counts saturate, so
 * nothing doubles in size unseen; a tree is walked only as far as its range is long. Sums of floats depend on their
 * order, a + b = b + a excepted, and on which of them were summed over tp or dp first; `order` is a hash of the tree
 * that says so. */
#include "grad.h"

static uint64_t mixed(uint64_t value)
{
	value = (value ^ value >> 32) * UINT64_C(0xd6e8feb86659fd93);
	value = (value ^ value >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return value ^ value >> 32;
}

struct pp_sets pp_sets_begin(struct pp_arena *arena, uint32_t members)
{
	struct pp_sets sets = {.arena = arena,
	                       .mark = PP_NEW_ARRAY(arena, uint32_t, (size_t)members + 1),
	                       .stack = PP_NEW_ARRAY(arena, uint32_t, (size_t)members + 2)};
	pp_set_leaf(&sets, 0);
	sets.items[PP_SET_EMPTY].count = 0;
	return sets;
}

uint32_t pp_set_leaf(struct pp_sets *sets, uint32_t member)
{
	*PP_PUSH(sets->arena, &sets->items, &sets->count, &sets->capacity, struct pp_set) =
	    (struct pp_set){.member = member, .count = 1, .order = mixed((uint64_t)member + 1)};
	return (uint32_t)sets->count - 1;
}

uint32_t pp_set_union(struct pp_sets *sets, uint32_t left, uint32_t right)
{
	if (left == PP_SET_EMPTY || right == PP_SET_EMPTY)
		return left == PP_SET_EMPTY ? right : left;
	uint64_t one = sets->items[left].order, other = sets->items[right].order;
	struct pp_set united = {.left = left, .right = right, .order = mixed(mixed(one) + mixed(other))};
	if (__builtin_add_overflow(sets->items[left].count, sets->items[right].count, &united.count))
		united.count = UINT32_MAX;
	*PP_PUSH(sets->arena, &sets->items, &sets->count, &sets->capacity, struct pp_set) = united;
	return (uint32_t)sets->count - 1;
}

uint32_t pp_set_over(struct pp_sets *sets, uint32_t set, enum pp_axis axis)
{
	if (set == PP_SET_EMPTY)
		return set;
	struct pp_set summed = sets->items[set];
	summed.order = mixed(summed.order + (uint64_t)axis + 1);
	*PP_PUSH(sets->arena, &sets->items, &sets->count, &sets->capacity, struct pp_set) = summed;
	return (uint32_t)sets->count - 1;
}

/* Walk the first `limit` members of a set; returns the first one seen twice, or PP_NULL. Marks those seen. */
static uint32_t set_walk(struct pp_sets *sets, uint32_t set, uint32_t limit)
{
	uint32_t depth = 0, walked = 0;
	sets->epoch++;
	if (set != PP_SET_EMPTY)
		sets->stack[depth++] = set;
	while (depth && walked < limit) {
		const struct pp_set *node = &sets->items[sets->stack[--depth]];
		while (node->left != PP_SET_EMPTY) {
			if (depth < limit)
				sets->stack[depth++] = node->right;
			node = &sets->items[node->left];
		}
		if (sets->mark[node->member] == sets->epoch)
			return node->member;
		sets->mark[node->member] = sets->epoch;
		walked++;
	}
	return PP_NULL;
}

enum pp_difference pp_set_compare(struct pp_sets *sets, uint32_t set, uint32_t first, uint32_t count, uint32_t *member)
{
	if (sets->items[set].complete || (set == PP_SET_EMPTY && count == 0))
		return PP_SET_SAME;
	/* count + 1 members of a set over `count` values must repeat one */
	*member = set_walk(sets, set, count + 1);
	if (*member != PP_NULL)
		return PP_SET_TWICE;
	for (uint32_t i = first; i < first + count; i++)
		if (sets->mark[i] != sets->epoch) {
			*member = i;
			return PP_SET_MISSING;
		}
	sets->items[set].complete = set != PP_SET_EMPTY;
	return PP_SET_SAME;
}
