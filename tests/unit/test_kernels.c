/* Each CPU kernel against a plain reference in double, on odd shapes: one token, one head, window 1, window beyond the
 * sequence, sizes that fill no vector, tiles that do not divide; written and accumulated; in place where allowed. */
#include "executor/draw.h"
#include "executor/kernels/kernels.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* `count` values in [-1, 1), different for each `stream`. */
static float *values(size_t count, uint64_t stream)
{
	float *made = malloc(count * sizeof *made);
	assert_non_null(made);
	for (size_t i = 0; i < count; i++)
		made[i] = (float)((double)(pp_draw(stream, i) >> 40) / (1 << 23) - 1);
	return made;
}

static double *zeros(size_t count)
{
	double *made = calloc(count, sizeof *made);
	assert_non_null(made);
	return made;
}

static void assert_close(const char *what, size_t count, const float *got, const double *expected)
{
	double largest = 0;
	for (size_t i = 0; i < count; i++)
		largest = fmax(largest, fabs(expected[i]));
	for (size_t i = 0; i < count; i++)
		if (!(fabs(got[i] - expected[i]) <= 3e-6 + 5e-6 * largest))
			fail_msg("%s[%zu]: got %.9g, expected %.9g (largest %.3g)", what, i, (double)got[i], expected[i], largest);
}

/* ---- norm ------------------------------------------------------------------------------------ */

struct norm_case {
	size_t rows, columns;
	bool rms, beta;
};

