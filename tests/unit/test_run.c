/* What surrounds the interpreter: learning rate, reported loss, metrics lines, start checks. */
#include "executor/start_check.h"
#include "executor/metrics.h"
#include "executor/train_loop.h"

#include "support/sample_program.h"

#include "ir/program_text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void assert_near(double value, double wanted)
{
	if (!(fabs(value - wanted) <= 1e-15 * fabs(wanted)))
		fail_msg("%.17g instead of %.17g", value, wanted);
}

static void learning_rate_warms_up_and_falls(void **state)
{
	(void)state;
	struct pp_train train = {.steps = 130, .lr_kind = PP_LR_COSINE, .lr_peak = 3e-3, .lr_floor = 3e-4, .lr_warmup = 30};
	assert_near(pp_learning_rate(&train, 0), 1e-4);
	assert_near(pp_learning_rate(&train, 14), 15e-4);
	assert_near(pp_learning_rate(&train, 29), 3e-3);
	assert_near(pp_learning_rate(&train, 30), 3e-3);
	assert_near(pp_learning_rate(&train, 80), 0.5 * (3e-3 + 3e-4));
	assert_true(pp_learning_rate(&train, 129) > 3e-4 && pp_learning_rate(&train, 129) < 3.01e-4);
	assert_true(pp_learning_rate(&train, 130) == 3e-4 && pp_learning_rate(&train, 100000) == 3e-4);
	train.lr_kind = PP_LR_CONSTANT;
	assert_near(pp_learning_rate(&train, 0), 1e-4);
	assert_true(pp_learning_rate(&train, 30) == 3e-3 && pp_learning_rate(&train, 1000) == 3e-3);
	train.lr_warmup = 0;
	assert_true(pp_learning_rate(&train, 0) == 3e-3);
}

/* Field case B16: two microbatches with 10 and 30 valid tokens and mean losses 2.0 and 4.0. */
static void loss_is_a_mean_over_tokens_or_over_microbatches(void **state)
{
	(void)state;
	const double losses[] = {20, 10, 120, 30};
	struct pp_train train = {.mean = PP_TOKEN_MEAN};
	assert_true(pp_step_loss(&train, losses, 2) == 3.5);
	assert_true(pp_step_tokens(losses, 2) == 40);
	train.mean = PP_MB_MEAN;
	assert_true(pp_step_loss(&train, losses, 2) == 3.0);
	const double empty[] = {0, 0, 120, 30};
	assert_true(pp_step_loss(&train, empty, 2) == 4.0);
	assert_true(isnan(pp_step_loss(&train, empty, 1)));
}

static char *read_all(const char *path)
{
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	char *text = calloc(1, 10000);
	assert_true(fread(text, 1, 9999, file) > 0);
	fclose(file);
	return text;
}

static void a_step_is_logged_and_written(void **state)
{
	(void)state;
	struct pp_program program = {.microbatches = 2, .train = {.log_every = 2}};
	struct pp_status status;
	char path[] = "/tmp/pipec-metrics-XXXXXX";
	int descriptor = mkstemp(path);
	assert_true(descriptor >= 0);
	close(descriptor);
	char *log = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&log, &length);
	struct pp_metrics_options options = {.path = path, .log = out, .steps = 4};
	struct pp_metrics *metrics = pp_metrics_open(&program, &options, &status);
	assert_non_null(metrics);
	const double losses[] = {20, 10, 120, 30}, worse[] = {NAN, 10, 120, 30};
	for (uint64_t step = 1; step <= 4; step++) {
		struct pp_step_result result = {.step = step,
		                                .seconds = 0.5,
		                                .flops = 1e9,
		                                .has_loss = true,
		                                .losses = step == 3 ? worse : losses,
		                                .lr = 0.001,
		                                .grad_norm = step == 3 ? (double)NAN : 1.25,
		                                .updated = step != 3};
		assert_true(pp_metrics_step(metrics, &result, &status));
	}
	uint64_t steps;
	assert_true(isnan(pp_metrics_recent_loss(metrics, &steps)));
	assert_int_equal(steps, 4);
	assert_true(pp_metrics_close(metrics, &status));
	fclose(out);
	assert_string_equal(
	    log,
	    "step      1  loss   3.5000  lr 1.000e-03  grad norm    1.250        80 tokens/s    2.00 GFLOP/s  500.00 ms\n"
	    "step      2  loss   3.5000  lr 1.000e-03  grad norm    1.250        80 tokens/s    2.00 GFLOP/s  500.00 ms\n"
	    "step      3  loss      nan  lr 1.000e-03  grad norm      nan (not finite: no update)        80 tokens/s    "
	    "2.00 "
	    "GFLOP/s  500.00 ms\n"
	    "step      4  loss   3.5000  lr 1.000e-03  grad norm    1.250        80 tokens/s    2.00 GFLOP/s  500.00 ms\n");
	char *written = read_all(path);
	char *third = strstr(strstr(written, "\n") + 1, "\n") + 1;
	*strstr(third, "\n") = '\0';
	assert_string_equal(
	    third, "{\"schema\": \"piperun.step/1\", \"step\": 3, \"loss\": null, \"microbatch_losses\": [null, 4], "
	           "\"lr\": 0.001, "
	           "\"grad_norm\": null, \"updated\": false, \"tokens\": 40, \"tokens_per_s\": 80, \"gflop_per_s\": 2, "
	           "\"seconds\": 0.5}");
	free(written);
	free(log);
	unlink(path);
}

