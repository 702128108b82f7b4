/* Mutation testing of the verifier: a changed program is rejected, or an independent oracle (support/oracle.h) finds
 * that it computes the same. Seeded and reproducible; what survives with equal provenance is counted and listed. */
#include "support/mutate.h"
#include "support/oracle.h"
#include "support/verify_fixture.h"

#include "codegen/plan_memory.h"
#include "compiler/library.h"
#include "compiler/pass.h"
#include "ir/file.h"
#include "lowering_fixture.h"

enum { MUTANTS = 100, INTERLEAVINGS = 3, LISTED = 3, LOWERED = 8, GRIDS = 7, SAMPLES = 38 + LOWERED + GRIDS };

struct sample {
	const char *name;
	const struct pp_program *program;
	uint64_t expected;
};

struct tally {
	uint32_t made, rejected, equal;
};

/* Where the two differ, NULL: nowhere. */
static const char *mutant_text(struct bench *b, const struct pp_program *before, const struct pp_program *after)
{
	for (uint32_t r = 0; r < before->ranks; r++) {
		for (uint32_t p = 0; p < before->program_count; p++) {
			const struct pp_stream *x = &before->programs[p].streams[r], *y = &after->programs[p].streams[r];
			for (uint32_t i = 0; i < x->count || i < y->count; i++)
				if (i >= x->count || i >= y->count || memcmp(&x->items[i], &y->items[i], sizeof x->items[i]))
					return pp_arena_printf(b->arena, "%s rank %u instruction %u (%s)", before->programs[p].name, r, i,
					                       i < x->count ? pp_op_table[x->items[i].op].mnemonic : "end");
		}
		for (uint32_t i = 0; i < before->rank[r].slot_count; i++)
			if (before->rank[r].slots[i].offset != after->rank[r].slots[i].offset ||
			    before->rank[r].slots[i].bytes != after->rank[r].slots[i].bytes)
				return pp_arena_printf(b->arena, "rank %u place of slot %u", r, i);
	}
	return NULL;
}

/* A random schedule through the compiler's own lowering and memory plan: values share bytes. */
static const struct pp_program *lowered(struct world *w, uint64_t seed)
{
	*w = make_world(seed);
	draw_schedule(w, 4, 5, 2);
	draw_program(w);
	w->spec.train.eval_steps = seed % 2;
	lower(w);
	assert_true(pp_plan_memory(&w->program, w->diag));
	return &w->program;
}

/* A `.pipe` file of the samples folder, compiled. */
static const struct pp_program *compiled(struct pp_arena *arena, const char *name)
{
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "test"};
	struct pp_status status;
	char *text;
	size_t length;
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.options.shipped = pp_library;
	unit.options.shipped_count = pp_library_count;
	assert_true(
	    pp_file_read(arena, pp_arena_printf(arena, PP_SOURCE_DIR "/samples/%s.pipe", name), &text, &length, &status));
	unit.source = pp_sources_add(unit.sources, name, text, length);
	assert_true(pp_compile(&unit, PP_PASS_verify, NULL, NULL));
	return unit.program;
}

/* Over tp and dp, with and without shards of the optimizer and master copies of weights; shards of unequal length over
 * dp = 3. */
static uint32_t make_grids(struct pp_arena *arena, struct sample *samples)
{
	uint64_t random = 77;
	const struct {
		struct pp_schedule *schedule;
		uint32_t tp, dp, zero;
		bool half;
	} grids[GRIDS] = {
	    {build_gpipe(arena, 2, 3), 1, 2, 0, false},
	    {build_1f1b(arena, 3, 3), 1, 3, 1, true},
	    {build_1f1b(arena, 2, 3), 2, 1, 0, true},
	    {build_zb_h1(arena, 2, 3), 2, 2, 0, false},
	    {build_interleaved(arena, 2, 2, 2), 2, 3, 1, false},
	    {build_1f1b(arena, 1, 2), 2, 2, 1, true},
	    {build_random(arena, &random), 1, 2, 1, true},
	};
	for (uint32_t i = 0; i < GRIDS; i++) {
		struct build_options options = {.trains = true,
		                                .placed = true,
		                                .tp = grids[i].tp,
		                                .dp = grids[i].dp,
		                                .zero = grids[i].zero,
		                                .half = grids[i].half};
		samples[i] = (struct sample){
		    .name = pp_arena_printf(arena, "tp %u dp %u zero %u", grids[i].tp, grids[i].dp, grids[i].zero),
		    .program = build_program(arena, grids[i].schedule, &options)};
	}
	return GRIDS;
}

