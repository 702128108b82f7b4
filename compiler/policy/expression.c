/* The compiler and the machine of rule expressions. A node's instruction follows those of its operands; parts that
 * mention no counter get no instruction until something that does needs them. */
#include "expression.h"

#include "value.h"

#include <string.h>

enum operation {
	CONSTANT, /* a: number of the constant */
	TOTAL,    /* a: kind */
	OF_CHUNK, /* a: kind, b: instruction that gives the chunk */
	MEMORY,
	BINARY, /* a, b: instructions; `op` */
	NEGATE,
	NOT,
	SELECT, /* a ? b : c */
	COPY,   /* a */
	FLOOR,
	CEIL,
	ABSOLUTE,
	LEAST, /* a, b */
	GREATEST,
	UNKNOWN /* for the general evaluator */
};

struct instruction {
	uint8_t operation; /* enum operation */
	uint8_t op;        /* enum pp_operator */
	uint32_t a, b, c;
};

struct pp_machine {
	struct pp_arena *arena;
	const struct pp_rule_names *names;
	struct instruction *code;
	size_t count, capacity;
	const struct pp_expr **constants;
	size_t constant_count, constant_capacity;
	struct pp_rule_value *registers;       /* [count] */
	struct pp_rule_value **rank_constants; /* [ranks]: [constant_count], NULL until needed */
	uint32_t *lets;                        /* [let_count]: instruction, PURE, or one of the marks below */
	unsigned depth;                        /* while compiling */
	uint64_t steps;
	bool too_large;
};

/* In place of an instruction. */
#define PURE UINT32_MAX
#define NOT_COMPILED (UINT32_MAX - 1)
#define COMPILING (UINT32_MAX - 2)

enum {
	MOST_INSTRUCTIONS = 1 << 14,
	MOST_CONSTANTS = 1 << 22, /* of all ranks */
	DEEPEST = 1500,           /* nested parts, through lets too: as in the general evaluator */
	SLOW_STEPS = 1000         /* instructions that an evaluation by the general evaluator counts for */
};

/* Instructions of a run, all decisions together: minutes of work are no policy. */
#define MOST_STEPS (UINT64_C(1) << 32)

struct pp_machine *pp_machine_create(struct pp_arena *arena, const struct pp_rule_names *names)
{
	struct pp_machine *machine = PP_NEW(arena, struct pp_machine);
	*machine =
	    (struct pp_machine){.arena = arena, .names = names, .lets = PP_NEW_ARRAY(arena, uint32_t, names->let_count)};
	return machine;
}

/* ---- compiling ------------------------------------------------------------------------------- */

static uint32_t emit(struct pp_machine *machine, struct instruction instruction)
{
	if (machine->count >= MOST_INSTRUCTIONS) {
		machine->too_large = true;
		return 0;
	}
	*PP_PUSH(machine->arena, &machine->code, &machine->count, &machine->capacity, struct instruction) = instruction;
	return (uint32_t)machine->count - 1;
}

/* The instruction of a part: a constant if it has none. */
static uint32_t placed(struct pp_machine *machine, const struct pp_expr *expr, uint32_t at)
{
	if (at != PURE)
		return at;
	*PP_PUSH(machine->arena, &machine->constants, &machine->constant_count, &machine->constant_capacity,
	         const struct pp_expr *) = expr;
	return emit(machine, (struct instruction){.operation = CONSTANT, .a = (uint32_t)machine->constant_count - 1});
}

static uint32_t unknown(struct pp_machine *machine)
{
	return emit(machine, (struct instruction){.operation = UNKNOWN});
}

static uint32_t compile(struct pp_machine *machine, const struct pp_expr *expr);

static uint32_t compile_let(struct pp_machine *machine, uint32_t let)
{
	uint32_t *at = &machine->lets[let];
	if (*at == COMPILING)
		return unknown(machine); /* a circle: the general evaluator reports it */
	if (*at == NOT_COMPILED) {
		*at = COMPILING;
		*at = compile(machine, machine->names->lets[let]->value);
	}
	return *at;
}

