/* Checkpoints of a grid: saved by one, loaded by another, every element is where it belongs. Elements are known by
 * their values; padding of the vocabulary differs between grids. */
#include "executor/bf16.h"
#include "executor/checkpoint/checkpoint.h"

#include "support/random.h"

#include "ir/file.h"
#include "ir/image_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TENSORS = 5, VOCAB = 10, TABLE = 0, SLOTS_EACH = 4 };

static char folder[] = "/tmp/checkpoint-shards-XXXXXX";

struct grid {
	uint32_t pp, tp, dp, zero;
	uint8_t order;
	bool half; /* weights are bf16 and have master copies */
};

/* A program of one table and four tensors: split by rows, by columns, not at all. The last stage ties the table. */
struct world {
	struct pp_arena *arena;
	struct pp_program *program;
	uint32_t size; /* ranks */
	void *(*slots)[TENSORS * SLOTS_EACH];
	struct pp_state *states;
};

static void make_tensors(struct pp_program *program, bool half)
{
	static const struct pp_tensor tensors[TENSORS] = {
	    {.name = "emb.weight", .columns = 6, .dims = 2, .tp_grad = PP_TP_SHARDED, .shard = 0},
	    {.name = "up.weight", .rows = 12, .columns = 5, .dims = 2, .tp_grad = PP_TP_SHARDED, .shard = 0},
	    {.name = "down.weight", .rows = 5, .columns = 12, .dims = 2, .tp_grad = PP_TP_SHARDED, .shard = 1},
	    {.name = "norm.weight", .rows = 7, .columns = 1, .dims = 1, .tp_grad = PP_TP_REPLICATED_PARTIAL, .shard = 255},
	    {.name = "up.bias", .rows = 12, .columns = 1, .dims = 1, .tp_grad = PP_TP_SHARDED, .shard = 0},
	};
	program->tensor_count = TENSORS;
	program->tensors = PP_NEW_ARRAY(program->arena, struct pp_tensor, TENSORS);
	memcpy(program->tensors, tensors, sizeof tensors);
	for (uint32_t t = 0; t < TENSORS; t++)
		program->tensors[t].dtype = half ? PP_BF16 : PP_F32;
	program->tensors[TABLE].rows = (VOCAB + program->tp - 1) / program->tp * program->tp;
}

/* Tensor t lives on rank t mod pp, the table also on the last one; slots 4t: weight, moments, master copy. */
static void make_uses(struct pp_program *program)
{
	program->uses = PP_NEW_ARRAY(program->arena, struct pp_use, TENSORS + 1);
	for (uint32_t t = 0; t < TENSORS; t++) {
		program->uses[program->use_count++] =
		    (struct pp_use){.tensor = t, .stage = t % program->ranks, .weight = SLOTS_EACH * t, .grad = PP_NULL};
		if (t == TABLE && program->ranks > 1)
			program->uses[program->use_count++] =
			    (struct pp_use){.tensor = t, .stage = program->ranks - 1, .weight = SLOTS_EACH * t, .grad = PP_NULL};
	}
}

static void make_stream(struct pp_program *program, uint32_t rank)
{
	struct pp_stream *stream = &program->programs[0].streams[rank];
	stream->items = PP_NEW_ARRAY(program->arena, struct pp_instr, TENSORS + 1);
	for (uint32_t i = 0; i < program->use_count; i++)
		if (program->uses[i].stage == rank) {
			uint32_t slot = program->uses[i].weight;
			stream->items[stream->count++] = (struct pp_instr){
			    .op = PP_OP_OPT,
			    .a = {slot, PP_NULL, slot + 1, slot + 2},
			    .extra = pp_tensor_has_master(&program->tensors[program->uses[i].tensor]) ? slot + 3 : PP_NULL};
		}
	struct pp_rank *own = &program->rank[rank];
	own->slot_count = TENSORS * SLOTS_EACH;
	own->slots = PP_NEW_ARRAY(program->arena, struct pp_slot, own->slot_count);
	for (uint32_t i = 0; i < own->slot_count; i++)
		own->slots[i].tensor = i / SLOTS_EACH;
}

