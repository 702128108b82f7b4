/* V10 under tensor parallelism: types of a column- and a row-parallel linear by hand, collectives in flight. */
#include "body_mutants.h"

/* ---- built bodies ---------------------------------------------------------------------------- */

static struct built parallel_of(const struct model_size *size, uint32_t tp, bool sp)
{
	struct built built = built_of(size);
	built.spec->parallel.tp = tp;
	built.spec->parallel.sp = sp;
	return built;
}

/* A variant of the model: GPT-2's kind without biases, with rmsnorm; Llama's kind, with those of q, k and v alone,
 * with qk-norm. */
static void vary(struct pp_spec *spec, unsigned variant)
{
	for (uint32_t l = 0; l < spec->model.layer_count; l++) {
		struct pp_layer *layer = &spec->model.layers[l];
		layer->bias = variant != 1 && variant != 3;
		layer->qkv_bias = variant == 3;
		layer->rms = variant == 2;
		layer->act = variant >= 3 ? PP_ACT_SWIGLU : PP_ACT_GELU_TANH;
		layer->qk_norm = variant >= 4;
		layer->rope_theta = variant == 3 || variant == 5 ? 10000 : 0;
	}
}

static void assert_proven(const struct model_size *size, const uint32_t *first, uint32_t count, uint32_t ranks)
{
	static const uint8_t phases[] = {FUSED, SPLIT, MIXED};
	for (unsigned i = 0; i < 3; i++)
		for (unsigned variant = 0; variant < 6; variant++)
			for (unsigned cut = 0; cut < 6; cut++) {
				struct built built = parallel_of(size, 2u << cut / 2, cut % 2);
				vary(built.spec, variant);
				recompute_blocks(&built, recompute_variant(variant + cut));
				build_bodies(&built, first, count, ranks, phases[i]);
				assert_messages(built.program, "");
				pp_arena_destroy(built.arena);
			}
}

static void built_bodies_are_proven(void **state)
{
	(void)state;
	static const struct model_size grouped = {64, 16, 8, 2, 48, 40, 8, 2, true},
	                               few = {64, 16, 2, 1, 16, 8, 8, 1, false}; /* 2 key/value heads for up to 8 ranks */
	static const uint32_t whole[] = {0}, ends[] = {0, 1, 3, 4}, gaps[] = {0, 0, 1, 1, 3, 4};
	const struct model_size *sizes[] = {&grouped, &few};
	for (unsigned i = 0; i < 2; i++) {
		assert_proven(sizes[i], whole, 1, 1);
		if (i == 0) {
			assert_proven(sizes[i], ends, 4, 2);
			assert_proven(sizes[i], gaps, 6, 3);
		}
	}
}

static const struct model_size small = {16, 4, 4, 1, 32, 16, 4, 1, false};
static const uint32_t each[] = {0, 1, 2};

static struct built without_sequence(void)
{
	struct built built = parallel_of(&small, 2, false);
	build_bodies(&built, each, 3, 3, MIXED);
	return built;
}

static struct built with_sequence(void)
{
	struct built built = parallel_of(&small, 2, true);
	vary(built.spec, 5);
	build_bodies(&built, each, 3, 3, MIXED);
	return built;
}

/* No post, no await, no weight gradient between them. */
static void a_missing_instruction_is_found(void **state)
{
	(void)state;
	assert_none_can_be_dropped(without_sequence, 3);
	assert_none_can_be_dropped(with_sequence, 3);
}

static void another_order_is_refused_or_alike(void **state)
{
	(void)state;
	assert_orders_compute_alike(without_sequence);
	assert_orders_compute_alike(with_sequence);
}

static struct pp_body_instr *instr_of(const struct built *b, uint32_t stage, enum pp_phase phase, enum pp_body_op op)
{
	const struct pp_body *body = body_of(b, stage, phase);
	uint32_t at = 0;
	while (body->items[at].op != op)
		at++;
	return &body->items[at];
}

static void sums_are_never_reduced(struct built *b)
{
	instr_of(b, 1, PP_PHASE_F, PP_BODY_ALLREDUCE)->op = PP_BODY_COPY;
}
static void sums_are_called_whole(struct built *b)
{
	reg_named(b, 1, PP_PHASE_F, "block.0.x2_part")->type = PP_TYPE_R;
}
static void whole_is_called_sums(struct built *b)
{
	reg_named(b, 1, PP_PHASE_B, "block.0.dn2")->type = PP_TYPE_P;
}
static void bias_is_added_by_every_rank(struct built *b)
{
	struct pp_body_instr *linear = instr_of(b, 1, PP_PHASE_F, PP_BODY_ADD_BIAS);
	while (linear->op != PP_BODY_LINEAR)
		linear--;
	linear->operand[2] = reg_index(b, 1, PP_PHASE_F, "block.0.attn.o.bias");
}
static void gradient_is_read_in_flight(struct built *b)
{
	struct pp_body_instr *await = instr_of(b, 1, PP_PHASE_B, PP_BODY_AWAIT), *next = await + 1;
	struct pp_body_instr swap = *await;
	*await = *next;
	*next = swap;
}
static void reduction_is_awaited_twice(struct built *b)
{
	struct pp_body_instr *await = instr_of(b, 1, PP_PHASE_B, PP_BODY_AWAIT);
	await[1] = await[0];
}
static void equal_gradient_is_marked_partial(struct built *b)
{
	b->program->tensors[2].tp_grad = PP_TP_REPLICATED_PARTIAL;
}
static void loss_of_a_part(struct built *b)
{
	struct pp_body_instr *loss = instr_of(b, 2, PP_PHASE_F, PP_BODY_XENT_SHARD);
	loss->operand[2] = reg_index(b, 2, PP_PHASE_F, "head.stats");
}

