/* Gradients of replicas, with and without a sharded optimizer, by the norm rule against those of one rank with the same
 * global batch: |a - b| <= 1e-5 max(|b|, 1e-3 |all|) for every tensor. After one step of plain SGD with a learning rate
 * of 1 and without clipping or decay the change of the weights is the gradient. */
#include "lowering_fixture.h"
#include "model_fixture.h"

#include "support/training.h"

#include <math.h>

enum { BATCH = 8 }; /* microbatches of all replicas */

struct gradients {
	struct pp_arena *arena;
	float **of; /* [tensors] */
	uint64_t *count;
};

/* The weights of each tensor as the first replica has them. */
static void look(const struct pp_interp *interp, void *context)
{
	struct gradients *to = context;
	const struct pp_program *program = interp->program;
	for (uint32_t u = 0; u < program->use_count && interp->coord.dp == 0; u++) {
		const struct pp_use *use = &program->uses[u];
		if (program->stages[use->stage].rank != interp->coord.pp || to->of[use->tensor])
			continue;
		to->count[use->tensor] = pp_local_elements(program, use->tensor);
		to->of[use->tensor] = PP_NEW_ARRAY(to->arena, float, to->count[use->tensor]);
		memcpy(to->of[use->tensor], interp->slots[use->weight], to->count[use->tensor] * sizeof(float));
	}
}

/* Weights after one step; with a rate that changes nothing: those before it. */
static struct gradients weights_after(struct world *w, bool tied, uint32_t pp, const struct pp_parallel *replicas,
                                      double lr, uint32_t *tensors)
{
	const struct model_size size = {16, 2, 2, 4, 32, 30, 8, 2, tied};
	struct pp_hyper hypers[2] = {{.clip = 0}, {.clip = 0}};
	struct pp_spec *spec = fixture_spec(w->arena, &size);
	spec->microbatches = BATCH / replicas->dp;
	spec->cluster.nodes = 1;
	spec->cluster.gpus = pp * replicas->dp;
	spec->parallel.dp = replicas->dp;
	spec->parallel.zero = replicas->zero;
	spec->train.optimizer = PP_SGD;
	spec->train.data = PP_DATA_SYNTHETIC;
	spec->train.lr_peak = spec->train.lr_floor = lr;
	spec->train.log_every = 1;
	spec->train.hypers = hypers;
	spec->train.hyper_count = 2;
	write_interleaved(w, pp, 1, spec->microbatches);
	struct pp_program *program = pp_training_program(w->arena, spec, &w->schedule, w->diag);
	if (!program)
		fail_msg("%s", diagnostics(w));
	struct gradients found = {.arena = w->arena};
	found.of = PP_NEW_ARRAY(w->arena, float *, program->tensor_count);
	found.count = PP_NEW_ARRAY(w->arena, uint64_t, program->tensor_count);
	const struct pp_training_probe probe = {.device = &pp_device_cpu, .look = look, .context = &found};
	struct pp_training_result result = pp_training_run_probed(w->arena, program, &(struct pp_transport_options){0},
	                                                          &(struct pp_run_options){.steps = 1}, &probe);
	assert_true(result.ok);
	for (uint32_t t = 0; t < program->tensor_count; t++)
		assert_true(result.hashes[t] != 0); /* all copies are equal */
	*tensors = program->tensor_count;
	return found;
}

static struct gradients gradients_of(struct world *w, bool tied, uint32_t pp, const struct pp_parallel *replicas,
                                     uint32_t *tensors)
{
	struct gradients before = weights_after(w, tied, pp, replicas, 1e-300, tensors),
	                 after = weights_after(w, tied, pp, replicas, 1, tensors);
	for (uint32_t t = 0; t < *tensors; t++)
		for (uint64_t i = 0; i < after.count[t]; i++)
			after.of[t][i] = before.of[t][i] - after.of[t][i];
	return after;
}

static double norm_of(const float *a, const float *b, uint64_t count)
{
	double sum = 0;
	for (uint64_t i = 0; i < count; i++)
		sum += pow((double)a[i] - (b ? (double)b[i] : 0), 2);
	return sqrt(sum);
}

static void assert_close(const struct gradients *found, const struct gradients *wanted, uint32_t tensors,
                         const char *what)
{
	double all = 0;
	for (uint32_t t = 0; t < tensors; t++)
		all += pow(norm_of(wanted->of[t], NULL, wanted->count[t]), 2);
	all = sqrt(all);
	assert_true(all > 0.1);
	for (uint32_t t = 0; t < tensors; t++) {
		double own = norm_of(wanted->of[t], NULL, wanted->count[t]), bound = own > 1e-3 * all ? own : 1e-3 * all;
		double difference = norm_of(found->of[t], wanted->of[t], wanted->count[t]);
		if (!(difference <= 1e-5 * bound))
			fail_msg("%s: gradient of tensor %u differs by %g of %g", what, t, difference, bound);
	}
}

static void gradients_are_those_of_one_rank(void **state)
{
	(void)state;
	static const struct pp_parallel replicas[] = {
	    {.dp = 1}, {.dp = 2}, {.dp = 2, .zero = 1}, {.dp = 4}, {.dp = 4, .zero = 1}};
	for (unsigned tied = 0; tied < 2; tied++) {
		struct world w = make_world(1);
		uint32_t tensors;
		struct gradients one = gradients_of(&w, tied, 1, &replicas[0], &tensors);
		for (uint32_t pp = 1; pp <= 4; pp *= 2)
			for (size_t i = 1; i < sizeof replicas / sizeof *replicas; i++) {
				struct gradients found = gradients_of(&w, tied, pp, &replicas[i], &tensors);
				const char *what = pp_arena_printf(w.arena, "pp %u dp %u zero %u%s", pp, replicas[i].dp,
				                                   replicas[i].zero, tied ? " tied" : "");
				assert_close(&found, &one, tensors, what);
			}
		end_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(gradients_are_those_of_one_rank),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
