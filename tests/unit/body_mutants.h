/* Mutants of built bodies: apply one, compare all messages of V10. */
#ifndef BODY_MUTANTS_H
#define BODY_MUTANTS_H

#include "program_fixture.h"

#include "ir/diag.h"
#include "ir/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/* The messages of V10 on a program, one a line with their notes; to be freed. */
static inline char *messages_of(const struct pp_program *program)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_diag *diag = pp_diag_create(arena, pp_sources_create(arena));
	bool ok = pp_verify_bodies(program, diag);
	assert_int_equal(ok, pp_diag_ok(diag));
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(diag, out, PP_DIAG_HUMAN, false);
	fclose(out);
	pp_arena_destroy(arena);
	return text;
}

static inline void assert_messages(const struct pp_program *program, const char *expected)
{
	char *text = messages_of(program);
	assert_string_equal(text, expected);
	free(text);
}

static inline struct pp_reg *reg_named(const struct built *built, uint32_t stage, enum pp_phase phase, const char *name)
{
	const struct pp_body *body = body_of(built, stage, phase);
	for (uint32_t r = 0; r < body->reg_count; r++)
		if (strcmp(body->regs[r].name, name) == 0)
			return &body->regs[r];
	fail_msg("no register %s", name);
	return NULL;
}

static inline uint32_t reg_index(const struct built *built, uint32_t stage, enum pp_phase phase, const char *name)
{
	return (uint32_t)(reg_named(built, stage, phase, name) - body_of(built, stage, phase)->regs);
}

/* Drop instruction `at` of a body. */
static inline void drop(const struct built *built, uint32_t stage, enum pp_phase phase, uint32_t at)
{
	struct pp_body *body = &built->program->bodies[built->program->stages[stage].body[phase]];
	memmove(body->items + at, body->items + at + 1, (body->count - at - 1) * sizeof *body->items);
	body->count--;
}

struct mutant {
	void (*apply)(struct built *built);
	const char *expected;
};

/* Each mutant of what `make` builds gets exactly its messages. */
static inline void assert_mutants(struct built (*make)(void), const struct mutant *mutants, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct built built = make();
		mutants[i].apply(&built);
		assert_messages(built.program, mutants[i].expected);
		pp_arena_destroy(built.arena);
	}
}

/* Is what the instruction writes made by the forward and made again by R? Those are held against each other. */
static inline bool made_again(const struct built *built, uint32_t stage, enum pp_phase phase,
                              const struct pp_body_instr *instr, uint32_t output)
{
	if (built->program->stages[stage].body[PP_PHASE_R] == PP_NULL || (phase != PP_PHASE_F && phase != PP_PHASE_R))
		return false;
	const struct pp_body *again = body_of(built, stage, PP_PHASE_R), *body = body_of(built, stage, phase);
	for (uint32_t i = 0; i < again->count; i++) {
		uint32_t reg = again->items[i].operand[pp_body_op_info((enum pp_body_op)again->items[i].op).input_count];
		if (again->items[i].op == instr->op && strcmp(again->regs[reg].name, body->regs[output].name) == 0)
			return true;
	}
	return false;
}

/* Leaving out any instruction is found, unless it works in place: then the value is there already, under its name. */
static inline void assert_none_can_be_dropped(struct built (*make)(void), uint32_t stages)
{
	for (uint32_t stage = 0; stage < stages; stage++) {
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			struct built built = make();
			if (built.program->stages[stage].body[phase] == PP_NULL) {
				pp_arena_destroy(built.arena);
				continue;
			}
			uint32_t count = body_of(&built, stage, (enum pp_phase)phase)->count;
			pp_arena_destroy(built.arena);
			for (uint32_t at = 0; at < count; at++) {
				built = make();
				const struct pp_body_instr *instr = &body_of(&built, stage, (enum pp_phase)phase)->items[at];
				struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
				bool in_place = false;
				for (unsigned k = 0; k < info.input_count; k++)
					in_place |= instr->operand[k] == instr->operand[info.input_count];
				in_place &= instr->op != PP_BODY_XENT && instr->op != PP_BODY_XENT_SHARD &&  /* the loss, */
				            instr->op != PP_BODY_SWIGLU_DX && instr->op != PP_BODY_ADD_BIAS; /* dup, bias are missed */
				if (in_place)
					in_place =
					    !made_again(&built, stage, (enum pp_phase)phase, instr, instr->operand[info.input_count]);
				drop(&built, stage, (enum pp_phase)phase, at);
				char *text = messages_of(built.program);
				assert_int_equal(text[0] == '\0', in_place);
				free(text);
				pp_arena_destroy(built.arena);
			}
		}
	}
}

#endif