/* The table is known by the instruction that looks up in it. */
static void make_body(struct pp_program *program)
{
	program->bodies = PP_NEW(program->arena, struct pp_body);
	program->body_count = 1;
	program->bodies->regs = PP_NEW(program->arena, struct pp_reg);
	program->bodies->regs->base = PP_BASE_WEIGHT;
	program->bodies->items = PP_NEW(program->arena, struct pp_body_instr);
	program->bodies->items->op = PP_BODY_EMBED;
	program->bodies->count = 1;
}

static bool read_slot(void *slots, uint32_t slot, uint64_t offset, uint64_t bytes, void *to, struct pp_status *status)
{
	(void)status;
	memcpy(to, (unsigned char *)((void **)slots)[slot] + offset, bytes);
	return true;
}

static bool write_slot(void *slots, uint32_t slot, uint64_t offset, uint64_t bytes, const void *from,
                       struct pp_status *status)
{
	(void)status;
	memcpy((unsigned char *)((void **)slots)[slot] + offset, from, bytes);
	return true;
}

static struct world make_world(const struct grid *grid)
{
	struct world w = {.arena = pp_arena_create(NULL)};
	struct pp_program *program = w.program = PP_NEW(w.arena, struct pp_program);
	*program = (struct pp_program){.arena = w.arena,
	                               .ranks = grid->pp,
	                               .tp = grid->tp,
	                               .dp = grid->dp,
	                               .zero = grid->zero,
	                               .rank_order = grid->order,
	                               .train = {.vocab = VOCAB},
	                               .stage_count = grid->pp,
	                               .stages = PP_NEW_ARRAY(w.arena, struct pp_stage, grid->pp),
	                               .rank = PP_NEW_ARRAY(w.arena, struct pp_rank, grid->pp),
	                               .programs = PP_NEW(w.arena, struct pp_named_program),
	                               .program_count = 1};
	program->programs->name = "train";
	program->programs->streams = PP_NEW_ARRAY(w.arena, struct pp_stream, grid->pp);
	make_tensors(program, grid->half);
	make_uses(program);
	make_body(program);
	for (uint32_t rank = 0; rank < grid->pp; rank++) {
		program->stages[rank].rank = rank;
		for (unsigned phase = 1; phase < PP_PHASE_COUNT; phase++)
			program->stages[rank].body[phase] = PP_NULL;
		if (rank > 0)
			program->stages[rank].body[PP_PHASE_F] = PP_NULL;
		make_stream(program, rank);
	}
	w.size = (uint32_t)pp_grid_world(program);
	w.slots = calloc(w.size, sizeof *w.slots);
	w.states = calloc(w.size, sizeof *w.states);
	for (uint32_t i = 0; i < w.size; i++) {
		struct pp_status status;
		for (uint32_t k = 0; k < TENSORS * SLOTS_EACH; k++)
			w.slots[i][k] = calloc(200, sizeof(float));
		const struct pp_state_memory memory = {w.slots[i], read_slot, write_slot};
		assert_true(pp_state_open(program, pp_grid_coord(program, i), &memory, &w.states[i], &status));
	}
	return w;
}

static void drop_world(struct world *w)
{
	for (uint32_t i = 0; i < w->size; i++) {
		pp_state_close(&w->states[i]);
		for (uint32_t k = 0; k < TENSORS * SLOTS_EACH; k++)
			free(w->slots[i][k]);
	}
	free(w->slots);
	free(w->states);
	pp_arena_destroy(w->arena);
}

/* Every element of what a rank holds, in the order in which it lies there: its address, its value and, of weights that
 * are rounded from master copies, whether it is bf16. NULL: the end. */
static void *element(const struct world *w, uint32_t rank, const struct pp_state_item *item, uint64_t i, float *value)
{
	const struct pp_extent *extent = &item->extent;
	if (i >= extent->count)
		return NULL;
	uint64_t at = extent->first + i, row = extent->box.row + at / extent->box.columns,
	         column = extent->box.column + at % extent->box.columns;
	bool padding = item->tensor == TABLE && row >= VOCAB;
	uint64_t kind = item->kind == PP_STATE_ROUNDED ? PP_STATE_WEIGHT : item->kind;
	*value = padding ? 0 : (float)(((kind * 10 + item->tensor + 1) * 100 + row) * 100 + column);
	size_t size = item->kind == PP_STATE_ROUNDED ? sizeof(pp_bf16) : sizeof(float);
	return (unsigned char *)w->slots[rank][item->slot] + i * size;
}

