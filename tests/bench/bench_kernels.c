/* Times of the CPU kernels in one transformer block, forward and backward, at several model sizes: which share goes to
 * matrix products, how fast they are against a large product by the same BLAS, and products and attention against plain
 * loops. Best of several runs; prints, asserts nothing. Usage: bench_kernels [RUNS] */
#include "executor/draw.h"
#include "executor/kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct size {
	const char *name;
	size_t tokens, seq, hidden, heads, vocab;
};

/* Arrays of one block; w: the largest weight matrix. */
struct arrays {
	const struct size *size;
	float *x, *y, *dy, *wide, *wide2, *w, *dw, *q, *k, *v, *o, *dq, *dk, *dv, *lse, *mean, *rstd, *logits;
	int32_t *labels;
};

/* Processor time of this thread: what other programs do in the meantime does not count. */
static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static float *values(size_t count, uint64_t stream)
{
	float *made = malloc(count * sizeof *made);
	if (!made)
		exit(3);
	for (size_t i = 0; i < count; i++)
		made[i] = (float)((double)(pp_draw(stream, i) >> 40) / (1 << 23) - 1) * 0.5f;
	return made;
}

static struct pp_attention attention_of(const struct arrays *a)
{
	const struct size *s = a->size;
	return (struct pp_attention){.tokens = s->tokens,
	                             .seq = s->seq,
	                             .heads = s->heads,
	                             .kv_heads = s->heads,
	                             .head_columns = s->hidden / s->heads};
}

/* ---- what is timed --------------------------------------------------------------------------- */

static void linear_forward(struct arrays *a)
{
	size_t t = a->size->tokens, h = a->size->hidden;
	for (unsigned i = 0; i < 4; i++)
		pp_cpu_linear(t, h, h, a->x, a->w, a->w, a->y);
	pp_cpu_linear(t, h, 4 * h, a->x, a->w, a->w, a->wide);
	pp_cpu_linear(t, 4 * h, h, a->wide, a->w, a->w, a->y);
}

static void linear_input(struct arrays *a)
{
	size_t t = a->size->tokens, h = a->size->hidden;
	for (unsigned i = 0; i < 4; i++)
		pp_cpu_linear_dx(t, h, h, a->dy, a->w, a->y);
	pp_cpu_linear_dx(t, h, 4 * h, a->wide, a->w, a->y);
	pp_cpu_linear_dx(t, 4 * h, h, a->dy, a->w, a->wide2);
}

static void linear_weight(struct arrays *a)
{
	size_t t = a->size->tokens, h = a->size->hidden;
	for (unsigned i = 0; i < 4; i++)
		pp_cpu_linear_dw(t, h, h, a->dy, a->x, a->dw, true, a->mean, true);
	pp_cpu_linear_dw(t, h, 4 * h, a->wide, a->x, a->dw, true, a->rstd, true);
	pp_cpu_linear_dw(t, 4 * h, h, a->dy, a->wide, a->dw, true, a->mean, true);
}

/* One of the six linears of `linear_forward`, row by row. */
static void linear_plain(struct arrays *a)
{
	size_t t = a->size->tokens, h = a->size->hidden;
	for (size_t i = 0; i < t; i++) {
		for (size_t o = 0; o < h; o++) {
			float sum = a->w[o];
			for (size_t c = 0; c < h; c++)
				sum += a->x[i * h + c] * a->w[o * h + c];
			a->y[i * h + o] = sum;
		}
	}
}

static void attention_forward(struct arrays *a)
{
	struct pp_attention shape = attention_of(a);
	pp_cpu_attention(&shape, a->q, a->k, a->v, a->o, a->lse);
}

static void attention_input(struct arrays *a)
{
	struct pp_attention shape = attention_of(a);
	pp_cpu_attention_dx(&shape, a->dy, a->q, a->k, a->v, a->o, a->lse, a->dq, a->dk, a->dv);
}

