/* Shapes to rules, and random shapes.
 *
 * The target of F of a stage is the time at which the forward of a microbatch gets there if nothing is in its way, plus
 * what the shape adds per leg, hop and turn; I likewise on the way back. Steps d per hop down and none up, of equal
 * times, are the building blocks of the published V schedules (Controllable Memory: offsets i, 2i, … down, -i up). */
#include "wave_shape.h"

#include <string.h>

static int64_t part(uint64_t whole, int64_t share, int64_t of)
{
	return (int64_t)whole / of * share + (int64_t)whole % of * share / of;
}

/* Which leg a stage belongs to: the forward goes down (0) or up (1) from the stage before. */
static uint32_t forward_leg(const struct pp_wave *wave, uint32_t stage)
{
	for (; stage > 0; stage--) {
		uint32_t rank = wave->stage[stage].rank, before = wave->stage[stage - 1].rank;
		if (rank != before)
			return rank > before ? 0 : 1;
	}
	return 0;
}

void pp_wave_rules_make(struct pp_arena *arena, const struct pp_wave *wave, struct pp_wave_rules *rules)
{
	memset(rules, 0, sizeof *rules);
	for (uint32_t kind = 0; kind < 2; kind++)
		rules->target[kind] = PP_NEW_ARRAY(arena, int64_t, wave->stages);
	rules->quota = PP_NEW_ARRAY(arena, uint32_t, wave->stages);
	rules->weight = PP_NEW_ARRAY(arena, int64_t, wave->stages);
}

struct way {
	const struct pp_wave *wave;
	const struct pp_wave_shape *shape;
	int64_t longer; /* besides, from rank to rank */
};

/* From a stage of `from` to the next one on the way, `to`, on `leg`. */
static int64_t leap(const struct way *way, uint32_t from, uint32_t to, uint32_t leg, uint64_t ticks, uint64_t hop,
                    int16_t gap)
{
	const struct pp_wave *wave = way->wave;
	uint32_t rank = wave->stage[from].rank < wave->stage[to].rank ? wave->stage[from].rank : wave->stage[to].rank;
	bool far = (uint64_t)rank * 24 >= (uint64_t)wave->ranks * (uint64_t)way->shape->turn;
	bool stays = wave->stage[from].rank == wave->stage[to].rank;
	int16_t step = stays ? gap : far ? way->shape->far[leg] : way->shape->step[leg];
	return (way->shape->blind ? 0 : (int64_t)(ticks + hop)) + part(wave->period, step, 24) + (stays ? 0 : way->longer);
}

static void set_quotas(const struct pp_wave *wave, const struct pp_wave_shape *shape, struct pp_wave_rules *rules)
{
	for (uint32_t s = 0; s < wave->stages; s++) {
		uint64_t held = wave->stage[s].held, room = wave->room[wave->stage[s].rank];
		uint64_t most = held && room != PP_ROOM_UNLIMITED ? room / held : wave->microbatches;
		most = most < UINT32_MAX ? most : UINT32_MAX;
		most = most * (uint64_t)shape->quota / 1000;
		bool first = s == 0 || wave->stage[s].rank != wave->stage[0].rank;
		for (uint32_t t = 1; first && t <= s; t++)
			first = wave->stage[t].rank != wave->stage[t - 1].rank;
		rules->quota[s] = shape->quota && first ? (uint32_t)(most ? most : 1) : UINT32_MAX;
	}
}