static uint32_t compile_chunk(struct pp_machine *machine, const struct pp_expr *path, uint32_t kind)
{
	struct pp_expr *chunk = PP_NEW(machine->arena, struct pp_expr);
	const struct pp_name *part = &path->parts[1];
	bool number = part->text[0] >= '0' && part->text[0] <= '9';
	*chunk = (struct pp_expr){.kind = number ? PP_EXPR_INT : PP_EXPR_PATH,
	                          .span = part->span,
	                          .number = part->text,
	                          .text = part->text,
	                          .parts = &path->parts[1],
	                          .part_count = 1};
	uint32_t at = placed(machine, chunk, compile(machine, chunk));
	return emit(machine, (struct instruction){.operation = OF_CHUNK, .a = kind, .b = at});
}

static uint32_t compile_path(struct pp_machine *machine, const struct pp_expr *path)
{
	uint32_t counter = pp_counter_named(path->parts[0].text);
	if (counter == PP_COUNTER_MEM && path->part_count == 1)
		return emit(machine, (struct instruction){.operation = MEMORY});
	if (counter < PP_ACTION_KINDS && path->part_count == 1)
		return emit(machine, (struct instruction){.operation = TOTAL, .a = counter});
	if (counter < PP_ACTION_KINDS && path->part_count == 2)
		return compile_chunk(machine, path, counter);
	uint32_t let = pp_rule_let(machine->names, path);
	return let < machine->names->let_count ? compile_let(machine, let) : PURE;
}

static uint32_t join(struct pp_machine *machine, struct instruction instruction, const struct pp_expr *a, uint32_t at_a,
                     const struct pp_expr *b, uint32_t at_b)
{
	instruction.a = placed(machine, a, at_a);
	instruction.b = placed(machine, b, at_b);
	return emit(machine, instruction);
}

static uint32_t compile_binary(struct pp_machine *machine, const struct pp_expr *expr)
{
	uint32_t a = compile(machine, expr->a), b = compile(machine, expr->b);
	if (a == PURE && b == PURE)
		return PURE;
	return join(machine, (struct instruction){.operation = BINARY, .op = (uint8_t)expr->op}, expr->a, a, expr->b, b);
}

static uint32_t compile_choice(struct pp_machine *machine, const struct pp_expr *expr)
{
	uint32_t a = compile(machine, expr->a), b = compile(machine, expr->b), c = compile(machine, expr->c);
	if (a == PURE && b == PURE && c == PURE)
		return PURE;
	struct instruction select = {.operation = SELECT, .c = placed(machine, expr->c, c)};
	return join(machine, select, expr->a, a, expr->b, b);
}

/* min, max and sum of several, and floor, ceil, abs of one. */
static uint32_t compile_call(struct pp_machine *machine, const struct pp_expr *call)
{
	static const struct {
		const char *name;
		enum operation operation;
		enum pp_operator op;
		bool several;
	} functions[] = {
	    {"min", LEAST, PP_ADD, true},    {"max", GREATEST, PP_ADD, true}, {"sum", BINARY, PP_ADD, true},
	    {"floor", FLOOR, PP_ADD, false}, {"ceil", CEIL, PP_ADD, false},   {"abs", ABSOLUTE, PP_ADD, false},
	};
	size_t known = 0, count = sizeof functions / sizeof functions[0];
	while (known < count && strcmp(functions[known].name, call->a->text) != 0)
		known++;
	bool counts = false, plain = known < count && call->b && (functions[known].several || !call->b->next);
	size_t instructions = machine->count, constants = machine->constant_count;
	uint32_t at = PURE;
	for (const struct pp_expr *argument = call->b, *before = NULL; argument;
	     before = argument, argument = argument->next) {
		uint32_t next = compile(machine, argument);
		bool first = !before;
		counts |= next != PURE;
		plain &= !argument->label.text && argument->kind != PP_EXPR_LIST && argument->kind != PP_EXPR_RANGE;
		if (!plain)
			continue;
		next = placed(machine, argument, next);
		struct instruction step = {.operation = (uint8_t)functions[known].operation,
		                           .op = (uint8_t)functions[known].op,
		                           .a = first ? next : at,
		                           .b = next};
		at = first && functions[known].several ? next : emit(machine, step);
	}
	if (!counts) { /* a constant as a whole */
		machine->count = instructions;
		machine->constant_count = constants;
		return PURE;
	}
	return plain ? at : unknown(machine);
}

