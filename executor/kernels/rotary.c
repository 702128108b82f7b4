/* Rotary positions. The angles of one position follow from those of the position before by one complex product in
 * double, which is off by less than 1e-10 after a million positions and costs no call of libm. */
#include "kernel_math.h"

#include <assert.h>

enum { PAIRS = 64 }; /* that are turned together: their angles stay in the first cache */

/* The angles of pairs first … first + count - 1 at one position, and the step to the next. */
struct angles {
	double cosine[PAIRS], sine[PAIRS], step_cosine[PAIRS], step_sine[PAIRS];
	size_t first, count;
};

static void angles_begin(struct angles *angles, const struct pp_rotation *shape)
{
	for (size_t i = 0; i < angles->count; i++) {
		double step = pow((double)shape->theta, -2.0 * (double)(angles->first + i) / (double)shape->head_columns);
		angles->cosine[i] = 1;
		angles->sine[i] = 0;
		angles->step_cosine[i] = cos(step);
		angles->step_sine[i] = shape->back ? -sin(step) : sin(step);
	}
}

static void angles_advance(struct angles *angles)
{
#pragma omp simd
	for (size_t i = 0; i < angles->count; i++) {
		double cosine = angles->cosine[i], sine = angles->sine[i];
		angles->cosine[i] = cosine * angles->step_cosine[i] - sine * angles->step_sine[i];
		angles->sine[i] = sine * angles->step_cosine[i] + cosine * angles->step_sine[i];
	}
}

/* The pairs of all heads of one token. */
static void turn(const struct pp_rotation *shape, size_t first, size_t count, const pp_real *restrict cosine,
                 const pp_real *restrict sine, const pp_real *restrict x, pp_real *restrict y)
{
	size_t half = shape->head_columns / 2;
	for (size_t at = first; at < shape->heads * shape->head_columns; at += shape->head_columns) {
#pragma omp simd
		for (size_t i = 0; i < count; i++) {
			pp_real a = x[at + i], b = x[at + half + i];
			y[at + i] = a * cosine[i] - b * sine[i];
			y[at + half + i] = b * cosine[i] + a * sine[i];
		}
	}
}

void pp_cpu_rotate(const struct pp_rotation *shape, const pp_real *x, pp_real *y)
{
	size_t half = shape->head_columns / 2, columns = shape->heads * shape->head_columns;
	assert(shape->head_columns % 2 == 0 && shape->tokens % shape->seq == 0);
	for (size_t first = 0; first < half; first += PAIRS) {
		struct angles angles = {.first = first, .count = half - first < PAIRS ? half - first : PAIRS};
		angles_begin(&angles, shape);
		for (size_t position = 0; position < shape->seq; position++) {
			pp_real cosine[PAIRS], sine[PAIRS];
			for (size_t i = 0; i < angles.count; i++) {
				cosine[i] = (pp_real)angles.cosine[i];
				sine[i] = (pp_real)angles.sine[i];
			}
			for (size_t t = position; t < shape->tokens; t += shape->seq)
				turn(shape, first, angles.count, cosine, sine, x + t * columns, y + t * columns);
			angles_advance(&angles);
		}
	}
}
