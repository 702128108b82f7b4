/* Measured costs in the compiler: exact where the split is the profile's own, by kind of layer elsewhere, refused for
 * another model. */
#include "unit/model_fixture.h"

#include "compiler/cost.h"
#include "compiler/measured.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/* emb, 8 blocks, norm, head. */
static const struct model_size size = {64, 4, 4, 8, 256, 256, 32, 1, false};

struct fixture {
	struct pp_arena *arena;
	struct pp_diag *diag;
	struct pp_spec *spec;
	struct pp_profile *profile;
	struct pp_stages stages;
};

/* What a layer really takes; norm and head only together, for they never stand apart. */
static uint64_t truth(const struct pp_layer *layer, unsigned phase)
{
	static const uint64_t forward[] = {
	    [PP_LAYER_EMBEDDING] = 7000, [PP_LAYER_BLOCK] = 50000, [PP_LAYER_NORM] = 3000, [PP_LAYER_HEAD] = 21000};
	return forward[layer->kind] * (phase == PP_PHASE_F ? 1 : 2);
}

static void put_stage(struct fixture *f, uint32_t at, uint32_t first, uint32_t count)
{
	struct pp_profile_stage *stage = &f->profile->stages[at];
	*stage = (struct pp_profile_stage){.rank = at,
	                                   .first_layer = first,
	                                   .layer_count = count,
	                                   .title = pp_layers_title(f->arena, f->spec->model.layers + first, count)};
	static const uint8_t phases[] = {PP_PHASE_F, PP_PHASE_B};
	for (unsigned i = 0; i < 2; i++) {
		struct pp_profile_time *time = &stage->time[phases[i]];
		time->count = 10;
		for (uint32_t l = first; l < first + count; l++)
			time->median += truth(&f->spec->model.layers[l], phases[i]);
	}
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		for (uint32_t l = first; l < first + count; l++)
			stage->flops[phase] += f->stages.layers[l].matmul_flops[phase] + f->stages.layers[l].attention_flops[phase];
}

/* A profile of the split at these layers. */
static struct fixture profiled(const uint32_t *first, uint32_t stages)
{
	struct fixture f = {.arena = pp_arena_create(NULL)};
	f.diag = pp_diag_create(f.arena, pp_sources_create(f.arena));
	f.spec = fixture_spec(f.arena, &size);
	pp_cost_layers(f.arena, f.spec, &f.stages);
	f.profile = PP_NEW(f.arena, struct pp_profile);
	f.profile->tp = 1;
	f.profile->stage_count = stages;
	f.profile->layer_count = f.spec->model.layer_count;
	f.profile->microbatch = size.microbatch;
	f.profile->seq = size.seq;
	f.profile->vocab = size.vocab;
	f.profile->dtype = PP_F32;
	f.profile->stages = PP_NEW_ARRAY(f.arena, struct pp_profile_stage, stages);
	for (uint32_t s = 0; s < stages; s++)
		put_stage(&f, s, first[s], (s + 1 < stages ? first[s + 1] : f.spec->model.layer_count) - first[s]);
	f.spec->profile = f.profile;
	return f;
}

static void assert_near(uint64_t value, uint64_t wanted, uint64_t tolerance)
{
	if (value + tolerance < wanted || value > wanted + tolerance)
		fail_msg("%llu instead of %llu", (unsigned long long)value, (unsigned long long)wanted);
}

/* Stages with and without the ends: blocks, embedding, and the two at the end come apart. */
static void tells_kinds_apart(void **state)
{
	(void)state;
	const uint32_t first[] = {0, 3, 6, 8};
	struct fixture f = profiled(first, 4);
	assert_true(pp_measured_check(f.arena, f.spec, &f.stages, f.diag));
	uint64_t norm = f.stages.layer_ticks[9][PP_PHASE_F], head = f.stages.layer_ticks[10][PP_PHASE_F];
	assert_true(pp_measured_layers(f.arena, f.spec, &f.stages) < 1e-4);
	for (uint32_t l = 0; l < 9; l++) {
		assert_near(f.stages.layer_ticks[l][PP_PHASE_F], truth(&f.spec->model.layers[l], PP_PHASE_F), 20);
		assert_near(f.stages.layer_ticks[l][PP_PHASE_B], truth(&f.spec->model.layers[l], PP_PHASE_B), 40);
	}
	/* Norm and head share what the model cannot tell apart in its own proportions. */
	uint64_t both = f.stages.layer_ticks[9][PP_PHASE_F] + f.stages.layer_ticks[10][PP_PHASE_F];
	assert_near(both, 24000, 20);
	assert_near(f.stages.layer_ticks[9][PP_PHASE_F], both * norm / (norm + head), 2);
	/* The parts of the backward share its time as in the model. */
	const uint64_t *block = f.stages.layer_ticks[4];
	assert_near(block[PP_PHASE_I] + block[PP_PHASE_W], block[PP_PHASE_B], 2);
	pp_arena_destroy(f.arena);
}

