/* V8: collectives of the step tail.
 *
 * requires: pp_prove_match: the members of a group on the pp axis post the same kind, type and count.
 * ensures:  a collective works on what a member holds of one value, all of it and in its type, and on nothing that it
 *           would spoil: `allreduce` sums whole gradients, losses and norms, or gradients' own shards; where the
 *           optimizer is sharded, `reducescatter` over dp leaves the own shard of a gradient, and `allgather` over dp
 *           makes weights whole again. On the symbolic axes all coordinates run this same stream. */
#include "grad.h"

#include <inttypes.h>

bool pp_grad_shards(const struct pp_grad *g)
{
	return g->proof->program->zero && g->proof->program->dp > 1;
}

/* ---- what a post may act on ------------------------------------------------------------------ */

static enum pp_axis axis_of(const struct pp_grad *g, const struct pp_instr *instr)
{
	return (enum pp_axis)g->proof->program->groups[instr->a[1]].axis;
}

static bool one_value(const struct pp_grad *g, const struct pp_instr *instr)
{
	uint32_t source = instr->a[2], target = instr->a[3], slots = g->proof->program->rank[g->rank].slot_count;
	if (source >= slots || target >= slots || pp_grad_slot(g, source)->class != pp_grad_slot(g, target)->class ||
	    pp_grad_slot(g, source)->tensor != pp_grad_slot(g, target)->tensor) {
		pp_grad_error(g, pp_arena_printf(g->proof->arena, "goes from %s to %s: not the same class and tensor",
		                                 pp_proof_slot(g->proof, g->rank, source),
		                                 pp_proof_slot(g->proof, g->rank, target)));
		return false;
	}
	enum pp_slot_class class = (enum pp_slot_class)pp_grad_slot(g, source)->class;
	bool of_tensor = class == PP_SLOT_GRAD || class == PP_SLOT_WEIGHT;
	if (!of_tensor || pp_grad_slot(g, source)->tensor < g->proof->program->tensor_count)
		return true;
	pp_grad_error(g, pp_arena_printf(g->proof->arena, "works on %s, which belongs to no tensor",
	                                 pp_proof_slot(g->proof, g->rank, source)));
	return false;
}

/* The kinds of collective that have a meaning for a class of slots. */
static bool kind_fits(const struct pp_grad *g, const struct pp_instr *instr)
{
	enum pp_slot_class class = (enum pp_slot_class)pp_grad_slot(g, instr->a[2])->class;
	bool over_dp = axis_of(g, instr) == PP_AXIS_DP;
	switch ((enum pp_collective)instr->sub) {
	case PP_ALLREDUCE:
		if (class == PP_SLOT_GRAD && over_dp && pp_grad_shards(g)) {
			pp_grad_error(g, "sums whole gradients over dp, where each coordinate updates its own shard only: "
			                 "this wants a reducescatter");
			return false;
		}
		if (class == PP_SLOT_GRAD || class == PP_SLOT_LOSSES || class == PP_SLOT_NORMS)
			return true;
		break;
	case PP_REDUCESCATTER:
	case PP_ALLGATHER:
		if (!over_dp || !pp_grad_shards(g)) {
			pp_grad_error(g, pp_arena_printf(g->proof->arena,
			                                 "is over %s%s; only a sharded optimizer scatters and gathers, over dp",
			                                 pp_axis_name[axis_of(g, instr)],
			                                 over_dp ? ", but the program does not say `zero 1` with dp > 1" : ""));
			return false;
		}
		if (class == (instr->sub == PP_ALLGATHER ? PP_SLOT_WEIGHT : PP_SLOT_GRAD))
			return true;
		break;
	case PP_COLLECTIVE_COUNT:
		break;
	}
	pp_grad_error(g, pp_arena_printf(g->proof->arena,
	                                 "works on %s; the step tail may only allreduce grad, losses and norms, "
	                                 "reducescatter grad and allgather weight",
	                                 pp_proof_slot(g->proof, g->rank, instr->a[2])));
	return false;
}

