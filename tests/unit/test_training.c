/* Training over the whole back end: the bits of losses and weights must not depend on how the work is cut into stages,
 * ranks and schedules, nor on delays; a loss that is not finite stops the run without an update. */
#include "lowering_fixture.h"
#include "model_fixture.h"

#include "support/training.h"

#include <math.h>

static struct pp_hyper hypers[2] = {{0.9, 0.95, 1e-8, 0.1, 1.0}, {0.9, 0.95, 1e-8, 0.0, 1.0}};

static const struct model_size tiny = {16, 2, 2, 3, 32, 32, 8, 2, false};

static struct pp_spec *tiny_spec(struct pp_arena *arena, bool tied, uint32_t microbatches)
{
	struct model_size size = tiny;
	size.tied = tied;
	struct pp_spec *spec = fixture_spec(arena, &size);
	spec->microbatches = microbatches;
	spec->cluster.nodes = 1;
	spec->cluster.gpus = 16;
	spec->train.steps = 4;
	spec->train.seed = 7;
	spec->train.data = PP_DATA_SYNTHETIC;
	spec->train.data_seed = 3;
	spec->train.lr_kind = PP_LR_COSINE;
	spec->train.lr_peak = 0.01;
	spec->train.lr_floor = 0.001;
	spec->train.lr_warmup = 2;
	spec->train.log_every = 1;
	spec->train.hypers = hypers;
	spec->train.hyper_count = 2;
	return spec;
}

static struct pp_program *build(struct world *w, const struct pp_spec *spec)
{
	struct pp_program *program = pp_training_program(w->arena, spec, &w->schedule, w->diag);
	if (!program)
		fail_msg("%s", diagnostics(w));
	return program;
}

/* One rank, one stage, fused backward, in order: the reference. */
static struct pp_training_result reference(struct world *w, bool tied, uint32_t microbatches, uint64_t steps)
{
	struct pp_schedule kept = w->schedule;
	write_interleaved(w, 1, 1, microbatches);
	struct pp_program *program = build(w, tiny_spec(w->arena, tied, microbatches));
	assert_true(program->stamp.bits_fixed);
	struct pp_training_result result =
	    pp_training_run(w->arena, program, &(struct pp_transport_options){0}, &(struct pp_run_options){.steps = steps});
	assert_true(result.ok);
	w->schedule = kept;
	return result;
}

static void assert_same_bits(const struct pp_program *program, const struct pp_training_result *one,
                             const struct pp_training_result *other)
{
	assert_true(one->ok && other->ok);
	assert_string_equal(one->steps, other->steps);
	for (uint32_t t = 0; t < program->tensor_count; t++)
		if (one->hashes[t] != other->hashes[t] || one->hashes[t] == 0)
			fail_msg("tensor %s differs", program->tensors[t].name);
}

static void named_schedules_give_the_bits_of_one_rank(void **state)
{
	(void)state;
	const struct {
		uint32_t ranks, chunks, microbatches;
		bool tied;
	} cases[] = {{2, 1, 4, false}, {2, 1, 4, true}, {3, 1, 4, true},  {4, 1, 4, false},
	             {6, 1, 2, true},  {2, 2, 4, true}, {3, 2, 6, false}, {1, 3, 4, true}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct world w = make_world(i);
		struct pp_training_result one = reference(&w, cases[i].tied, cases[i].microbatches, 0);
		write_interleaved(&w, cases[i].ranks, cases[i].chunks, cases[i].microbatches);
		struct pp_program *program = build(&w, tiny_spec(w.arena, cases[i].tied, cases[i].microbatches));
		struct pp_training_result result =
		    pp_training_run(w.arena, program, &(struct pp_transport_options){.check_identity = true},
		                    &(struct pp_run_options){.jitter = i});
		assert_true(program->stamp.bits_fixed);
		assert_same_bits(program, &one, &result);
		end_world(&w);
	}
}

/* Any valid order of actions, any placement, fused and split backward mixed. */
static void random_schedules_give_the_bits_of_one_rank(void **state)
{
	(void)state;
	unsigned fixed = 0, free_order = 0;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct world w = make_world(seed);
		do
			draw_schedule(&w, 4, 4, 2);
		while (w.schedule.stages > 6);
		bool tied = draw(&w, 2);
		struct pp_program *program = build(&w, tiny_spec(w.arena, tied, w.schedule.microbatches));
		struct pp_training_result result =
		    pp_training_run(w.arena, program, &(struct pp_transport_options){.check_identity = true},
		                    &(struct pp_run_options){.steps = 3});
		if (!result.ok)
			fail_msg("seed %u: %s", (unsigned)seed, result.status.text);
		if (program->stamp.bits_fixed) {
			fixed++;
			struct pp_training_result one = reference(&w, tied, w.schedule.microbatches, 3);
			assert_same_bits(program, &one, &result);
		} else {
			free_order++;
		}
		end_world(&w);
	}
	assert_true(fixed >= 10 && free_order >= 1);
}

