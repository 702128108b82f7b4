/* V10: which values are defined, by base and offset.
 *
 * Keys are known beforehand (those of the registers), so a set over their ranks with one summary level serves: the
 * previous element is a few words away, and a write costs a constant number of steps for each value that it ends.
 *
 * requires: registers with ends that fit; every register read or written is one of the stage's bodies.
 * ensures:  values that are defined together do not overlap. */
#include "body.h"

#include <stdlib.h>

static int compare_keys(const void *a, const void *b)
{
	const struct pp_value_key *left = a, *right = b;
	if (left->base != right->base)
		return left->base < right->base ? -1 : 1;
	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static struct pp_values values_with(struct pp_arena *arena, const struct pp_value_key *keys, uint32_t count)
{
	struct pp_values values = {.keys = keys, .count = count};
	values.written = pp_arena_alloc(arena, count, sizeof *values.written);
	values.bits = PP_NEW_ARRAY(arena, uint64_t, count / 64 + 1);
	values.summary = PP_NEW_ARRAY(arena, uint64_t, count / 4096 + 1);
	return values;
}

static uint32_t key_find(const struct pp_values *values, uint8_t base, uint64_t offset)
{
	struct pp_value_key wanted = {base, offset};
	const struct pp_value_key *found = bsearch(&wanted, values->keys, values->count, sizeof wanted, compare_keys);
	return (uint32_t)(found - values->keys);
}

static void value_set(struct pp_values *values, uint32_t key, const struct pp_reg *reg)
{
	values->written[key] = reg;
	if (reg) {
		values->bits[key / 64] |= 1ull << key % 64;
		values->summary[key / 4096] |= 1ull << key / 64 % 64;
		return;
	}
	values->bits[key / 64] &= ~(1ull << key % 64);
	if (values->bits[key / 64] == 0)
		values->summary[key / 4096] &= ~(1ull << key / 64 % 64);
}

/* The nearest defined key at or below `key`, or PP_NULL. */
static uint32_t value_at_or_below(const struct pp_values *values, uint32_t key)
{
	uint64_t word = values->bits[key / 64] & (UINT64_MAX >> (63 - key % 64));
	if (word)
		return key / 64 * 64 + 63 - (uint32_t)__builtin_clzll(word);
	uint32_t at = key / 64; /* words below this one */
	uint64_t mask = at % 64 ? UINT64_MAX >> (64 - at % 64) : 0;
	for (uint32_t block = at / 64 + 1; block-- > 0; mask = UINT64_MAX) {
		uint64_t words = values->summary[block] & mask;
		if (words == 0)
			continue;
		at = block * 64 + 63 - (uint32_t)__builtin_clzll(words);
		return at * 64 + 63 - (uint32_t)__builtin_clzll(values->bits[at]);
	}
	return PP_NULL;
}

/* The values that it ends are all neighbours, seen from its end downwards. */
void pp_value_write(struct pp_values *values, const struct pp_reg *reg)
{
	uint64_t end;
	if (!pp_reg_end(reg, &end))
		return;
	uint32_t own = key_find(values, reg->base, reg->offset), low = own, high = values->count;
	while (low < high) { /* the first key at or after the end */
		uint32_t middle = low + (high - low) / 2;
		struct pp_value_key last = {reg->base, end - 1};
		if (compare_keys(&values->keys[middle], &last) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (uint32_t key = low; key > 0;) {
		key = value_at_or_below(values, key - 1);
		if (key == PP_NULL || !pp_regs_overlap(values->written[key], reg))
			break;
		value_set(values, key, NULL);
	}
	value_set(values, own, reg);
}

const struct pp_reg *pp_value_at(const struct pp_values *values, const struct pp_reg *reg)
{
	return values->written[key_find(values, reg->base, reg->offset)];
}

struct pp_values pp_values_kept(struct pp_arena *arena, const struct pp_values *from)
{
	struct pp_values to = values_with(arena, from->keys, from->count);
	for (uint32_t key = 0; key < from->count; key++)
		if ((from->keys[key].base == PP_BASE_STASH || from->keys[key].base == PP_BASE_EXTRA) && from->written[key])
			value_set(&to, key, from->written[key]);
	return to;
}

struct pp_values pp_values_make(struct pp_arena *arena, const struct pp_program *program, const struct pp_stage *stage)
{
	size_t total = 0, kept = 0;
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		total += stage->body[phase] == PP_NULL ? 0 : program->bodies[stage->body[phase]].reg_count;
	struct pp_value_key *keys = PP_NEW_ARRAY(arena, struct pp_value_key, total);
	total = 0;
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
		const struct pp_body *body = stage->body[phase] == PP_NULL ? NULL : &program->bodies[stage->body[phase]];
		for (uint32_t r = 0; body && r < body->reg_count; r++)
			keys[total++] = (struct pp_value_key){body->regs[r].base, body->regs[r].offset};
	}
	if (total)
		qsort(keys, total, sizeof *keys, compare_keys);
	for (size_t i = 0; i < total; i++)
		if (kept == 0 || compare_keys(&keys[kept - 1], &keys[i]) != 0)
			keys[kept++] = keys[i];
	return values_with(arena, keys, (uint32_t)kept);
}