/* Row by row, all scores of a row, no tiles: what a first version would do. */
static void attention_plain(struct arrays *a)
{
	size_t seq = a->size->seq, h = a->size->hidden, n = h / a->size->heads;
	float scale = 1 / sqrtf((float)n), *score = a->wide2;
	for (size_t t = 0; t < a->size->tokens; t++) {
		for (size_t head = 0; head < a->size->heads; head++) {
			size_t base = t / seq * seq;
			float best = -INFINITY, sum = 0;
			for (size_t j = base; j <= t; j++) {
				float dot = 0;
				for (size_t c = 0; c < n; c++)
					dot += a->q[t * h + head * n + c] * a->k[j * h + head * n + c];
				score[j - base] = dot * scale;
				best = fmaxf(best, dot * scale);
			}
			float *out = a->o + t * h + head * n;
			memset(out, 0, n * sizeof *out);
			for (size_t j = base; j <= t; j++)
				sum += score[j - base] = expf(score[j - base] - best);
			for (size_t j = base; j <= t; j++)
				for (size_t c = 0; c < n; c++)
					out[c] += score[j - base] / sum * a->v[j * h + head * n + c];
		}
	}
}

static void norms(struct arrays *a)
{
	size_t t = a->size->tokens, h = a->size->hidden;
	for (unsigned i = 0; i < 2; i++) {
		pp_cpu_norm(t, h, false, a->x, a->w, a->w, a->y, a->mean, a->rstd);
		pp_cpu_norm_dx(t, h, false, a->dy, a->x, a->w, a->mean, a->rstd, a->y);
		pp_cpu_norm_dw(t, h, false, a->dy, a->x, a->mean, a->rstd, a->dw, true, a->dw + h, true);
	}
}

static void activations(struct arrays *a)
{
	size_t count = a->size->tokens * a->size->hidden * 4;
	pp_cpu_activate(PP_GELU_TANH, count, a->wide, a->wide2);
	pp_cpu_activate_dx(PP_GELU_TANH, count, a->wide2, a->wide, a->wide2);
}

/* Of Llama's blocks: q and k there and back; 2 * hidden wide, forward and back. */
static void rotations(struct arrays *a)
{
	struct pp_rotation shape = {.tokens = a->size->tokens,
	                            .seq = a->size->seq,
	                            .heads = a->size->heads,
	                            .head_columns = a->size->hidden / a->size->heads,
	                            .theta = 10000};
	for (unsigned i = 0; i < 4; i++) {
		shape.back = i >= 2;
		pp_cpu_rotate(&shape, i % 2 ? a->k : a->q, a->y);
	}
}

static void gates(struct arrays *a)
{
	size_t count = a->size->tokens * a->size->hidden * 2;
	pp_cpu_swiglu(count, a->wide, a->wide + count, a->wide2);
	pp_cpu_swiglu_dx(count, a->wide2, a->wide, a->wide + count, a->wide2, a->wide2 + count);
}

static void sums(struct arrays *a)
{
	for (unsigned i = 0; i < 6; i++)
		pp_cpu_add(a->size->tokens * a->size->hidden, a->x, a->dy, a->y);
}

static void loss(struct arrays *a)
{
	double sum[2];
	pp_cpu_cross_entropy(a->size->tokens, a->size->vocab, a->size->vocab, false, a->logits, a->labels, a->logits, sum);
}

static void update(struct arrays *a)
{
	size_t count = 2 * a->size->hidden * a->size->hidden;
	struct pp_adamw rule = {.lr = 1e-6, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .factor = 1, .step = 3};
	for (unsigned i = 0; i < 6; i++)
		pp_cpu_adamw_update(&rule, count, a->w, a->w + count, a->dw, a->dw + count);
}

/* ---- report ---------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*run)(struct arrays *);
	double flops; /* per hidden^2 * token; 0: not a matrix product */
} rows[] = {
    {"linear", linear_forward, 24},
    {"linear_dx", linear_input, 24},
    {"linear_dw", linear_weight, 24},
    {"attn", attention_forward, 0},
    {"attn_dx", attention_input, 0},
    {"norms", norms, 0},
    {"activation", activations, 0},
    {"sums", sums, 0},
    {"xent", loss, 0},
    {"adamw", update, 0},
    {"rope", rotations, 0},
    {"swiglu", gates, 0},
    {"linear plain", linear_plain, 2},
    {"attn plain", attention_plain, 0},
};

enum { LINEAR_ROWS = 3, BLOCK_ROWS = 8, ATTENTION_ROW = 3, ROWS = sizeof rows / sizeof *rows, PLAIN_ROW = ROWS - 2 };

