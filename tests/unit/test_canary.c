/* The canary catches one byte written outside of what was planned, wherever that is, and says where; a run that writes
 * nothing wrong keeps its bits. */
#include "lowering_fixture.h"
#include "model_fixture.h"

#include "executor/canary.h"
#include "support/training.h"

#include <inttypes.h>

/* Where `clip` writes a byte: relative to the arena of the one rank that runs. Set before a run. */
struct planted {
	const struct pp_rank *rank;
	int64_t offset;
};
static struct planted planted;

static void clip_and_write(struct pp_device *device, const struct pp_hyper *hyper, enum pp_mean mean, uint32_t losses,
                           uint32_t norms, uint32_t scale)
{
	pp_device_cpu.clip(device, hyper, mean, losses, norms, scale);
	unsigned char *arena = (unsigned char *)pp_device_cpu.slot(device, 0) - planted.rank->slots[0].offset;
	arena[planted.offset] ^= 0x40;
}

static struct pp_program *build(struct world *w)
{
	static struct pp_hyper hypers[2] = {{0.9, 0.95, 1e-8, 0.1, 1.0}, {0.9, 0.95, 1e-8, 0.0, 1.0}};
	const struct model_size tiny = {16, 2, 2, 3, 32, 32, 8, 2, false};
	struct pp_spec *spec = fixture_spec(w->arena, &tiny);
	spec->microbatches = 2;
	spec->cluster.nodes = 1;
	spec->cluster.gpus = 1;
	spec->train.steps = 2;
	spec->train.data = PP_DATA_SYNTHETIC;
	spec->train.lr_peak = spec->train.lr_floor = 0.01;
	spec->train.hypers = hypers;
	spec->train.hyper_count = 2;
	write_interleaved(w, 1, 1, 2);
	struct pp_program *program = pp_training_program(w->arena, spec, &w->schedule, w->diag);
	if (!program)
		fail_msg("%s", diagnostics(w));
	return program;
}

static struct pp_training_result run(struct world *w, const struct pp_program *program, bool canary, bool overrun)
{
	struct pp_device_ops device = pp_device_cpu;
	if (overrun)
		device.clip = clip_and_write;
	const struct pp_training_probe probe = {.device = &device};
	return pp_training_run_probed(w->arena, program, &(struct pp_transport_options){0},
	                              &(struct pp_run_options){.canary = canary}, &probe);
}

/* The end of a static slot that alignment separates from the next one. */
static uint64_t end_of_vector(const struct pp_rank *rank, uint32_t *slot)
{
	for (*slot = 0; *slot < rank->slot_count; ++*slot)
		if (rank->slots[*slot].class == PP_SLOT_WEIGHT && rank->slots[*slot].bytes % PP_ALIGN)
			return rank->slots[*slot].offset + rank->slots[*slot].bytes;
	fail_msg("no vector");
	return 0;
}

static void expect(int64_t offset, const char *where, const char *nearest)
{
	struct world w = make_world(1);
	struct pp_program *program = build(&w);
	planted = (struct planted){&program->rank[0], offset};
	struct pp_training_result result = run(&w, program, true, true);
	assert_false(result.ok);
	assert_int_equal(result.status.code, PP_EXIT_RUN);
	char wanted[200];
	snprintf(wanted, sizeof wanted, "canary of rank 0: step 1 wrote to offset %" PRId64 ", %s; nearest is %s", offset,
	         where, nearest);
	if (!strstr(result.status.text, wanted))
		fail_msg("`%s` instead of `%s`", result.status.text, wanted);
	end_world(&w);
}

static void one_byte_outside_is_caught(void **state)
{
	(void)state;
	struct world w = make_world(1);
	const struct pp_rank *rank = &build(&w)->rank[0];
	char nearest[64];
	int64_t arena = (int64_t)rank->arena_bytes;
	expect(-1, "before the arena", "");
	expect(-PP_CANARY_GUARD, "before the arena", "");
	expect(arena, "after the arena", "");
	expect(arena + PP_CANARY_GUARD - 1, "after the arena", "");
	uint32_t slot;
	uint64_t end = end_of_vector(rank, &slot);
	snprintf(nearest, sizeof nearest, "weight.%" PRIu32 " at %" PRIu64 " with %" PRIu64 " bytes", slot,
	         rank->slots[slot].offset, rank->slots[slot].bytes);
	expect((int64_t)end, "between slots", nearest);
	expect((int64_t)end + 6, "between slots", nearest);
	end_world(&w);
}

/* Without the option there are no guards to look at, and with it nothing else changes. */
static void a_clean_run_keeps_its_bits(void **state)
{
	(void)state;
	struct world w = make_world(1);
	struct pp_program *program = build(&w);
	struct pp_training_result with = run(&w, program, true, false), without = run(&w, program, false, false);
	assert_true(with.ok && without.ok);
	assert_string_equal(with.steps, without.steps);
	for (uint32_t t = 0; t < program->tensor_count; t++)
		assert_true(with.hashes[t] == without.hashes[t]);
	end_world(&w);
}

/* A device without guard zones says so instead of being watched at nothing. */
static void a_device_without_guards_is_refused(void **state)
{
	(void)state;
	struct world w = make_world(1);
	struct pp_program *program = build(&w);
	struct pp_device_ops device = pp_device_cpu;
	device.has_guards = false;
	const struct pp_training_probe probe = {.device = &device};
	struct pp_training_result result = pp_training_run_probed(w.arena, program, &(struct pp_transport_options){0},
	                                                          &(struct pp_run_options){.canary = true}, &probe);
	assert_false(result.ok);
	assert_string_equal(result.status.text, "device cpu has no guard zones, so there is no canary on it");
	end_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_byte_outside_is_caught),
	    cmocka_unit_test(a_clean_run_keeps_its_bits),
	    cmocka_unit_test(a_device_without_guards_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