static bool is_value(const struct pp_state_item *item, const void *at, float value)
{
	pp_bf16 rounded = pp_bf16_from_f32(value);
	return item->kind == PP_STATE_ROUNDED ? memcmp(at, &rounded, sizeof rounded) == 0
	                                      : memcmp(at, &value, sizeof value) == 0;
}

static void fill(struct world *w)
{
	for (uint32_t r = 0; r < w->size; r++)
		for (uint32_t i = 0; i < w->states[r].count; i++) {
			const struct pp_state_item *item = &w->states[r].items[i];
			float value, *at;
			for (uint64_t k = 0; item->kind != PP_STATE_ROUNDED && (at = element(w, r, item, k, &value)); k++)
				*at = value;
		}
}

static void save(struct world *w)
{
	struct pp_file_sum *files = calloc(w->size, sizeof *files);
	struct pp_status status;
	char path[128], name[32];
	for (uint32_t r = 0; r < w->size; r++) {
		struct pp_named_tensor tensors[TENSORS * PP_STATE_KINDS];
		uint32_t count = 0;
		for (uint32_t i = 0; i < w->states[r].count; i++) {
			const struct pp_state_item *item = &w->states[r].items[i];
			if (item->stored)
				tensors[count++] = pp_state_describe(item, w->program);
		}
		pp_checkpoint_file(name, r);
		snprintf(path, sizeof path, "%s/%s", folder, name);
		unlink(path);
		if (count)
			assert_true(pp_safetensors_write(path, tensors, count, &files[r], NULL, NULL, &status));
	}
	char *text;
	size_t length;
	const struct pp_training_point point = {7, 99};
	assert_true(pp_manifest_make(w->program, &point, files, &text, &length, &status));
	snprintf(path, sizeof path, "%s/manifest.json", folder);
	assert_true(pp_file_write(path, text, length, &status));
	free(text);
	free(files);
}

static void load(struct world *w, const struct grid *from)
{
	for (uint32_t r = 0; r < w->size; r++) {
		struct pp_training_point point;
		struct pp_status status;
		if (!pp_checkpoint_load(&w->states[r], w->program, folder, true, &point, &status))
			fail_msg("%s", status.text);
		assert_true(point.step == 7 && point.next_sample == 99);
		for (uint32_t i = 0; i < w->states[r].count; i++) {
			const struct pp_state_item *item = &w->states[r].items[i];
			float value;
			void *at;
			for (uint64_t k = 0; (at = element(w, r, item, k, &value)); k++)
				if (!is_value(item, at, value))
					fail_msg("%s, kind %u, element %d of rank %u is not %g (from pp %u tp %u dp %u zero %u)",
					         item->name, item->kind, (int)k, r, (double)value, from->pp, from->tp, from->dp,
					         from->zero);
		}
	}
}

/* Elements of all items that are stored, by kind. */
static void assert_stored_once(const struct world *w)
{
	uint64_t stored = 0, wanted = 0;
	for (uint32_t r = 0; r < w->size; r++)
		for (uint32_t i = 0; i < w->states[r].count; i++)
			stored += w->states[r].items[i].stored ? w->states[r].items[i].extent.count : 0;
	for (uint32_t t = 0; t < TENSORS; t++)
		wanted += (uint64_t)w->program->tensors[t].rows * w->program->tensors[t].columns * 3; /* and two moments */
	assert_int_equal(stored, wanted);
}

static void transfer(const struct grid *from, const struct grid *to)
{
	struct world source = make_world(from), target = make_world(to);
	fill(&source);
	assert_stored_once(&source);
	save(&source);
	load(&target, from);
	drop_world(&source);
	drop_world(&target);
}

