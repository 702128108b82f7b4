/* V8: each update sees the gradients of all uses over all microbatches once, each weight is updated once.
 *
 * requires: pp_prove_posts, pp_prove_match, pp_prove_flow, pp_prove_order.
 * ensures:  every rank that holds a tensor updates it exactly once, with the same rule and hyper-parameters, from the
 *           gradients of every use of it, each over all microbatches and each once; `clip` comes before, once per
 *           rank, and sees the loss of every microbatch and the norm of every tensor once, over all ranks. `eval`
 *           changes nothing but losses, and leaves those of every microbatch on every rank. */
#include "grad.h"

#include <inttypes.h>

/* ---- tables ---------------------------------------------------------------------------------- */

static bool table_error(const struct pp_grad *g, const char *text)
{
	pp_error(g->proof->diag, "V8", PP_NO_SPAN, "%s", text);
	return false;
}

static bool use_slots_fit(const struct pp_grad *g, uint32_t use)
{
	const struct pp_program *program = g->proof->program;
	const struct pp_use *u = &program->uses[use];
	const struct pp_rank *rank = &program->rank[program->stages[u->stage].rank];
	bool named = u->weight < rank->slot_count && u->grad < rank->slot_count;
	const struct pp_slot *weight = named ? &rank->slots[u->weight] : NULL, *grad = named ? &rank->slots[u->grad] : NULL;
	if (!named || weight->class != PP_SLOT_WEIGHT || grad->class != PP_SLOT_GRAD || weight->tensor != u->tensor ||
	    grad->tensor != u->tensor)
		return table_error(g, pp_arena_printf(g->proof->arena,
		                                      "use %" PRIu32 " of %s by stage %" PRIu32
		                                      " does not name a weight and a grad slot of this tensor",
		                                      use, pp_grad_tensor_text(g, u->tensor), u->stage));
	uint64_t count = pp_grad_elements(g, PP_SLOT_GRAD, u->tensor);
	if (grad->bytes / sizeof(float) < count || weight->bytes / pp_dtype_size[program->tensors[u->tensor].dtype] < count)
		return table_error(g,
		                   pp_arena_printf(g->proof->arena,
		                                   "the weight or grad slot of %s on rank %" PRIu32
		                                   " is smaller than its %" PRIu64 " elements",
		                                   pp_grad_tensor_text(g, u->tensor), program->stages[u->stage].rank, count));
	return true;
}

/* Two uses of a tensor on one rank share the weight slot, never the grad slot. */
static bool use_slots_distinct(struct pp_grad *g, uint32_t use)
{
	const struct pp_program *program = g->proof->program;
	const struct pp_use *u = &program->uses[use];
	uint32_t rank = program->stages[u->stage].rank, *owner = &g->use_of[rank][u->grad];
	if (*owner != PP_NULL)
		return table_error(g, pp_arena_printf(g->proof->arena,
		                                      "two uses of %s accumulate in grad.%" PRIu32 " of rank %" PRIu32
		                                      ": each needs its own",
		                                      pp_grad_tensor_text(g, u->tensor), u->grad, rank));
	*owner = use;
	g->sum[rank][u->grad] = (struct pp_sum){.set = pp_set_leaf(&g->sets, use), .defined = true, .writer = PP_NULL};
	return true;
}

/* Of a tensor, a rank has one slot of this class at most. */
static bool one_slot(const struct pp_grad *g, enum pp_slot_class class)
{
	const struct pp_program *program = g->proof->program;
	uint32_t *seen_rank = PP_NEW_ARRAY(g->proof->arena, uint32_t, program->tensor_count),
	         *seen_slot = PP_NEW_ARRAY(g->proof->arena, uint32_t, program->tensor_count);
	for (uint32_t r = 0; r < program->ranks; r++)
		for (uint32_t i = 0; i < program->rank[r].slot_count; i++) {
			const struct pp_slot *slot = &program->rank[r].slots[i];
			if (slot->class != class || slot->tensor >= program->tensor_count)
				continue;
			if (seen_rank[slot->tensor] == r + 1)
				return table_error(g,
				                   pp_arena_printf(g->proof->arena,
				                                   "rank %" PRIu32 " holds %s twice, in %s.%" PRIu32 " and %s.%" PRIu32,
				                                   r, pp_grad_tensor_text(g, slot->tensor), pp_slot_class_name[class],
				                                   seen_slot[slot->tensor], pp_slot_class_name[class], i));
			seen_rank[slot->tensor] = r + 1;
			seen_slot[slot->tensor] = i;
		}
	return true;
}

