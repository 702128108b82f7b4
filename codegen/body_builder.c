/* One body: registers, instructions, workspace.
 *
 * requires: registers are written before they are read, in the order of the instructions; sizes that fit (the shapes of
 *           a checked model).
 * ensures:  registers in the order of their making, only those in use, each written once; workspace registers that are
 *           live together do not overlap but for versions of one value; the same input gives the same bytes. */
#include "body_builder.h"

#include <assert.h>
#include <stdlib.h>

uint32_t pp_body_reg(struct pp_body_builder *body, struct pp_reg reg)
{
	*PP_PUSH(body->arena, &body->regs, &body->reg_count, &body->reg_capacity, struct pp_reg) = reg;
	*PP_PUSH(body->arena, &body->values, &body->value_count, &body->value_capacity, struct pp_body_value) =
	    (struct pp_body_value){.place = (uint32_t)body->reg_count - 1};
	return (uint32_t)body->reg_count - 1;
}

static void rename_operands(struct pp_body_instr *instr, unsigned count, uint32_t from, uint32_t to)
{
	for (unsigned k = 0; k < count; k++)
		if (instr->operand[k] == from)
			instr->operand[k] = to;
}

/* The instruction writes over the register: its readers and writer so far get an earlier version of it. */
static void version_split(struct pp_body_builder *body, struct pp_body_instr *instr, unsigned inputs, uint32_t reg)
{
	struct pp_reg earlier = body->regs[reg];
	assert(earlier.base != PP_BASE_GRAD); /* sums, not versions */
	uint32_t writer = body->values[reg].writer;
	earlier.name = pp_arena_printf(body->arena, "%s.%u", earlier.name, ++body->values[reg].versions);
	uint32_t version = pp_body_reg(body, earlier);
	body->values[version] = (struct pp_body_value){.writer = writer, .place = reg};
	for (size_t i = writer - 1; i < body->count; i++)
		rename_operands(&body->items[i], PP_BODY_OPERANDS_MAX, reg, version);
	rename_operands(instr, inputs, reg, version);
}

void pp_body_emit(struct pp_body_builder *body, struct pp_body_instr instr)
{
	struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr.op);
	unsigned count = info.input_count + info.output_count;
	for (unsigned i = 0; i < count; i++)
		assert(instr.operand[i] < body->reg_count || (info.optional & 1u << i && instr.operand[i] == PP_NULL));
	for (unsigned i = count; i < PP_BODY_OPERANDS_MAX; i++)
		instr.operand[i] = PP_NULL;
	for (unsigned i = info.input_count; i < count; i++) {
		uint32_t reg = instr.operand[i];
		if (reg == PP_NULL)
			continue;
		if (body->values[reg].writer)
			version_split(body, &instr, info.input_count, reg);
		body->values[reg].writer = (uint32_t)body->count + 1;
	}
	*PP_PUSH(body->arena, &body->items, &body->count, &body->capacity, struct pp_body_instr) = instr;
}

/* ---- workspace ------------------------------------------------------------------------------- */

/* A register and the instructions of its life, with those of its earlier versions. */
struct lifetime {
	uint32_t reg;
	uint32_t first, last; /* first PP_NULL: not used */
	uint64_t bytes;
	bool placed;
	uint32_t *others; /* lifetimes that overlap this one: few, those of one layer and the residual gradient */
	size_t other_count, other_capacity;
};

static uint64_t reg_bytes(const struct pp_reg *reg)
{
	uint64_t bytes = (uint64_t)reg->rows * reg->columns * pp_dtype_size[reg->dtype];
	return (bytes + PP_PART_ALIGN - 1) / PP_PART_ALIGN * PP_PART_ALIGN;
}