static void mutants_are_rejected(void **state)
{
	(void)state;
	static const struct mutant mutants[] = {
	    {sums_are_never_reduced,
	     "error[V10]: body s1.F, instruction 7: operands have the tensor-parallel types PR, expected one of: RR 00 11 "
	     "PP\n"
	     "   = note: copy block.0.x2_part -> block.0.x2.1\n"
	     "   = note: R replicated, P partial sums, 0 and 1 split by rows and by columns, - absent\n"},
	    {sums_are_called_whole,
	     "error[V10]: body s1.F, instruction 6: operands have the tensor-parallel types 11-R, expected one of: RRRR "
	     "R001 11-P 0RR0 PR-P\n"
	     "   = note: linear block.0.o block.0.attn.o.weight - -> block.0.x2_part\n"
	     "   = note: R replicated, P partial sums, 0 and 1 split by rows and by columns, - absent\n"},
	    {whole_is_called_sums,
	     "error[V10]: body s1.B, instruction 4: operands have the tensor-parallel types PP, expected one of: PR\n"
	     "   = note: allreduce block.0.dn2_part -> block.0.dn2\n"
	     "   = note: R replicated, P partial sums, 0 and 1 split by rows and by columns, - absent\n"},
	    {bias_is_added_by_every_rank,
	     "error[V10]: body s1.F, instruction 6: operands have the tensor-parallel types 11RP, expected one of: RRRR "
	     "R001 11-P 0RR0 PR-P\n"
	     "   = note: linear block.0.o block.0.attn.o.weight block.0.attn.o.bias -> block.0.x2_part\n"
	     "   = note: R replicated, P partial sums, 0 and 1 split by rows and by columns, - absent\n"},
	    {gradient_is_read_in_flight,
	     "error[V10]: body s1.B, instruction 6: reads block.0.dn2 while allreduce (instruction 4) writes block.0.dn2\n"
	     "   = note: norm_dx block.0.dn2 block.0.x2 block.0.norm2.weight block.0.mean2 block.0.rstd2 -> "
	     "block.0.dx2.1\n"},
	    {reduction_is_awaited_twice,
	     "error[V10]: body s1.B, instruction 7: awaits block.0.dn2, which no collective in flight writes\n"
	     "   = note: await block.0.dn2\n"},
	    {equal_gradient_is_marked_partial,
	     "error[V10]: body s1.B: register block.0.norm1.weight.grad has tensor-parallel type R, which tensor "
	     "block.0.norm1.weight (replicated_partial) does not\n"
	     "error[V10]: body s1.W: register block.0.norm1.weight.grad has tensor-parallel type R, which tensor "
	     "block.0.norm1.weight (replicated_partial) does not\n"},
	    {loss_of_a_part, "error[V10]: body s2.F, instruction 6: stats have 4 rows, expected tp * tokens = 2 * 4\n"
	                     "   = note: xent_shard head.logits.1 labels head.stats -> head.logits loss\n"},
	};
	assert_mutants(without_sequence, mutants, sizeof mutants / sizeof *mutants);
}

static void partial_gradient_is_marked_equal(struct built *b)
{
	b->program->tensors[1].tp_grad = PP_TP_REPLICATED_EQUAL;
}
static void rows_are_not_gathered(struct built *b)
{
	instr_of(b, 1, PP_PHASE_F, PP_BODY_LINEAR)->operand[0] = reg_index(b, 1, PP_PHASE_F, "block.0.n1");
}
static void boundary_is_called_whole(struct built *b)
{
	reg_named(b, 1, PP_PHASE_F, "in")->type = PP_TYPE_R;
	reg_named(b, 1, PP_PHASE_F, "block.0.x")->type = PP_TYPE_R;
}