static bool tables_good(struct pp_grad *g)
{
	const struct pp_program *program = g->proof->program;
	for (uint32_t u = 0; u < program->use_count; u++) {
		if (u && program->uses[u - 1].tensor > program->uses[u].tensor)
			return table_error(
			    g, pp_arena_printf(g->proof->arena, "use %" PRIu32 " is out of order: uses are sorted by tensor", u));
		if (!use_slots_fit(g, u) || !use_slots_distinct(g, u))
			return false;
		g->first_use[program->uses[u].tensor + 1]++;
	}
	for (uint32_t t = 0; t < program->tensor_count; t++) {
		if (!g->first_use[t + 1])
			return table_error(g, pp_arena_printf(g->proof->arena, "no stage uses %s", pp_grad_tensor_text(g, t)));
		g->first_use[t + 1] += g->first_use[t];
	}
	return one_slot(g, PP_SLOT_WEIGHT) && one_slot(g, PP_SLOT_MASTER);
}

/* The one losses slot of the rank that computes the loss starts out as what its forwards write. */
static bool find_losses(struct pp_grad *g)
{
	const struct pp_program *program = g->proof->program;
	for (uint32_t s = 0; s < program->stage_count; s++) {
		if (!program->stages[s].loads_labels)
			continue;
		if (g->loss_stage != PP_NULL)
			return table_error(g, pp_arena_printf(g->proof->arena,
			                                      "stages %" PRIu32 " and %" PRIu32
			                                      " both load labels: one stage computes the loss of a microbatch",
			                                      g->loss_stage, s));
		g->loss_stage = s;
	}
	if (g->loss_stage == PP_NULL)
		return true;
	uint32_t r = program->stages[g->loss_stage].rank, found = 0;
	for (uint32_t i = 0; i < program->rank[r].slot_count; i++) {
		if (program->rank[r].slots[i].class != PP_SLOT_LOSSES)
			continue;
		found++;
		g->sum[r][i] = (struct pp_sum){.set = pp_set_leaf(&g->sets, 0), .defined = true, .writer = PP_NULL};
		if (program->rank[r].slots[i].bytes / sizeof(double) < 2 * (uint64_t)program->microbatches)
			return table_error(g, pp_arena_printf(g->proof->arena,
			                                      "losses.%" PRIu32 " of rank %" PRIu32 " has no room for %" PRIu32
			                                      " microbatches",
			                                      i, r, program->microbatches));
	}
	if (!found && !program->tensor_count)
		g->loss_stage = PP_NULL; /* nothing trains, nobody asks for the loss */
	if (found == 1 || g->loss_stage == PP_NULL)
		return true;
	return table_error(g, pp_arena_printf(g->proof->arena,
	                                      "rank %" PRIu32 " computes the loss and has %" PRIu32
	                                      " losses slots, it needs one",
	                                      r, found));
}

/* ---- the property ---------------------------------------------------------------------------- */

static uint32_t *null_array(struct pp_arena *arena, uint32_t count)
{
	uint32_t *array = PP_NEW_ARRAY(arena, uint32_t, count);
	for (uint32_t i = 0; i < count; i++)
		array[i] = PP_NULL;
	return array;
}