static void metrics_that_cannot_be_written_are_refused(void **state)
{
	(void)state;
	struct pp_program program = {.microbatches = 1};
	struct pp_status status;
	assert_null(pp_metrics_open(&program, &(struct pp_metrics_options){.path = "/nowhere/m.jsonl"}, &status));
	assert_string_equal(status.text, "cannot write metrics to /nowhere/m.jsonl: No such file or directory");
	struct pp_metrics *metrics =
	    pp_metrics_open(&program, &(struct pp_metrics_options){.path = "/dev/full", .steps = 1}, &status);
	assert_non_null(metrics);
	assert_false(pp_metrics_step(metrics, &(struct pp_step_result){.step = 1, .seconds = 1}, &status));
	assert_string_equal(status.text, "cannot write metrics to /dev/full: No space left on device");
	assert_false(pp_metrics_close(metrics, &status));
}

static bool never(enum pp_body_op op)
{
	return op != PP_BODY_FILL;
}

static void what_cannot_run_is_refused(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = pp_sample_program(
	    arena, &(struct pp_sample){.ranks = 2, .chunks = 1, .microbatches = 1, .out_count = 8, .grad_count = 8});
	struct pp_status status;
	struct pp_device_ops device = {.name = "poor", .supports = never};
	assert_true(pp_check_supported(program, "x.ppx", &pp_device_cpu, &status));
	assert_false(pp_check_supported(program, "x.ppx", &device, &status));
	assert_string_equal(status.text, "device poor has no `fill` (body of stage 0)");
	struct pp_tensor tensor = {.name = "w", .dtype = PP_BF16}, *tensors = program->tensors;
	uint32_t tensor_count = program->tensor_count, bodies = program->body_count;
	program->tensors = &tensor;
	program->tensor_count = 1;
	assert_false(pp_check_supported(program, "x.ppx", &pp_device_cpu, &status));
	assert_string_equal(status.text,
	                    "the cpu device computes in f32 only, tensor w is bf16; build with `dtype = fp32`: "
	                    "without a GPU there is no other way (--device=cuda says why there is none)");
	program->tensors = tensors;
	program->tensor_count = tensor_count;
	program->body_count = 0;
	assert_false(pp_check_supported(program, "x.ppx", &pp_device_cpu, &status));
	assert_string_equal(status.text, "the program has no bodies: it is a schedule without computations");
	program->body_count = bodies;
	struct pp_stream *stream = &program->programs[0].streams[1];
	struct pp_instr *coll = &stream->items[stream->count - 2];
	assert_int_equal(coll->op, PP_OP_COLL);
	coll->dtype = PP_I32;
	assert_false(pp_check_supported(program, "x.ppx", &pp_device_cpu, &status));
	assert_string_equal(status.text, "collective k0 sums i32: piperun sums f32, bf16 and f64");
	coll->sub = PP_ALLGATHER; /* computes nothing */
	assert_true(pp_check_supported(program, "x.ppx", &pp_device_cpu, &status));
	program->rank[1].slots[0].placed = false;
	assert_false(pp_check_supported(program, "x.pps", &pp_device_cpu, &status));
	assert_string_equal(
	    status.text,
	    "x.pps: 1 slots have no offset in the arena; plan them with `pipec build x.pps -o planned.ppx` and run that");
	program->dp = 2;
	assert_false(pp_check_ranks(program, 3, &status));
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	assert_string_equal(status.text, "error[E0901]: program wants 4 ranks, mpirun started 3; use `mpirun -n 4`");
	assert_true(pp_check_ranks(program, 4, &status));
	pp_arena_destroy(arena);
}