static void every_cut_into_every_other(void **state)
{
	(void)state;
	static const uint32_t tps[] = {1, 2, 3, 4, 6};
	uint64_t seed = 1;
	struct grid grids[2];
	for (unsigned round = 0; round < 25; round++) {
		for (unsigned i = 0; i < 2; i++)
			grids[i] = (struct grid){.pp = 1 + random_below(&seed, 4),
			                         .tp = tps[random_below(&seed, 5)],
			                         .dp = 1 + random_below(&seed, 5),
			                         .zero = random_below(&seed, 2),
			                         .order = (uint8_t)random_below(&seed, PP_RANK_ORDER_COUNT),
			                         .half = i ? round / 2 % 2 : round % 2}; /* every format into every format */
		transfer(&grids[0], &grids[1]);
	}
	for (int half = 0; half < 2; half++) { /* more owners than elements of the norm */
		transfer(&(struct grid){1, 1, 9, 1, 0, half}, &(struct grid){1, 1, 1, 0, 0, half});
		transfer(&(struct grid){1, 1, 1, 0, 0, half}, &(struct grid){1, 4, 9, 1, 0, half});
	}
}

/* The manifest's text after a change of the same length, with its own checksum, which comes last. */
static void change_manifest(const struct world *w, const char *before, const char *after)
{
	char path[128], *text, *at;
	size_t length;
	struct pp_status status;
	snprintf(path, sizeof path, "%s/manifest.json", folder);
	assert_true(pp_file_read(w->arena, path, &text, &length, &status));
	at = strstr(text, before);
	assert_non_null(at);
	memcpy(at, after, strlen(before));
	char *tail = text + length - (sizeof pp_manifest_checksum - 1 + 16 + 3);
	uint64_t hash = pp_image_mix((const unsigned char *)text, (size_t)(tail - text));
	snprintf(tail, length - (size_t)(tail - text) + 1, "%s%016llx\"}\n", pp_manifest_checksum,
	         (unsigned long long)hash);
	assert_true(pp_file_write(path, text, length, &status));
}

static void assert_refused(struct world *w, uint32_t rank, const char *text)
{
	struct pp_status status;
	struct pp_training_point point;
	assert_false(pp_checkpoint_load(&w->states[rank], w->program, folder, true, &point, &status));
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	if (!strstr(status.text, text))
		fail_msg("%s", status.text);
}

/* f32 and bf16 are formats of a run, both with f32 in the files; nothing else is. What says it is one and is hashed as
 * the other is of no run of ours. */
static void formats(void **state)
{
	(void)state;
	struct world w = make_world(&(struct grid){.pp = 1, .tp = 1, .dp = 1});
	fill(&w);
	save(&w);
	change_manifest(&w, "\"up.weight\": {\"dtype\": \"f32\"", "\"up.weight\": {\"dtype\": \"f64\"");
	assert_refused(&w, 0, "tensor `up.weight` is f64 there, a run is of f32 or bf16");
	save(&w);
	change_manifest(&w, "\"norm.weight\": {\"dtype\": \"f32\", ", "\"norm.weight\": {\"dtype\": \"bf16\",");
	assert_refused(&w, 0, "it has the same tensors in another order");
	drop_world(&w);
}

/* Copies are stored by dp 0, whole tensors by tp 0: nobody else has a file. */
static void who_stores(void **state)
{
	(void)state;
	struct world w = make_world(&(struct grid){.pp = 1, .tp = 2, .dp = 2});
	static const uint32_t stored[] = {15, 12, 0, 0}; /* tp 0, tp 1 of dp 0; dp 1 */
	for (uint32_t r = 0; r < 4; r++) {
		uint32_t count = 0;
		for (uint32_t i = 0; i < w.states[r].count; i++)
			count += w.states[r].items[i].stored;
		assert_int_equal(count, stored[r]);
	}
	drop_world(&w);
}

/* A part that is missing is missed, though every file is whole. */
static void gaps_are_refused(void **state)
{
	(void)state;
	struct world w = make_world(&(struct grid){.pp = 1, .tp = 2, .dp = 1});
	fill(&w);
	save(&w);
	change_manifest(&w, "\"columns\": [6, 12]", "\"columns\": [0, 6] ");
	assert_refused(&w, 1, "the parts of tensor `down.weight` hold 0 elements of the 30 wanted");
	drop_world(&w);
}

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	char path[128], name[32];
	for (uint32_t r = 0; r < 200; r++) {
		pp_checkpoint_file(name, r);
		snprintf(path, sizeof path, "%s/%s", folder, name);
		unlink(path);
	}
	snprintf(path, sizeof path, "%s/manifest.json", folder);
	unlink(path);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_cut_into_every_other),
	    cmocka_unit_test(formats),
	    cmocka_unit_test(who_stores),
	    cmocka_unit_test(gaps_are_refused),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