static struct lifetime *lifetimes_find(const struct pp_body_builder *body, struct pp_arena *scratch)
{
	struct lifetime *lives = PP_NEW_ARRAY(scratch, struct lifetime, body->reg_count);
	for (uint32_t r = 0; r < body->reg_count; r++)
		lives[r] = (struct lifetime){.reg = r, .first = PP_NULL, .bytes = reg_bytes(&body->regs[r])};
	uint32_t *source = PP_NEW_ARRAY(scratch, uint32_t, body->reg_count); /* of the last collective into a register */
	for (uint32_t i = 0; i < body->count; i++) {
		const struct pp_body_instr *instr = &body->items[i];
		for (unsigned k = 0; k < PP_BODY_OPERANDS_MAX; k++) {
			if (instr->operand[k] == PP_NULL)
				continue;
			uint32_t reg = body->values[instr->operand[k]].place;
			if (lives[reg].first == PP_NULL)
				lives[reg].first = i;
			lives[reg].last = i;
		}
		if (instr->op == PP_BODY_ALLREDUCE || instr->op == PP_BODY_ALLGATHER || instr->op == PP_BODY_REDUCESCATTER)
			source[instr->operand[1]] = instr->operand[0];
		else if (instr->op == PP_BODY_AWAIT) /* until then the collective reads what it was posted with */
			lives[body->values[source[instr->operand[0]]].place].last = i;
	}
	return lives;
}

/* Lives of workspace registers by first use; those that overlap know each other afterwards. */
static struct lifetime **overlaps_find(const struct pp_body_builder *body, struct lifetime *lives, size_t *count,
                                       struct pp_arena *scratch)
{
	struct lifetime **sorted = NULL, **live = NULL;
	size_t capacity = 0, live_count = 0, live_capacity = 0;
	for (uint32_t i = 0; i < body->count; i++) {
		size_t kept = 0;
		for (size_t k = 0; k < live_count; k++)
			if (live[k]->last >= i)
				live[kept++] = live[k];
		live_count = kept;
		for (unsigned k = 0; k < PP_BODY_OPERANDS_MAX; k++) {
			if (body->items[i].operand[k] == PP_NULL)
				continue;
			uint32_t reg = body->values[body->items[i].operand[k]].place;
			if (body->regs[reg].base != PP_BASE_WORK || lives[reg].first != i || lives[reg].placed)
				continue;
			lives[reg].placed = true; /* seen; an instruction may name it twice */
			for (size_t other = 0; other < live_count; other++) {
				struct lifetime *a = live[other], *b = &lives[reg];
				*PP_PUSH(scratch, &a->others, &a->other_count, &a->other_capacity, uint32_t) = b->reg;
				*PP_PUSH(scratch, &b->others, &b->other_count, &b->other_capacity, uint32_t) = a->reg;
			}
			*PP_PUSH(scratch, &live, &live_count, &live_capacity, struct lifetime *) = &lives[reg];
			*PP_PUSH(scratch, &sorted, count, &capacity, struct lifetime *) = &lives[reg];
		}
	}
	for (size_t k = 0; k < *count; k++)
		sorted[k]->placed = false;
	return sorted;
}

static int compare_sizes(const void *a, const void *b)
{
	const struct lifetime *left = *(struct lifetime *const *)a, *right = *(struct lifetime *const *)b;
	if (left->bytes != right->bytes)
		return left->bytes > right->bytes ? -1 : 1;
	if (left->first != right->first)
		return left->first < right->first ? -1 : 1;
	return left->reg < right->reg ? -1 : left->reg > right->reg;
}

/* The lowest offset that is free for the whole life: behind as many placed neighbours as needed. */
static void place(struct pp_body_builder *body, struct lifetime *lives, struct lifetime *life)
{
	uint64_t offset = 0;
	for (bool moved = true; moved;) {
		moved = false;
		for (size_t k = 0; k < life->other_count; k++) {
			const struct lifetime *other = &lives[life->others[k]];
			uint64_t start = body->regs[other->reg].offset, end = start + other->bytes;
			if (!other->placed || start >= offset + life->bytes || offset >= end)
				continue;
			offset = end;
			moved = true;
		}
	}
	body->regs[life->reg].offset = offset;
	life->placed = true;
}

