/* R9: what stands before the first and after the last compute of a step.
 * requires: tables of tensors, uses (sorted by tensor, then use order) and static slots; `spec->train`.
 * ensures:  program->train with hyper-parameter rows, program->groups, and on every rank of a model that trains: `zero`
 * of losses and norms first; at the end sums of tied gradients on the rank, reductions of gradients (lower_reduce.c),
 * losses, norm, clip, updates and, where the optimizer is sharded, the gathering of weights. Collectives stand in the
 * same order on all members, so streams stay subsequences of one global order. */
#include "tail.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { HYPER_DECAY, HYPER_PLAIN, HYPER_ROWS }; /* of spec->train.hypers */

void pp_lower_start(struct pp_lowering *lowering)
{
	const struct pp_program *program = lowering->program;
	if (!program->tensor_count)
		return;
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		for (uint32_t slot = 0; slot < program->rank[rank].slot_count; slot++) {
			uint8_t class = program->rank[rank].slots[slot].class;
			if (!pp_slot_is_static(class))
				break;
			if (class == PP_SLOT_LOSSES || (class == PP_SLOT_NORMS && !lowering->forward_only))
				pp_lowering_emit(lowering, rank, &(struct pp_instr){.op = PP_OP_ZERO, .a = {slot}}, PP_NULL);
		}
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void fill_train(struct pp_program *program, const struct pp_spec *spec)
{
	program->train = spec->train;
	program->train.hypers = PP_NEW_ARRAY(program->arena, struct pp_hyper, spec->train.hyper_count);
	if (spec->train.hyper_count)
		memcpy(program->train.hypers, spec->train.hypers, spec->train.hyper_count * sizeof *spec->train.hypers);
}

static void fill_use_base(struct pp_tail *tail)
{
	const struct pp_program *program = tail->program;
	tail->use_base = PP_NEW_ARRAY(tail->lowering->scratch, uint32_t, (size_t)program->tensor_count + 1);
	for (uint32_t use = 0; use < program->use_count; use++) {
		assert(use == 0 || program->uses[use - 1].tensor <= program->uses[use].tensor);
		tail->use_base[program->uses[use].tensor + 1]++;
	}
	for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++)
		tail->use_base[tensor + 1] += tail->use_base[tensor];
}

static void note_state(const struct pp_tail *tail, uint32_t rank, uint32_t slot)
{
	uint32_t tensor = tail->program->rank[rank].slots[slot].tensor;
	uint32_t use = tail->use_base[tensor];
	while (pp_tail_rank_of(tail, use) != rank)
		use++;
	assert(use < tail->use_base[tensor + 1]);
	struct pp_tail_state *state = &tail->state[use];
	if (tail->program->rank[rank].slots[slot].class == PP_SLOT_MASTER)
		state->master = slot;
	else
		state->moment[state->moment[0] == PP_NULL ? 0 : 1] = slot;
}

static struct pp_tail_slots find_slots(const struct pp_tail *tail, uint32_t rank)
{
	const struct pp_rank *table = &tail->program->rank[rank];
	struct pp_tail_slots found = {.losses = PP_NULL, .norms = PP_NULL, .scale = PP_NULL};
	for (uint32_t slot = 0; slot < table->slot_count && pp_slot_is_static(table->slots[slot].class); slot++) {
		uint8_t class = table->slots[slot].class;
		if (class == PP_SLOT_LOSSES)
			found.losses = slot;
		else if (class == PP_SLOT_NORMS)
			found.norms = slot;
		else if (class == PP_SLOT_SCALE)
			found.scale = slot;
		else if ((class == PP_SLOT_MOMENT || class == PP_SLOT_MASTER) && table->slots[slot].tensor != PP_NULL)
			note_state(tail, rank, slot);
	}
	assert(found.losses != PP_NULL && found.norms != PP_NULL && found.scale != PP_NULL);
	return found;
}

/* Counting sort of the first uses on their ranks: by stage (and, as uses are, by tensor), then by rank. */
static void fill_held(struct pp_tail *tail)
{
	const struct pp_program *program = tail->program;
	struct pp_arena *scratch = tail->lowering->scratch;
	uint32_t *stage_base = PP_NEW_ARRAY(scratch, uint32_t, (size_t)program->stage_count + 1);
	uint32_t *by_stage = PP_NEW_ARRAY(scratch, uint32_t, program->use_count), held = 0;
	for (uint32_t use = 0; use < program->use_count; use++)
		if (pp_tail_first_on_rank(tail, use)) {
			stage_base[program->uses[use].stage + 1]++;
			held++;
		}
	for (uint32_t s = 0; s < program->stage_count; s++)
		stage_base[s + 1] += stage_base[s];
	for (uint32_t use = 0; use < program->use_count; use++)
		if (pp_tail_first_on_rank(tail, use))
			by_stage[stage_base[program->uses[use].stage]++] = use;
	tail->held = PP_NEW_ARRAY(scratch, struct pp_held, held);
	tail->held_base = PP_NEW_ARRAY(scratch, uint32_t, (size_t)program->ranks + 1);
	uint32_t *next = PP_NEW_ARRAY(scratch, uint32_t, (size_t)program->ranks + 1);
	for (uint32_t i = 0; i < held; i++)
		next[pp_tail_rank_of(tail, by_stage[i]) + 1]++;
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		next[rank + 1] += next[rank];
	memcpy(tail->held_base, next, ((size_t)program->ranks + 1) * sizeof *next);
	for (uint32_t i = 0; i < held; i++)
		tail->held[next[pp_tail_rank_of(tail, by_stage[i])]++] =
		    (struct pp_held){.tensor = program->uses[by_stage[i]].tensor, .use = by_stage[i]};
}

