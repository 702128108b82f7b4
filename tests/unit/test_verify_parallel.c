/* V10 under tensor parallelism: types of a column- and a row-parallel linear by hand, collectives in flight. */
#include "body_mutants.h"

/* ---- tensor-parallel types ------------------------------------------------------------------- */

/* An MLP over tp = 2 in the middle of three stages: w1 split by outputs, w2 by inputs, one collective. Registers:
 * 0 in, 1 w1, 2 f, 3 w2, 4 sums, 5 out; what some variants need besides. */
enum { IN, W1, HIDDEN, W2, SUMS, OUT, SHARD, SPARE, COPY, REG_COUNT };

struct mlp {
	struct pp_program program;
	struct pp_stage stages[3];
	struct pp_rank rank;
	struct pp_slot slots[5];
	struct pp_tensor tensors[2];
	struct pp_use uses[2];
	struct pp_body body;
	struct pp_reg regs[REG_COUNT];
	struct pp_body_instr items[8];
};

static struct pp_reg reg_of(const char *name, enum pp_base base, enum pp_tp_type type, uint8_t shard, uint32_t rows,
                            uint32_t columns)
{
	return (struct pp_reg){.name = name,
	                       .base = (uint8_t)base,
	                       .dtype = PP_F32,
	                       .type = (uint8_t)type,
	                       .shard = shard,
	                       .slot = PP_NULL,
	                       .rows = rows,
	                       .columns = columns};
}

static void mlp_make(struct mlp *m)
{
	memset(m, 0, sizeof *m);
	m->tensors[0] = (struct pp_tensor){.name = "w1", .rows = 32, .columns = 8, .dims = 2, .shard = 0};
	m->tensors[1] = (struct pp_tensor){.name = "w2", .rows = 8, .columns = 32, .dims = 2, .shard = 1};
	for (unsigned i = 0; i < 5; i++)
		m->slots[i] = (struct pp_slot){.class = (uint8_t)(i == 4  ? PP_SLOT_WORK
		                                                  : i < 2 ? PP_SLOT_WEIGHT
		                                                          : PP_SLOT_GRAD),
		                               .tensor = i == 4 ? PP_NULL : i % 2,
		                               .bytes = i == 4 ? 1024 : 512};
	for (uint32_t s = 0; s < 3; s++) {
		m->stages[s] = (struct pp_stage){.out_count = s == 2 ? 0 : 32, .title = "mlp"};
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			m->stages[s].body[phase] = PP_NULL;
	}
	m->stages[1].body[PP_PHASE_F] = 0;
	for (uint32_t i = 0; i < 2; i++)
		m->uses[i] = (struct pp_use){.tensor = i, .stage = 1, .weight = i, .grad = 2 + i};
	m->regs[IN] = reg_of("in", PP_BASE_IN, PP_TYPE_R, 0, 4, 8);
	m->regs[W1] = reg_of("w1", PP_BASE_WEIGHT, PP_TYPE_S, 0, 16, 8);
	m->regs[HIDDEN] = reg_of("f", PP_BASE_WORK, PP_TYPE_S, 1, 4, 16);
	m->regs[W2] = reg_of("w2", PP_BASE_WEIGHT, PP_TYPE_S, 1, 8, 16);
	m->regs[SUMS] = reg_of("sums", PP_BASE_WORK, PP_TYPE_P, 0, 4, 8);
	m->regs[OUT] = reg_of("out", PP_BASE_OUT, PP_TYPE_R, 0, 4, 8);
	m->regs[SHARD] = reg_of("shard", PP_BASE_WORK, PP_TYPE_S, 0, 2, 8);
	m->regs[SPARE] = reg_of("spare", PP_BASE_WORK, PP_TYPE_P, 0, 4, 8);
	m->regs[COPY] = reg_of("copy", PP_BASE_WORK, PP_TYPE_R, 0, 4, 8);
	m->regs[SPARE].offset = 512;
	m->regs[COPY].offset = 640;
	m->regs[W1].slot = 0;
	m->regs[W2].slot = 1;
	m->regs[SUMS].offset = 256;
	m->regs[SHARD].offset = 384;
	m->items[0] = (struct pp_body_instr){.op = PP_BODY_LINEAR, .operand = {IN, W1, PP_NULL, HIDDEN}};
	m->items[1] = (struct pp_body_instr){.op = PP_BODY_LINEAR, .operand = {HIDDEN, W2, PP_NULL, SUMS}};
	m->items[2] = (struct pp_body_instr){.op = PP_BODY_ALLREDUCE, .operand = {SUMS, OUT}};
	m->items[3] = (struct pp_body_instr){.op = PP_BODY_AWAIT, .operand = {OUT}};
	m->body = (struct pp_body){.stage = 1,
	                           .phase = PP_PHASE_F,
	                           .regs = m->regs,
	                           .reg_count = REG_COUNT,
	                           .items = m->items,
	                           .count = 4,
	                           .work_bytes = 1024};
	m->rank = (struct pp_rank){.slots = m->slots, .slot_count = 5};
	m->program = (struct pp_program){.arena = pp_arena_create(NULL),
	                                 .ranks = 1,
	                                 .tp = 2,
	                                 .dp = 1,
	                                 .stage_count = 3,
	                                 .stages = m->stages,
	                                 .rank = &m->rank,
	                                 .tensors = m->tensors,
	                                 .tensor_count = 2,
	                                 .uses = m->uses,
	                                 .use_count = 2,
	                                 .bodies = &m->body,
	                                 .body_count = 1};
}

