/* The collectives of the step tail.
 * requires: the tables of the tail.
 * ensures:  on every rank, in this order: gradients that tp coordinates see a part of are summed over tp; all gradients
 *           over dp, or scattered where the optimizer is sharded; tied ones over the ranks that use them; losses and
 *           norms over all that hold a part; weights gathered from their shards. Each post stands in the same order on
 *           all members, and at most `bucket` bytes are outstanding between one and its wait, more only for a single
 *           tensor that is larger. How posts are cut into buckets never changes what is summed with what. */
#include "tail.h"

#include <inttypes.h>
#include <string.h>

/* ---- groups ---------------------------------------------------------------------------------- */

static uint32_t add_group(struct pp_tail *tail, struct pp_group group)
{
	struct pp_program *program = tail->program;
	size_t groups = program->group_count;
	pp_group_link(tail->lowering, &group);
	*PP_PUSH(program->arena, &program->groups, &groups, &tail->group_capacity, struct pp_group) = group;
	program->group_count = (uint32_t)groups;
	return program->group_count - 1;
}

/* The group of exactly these ranks, ascending; made if there is none. */
static uint32_t group_of(struct pp_tail *tail, const uint32_t *members, uint32_t count)
{
	struct pp_program *program = tail->program;
	for (uint32_t i = 0; i < program->group_count; i++)
		if (program->groups[i].axis == PP_AXIS_PP && program->groups[i].member_count == count &&
		    !memcmp(program->groups[i].members, members, count * sizeof *members))
			return i;
	struct pp_group group = {.axis = PP_AXIS_PP, .member_count = count};
	group.members = PP_NEW_ARRAY(program->arena, uint32_t, count);
	memcpy(group.members, members, count * sizeof *members);
	return add_group(tail, group);
}

/* The group of all coordinates along tp or dp; made if there is none. */
static uint32_t group_along(struct pp_tail *tail, enum pp_axis axis)
{
	for (uint32_t i = 0; i < tail->program->group_count; i++)
		if (tail->program->groups[i].axis == axis)
			return i;
	return add_group(tail, (struct pp_group){.axis = (uint8_t)axis});
}

void pp_tail_groups(struct pp_tail *tail)
{
	const struct pp_program *program = tail->program;
	uint32_t *all = PP_NEW_ARRAY(tail->lowering->scratch, uint32_t, program->ranks);
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		all[rank] = rank;
	tail->axis_group[PP_AXIS_PP] = program->ranks > 1 ? group_of(tail, all, program->ranks) : PP_NULL;
	tail->axis_group[PP_AXIS_TP] = program->tp > 1 ? group_along(tail, PP_AXIS_TP) : PP_NULL;
	tail->axis_group[PP_AXIS_DP] = program->dp > 1 ? group_along(tail, PP_AXIS_DP) : PP_NULL;
}

/* ---- tensors over tp and dp ------------------------------------------------------------------ */

/* One collective in place for each tensor that a rank holds. */
struct sweep {
	enum pp_collective kind;
	uint32_t group;
	bool weights;      /* acts on weights, else on gradients */
	bool partial_only; /* only tensors whose gradient the tp coordinates see a part of */
};

/* Posts of a rank whose waits are owed. */
struct bucket {
	uint32_t first, count; /* collective ids */
	uint64_t bytes;
};

static void close_bucket(const struct pp_tail *tail, uint32_t rank, struct bucket *bucket)
{
	for (uint32_t i = 0; i < bucket->count; i++)
		pp_tail_emit(tail, rank, (struct pp_instr){.op = PP_OP_WAITC, .a = {bucket->first + i}});
	*bucket = (struct bucket){0};
}

static bool countable(const struct pp_tail *tail, uint32_t tensor, uint64_t elements, const char *sort,
                      const char *help)
{
	if (elements <= UINT32_MAX)
		return true;
	struct pp_message *m = pp_error(tail->diag, "E0618", PP_NO_SPAN,
	                                "%stensor %s has %" PRIu64 " elements; a collective carries at most %u", sort,
	                                tail->program->tensors[tensor].name, elements, UINT32_MAX);
	pp_help(m, "%s", help);
	return false;
}

static bool post_held(struct pp_tail *tail, uint32_t rank, const struct pp_held *held, const struct sweep *sweep,
                      struct bucket *bucket)
{
	const struct pp_program *program = tail->program;
	const struct pp_use *use = &program->uses[held->use];
	bool part = sweep->kind != PP_ALLREDUCE; /* counted by the shares of the members */
	uint64_t count = part ? pp_shard_elements(program, held->tensor) : pp_local_elements(program, held->tensor);
	enum pp_dtype dtype = sweep->weights ? (enum pp_dtype)program->tensors[held->tensor].dtype : PP_F32;
	uint64_t bytes = pp_times(pp_times(count, part ? program->dp : 1), pp_dtype_size[dtype]);
	if (!countable(tail, held->tensor, count, "", "use a larger tp, or smaller layers"))
		return false;
	if (bucket->count && pp_plus(bucket->bytes, bytes) > tail->lowering->spec->parallel.bucket)
		close_bucket(tail, rank, bucket);
	uint32_t slot = sweep->weights ? use->weight : use->grad, id = tail->next_collective++;
	pp_tail_emit(tail, rank,
	             (struct pp_instr){.op = PP_OP_COLL,
	                               .sub = (uint8_t)sweep->kind,
	                               .dtype = (uint8_t)dtype,
	                               .count = (uint32_t)count,
	                               .a = {id, sweep->group, slot, slot}});
	if (bucket->count++ == 0)
		bucket->first = id;
	bucket->bytes = pp_plus(bucket->bytes, bytes);
	return true;
}