static void fill_tables(struct pp_tail *tail)
{
	const struct pp_program *program = tail->program;
	struct pp_arena *scratch = tail->lowering->scratch;
	fill_use_base(tail);
	fill_held(tail);
	tail->state = PP_NEW_ARRAY(scratch, struct pp_tail_state, program->use_count);
	for (uint32_t use = 0; use < program->use_count; use++)
		tail->state[use] = (struct pp_tail_state){{PP_NULL, PP_NULL}, PP_NULL};
	tail->ranks = PP_NEW_ARRAY(scratch, struct pp_tail_slots, program->ranks);
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		tail->ranks[rank] = find_slots(tail, rank);
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* Uses of a tensor on one rank are summed into the first one's gradient, in use order. */
static void add_uses(const struct pp_tail *tail)
{
	const struct pp_use *uses = tail->program->uses;
	for (uint32_t tensor = 0; tensor < tail->program->tensor_count; tensor++)
		for (uint32_t first = tail->use_base[tensor]; first < tail->use_base[tensor + 1]; first++) {
			if (!pp_tail_first_on_rank(tail, first))
				continue;
			for (uint32_t use = first + 1; use < tail->use_base[tensor + 1]; use++)
				if (pp_tail_rank_of(tail, use) == pp_tail_rank_of(tail, first))
					pp_tail_emit(tail, pp_tail_rank_of(tail, first),
					             (struct pp_instr){.op = PP_OP_ADD, .a = {uses[first].grad, uses[use].grad}});
		}
}

/* The flag of instructions that act on the own shard where there are shards. */
static uint8_t shard_flag(const struct pp_tail *tail)
{
	return tail->shards ? PP_SHARD : 0;
}

/* Each tensor counts once in the norm: on the rank of its first use. Which tp coordinate counts is up to the device. */
static void square_norms(const struct pp_tail *tail)
{
	for (uint32_t tensor = 0; tensor < tail->program->tensor_count; tensor++) {
		uint32_t use = tail->use_base[tensor];
		if (use == tail->use_base[tensor + 1])
			continue;
		uint32_t rank = pp_tail_rank_of(tail, use);
		pp_tail_emit(tail, rank,
		             (struct pp_instr){.op = PP_OP_SQNORM,
		                               .flags = shard_flag(tail),
		                               .mb = tensor,
		                               .a = {tail->program->uses[use].grad, tail->ranks[rank].norms}});
	}
}

static void clip(const struct pp_tail *tail)
{
	for (uint32_t rank = 0; rank < tail->program->ranks; rank++) {
		const struct pp_tail_slots *slots = &tail->ranks[rank];
		pp_tail_emit(tail, rank,
		             (struct pp_instr){.op = PP_OP_CLIP,
		                               .sub = tail->program->train.mean,
		                               .mb = HYPER_DECAY,
		                               .a = {slots->losses, slots->norms, slots->scale}});
	}
}

static void update(const struct pp_tail *tail)
{
	const struct pp_program *program = tail->program;
	for (uint32_t use = 0; use < program->use_count; use++) {
		if (!pp_tail_first_on_rank(tail, use))
			continue;
		uint32_t tensor = program->uses[use].tensor, rank = pp_tail_rank_of(tail, use);
		const struct pp_tail_state *state = &tail->state[use];
		pp_tail_emit(tail, rank,
		             (struct pp_instr){
		                 .op = PP_OP_OPT,
		                 .sub = program->train.optimizer,
		                 .flags = shard_flag(tail),
		                 .mb = program->tensors[tensor].decay ? HYPER_DECAY : HYPER_PLAIN,
		                 .a = {program->uses[use].weight, program->uses[use].grad, state->moment[0], state->moment[1]},
		                 .extra = state->master});
	}
}

bool pp_lower_tail(struct pp_lowering *lowering, struct pp_diag *diag)
{
	struct pp_program *program = lowering->program;
	struct pp_tail tail = {
	    .lowering = lowering, .program = program, .diag = diag, .shards = program->zero && program->dp > 1};
	fill_train(program, lowering->spec);
	if (!program->tensor_count) /* nothing to train: no tail */
		return true;
	assert(program->train.hyper_count == HYPER_ROWS);
	fill_tables(&tail);
	pp_tail_groups(&tail);
	add_uses(&tail);
	if (!pp_tail_reduce_grads(&tail))
		return false;
	pp_tail_reduce_losses(&tail);
	square_norms(&tail);
	pp_tail_reduce_norms(&tail);
	clip(&tail);
	update(&tail);
	return pp_tail_gather_weights(&tail);
}

/* Of `eval`: every rank learns the losses. */
void pp_lower_eval_tail(struct pp_lowering *lowering)
{
	struct pp_tail tail = {.lowering = lowering, .program = lowering->program};
	if (!lowering->program->tensor_count)
		return;
	fill_tables(&tail);
	pp_tail_groups(&tail);
	pp_tail_reduce_losses(&tail);
}