bool pp_grad_part(const struct pp_grad *g, const struct pp_instr *instr, const struct pp_sum *sum, uint32_t slot)
{
	bool flagged = instr->flags & PP_SHARD;
	if (flagged == sum->sharded)
		return true;
	const char *name = pp_proof_slot(g->proof, g->rank, slot);
	if (flagged) {
		pp_grad_error(g, pp_arena_printf(g->proof->arena, "carries `shard`, but %s is whole", name));
		return false;
	}
	struct pp_message *message =
	    pp_grad_error(g, pp_arena_printf(g->proof->arena, "lacks `shard`: of %s only the own shard is left", name));
	pp_proof_also(g->proof, message, g->rank, sum->writer, "since here");
	return false;
}

/* All elements that a member holds of the value, or those of its shard. */
static bool count_fits(const struct pp_grad *g, const struct pp_instr *instr)
{
	const struct pp_program *program = g->proof->program;
	const struct pp_slot *slot = pp_grad_slot(g, instr->a[2]);
	enum pp_slot_class class = (enum pp_slot_class)slot->class;
	bool shard = instr->sub != PP_ALLREDUCE || instr->flags & PP_SHARD;
	uint64_t wanted = shard ? pp_shard_elements(program, slot->tensor) : pp_grad_elements(g, class, slot->tensor);
	enum pp_dtype dtype = class == PP_SLOT_GRAD     ? PP_F32
	                      : class == PP_SLOT_WEIGHT ? (enum pp_dtype)program->tensors[slot->tensor].dtype
	                                                : PP_F64;
	if (instr->count == wanted && instr->dtype == dtype)
		return true;
	const char *verb[] = {[PP_ALLREDUCE] = "sums", [PP_ALLGATHER] = "gathers", [PP_REDUCESCATTER] = "scatters"};
	pp_grad_error(g, pp_arena_printf(g->proof->arena, "%s %s*%" PRIu32 ", but %s %s %s*%" PRIu64, verb[instr->sub],
	                                 pp_dtype_name[instr->dtype], instr->count,
	                                 pp_proof_slot(g->proof, g->rank, instr->a[2]), shard ? "has shards of" : "holds",
	                                 pp_dtype_name[dtype], wanted));
	return false;
}

/* Shares of a slot stand where their coordinate's shard stands: both ends are the same slot. */
static bool in_place(const struct pp_grad *g, const struct pp_instr *instr)
{
	bool shares = instr->sub != PP_ALLREDUCE || instr->flags & PP_SHARD;
	if (!shares || instr->a[2] == instr->a[3])
		return true;
	pp_grad_error(g, pp_arena_printf(g->proof->arena, "goes from %s to %s: shards stay in their slot",
	                                 pp_proof_slot(g->proof, g->rank, instr->a[2]),
	                                 pp_proof_slot(g->proof, g->rank, instr->a[3])));
	return false;
}

/* ---- sums ------------------------------------------------------------------------------------ */

void pp_grad_wake(struct pp_grad *g, uint32_t rank)
{
	if (g->in_work[rank])
		return;
	g->in_work[rank] = true;
	g->work[g->work_count++] = rank;
}

static bool joins(struct pp_grad *g, const struct pp_instr *instr, uint32_t joint, const struct pp_sum *source)
{
	struct pp_reduction *reduction = &g->reduction[joint];
	const struct pp_slot *slot = pp_grad_slot(g, instr->a[2]);
	if (reduction->arrived++ == 0)
		*reduction = (struct pp_reduction){.arrived = 1,
		                                   .set = PP_SET_EMPTY,
		                                   .class = slot->class,
		                                   .over = source->over,
		                                   .sharded = source->sharded,
		                                   .tensor = slot->tensor};
	if (reduction->class == slot->class && reduction->tensor == slot->tensor && reduction->over == source->over &&
	    reduction->sharded == source->sharded)
		return true;
	struct pp_message *message =
	    pp_grad_error(g, pp_arena_printf(g->proof->arena, "puts %s into a sum that others fill with something else",
	                                     pp_proof_slot(g->proof, g->rank, instr->a[2])));
	pp_proof_also(g->proof, message, g->proof->joints[joint].first_rank, g->proof->joints[joint].first_instr,
	              "another member");
	return false;
}