/* The profile's own split: what was measured, to the nanosecond; another one: sums over layers. */
static void stages_of_the_profile_are_exact(void **state)
{
	(void)state;
	const uint32_t first[] = {0, 3, 6, 8}, other[] = {0, 6};
	struct fixture f = profiled(first, 4);
	f.profile->stages[1].time[PP_PHASE_F].median += 777; /* noise */
	pp_measured_layers(f.arena, f.spec, &f.stages);
	fixture_stages(f.arena, f.spec, first, 4, 4, &f.stages);
	pp_cost_stages(f.spec, &f.stages);
	pp_measured_stages(f.spec, &f.stages);
	for (uint32_t s = 0; s < 4; s++) {
		assert_int_equal(f.stages.items[s].ticks[PP_PHASE_F], f.profile->stages[s].time[PP_PHASE_F].median);
		assert_int_equal(f.stages.items[s].ticks[PP_PHASE_B], f.profile->stages[s].time[PP_PHASE_B].median);
	}
	assert_true(pp_measured_split(f.profile, &f.stages));
	fixture_stages(f.arena, f.spec, other, 2, 2, &f.stages);
	pp_cost_stages(f.spec, &f.stages);
	pp_measured_stages(f.spec, &f.stages);
	assert_false(pp_measured_split(f.profile, &f.stages));
	assert_near(f.stages.items[0].ticks[PP_PHASE_F], 7000 + 5 * 50000, 1500);
	assert_near(f.stages.items[1].ticks[PP_PHASE_F], 3 * 50000 + 24000, 1500);
	pp_arena_destroy(f.arena);
}

/* Stages that no sum over kinds explains: said, unless the split is the profile's own. */
static void warns_of_a_poor_fit(void **state)
{
	(void)state;
	const uint32_t first[] = {0, 3, 6, 8}, other[] = {0, 6};
	struct fixture f = profiled(first, 4);
	f.profile->stages[1].time[PP_PHASE_F].median *= 2;
	double deviation = pp_measured_layers(f.arena, f.spec, &f.stages);
	assert_true(deviation > 0.1 && deviation < 1);
	fixture_stages(f.arena, f.spec, first, 4, 4, &f.stages);
	pp_diag_warnings_are_errors(f.diag);
	pp_measured_warn(f.spec, &f.stages, deviation, f.diag);
	assert_int_equal(pp_diag_errors(f.diag), 0);
	fixture_stages(f.arena, f.spec, other, 2, 2, &f.stages);
	pp_measured_warn(f.spec, &f.stages, 0.1, f.diag);
	assert_int_equal(pp_diag_errors(f.diag), 0);
	pp_measured_warn(f.spec, &f.stages, deviation, f.diag);
	assert_int_equal(pp_diag_errors(f.diag), 1);
	pp_arena_destroy(f.arena);
}

static void assert_refused(struct fixture *f, const char *wanted)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	assert_false(pp_measured_check(f->arena, f->spec, &f->stages, f->diag));
	pp_diag_print(f->diag, out, PP_DIAG_SHORT, false);
	fclose(out);
	if (!strstr(text, wanted))
		fail_msg("%s lacks %s", text, wanted);
	free(text);
	pp_arena_destroy(f->arena);
}

static void refuses_other_models(void **state)
{
	(void)state;
	const uint32_t first[] = {0, 3, 6, 8};
	struct fixture f = profiled(first, 4);
	f.profile->microbatch = 2;
	assert_refused(&f, "the profile is of a run with microbatch = 2, this spec has 1");
	f = profiled(first, 4);
	f.profile->tp = 2;
	assert_refused(&f, "the profile is of a run with tp = 2, this spec has 1");
	f = profiled(first, 4);
	f.profile->dtype = PP_BF16;
	assert_refused(&f, "the profile is of a run in bf16, this spec trains in f32");
	f = profiled(first, 4);
	f.profile->stages[2].title = "block[5..7]";
	assert_refused(&f, "stage 2 of the profile is `block[5..7]`, but these layers are `block[5..6]` in this spec");
	f = profiled(first, 4);
	f.profile->stages[3].flops[PP_PHASE_B]++;
	assert_refused(&f, "stage 3 of the profile (block[7], norm, head) does ");
	f = profiled(first, 4);
	f.profile->stages[3].time[PP_PHASE_B].count = 0;
	assert_refused(&f, "the profile has no times of forward and backward of stage 3 (block[7], norm, head)");
}