static void set_targets(const struct way *way, struct pp_wave_rules *rules)
{
	const struct pp_wave *wave = way->wave;
	const struct pp_wave_shape *shape = way->shape;
	uint64_t width = wave->period * wave->ranks;
	int64_t time = 0;
	for (uint32_t s = 0; s < wave->stages; s++) {
		uint32_t leg = forward_leg(wave, s);
		if (s > 0)
			time += leap(way, s - 1, s, leg, wave->stage[s - 1].ticks[PP_WAVE_F], wave->stage[s - 1].forward_hop,
			             shape->gap[0]);
		rules->target[PP_WAVE_F][s] = time + part(width, shape->lead[leg], 24);
	}
	time += leap(way, wave->stages - 1, wave->stages - 1, 0, wave->stage[wave->stages - 1].ticks[PP_WAVE_F], 0,
	             shape->gap[1]);
	for (uint32_t s = wave->stages; s-- > 0;) {
		uint32_t leg = forward_leg(wave, s) ? 2 : 3;
		if (s + 1 < wave->stages)
			time += leap(way, s + 1, s, forward_leg(wave, s + 1) ? 2 : 3, wave->stage[s + 1].ticks[PP_WAVE_I],
			             wave->stage[s + 1].backward_hop, shape->gap[2]);
		rules->target[PP_WAVE_I][s] = time + part(width, shape->lead[leg], 24);
	}
}

/* How much longer steps may be until the microbatches that are under way at a time fill a rank's room, by Little's law:
 * what they hold is the sum over its stages of bytes times residence, by period. */
static int64_t stretched(const struct way *way, const struct pp_wave_rules *rules)
{
	const struct pp_wave *wave = way->wave;
	double least = -1;
	for (uint32_t r = 0; r < wave->ranks; r++) {
		double area = 0, hops = 0;
		if (wave->room[r] == PP_ROOM_UNLIMITED)
			continue;
		for (uint32_t i = wave->rank_first[r]; i < wave->rank_first[r + 1]; i++) {
			uint32_t s = wave->of_rank[i];
			const struct pp_wave_stage *stage = &wave->stage[s];
			double held = (double)stage->held - (double)stage->early / 2;
			area += held * (double)(rules->target[PP_WAVE_I][s] - rules->target[PP_WAVE_F][s] +
			                        (int64_t)(stage->ticks[PP_WAVE_I] + stage->ticks[PP_WAVE_W]));
			for (uint32_t t = s; t + 1 < wave->stages; t++)
				hops += wave->stage[t].rank == wave->stage[t + 1].rank ? 0 : 2 * held;
		}
		double full = (double)wave->room[r] * (double)wave->period * way->shape->stretch / 1000;
		double longer = hops > 0 ? (full - area) / hops : 0;
		least = least < 0 || longer < least ? longer : least;
		if (least < 0)
			return 0;
	}
	return least > 0 ? (int64_t)least : 0;
}

/* ---- W in the gaps of the pattern -------------------------------------------------------------- */

/* What a rank does again in every period. */
struct beat {
	int64_t begin, width;
};

static struct beat beat_of(const struct way *way, const struct pp_wave_rules *rules, uint32_t kind, uint32_t stage)
{
	int64_t lag = kind == PP_WAVE_W ? rules->weight[stage] : 0;
	uint64_t width = way->shape->blind ? way->wave->period / 6 : way->wave->stage[stage].ticks[kind];
	return (struct beat){rules->target[kind == PP_WAVE_F ? PP_WAVE_F : PP_WAVE_I][stage] + lag, (int64_t)width};
}

/* Put `beat` off until the other, or that of the period before, is over, if it is in the way. */
static void put_off(struct beat *beat, const struct beat *other, int64_t period)
{
	int64_t ahead = (other->begin - beat->begin) % period;
	ahead += ahead < 0 ? period : 0;
	if (ahead < beat->width)
		beat->begin += ahead + other->width;
	else if (ahead + other->width > period)
		beat->begin += ahead + other->width - period;
}

/* W at the first gap of its rank's pattern after its I that it fits in, W of later stages first; right after I if there
 * is none. Every round but the last puts it off behind another beat, so that there are no more rounds than beats. */
