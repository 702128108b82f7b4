/* Field case B28: a model whose boundaries have different sizes, so that what the middle rank receives, sends on and
 * sends back has no one size. Its width grows from stage to stage, which the language has no model for: the bodies are
 * written here, everything behind them is the compiler's. `write FOLDER` leaves it as program texts, on one rank and on
 * three; without arguments it tries mutants of the one on three: slots exchanged and moved. */
#include "unit/lowering_fixture.h"

#include "codegen/body_builder.h"
#include "codegen/plan_memory.h"
#include "ir/program_text.h"
#include "ir/verify.h"
#include "support/build_program.h"
#include "support/oracle.h"

enum { STAGES = 3, MICROBATCHES = 6, MICROBATCH = 2, SEQ = 8, TOKENS = MICROBATCH * SEQ, VOCAB = 50 };

static const uint32_t widths[STAGES] = {16, 40, VOCAB}; /* of what each stage makes: the last one logits */

/* ---- bodies ---------------------------------------------------------------------------------- */

struct stage_build {
	struct pp_body_builder body;
	struct pp_program *program;
	uint32_t stage;
};

static uint32_t make_reg(struct stage_build *build, const char *name, enum pp_base base, uint32_t columns,
                         uint64_t offset)
{
	return pp_body_reg(&build->body, (struct pp_reg){.name = name,
	                                                 .base = (uint8_t)base,
	                                                 .dtype = PP_F32,
	                                                 .slot = PP_NULL,
	                                                 .rows = TOKENS,
	                                                 .columns = columns,
	                                                 .offset = offset});
}

/* The weight of the stage, or its gradient. */
static uint32_t weight_reg(struct stage_build *build, bool gradient)
{
	const struct pp_use *use = &build->program->uses[build->stage];
	const struct pp_tensor *tensor = &build->program->tensors[build->stage];
	return pp_body_reg(&build->body, (struct pp_reg){.name = gradient ? "dw" : "w",
	                                                 .base = gradient ? PP_BASE_GRAD : PP_BASE_WEIGHT,
	                                                 .dtype = PP_F32,
	                                                 .slot = gradient ? use->grad : use->weight,
	                                                 .rows = tensor->rows,
	                                                 .columns = tensor->columns});
}

static uint32_t data_reg(struct stage_build *build, const char *name)
{
	return pp_body_reg(
	    &build->body,
	    (struct pp_reg){
	        .name = name, .base = PP_BASE_AUX, .dtype = PP_I32, .slot = PP_NULL, .rows = TOKENS, .columns = 1});
}

static void add(struct stage_build *build, enum pp_body_op op, uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                uint64_t immediate)
{
	pp_body_emit(&build->body, (struct pp_body_instr){.op = (uint8_t)op, .operand = {a, b, c, d}, .imm = {immediate}});
}

static uint64_t bytes_of(uint32_t columns)
{
	return (uint64_t)TOKENS * columns * sizeof(float);
}

static void write_forward(struct stage_build *build)
{
	uint32_t s = build->stage, made = widths[s];
	uint32_t w = weight_reg(build, false);
	uint32_t y = s + 1 < STAGES ? make_reg(build, "out", PP_BASE_OUT, made, 0)
	                            : make_reg(build, "logits", PP_BASE_STASH, made, bytes_of(widths[s - 1]));
	if (s == 0) {
		add(build, PP_BODY_EMBED, data_reg(build, "ids"), w, PP_NULL, y, SEQ);
		return;
	}
	uint32_t in = make_reg(build, "in", PP_BASE_IN, widths[s - 1], 0),
	         x = make_reg(build, "x", PP_BASE_STASH, widths[s - 1], 0);
	add(build, PP_BODY_COPY, in, x, PP_NULL, PP_NULL, 0);
	add(build, PP_BODY_LINEAR, x, w, PP_NULL, y, 0);
	if (s + 1 < STAGES)
		return;
	uint32_t loss = pp_body_reg(
	    &build->body,
	    (struct pp_reg){
	        .name = "loss", .base = PP_BASE_LOSS, .dtype = PP_F64, .slot = PP_NULL, .rows = 2, .columns = 1});
	add(build, PP_BODY_XENT, y, data_reg(build, "labels"), y, loss, VOCAB);
}