static uint32_t compile_unary(struct pp_machine *machine, const struct pp_expr *expr)
{
	uint32_t a = compile(machine, expr->a);
	if (a == PURE)
		return PURE;
	return emit(machine, (struct instruction){.operation = expr->op == PP_NOT ? NOT : NEGATE, .a = a});
}

static uint32_t compile_list(struct pp_machine *machine, const struct pp_expr *list)
{
	bool counts = false;
	for (const struct pp_expr *item = list->a; item; item = item->next)
		counts |= compile(machine, item) != PURE;
	return counts ? unknown(machine) : PURE;
}

static uint32_t compile_kind(struct pp_machine *machine, const struct pp_expr *expr)
{
	switch (expr->kind) {
	case PP_EXPR_PATH:
		return compile_path(machine, expr);
	case PP_EXPR_CALL:
		return compile_call(machine, expr);
	case PP_EXPR_UNARY:
		return compile_unary(machine, expr);
	case PP_EXPR_BINARY:
		return compile_binary(machine, expr);
	case PP_EXPR_CHOICE:
		return compile_choice(machine, expr);
	case PP_EXPR_LIST:
		return compile_list(machine, expr);
	case PP_EXPR_INT:
	case PP_EXPR_REAL:
	case PP_EXPR_QUANTITY:
	case PP_EXPR_STRING:
	case PP_EXPR_BOOL:
	case PP_EXPR_RANGE: /* only in lists of constants: the grammar */
	case PP_EXPR_ERROR:
		break;
	}
	return PURE;
}

static uint32_t compile(struct pp_machine *machine, const struct pp_expr *expr)
{
	if (machine->depth >= DEEPEST)
		return unknown(machine);
	machine->depth++;
	uint32_t at = compile_kind(machine, expr);
	machine->depth--;
	return at;
}

static bool refuse_size(struct pp_diag *diag, struct pp_span span)
{
	struct pp_message *message = pp_error(diag, "E0623", span, "the expressions of this policy are too long");
	pp_help(message, "a policy of a few short rules does; what has no counters in it is a `let` of the file");
	return false;
}

bool pp_machine_compile(struct pp_machine *machine, const struct pp_expr *expr, struct pp_diag *diag,
                        struct pp_compiled *out)
{
	for (uint32_t i = 0; i < machine->names->let_count; i++)
		machine->lets[i] = NOT_COMPILED;
	*out = (struct pp_compiled){.expr = expr, .first = (uint32_t)machine->count};
	if (!expr)
		return true;
	uint32_t at = placed(machine, expr, compile(machine, expr));
	if (at + 1 != machine->count) /* a let may have it in the middle */
		emit(machine, (struct instruction){.operation = COPY, .a = at});
	out->end = (uint32_t)machine->count;
	return !machine->too_large || refuse_size(diag, expr->span);
}

bool pp_machine_ready(struct pp_machine *machine, struct pp_diag *diag)
{
	uint32_t ranks = machine->names->input->ranks;
	if (machine->constant_count > 0 && ranks > MOST_CONSTANTS / machine->constant_count)
		return refuse_size(diag, machine->names->input->block->name.span);
	machine->registers = PP_NEW_ARRAY(machine->arena, struct pp_rule_value, machine->count);
	machine->rank_constants = PP_NEW_ARRAY(machine->arena, struct pp_rule_value *, ranks);
	return true;
}

