/* The validation loss that a run reports against the same model put together by hand from the kernels, with the weights
 * that the run ended with, over all held-out tokens of the file, read here. */
#include "reference.h"

#include "../unit/lowering_fixture.h"
#include "../unit/model_fixture.h"
#include "support/training.h"

#include <math.h>
#include <unistd.h>

enum { VOCAB = 32, SEQ = 8, TOKENS = 700, HELD_OUT = 210, LAYERS = 2 };

static struct pp_hyper hypers[2] = {{0.9, 0.95, 1e-8, 0.1, 1.0}, {0.9, 0.95, 1e-8, 0.0, 1.0}};

static struct pp_spec *spec_of(struct pp_arena *arena, bool tied, const char *path)
{
	struct model_size size = {16, 2, 2, LAYERS, 64, VOCAB, SEQ, 2, tied};
	struct pp_spec *spec = fixture_spec(arena, &size);
	spec->microbatches = 4;
	spec->cluster.nodes = 1;
	spec->cluster.gpus = 4;
	spec->train.steps = 6;
	spec->train.seed = 3;
	spec->train.data = PP_DATA_FILE;
	spec->train.data_path = path;
	spec->train.lr_peak = spec->train.lr_floor = 0.02;
	spec->train.hypers = hypers;
	spec->train.hyper_count = 2;
	spec->train.eval_tail = (double)HELD_OUT / TOKENS;
	spec->train.eval_steps = 100;
	return spec;
}

/* The model by hand, its weights filled in by every rank. */
static void take_weights(const struct pp_interp *interp, void *context)
{
	struct reference *model = context;
	const struct pp_program *program = interp->program;
	model->tensor_count = program->tensor_count;
	for (uint32_t u = 0; u < program->use_count; u++) {
		const struct pp_use *use = &program->uses[u];
		const struct pp_tensor *tensor = &program->tensors[use->tensor];
		struct reference_tensor *to = &model->tensors[use->tensor];
		size_t count = (size_t)tensor->rows * tensor->columns;
		if (program->stages[use->stage].rank != interp->coord.pp || to->weight)
			continue;
		snprintf(to->name, sizeof to->name, "%s", tensor->name);
		to->rows = tensor->rows;
		to->columns = tensor->columns;
		to->weight = malloc(count * sizeof *to->weight);
		to->gradient = calloc(count, sizeof *to->gradient);
		to->expected = NULL;
		memcpy(to->weight, interp->slots[use->weight], count * sizeof *to->weight);
	}
}

/* Sample after sample of the tail. */
static double loss_by_hand(struct reference *model, const unsigned char *tail)
{
	double sum = 0, count = 0;
	for (uint32_t start = 0; start + SEQ < HELD_OUT; start += SEQ) {
		double loss[2];
		for (uint32_t i = 0; i < SEQ; i++) {
			model->ids[i] = tail[start + i];
			model->labels[i] = tail[start + i + 1];
		}
		reference_microbatch(model, 0, true, loss);
		sum += loss[0];
		count += loss[1];
	}
	assert_true(count == (HELD_OUT - 1) / SEQ * SEQ);
	return sum / count;
}

static struct reference *empty_model(bool tied)
{
	struct reference *model = calloc(1, sizeof *model);
	model->shape = (struct reference_shape){.hidden = 16,
	                                        .heads = 2,
	                                        .kv_heads = 2,
	                                        .head_dim = 8,
	                                        .ffn = 64,
	                                        .layers = LAYERS,
	                                        .vocab = VOCAB,
	                                        .seq = SEQ,
	                                        .microbatch = 1,
	                                        .microbatches = 1,
	                                        .tied = tied,
	                                        .tanh = 1};
	model->tensors = calloc(100, sizeof *model->tensors);
	model->ids = calloc(SEQ, sizeof *model->ids);
	model->labels = calloc(SEQ, sizeof *model->labels);
	model->loss = calloc(2, sizeof *model->loss);
	return model;
}

static void check(bool tied, uint32_t ranks)
{
	struct world w = make_world(1);
	char path[] = "/tmp/pipec-held-out-XXXXXX";
	unsigned char bytes[TOKENS];
	uint64_t random = 9;
	for (size_t i = 0; i < TOKENS; i++)
		bytes[i] = (unsigned char)(((i ? bytes[i - 1] : 0u) + 1 + random_below(&random, 3)) % VOCAB);
	int file = mkstemp(path);
	assert_true(file >= 0 && write(file, bytes, TOKENS) == TOKENS);
	close(file);
	struct reference *model = empty_model(tied);
	write_interleaved(&w, ranks, 1, 4);
	struct pp_program *program = pp_training_program(w.arena, spec_of(w.arena, tied, path), &w.schedule, w.diag);
	assert_non_null(program);
	struct pp_training_result result = pp_training_run_probed(
	    w.arena, program, &(struct pp_transport_options){0}, &(struct pp_run_options){0},
	    &(struct pp_training_probe){.device = &pp_device_cpu, .look = take_weights, .context = model});
	assert_true(result.ok);
	double reported = strtod(strstr(result.evaluations, "\"val_loss\"") + 12, NULL);
	double by_hand = loss_by_hand(model, bytes + TOKENS - HELD_OUT);
	assert_true(by_hand < 0.98 * log(VOCAB)); /* it has learnt something */
	assert_true(fabs(reported / by_hand - 1) < 1e-6);
	reference_free(model);
	unlink(path);
	end_world(&w);
}

static void on_one_rank(void **state)
{
	(void)state;
	check(false, 1);
	check(true, 1);
}

static void on_several_ranks(void **state)
{
	(void)state;
	check(false, 4);
	check(true, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(on_one_rank), cmocka_unit_test(on_several_ranks)};
	return cmocka_run_group_tests_name("evaluation", tests, NULL, NULL);
}
