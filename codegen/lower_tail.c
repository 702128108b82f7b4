/* R9: what stands before the first and after the last compute of a step.
 * requires: tables of tensors, uses (sorted by tensor, then use order) and static slots; `spec->train`.
 * ensures:  program->train with hyper-parameter rows, program->groups, and on every rank of a model that trains: `zero`
 * of losses and norms first; at the end sums of tied gradients on the rank and over ranks, losses, norm, clip, updates.
 * Each collective is followed by its wait and stands in the same order on all members, so streams stay subsequences of
 * one global order. */
#include "lowering.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* Slots of one rank that the tail needs. */
struct rank_slots {
	uint32_t losses, norms, scale;
};

enum { HYPER_DECAY, HYPER_PLAIN, HYPER_ROWS }; /* of spec->train.hypers */

struct tail {
	struct pp_lowering *lowering;
	struct pp_program *program;
	struct rank_slots *ranks;
	uint32_t *use_base;    /* [tensors + 1]: uses of each tensor */
	uint32_t (*moment)[2]; /* [uses]: optimizer state, given to the first use on a rank; PP_NULL: none */
	uint32_t next_collective;
};

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
			if (class == PP_SLOT_LOSSES || class == PP_SLOT_NORMS)
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

static void fill_use_base(struct tail *tail)
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

static uint32_t rank_of(const struct tail *tail, uint32_t use)
{
	return tail->program->stages[tail->program->uses[use].stage].rank;
}

/* Is this the first use of its tensor on its rank? A tensor has as many uses as the model has layers that tie it: few.
 */
static bool is_first_on_rank(const struct tail *tail, uint32_t use)
{
	for (uint32_t earlier = tail->use_base[tail->program->uses[use].tensor]; earlier < use; earlier++)
		if (rank_of(tail, earlier) == rank_of(tail, use))
			return false;
	return true;
}

static void note_moment(const struct tail *tail, uint32_t rank, uint32_t slot)
{
	uint32_t tensor = tail->program->rank[rank].slots[slot].tensor;
	uint32_t use = tail->use_base[tensor];
	while (rank_of(tail, use) != rank)
		use++;
	assert(use < tail->use_base[tensor + 1]);
	tail->moment[use][tail->moment[use][0] == PP_NULL ? 0 : 1] = slot;
}