static void write_backward(struct stage_build *build)
{
	uint32_t s = build->stage;
	uint32_t dw = weight_reg(build, true);
	uint32_t dy = s + 1 < STAGES ? make_reg(build, "dout", PP_BASE_DOUT, widths[s], 0)
	                             : make_reg(build, "logits", PP_BASE_STASH, widths[s], bytes_of(widths[s - 1]));
	if (s == 0) {
		add(build, PP_BODY_EMBED_DW, data_reg(build, "ids"), dy, dw, PP_NULL, SEQ);
		return;
	}
	uint32_t x = make_reg(build, "x", PP_BASE_STASH, widths[s - 1], 0),
	         din = make_reg(build, "din", PP_BASE_DIN, widths[s - 1], 0);
	add(build, PP_BODY_LINEAR_DX, dy, weight_reg(build, false), din, PP_NULL, 0);
	add(build, PP_BODY_LINEAR_DW, dy, x, dw, PP_NULL, 0);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static uint32_t add_static(struct pp_program *program, uint32_t rank, enum pp_slot_class class, uint32_t tensor)
{
	struct pp_rank *table = &program->rank[rank];
	table->slots =
	    pp_arena_grow(program->arena, table->slots, table->slot_count, table->slot_count + 1, sizeof *table->slots);
	struct pp_slot *slot = &table->slots[table->slot_count];
	*slot = (struct pp_slot){.class = (uint8_t) class, .tensor = tensor};
	assert_true(pp_slot_content_bytes(program, slot, &slot->bytes));
	return table->slot_count++;
}

static void make_statics(struct pp_program *program)
{
	for (uint32_t s = 0; s < STAGES; s++) {
		struct pp_use *use = &program->uses[s];
		uint32_t rank = program->stages[s].rank;
		*use = (struct pp_use){.tensor = s, .stage = s};
		use->weight = add_static(program, rank, PP_SLOT_WEIGHT, s);
		use->grad = add_static(program, rank, PP_SLOT_GRAD, s);
		add_static(program, rank, PP_SLOT_MOMENT, s);
		add_static(program, rank, PP_SLOT_MOMENT, s);
	}
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		add_static(program, rank, PP_SLOT_LOSSES, PP_NULL);
		add_static(program, rank, PP_SLOT_NORMS, PP_NULL);
		add_static(program, rank, PP_SLOT_SCALE, PP_NULL);
	}
}

static void make_stage(struct pp_program *program, uint32_t s)
{
	struct pp_stage *stage = &program->stages[s];
	stage->title = s == 0 ? "embedding" : s + 1 < STAGES ? "wider" : "head";
	stage->first_layer = s;
	stage->layer_count = 1;
	stage->out_count = s + 1 < STAGES ? TOKENS * widths[s] : 0;
	stage->out_dtype = PP_F32;
	stage->loads_tokens = s == 0;
	stage->loads_labels = s + 1 == STAGES;
	stage->stash_bytes = (s ? bytes_of(widths[s - 1]) : 0) + (s + 1 == STAGES ? bytes_of(widths[s]) : 0);
	stage->aux_bytes = s == 0 || s + 1 == STAGES ? TOKENS * sizeof(int32_t) : 0;
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
		stage->ticks[phase] = 1000 * (1 + s) * (phase == PP_PHASE_B ? 2 : 1);
		stage->body[phase] = PP_NULL;
		if (phase != PP_PHASE_F && phase != PP_PHASE_B)
			continue;
		struct stage_build build = {.program = program, .stage = s};
		build.body = (struct pp_body_builder){.arena = program->arena, .stage = s, .phase = (enum pp_phase)phase};
		(phase == PP_PHASE_F ? write_forward : write_backward)(&build);
		stage->body[phase] = program->body_count;
		pp_body_finish(&build.body, &program->bodies[program->body_count++]);
	}
}