/* ---- running --------------------------------------------------------------------------------- */

static void open_on(struct pp_rule_eval *rule, const struct pp_machine *machine, struct pp_arena *arena,
                    const struct pp_list_rank *rank, const struct pp_counters *counters, struct pp_diag *diag)
{
	pp_rule_eval_open(rule, arena, machine->names, rank->rank, rank->chunks, counters, diag);
}

static struct pp_rule_value constant(struct pp_machine *machine, const struct pp_counters *counters, uint32_t number)
{
	struct pp_rule_value **of_rank = &machine->rank_constants[counters->rank->rank];
	if (!*of_rank)
		*of_rank = PP_NEW_ARRAY(machine->arena, struct pp_rule_value, machine->constant_count);
	struct pp_rule_value *value = &(*of_rank)[number];
	if (value->kind != PP_RULE_UNSET)
		return *value;
	struct pp_arena *scratch = pp_arena_scratch(machine->arena);
	struct pp_diag *unseen = pp_diag_create(scratch, machine->names->input->sources);
	struct pp_rule_eval rule;
	struct pp_datum datum;
	open_on(&rule, machine, scratch, counters->rank, NULL, unseen);
	*value = pp_eval_expr(&rule.eval, machine->constants[number], &datum) ? pp_rule_of_datum(&datum) : pp_rule_no_value;
	pp_arena_destroy(scratch);
	return *value;
}

static struct pp_rule_value of_chunk(const struct pp_machine *machine, const struct pp_counters *counters,
                                     uint32_t kind, struct pp_rule_value chunk)
{
	if (chunk.kind != PP_RULE_WHOLE || !pp_dimension_equal(chunk.dimension, PP_PURE) || chunk.top < 0 ||
	    chunk.top >= machine->names->most_chunks)
		return pp_rule_no_value;
	return pp_rule_whole(pp_counter_chunk(counters, kind, (uint32_t)chunk.top));
}

static struct pp_rule_value run_one(struct pp_machine *machine, const struct pp_counters *counters,
                                    const struct instruction *at)
{
	const struct pp_rule_value *registers = machine->registers;
	switch ((enum operation)at->operation) {
	case CONSTANT:
		return constant(machine, counters, at->a);
	case TOTAL:
		return pp_rule_whole(pp_counter_total(counters, at->a));
	case OF_CHUNK:
		return of_chunk(machine, counters, at->a, registers[at->b]);
	case MEMORY:
		return pp_rule_of_rational((struct pp_rational){(pp_wide)counters->bytes, 1}, PP_BYTES);
	case BINARY:
		return pp_rule_binary((enum pp_operator)at->op, registers[at->a], registers[at->b]);
	case NEGATE:
		return pp_rule_negated(registers[at->a]);
	case NOT:
		return registers[at->a].kind == PP_RULE_TRUTH ? pp_rule_truth(!registers[at->a].top) : pp_rule_no_value;
	case COPY:
		return registers[at->a];
	case SELECT:
		return registers[at->a].kind == PP_RULE_TRUTH ? registers[registers[at->a].top ? at->b : at->c]
		                                              : pp_rule_no_value;
	case FLOOR:
		return pp_rule_rounded(registers[at->a], false);
	case CEIL:
		return pp_rule_rounded(registers[at->a], true);
	case ABSOLUTE:
		return pp_rule_absolute(registers[at->a]);
	case LEAST:
		return pp_rule_extreme(registers[at->a], registers[at->b], -1);
	case GREATEST:
		return pp_rule_extreme(registers[at->a], registers[at->b], 1);
	case UNKNOWN:
		break;
	}
	return pp_rule_no_value;
}