static void memory_is_checked_before_it_is_taken(void **state)
{
	(void)state;
	struct pp_rank ranks[3] = {{.arena_bytes = 1}, {.arena_bytes = UINT64_C(1) << 62}, {.arena_bytes = UINT64_MAX}};
	struct pp_program program = {.ranks = 3, .rank = ranks};
	struct pp_status status;
	const bool only_first[] = {true, false, false};
	assert_true(pp_check_memory(&program, &pp_device_cpu, only_first, &status));
	assert_false(pp_check_memory(&program, &pp_device_cpu, NULL, &status));
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	assert_true(strncmp(status.text, "the arenas of 3 ranks on this machine need 17179869184.00 GiB, ", 62) == 0);
}

static void different_programs_are_named(void **state)
{
	(void)state;
	struct pp_card cards[3] = {{.hash = 0x1a77}, {.hash = 0x1a77}, {.hash = 0x9f2c}};
	struct pp_status status;
	assert_true(pp_check_cards(cards, 2, &status));
	assert_false(pp_check_cards(cards, 3, &status));
	assert_string_equal(
	    status.text,
	    "error[E0902]: rank 2 loaded a different program (hash 0000000000009f2c, rank 0 has 0000000000001a77)");
}

static void different_cores_are_named(void **state)
{
	(void)state;
	struct pp_card cards[3] = {
	    {.host = "a", .core = "SkylakeX"}, {.host = "a", .core = "SkylakeX"}, {.host = "b", .core = "Haswell"}};
	struct pp_status warning;
	assert_true(pp_check_cores(cards, 2, &warning));
	assert_false(pp_check_cores(cards, 3, &warning));
	assert_string_equal(warning.text,
	                    "warning[W0906]: rank 0 on a multiplies with OpenBLAS's core SkylakeX, rank 2 on b with "
	                    "Haswell: results are as good, but the bits are not those of equal machines; set "
	                    "OPENBLAS_CORETYPE to one that all have");
}

static void groups_stay_on_their_nodes(void **state)
{
	(void)state;
	struct pp_program program = {.ranks = 2, .tp = 2, .dp = 1, .gpus = 2};
	struct pp_card cards[4] = {{.host = "a"}, {.host = "a"}, {.host = "b"}, {.host = "b"}};
	struct pp_status status;
	assert_true(pp_check_nodes(&program, cards, &status));
	program.rank_order = PP_ORDER_PP_TP_DP; /* ranks 0 and 2 are a group, planned over two nodes */
	assert_true(pp_check_nodes(&program, cards, &status));
	program.gpus = 4;
	assert_false(pp_check_nodes(&program, cards, &status));
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	assert_string_equal(
	    status.text, "error[E0903]: rank 0 (pp 0 tp 0 dp 0) is on a and rank 2 (pp 0 tp 1 dp 0) on b, but the program "
	                 "plans their tensor-parallel group on one node; use `mpirun --map-by ppr:4:node`");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(learning_rate_warms_up_and_falls),
	    cmocka_unit_test(loss_is_a_mean_over_tokens_or_over_microbatches),
	    cmocka_unit_test(a_step_is_logged_and_written),
	    cmocka_unit_test(metrics_that_cannot_be_written_are_refused),
	    cmocka_unit_test(what_cannot_run_is_refused),
	    cmocka_unit_test(memory_is_checked_before_it_is_taken),
	    cmocka_unit_test(different_programs_are_named),
	    cmocka_unit_test(different_cores_are_named),
	    cmocka_unit_test(groups_stay_on_their_nodes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