static void tensor_parallel_types(void **state)
{
	(void)state;
	static const char *const expected[] = {
	    "",
	    "", /* reduce-scatter, then all-gather */
	    "error[V10]: body s1.F: register out on out holds partial sums (type P); reduce them over the tensor-parallel "
	    "group first\n",
	    "error[V10]: body s1.F, instruction 2: operands have the tensor-parallel types PR, expected one of: RR 00 11 "
	    "PP\n"
	    "   = note: copy sums -> out\n"
	    "   = note: R replicated, P partial sums, 0 and 1 split by rows and by columns, - absent\n",
	    "error[V10]: body s1.F: register w1 is f32[32,8] at byte 0, expected [16,8] at byte 0 as tensor w1\n",
	    "error[V10]: body s1.F: register w2 has tensor-parallel type R, which tensor w2 (sharded) does not\n",
	    "error[V10]: body s1.F, instruction 2: sums has 4 rows, expected tp = 2 times the 4 rows of shard\n"
	    "   = note: reducescatter sums -> shard\n",
	};
	for (unsigned i = 0; i < 7; i++) {
		struct mlp m;
		mlp_make(&m);
		if (i == 1 || i == 6) {
			m.items[2] = (struct pp_body_instr){.op = PP_BODY_REDUCESCATTER, .operand = {SUMS, SHARD}};
			m.items[3] = (struct pp_body_instr){.op = PP_BODY_AWAIT, .operand = {SHARD}};
			m.items[4] = (struct pp_body_instr){.op = PP_BODY_ALLGATHER, .operand = {SHARD, OUT}};
			m.items[5] = (struct pp_body_instr){.op = PP_BODY_AWAIT, .operand = {OUT}};
			m.body.count = 6;
		}
		if (i == 2)
			m.regs[OUT].type = PP_TYPE_P;
		else if (i == 3)
			m.items[2].op = PP_BODY_COPY;
		else if (i == 4)
			m.regs[W1].rows = 32;
		else if (i == 5)
			m.regs[W2].type = PP_TYPE_R;
		else if (i == 6)
			m.regs[SHARD].rows = 4;
		assert_messages(&m.program, expected[i]);
		pp_arena_destroy(m.program.arena);
	}
}

/* ---- in flight ------------------------------------------------------------------------------- */

static void check_flight(const struct pp_body_instr *items, uint32_t count, bool in_place, const char *expected)
{
	struct mlp m;
	mlp_make(&m);
	memcpy(m.items + 2, items, count * sizeof *items);
	m.body.count = 2 + count;
	if (in_place) { /* the sums lie where the output will */
		m.regs[SUMS].base = PP_BASE_WORK;
		m.regs[COPY] = m.regs[OUT];
		m.regs[OUT].base = PP_BASE_WORK;
		m.regs[OUT].name = "summed";
		m.regs[OUT].offset = m.regs[SUMS].offset;
	}
	assert_messages(&m.program, expected);
	pp_arena_destroy(m.program.arena);
}

static void collectives_in_flight(void **state)
{
	(void)state;
	const struct pp_body_instr post = {.op = PP_BODY_ALLREDUCE, .operand = {SUMS, OUT}},
	                           await = {.op = PP_BODY_AWAIT, .operand = {OUT}},
	                           await_input = {.op = PP_BODY_AWAIT, .operand = {HIDDEN}},
	                           read_output = {.op = PP_BODY_ADD, .operand = {IN, OUT, OUT}},
	                           read_input = {.op = PP_BODY_COPY, .operand = {SUMS, SPARE}},
	                           write_input = {.op = PP_BODY_FILL, .operand = {SUMS}},
	                           write_output = {.op = PP_BODY_FILL, .operand = {OUT}},
	                           copy = {.op = PP_BODY_COPY, .operand = {OUT, COPY}};
	check_flight((struct pp_body_instr[]){post, read_input, await, read_output}, 4, false, "");
	check_flight((struct pp_body_instr[]){post, await, copy}, 3, true, "");
	check_flight((struct pp_body_instr[]){post}, 1, false,
	             "error[V10]: body s1.F: never awaits out, which allreduce (instruction 2) writes\n");
	check_flight((struct pp_body_instr[]){post, read_output, await}, 3, false,
	             "error[V10]: body s1.F, instruction 3: reads out while allreduce (instruction 2) writes out\n"
	             "   = note: add in out -> out\n");
	check_flight((struct pp_body_instr[]){post, write_input, await}, 3, false,
	             "error[V10]: body s1.F, instruction 3: writes sums while allreduce (instruction 2) reads sums\n"
	             "   = note: fill -> sums\n");
	check_flight((struct pp_body_instr[]){post, write_output, await}, 3, false,
	             "error[V10]: body s1.F, instruction 3: writes out while allreduce (instruction 2) writes out\n"
	             "   = note: fill -> out\n");
	check_flight((struct pp_body_instr[]){post, await, await}, 3, false,
	             "error[V10]: body s1.F, instruction 4: awaits out, which no collective in flight writes\n"
	             "   = note: await out\n");
	check_flight((struct pp_body_instr[]){post, read_input, await}, 3, true,
	             "error[V10]: body s1.F, instruction 3: reads sums while allreduce (instruction 2) writes summed\n"
	             "   = note: copy sums -> spare\n");
	check_flight((struct pp_body_instr[]){post, await_input}, 2, false,
	             "error[V10]: body s1.F, instruction 3: operands have the tensor-parallel types 1, expected one of: R "
	             "0\n"
	             "   = note: await f\n"
	             "   = note: R replicated, P partial sums, 0 and 1 split by rows and by columns, - absent\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tensor_parallel_types),
	    cmocka_unit_test(collectives_in_flight),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