static void check_norm(const struct norm_case *c)
{
	size_t count = c->rows * c->columns;
	float *x = values(count, 1), *gamma = values(c->columns, 2), *beta = values(c->columns, 3), *dy = values(count, 4);
	float *y = values(count, 5), *dx = values(count, 6), *mean = values(c->rows, 7), *rstd = values(c->rows, 8);
	float *dgamma = values(c->columns, 9), *dbeta = values(c->columns, 10), *old_gamma = values(c->columns, 9);
	double *want_y = zeros(count), *want_dx = zeros(count), *want_dgamma = zeros(c->columns),
	       *want_dbeta = zeros(c->columns);
	for (size_t t = 0; t < c->rows; t++) {
		double m = 0, variance = 0, mean_g = 0, mean_gh = 0, n = (double)c->columns;
		for (size_t i = 0; i < c->columns && !c->rms; i++)
			m += x[t * c->columns + i] / n;
		for (size_t i = 0; i < c->columns; i++)
			variance += pow(x[t * c->columns + i] - m, 2) / n;
		double r = 1 / sqrt(variance + (c->rms ? 1e-6 : 1e-5));
		for (size_t i = 0; i < c->columns; i++) {
			double h = (x[t * c->columns + i] - m) * r, up = dy[t * c->columns + i];
			want_y[t * c->columns + i] = h * gamma[i] + (c->beta ? beta[i] : 0);
			want_dgamma[i] += up * h;
			want_dbeta[i] += up;
			mean_g += c->rms ? 0 : up * gamma[i] / n;
			mean_gh += up * gamma[i] * h / n;
		}
		for (size_t i = 0; i < c->columns; i++) {
			double h = (x[t * c->columns + i] - m) * r;
			want_dx[t * c->columns + i] = r * (dy[t * c->columns + i] * gamma[i] - mean_g - h * mean_gh);
		}
	}
	pp_cpu_norm(c->rows, c->columns, c->rms, x, gamma, c->beta ? beta : NULL, y, c->rms ? NULL : mean, rstd);
	assert_close("norm y", count, y, want_y);
	pp_cpu_norm_dx(c->rows, c->columns, c->rms, dy, x, gamma, c->rms ? NULL : mean, rstd, dx);
	assert_close("norm dx", count, dx, want_dx);
	pp_cpu_norm_dw(c->rows, c->columns, c->rms, dy, x, c->rms ? NULL : mean, rstd, dgamma, true, c->beta ? dbeta : NULL,
	               false);
	for (size_t i = 0; i < c->columns; i++)
		want_dgamma[i] += old_gamma[i];
	assert_close("norm dgamma", c->columns, dgamma, want_dgamma);
	if (c->beta)
		assert_close("norm dbeta", c->columns, dbeta, want_dbeta);
	void *all[] = {x,      gamma, beta,      dy,     y,       dx,          mean,      rstd,
	               dgamma, dbeta, old_gamma, want_y, want_dx, want_dgamma, want_dbeta};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

static void norm(void **state)
{
	(void)state;
	static const struct norm_case cases[] = {
	    {1, 1, false, true}, {1, 7, false, true}, {5, 33, false, false}, {3, 64, true, false}, {9, 100, true, true}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		check_norm(&cases[i]);
}

/* ---- linear ---------------------------------------------------------------------------------- */

static void check_linear(size_t tokens, size_t inputs, size_t outputs, bool bias, bool accumulate)
{
	float *x = values(tokens * inputs, 1), *w = values(outputs * inputs, 2), *b = values(outputs, 3),
	      *dy = values(tokens * outputs, 4);
	float *y = values(tokens * outputs, 5), *dx = values(tokens * inputs, 6), *dw = values(outputs * inputs, 7),
	      *db = values(outputs, 8);
	double *want_y = zeros(tokens * outputs), *want_dx = zeros(tokens * inputs), *want_dw = zeros(outputs * inputs),
	       *want_db = zeros(outputs);
	for (size_t o = 0; o < outputs && accumulate; o++) {
		want_db[o] = db[o];
		for (size_t i = 0; i < inputs; i++)
			want_dw[o * inputs + i] = dw[o * inputs + i];
	}
	for (size_t t = 0; t < tokens; t++) {
		for (size_t o = 0; o < outputs; o++) {
			double up = dy[t * outputs + o], sum = bias ? b[o] : 0;
			want_db[o] += up;
			for (size_t i = 0; i < inputs; i++) {
				sum += (double)x[t * inputs + i] * w[o * inputs + i];
				want_dx[t * inputs + i] += up * w[o * inputs + i];
				want_dw[o * inputs + i] += up * x[t * inputs + i];
			}
			want_y[t * outputs + o] = sum;
		}
	}
	pp_cpu_linear(tokens, inputs, outputs, x, w, bias ? b : NULL, y);
	pp_cpu_linear_dx(tokens, inputs, outputs, dy, w, dx);
	pp_cpu_linear_dw(tokens, inputs, outputs, dy, x, dw, accumulate, bias ? db : NULL, accumulate);
	assert_close("linear y", tokens * outputs, y, want_y);
	assert_close("linear dx", tokens * inputs, dx, want_dx);
	assert_close("linear dw", outputs * inputs, dw, want_dw);
	if (bias)
		assert_close("linear db", outputs, db, want_db);
	void *all[] = {x, w, b, dy, y, dx, dw, db, want_y, want_dx, want_dw, want_db};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

static void linear(void **state)
{
	(void)state;
	static const size_t shapes[][3] = {{1, 1, 1}, {1, 17, 5}, {7, 3, 9}, {33, 20, 41}, {64, 48, 16}};
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (unsigned flags = 0; flags < 4; flags++)
			check_linear(shapes[i][0], shapes[i][1], shapes[i][2], flags & 1, flags & 2);
}

/* ---- attention ------------------------------------------------------------------------------- */

struct attention_want {
	double *o, *lse, *dq, *dk, *dv;
};

/* Query t of head h in a sample that starts at token `base`. */
static void want_query(const struct pp_attention *s, size_t base, size_t h, size_t t, const float *q, const float *k,
                       const float *v, const float *d_o, const struct attention_want *want)
{
	size_t n = s->head_columns, q_stride = s->heads * n, kv_stride = s->kv_heads * n, kv = h / (s->heads / s->kv_heads);
	size_t q_at = (base + t) * q_stride + h * n;
	size_t first = s->window && t + 1 > s->window ? t + 1 - s->window : 0;
	double *p = zeros(t + 1), *dp = zeros(t + 1), sum = 0, dot = 0, scale = 1 / sqrt((double)n);
	for (size_t j = first; j <= t; j++) {
		for (size_t c = 0; c < n; c++)
			p[j] += scale * q[q_at + c] * k[(base + j) * kv_stride + kv * n + c];
		sum += exp(p[j]);
	}
	want->lse[(base + t) * s->heads + h] = log(sum);
	for (size_t j = first; j <= t; j++) {
		p[j] = exp(p[j]) / sum;
		for (size_t c = 0; c < n; c++) {
			size_t kv_at = (base + j) * kv_stride + kv * n + c;
			want->o[q_at + c] += p[j] * v[kv_at];
			want->dv[kv_at] += p[j] * d_o[q_at + c];
			dp[j] += (double)d_o[q_at + c] * v[kv_at];
		}
		dot += p[j] * dp[j];
	}
	for (size_t j = first; j <= t; j++) {
		for (size_t c = 0; c < n; c++) {
			size_t kv_at = (base + j) * kv_stride + kv * n + c;
			double ds = p[j] * (dp[j] - dot) * scale;
			want->dq[q_at + c] += ds * k[kv_at];
			want->dk[kv_at] += ds * q[q_at + c];
		}
	}
	free(p);
	free(dp);
}

static void check_attention(const struct pp_attention *s)
{
	size_t q_count = s->tokens * s->heads * s->head_columns, kv_count = s->tokens * s->kv_heads * s->head_columns,
	       rows = s->tokens * s->heads;
	float *q = values(q_count, 1), *k = values(kv_count, 2), *v = values(kv_count, 3), *d_o = values(q_count, 4);
	float *o = values(q_count, 5), *lse = values(rows, 6), *dq = values(q_count, 7), *dk = values(kv_count, 8),
	      *dv = values(kv_count, 9);
	struct attention_want want = {zeros(q_count), zeros(rows), zeros(q_count), zeros(kv_count), zeros(kv_count)};
	for (size_t i = 0; i < q_count; i++)
		q[i] *= 8; /* scores far apart, so that the running maximum moves */
	for (size_t base = 0; base < s->tokens; base += s->seq)
		for (size_t h = 0; h < s->heads; h++)
			for (size_t t = 0; t < s->seq; t++)
				want_query(s, base, h, t, q, k, v, d_o, &want);
	pp_cpu_attention(s, q, k, v, o, lse);
	pp_cpu_attention_dx(s, d_o, q, k, v, o, lse, dq, dk, dv);
	assert_close("attention o", q_count, o, want.o);
	assert_close("attention lse", rows, lse, want.lse);
	assert_close("attention dq", q_count, dq, want.dq);
	assert_close("attention dk", kv_count, dk, want.dk);
	assert_close("attention dv", kv_count, dv, want.dv);
	void *all[] = {q, k, v, d_o, o, lse, dq, dk, dv, want.o, want.lse, want.dq, want.dk, want.dv};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

static void attention(void **state)
{
	(void)state;
	static const struct pp_attention cases[] = {
	    {.tokens = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_columns = 1},
	    {.tokens = 6, .seq = 3, .heads = 2, .kv_heads = 2, .head_columns = 5},
	    {.tokens = 10, .seq = 5, .heads = 3, .kv_heads = 1, .head_columns = 8, .window = 1},
	    {.tokens = 12, .seq = 6, .heads = 4, .kv_heads = 2, .head_columns = 4, .window = 100},
	    {.tokens = 64, .seq = 64, .heads = 2, .kv_heads = 1, .head_columns = 16},
	    {.tokens = 65, .seq = 65, .heads = 1, .kv_heads = 1, .head_columns = 16, .window = 64},
	    {.tokens = 300, .seq = 150, .heads = 2, .kv_heads = 2, .head_columns = 12},
	    {.tokens = 200, .seq = 200, .heads = 2, .kv_heads = 1, .head_columns = 10, .window = 1},
	    {.tokens = 200, .seq = 200, .heads = 2, .kv_heads = 1, .head_columns = 10, .window = 70},
	    {.tokens = 197, .seq = 197, .heads = 1, .kv_heads = 1, .head_columns = 3, .window = 3},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		check_attention(&cases[i]);
}

/* ---- what touches each element once ---------------------------------------------------------- */

static double gelu(enum pp_gelu kind, double x)
{
	return kind == PP_GELU_ERF ? x * 0.5 * erfc(-x / sqrt(2))
	                           : 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static void activation(void **state)
{
	(void)state;
	enum { COUNT = 4001 };
	for (unsigned which = 0; which < 2; which++) {
		enum pp_gelu kind = which ? PP_GELU_TANH : PP_GELU_ERF;
		float *x = values(COUNT, 1), *y = values(COUNT, 2), *dy = values(COUNT, 3), *dx = values(COUNT, 4);
		double *want = zeros(COUNT), *want_dx = zeros(COUNT);
		for (size_t i = 0; i < COUNT; i++) {
			x[i] = (float)i / 200 - 10;
			want[i] = gelu(kind, x[i]);
			want_dx[i] = dy[i] * (gelu(kind, x[i] + 1e-5) - gelu(kind, x[i] - 1e-5)) / 2e-5;
		}
		pp_cpu_activate(kind, COUNT, x, y);
		pp_cpu_activate_dx(kind, COUNT, dy, x, dx);
		for (size_t i = 0; i < COUNT; i++) {
			assert_true(fabs(y[i] - want[i]) <= 1e-7 + 1e-6 * fabs(want[i]));
			assert_true(fabs(dx[i] - want_dx[i]) <= 1e-6);
		}
		float *again = values(COUNT, 3);
		pp_cpu_activate_dx(kind, COUNT, dy, x, dy);
		assert_memory_equal(dy, dx, COUNT * sizeof *dx);
		pp_cpu_activate_dx(kind, COUNT, again, x, x);
		assert_memory_equal(x, dx, COUNT * sizeof *dx);
		free(again);
		void *all[] = {x, y, dy, dx, want, want_dx};
		for (size_t i = 0; i < sizeof all / sizeof *all; i++)
			free(all[i]);
	}
}

static void extremes(void **state)
{
	(void)state;
	for (unsigned which = 0; which < 2; which++) {
		enum pp_gelu kind = which ? PP_GELU_TANH : PP_GELU_ERF;
		const float x[] = {-1e30f, -100, 0, 100, 1e30f, NAN, INFINITY};
		const float ones[] = {1, 1, 1, 1, 1, 1, 1};
		float y[7], slope[7];
		pp_cpu_activate(kind, 7, x, y);
		pp_cpu_activate_dx(kind, 7, ones, x, slope);
		assert_true(fabsf(y[0]) < 1e-6f && fabsf(y[1]) < 1e-6f && y[2] == 0);
		assert_true(y[3] == 100 && y[4] == 1e30f && (bool)isnan(y[5]) && (bool)isinf(y[6]));
		assert_true(fabsf(slope[0]) < 1e-6f && fabsf(slope[1]) < 1e-6f && slope[3] == 1 && slope[4] == 1 &&
		            (bool)isnan(slope[5]));
	}
}

static void addition(void **state)
{
	(void)state;
	const float a[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, b[] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11};
	const float want[] = {2, 0, 6, 0, 10, 0, 14, 0, 18, 0, 22}, twice[] = {3, -2, 9, -4, 15, -6, 21, -8, 27, -10, 33};
	float y[11];
	pp_cpu_add(11, a, b, y);
	assert_memory_equal(y, want, sizeof want);
	pp_cpu_add(11, y, b, y);
	assert_memory_equal(y, twice, sizeof twice);
}

static void embedding(void **state)
{
	(void)state;
	enum { TOKENS = 6, SEQ = 3, COLUMNS = 2, VOCAB = 4 };
	const int32_t ids[TOKENS] = {3, 0, 3, 1, 3, 0};
	const float wte[VOCAB * COLUMNS] = {10, 11, 20, 21, 30, 31, 40, 41}, wpe[SEQ * COLUMNS] = {1, 2, 3, 4, 5, 6};
	const float want[TOKENS * COLUMNS] = {41, 43, 13, 15, 45, 47, 21, 23, 43, 45, 15, 17};
	const float want_plain[TOKENS * COLUMNS] = {40, 41, 10, 11, 40, 41, 20, 21, 40, 41, 10, 11};
	float y[TOKENS * COLUMNS];
	pp_cpu_embed(TOKENS, COLUMNS, SEQ, ids, wte, wpe, y);
	assert_memory_equal(y, want, sizeof want);
	pp_cpu_embed(TOKENS, COLUMNS, SEQ, ids, wte, NULL, y);
	assert_memory_equal(y, want_plain, sizeof want_plain);

	const float dy[TOKENS * COLUMNS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	float dwte[VOCAB * COLUMNS] = {9, 9, 9, 9, 9, 9, 9, 9}, dwpe[SEQ * COLUMNS] = {1, 1, 1, 1, 1, 1};
	const float want_dwte[VOCAB * COLUMNS] = {14, 16, 7, 8, 0, 0, 15, 18},
	                              want_dwpe[SEQ * COLUMNS] = {9, 11, 13, 15, 17, 19};
	pp_cpu_embed_dw(TOKENS, COLUMNS, SEQ, VOCAB, SEQ, ids, dy, dwte, false, dwpe, true);
	assert_memory_equal(dwte, want_dwte, sizeof want_dwte);
	assert_memory_equal(dwpe, want_dwpe, sizeof want_dwpe);
}

/* ---- loss ------------------------------------------------------------------------------------ */

static void check_cross_entropy(size_t tokens, size_t vocab, size_t columns, bool mean, bool in_place)
{
	float *logits = values(tokens * columns, 1), *out = in_place ? logits : values(tokens * columns, 2);
	int32_t *labels = calloc(tokens, sizeof *labels);
	double *want = zeros(tokens * columns), total = 0, count = 0, loss[2];
	for (size_t t = 0; t < tokens; t++) {
		labels[t] = t % 3 == 2 ? -1 : (int32_t)(pp_draw(9, t) % vocab);
		count += labels[t] >= 0;
	}
	for (size_t t = 0; t < tokens; t++) {
		double sum = 0;
		for (size_t j = 0; j < columns; j++)
			logits[t * columns + j] *= 20;
		for (size_t j = vocab; j < columns; j++)
			logits[t * columns + j] = 1e30f; /* padding is never read */
		for (size_t j = 0; j < vocab; j++)
			sum += exp(logits[t * columns + j]);
		if (labels[t] < 0)
			continue;
		total += log(sum) - logits[t * columns + (size_t)labels[t]];
		for (size_t j = 0; j < vocab; j++)
			want[t * columns + j] =
			    (exp(logits[t * columns + j]) / sum - (j == (size_t)labels[t])) / (mean ? count : 1);
	}
	pp_cpu_cross_entropy(tokens, vocab, columns, mean, logits, labels, out, loss);
	assert_close("dlogits", tokens * columns, out, want);
	assert_true(fabs(loss[0] - total) <= 2e-6 * total + 1e-6);
	assert_true(loss[1] == count);
	if (!in_place)
		free(out);
	free(logits);
	free(labels);
	free(want);
}

static void cross_entropy(void **state)
{
	(void)state;
	for (unsigned flags = 0; flags < 4; flags++) {
		check_cross_entropy(1, 1, 1, flags & 1, flags & 2);
		check_cross_entropy(7, 13, 16, flags & 1, flags & 2);
		check_cross_entropy(4, 257, 257, flags & 1, flags & 2);
	}
	const int32_t ignored[2] = {-1, -1};
	float logits[6] = {1, 2, 3, 4, 5, 6}, zero[6] = {0};
	double loss[2] = {7, 7};
	pp_cpu_cross_entropy(2, 3, 3, true, logits, ignored, logits, loss);
	assert_memory_equal(logits, zero, sizeof zero);
	assert_true(loss[0] == 0 && loss[1] == 0);
}

static void loss_not_finite(void **state)
{
	(void)state;
	const int32_t label[1] = {1};
	const float broken[2][3] = {{0, 1, NAN}, {0, 1, INFINITY}};
	for (unsigned i = 0; i < 2; i++) {
		float out[3];
		double loss[2];
		pp_cpu_cross_entropy(1, 3, 3, false, broken[i], label, out, loss);
		assert_true(!isfinite(loss[0]));
		assert_true(!isfinite(pp_cpu_square_norm(3, out)));
	}
}

/* ---- rotary positions, swiglu ---------------------------------------------------------------- */

static void check_rotation(const struct pp_rotation *c)
{
	size_t columns = c->heads * c->head_columns, count = c->tokens * columns, half = c->head_columns / 2;
	float *x = values(count, 1), *y = values(count, 2), *back = values(count, 3);
	double *want = zeros(count), *same = zeros(count);
	for (size_t i = 0; i < count; i++) {
		size_t position = i / columns % c->seq, at = i % c->head_columns, pair = at % half;
		double angle = (double)position * pow((double)c->theta, -2.0 * (double)pair / (double)c->head_columns);
		want[i] =
		    at < half ? x[i] * cos(angle) - x[i + half] * sin(angle) : x[i] * cos(angle) + x[i - half] * sin(angle);
		same[i] = x[i];
	}
	pp_cpu_rotate(c, x, y);
	assert_close("rope", count, y, want);
	struct pp_rotation undo = *c;
	undo.back = true;
	pp_cpu_rotate(&undo, y, back);
	assert_close("rope and back", count, back, same);
	free(x);
	free(y);
	free(back);
	free(want);
	free(same);
}

/* More pairs than are turned together, a long sequence, one column pair, several samples. */
static void rotary_positions(void **state)
{
	(void)state;
	static const struct pp_rotation cases[] = {
	    {.tokens = 6, .seq = 3, .heads = 2, .head_columns = 6, .theta = 10000},
	    {.tokens = 5, .seq = 5, .heads = 1, .head_columns = 258, .theta = 500000},
	    {.tokens = 40000, .seq = 20000, .heads = 1, .head_columns = 2, .theta = 1000000},
	    {.tokens = 7, .seq = 7, .heads = 3, .head_columns = 64, .theta = 1},
	    {.tokens = 4, .seq = 1, .heads = 2, .head_columns = 8, .theta = 10000},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		check_rotation(&cases[i]);
}

/* Far from 0 too, where the exponential of the gate overflows or vanishes; in place where allowed. */
static void gated_activation(void **state)
{
	(void)state;
	enum { COUNT = 203 };
	float *gate = values(COUNT, 1), *up = values(COUNT, 2), *dy = values(COUNT, 3), *y = values(COUNT, 4),
	      *dgate = values(COUNT, 5), *dup = values(COUNT, 6);
	double *want_y = zeros(COUNT), *want_gate = zeros(COUNT), *want_up = zeros(COUNT);
	for (size_t i = 0; i < COUNT; i++) {
		gate[i] *= i % 3 == 0 ? 3 : i % 3 == 1 ? 30 : 300;
		double s = 1 / (1 + exp(-gate[i]));
		want_y[i] = gate[i] * s * up[i];
		want_up[i] = dy[i] * gate[i] * s;
		want_gate[i] = dy[i] * up[i] * s * (1 + gate[i] * (1 - s));
	}
	pp_cpu_swiglu(COUNT, gate, up, y);
	pp_cpu_swiglu_dx(COUNT, dy, gate, up, dgate, dup);
	assert_close("swiglu", COUNT, y, want_y);
	assert_close("swiglu gate", COUNT, dgate, want_gate);
	assert_close("swiglu up", COUNT, dup, want_up);
	float *dy_copy = values(COUNT, 3), *up_copy = values(COUNT, 2);
	pp_cpu_swiglu_dx(COUNT, dy_copy, gate, up_copy, dy_copy, up_copy);
	assert_memory_equal(dy_copy, dgate, COUNT * sizeof *dgate);
	assert_memory_equal(up_copy, dup, COUNT * sizeof *dup);
	pp_cpu_swiglu_dx(COUNT, dy, gate, up, gate, up);
	assert_memory_equal(gate, dgate, COUNT * sizeof *dgate);
	assert_memory_equal(up, dup, COUNT * sizeof *dup);
	gate[0] = NAN;
	pp_cpu_swiglu(COUNT, gate, up, y);
	assert_true(isnan(y[0]));
	float *arrays[] = {gate, up, dy, y, dgate, dup, dy_copy, up_copy};
	double *wanted[] = {want_y, want_gate, want_up};
	for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
		free(arrays[i]);
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
		free(wanted[i]);
}

/* ---- step tail ------------------------------------------------------------------------------- */

static void optimizer(void **state)
{
	(void)state;
	enum { COUNT = 37, STEPS = 5 };
	const struct pp_adamw rule = {
	    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .factor = 0.25};
	float *w = values(COUNT, 1), *m = calloc(COUNT, sizeof *m), *v = calloc(COUNT, sizeof *v), *sgd = values(COUNT, 1);
	double *want = zeros(COUNT), *want_m = zeros(COUNT), *want_v = zeros(COUNT), *want_sgd = zeros(COUNT);
	for (size_t i = 0; i < COUNT; i++)
		want[i] = want_sgd[i] = w[i];
	for (uint64_t step = 1; step <= STEPS; step++) {
		float *g = values(COUNT, 10 + step);
		struct pp_adamw now = rule;
		now.step = step;
		pp_cpu_adamw_update(&now, COUNT, w, g, m, v);
		pp_cpu_sgd_update(rule.lr, rule.weight_decay, rule.factor, COUNT, sgd, g);
		for (size_t i = 0; i < COUNT; i++) {
			double scaled = g[i] * rule.factor;
			want_m[i] = rule.beta1 * want_m[i] + (1 - rule.beta1) * scaled;
			want_v[i] = rule.beta2 * want_v[i] + (1 - rule.beta2) * scaled * scaled;
			double m_hat = want_m[i] / (1 - pow(rule.beta1, (double)step)),
			       v_hat = want_v[i] / (1 - pow(rule.beta2, (double)step));
			want[i] -= rule.lr * (m_hat / (sqrt(v_hat) + rule.eps) + rule.weight_decay * want[i]);
			want_sgd[i] -= rule.lr * (scaled + rule.weight_decay * want_sgd[i]);
		}
		free(g);
	}
	assert_close("adamw weight", COUNT, w, want);
	assert_close("adamw m", COUNT, m, want_m);
	assert_close("adamw v", COUNT, v, want_v);
	assert_close("sgd weight", COUNT, sgd, want_sgd);
	void *all[] = {w, m, v, sgd, want, want_m, want_v, want_sgd};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

static void square_norm(void **state)
{
	(void)state;
	const float x[] = {3e20f, 4e20f, 0, -12e20f};
	assert_true(fabs(pp_cpu_square_norm(4, x) / 169e40 - 1) < 1e-6);
	const float broken[] = {1, NAN, 2};
	assert_true((bool)isnan(pp_cpu_square_norm(3, broken)));
}

/* The same bits wherever an array lies: sums must not start at the first aligned address. */
static void bits_independent_of_address(void **state)
{
	(void)state;
	enum { COLUMNS = 203, ROWS = 3 };
	float *x = values(ROWS * COLUMNS, 1), *gamma = values(COLUMNS, 2), *y = values(ROWS * COLUMNS, 3),
	      *dx = values(ROWS * COLUMNS, 4);
	float mean[ROWS], rstd[ROWS];
	pp_cpu_norm(ROWS, COLUMNS, false, x, gamma, NULL, y, mean, rstd);
	pp_cpu_norm_dx(ROWS, COLUMNS, false, y, x, gamma, mean, rstd, dx);
	double norm = pp_cpu_square_norm(ROWS * COLUMNS, y);
	for (size_t shift = 1; shift < 16; shift++) {
		float *room = values(4 * (ROWS * COLUMNS + 16), 5), *moved[4], moved_mean[ROWS], moved_rstd[ROWS];
		for (size_t i = 0; i < 4; i++)
			moved[i] = room + i * (ROWS * COLUMNS + 16) + (shift * (i + 1)) % 16;
		memcpy(moved[0], x, ROWS * COLUMNS * sizeof *x);
		memcpy(moved[1], gamma, COLUMNS * sizeof *gamma);
		pp_cpu_norm(ROWS, COLUMNS, false, moved[0], moved[1], NULL, moved[2], moved_mean, moved_rstd);
		pp_cpu_norm_dx(ROWS, COLUMNS, false, moved[2], moved[0], moved[1], moved_mean, moved_rstd, moved[3]);
		assert_memory_equal(moved[2], y, ROWS * COLUMNS * sizeof *y);
		assert_memory_equal(moved[3], dx, ROWS * COLUMNS * sizeof *dx);
		assert_true(pp_cpu_square_norm(ROWS * COLUMNS, moved[2]) == norm);
		free(room);
	}
	free(x);
	free(gamma);
	free(y);
	free(dx);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { CALLERS = 8, WIDE = 96, LONG = 130 };

struct caller {
	float y[LONG * WIDE], dw[WIDE * WIDE], o[LONG * WIDE];
};

static void *call_kernels(void *argument)
{
	struct caller *caller = argument;
	pp_kernels_one_thread();
	pp_kernels_flush_denormals();
	float *x = values(LONG * WIDE, 1), *w = values(WIDE * WIDE, 2), lse[LONG * 4];
	const struct pp_attention shape = {
	    .tokens = LONG, .seq = LONG, .heads = 4, .kv_heads = 4, .head_columns = WIDE / 4};
	for (unsigned i = 0; i < 20; i++) {
		pp_cpu_linear(LONG, WIDE, WIDE, x, w, NULL, caller->y);
		pp_cpu_linear_dw(LONG, WIDE, WIDE, caller->y, x, caller->dw, i > 0, NULL, false);
		pp_cpu_attention(&shape, x, caller->y, x, caller->o, lse);
	}
	free(x);
	free(w);
	return NULL;
}

/* Ranks may be threads: any number of them at once, each with the bits of a lone one. */
static void many_callers(void **state)
{
	(void)state;
	struct caller *callers = calloc(CALLERS + 1, sizeof *callers);
	pthread_t threads[CALLERS];
	assert_non_null(callers);
	call_kernels(&callers[CALLERS]);
	for (size_t i = 0; i < CALLERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, call_kernels, &callers[i]), 0);
	for (size_t i = 0; i < CALLERS; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < CALLERS; i++)
		assert_memory_equal(&callers[i], &callers[CALLERS], sizeof *callers);
	free(callers);
}

int main(void)
{
	pp_kernels_one_thread();
	pp_kernels_flush_denormals();
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(norm),
	    cmocka_unit_test(linear),
	    cmocka_unit_test(attention),
	    cmocka_unit_test(activation),
	    cmocka_unit_test(extremes),
	    cmocka_unit_test(addition),
	    cmocka_unit_test(embedding),
	    cmocka_unit_test(cross_entropy),
	    cmocka_unit_test(loss_not_finite),
	    cmocka_unit_test(optimizer),
	    cmocka_unit_test(square_norm),
	    cmocka_unit_test(bits_independent_of_address),
	    cmocka_unit_test(many_callers),
	    cmocka_unit_test(rotary_positions),
	    cmocka_unit_test(gated_activation),
	};
	return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
