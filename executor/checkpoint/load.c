/* Loading one coordinate's share of a checkpoint, however it was cut when it was saved: of every part that was saved,
 * the elements that lie in what is held here.
 *
 * Requires: state of a verified program. Ensures: every file that is read is whole, and of the same model; every
 * element is loaded. */
#include "checkpoint.h"

#include "executor/bf16.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 }; /* bytes */

/* An item and a part that holds some of it. */
struct source {
	const struct pp_state_item *item;
	struct pp_manifest_part part;
};

struct loading {
	const struct pp_program *program;
	const struct pp_manifest *manifest;
	const char *path;
	struct source *sources;
	uint32_t count, capacity;
	unsigned char *piece; /* of a file, on its way to a slot */
};

static bool no_memory(struct pp_status *status)
{
	return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for loading a checkpoint");
}

/* ---- elements that two extents share --------------------------------------------------------- */

/* Elements that lie together in both: numbers within each extent. */
struct run {
	uint64_t to, from, count;
};

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Columns of the whole tensor that an extent has in a row of its box: [*begin, *end). */
static void columns_of(const struct pp_extent *extent, uint64_t row, uint64_t *begin, uint64_t *end)
{
	uint64_t at = (row - extent->box.row) * extent->box.columns;
	uint64_t low = larger(extent->first, at), high = smaller(extent->first + extent->count, at + extent->box.columns);
	*begin = extent->box.column + (low - at);
	*end = high > low ? extent->box.column + (high - at) : *begin;
}

/* The number of an element within an extent. */
static uint64_t number_in(const struct pp_extent *extent, uint64_t row, uint64_t column)
{
	return (row - extent->box.row) * extent->box.columns + (column - extent->box.column) - extent->first;
}

static struct run run_in_row(const struct pp_extent *to, const struct pp_extent *from, uint64_t row)
{
	uint64_t to_begin, to_end, from_begin, from_end;
	columns_of(to, row, &to_begin, &to_end);
	columns_of(from, row, &from_begin, &from_end);
	uint64_t begin = larger(to_begin, from_begin), end = smaller(to_end, from_end);
	if (begin >= end)
		return (struct run){0};
	return (struct run){number_in(to, row, begin), number_in(from, row, begin), end - begin};
}

/* Rows of the whole tensor in which an extent has elements: [*begin, *end). */
static void rows_of(const struct pp_extent *extent, uint64_t *begin, uint64_t *end)
{
	*begin = *end = extent->box.row + extent->first / extent->box.columns;
	if (extent->count)
		*end = extent->box.row + (extent->first + extent->count - 1) / extent->box.columns + 1;
}

/* Rows in which both may have common elements: all of them but the outermost do. */
static void rows_in_both(const struct pp_extent *to, const struct pp_extent *from, uint64_t *begin, uint64_t *end)
{
	uint64_t begins[2], ends[2];
	rows_of(to, &begins[0], &ends[0]);
	rows_of(from, &begins[1], &ends[1]);
	bool apart = (uint64_t)to->box.column + to->box.columns <= from->box.column ||
	             (uint64_t)from->box.column + from->box.columns <= to->box.column;
	*begin = larger(begins[0], begins[1]);
	*end = apart ? *begin : smaller(ends[0], ends[1]);
}

static uint64_t shared(const struct pp_extent *to, const struct pp_extent *from)
{
	uint64_t count = 0, row, end;
	for (rows_in_both(to, from, &row, &end); row < end; row++)
		count += run_in_row(to, from, row).count;
	return count;
}

/* Elements of a file into a slot, from element `at` of it on. */
static bool put(const struct pp_state_item *item, uint64_t at, uint64_t count, unsigned char *piece,
                struct pp_status *status)
{
	uint64_t size = sizeof(float);
	for (uint64_t i = 0; item->kind == PP_STATE_ROUNDED && i < count; i++) {
		float value;
		memcpy(&value, piece + i * sizeof value, sizeof value);
		pp_bf16 rounded = pp_bf16_from_f32(value);
		memcpy(piece + i * sizeof rounded, &rounded, size = sizeof rounded);
	}
	return item->memory->write(item->memory->context, item->slot, at * size, count * size, piece, status);
}

static bool read_run(struct pp_safetensors *file, const struct source *source, const struct run *run,
                     unsigned char *piece, struct pp_status *status)
{
	const struct pp_state_item *item = source->item;
	const uint64_t size = sizeof(float);
	for (uint64_t at = 0; at < run->count; at += PIECE / size) {
		uint64_t count = smaller(run->count - at, PIECE / size);
		if (!pp_safetensors_read(file, item->name, source->part.extent.count * size, (run->from + at) * size, piece,
		                         count * size, status) ||
		    !put(item, run->to + at, count, piece, status))
			return false;
	}
	return true;
}

