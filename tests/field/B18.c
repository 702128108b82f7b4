/* Field case B18: gradients are clipped by the norm over all ranks and chunks, not by that of one's own stage. After
 * each real backward the stage's gradients are replaced by planted ones of a chosen norm; everything behind, from the
 * squared norms to the update, is the compiled program. With plain SGD and a learning rate of 1 the change of the
 * weights is the clipped gradient. */
#include "unit/lowering_fixture.h"
#include "unit/model_fixture.h"

#include "support/training.h"

#include <math.h>

enum { MICROBATCHES = 4, STAGES_MAX = 4, USES_MAX = 128 };

struct plan {
	double norm[STAGES_MAX]; /* of each stage's mean gradient */
	double tokens;           /* of the step: bodies make sums */
	float *before[STAGES_MAX][USES_MAX];
	double changed[STAGES_MAX]; /* norm of the change of the weights */
};

/* Which body belongs to which stage and what to plant: the device's interface carries no context. */
static const struct pp_program *running;
static struct plan *planned;

static uint64_t elements_of(const struct pp_use *use)
{
	return pp_local_elements(running, use->tensor);
}

/* Two tensors of the stage share the norm as 0.6 and 0.8; others get no gradient. Replicas share it equally. */
static void plant(struct pp_device *device, uint32_t stage)
{
	double sum = planned->norm[stage] * planned->tokens / running->dp;
	uint32_t uses = 0;
	for (uint32_t i = 0; i < running->use_count; i++) {
		const struct pp_use *use = &running->uses[i];
		if (use->stage != stage)
			continue;
		float *grad = pp_device_cpu.slot(device, use->grad);
		memset(grad, 0, elements_of(use) * sizeof *grad);
		if (uses < 2)
			grad[elements_of(use) - 1] = (float)(sum * (uses == 0 ? 0.6 : -0.8));
		uses++;
	}
	assert_true(uses >= 2);
}

static bool call(struct pp_device *device, const struct pp_call *operands, const struct pp_body_link *link)
{
	bool went = pp_device_cpu.call(device, operands, link);
	for (uint32_t s = 0; s < running->stage_count; s++)
		if (&running->bodies[running->stages[s].body[PP_PHASE_B]] == operands->body)
			plant(device, s);
	return went;
}

/* ---- what was changed ------------------------------------------------------------------------ */

struct visit {
	struct pp_arena *arena;
	bool first; /* keep the weights; otherwise compare */
};

static void look(const struct pp_interp *interp, void *context)
{
	const struct visit *visit = context;
	uint32_t uses[STAGES_MAX] = {0};
	if (interp->coord.dp != 0) /* whose weights are the same, or there would be no hash */
		return;
	for (uint32_t i = 0; i < running->use_count; i++) {
		const struct pp_use *use = &running->uses[i];
		if (running->stages[use->stage].rank != interp->coord.pp)
			continue;
		const float *weights = interp->slots[use->weight];
		uint64_t count = elements_of(use);
		assert_true(uses[use->stage] < USES_MAX);
		float **kept = &planned->before[use->stage][uses[use->stage]++];
		if (visit->first) {
			*kept = PP_NEW_ARRAY(visit->arena, float, count);
			memcpy(*kept, weights, count * sizeof *weights);
		}
		for (uint64_t k = 0; k < count; k++)
			planned->changed[use->stage] += pow((double)weights[k] - (double)(*kept)[k], 2);
	}
}

static double field_of(const char *steps, const char *name)
{
	const char *at = strstr(steps, name);
	assert_non_null(at);
	return strtod(at + strlen(name) + 2, NULL);
}