/* A split backward: its sum is the fused one; a recomputed forward takes its share of the measured one. */
static void fills_in_phases(void **state)
{
	(void)state;
	const uint32_t first[] = {0, 3, 6, 8};
	struct fixture f = profiled(first, 4);
	for (uint32_t s = 0; s < 4; s++) {
		struct pp_profile_time *time = f.profile->stages[s].time;
		time[PP_PHASE_I] = time[PP_PHASE_W] = time[PP_PHASE_B];
		time[PP_PHASE_I].median = time[PP_PHASE_B].median / 4;
		time[PP_PHASE_W].median = time[PP_PHASE_B].median - time[PP_PHASE_I].median;
		time[PP_PHASE_B].count = 0;
	}
	assert_true(pp_measured_check(f.arena, f.spec, &f.stages, f.diag));
	fixture_stages(f.arena, f.spec, first, 4, 4, &f.stages);
	pp_cost_stages(f.spec, &f.stages);
	f.stages.items[1].ticks[PP_PHASE_R] = f.stages.items[1].ticks[PP_PHASE_F] / 2;
	pp_measured_stages(f.spec, &f.stages);
	const uint64_t *ticks = f.stages.items[1].ticks;
	assert_int_equal(ticks[PP_PHASE_I], 75000);
	assert_int_equal(ticks[PP_PHASE_W], 225000);
	assert_int_equal(ticks[PP_PHASE_B], 300000);
	assert_near(ticks[PP_PHASE_R], 75000, 1);
	pp_arena_destroy(f.arena);
}

static void other_messages(void **state)
{
	(void)state;
	struct pp_profile_channel rows[] = {
	    {.source = 0, .destination = 1, .bytes = 100, .time = {.median = 50, .count = 1}},
	    {.source = 1, .destination = 2, .bytes = 100, .time = {.median = 70, .count = 1}},
	    {.source = 2, .destination = 3, .bytes = 100, .time = {.median = 60, .count = 1}},
	    {.source = 3, .destination = 4, .bytes = 100, .between_nodes = true, .time = {.median = 900, .count = 1}},
	};
	struct pp_profile_joint joints[] = {
	    {.axis = PP_AXIS_PP, .sub = PP_ALLREDUCE, .members = 3, .bytes = 300, .time = {.median = 4 * (10 + 100)}},
	    {.axis = PP_AXIS_PP, .sub = PP_ALLREDUCE, .members = 3, .bytes = 600, .time = {.median = 4 * (10 + 200)}},
	    {.axis = PP_AXIS_DP, .sub = PP_ALLGATHER, .members = 2, .bytes = 64, .time = {.median = 25}},
	};
	struct pp_profile profile = {.channels = rows, .channel_count = 4, .joints = joints, .joint_count = 3};
	struct pp_profile_channel wanted = {.source = 1, .destination = 2, .bytes = 100};
	uint64_t latency, bandwidth = 1;
	assert_true(pp_profile_transfer(&profile, &wanted, &latency, &bandwidth));
	assert_true(latency == 70 && bandwidth == 0); /* itself */
	wanted.destination = 0;
	assert_true(pp_profile_transfer(&profile, &wanted, &latency, &bandwidth));
	assert_int_equal(latency, 60); /* the usual */
	wanted.between_nodes = true;
	assert_true(pp_profile_transfer(&profile, &wanted, &latency, &bandwidth));
	assert_int_equal(latency, 900);
	wanted.bytes = 200;
	assert_false(pp_profile_transfer(&profile, &wanted, &latency, &bandwidth));
	profile.link[1] = (struct pp_profile_link){.given = true, .latency = 3, .bandwidth = 4};
	assert_true(pp_profile_transfer(&profile, &wanted, &latency, &bandwidth));
	assert_true(latency == 3 && bandwidth == 4); /* the line */
	assert_true(pp_profile_ring(&profile, PP_AXIS_PP, 3, &latency, &bandwidth));
	assert_true(latency == 10 && bandwidth == 1000000000); /* 100 bytes in 100 ns */
	assert_true(pp_profile_ring(&profile, PP_AXIS_DP, 2, &latency, &bandwidth));
	assert_true(latency == 25 && bandwidth == 0);
	assert_false(pp_profile_ring(&profile, PP_AXIS_TP, 2, &latency, &bandwidth));
	assert_false(pp_profile_ring(&profile, PP_AXIS_PP, 2, &latency, &bandwidth));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tells_kinds_apart),   cmocka_unit_test(stages_of_the_profile_are_exact),
	    cmocka_unit_test(warns_of_a_poor_fit), cmocka_unit_test(refuses_other_models),
	    cmocka_unit_test(fills_in_phases),     cmocka_unit_test(other_messages),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
