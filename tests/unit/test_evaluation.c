/* Evaluation during training: the validation loss of one rank for every schedule and placement, the same held-out
 * samples for every cut of the batch, and not a bit of training changed by it. That the loss is right:
 * tests/numerics/test_evaluation.c. */
#include "lowering_fixture.h"
#include "model_fixture.h"

#include "support/training.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

enum { VOCAB = 32, SEQ = 8 };

static struct pp_hyper hypers[2] = {{0.9, 0.95, 1e-8, 0.1, 1.0}, {0.9, 0.95, 1e-8, 0.0, 1.0}};

static struct pp_spec *evaluated_spec(struct pp_arena *arena, bool tied, uint32_t microbatches, uint64_t eval_steps)
{
	struct model_size size = {16, 2, 2, 3, 32, VOCAB, SEQ, 2, tied};
	struct pp_spec *spec = fixture_spec(arena, &size);
	spec->microbatches = microbatches;
	spec->cluster.nodes = 1;
	spec->cluster.gpus = 16;
	spec->train.steps = 5;
	spec->train.seed = 7;
	spec->train.data = PP_DATA_SYNTHETIC;
	spec->train.data_seed = 3;
	spec->train.lr_peak = spec->train.lr_floor = 0.01;
	spec->train.log_every = 1;
	spec->train.hypers = hypers;
	spec->train.hyper_count = 2;
	spec->train.eval_every = 2;
	spec->train.eval_steps = eval_steps;
	return spec;
}

static struct pp_program *build(struct world *w, const struct pp_spec *spec)
{
	struct pp_program *program = pp_training_program(w->arena, spec, &w->schedule, w->diag);
	if (!program)
		fail_msg("%s", diagnostics(w));
	return program;
}

static struct pp_training_result run(struct world *w, const struct pp_spec *spec, uint64_t jitter)
{
	struct pp_training_result result =
	    pp_training_run(w->arena, build(w, spec), &(struct pp_transport_options){.check_identity = true},
	                    &(struct pp_run_options){.jitter = jitter});
	if (!result.ok)
		fail_msg("%s", result.status.text);
	return result;
}

static void assert_same_training(const struct pp_program *program, const struct pp_training_result *one,
                                 const struct pp_training_result *other)
{
	assert_string_equal(one->steps, other->steps);
	for (uint32_t t = 0; t < program->tensor_count; t++)
		if (one->hashes[t] != other->hashes[t] || one->hashes[t] == 0)
			fail_msg("tensor %s differs", program->tensors[t].name);
}

static struct pp_training_result on_one_rank(struct world *w, bool tied, uint32_t microbatches, uint64_t eval_steps)
{
	struct pp_schedule kept = w->schedule;
	write_interleaved(w, 1, 1, microbatches);
	struct pp_training_result result = run(w, evaluated_spec(w->arena, tied, microbatches, eval_steps), 0);
	w->schedule = kept;
	return result;
}

/* Validation losses after steps 2, 4 and 5 are those of one rank, to the last bit; training is that without evaluation.
 */
static void check(struct world *w, bool tied, uint64_t jitter)
{
	uint32_t microbatches = w->schedule.microbatches;
	struct pp_program *program = build(w, evaluated_spec(w->arena, tied, microbatches, 3));
	struct pp_training_result with = run(w, evaluated_spec(w->arena, tied, microbatches, 3), jitter);
	struct pp_training_result without = run(w, evaluated_spec(w->arena, tied, microbatches, 0), 0);
	assert_same_training(program, &with, &without);
	assert_string_equal(without.evaluations, "");
	const char *line = with.evaluations;
	for (uint64_t step = 2; step <= 5; step += step == 2 ? 2 : 1, line = strchr(line, '\n') + 1) {
		char head[64], tail[64];
		snprintf(head, sizeof head, "\"step\": %u, \"val_loss\": ", (unsigned)step);
		snprintf(tail, sizeof tail, ", \"tokens\": %u\n", 3 * microbatches * 2 * SEQ);
		assert_memory_equal(line, head, strlen(head));
		assert_memory_equal(strstr(line, ", \"tokens\""), tail, strlen(tail));
	}
	assert_int_equal(*line, '\0');
	if (!program->stamp.bits_fixed)
		return;
	struct pp_training_result one = on_one_rank(w, tied, microbatches, 3);
	assert_same_training(program, &one, &with);
	assert_string_equal(one.evaluations, with.evaluations);
}