static void make_tensors(struct pp_program *program)
{
	static const char *const names[STAGES] = {"emb.weight", "wider.weight", "head.weight"};
	program->tensors = PP_NEW_ARRAY(program->arena, struct pp_tensor, STAGES);
	program->tensor_count = program->use_count = STAGES;
	program->uses = PP_NEW_ARRAY(program->arena, struct pp_use, STAGES);
	for (uint32_t t = 0; t < STAGES; t++)
		program->tensors[t] = (struct pp_tensor){.name = names[t],
		                                         .rows = t == 0 ? VOCAB : widths[t],
		                                         .columns = t == 0 ? widths[0] : widths[t - 1],
		                                         .dims = 2,
		                                         .dtype = PP_F32,
		                                         .init = PP_INIT_NORMAL,
		                                         .tp_grad = PP_TP_REPLICATED_EQUAL,
		                                         .shard = 255,
		                                         .decay = true,
		                                         .std = 0.3};
}

static void fill_train(struct world *w)
{
	struct pp_train *train = &w->spec.train;
	*train = (struct pp_train){.microbatch = MICROBATCH,
	                           .seq = SEQ,
	                           .vocab = VOCAB,
	                           .steps = 8,
	                           .seed = 4,
	                           .data = PP_DATA_SYNTHETIC,
	                           .data_seed = 3,
	                           .lr_peak = 0.01,
	                           .lr_floor = 0.01,
	                           .log_every = 1,
	                           .eval_every = 4,
	                           .eval_steps = 2,
	                           .hyper_count = 2};
	train->hypers = PP_NEW_ARRAY(w->arena, struct pp_hyper, 2);
	train->hypers[0] = (struct pp_hyper){0.9, 0.95, 1e-8, 0.1, 1.0};
	train->hypers[1] = (struct pp_hyper){0.9, 0.95, 1e-8, 0.0, 1.0};
}

static const struct pp_program *make(struct world *w, uint32_t ranks)
{
	*w = make_world(ranks);
	if (ranks == STAGES) {
		write_interleaved(w, STAGES, 1, MICROBATCHES);
	} else {
		char text[1024] = "", *at = text;
		for (unsigned m = 0; m < MICROBATCHES; m++)
			at += sprintf(at, "0F%u 1F%u 2F%u 2B%u 1B%u 0B%u ", m, m, m, m, m, m);
		sprintf(at, "\n");
		write_schedule(w, STAGES, (const uint32_t[]){0, 0, 0}, MICROBATCHES, text);
	}
	make_program(w, 0, 0, 0, 100);
	struct pp_program *program = &w->program;
	fill_train(w);
	program->train = w->spec.train;
	make_tensors(program);
	make_statics(program);
	program->bodies = PP_NEW_ARRAY(w->arena, struct pp_body, (size_t)2 * STAGES);
	for (uint32_t s = 0; s < STAGES; s++)
		make_stage(program, s);
	lower(w);
	if (!pp_plan_memory(program, w->diag) || !pp_verify(program, &program->stamp, w->diag)) {
		fputs(diagnostics(w), stderr);
		exit(1);
	}
	return program;
}

static int write_programs(const char *folder)
{
	for (uint32_t ranks = 1; ranks <= STAGES; ranks += STAGES - 1) {
		char path[512];
		struct world w;
		const struct pp_program *program = make(&w, ranks);
		snprintf(path, sizeof path, "%s/%s.pps", folder, ranks == 1 ? "one" : "three");
		FILE *out = fopen(path, "w");
		if (!out)
			return 1;
		pp_program_print(program, out);
		if (fclose(out) != 0)
			return 1;
		end_world(&w);
	}
	return 0;
}

/* ---- mutants --------------------------------------------------------------------------------- */