/* A step with that limit on the norm; its learning rate is 1, or too small to change a weight. */
static double run_step(struct world *w, const struct pp_hyper *hyper, double lr, const struct pp_parallel *replicas,
                       const struct visit *visit)
{
	static const struct model_size size = {16, 2, 2, 5, 32, 32, 8, 1, false};
	struct pp_hyper hypers[2] = {*hyper, *hyper};
	struct pp_spec *spec = fixture_spec(w->arena, &size);
	spec->microbatches = MICROBATCHES;
	spec->cluster.nodes = 1;
	spec->cluster.gpus = 4;
	spec->parallel.dp = replicas->dp;
	spec->parallel.zero = replicas->zero;
	spec->train.optimizer = PP_SGD;
	spec->train.data = PP_DATA_SYNTHETIC;
	spec->train.lr_peak = spec->train.lr_floor = lr;
	spec->train.log_every = 1;
	spec->train.hypers = hypers;
	spec->train.hyper_count = 2;
	struct pp_program *program = pp_training_program(w->arena, spec, &w->schedule, w->diag);
	if (!program)
		fail_msg("%s", diagnostics(w));
	running = program;
	struct pp_device_ops device = pp_device_cpu;
	device.call = call;
	struct visit own = *visit;
	const struct pp_training_probe probe = {.device = &device, .look = look, .context = &own};
	struct pp_training_result result = pp_training_run_probed(w->arena, program, &(struct pp_transport_options){0},
	                                                          &(struct pp_run_options){.steps = 1}, &probe);
	assert_true(result.ok);
	for (uint32_t t = 0; t < program->tensor_count; t++)
		assert_true(result.hashes[t] != 0); /* all copies are equal */
	return field_of(result.steps, "\"grad_norm\"");
}

static void expect_of(const struct pp_parallel *replicas, uint32_t ranks, uint32_t chunks, const double *norms,
                      double limit, double factor)
{
	struct world w = make_world(1);
	struct plan plan = {.tokens = 8.0 * MICROBATCHES * replicas->dp};
	uint32_t stages = ranks * chunks;
	memcpy(plan.norm, norms, stages * sizeof *norms);
	planned = &plan;
	write_interleaved(&w, ranks, chunks, MICROBATCHES);
	const struct pp_hyper hyper = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = limit};
	run_step(&w, &hyper, 1e-300, replicas, &(struct visit){w.arena, true});
	for (uint32_t s = 0; s < stages; s++)
		assert_true(plan.changed[s] == 0);
	double norm = run_step(&w, &hyper, 1, replicas, &(struct visit){w.arena, false});
	assert_true(fabs(norm - 5) < 1e-6);
	for (uint32_t s = 0; s < stages; s++)
		if (fabs(sqrt(plan.changed[s]) - norms[s] * factor) > 1e-6)
			fail_msg("stage %u of %u on %u ranks: changed by %.9g, wanted %.9g", s, stages, ranks,
			         sqrt(plan.changed[s]), norms[s] * factor);
	end_world(&w);
}

/* On one replica, on two, and on two and three that share the optimizer. */
static void expect(uint32_t ranks, uint32_t chunks, const double *norms, double limit, double factor)
{
	static const struct pp_parallel replicas[] = {{.dp = 1}, {.dp = 2}, {.dp = 2, .zero = 1}, {.dp = 3, .zero = 1}};
	for (size_t i = 0; i < sizeof replicas / sizeof *replicas; i++)
		expect_of(&replicas[i], ranks, chunks, norms, limit, factor);
}

static void norm_of_all_ranks(void **state)
{
	(void)state;
	expect(2, 1, (const double[]){3, 4}, 1, 0.2); /* 0.6 and 0.8 */
}

static void norm_of_one_rank(void **state)
{
	(void)state;
	expect(1, 1, (const double[]){5}, 1, 0.2);
	expect(1, 2, (const double[]){3, 4}, 1, 0.2);
}

static void norm_of_all_chunks(void **state)
{
	(void)state;
	expect(2, 2, (const double[]){1.8, 2.4, 2.4, 3.2}, 1, 0.2); /* ranks 3 and 4 */
}

static void below_the_limit_nothing_is_clipped(void **state)
{
	(void)state;
	expect(2, 1, (const double[]){3, 4}, 5.5, 1);
	expect(2, 1, (const double[]){3, 4}, 0, 1); /* no limit */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(norm_of_all_ranks),
	    cmocka_unit_test(norm_of_one_rank),
	    cmocka_unit_test(norm_of_all_chunks),
	    cmocka_unit_test(below_the_limit_nothing_is_clipped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
