/* Causal attention in tiles with a running softmax: a tile of scores lives on the stack, whatever the sequence length.
 * Products go through BLAS on strided views, so no head is ever copied. */
#include "kernel_math.h"

#include <assert.h>

enum { TILE = 64 };

/* One head of one sample: views of its rows, `seq` long. */
struct head {
	const pp_real *q, *k, *v;
	size_t q_stride, kv_stride; /* between tokens */
	size_t seq, columns, window;
	pp_real scale;
};

/* A tile pair: queries first_query … + queries against keys first_key … + keys. */
struct tile {
	size_t first_query, queries, first_key, keys;
};

static struct head head_of(const struct pp_attention *shape, size_t sample, size_t h, const pp_real *q,
                           const pp_real *k, const pp_real *v)
{
	size_t kv = h / (shape->heads / shape->kv_heads);
	size_t q_stride = shape->heads * shape->head_columns, kv_stride = shape->kv_heads * shape->head_columns;
	size_t q_at = sample * shape->seq * q_stride + h * shape->head_columns;
	size_t kv_at = sample * shape->seq * kv_stride + kv * shape->head_columns;
	return (struct head){
	    .q = q + q_at,
	    .k = k + kv_at,
	    .v = v + kv_at,
	    .q_stride = q_stride,
	    .kv_stride = kv_stride,
	    .seq = shape->seq,
	    .columns = shape->head_columns,
	    .window = shape->window ? shape->window : shape->seq,
	    .scale = 1 / real_sqrt((pp_real)shape->head_columns),
	};
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Keys that `query` sees: first … query. */
static size_t first_visible(const struct head *head, size_t query)
{
	return query + 1 > head->window ? query + 1 - head->window : 0;
}

/* The part of a key tile that a query sees: columns *from … *to - 1 of the tile; empty if *from == *to. */
static void visible(const struct head *head, const struct tile *tile, size_t query, size_t *from, size_t *to)
{
	size_t first = first_visible(head, query), end = query + 1;
	*to = end <= tile->first_key ? 0 : smaller(end - tile->first_key, tile->keys);
	*from = first <= tile->first_key ? 0 : smaller(first - tile->first_key, *to);
}

/* score[i, j] = scale * q_i . k_j */
static void score_tile(const struct head *head, const struct tile *tile, pp_real *score)
{
	multiply(tile->queries, tile->keys, head->columns, head->scale,
	         (struct matrix){head->q + tile->first_query * head->q_stride, head->q_stride, false},
	         (struct matrix){head->k + tile->first_key * head->kv_stride, head->kv_stride, true}, 0, score, TILE);
}

/* Running softmax of one query over its tiles so far. */
struct running {
	pp_real best, sum;
};

/* Turn a tile of scores into exp(score - best), 0 where masked; rescale what is in `out` so far. */
static void soften_tile(const struct head *head, const struct tile *tile, pp_real *score, struct running *running,
                        pp_real *out)
{
	for (size_t i = 0; i < tile->queries; i++) {
		size_t from, to;
		visible(head, tile, tile->first_query + i, &from, &to);
		pp_real *row = score + i * TILE;
		memset(row, 0, from * sizeof *row);
		memset(row + to, 0, (tile->keys - to) * sizeof *row);
		if (from == to)
			continue;
		pp_real old = running[i].best;
		pp_real best = row_largest(to - from, row + from, old);
		pp_real sum = row_exp(to - from, row + from, best, row + from);
		if (best > old) {
			pp_real correction = running[i].sum > 0 ? real_exp(old - best) : 0;
			running[i].sum *= correction;
			row_scale(head->columns, correction, out + i * head->q_stride);
		}
		running[i].best = best;
		running[i].sum += sum;
	}
}

/* Attention of one tile of queries; `out` is its first row, lse of row i goes to lse[i * lse_stride]. */
static void attend(const struct head *head, size_t first_query, pp_real *out, pp_real *lse, size_t lse_stride)
{
	pp_real score[TILE * TILE];
	struct running running[TILE];
	size_t queries = smaller(TILE, head->seq - first_query);
	for (size_t i = 0; i < queries; i++) {
		running[i] = (struct running){-(pp_real)INFINITY, 0};
		memset(out + i * head->q_stride, 0, head->columns * sizeof *out);
	}
	size_t start = first_visible(head, first_query) / TILE * TILE;
	for (size_t key = start; key < first_query + queries; key += TILE) {
		struct tile tile = {first_query, queries, key, smaller(TILE, first_query + queries - key)};
		score_tile(head, &tile, score);
		soften_tile(head, &tile, score, running, out);
		multiply(queries, head->columns, tile.keys, 1, (struct matrix){score, TILE, false},
		         (struct matrix){head->v + key * head->kv_stride, head->kv_stride, false}, 1, out, head->q_stride);
	}
	for (size_t i = 0; i < queries; i++) {
		row_scale(head->columns, 1 / running[i].sum, out + i * head->q_stride);
		lse[i * lse_stride] = running[i].best + real_log(running[i].sum);
	}
}

void pp_cpu_attention(const struct pp_attention *shape, const pp_real *q, const pp_real *k, const pp_real *v,
                      pp_real *o, pp_real *lse)
{
	assert(shape->heads % shape->kv_heads == 0 && shape->tokens % shape->seq == 0);
	for (size_t sample = 0; sample < shape->tokens / shape->seq; sample++) {
		for (size_t h = 0; h < shape->heads; h++) {
			struct head head = head_of(shape, sample, h, q, k, v);
			for (size_t query = 0; query < shape->seq; query += TILE) {
				size_t token = sample * shape->seq + query;
				attend(&head, query, o + token * head.q_stride + h * head.columns, lse + token * shape->heads + h,
				       shape->heads);
			}
		}
	}
}

/* What the backward of one head adds: output and its gradient, gradients to fill in, all views like struct head. */
struct head_dx {
	const pp_real *o, *d_o, *lse;
	pp_real *dq, *dk, *dv;
	size_t lse_stride;
};

/* row_dot[i] = dot(d_o_i, o_i): the part of the softmax's gradient that is common to a row. */
static void dot_rows(const struct head *head, const struct head_dx *dx, const struct tile *tile, pp_real *row_dot)
{
	for (size_t i = 0; i < tile->queries; i++) {
		const pp_real *a = dx->o + (tile->first_query + i) * head->q_stride;
		const pp_real *b = dx->d_o + (tile->first_query + i) * head->q_stride;
		pp_real sum = 0;
#pragma omp simd reduction(+ : sum)
		for (size_t c = 0; c < head->columns; c++)
			sum += a[c] * b[c];
		row_dot[i] = sum;
	}
}

/* Scores to probabilities, 0 where masked. */
static void probability_tile(const struct head *head, const struct head_dx *dx, const struct tile *tile, pp_real *score)
{
	for (size_t i = 0; i < tile->queries; i++) {
		size_t from, to, query = tile->first_query + i;
		visible(head, tile, query, &from, &to);
		pp_real *row = score + i * TILE;
		memset(row, 0, from * sizeof *row);
		memset(row + to, 0, (tile->keys - to) * sizeof *row);
		row_exp(to - from, row + from, dx->lse[query * dx->lse_stride], row + from);
	}
}

/* probability := scale * probability * (d_probability - row_dot): the gradient of the unscaled scores. */
static void score_gradient(const struct head *head, const struct tile *tile, const pp_real *restrict d_probability,
                           const pp_real *restrict row_dot, pp_real *restrict probability)
{
	for (size_t i = 0; i < tile->queries; i++) {
#pragma omp simd
		for (size_t j = 0; j < tile->keys; j++)
			probability[i * TILE + j] *= head->scale * (d_probability[i * TILE + j] - row_dot[i]);
	}
}

static void attend_dx(const struct head *head, const struct head_dx *dx, size_t first_query)
{
	pp_real score[TILE * TILE], d_score[TILE * TILE], row_dot[TILE];
	struct tile tile = {.first_query = first_query, .queries = smaller(TILE, head->seq - first_query)};
	dot_rows(head, dx, &tile, row_dot);
	const size_t q_at = first_query * head->q_stride;
	const struct matrix d_o = {dx->d_o + q_at, head->q_stride, false};
	size_t start = first_visible(head, first_query) / TILE * TILE;
	for (size_t key = start; key < first_query + tile.queries; key += TILE) {
		tile.first_key = key;
		tile.keys = smaller(TILE, first_query + tile.queries - key);
		size_t kv_at = key * head->kv_stride;
		score_tile(head, &tile, score);
		probability_tile(head, dx, &tile, score);
		multiply(tile.keys, head->columns, tile.queries, 1, (struct matrix){score, TILE, true}, d_o, 1, dx->dv + kv_at,
		         head->kv_stride);
		multiply(tile.queries, tile.keys, head->columns, 1, d_o,
		         (struct matrix){head->v + kv_at, head->kv_stride, true}, 0, d_score, TILE);
		score_gradient(head, &tile, d_score, row_dot, score);
		multiply(tile.keys, head->columns, tile.queries, 1, (struct matrix){score, TILE, true},
		         (struct matrix){head->q + q_at, head->q_stride, false}, 1, dx->dk + kv_at, head->kv_stride);
		multiply(tile.queries, head->columns, tile.keys, 1, (struct matrix){score, TILE, false},
		         (struct matrix){head->k + kv_at, head->kv_stride, false}, 1, dx->dq + q_at, head->q_stride);
	}
}

void pp_cpu_attention_dx(const struct pp_attention *shape, const pp_real *d_o, const pp_real *q, const pp_real *k,
                         const pp_real *v, const pp_real *o, const pp_real *lse, pp_real *dq, pp_real *dk, pp_real *dv)
{
	assert(shape->heads % shape->kv_heads == 0 && shape->tokens % shape->seq == 0);
	size_t q_count = shape->tokens * shape->heads * shape->head_columns;
	size_t kv_count = shape->tokens * shape->kv_heads * shape->head_columns;
	memset(dq, 0, q_count * sizeof *dq);
	memset(dk, 0, kv_count * sizeof *dk);
	memset(dv, 0, kv_count * sizeof *dv);
	for (size_t sample = 0; sample < shape->tokens / shape->seq; sample++) {
		for (size_t h = 0; h < shape->heads; h++) {
			struct head head = head_of(shape, sample, h, q, k, v);
			size_t q_at = (size_t)(head.q - q), kv_at = (size_t)(head.k - k);
			struct head_dx dx = {
			    .o = o + q_at,
			    .d_o = d_o + q_at,
			    .lse = lse + sample * shape->seq * shape->heads + h,
			    .lse_stride = shape->heads,
			    .dq = dq + q_at,
			    .dk = dk + kv_at,
			    .dv = dv + kv_at,
			};
			for (size_t query = 0; query < shape->seq; query += TILE)
				attend_dx(&head, &dx, query);
		}
	}
}