/* Large ones first, so that small ones fill the gaps between them; among equals the first used first. */
static uint64_t workspace_place(struct pp_body_builder *body, struct lifetime *lives, struct pp_arena *scratch)
{
	size_t count = 0;
	uint64_t high = 0;
	struct lifetime **sorted = overlaps_find(body, lives, &count, scratch);
	if (count)
		qsort(sorted, count, sizeof *sorted, compare_sizes);
	for (size_t k = 0; k < count; k++) {
		place(body, lives, sorted[k]);
		uint64_t end = body->regs[sorted[k]->reg].offset + sorted[k]->bytes;
		high = end > high ? end : high;
	}
	for (size_t r = 0; r < body->reg_count; r++)
		body->regs[r].offset = body->regs[body->values[r].place].offset;
	return high;
}

static void unused_drop(struct pp_body_builder *body, struct pp_arena *scratch)
{
	uint32_t *renumbered = PP_NEW_ARRAY(scratch, uint32_t, body->reg_count);
	bool *named = PP_NEW_ARRAY(scratch, bool, body->reg_count);
	uint32_t kept = 0;
	for (size_t i = 0; i < body->count; i++)
		for (unsigned k = 0; k < PP_BODY_OPERANDS_MAX; k++)
			if (body->items[i].operand[k] != PP_NULL)
				named[body->items[i].operand[k]] = true;
	for (size_t r = 0; r < body->reg_count; r++) {
		if (!named[r])
			continue;
		renumbered[r] = kept;
		body->regs[kept++] = body->regs[r];
	}
	body->reg_count = kept;
	for (size_t i = 0; i < body->count; i++)
		for (unsigned k = 0; k < PP_BODY_OPERANDS_MAX; k++)
			if (body->items[i].operand[k] != PP_NULL)
				body->items[i].operand[k] = renumbered[body->items[i].operand[k]];
}

/* ---- recompute ------------------------------------------------------------------------------- */

/* Whether an instruction of R is needed: it makes something that is not kept already and that is wanted, in extra or by
 * a later instruction. `await` has no result of its own, but its register. */
static bool is_wanted(const struct pp_body_builder *body, const struct pp_body_instr *instr,
                      const struct pp_body_op_info *info, const bool *wanted)
{
	bool makes = false;
	if (instr->op == PP_BODY_AWAIT)
		return wanted[instr->operand[0]] && body->regs[instr->operand[0]].base != PP_BASE_STASH;
	for (unsigned k = info->input_count; k < (unsigned)info->input_count + info->output_count; k++) {
		uint32_t reg = instr->operand[k];
		assert(reg == PP_NULL || !makes || body->regs[reg].base != PP_BASE_STASH); /* kept together, or not at all */
		makes |= reg != PP_NULL && body->regs[reg].base != PP_BASE_STASH && wanted[reg];
	}
	return makes;
}

/* What is kept is there, and what nobody reads need not be made. Seen from the end, all readers come before the maker.
 */
static void needless_drop(struct pp_body_builder *body, struct pp_arena *scratch)
{
	bool *wanted = PP_NEW_ARRAY(scratch, bool, body->reg_count), *kept = PP_NEW_ARRAY(scratch, bool, body->count);
	for (size_t r = 0; r < body->reg_count; r++)
		wanted[r] = body->regs[r].base == PP_BASE_EXTRA;
	for (size_t i = body->count; i-- > 0;) {
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)body->items[i].op);
		kept[i] = is_wanted(body, &body->items[i], &info, wanted);
		for (unsigned k = 0; kept[i] && k < info.input_count; k++)
			if (body->items[i].operand[k] != PP_NULL)
				wanted[body->items[i].operand[k]] = true;
	}
	size_t count = 0;
	for (size_t i = 0; i < body->count; i++)
		if (kept[i])
			body->items[count++] = body->items[i];
	body->count = count;
}