static void named_schedules(void **state)
{
	(void)state;
	const struct {
		uint32_t ranks, chunks, microbatches;
		bool tied;
	} cases[] = {{1, 1, 4, true},  {2, 1, 4, false}, {4, 1, 4, true}, {6, 1, 2, false},
	             {2, 2, 4, false}, {3, 2, 6, true},  {1, 3, 4, true}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct world w = make_world(i);
		write_interleaved(&w, cases[i].ranks, cases[i].chunks, cases[i].microbatches);
		check(&w, cases[i].tied, i);
		end_world(&w);
	}
}

/* All forwards, then all backwards; and split backwards over a V, where rank 0 has the first and the last stage. */
static void rows_of_ones_own(void **state)
{
	(void)state;
	static const uint32_t v[] = {0, 1, 1, 0};
	const struct {
		uint32_t stages;
		const uint32_t *place;
		const char *rows;
	} cases[] = {
	    {3, NULL, "F0 F1 F2 B0 B1 B2\nF0 F1 F2 B0 B1 B2\nF0 F1 F2 B0 B1 B2\n"},
	    {2, NULL, "F0 F1 I0 F2 W0 I1 W1 I2 W2\nF0 I0 F1 I1 W0 F2 I2 W1 W2\n"},
	    {4, v,
	     "0F0 0F1 3F0 3B0 0F2 3F1 3B1 3F2 3B2 0I0 0I1 0W0 0I2 0W1 0W2\n"
	     "1F0 2F0 1F1 2F1 1F2 2F2 2B0 1B0 2I1 1I1 2W1 1W1 2B2 1B2\n"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (unsigned tied = 0; tied < 2; tied++) {
			struct world w = make_world(i);
			write_schedule(&w, cases[i].stages, cases[i].place, 3, cases[i].rows);
			check(&w, tied, 5);
			end_world(&w);
		}
}

static void random_schedules(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 15; seed++) {
		struct world w = make_world(seed);
		do
			draw_schedule(&w, 4, 4, 2);
		while (w.schedule.stages > 6);
		check(&w, draw(&w, 2), 0);
		end_world(&w);
	}
}

/* ---- data ------------------------------------------------------------------------------------ */

static char *file_of(struct world *w, size_t length)
{
	char *path = pp_arena_copy(w->arena, "/tmp/pipec-held-out-XXXXXX", 26);
	int file = mkstemp(path);
	uint64_t random = 5;
	assert_true(file >= 0);
	for (size_t i = 0; i < length; i++) {
		unsigned char byte = (unsigned char)random_below(&random, VOCAB);
		assert_int_equal(write(file, &byte, 1), 1);
	}
	close(file);
	return path;
}

static double field_of(const char *line, const char *name)
{
	const char *at = strstr(line, name);
	assert_non_null(at);
	return strtod(at + strlen(name) + 2, NULL);
}

/* Weights that no step changes: every cut of the batch evaluates the same tokens once, and gets one loss. */
static void the_cut_of_the_batch_does_not_matter(void **state)
{
	(void)state;
	const uint32_t cuts[][3] = {{1, 1, 16}, {1, 16, 1}, {2, 4, 4}, {2, 3, 5}, {4, 7, 1}}; /* ranks, m, microbatch */
	double first = 0;
	for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
		struct world w = make_world(1);
		write_interleaved(&w, cuts[i][0], 1, cuts[i][1]);
		struct pp_spec *spec = evaluated_spec(w.arena, false, cuts[i][1], 1000);
		spec->train.microbatch = cuts[i][2];
		spec->train.data = PP_DATA_FILE;
		spec->train.data_path = file_of(&w, 1000);
		spec->train.eval_tail = 0.3;
		spec->train.lr_peak = spec->train.lr_floor = 0;
		struct pp_training_result result = run(&w, spec, 0);
		double loss = field_of(result.evaluations, "\"val_loss\"");
		assert_true(field_of(result.evaluations, "\"tokens\"") == 296); /* 37 samples in 300 tokens */
		assert_true(fabs(loss - log(VOCAB)) < 0.1);
		if (i == 0)
			first = loss;
		assert_true(fabs(loss / first - 1) < 1e-7); /* matrix products of other heights round differently */
		unlink(spec->train.data_path);
		end_world(&w);
	}
}