static bool over_once(struct pp_grad *g, struct pp_reduction *reduction, enum pp_axis axis)
{
	if (axis == PP_AXIS_PP)
		return true;
	if (reduction->over >> axis & 1) {
		pp_grad_error(g, pp_arena_printf(g->proof->arena, "sums over %s a second time", pp_axis_name[axis]));
		return false;
	}
	reduction->over |= (uint8_t)(1u << axis);
	reduction->set = pp_set_over(&g->sets, reduction->set, axis);
	return true;
}

static bool post_sum(struct pp_grad *g, const struct pp_instr *instr, uint32_t joint)
{
	struct pp_sum *source = pp_grad_read(g, instr->a[2]), *target = &g->sum[g->rank][instr->a[3]];
	if (!source || !pp_grad_part(g, instr, source, instr->a[2]) || !count_fits(g, instr) || !in_place(g, instr) ||
	    !joins(g, instr, joint, source))
		return false;
	struct pp_reduction *reduction = &g->reduction[joint];
	const struct pp_group *group = &g->proof->program->groups[instr->a[1]];
	reduction->set = pp_set_union(&g->sets, reduction->set, source->set);
	reduction->sharded |= instr->sub == PP_REDUCESCATTER;
	if (!over_once(g, reduction, axis_of(g, instr)))
		return false;
	source->in_flight = target->in_flight = true;
	source->writer = target->writer = g->at;
	if (reduction->arrived == g->proof->joints[joint].members && group->axis == PP_AXIS_PP)
		for (uint32_t i = 0; i < group->member_count; i++)
			pp_grad_wake(g, group->members[i]);
	return true;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Weights are whole but between the update of the own shard and the gathering. */
static bool post_gather(struct pp_grad *g, const struct pp_instr *instr, uint32_t joint)
{
	struct pp_sum *weight = &g->sum[g->rank][instr->a[2]];
	if (!pp_grad_settled(g, instr->a[2]) || !count_fits(g, instr) || !in_place(g, instr))
		return false;
	if (instr->flags & PP_SHARD) {
		pp_grad_error(g, "carries `shard`, but gathers all shards");
		return false;
	}
	if (!weight->sharded) {
		pp_grad_error(g, pp_arena_printf(g->proof->arena,
		                                 "gathers %s, of which no shard has been updated since it was "
		                                 "whole",
		                                 pp_proof_slot(g->proof, g->rank, instr->a[2])));
		return false;
	}
	g->reduction[joint] = (struct pp_reduction){.arrived = 1, .class = PP_SLOT_WEIGHT};
	weight->in_flight = true;
	weight->writer = g->at;
	return true;
}

/* ---- the two instructions -------------------------------------------------------------------- */

bool pp_grad_post(struct pp_grad *g, const struct pp_instr *instr, uint32_t joint)
{
	if (!one_value(g, instr) || !kind_fits(g, instr))
		return false;
	if (instr->sub == PP_ALLGATHER)
		return post_gather(g, instr, joint);
	return pp_grad_settled(g, instr->a[3]) &&
	       pp_grad_losses_open(g, (enum pp_slot_class)pp_grad_slot(g, instr->a[3])->class) && post_sum(g, instr, joint);
}

bool pp_grad_arrived(const struct pp_grad *g, uint32_t joint)
{
	return g->reduction[joint].arrived == g->proof->joints[joint].members;
}

void pp_grad_complete(struct pp_grad *g, const struct pp_tail_event *event)
{
	const struct pp_instr *instr = pp_proof_instr(g->proof, g->rank, event->post);
	const struct pp_reduction *reduction = &g->reduction[event->joint];
	g->sum[g->rank][instr->a[2]].in_flight = false;
	g->sum[g->rank][instr->a[3]] = (struct pp_sum){.set = reduction->set,
	                                               .over = reduction->over,
	                                               .sharded = reduction->sharded,
	                                               .defined = true,
	                                               .writer = event->post};
}