void pp_body_finish(struct pp_body_builder *body, struct pp_body *out)
{
	struct pp_arena *scratch = pp_arena_scratch(body->arena);
	if (body->phase == PP_PHASE_R)
		needless_drop(body, scratch);
	struct lifetime *lives = lifetimes_find(body, scratch);
	uint64_t work_bytes = workspace_place(body, lives, scratch);
	unused_drop(body, scratch);
	pp_arena_destroy(scratch);
	*out = (struct pp_body){.stage = body->stage,
	                        .phase = (uint8_t)body->phase,
	                        .regs = body->regs,
	                        .reg_count = (uint32_t)body->reg_count,
	                        .items = body->items,
	                        .count = (uint32_t)body->count,
	                        .work_bytes = work_bytes};
}

/* ---- for layer kinds ------------------------------------------------------------------------- */

static const char *name_of(struct pp_layer_build *build, const char *part)
{
	return pp_arena_printf(build->body->arena, "%s.%s", build->prefix, part);
}

uint32_t pp_part(struct pp_layer_build *build, unsigned index)
{
	const struct pp_part *part = &build->layout.parts[index];
	if (part->rows == 0 || build->part_reg[index] != PP_NULL)
		return build->part_reg[index];
	static const uint8_t bases[PP_AREA_COUNT] = {PP_BASE_WORK, PP_BASE_STASH, PP_BASE_EXTRA};
	enum pp_phase phase = build->body->phase;
	uint8_t area = build->layout.area[index];
	if ((part->weight_pass && phase == PP_PHASE_B) || (area == PP_AREA_EXTRA && phase == PP_PHASE_F))
		area = PP_AREA_WORK;
	struct pp_reg reg = {
	    .name = name_of(build, part->name),
	    .base = bases[area],
	    .dtype = part->dtype,
	    .slot = PP_NULL,
	    .rows = (uint32_t)part->rows,
	    .columns = (uint32_t)part->columns,
	    .offset = area ? build->area_offset[area] + build->layout.offset[index] : 0,
	};
	pp_reg_spread(&reg, (enum pp_spread)part->spread, &build->shape);
	build->part_reg[index] = pp_body_reg(build->body, reg);
	return build->part_reg[index];
}

static uint32_t parameter_reg(struct pp_layer_build *build, const struct pp_param *param, bool grad, uint32_t slot)
{
	struct pp_reg reg = {
	    .name = pp_arena_printf(build->body->arena, "%s.%s%s", build->prefix, param->suffix, grad ? ".grad" : ""),
	    .base = grad ? PP_BASE_GRAD : PP_BASE_WEIGHT,
	    .dtype = (uint8_t)(grad ? PP_F32 : build->shape.dtype),
	    .slot = slot,
	    .rows = (uint32_t)param->rows,
	    .columns = param->columns ? (uint32_t)param->columns : 1,
	};
	enum pp_spread spread = param->shard == 0 ? PP_ROWS : param->shard == 1 ? PP_COLUMNS : PP_WHOLE;
	pp_reg_spread(&reg, grad && param->partial ? PP_SUMS : spread, &build->shape);
	return pp_body_reg(build->body, reg);
}

uint32_t pp_weight(struct pp_layer_build *build, unsigned param)
{
	if (build->params[param].rows && build->weight_reg[param] == PP_NULL)
		build->weight_reg[param] = parameter_reg(build, &build->params[param], false, build->weight_slot[param]);
	return build->weight_reg[param];
}

uint32_t pp_grad(struct pp_layer_build *build, unsigned param)
{
	if (build->params[param].rows && build->grad_reg[param] == PP_NULL)
		build->grad_reg[param] = parameter_reg(build, &build->params[param], true, build->grad_slot[param]);
	return build->grad_reg[param];
}