/* Programs built for tests (with and without a step tail, placed or not, every family, random schedules), random ones
 * through the compiler's back end, and the samples through all of it. */
static uint32_t make_samples(struct pp_arena *arena, struct world *worlds, struct sample *samples)
{
	uint32_t count = 0;
	for (uint32_t trains = 0; trains < 2; trains++) {
		struct build_options options = {.trains = trains, .placed = true, .depth = 2};
		samples[count++] =
		    (struct sample){.name = "gpipe", .program = build_program(arena, build_gpipe(arena, 3, 4), &options)};
		samples[count++] =
		    (struct sample){.name = "1f1b", .program = build_program(arena, build_1f1b(arena, 4, 6), &options)};
		samples[count++] =
		    (struct sample){.name = "zb_h1", .program = build_program(arena, build_zb_h1(arena, 3, 5), &options)};
		samples[count++] = (struct sample){
		    .name = "interleaved", .program = build_program(arena, build_interleaved(arena, 2, 2, 4), &options)};
		samples[count++] =
		    (struct sample){.name = "one rank", .program = build_program(arena, build_1f1b(arena, 1, 3), &options)};
	}
	for (uint32_t trains = 0; trains < 2; trains++) {
		struct build_options again = {.trains = trains, .placed = true, .recompute = 5};
		struct build_options split = {.trains = trains, .placed = true, .recompute = 1, .extra = 6};
		samples[count++] = (struct sample){.name = "1f1b, recompute",
		                                   .program = build_program(arena, build_1f1b(arena, 3, 4), &again)};
		samples[count++] =
		    (struct sample){.name = "zb_h1, extra", .program = build_program(arena, build_zb_h1(arena, 3, 4), &split)};
	}
	for (uint64_t seed = 11; seed <= 15; seed++) {
		uint64_t random = seed;
		struct build_options options = {.trains = true, .recompute = 0xb5, .extra = 0x7a};
		samples[count++] = (struct sample){.name = "random, recompute",
		                                   .program = build_program(arena, build_random(arena, &random), &options)};
	}
	for (uint64_t seed = 1; seed <= 10; seed++) {
		uint64_t random = seed;
		struct build_options options = {.trains = seed % 3 != 0, .placed = seed % 2, .depth = 1 + (uint32_t)(seed % 3)};
		samples[count++] =
		    (struct sample){.name = "random", .program = build_program(arena, build_random(arena, &random), &options)};
	}
	for (uint32_t i = 0; i < LOWERED; i++)
		samples[count++] = (struct sample){.name = "lowered", .program = lowered(&worlds[i], i + 1)};
	static const char *const files[] = {"minimal",      "demo",       "tied",     "interleaved", "zero_bubble_rows",
	                                    "custom_costs", "gpt2_small", "llama_tp", "replicas"};
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		samples[count++] = (struct sample){.name = files[i], .program = compiled(arena, files[i])};
	count += make_grids(arena, samples + count);
	for (uint32_t i = 0; i < count; i++)
		assert_true(oracle_run(samples[i].program, 1, &samples[i].expected));
	return count;
}

static bool same_provenance(const struct sample *sample, const struct pp_program *mutant)
{
	for (uint64_t seed = 1; seed <= INTERLEAVINGS; seed++) {
		uint64_t found;
		if (!oracle_run(mutant, seed, &found) || found != sample->expected)
			return false;
	}
	return true;
}

