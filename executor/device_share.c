/* What devices have in common. Requires a program that was verified. */
#include "device_share.h"

#include "init.h"

#include "ir/lifetime.h"
#include "ir/token_table.h"

#include <inttypes.h>
#include <string.h>

struct pp_call pp_call_of(const struct pp_program *program, const struct pp_instr *instr)
{
	enum pp_phase phase = pp_phase_of(instr);
	struct pp_call call = {.body = &program->bodies[program->stages[instr->stage].body[phase]],
	                       .mb = instr->mb,
	                       .first = (instr->flags & PP_FIRST) != 0,
	                       .in = PP_NULL,
	                       .aux = PP_NULL,
	                       .out = PP_NULL,
	                       .stash = PP_NULL,
	                       .extra = PP_NULL,
	                       .dout = PP_NULL,
	                       .din = PP_NULL};
	switch (phase) {
	case PP_PHASE_F:
		call.in = instr->a[0];
		call.aux = instr->a[1];
		call.out = instr->a[2];
		call.stash = instr->a[3];
		break;
	case PP_PHASE_B:
	case PP_PHASE_I:
		call.aux = instr->a[0];
		call.stash = instr->a[1];
		call.extra = instr->extra;
		call.dout = instr->a[2];
		call.din = instr->a[3];
		break;
	case PP_PHASE_W:
		call.aux = instr->a[0];
		call.stash = instr->a[1];
		call.extra = instr->extra;
		break;
	case PP_PHASE_R:
		call.stash = instr->a[0];
		call.extra = instr->extra;
		break;
	case PP_PHASE_COUNT:
		break;
	}
	return call;
}

uint64_t pp_load_bytes(const struct pp_program *program, const struct pp_instr *load)
{
	uint64_t ids = (uint64_t)program->train.microbatch * program->train.seq * sizeof(int32_t);
	return load->sub == PP_LOAD_BOTH ? 2 * ids : ids;
}

struct pp_elements pp_elements_of_shard(const struct pp_program *program, uint32_t tensor, uint32_t owner)
{
	uint64_t local = pp_local_elements(program, tensor), dp = pp_grid_extent(program, PP_AXIS_DP);
	uint64_t each = local / dp + (local % dp != 0), first = each * owner;
	first = first < local ? first : local;
	return (struct pp_elements){(size_t)first, (size_t)(local - first < each ? local - first : each)};
}

struct pp_elements pp_elements_of(const struct pp_program *program, struct pp_coord coord, uint32_t tensor, bool shard)
{
	return shard ? pp_elements_of_shard(program, tensor, coord.dp)
	             : (struct pp_elements){0, (size_t)pp_local_elements(program, tensor)};
}

uint32_t pp_only_slot(const struct pp_rank *rank, enum pp_slot_class class)
{
	for (uint32_t slot = 0; slot < rank->slot_count; slot++)
		if (rank->slots[slot].class == class)
			return slot;
	return PP_NULL;
}

bool pp_device_slots_fit(const struct pp_program *program, uint32_t rank, struct pp_status *status)
{
	const struct pp_rank *table = &program->rank[rank];
	for (uint32_t i = 0; i < table->slot_count; i++) {
		const struct pp_slot *slot = &table->slots[i];
		uint64_t needed;
		if (pp_slot_content_bytes(program, slot, &needed) && slot->bytes < needed)
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "%s slot %" PRIu32 " of rank %" PRIu32 " has %" PRIu64 " bytes, it needs %" PRIu64,
			               pp_slot_class_name[slot->class], i, rank, slot->bytes, needed);
		if (slot->offset > table->arena_bytes || slot->bytes > table->arena_bytes - slot->offset)
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "%s slot %" PRIu32 " of rank %" PRIu32 " ends outside the arena",
			               pp_slot_class_name[slot->class], i, rank);
	}
	return true;
}

uint32_t pp_most_registers(const struct pp_program *program)
{
	uint32_t most = 1;
	for (uint32_t b = 0; b < program->body_count; b++)
		most = program->bodies[b].reg_count > most ? program->bodies[b].reg_count : most;
	return most;
}

void pp_weight_init(const struct pp_program *program, struct pp_coord coord, uint32_t tensor, uint64_t seed,
                    uint64_t first, uint64_t count, float *to)
{
	const struct pp_tensor *whole = &program->tensors[tensor];
	struct pp_box box = pp_tensor_box(program, tensor, coord.tp);
	uint32_t rows = pp_tensor_rows(program, tensor), kept = rows > box.row ? rows - box.row : 0;
	uint64_t drawn = (uint64_t)(kept < box.rows ? kept : box.rows) * box.columns, end = first + count;
	bool whole_rows = box.columns == whole->columns;
	while (first < end && first < drawn) {
		uint64_t row = first / box.columns, column = first % box.columns;
		uint64_t run = whole_rows ? drawn - first : box.columns - column;
		run = run < end - first ? run : end - first;
		pp_init_fill(whole, seed, (box.row + row) * whole->columns + box.column + column, run, to);
		first += run;
		to += run;
	}
	memset(to, 0, (end - first) * sizeof *to);
}