uint32_t pp_temporary(struct pp_layer_build *build, const char *name, enum pp_spread spread, uint64_t columns)
{
	struct pp_reg reg = {.name = name_of(build, name),
	                     .base = PP_BASE_WORK,
	                     .dtype = (uint8_t)build->shape.dtype,
	                     .slot = PP_NULL,
	                     .rows = (uint32_t)(spread == PP_ROWS ? build->shape.rows : build->shape.tokens),
	                     .columns = (uint32_t)columns};
	pp_reg_spread(&reg, spread, &build->shape);
	return pp_body_reg(build->body, reg);
}

void pp_reg_spread(struct pp_reg *reg, enum pp_spread spread, const struct pp_shape *shape)
{
	static const uint8_t types[] = {
	    [PP_WHOLE] = PP_TYPE_R, [PP_SUMS] = PP_TYPE_P, [PP_ROWS] = PP_TYPE_S, [PP_COLUMNS] = PP_TYPE_S};
	reg->type = shape->tp > 1 ? types[spread] : PP_TYPE_R;
	reg->shard = shape->tp > 1 && spread == PP_COLUMNS;
}

void pp_emit_dx(struct pp_layer_build *build, struct pp_body_instr instr)
{
	if (build->body->phase != PP_PHASE_W)
		pp_body_emit(build->body, instr);
}

void pp_emit_dw(struct pp_layer_build *build, struct pp_body_instr instr)
{
	if (build->body->phase != PP_PHASE_I)
		pp_body_emit(build->body, instr);
}

void pp_linear(struct pp_layer_build *build, unsigned param, uint32_t x, uint32_t y)
{
	pp_body_emit(build->body,
	             (struct pp_body_instr){.op = PP_BODY_LINEAR,
	                                    .operand = {x, pp_weight(build, param), pp_weight(build, param + 1), y}});
}

void pp_linear_sums(struct pp_layer_build *build, unsigned param, uint32_t x, uint32_t sums)
{
	pp_body_emit(build->body,
	             (struct pp_body_instr){.op = PP_BODY_LINEAR, .operand = {x, pp_weight(build, param), PP_NULL, sums}});
}

void pp_linear_dx(struct pp_layer_build *build, unsigned param, uint32_t dy, uint32_t dx)
{
	pp_emit_dx(build, (struct pp_body_instr){.op = PP_BODY_LINEAR_DX, .operand = {dy, pp_weight(build, param), dx}});
}

void pp_linear_dw(struct pp_layer_build *build, unsigned param, uint32_t dy, uint32_t x)
{
	pp_emit_dw(build, (struct pp_body_instr){.op = PP_BODY_LINEAR_DW,
	                                         .operand = {dy, x, pp_grad(build, param), pp_grad(build, param + 1)}});
}

void pp_norm(struct pp_layer_build *build, unsigned param, unsigned mean, uint32_t x, uint32_t y)
{
	pp_body_emit(build->body,
	             (struct pp_body_instr){.op = PP_BODY_NORM,
	                                    .operand = {x, pp_weight(build, param), pp_weight(build, param + 1), y,
	                                                pp_part(build, mean), pp_part(build, mean + 1)},
	                                    .imm = {build->layer->rms}});
}

void pp_norm_dx(struct pp_layer_build *build, unsigned param, unsigned mean, uint32_t dy, uint32_t x, uint32_t dx)
{
	pp_emit_dx(build, (struct pp_body_instr){.op = PP_BODY_NORM_DX,
	                                         .operand = {dy, x, pp_weight(build, param), pp_part(build, mean),
	                                                     pp_part(build, mean + 1), dx},
	                                         .imm = {build->layer->rms}});
}

void pp_norm_dw(struct pp_layer_build *build, unsigned param, unsigned mean, uint32_t dy, uint32_t x)
{
	pp_emit_dw(build, (struct pp_body_instr){.op = PP_BODY_NORM_DW,
	                                         .operand = {dy, x, pp_part(build, mean), pp_part(build, mean + 1),
	                                                     pp_grad(build, param), pp_grad(build, param + 1)},
	                                         .imm = {build->layer->rms}});
}