struct tally {
	unsigned made, rejected, equal, wrong;
};

/* Rejected, or it computes the same in every order of events. */
static void judge(const struct pp_program *mutant, uint64_t expected, struct tally *tally)
{
	struct pp_stamp stamp;
	struct pp_diag *diag = pp_diag_create(mutant->arena, pp_sources_create(mutant->arena));
	tally->made++;
	if (!pp_verify(mutant, &stamp, diag)) {
		tally->rejected++;
		return;
	}
	bool same = true;
	for (uint64_t seed = 1; same && seed <= 3; seed++) {
		uint64_t found;
		same = oracle_run(mutant, seed, &found) && found == expected;
	}
	*(same ? &tally->equal : &tally->wrong) += 1;
}

static bool names_slot(const struct pp_instr *instr, unsigned operand)
{
	const char digit[] = {(char)('1' + operand), 0};
	return strstr(pp_op_table[instr->op].signature, digit) != NULL && instr->a[operand] != PP_NULL;
}

/* Every operand of the middle rank in every other dynamic slot of its. */
static void exchange_slots(const struct pp_program *program, uint64_t expected, struct tally *tally)
{
	const uint32_t rank = 1;
	const struct pp_rank *table = &program->rank[rank];
	for (uint32_t i = 0; i < program->programs[0].streams[rank].count; i++)
		for (unsigned operand = 0; operand < 4; operand++) {
			const struct pp_instr *instr = &program->programs[0].streams[rank].items[i];
			if (!names_slot(instr, operand) || pp_slot_is_static(table->slots[instr->a[operand]].class))
				continue;
			for (uint32_t slot = 0; slot < table->slot_count; slot++) {
				if (slot == instr->a[operand] || pp_slot_is_static(table->slots[slot].class))
					continue;
				struct pp_arena *arena = pp_arena_create(NULL);
				struct pp_program *mutant = build_copy(arena, program);
				mutant->programs[0].streams[rank].items[i].a[operand] = slot;
				judge(mutant, expected, tally);
				pp_arena_destroy(arena);
			}
		}
}

/* Every dynamic slot of the middle rank over every other one: a receive over a gradient that is being sent is one. */
static void move_slots(const struct pp_program *program, uint64_t expected, struct tally *tally)
{
	const uint32_t rank = 1;
	const struct pp_rank *table = &program->rank[rank];
	for (uint32_t slot = 0; slot < table->slot_count; slot++)
		for (uint32_t other = 0; other < table->slot_count; other++) {
			bool fixed = pp_slot_is_static(table->slots[slot].class) || pp_slot_is_static(table->slots[other].class);
			if (fixed || table->slots[slot].offset == table->slots[other].offset)
				continue;
			struct pp_arena *arena = pp_arena_create(NULL);
			struct pp_program *mutant = build_copy(arena, program);
			struct pp_slot *moved = &mutant->rank[rank].slots[slot];
			moved->offset = table->slots[other].offset;
			if (moved->offset + moved->bytes <= table->arena_bytes)
				judge(mutant, expected, tally);
			pp_arena_destroy(arena);
		}
}

static int try_mutants(void)
{
	struct world w;
	const struct pp_program *program = make(&w, STAGES);
	uint64_t expected;
	struct tally exchanged = {0}, moved = {0};
	if (!oracle_run(program, 1, &expected))
		return 1;
	exchange_slots(program, expected, &exchanged);
	move_slots(program, expected, &moved);
	printf("exchanged: %u mutants, %u rejected, %u equal, %u wrong\n", exchanged.made, exchanged.rejected,
	       exchanged.equal, exchanged.wrong);
	printf("moved: %u mutants, %u rejected, %u equal, %u wrong\n", moved.made, moved.rejected, moved.equal,
	       moved.wrong);
	end_world(&w);
	return exchanged.wrong + moved.wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "write") == 0)
		return write_programs(argv[2]);
	return argc == 1 ? try_mutants() : 2;
}
