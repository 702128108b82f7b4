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

/* Run instruction `at` of a body twice. */
static inline void twice(const struct built *built, uint32_t stage, enum pp_phase phase, uint32_t at)
{
	struct pp_body *body = &built->program->bodies[built->program->stages[stage].body[phase]];
	struct pp_body_instr *items = PP_NEW_ARRAY(built->arena, struct pp_body_instr, body->count + 1);
	memcpy(items, body->items, (at + 1) * sizeof *items);
	memcpy(items + at + 1, body->items + at, (body->count - at) * sizeof *items);
	body->items = items;
	body->count++;
}

/* Every instruction of every body in turn, changed so, is found. */
static inline void assert_each_is_found(struct built (*make)(void), uint32_t stages,
                                        void (*change)(const struct built *, uint32_t, enum pp_phase, uint32_t),
                                        const char *what)
{
	for (uint32_t stage = 0; stage < stages; stage++)
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			struct built built = make();
			bool has = built.program->stages[stage].body[phase] != PP_NULL;
			uint32_t count = has ? body_of(&built, stage, (enum pp_phase)phase)->count : 0;
			pp_arena_destroy(built.arena);
			for (uint32_t at = 0; at < count; at++) {
				built = make();
				change(&built, stage, (enum pp_phase)phase, at);
				char *text = messages_of(built.program);
				if (!*text)
					fail_msg("body s%u.%s %s instruction %u is accepted", stage, pp_phase_name[phase], what, at);
				free(text);
				pp_arena_destroy(built.arena);
			}
		}
}

/* No instruction can be left out or run twice, in place or not, whoever else reads what it reads. */
static inline void assert_none_can_be_dropped(struct built (*make)(void), uint32_t stages)
{
	assert_each_is_found(make, stages, drop, "without");
	assert_each_is_found(make, stages, twice, "with twice");
}

/* ---- orders ---------------------------------------------------------------------------------- */

static inline uint64_t value_mix(uint64_t hash, uint64_t with)
{
	hash = (hash ^ with) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/* What a body computes, told from the bytes alone, whatever the verifier thinks of names: each value is the op, its
 * immediates and the values read. A sum is that of both in either order; bytes partly written over hold what is none.
 */
static inline uint64_t body_value(const struct pp_body *body)
{
	uint64_t value[128], hash = 1;
	assert_true(body->reg_count <= 128);
	for (uint32_t r = 0; r < body->reg_count; r++) /* alike where they begin at one byte */
		value[r] = value_mix(value_mix(body->regs[r].base + 2u, body->regs[r].slot), body->regs[r].offset);
	for (uint32_t at = 0; at < body->count; at++) {
		const struct pp_body_instr *instr = &body->items[at];
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
		uint64_t made = value_mix(instr->op, 5), read[PP_BODY_INPUTS_MAX] = {0};
		for (unsigned i = 0; i < info.immediate_count; i++)
			made = value_mix(made, instr->imm[i]);
		for (unsigned i = 0; i < info.input_count; i++)
			read[i] = instr->operand[i] == PP_NULL ? 0 : value[instr->operand[i]];
		if ((instr->op == PP_BODY_ADD || instr->op == PP_BODY_ADD_BIAS) && read[0] > read[1]) {
			uint64_t first = read[0];
			read[0] = read[1], read[1] = first;
		}
		for (unsigned i = 0; i < info.input_count; i++)
			made = value_mix(made, read[i]);
		for (unsigned i = info.input_count; i < (unsigned)info.input_count + info.output_count; i++) {
			if (instr->operand[i] == PP_NULL)
				continue;
			const struct pp_reg *to = &body->regs[instr->operand[i]];
			for (uint32_t r = 0; r < body->reg_count; r++) {
				const struct pp_reg *reg = &body->regs[r];
				uint64_t end = reg->offset + (uint64_t)reg->rows * reg->columns * pp_dtype_size[reg->dtype],
				         to_end = to->offset + (uint64_t)to->rows * to->columns * pp_dtype_size[to->dtype];
				if (reg->base == to->base && reg->slot == to->slot && reg->offset < to_end && to->offset < end)
					value[r] = value_mix(value_mix(made, i), reg->offset != to->offset || end != to_end);
			}
		}
	}
	for (uint32_t r = 0; r < body->reg_count; r++)
		if (body->regs[r].base != PP_BASE_WORK)
			hash = value_mix(hash, value[r]);
	return hash;
}

static inline void move_instr(struct pp_body *body, uint32_t from, uint32_t to)
{
	struct pp_body_instr moved = body->items[from];
	if (from < to)
		memmove(body->items + from, body->items + from + 1, (to - from) * sizeof moved);
	else
		memmove(body->items + to + 1, body->items + to, (from - to) * sizeof moved);
	body->items[to] = moved;
}

/* Each instruction of each body at every other place (neighbours change places, too): refused, or the same values. */
static inline void assert_orders_compute_alike(struct built (*make)(void))
{
	struct built built = make();
	uint32_t refused = 0, alike = 0;
	for (uint32_t b = 0; b < built.program->body_count; b++) {
		struct pp_body *body = &built.program->bodies[b];
		uint64_t expected = body_value(body);
		for (uint32_t from = 0; from < body->count; from++)
			for (uint32_t to = 0; to < body->count; to++) {
				if (from == to)
					continue;
				move_instr(body, from, to);
				char *text = messages_of(built.program);
				if (text[0] == '\0' && body_value(body) != expected)
					fail_msg("body s%u.%s: instruction %u at %u is accepted, but computes something else", body->stage,
					         pp_phase_name[body->phase], from, to);
				*(text[0] == '\0' ? &alike : &refused) += 1;
				free(text);
				move_instr(body, to, from);
			}
	}
	assert_true(refused >= 100 && alike >= 10);
	pp_arena_destroy(built.arena);
}

#endif
