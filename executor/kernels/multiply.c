/* Matrix product in tiles that stay in vector registers, over operands packed to be read in the order of use.
 *
 * A block of the right operand, DEPTH x WIDTH, is packed into panels of TILE_COLUMNS columns and stays in the second
 * cache; tiles of TILE_ROWS rows of the left operand run over it. The left operand is read where it lies; only where
 * its columns lie apart (transposed) or rows are missing at the edge is it packed. Each element of the result is one
 * chain of fused multiply-adds in ascending k per block of DEPTH; the blocks are added in ascending order. */
#include "multiply.h"

#include <string.h>

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE_ROWS = 8 }; /* 16 of 32 registers sum up: two units with a latency of 4 keep busy */
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE_ROWS = 6 }; /* 12 of 16 registers */
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 6 };
#endif

enum {
	LANES = VECTOR_BYTES / sizeof(pp_real),
	TILE_VECTORS = 2,
	TILE_COLUMNS = TILE_VECTORS * LANES,
	DEPTH = 384,
	WIDTH = 256,             /* a multiple of TILE_COLUMNS */
	HEIGHT = 12 * TILE_ROWS, /* rows of the left operand that use a panel while it is in the first cache */
	QUAD = 4,                /* transposing works on squares of this size */
};

typedef pp_real vector __attribute__((vector_size(VECTOR_BYTES)));
typedef pp_real loose_vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(pp_real))));
typedef pp_real quad __attribute__((vector_size(QUAD * sizeof(pp_real)), aligned(sizeof(pp_real))));

/* A tile of the result while it is summed up. */
struct tile {
	vector sum[TILE_ROWS][TILE_VECTORS];
};

/* Where a product goes. `transposed`: the product's rows are the columns in memory. */
struct result {
	pp_real *at;
	size_t stride;
	bool transposed, add;
	pp_real alpha;
};