static struct rank_slots find_slots(const struct tail *tail, uint32_t rank)
{
	const struct pp_rank *table = &tail->program->rank[rank];
	struct rank_slots found = {.losses = PP_NULL, .norms = PP_NULL, .scale = PP_NULL};
	for (uint32_t slot = 0; slot < table->slot_count && pp_slot_is_static(table->slots[slot].class); slot++) {
		uint8_t class = table->slots[slot].class;
		if (class == PP_SLOT_LOSSES)
			found.losses = slot;
		else if (class == PP_SLOT_NORMS)
			found.norms = slot;
		else if (class == PP_SLOT_SCALE)
			found.scale = slot;
		else if (class == PP_SLOT_MOMENT)
			note_moment(tail, rank, slot);
	}
	assert(found.losses != PP_NULL && found.norms != PP_NULL && found.scale != PP_NULL);
	return found;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static struct pp_group make_group(const struct tail *tail, const uint32_t *members, uint32_t count)
{
	struct pp_group group = {.axis = PP_AXIS_PP, .member_count = count};
	group.members = PP_NEW_ARRAY(tail->program->arena, uint32_t, count);
	memcpy(group.members, members, count * sizeof *members);
	for (uint32_t i = 0; i < count; i++) { /* a ring is as fast as its slowest link */
		struct pp_link link = pp_link_between(&tail->lowering->spec->cluster, members[i], members[(i + 1) % count]);
		if (link.latency > group.latency)
			group.latency = link.latency;
		if (link.bandwidth && (!group.bandwidth || link.bandwidth < group.bandwidth))
			group.bandwidth = link.bandwidth;
	}
	return group;
}

/* The group of exactly these ranks, ascending; made if there is none. */
static uint32_t group_of(struct tail *tail, const uint32_t *members, uint32_t count, size_t *capacity)
{
	struct pp_program *program = tail->program;
	for (uint32_t i = 0; i < program->group_count; i++)
		if (program->groups[i].member_count == count &&
		    !memcmp(program->groups[i].members, members, count * sizeof *members))
			return i;
	size_t groups = program->group_count;
	*PP_PUSH(program->arena, &program->groups, &groups, capacity, struct pp_group) = make_group(tail, members, count);
	program->group_count = (uint32_t)groups;
	return program->group_count - 1;
}

/* ---- instructions ---------------------------------------------------------------------------- */

static void emit(const struct tail *tail, uint32_t rank, struct pp_instr instr)
{
	pp_lowering_emit(tail->lowering, rank, &instr, PP_NULL);
}

static void emit_allreduce(const struct tail *tail, uint32_t rank, uint32_t group, enum pp_dtype dtype, uint32_t count,
                           uint32_t slot)
{
	uint32_t id = tail->next_collective;
	emit(tail, rank,
	     (struct pp_instr){.op = PP_OP_COLL,
	                       .sub = PP_ALLREDUCE,
	                       .dtype = (uint8_t)dtype,
	                       .count = count,
	                       .a = {id, group, slot, slot}});
	emit(tail, rank, (struct pp_instr){.op = PP_OP_WAITC, .a = {id}});
}

/* Uses of a tensor on one rank are summed into the first one's gradient, in use order. */
static void add_uses(const struct tail *tail)
{
	const struct pp_use *uses = tail->program->uses;
	for (uint32_t tensor = 0; tensor < tail->program->tensor_count; tensor++)
		for (uint32_t first = tail->use_base[tensor]; first < tail->use_base[tensor + 1]; first++) {
			if (!is_first_on_rank(tail, first))
				continue;
			for (uint32_t use = first + 1; use < tail->use_base[tensor + 1]; use++)
				if (rank_of(tail, use) == rank_of(tail, first))
					emit(tail, rank_of(tail, first),
					     (struct pp_instr){.op = PP_OP_ADD, .a = {uses[first].grad, uses[use].grad}});
		}
}

static bool element_count(const struct tail *tail, uint32_t tensor, uint32_t *count, struct pp_diag *diag)
{
	const struct pp_tensor *info = &tail->program->tensors[tensor];
	uint64_t elements = (uint64_t)info->rows * info->columns;
	*count = (uint32_t)elements;
	if (elements <= UINT32_MAX)
		return true;
	struct pp_message *m =
	    pp_error(diag, "E0618", PP_NO_SPAN, "tied tensor %s has %" PRIu64 " elements; a collective carries at most %u",
	             info->name, elements, UINT32_MAX);
	pp_help(m, "place the layers that share it on one rank");
	return false;
}

/* Tensors used on several ranks: gradients are summed over those ranks. */
static bool reduce_ties(struct tail *tail, size_t *group_capacity, struct pp_diag *diag)
{
	struct pp_program *program = tail->program;
	uint32_t *members = PP_NEW_ARRAY(tail->lowering->scratch, uint32_t, program->ranks);
	uint32_t *grads = PP_NEW_ARRAY(tail->lowering->scratch, uint32_t, program->ranks); /* by rank */
	for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++) {
		uint32_t member_count = 0, count;
		for (uint32_t use = tail->use_base[tensor]; use < tail->use_base[tensor + 1]; use++) {
			if (!is_first_on_rank(tail, use))
				continue;
			uint32_t rank = rank_of(tail, use), at = member_count++;
			grads[rank] = program->uses[use].grad;
			for (; at && members[at - 1] > rank; at--)
				members[at] = members[at - 1];
			members[at] = rank;
		}
		if (member_count < 2)
			continue;
		if (!element_count(tail, tensor, &count, diag))
			return false;
		uint32_t group = group_of(tail, members, member_count, group_capacity);
		for (uint32_t i = 0; i < member_count; i++)
			emit_allreduce(tail, members[i], group, PP_F32, count, grads[members[i]]);
		tail->next_collective++;
	}
	return true;
}