static double field_of(const char *steps, const char *name)
{
	const char *at = strstr(steps, name);
	assert_non_null(at);
	return strtod(at + strlen(name) + 2, NULL);
}

/* Field case B16: 16 samples as 4 microbatches of 4, 16 of 1, and on one rank: one loss, one gradient norm. */
static void the_cut_of_the_batch_does_not_scale_gradients(void **state)
{
	(void)state;
	const uint32_t cuts[3][2] = {{1, 4}, {2, 4}, {2, 16}};
	double loss[3], norm[3];
	for (int i = 0; i < 3; i++) {
		struct world w = make_world(1);
		write_interleaved(&w, cuts[i][0], 1, cuts[i][1]);
		struct pp_spec *spec = tiny_spec(w.arena, false, cuts[i][1]);
		spec->train.microbatch = 16 / cuts[i][1];
		struct pp_training_result result = pp_training_run(w.arena, build(&w, spec), &(struct pp_transport_options){0},
		                                                   &(struct pp_run_options){.steps = 1});
		assert_true(result.ok);
		loss[i] = field_of(result.steps, "\"loss\"");
		norm[i] = field_of(result.steps, "\"grad_norm\"");
		end_world(&w);
	}
	for (int i = 1; i < 3; i++)
		assert_true(fabs(loss[i] / loss[0] - 1) < 1e-5 && fabs(norm[i] / norm[0] - 1) < 1e-5);
}

/* Field case B41: as many waits as posts. */
static void every_post_is_waited_for(void **state)
{
	(void)state;
	struct world w = make_world(1);
	write_interleaved(&w, 2, 2, 4);
	const struct pp_program *program = build(&w, tiny_spec(w.arena, false, 4));
	unsigned counts[PP_OP_COUNT] = {0};
	for (uint32_t rank = 0; rank < 2; rank++) {
		const struct pp_stream *stream = &program->programs[0].streams[rank];
		for (uint32_t i = 0; i < stream->count; i++)
			counts[stream->items[i].op]++;
	}
	assert_int_equal(counts[PP_OP_SEND], 24);
	assert_int_equal(counts[PP_OP_RECV], 24);
	assert_int_equal(counts[PP_OP_WAIT], 48);
	assert_int_equal(counts[PP_OP_WAITC], counts[PP_OP_COLL]);
	end_world(&w);
}

static void learning_lowers_the_loss(void **state)
{
	(void)state;
	struct world w = make_world(1);
	write_interleaved(&w, 2, 1, 4);
	struct pp_spec *spec = tiny_spec(w.arena, false, 4);
	spec->train.steps = 60;
	struct pp_training_result result =
	    pp_training_run(w.arena, build(&w, spec), &(struct pp_transport_options){0}, &(struct pp_run_options){0});
	assert_true(result.ok);
	double first = field_of(result.steps, "\"loss\"");
	char *last = result.steps;
	for (int step = 1; step < 60; step++)
		last = strchr(last, '\n') + 1;
	assert_true(fabs(first - log(32)) < 0.3);
	assert_true(field_of(last, "\"loss\"") < first - 0.3);
	end_world(&w);
}

static void three_losses_that_are_not_finite_stop_the_run(void **state)
{
	(void)state;
	struct world w = make_world(1);
	write_interleaved(&w, 2, 1, 4);
	struct pp_spec *spec = tiny_spec(w.arena, false, 4);
	spec->train.lr_peak = spec->train.lr_floor = 1e38;
	spec->train.lr_warmup = 0;
	spec->train.steps = 50;
	struct pp_training_result result =
	    pp_training_run(w.arena, build(&w, spec), &(struct pp_transport_options){0}, &(struct pp_run_options){0});
	assert_false(result.ok);
	assert_int_equal(result.status.code, PP_EXIT_RUN);
	assert_string_equal(
	    result.status.text,
	    "error[E0905]: loss is not finite at step 4, microbatch 0, stage 1 (3 steps in a row; no update was made)");
	end_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(named_schedules_give_the_bits_of_one_rank),
	    cmocka_unit_test(random_schedules_give_the_bits_of_one_rank),
	    cmocka_unit_test(the_cut_of_the_batch_does_not_scale_gradients),
	    cmocka_unit_test(every_post_is_waited_for),
	    cmocka_unit_test(learning_lowers_the_loss),
	    cmocka_unit_test(three_losses_that_are_not_finite_stop_the_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