/* The place and extent of a tile in the result. */
struct place {
	size_t row, column, rows, columns;
};

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* to[j, i] = from[i, j] for a square of four. */
static inline void transpose_quad(const pp_real *from, size_t from_stride, quad to[QUAD])
{
	quad a = *(const quad *)from, b = *(const quad *)(from + from_stride);
	quad c = *(const quad *)(from + 2 * from_stride), d = *(const quad *)(from + 3 * from_stride);
	quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
	quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
	to[0] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
	to[1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
	to[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
	to[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/* to[j * to_stride + i] = from[i * from_stride + j], i < rows, j < columns. */
static void transpose(size_t rows, size_t columns, const pp_real *from, size_t from_stride, pp_real *to,
                      size_t to_stride)
{
	size_t whole_rows = rows / QUAD * QUAD, whole_columns = columns / QUAD * QUAD;
	for (size_t i = 0; i < whole_rows; i += QUAD) {
		for (size_t j = 0; j < whole_columns; j += QUAD) {
			quad square[QUAD];
			transpose_quad(from + i * from_stride + j, from_stride, square);
			for (size_t q = 0; q < QUAD; q++)
				*(quad *)(to + (j + q) * to_stride + i) = square[q];
		}
		for (size_t j = whole_columns; j < columns; j++)
			for (size_t q = 0; q < QUAD; q++)
				to[j * to_stride + i + q] = from[(i + q) * from_stride + j];
	}
	for (size_t i = whole_rows; i < rows; i++)
		for (size_t j = 0; j < columns; j++)
			to[j * to_stride + i] = from[i * from_stride + j];
}

/* Columns `width` … TILE_COLUMNS - 1 of a panel are padding. */
static void clear_columns(size_t depth, size_t width, pp_real *panel)
{
	for (size_t p = 0; p < depth; p++)
		memset(panel + p * TILE_COLUMNS + width, 0, (TILE_COLUMNS - width) * sizeof *panel);
}

/* One panel: TILE_COLUMNS columns of the right operand from (row, column) on. */
static void pack_panel(struct pp_matrix right, size_t row, size_t depth, size_t column, size_t width, pp_real *panel)
{
	if (right.transposed) {
		transpose(width, depth, right.at + column * right.stride + row, right.stride, panel, TILE_COLUMNS);
	} else if (width == TILE_COLUMNS) {
		const pp_real *from = right.at + row * right.stride + column;
		for (size_t p = 0; p < depth; p++, from += right.stride, panel += TILE_COLUMNS)
			for (size_t v = 0; v < TILE_VECTORS; v++)
				*(vector *)(panel + v * LANES) = *(const loose_vector *)(from + v * LANES);
	} else {
		for (size_t p = 0; p < depth; p++)
			memcpy(panel + p * TILE_COLUMNS, right.at + (row + p) * right.stride + column, width * sizeof *panel);
	}
	if (width < TILE_COLUMNS)
		clear_columns(depth, width, panel);
}

/* TILE_ROWS rows of the left operand, those from `rows` on 0: to[p * TILE_ROWS + i] = left[row + i, column + p]. */
static void pack_rows(struct pp_matrix left, size_t row, size_t rows, size_t column, size_t depth, pp_real *to)
{
	if (!left.transposed) {
		memset(to, 0, depth * TILE_ROWS * sizeof *to);
		transpose(rows, depth, left.at + row * left.stride + column, left.stride, to, TILE_ROWS);
		return;
	}
	const pp_real *from = left.at + column * left.stride + row;
	if (rows == TILE_ROWS) {
		for (size_t p = 0; p < depth; p++, from += left.stride, to += TILE_ROWS)
			for (size_t i = 0; i < TILE_ROWS; i++)
				to[i] = from[i];
		return;
	}
	memset(to, 0, depth * TILE_ROWS * sizeof *to);
	for (size_t p = 0; p < depth; p++)
		for (size_t i = 0; i < rows; i++)
			to[p * TILE_ROWS + i] = from[p * left.stride + i];
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Inlined with constant steps, so that all sums stay in registers. */
static inline __attribute__((always_inline)) void sum_tile(size_t depth, const pp_real *left, size_t row_step,
                                                           size_t depth_step, const pp_real *panel, struct tile *tile)
{
	struct tile sums = {0};
	for (size_t p = 0; p < depth; p++, left += depth_step, panel += TILE_COLUMNS) {
		vector right[TILE_VECTORS];
#pragma GCC unroll 2
		for (size_t v = 0; v < TILE_VECTORS; v++)
			right[v] = *(const vector *)(panel + v * LANES);
#pragma GCC unroll 8
		for (size_t i = 0; i < TILE_ROWS; i++) {
			pp_real factor = left[i * row_step];
#pragma GCC unroll 2
			for (size_t v = 0; v < TILE_VECTORS; v++)
				sums.sum[i][v] += factor * right[v];
		}
	}
	*tile = sums;
}

/* The usual case: a whole tile into rows of memory. */
static inline __attribute__((always_inline)) void store_whole(const struct tile *tile, const struct result *result,
                                                              const struct place *place)
{
	pp_real *row = result->at + place->row * result->stride + place->column;
#pragma GCC unroll 8
	for (size_t i = 0; i < TILE_ROWS; i++, row += result->stride) {
#pragma GCC unroll 2
		for (size_t v = 0; v < TILE_VECTORS; v++) {
			loose_vector *to = (loose_vector *)(row + v * LANES);
			vector value = result->alpha * tile->sum[i][v];
			*to = result->add ? *to + value : value;
		}
	}
}

static void put_row(size_t count, bool add, const pp_real *from, pp_real *to)
{
	for (size_t i = 0; i < count; i++)
		to[i] = add ? to[i] + from[i] : from[i];
}

/* The tile turned around, square by square; what reaches over the edge goes element by element. */
static void store_turned(pp_real rows[TILE_ROWS][TILE_COLUMNS], const struct result *result, const struct place *place)
{
	pp_real *at = result->at + place->column * result->stride + place->row;
	size_t whole_rows = place->rows / QUAD * QUAD, whole_columns = place->columns / QUAD * QUAD;
	for (size_t j = 0; j < whole_columns; j += QUAD) {
		for (size_t i = 0; i < whole_rows; i += QUAD) {
			quad square[QUAD];
			transpose_quad(&rows[i][j], TILE_COLUMNS, square);
			for (size_t q = 0; q < QUAD; q++) {
				quad *to = (quad *)(at + (j + q) * result->stride + i);
				*to = result->add ? *to + square[q] : square[q];
			}
		}
	}
	for (size_t j = 0; j < place->columns; j++) {
		for (size_t i = j < whole_columns ? whole_rows : 0; i < place->rows; i++) {
			pp_real *to = at + j * result->stride + i;
			*to = result->add ? *to + rows[i][j] : rows[i][j];
		}
	}
}

/* Edges and transposed results. */
static void store_part(const struct tile *tile, const struct result *result, const struct place *place)
{
	pp_real rows[TILE_ROWS][TILE_COLUMNS];
	for (size_t i = 0; i < TILE_ROWS; i++)
		for (size_t v = 0; v < TILE_VECTORS; v++)
			*(loose_vector *)&rows[i][v * LANES] = result->alpha * tile->sum[i][v];
	if (result->transposed) {
		store_turned(rows, result, place);
		return;
	}
	for (size_t i = 0; i < place->rows; i++)
		put_row(place->columns, result->add, rows[i], result->at + (place->row + i) * result->stride + place->column);
}

static inline __attribute__((always_inline)) void store(const struct tile *tile, const struct result *result,
                                                        const struct place *place)
{
	if (!result->transposed && place->rows == TILE_ROWS && place->columns == TILE_COLUMNS)
		store_whole(tile, result, place);
	else
		store_part(tile, result, place);
}

/* Ask for the rows of a whole tile before they are needed. */
static inline __attribute__((always_inline)) void fetch(const struct result *result, const struct place *place)
{
	if (result->transposed) {
		const pp_real *row = result->at + place->column * result->stride + place->row;
		for (size_t j = 0; j < place->columns; j++, row += result->stride)
			__builtin_prefetch(row, 1);
		return;
	}
	const pp_real *row = result->at + place->row * result->stride + place->column;
	for (size_t i = 0; i < place->rows; i++, row += result->stride)
		for (size_t v = 0; v < TILE_VECTORS; v++)
			__builtin_prefetch(row + v * LANES, 1);
}

static void tile_in_place(size_t depth, const pp_real *left, size_t stride, const pp_real *panel,
                          const struct result *result, const struct place *place)
{
	struct tile tile;
	fetch(result, place);
	sum_tile(depth, left, stride, 1, panel, &tile);
	store(&tile, result, place);
}

static void tile_packed(size_t depth, const pp_real *left, const pp_real *panel, const struct result *result,
                        const struct place *place)
{
	struct tile tile;
	fetch(result, place);
	sum_tile(depth, left, 1, TILE_ROWS, panel, &tile);
	store(&tile, result, place);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Up to HEIGHT rows of the left operand times a packed block of the right one. */
static void multiply_rows(struct pp_matrix left, size_t row, size_t rows, size_t column, size_t depth,
                          const pp_real *panels, size_t right_column, size_t width, const struct result *result)
{
	pp_real packed[HEIGHT * DEPTH];
	for (size_t i = 0; i < rows; i += TILE_ROWS)
		if (left.transposed || rows - i < TILE_ROWS)
			pack_rows(left, row + i, smaller(TILE_ROWS, rows - i), column, depth, packed + i * depth);
	for (size_t j = 0; j < width; j += TILE_COLUMNS) {
		for (size_t i = 0; i < rows; i += TILE_ROWS) {
			struct place place = {row + i, right_column + j, smaller(TILE_ROWS, rows - i),
			                      smaller(TILE_COLUMNS, width - j)};
			if (left.transposed || place.rows < TILE_ROWS)
				tile_packed(depth, packed + i * depth, panels + j * depth, result, &place);
			else
				tile_in_place(depth, left.at + place.row * left.stride + column, left.stride, panels + j * depth,
				              result, &place);
		}
	}
}

static void multiply(size_t m, size_t n, size_t k, struct pp_matrix left, struct pp_matrix right, struct result result)
{
	vector block[DEPTH * WIDTH / LANES];
	pp_real *panels = (pp_real *)block;
	for (size_t p = 0; p < k; p += DEPTH) {
		size_t depth = smaller(DEPTH, k - p);
		for (size_t j = 0; j < n; j += WIDTH) {
			size_t width = smaller(WIDTH, n - j);
			for (size_t at = 0; at < width; at += TILE_COLUMNS)
				pack_panel(right, p, depth, j + at, smaller(TILE_COLUMNS, width - at), panels + at * depth);
			for (size_t i = 0; i < m; i += HEIGHT)
				multiply_rows(left, i, smaller(HEIGHT, m - i), p, depth, panels, j, width, &result);
		}
		result.add = true;
	}
}

/* With both operands lying along k, one has to be turned around: the right one, or the left one and the result. Which
 * is less work is a matter of speed alone. */
static bool turn_result(size_t m, size_t n, size_t k)
{

	size_t blocks = (k + DEPTH - 1) / DEPTH;
	return m * k + m * n * blocks < n * k;
}

void pp_cpu_multiply(size_t m, size_t n, size_t k, pp_real alpha, struct pp_matrix a, struct pp_matrix b, bool add,
                     pp_real *c, size_t stride)
{
	struct result result = {.at = c, .stride = stride, .add = add, .alpha = alpha};
	if (!a.transposed && b.transposed && turn_result(m, n, k)) {
		a.transposed = true;
		b.transposed = false;
		result.transposed = true;
		multiply(n, m, k, b, a, result);
	} else {
		multiply(m, n, k, a, b, result);
	}
}