static bool run_sweep(struct pp_tail *tail, const struct sweep *sweep)
{
	const struct pp_program *program = tail->program;
	for (uint32_t rank = 0; rank < program->ranks && sweep->group != PP_NULL; rank++) {
		struct bucket bucket = {0};
		for (uint32_t i = tail->held_base[rank]; i < tail->held_base[rank + 1]; i++) {
			bool partial = program->tensors[tail->held[i].tensor].tp_grad == PP_TP_REPLICATED_PARTIAL;
			if ((partial || !sweep->partial_only) && !post_held(tail, rank, &tail->held[i], sweep, &bucket))
				return false;
		}
		close_bucket(tail, rank, &bucket);
	}
	return true;
}

/* ---- sums over pipeline ranks ---------------------------------------------------------------- */

static void emit_allreduce(const struct pp_tail *tail, uint32_t rank, const struct pp_instr *shape, uint32_t slot)
{
	uint32_t id = tail->next_collective;
	struct pp_instr post = *shape;
	post.op = PP_OP_COLL;
	post.sub = PP_ALLREDUCE;
	post.a[0] = id;
	post.a[2] = post.a[3] = slot;
	pp_tail_emit(tail, rank, post);
	pp_tail_emit(tail, rank, (struct pp_instr){.op = PP_OP_WAITC, .a = {id}});
}

/* The ranks that use a tensor, ascending, and the grad slot of each; returns their number. */
static uint32_t find_owners(const struct pp_tail *tail, uint32_t tensor, uint32_t *members, uint32_t *grads)
{
	uint32_t count = 0;
	for (uint32_t use = tail->use_base[tensor]; use < tail->use_base[tensor + 1]; use++) {
		if (!pp_tail_first_on_rank(tail, use))
			continue;
		uint32_t rank = pp_tail_rank_of(tail, use), at = count++;
		grads[rank] = tail->program->uses[use].grad;
		for (; at && members[at - 1] > rank; at--)
			members[at] = members[at - 1];
		members[at] = rank;
	}
	return count;
}

/* Tensors used on several ranks: gradients, or the shards of them, are summed over those ranks. */
static bool reduce_ties(struct pp_tail *tail)
{
	const struct pp_program *program = tail->program;
	uint32_t *members = PP_NEW_ARRAY(tail->lowering->scratch, uint32_t, program->ranks);
	uint32_t *grads = PP_NEW_ARRAY(tail->lowering->scratch, uint32_t, program->ranks); /* by rank */
	for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++) {
		uint32_t count = find_owners(tail, tensor, members, grads);
		if (count < 2)
			continue;
		uint64_t elements = tail->shards ? pp_shard_elements(program, tensor) : pp_local_elements(program, tensor);
		if (!countable(tail, tensor, elements, "tied ", "place the layers that share it on one rank"))
			return false;
		struct pp_instr shape = {.flags = tail->shards ? PP_SHARD : 0,
		                         .dtype = PP_F32,
		                         .count = (uint32_t)elements,
		                         .a = {0, group_of(tail, members, count)}};
		for (uint32_t i = 0; i < count; i++)
			emit_allreduce(tail, members[i], &shape, grads[members[i]]);
		tail->next_collective++;
	}
	return true;
}

bool pp_tail_reduce_grads(struct pp_tail *tail)
{
	struct sweep partial = {.kind = PP_ALLREDUCE, .group = tail->axis_group[PP_AXIS_TP], .partial_only = true};
	struct sweep all = {.kind = tail->shards ? PP_REDUCESCATTER : PP_ALLREDUCE, .group = tail->axis_group[PP_AXIS_DP]};
	return run_sweep(tail, &partial) && run_sweep(tail, &all) && reduce_ties(tail);
}

/* Over an axis on all ranks: losses or norms. */
static void reduce_axis(struct pp_tail *tail, enum pp_axis axis, uint64_t count, bool norms)
{
	uint32_t group = tail->axis_group[axis];
	if (group == PP_NULL)
		return;
	struct pp_instr shape = {.dtype = PP_F64, .count = (uint32_t)count, .a = {0, group}};
	for (uint32_t rank = 0; rank < tail->program->ranks; rank++)
		emit_allreduce(tail, rank, &shape, norms ? tail->ranks[rank].norms : tail->ranks[rank].losses);
	tail->next_collective++;
}

/* Every tp coordinate has computed the same losses. */
void pp_tail_reduce_losses(struct pp_tail *tail)
{
	reduce_axis(tail, PP_AXIS_PP, 2 * (uint64_t)tail->program->microbatches, false);
	reduce_axis(tail, PP_AXIS_DP, 2 * (uint64_t)tail->program->microbatches, false);
}

/* Shards first: then a sharded norm adds in the same order as one that is not, which goes through a tensor shard by
 * shard, and both have the same bits. */
void pp_tail_reduce_norms(struct pp_tail *tail)
{
	if (tail->shards)
		reduce_axis(tail, PP_AXIS_DP, tail->program->tensor_count, true);
	reduce_axis(tail, PP_AXIS_TP, tail->program->tensor_count, true);
	reduce_axis(tail, PP_AXIS_PP, tail->program->tensor_count, true);
}

bool pp_tail_gather_weights(struct pp_tail *tail)
{
	struct sweep gather = {
	    .kind = PP_ALLGATHER, .group = tail->shards ? tail->axis_group[PP_AXIS_DP] : PP_NULL, .weights = true};
	return run_sweep(tail, &gather);
}