/* Ranks that load nothing fail together with those that do, before the first step. */
static void a_tail_too_short_stops_all_ranks(void **state)
{
	(void)state;
	struct world w = make_world(1);
	write_interleaved(&w, 3, 1, 2);
	struct pp_spec *spec = evaluated_spec(w.arena, false, 2, 4);
	spec->train.data = PP_DATA_FILE;
	spec->train.data_path = file_of(&w, 80);
	spec->train.eval_tail = 0.1;
	struct pp_training_result result =
	    pp_training_run(w.arena, build(&w, spec), &(struct pp_transport_options){0}, &(struct pp_run_options){0});
	char text[256];
	snprintf(text, sizeof text,
	         "data file %s is too short to evaluate on: its tail has 8 tokens, one sample takes seq + 1 = 9; use a "
	         "larger tail, or a file for `eval_data`",
	         spec->train.data_path);
	assert_false(result.ok);
	assert_int_equal(result.status.code, PP_EXIT_ENVIRONMENT);
	assert_string_equal(result.status.text, text);
	assert_string_equal(result.steps, "");
	unlink(spec->train.data_path);
	end_world(&w);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A device that writes down which limit holds: for training, and for forwards that no backward has followed. */
static uint32_t forwards;                   /* of the last rank, less its backwards */
static uint32_t in_training, in_evaluation; /* bits 1 << enum pp_stretch */

static bool noting_call(struct pp_device *device, const struct pp_call *call, const struct pp_body_link *link)
{
	const struct pp_interp *interp = link->context;
	uint32_t stretch = 1u << atomic_load(&interp->watch->at->stretch);
	if (call->body->stage == 1) {
		forwards += call->body->phase == PP_PHASE_F ? 1u : (uint32_t)-1;
		if (forwards > 1)
			in_evaluation |= stretch;
		else if (call->body->phase != PP_PHASE_F)
			in_training |= stretch;
	}
	return pp_device_cpu.call(device, call, link);
}

/* An evaluation may take as long as its own limit says; after it, that of steps holds again. */
static void evaluations_have_a_limit_of_their_own(void **state)
{
	(void)state;
	struct world w = make_world(1);
	struct pp_device_ops device = pp_device_cpu;
	struct pp_spec *spec = evaluated_spec(w.arena, false, 2, 1);
	device.call = noting_call;
	forwards = in_training = in_evaluation = 0;
	spec->train.steps = 1;
	write_interleaved(&w, 2, 1, 2); /* the last rank's forwards and backwards take turns */
	struct pp_training_result result =
	    pp_training_run_probed(w.arena, build(&w, spec), &(struct pp_transport_options){0}, &(struct pp_run_options){0},
	                           &(struct pp_training_probe){.device = &device});
	assert_true(result.ok);
	assert_non_null(strstr(result.evaluations, "\"step\": 1, \"val_loss\": "));
	assert_int_equal(in_training, 1u << PP_STRETCH_FIRST);
	assert_int_equal(in_evaluation, 1u << PP_STRETCH_EVAL);
	end_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(named_schedules),
	    cmocka_unit_test(rows_of_ones_own),
	    cmocka_unit_test(random_schedules),
	    cmocka_unit_test(the_cut_of_the_batch_does_not_matter),
	    cmocka_unit_test(a_tail_too_short_stops_all_ranks),
	    cmocka_unit_test(evaluations_have_a_limit_of_their_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