static void try_mutant(const struct sample *sample, enum mutation kind, uint64_t *seed, struct tally *tally)
{
	struct bench b = bench_begin();
	struct pp_program *mutant = build_copy(b.arena, sample->program);
	if (mutate(mutant, kind, seed) && mutant_text(&b, sample->program, mutant)) {
		tally->made++;
		if (!pp_verify(mutant, &b.stamp, b.diag)) {
			tally->rejected++;
		} else if (same_provenance(sample, mutant)) {
			if (tally->equal++ < LISTED)
				printf("    survives with equal provenance: %s of %s: %s\n", mutation_name[kind], sample->name,
				       mutant_text(&b, sample->program, mutant));
		} else {
			fail_msg("accepted, but computes something else: %s of %s: %s", mutation_name[kind], sample->name,
			         mutant_text(&b, sample->program, mutant));
		}
	}
	bench_end(&b);
}

static void oracle_agrees_with_itself(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct sample samples[SAMPLES];
	struct world worlds[LOWERED];
	uint32_t count = make_samples(arena, worlds, samples);
	for (uint32_t i = 0; i < count; i++) {
		struct bench b = bench_begin();
		assert_accepted(&b, samples[i].program);
		assert_true(same_provenance(&samples[i], samples[i].program));
		bench_end(&b);
	}
	for (uint32_t i = 0; i < LOWERED; i++)
		end_world(&worlds[i]);
	pp_arena_destroy(arena);
}

static void mutants_are_rejected_or_equal(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct sample samples[SAMPLES];
	struct world worlds[LOWERED];
	uint32_t count = make_samples(arena, worlds, samples);
	for (int kind = 0; kind < MUTATION_COUNT; kind++) {
		struct tally tally = {0};
		for (uint32_t i = 0; i < count; i++) {
			uint64_t seed = 1000 * (uint64_t)kind + i;
			for (int n = 0; n < MUTANTS; n++)
				try_mutant(&samples[i], (enum mutation)kind, &seed, &tally);
		}
		printf("  %-18s %5u mutants: %5u rejected, %4u of equal provenance\n", mutation_name[kind], tally.made,
		       tally.rejected, tally.equal);
		assert_true(tally.made >= MUTANTS);
	}
	for (uint32_t i = 0; i < LOWERED; i++)
		end_world(&worlds[i]);
	pp_arena_destroy(arena);
}

/* The oracle must see what matters: most changes that the verifier rejects do change the provenance. */
static void assert_drops_seen(const struct build_options *options)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct sample sample = {.program = build_program(arena, build_1f1b(arena, 2, 2), options)};
	assert_true(oracle_run(sample.program, 1, &sample.expected));
	for (uint32_t r = 0; r < 2; r++)
		for (uint32_t i = 0; i < sample.program->programs[0].streams[r].count; i++) {
			struct pp_program *mutant = build_copy(arena, sample.program);
			struct pp_stream *stream = &mutant->programs[0].streams[r];
			memmove(&stream->items[i], &stream->items[i + 1], (stream->count - i - 1) * sizeof *stream->items);
			stream->count--;
			assert_false(same_provenance(&sample, mutant) &&
			             sample.program->programs[0].streams[r].items[i].op != PP_OP_ZERO);
		}
	pp_arena_destroy(arena);
}

static void oracle_sees_dropped_instructions(void **state)
{
	(void)state;
	assert_drops_seen(&(struct build_options){.trains = true, .placed = true});
	assert_drops_seen(&(struct build_options){.trains = true, .placed = true, .tp = 2, .dp = 2});
	assert_drops_seen(&(struct build_options){.trains = true, .placed = true, .tp = 2, .dp = 3, .zero = 1});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(oracle_agrees_with_itself),
	    cmocka_unit_test(oracle_sees_dropped_instructions),
	    cmocka_unit_test(mutants_are_rejected_or_equal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
