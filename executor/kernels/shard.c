/* What tensor parallelism adds: shards of token tables and of the logits, the bias behind a row-parallel linear, the
 * columns of one key/value head. */
#include "kernel_math.h"

#include <assert.h>

void pp_cpu_add_bias(size_t tokens, size_t columns, const pp_real *a, const pp_real *b, const pp_real *bias, pp_real *y)
{
	for (size_t t = 0; t < tokens; t++) {
#pragma omp simd
		for (size_t i = 0; i < columns; i++)
			y[t * columns + i] = (a[t * columns + i] + b[t * columns + i]) + bias[i];
	}
}

void pp_cpu_take_columns(size_t tokens, size_t columns, size_t first, size_t count, const pp_real *x, pp_real *y)
{
	for (size_t t = 0; t < tokens; t++)
		memcpy(y + t * count, x + t * columns + first, count * sizeof *y);
}

void pp_cpu_put_columns(size_t tokens, size_t columns, size_t first, size_t count, const pp_real *x, pp_real *y)
{
	memset(y, 0, tokens * columns * sizeof *y);
	for (size_t t = 0; t < tokens; t++)
		memcpy(y + t * columns + first, x + t * count, count * sizeof *y);
}

static bool is_here(const struct pp_table_part *part, int32_t id)
{
	assert(id >= 0);
	return (size_t)id >= part->first && (size_t)id - part->first < part->rows;
}

void pp_cpu_embed_part(size_t tokens, size_t columns, size_t seq, const struct pp_table_part *part, const int32_t *ids,
                       const pp_real *wte, const pp_real *wpe, pp_real *y)
{
	for (size_t t = 0; t < tokens; t++) {
		const pp_real *position = wpe ? wpe + t % seq * columns : NULL;
		pp_real *row = y + t * columns;
		if (!is_here(part, ids[t])) {
			if (position)
				memcpy(row, position, columns * sizeof *y);
			else
				memset(row, 0, columns * sizeof *y);
			continue;
		}
		const pp_real *token = wte + ((size_t)ids[t] - part->first) * columns;
		if (position)
			pp_cpu_add(columns, token, position, row);
		else
			memcpy(row, token, columns * sizeof *y);
	}
}

void pp_cpu_embed_part_dw(size_t tokens, size_t columns, size_t seq, const struct pp_table_part *part, size_t positions,
                          const int32_t *ids, const pp_real *dy, pp_real *dwte, bool accumulate_wte, pp_real *dwpe,
                          bool accumulate_wpe)
{
	if (!accumulate_wte)
		memset(dwte, 0, part->rows * columns * sizeof *dwte);
	if (dwpe && !accumulate_wpe)
		memset(dwpe, 0, positions * columns * sizeof *dwpe);
	for (size_t t = 0; t < tokens; t++) {
		if (is_here(part, ids[t])) {
			pp_real *token = dwte + ((size_t)ids[t] - part->first) * columns;
			pp_cpu_add(columns, token, dy + t * columns, token);
		}
		if (!dwpe)
			continue;
		pp_real *position = dwpe + t % seq * columns;
		pp_cpu_add(columns, position, dy + t * columns, position);
	}
}

/* ---- a shard of the columns ------------------------------------------------------------------ */

enum { STAT_LARGEST, STAT_SUM, STAT_OWN, STATS };

/* Columns of the shard that belong to the vocabulary; the others pad. */
static size_t part_valid(const struct pp_vocab_part *part)
{
	size_t left = part->vocab > part->first ? part->vocab - part->first : 0;
	return left < part->columns ? left : part->columns;
}

static bool part_has(const struct pp_vocab_part *part, int32_t label)
{
	return (size_t)label >= part->first && (size_t)label - part->first < part->columns;
}

static pp_real shifted_sum(size_t count, const pp_real *x, pp_real shift)
{
	pp_real sum = 0;
#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < count; i++)
		sum += real_exp(x[i] - shift);
	return sum;
}

void pp_cpu_cross_entropy_stats(const struct pp_vocab_part *part, size_t tokens, const pp_real *logits,
                                const int32_t *labels, pp_real *stats)
{
	size_t valid = part_valid(part);
	for (size_t t = 0; t < tokens; t++) {
		const pp_real *row = logits + t * part->columns;
		pp_real *of_token = stats + t * STATS;
		memset(of_token, 0, STATS * sizeof *of_token);
		if (labels[t] < 0)
			continue;
		assert((size_t)labels[t] < part->vocab);
		of_token[STAT_LARGEST] = valid ? row_largest(valid, row, row[0]) : -(pp_real)INFINITY;
		of_token[STAT_SUM] = valid ? shifted_sum(valid, row, of_token[STAT_LARGEST]) : 0;
		of_token[STAT_OWN] = part_has(part, labels[t]) ? row[(size_t)labels[t] - part->first] : -(pp_real)INFINITY;
	}
}

/* What the members found of one token, in their order. A sum that is not a number makes the whole none. */
static void stats_combine(size_t tokens, size_t members, const pp_real *stats, pp_real out[STATS])
{
	out[STAT_LARGEST] = out[STAT_OWN] = -(pp_real)INFINITY;
	out[STAT_SUM] = 0;
	for (size_t i = 0; i < members; i++) {
		const pp_real *of = stats + i * tokens * STATS;
		out[STAT_LARGEST] = of[STAT_LARGEST] > out[STAT_LARGEST] ? of[STAT_LARGEST] : out[STAT_LARGEST];
		out[STAT_OWN] = of[STAT_OWN] > out[STAT_OWN] ? of[STAT_OWN] : out[STAT_OWN];
	}
	for (size_t i = 0; i < members; i++) {
		const pp_real *of = stats + i * tokens * STATS;
		if (of[STAT_SUM] != 0)
			out[STAT_SUM] += of[STAT_SUM] * real_exp(of[STAT_LARGEST] - out[STAT_LARGEST]);
	}
}

void pp_cpu_cross_entropy_part(const struct pp_vocab_part *part, size_t tokens, size_t members, bool mean,
                               const pp_real *logits, const int32_t *labels, const pp_real *stats, pp_real *dlogits,
                               double loss[2])
{
	size_t count = 0, valid = part_valid(part);
	for (size_t t = 0; t < tokens; t++)
		count += labels[t] >= 0;
	double total = 0;
	pp_real weight = mean && count ? 1 / (pp_real)count : 1;
	for (size_t t = 0; t < tokens; t++) {
		const pp_real *row = logits + t * part->columns;
		pp_real *out = dlogits + t * part->columns;
		if (labels[t] < 0) {
			memset(out, 0, part->columns * sizeof *out);
			continue;
		}
		pp_real whole[STATS];
		stats_combine(tokens, members, stats + t * STATS, whole);
		total += (double)(real_log(whole[STAT_SUM]) + (whole[STAT_LARGEST] - whole[STAT_OWN]));
		row_exp(valid, row, whole[STAT_LARGEST], out);
		row_scale(valid, weight / whole[STAT_SUM], out);
		if (part_has(part, labels[t]))
			out[(size_t)labels[t] - part->first] -= weight;
		memset(out + valid, 0, (part->columns - valid) * sizeof *out);
	}
	loss[0] = total;
	loss[1] = (double)count;
}