static struct pp_grad grad_begin(struct pp_proof *proof)
{
	const struct pp_program *program = proof->program;
	struct pp_arena *arena = proof->arena;
	uint32_t members = program->use_count > program->tensor_count ? program->use_count : program->tensor_count;
	struct pp_grad g = {.proof = proof, .loss_stage = PP_NULL, .first_clip = {.rank = PP_NULL}};
	g.sets = pp_sets_begin(arena, members);
	g.sum = PP_NEW_ARRAY(arena, struct pp_sum *, program->ranks);
	g.update = PP_NEW_ARRAY(arena, uint32_t *, program->ranks);
	g.use_of = PP_NEW_ARRAY(arena, uint32_t *, program->ranks);
	g.first_use = PP_NEW_ARRAY(arena, uint32_t, (size_t)program->tensor_count + 1);
	g.first_update = PP_NEW_ARRAY(arena, struct pp_update, program->tensor_count);
	for (uint32_t t = 0; t < program->tensor_count; t++)
		g.first_update[t].rank = PP_NULL;
	g.clipped = null_array(arena, program->ranks);
	g.reduction = PP_NEW_ARRAY(arena, struct pp_reduction, proof->joint_count);
	g.cursor = PP_NEW_ARRAY(arena, uint32_t, program->ranks);
	g.work = PP_NEW_ARRAY(arena, uint32_t, program->ranks);
	g.in_work = PP_NEW_ARRAY(arena, bool, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++) {
		g.sum[r] = PP_NEW_ARRAY(arena, struct pp_sum, program->rank[r].slot_count);
		g.update[r] = null_array(arena, program->rank[r].slot_count);
		g.use_of[r] = null_array(arena, program->rank[r].slot_count);
	}
	return g;
}

static bool all_updated(const struct pp_grad *g)
{
	const struct pp_program *program = g->proof->program;
	for (uint32_t u = 0; u < program->use_count; u++) {
		uint32_t rank = program->stages[program->uses[u].stage].rank;
		if (g->update[rank][program->uses[u].weight] == PP_NULL)
			return table_error(
			    g, pp_arena_printf(g->proof->arena,
			                       "rank %" PRIu32 " never updates %s: its stream has no `opt` for weight.%" PRIu32,
			                       rank, pp_grad_tensor_text(g, program->uses[u].tensor), program->uses[u].weight));
	}
	return true;
}

/* No step ends with weights of which each dp coordinate has updated its own shard only. */
static bool all_gathered(const struct pp_grad *g)
{
	const struct pp_program *program = g->proof->program;
	for (uint32_t r = 0; r < program->ranks; r++)
		for (uint32_t i = 0; i < program->rank[r].slot_count; i++) {
			if (program->rank[r].slots[i].class != PP_SLOT_WEIGHT || !g->sum[r][i].sharded)
				continue;
			struct pp_message *message =
			    pp_proof_error(g->proof, "V8", r, g->update[r][i],
			                   "updates the own shard of weight.%" PRIu32 ", and no allgather over dp follows", i);
			pp_help(message, "gather the weights before the step ends");
			return false;
		}
	return true;
}

/* All ranks learn whether the step counts, so all go on or stop alike. */
static bool all_clipped(const struct pp_grad *g)
{
	const struct pp_program *program = g->proof->program;
	for (uint32_t r = 0; r < program->ranks && program->tensor_count; r++)
		if (g->clipped[r] == PP_NULL)
			return table_error(g, pp_arena_printf(g->proof->arena,
			                                      "rank %" PRIu32 " runs no `clip`: it does not learn whether the "
			                                      "step counts, and does not end it with the others",
			                                      r));
	return true;
}

/* All ranks learn the loss of an evaluation. */
static bool all_told(struct pp_grad *g)
{
	const struct pp_program *program = g->proof->program;
	if (g->loss_stage == PP_NULL)
		return true;
	for (g->rank = 0; g->rank < program->ranks; g->rank++)
		for (uint32_t i = 0; i < program->rank[g->rank].slot_count; i++)
			if (program->rank[g->rank].slots[i].class == PP_SLOT_LOSSES && !pp_grad_losses_known(g, i))
				return table_error(
				    g, pp_arena_printf(g->proof->arena,
				                       "rank %" PRIu32 " does not learn the losses of `%s`: at the end losses.%" PRIu32
				                       " does not hold those of stage %" PRIu32 ", each once, summed over all ranks",
				                       g->rank, g->proof->named->name, i, g->loss_stage));
	return true;
}

bool pp_prove_grad(struct pp_proof *proof)
{
	struct pp_grad g = grad_begin(proof);
	if (!tables_good(&g) || !find_losses(&g))
		return false;
	for (uint32_t r = proof->program->ranks; r-- > 0;)
		pp_grad_wake(&g, r);
	bool good = true;
	while (g.work_count && good) {
		g.rank = g.work[--g.work_count];
		g.in_work[g.rank] = false;
		good = pp_grad_advance(&g);
	}
	if (!good)
		return false;
	return proof->forward_only ? all_told(&g) : all_updated(&g) && all_clipped(&g) && all_gathered(&g);
}