static void mutants_of_sequences_are_rejected(void **state)
{
	(void)state;
	static const struct mutant mutants[] = {
	    {partial_gradient_is_marked_equal,
	     "error[V10]: body s1.B: register block.0.norm1.weight.grad has tensor-parallel type P, which tensor "
	     "block.0.norm1.weight (replicated_equal) does not\n"
	     "error[V10]: body s1.W: register block.0.norm1.weight.grad has tensor-parallel type P, which tensor "
	     "block.0.norm1.weight (replicated_equal) does not\n"},
	    {rows_are_not_gathered,
	     "error[V10]: body s1.F, instruction 4: operand `y` (block.0.q_plain) is f32[4,8], expected 2 rows (from "
	     "block.0.n1)\n"
	     "   = note: linear block.0.n1 block.0.attn.q.weight block.0.attn.q.bias -> block.0.q_plain\n"},
	    {boundary_is_called_whole,
	     "error[V10]: body s1.F, instruction 1: operands have the tensor-parallel types RRR000, expected one of: "
	     "RRRRRR 0RR000 1RR111\n"
	     "   = note: norm block.0.x block.0.norm1.weight block.0.norm1.bias -> block.0.n1 block.0.mean1 block.0.rstd1\n"
	     "   = note: R replicated, P partial sums, 0 and 1 split by rows and by columns, - absent\n"},
	};
	assert_mutants(with_sequence, mutants, sizeof mutants / sizeof *mutants);
}

/* ---- tensor-parallel types ------------------------------------------------------------------- */

/* An MLP over tp = 2 in the middle of three stages: w1 split by outputs, w2 by inputs, one collective. Registers:
 * 0 in, 1 w1, 2 f, 3 w2, 4 sums, 5 out; what some variants need besides. */
enum { IN, W1, HIDDEN, W2, SUMS, OUT, SHARD, SPARE, COPY, FIRST, REG_COUNT };

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
	m->regs[FIRST] = reg_of("out.1", PP_BASE_OUT, PP_TYPE_R, 0, 4, 8);
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

/* Registers that no instruction names have no place in a body. */
static void keep_named(struct mlp *m)
{
	uint32_t kept = 0, number[REG_COUNT];
	for (uint32_t r = 0; r < REG_COUNT; r++) {
		bool named = false;
		for (uint32_t i = 0; i < m->body.count; i++)
			for (unsigned k = 0; k < PP_BODY_OPERANDS_MAX; k++)
				named |= pp_body_op_info((enum pp_body_op)m->items[i].op).input_count +
				                 pp_body_op_info((enum pp_body_op)m->items[i].op).output_count >
				             (int)k &&
				         m->items[i].operand[k] == r;
		number[r] = kept;
		if (named)
			m->regs[kept++] = m->regs[r];
	}
	for (uint32_t i = 0; i < m->body.count; i++) {
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)m->items[i].op);
		for (unsigned k = 0; k < PP_BODY_OPERANDS_MAX; k++) {
			bool has = k < (unsigned)info.input_count + info.output_count && m->items[i].operand[k] != PP_NULL;
			m->items[i].operand[k] = has ? number[m->items[i].operand[k]] : PP_NULL;
		}
	}
	m->body.reg_count = kept;
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
		keep_named(&m);
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
	keep_named(&m);
	assert_messages(&m.program, expected);
	pp_arena_destroy(m.program.arena);
}

static void collectives_in_flight(void **state)
{
	(void)state;
	const struct pp_body_instr post = {.op = PP_BODY_ALLREDUCE, .operand = {SUMS, OUT}},
	                           await = {.op = PP_BODY_AWAIT, .operand = {OUT}},
	                           await_input = {.op = PP_BODY_AWAIT, .operand = {HIDDEN}},
	                           post_first = {.op = PP_BODY_ALLREDUCE, .operand = {SUMS, FIRST}},
	                           await_first = {.op = PP_BODY_AWAIT, .operand = {FIRST}},
	                           read_first = {.op = PP_BODY_ADD, .operand = {IN, FIRST, OUT}},
	                           read_output = {.op = PP_BODY_ADD, .operand = {IN, OUT, OUT}},
	                           read_input = {.op = PP_BODY_COPY, .operand = {SUMS, SPARE}},
	                           write_input = {.op = PP_BODY_FILL, .operand = {SUMS}},
	                           write_output = {.op = PP_BODY_FILL, .operand = {OUT}},
	                           copy = {.op = PP_BODY_COPY, .operand = {OUT, COPY}};
	const struct pp_body_instr post_spare = {.op = PP_BODY_ALLREDUCE, .operand = {SPARE, COPY}},
	                           await_copy = {.op = PP_BODY_AWAIT, .operand = {COPY}},
	                           read_copy = {.op = PP_BODY_ADD, .operand = {COPY, FIRST, OUT}};
	check_flight((struct pp_body_instr[]){post_first, read_input, await_first, post_spare, await_copy, read_copy}, 6,
	             false, "");
	check_flight((struct pp_body_instr[]){post_first, read_input, await_first, read_first}, 4, false,
	             "error[V10]: body s1.F, instruction 3: makes spare, which nobody reads\n"
	             "   = note: copy sums -> spare\n");
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
	    cmocka_unit_test(built_bodies_are_proven),
	    cmocka_unit_test(a_missing_instruction_is_found),
	    cmocka_unit_test(another_order_is_refused_or_alike),
	    cmocka_unit_test(mutants_are_rejected),
	    cmocka_unit_test(mutants_of_sequences_are_rejected),
	    cmocka_unit_test(tensor_parallel_types),
	    cmocka_unit_test(collectives_in_flight),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