static void fit_weight(const struct way *way, struct pp_wave_rules *rules, uint32_t stage)
{
	const struct pp_wave *wave = way->wave;
	uint32_t rank = wave->stage[stage].rank;
	struct beat input = beat_of(way, rules, PP_WAVE_I, stage);
	rules->weight[stage] = input.width;
	struct beat weight = beat_of(way, rules, PP_WAVE_W, stage);
	for (int64_t before = INT64_MIN; before != weight.begin;) {
		before = weight.begin;
		for (uint32_t i = wave->rank_first[rank]; i < wave->rank_first[rank + 1]; i++)
			for (uint32_t kind = 0; kind < (wave->of_rank[i] > stage ? PP_WAVE_KINDS : PP_WAVE_W); kind++) {
				struct beat other = beat_of(way, rules, kind, wave->of_rank[i]);
				put_off(&weight, &other, rules->period);
			}
		if (weight.begin - input.begin > rules->period)
			return;
	}
	rules->weight[stage] = weight.begin - input.begin;
}

static void set_weights(const struct way *way, struct pp_wave_rules *rules)
{
	const struct pp_wave *wave = way->wave;
	bool fits = way->shape->weight_lag == PP_WAVE_NO_RULE && rules->period > 0;
	for (uint32_t s = wave->stages; s-- > 0;) {
		rules->weight[s] = rules->weight_lag;
		if (fits)
			fit_weight(way, rules, s);
	}
}

void pp_wave_shape_rules(const struct pp_wave *wave, const struct pp_wave_shape *shape, struct pp_wave_rules *rules)
{
	struct way way = {wave, shape, 0};
	set_targets(&way, rules);
	if (shape->stretch) {
		way.longer = stretched(&way, rules);
		set_targets(&way, rules);
	}
	rules->period = part(wave->period, shape->pace, 1000);
	rules->fill = (uint32_t)shape->fill;
	rules->weight_lag = shape->weight_lag != PP_WAVE_NO_RULE ? part(wave->period, shape->weight_lag, 24)
	                    : shape->window                      ? part(wave->period, 12, 24)
	                                                         : INT64_MAX;
	rules->patience = shape->patience == PP_WAVE_NO_RULE ? INT64_MAX : part(wave->period, shape->patience, 24);
	set_quotas(wave, shape, rules);
	if (shape->window)
		set_weights(&way, rules);
}

/* ---- random shapes ----------------------------------------------------------------------------- */

static int16_t below(struct pp_wave_dice *dice, int bound)
{
	dice->state ^= dice->state << 13;
	dice->state ^= dice->state >> 7;
	dice->state ^= dice->state << 17;
	return (int16_t)((dice->state >> 33) % (uint64_t)bound);
}

static bool one_in(struct pp_wave_dice *dice, int bound)
{
	return below(dice, bound) == 0;
}

/* A published building block and its kin: one or two offsets down, one slot up, order made at equal costs. */
static struct pp_wave_shape draw_published(struct pp_wave_dice *dice)
{
	struct pp_wave_shape shape = {.pace = 1000, .patience = PP_WAVE_NO_RULE, .fill = 500, .window = 24};
	int16_t step = (int16_t)(4 + 4 * below(dice, 1 + below(dice, 5))), far = (int16_t)(4 + 4 * below(dice, 5));
	shape.turn = one_in(dice, 4) ? 24 : below(dice, 24);
	for (uint32_t leg = 0; leg < PP_WAVE_LEGS; leg++) {
		shape.step[leg] = leg % 2 ? 4 : step;
		shape.far[leg] = leg % 2 ? 4 : far;
	}
	for (uint32_t i = 0; i < 3; i++)
		shape.gap[i] = (int16_t)(4 + 4 * below(dice, 6));
	if (one_in(dice, 2)) /* the way up begins early, which overtaking puts right */
		shape.gap[0] = (int16_t)(8 - shape.gap[0]);
	int slots = below(dice, 3); /* 0: W in free slots */
	shape.weight_lag = slots ? (int16_t)(4 * slots) : PP_WAVE_NO_RULE;
	shape.blind = one_in(dice, 4) ? 1 : 2;
	return shape;
}