/* Rows that follow each other in both are read at once. */
static bool read_source(struct pp_safetensors *file, const struct source *source, unsigned char *piece,
                        struct pp_status *status)
{
	const struct pp_extent *to = &source->item->extent, *from = &source->part.extent;
	struct run pending = {0};
	uint64_t row, end;
	for (rows_in_both(to, from, &row, &end); row < end; row++) {
		struct run run = run_in_row(to, from, row);
		if (run.to == pending.to + pending.count && run.from == pending.from + pending.count) {
			pending.count += run.count;
			continue;
		}
		if (!read_run(file, source, &pending, piece, status))
			return false;
		pending = run;
	}
	return read_run(file, source, &pending, piece, status);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int by_file(const void *left, const void *right)
{
	const struct source *a = left, *b = right;
	if (a->part.rank != b->part.rank)
		return a->part.rank < b->part.rank ? -1 : 1;
	return a->item < b->item ? -1 : a->item > b->item;
}

/* The sources from `first` on that lie in one file; *next: the first that does not. */
static bool load_file(const struct loading *loading, uint32_t first, uint32_t *next, struct pp_status *status)
{
	char name[32], path[PP_PATH_MAX];
	const struct source *source = &loading->sources[first];
	pp_checkpoint_file(name, source->part.rank);
	int length = snprintf(path, sizeof path, "%s/%s", loading->path, name);
	if (length < 0 || (size_t)length >= sizeof path)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "path of a checkpoint is too long: %.200s", loading->path);
	if (!pp_file_check(path, &source->part.sum, status))
		return false;
	struct pp_safetensors *file = pp_safetensors_open(path, status);
	bool ok = file != NULL;
	uint32_t i = first;
	for (; i < loading->count && loading->sources[i].part.rank == source->part.rank; i++)
		ok = ok && read_source(file, &loading->sources[i], loading->piece, status);
	pp_safetensors_close(file);
	*next = i;
	return ok;
}

static bool add_source(struct loading *loading, const struct pp_state_item *item, const struct pp_manifest_part *part,
                       struct pp_status *status)
{
	if (loading->count == loading->capacity) {
		uint32_t capacity = 2 * loading->capacity + 64;
		struct source *grown = realloc(loading->sources, capacity * sizeof *grown);
		if (!grown)
			return no_memory(status);
		loading->sources = grown;
		loading->capacity = capacity;
	}
	loading->sources[loading->count++] = (struct source){item, *part};
	return true;
}

/* Elements of an item that were saved: padding rows that were not are 0 from the start. */
static uint64_t saved_elements(const struct loading *loading, const struct pp_state_item *item)
{
	const struct pp_extent *extent = &item->extent;
	uint64_t rows = pp_manifest_rows(loading->manifest, loading->program->tensors[item->tensor].name);
	uint64_t kept = rows > extent->box.row ? smaller(rows - extent->box.row, extent->box.rows) : 0;
	uint64_t end = smaller(extent->first + extent->count, kept * extent->box.columns);
	return end > extent->first ? end - extent->first : 0;
}

static bool find_sources(struct loading *loading, const struct pp_state_item *item, struct pp_status *status)
{
	struct pp_manifest_part *parts;
	uint32_t count;
	const char *name = loading->program->tensors[item->tensor].name;
	if (!pp_manifest_parts(loading->manifest, name, pp_state_is_moment(item->kind), &parts, &count, status))
		return false;
	uint64_t found = 0, wanted = saved_elements(loading, item);
	bool ok = true;
	for (uint32_t i = 0; ok && i < count && found <= wanted; i++) {
		uint64_t common = shared(&item->extent, &parts[i].extent);
		found += common;
		ok = common == 0 || add_source(loading, item, &parts[i], status);
	}
	free(parts);
	if (ok && found != wanted)
		ok = pp_fail(status, PP_EXIT_ENVIRONMENT,
		             "%s: the parts of tensor `%s` hold %" PRIu64 " elements of the %" PRIu64 " wanted", loading->path,
		             item->name, found, wanted);
	return ok;
}

static bool load_items(struct loading *loading, const struct pp_state *state, bool moments, struct pp_status *status)
{
	bool ok = true;
	for (uint32_t i = 0; ok && i < state->count; i++)
		if (!pp_state_is_moment(state->items[i].kind) || moments)
			ok = find_sources(loading, &state->items[i], status);
	if (ok && loading->count)
		qsort(loading->sources, loading->count, sizeof *loading->sources, by_file);
	for (uint32_t i = 0; ok && i < loading->count;)
		ok = load_file(loading, i, &i, status);
	free(loading->sources);
	return ok;
}

bool pp_checkpoint_load(const struct pp_state *state, const struct pp_program *program, const char *path, bool moments,
                        struct pp_training_point *point, struct pp_status *status)
{
	struct pp_manifest *manifest = pp_manifest_read(path, status);
	if (!manifest)
		return false;
	struct loading loading = {.program = program, .manifest = manifest, .path = path, .piece = malloc(PIECE)};
	*point = moments ? pp_manifest_point(manifest) : (struct pp_training_point){0};
	bool ok = (loading.piece || no_memory(status)) && pp_manifest_check_model(manifest, program, status) &&
	          (!moments || pp_manifest_check_training(manifest, program, status)) &&
	          load_items(&loading, state, moments, status);
	free(loading.piece);
	pp_manifest_free(manifest);
	return ok;
}
