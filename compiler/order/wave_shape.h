/* Shapes: families of target times, a few small numbers each, independent of costs and sizes. */
#ifndef PP_ORDER_WAVE_SHAPE_H
#define PP_ORDER_WAVE_SHAPE_H

#include "wave.h"

/* The way of a microbatch has four kinds of legs: forward down the ranks and up again, backward down and up. */
enum { PP_WAVE_LEGS = 4 };

/* No value: the rule does not apply. */
#define PP_WAVE_NO_RULE INT16_MAX

struct pp_wave_shape {
	int16_t step[PP_WAVE_LEGS]; /* time besides costs and hop from rank to rank, in 24ths of the period */
	int16_t far[PP_WAVE_LEGS];  /* the same from rank `turn` on */
	int16_t turn;               /* in 24ths of the ranks */
	int16_t gap[3];             /* before F, before I, before I on a rank that the way turns on; 24ths of the period */
	int16_t lead[PP_WAVE_LEGS]; /* moves a whole leg; 24ths of period times ranks */
	int16_t stretch;            /* longer steps on all legs, until that many thousandths of the room are full */
	int16_t pace;               /* time between microbatches, thousandths of the period */
	int16_t weight_lag;         /* 24ths of the period; no rule, with a window: the first gap of the rank's pattern */
	int16_t patience;           /* likewise; only the list scheduler */
	int16_t fill;               /* thousandths */
	int16_t quota;              /* of a stage of the first leg: thousandths of what the room holds; 0: none */
	int16_t window;             /* 0: the list scheduler; else the row of the targets, overtaking so far ahead */
	int16_t blind; /* 1: steps are all there is, without costs and hops; 2: and the order is made as if every
	                * action took the same time and no hop any; then it is run with real costs */
};

/* Lists of shapes that between them suit many costs and sizes: for every room, for the room of v_half and v_min, for
 * any other. */
enum pp_wave_listed { PP_WAVE_BASIC, PP_WAVE_HALF, PP_WAVE_LEAST, PP_WAVE_ANY, PP_WAVE_LISTS };

struct pp_wave_shape_list {
	const struct pp_wave_shape *shapes;
	size_t count;
};
extern const struct pp_wave_shape_list pp_wave_shapes[PP_WAVE_LISTS];

struct pp_wave_dice {
	uint64_t state;
};
struct pp_wave_shape pp_wave_shape_draw(struct pp_wave_dice *dice);
struct pp_wave_shape pp_wave_shape_vary(struct pp_wave_dice *dice, const struct pp_wave_shape *shape);

/* Fill in the rules of a shape; their arrays are made once per problem. */
void pp_wave_rules_make(struct pp_arena *arena, const struct pp_wave *wave, struct pp_wave_rules *rules);
void pp_wave_shape_rules(const struct pp_wave *wave, const struct pp_wave_shape *shape, struct pp_wave_rules *rules);

#endif