static struct pp_rule_value run(struct pp_machine *machine, const struct pp_compiled *compiled,
                                const struct pp_counters *counters)
{
	machine->steps += compiled->end - compiled->first;
	struct pp_rule_value result = pp_rule_no_value;
	for (uint32_t i = compiled->first; i < compiled->end; i++)
		machine->registers[i] = result = run_one(machine, counters, &machine->code[i]);
	return result;
}

/* Before the general evaluator is asked. */
static bool may_go_on(struct pp_machine *machine, const struct pp_compiled *compiled, struct pp_diag *diag)
{
	machine->steps += SLOW_STEPS;
	if (machine->steps < MOST_STEPS)
		return true;
	pp_help(pp_error(diag, "E0623", compiled->expr->span, "the rules of this policy take too long to evaluate"),
	        "use fewer and shorter rules; counters in `sqrt`, `log2` and `len` take longest");
	return false;
}

bool pp_machine_raised(struct pp_machine *machine, const struct pp_compiled sides[2], enum pp_operator op,
                       int64_t raised, const struct pp_counters *counters, bool *out)
{
	struct pp_rule_value a = run(machine, &sides[0], counters), b = run(machine, &sides[1], counters);
	struct pp_rule_value more = {.top = raised, .bottom = 1, .kind = PP_RULE_WHOLE, .dimension = a.dimension};
	struct pp_rule_value *larger = op == PP_LT || op == PP_LE ? &b : &a;
	*larger = pp_rule_binary(PP_ADD, *larger, more);
	struct pp_rule_value holds = pp_rule_binary(op, a, b);
	*out = holds.kind == PP_RULE_TRUTH && holds.top;
	return holds.kind == PP_RULE_TRUTH;
}

bool pp_machine_value(struct pp_machine *machine, struct pp_arena *arena, const struct pp_compiled *compiled,
                      const struct pp_counters *counters, struct pp_diag *diag, struct pp_datum *out)
{
	struct pp_rule_eval rule;
	open_on(&rule, machine, arena, counters->rank, counters, diag);
	return pp_eval_expr(&rule.eval, compiled->expr, out);
}

/* What the machine can't tell: for a truth or for a whole number, whichever is asked for. */
static bool ask_general(struct pp_machine *machine, const struct pp_compiled *compiled,
                        const struct pp_counters *counters, const char *what, struct pp_diag *diag, bool *truth,
                        int64_t *whole)
{
	if (!may_go_on(machine, compiled, diag))
		return false;
	struct pp_arena *scratch = pp_arena_scratch(machine->arena);
	struct pp_rule_eval rule;
	open_on(&rule, machine, scratch, counters->rank, counters, diag);
	bool ok = truth ? pp_eval_truth(&rule.eval, compiled->expr, what, truth)
	                : pp_eval_whole(&rule.eval, compiled->expr, what, whole);
	pp_arena_destroy(scratch);
	return ok;
}

bool pp_machine_truth(struct pp_machine *machine, const struct pp_compiled *compiled,
                      const struct pp_counters *counters, const char *what, struct pp_diag *diag, bool *out)
{
	struct pp_rule_value value = run(machine, compiled, counters);
	if (value.kind == PP_RULE_TRUTH && machine->steps < MOST_STEPS) {
		*out = value.top;
		return true;
	}
	return ask_general(machine, compiled, counters, what, diag, out, NULL);
}

bool pp_machine_whole(struct pp_machine *machine, const struct pp_compiled *compiled,
                      const struct pp_counters *counters, const char *what, struct pp_diag *diag, int64_t *out)
{
	struct pp_rule_value value = run(machine, compiled, counters);
	if (value.kind == PP_RULE_WHOLE && pp_dimension_equal(value.dimension, PP_PURE)) {
		*out = value.top;
		return true;
	}
	return ask_general(machine, compiled, counters, what, diag, NULL, out);
}