/* Whole slots of a sixth of the period. */
static void draw_block(struct pp_wave_dice *dice, struct pp_wave_shape *shape)
{
	int16_t step = (int16_t)(4 * below(dice, 5)), far = (int16_t)(4 * below(dice, 5));
	shape->step[0] = shape->step[2] = step;
	shape->far[0] = shape->far[2] = far;
	if (one_in(dice, 3))
		shape->step[2] = shape->far[2] = (int16_t)(4 * below(dice, 5));
	shape->turn = one_in(dice, 2) ? 24 : (int16_t)(1 + below(dice, 23));
	for (uint32_t i = 0; i < 3; i++)
		shape->gap[i] = (int16_t)(4 * below(dice, 6));
	if (one_in(dice, 3)) /* the same sequence of actions on all ranks */
		shape->step[1] = shape->step[3] = shape->far[1] = shape->far[3] = (int16_t)(16 - step);
	if (one_in(dice, 2))
		return;
	shape->blind = (int16_t)(1 + below(dice, 2));
	for (uint32_t leg = 0; leg < PP_WAVE_LEGS; leg++) {
		shape->step[leg] = (int16_t)(shape->step[leg] + 4);
		shape->far[leg] = (int16_t)(shape->far[leg] + 4);
	}
	for (uint32_t i = 0; i < 3; i++)
		shape->gap[i] = (int16_t)(shape->gap[i] + 4);
}

static void draw_legs(struct pp_wave_dice *dice, struct pp_wave_shape *shape)
{
	for (uint32_t leg = 0; leg < PP_WAVE_LEGS; leg++) {
		shape->step[leg] = shape->far[leg] = one_in(dice, 2) ? 0 : (int16_t)(below(dice, 9) - 2);
		shape->lead[leg] = one_in(dice, 2) ? 0 : (int16_t)(below(dice, 49) - 24);
	}
	for (uint32_t i = 0; i < 3; i++)
		shape->gap[i] = one_in(dice, 2) ? 0 : (int16_t)(below(dice, 96) - 24);
	shape->pace = one_in(dice, 2) ? 1000 : (int16_t)(500 + below(dice, 1000));
}

struct pp_wave_shape pp_wave_shape_draw(struct pp_wave_dice *dice)
{
	if (one_in(dice, 3))
		return draw_published(dice);
	struct pp_wave_shape shape = {.pace = 1000, .patience = PP_WAVE_NO_RULE, .turn = 24};
	if (one_in(dice, 2))
		draw_block(dice, &shape);
	else
		draw_legs(dice, &shape);
	shape.stretch = one_in(dice, 2) ? 0 : (int16_t)(400 + below(dice, 650));
	shape.fill = one_in(dice, 3) ? 0 : one_in(dice, 2) ? 1000 : below(dice, 1000);
	shape.quota = one_in(dice, 2) ? 0 : (int16_t)(300 + 50 * below(dice, 14));
	if (one_in(dice, 2)) {
		shape.weight_lag = one_in(dice, 2) ? PP_WAVE_NO_RULE : (int16_t)(below(dice, 96) - 24);
		shape.patience = one_in(dice, 2) ? PP_WAVE_NO_RULE : below(dice, 48);
	} else {
		shape.window = (int16_t)(6 + below(dice, 24));
		shape.weight_lag = (int16_t)(4 * below(dice, 10));
	}
	return shape;
}

struct pp_wave_shape pp_wave_shape_vary(struct pp_wave_dice *dice, const struct pp_wave_shape *shape)
{
	struct pp_wave_shape varied = *shape, other = pp_wave_shape_draw(dice);
	int16_t *to = (int16_t *)&varied;
	const int16_t *from = (const int16_t *)&other;
	const int fields = sizeof varied / sizeof *to, times = sizeof varied.step / sizeof *to * 2 + 1 + 3 + PP_WAVE_LEGS;
	for (int changes = 1 + below(dice, 3); changes > 0; changes--) {
		int field = below(dice, fields);
		if (field < times && one_in(dice, 2))
			to[field] = (int16_t)(to[field] + below(dice, 9) - 4);
		else
			to[field] = from[field];
	}
	return varied;
}