static void reduce_world(struct tail *tail, uint32_t world, uint32_t count, bool norms)
{
	if (tail->program->ranks == 1)
		return;
	for (uint32_t rank = 0; rank < tail->program->ranks; rank++)
		emit_allreduce(tail, rank, world, PP_F64, count, norms ? tail->ranks[rank].norms : tail->ranks[rank].losses);
	tail->next_collective++;
}

/* Each tensor counts once in the norm: on the rank of its first use. */
static void square_norms(const struct tail *tail)
{
	for (uint32_t tensor = 0; tensor < tail->program->tensor_count; tensor++) {
		uint32_t use = tail->use_base[tensor];
		if (use == tail->use_base[tensor + 1])
			continue;
		uint32_t rank = rank_of(tail, use);
		emit(tail, rank,
		     (struct pp_instr){
		         .op = PP_OP_SQNORM, .mb = tensor, .a = {tail->program->uses[use].grad, tail->ranks[rank].norms}});
	}
}

static void clip(const struct tail *tail)
{
	for (uint32_t rank = 0; rank < tail->program->ranks; rank++) {
		const struct rank_slots *slots = &tail->ranks[rank];
		emit(tail, rank,
		     (struct pp_instr){.op = PP_OP_CLIP,
		                       .sub = tail->program->train.mean,
		                       .mb = HYPER_DECAY,
		                       .a = {slots->losses, slots->norms, slots->scale}});
	}
}

static void update(const struct tail *tail)
{
	const struct pp_program *program = tail->program;
	for (uint32_t use = 0; use < program->use_count; use++) {
		if (!is_first_on_rank(tail, use))
			continue;
		uint32_t tensor = program->uses[use].tensor, rank = rank_of(tail, use);
		const uint32_t *moment = tail->moment[use];
		emit(tail, rank,
		     (struct pp_instr){.op = PP_OP_OPT,
		                       .sub = program->train.optimizer,
		                       .mb = program->tensors[tensor].decay ? HYPER_DECAY : HYPER_PLAIN,
		                       .a = {program->uses[use].weight, program->uses[use].grad, moment[0], moment[1]}});
	}
}

bool pp_lower_tail(struct pp_lowering *lowering, struct pp_diag *diag)
{
	struct pp_program *program = lowering->program;
	struct tail tail = {.lowering = lowering, .program = program};
	fill_train(program, lowering->spec);
	if (!program->tensor_count) /* nothing to train: no tail */
		return true;
	assert(program->train.hyper_count == HYPER_ROWS);
	fill_use_base(&tail);
	tail.moment = pp_arena_alloc(lowering->scratch, program->use_count, sizeof *tail.moment);
	memset(tail.moment, 0xff, program->use_count * sizeof *tail.moment);
	tail.ranks = PP_NEW_ARRAY(lowering->scratch, struct rank_slots, program->ranks);
	uint32_t *all = PP_NEW_ARRAY(lowering->scratch, uint32_t, program->ranks);
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		tail.ranks[rank] = find_slots(&tail, rank);
		all[rank] = rank;
	}
	size_t group_capacity = 0;
	uint32_t world = program->ranks > 1 ? group_of(&tail, all, program->ranks, &group_capacity) : PP_NULL;
	add_uses(&tail);
	if (!reduce_ties(&tail, &group_capacity, diag))
		return false;
	reduce_world(&tail, world, 2 * program->microbatches, false);
	square_norms(&tail);
	reduce_world(&tail, world, program->tensor_count, true);
	clip(&tail);
	update(&tail);
	return true;
}