/* GFLOP/s of a large square product by the same BLAS: the rate that linear layers could have at best. */
static double ceiling(unsigned runs)
{
	enum { EDGE = 1024 };
	float *a = values(EDGE * EDGE, 1), *b = values(EDGE * EDGE, 2), *c = values(EDGE * EDGE, 3);
	double best = INFINITY;
	for (unsigned run = 0; run < runs; run++) {
		double start = now();
		pp_cpu_linear_dx(EDGE, EDGE, EDGE, a, b, c);
		best = fmin(best, now() - start);
	}
	free(a);
	free(b);
	free(c);
	return 2e-9 * EDGE * EDGE * EDGE / best;
}

static struct arrays arrays_make(const struct size *s)
{
	size_t wide = s->tokens * s->hidden;
	struct arrays a = {
	    .size = s,
	    .x = values(wide, 1),
	    .y = values(wide, 2),
	    .dy = values(wide, 3),
	    .wide = values(4 * wide, 4),
	    .wide2 = values(4 * wide + s->seq, 5),
	    .w = values(4 * s->hidden * s->hidden, 6),
	    .dw = values(4 * s->hidden * s->hidden, 7),
	    .q = values(wide, 8),
	    .k = values(wide, 9),
	    .v = values(wide, 10),
	    .o = values(wide, 11),
	    .dq = values(wide, 12),
	    .dk = values(wide, 13),
	    .dv = values(wide, 14),
	    .lse = values(s->tokens * s->heads, 15),
	    .mean = values(s->tokens + 4 * s->hidden, 16),
	    .rstd = values(s->tokens + 4 * s->hidden, 17),
	    .logits = values(s->tokens * s->vocab, 18),
	    .labels = calloc(s->tokens, sizeof(int32_t)),
	};
	return a;
}

static void arrays_free(struct arrays *a)
{
	float *all[] = {a->x, a->y, a->dy, a->wide, a->wide2, a->w,   a->dw,   a->q,    a->k,
	                a->v, a->o, a->dq, a->dk,   a->dv,    a->lse, a->mean, a->rstd, a->logits};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
	free(a->labels);
}

static void report(const struct size *s, unsigned runs)
{
	struct arrays a = arrays_make(s);
	double best[ROWS], block = 0, linear = 0, most = ceiling(runs);
	for (unsigned i = 0; i < ROWS; i++)
		best[i] = INFINITY;
	for (unsigned run = 0; run < runs; run++) {
		for (unsigned i = 0; i < ROWS; i++) {
			double start = now();
			rows[i].run(&a);
			best[i] = fmin(best[i], now() - start);
		}
	}
	for (unsigned i = 0; i < BLOCK_ROWS; i++)
		block += best[i];
	for (unsigned i = 0; i < LINEAR_ROWS; i++)
		linear += best[i];
	printf("%s: %zu tokens, seq %zu, hidden %zu, vocab %zu\n", s->name, s->tokens, s->seq, s->hidden, s->vocab);
	for (unsigned i = 0; i < ROWS; i++) {
		printf("  %-12s %10.1f us %6.1f %% of a block", rows[i].name, best[i] * 1e6, 100 * best[i] / block);
		double rate = rows[i].flops * (double)(s->tokens * s->hidden * s->hidden) / best[i] * 1e-9;
		if (rate > 0)
			printf("  %6.1f GFLOP/s, %.0f %% of the ceiling", rate, 100 * rate / most);
		printf("\n");
	}
	printf("  linear share of a block: %.1f %%; ceiling %.1f GFLOP/s; against plain: linear %.1fx, attn %.1fx\n",
	       100 * linear / block, most, rows[0].flops / rows[PLAIN_ROW].flops * best[PLAIN_ROW] / best[0],
	       best[PLAIN_ROW + 1] / best[ATTENTION_ROW]);
	arrays_free(&a);
}

int main(int count, char **arguments)
{
	static const struct size sizes[] = {
	    {"demo", 128, 64, 64, 4, 256},
	    {"5.3M", 512, 128, 256, 8, 4096},
	    {"124M", 256, 256, 768, 12, 50257},
	    {"124M, long", 1024, 1024, 768, 12, 8192},
	};
	unsigned runs = count > 1 ? (unsigned)strtoul(arguments[1], NULL, 10) : 5;
	pp_kernels_one_thread();
	pp_kernels_flush_denormals();
	printf("core of OpenBLAS: %s\n", pp_kernels_core());
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		report(&sizes[i], runs ? runs : 1);
	return 0;
}
