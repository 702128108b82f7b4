/* V8: the instructions of the step tail as algebra over contributions.
 *
 * The value of a grad, losses or norms slot is a multiset of contributions: the uses of the tensor, the loss stage, the
 * tensors. `add` and a sum over a group unite them; `sqnorm`, `clip` and `opt` demand each member exactly once. */
#include "grad.h"

#include <inttypes.h>

/* ---- reports --------------------------------------------------------------------------------- */

struct pp_message *pp_grad_error(const struct pp_grad *g, const char *text)
{
	return pp_proof_error(g->proof, "V8", g->rank, g->at, "%s", text);
}

const char *pp_grad_tensor_text(const struct pp_grad *g, uint32_t tensor)
{
	return pp_arena_printf(g->proof->arena, "`%s`", g->proof->program->tensors[tensor].name);
}

/* "the gradient of `block.0.norm.weight` from stage 3 (rank 1)" */
static const char *use_text(const struct pp_grad *g, uint32_t use)
{
	const struct pp_use *u = &g->proof->program->uses[use];
	return pp_arena_printf(g->proof->arena, "the gradient of %s from stage %" PRIu32 " (rank %" PRIu32 ")",
	                       pp_grad_tensor_text(g, u->tensor), u->stage, g->proof->program->stages[u->stage].rank);
}

static bool report_difference(const struct pp_grad *g, enum pp_difference difference, const char *what)
{
	pp_grad_error(
	    g, pp_arena_printf(g->proof->arena, "%s %s", difference == PP_SET_MISSING ? "lacks" : "counts twice", what));
	return false;
}

/* ---- slots ----------------------------------------------------------------------------------- */

const struct pp_slot *pp_grad_slot(const struct pp_grad *g, uint32_t slot)
{
	return &g->proof->program->rank[g->rank].slots[slot];
}

static bool class_is(const struct pp_grad *g, uint32_t slot, enum pp_slot_class class)
{
	if (slot < g->proof->program->rank[g->rank].slot_count && pp_grad_slot(g, slot)->class == class)
		return true;
	pp_grad_error(g, pp_arena_printf(g->proof->arena, "has %s where a slot of class %s belongs",
	                                 pp_proof_slot(g->proof, g->rank, slot), pp_slot_class_name[class]));
	return false;
}

static bool tensor_is(const struct pp_grad *g, uint32_t slot, uint32_t tensor)
{
	if (pp_grad_slot(g, slot)->tensor == tensor)
		return true;
	pp_grad_error(g, pp_arena_printf(g->proof->arena, "has %s, which does not belong to %s",
	                                 pp_proof_slot(g->proof, g->rank, slot), pp_grad_tensor_text(g, tensor)));
	return false;
}

bool pp_grad_settled(const struct pp_grad *g, uint32_t slot)
{
	const struct pp_sum *sum = &g->sum[g->rank][slot];
	if (!sum->in_flight)
		return true;
	struct pp_message *message =
	    pp_proof_error(g->proof, "V5", g->rank, g->at, "touches %s while a collective works on it",
	                   pp_proof_slot(g->proof, g->rank, slot));
	pp_proof_also(g->proof, message, g->rank, sum->writer, "posted here");
	return false;
}

/* Has the backward of `stage` (its forward, for losses) run for all microbatches before this instruction? */
static bool stage_done(const struct pp_grad *g, uint32_t stage, bool losses)
{
	const struct pp_stage_proof *seen = &g->proof->stage[stage];
	uint32_t count = losses ? seen->forwards : seen->weights, last = losses ? seen->last_forward : seen->last_weight;
	if (count == g->proof->program->microbatches && last < g->at)
		return true;
	struct pp_message *message =
	    pp_grad_error(g, pp_arena_printf(g->proof->arena, "comes before the last %s of stage %" PRIu32,
	                                     losses ? "forward" : "weight gradient", stage));
	if (count)
		pp_proof_also(g->proof, message, g->rank, last, "the last one");
	return false;
}

struct pp_sum *pp_grad_read(const struct pp_grad *g, uint32_t slot)
{
	struct pp_sum *sum = &g->sum[g->rank][slot];
	if (!pp_grad_settled(g, slot))
		return NULL;
	if (!sum->defined) {
		const char *name = pp_proof_slot(g->proof, g->rank, slot);
		pp_proof_error(g->proof, "V5", g->rank, g->at, "reads %s, which holds nothing of this step", name);
		return NULL;
	}
	if (sum->writer != PP_NULL)
		return sum;
	bool losses = pp_grad_slot(g, slot)->class == PP_SLOT_LOSSES;
	uint32_t stage = losses ? g->loss_stage : g->proof->program->uses[g->use_of[g->rank][slot]].stage;
	return stage_done(g, stage, losses) ? sum : NULL;
}

/* The axes that a value must have been summed over by the time it is used. Norms: tp coordinates hold parts; dp
 * coordinates too where they have scattered the gradient, else each has all of it. */
static uint8_t axes_wanted(const struct pp_grad *g, enum pp_slot_class class, uint32_t tensor)
{
	const struct pp_program *program = g->proof->program;
	uint8_t wanted = 0;
	if (class == PP_SLOT_NORMS ? pp_grad_shards(g) : program->dp > 1)
		wanted |= 1u << PP_AXIS_DP;
	if (program->tp > 1 && (class == PP_SLOT_NORMS ||
	                        (class == PP_SLOT_GRAD && program->tensors[tensor].tp_grad == PP_TP_REPLICATED_PARTIAL)))
		wanted |= 1u << PP_AXIS_TP;
	return wanted;
}

static bool axes_summed(const struct pp_grad *g, const struct pp_sum *sum, enum pp_slot_class class, uint32_t tensor)
{
	uint8_t wanted = axes_wanted(g, class, tensor);
	if (sum->over == wanted)
		return true;
	for (int axis = 0; axis < PP_AXIS_COUNT; axis++)
		if ((sum->over ^ wanted) >> axis & 1)
			pp_grad_error(g, pp_arena_printf(g->proof->arena, "uses a value that %s summed over %s",
			                                 wanted >> axis & 1 ? "was not" : "must not be", pp_axis_name[axis]));
	return false;
}

/* The gradient in `slot` that the instruction reads, which must be that of every use of its tensor. */
static bool gradient_complete(struct pp_grad *g, const struct pp_instr *instr, uint32_t slot, uint32_t tensor)
{
	if (!class_is(g, slot, PP_SLOT_GRAD) || !tensor_is(g, slot, tensor))
		return false;
	const struct pp_sum *sum = pp_grad_read(g, slot);
	if (!sum)
		return false;
	uint32_t member;
	enum pp_difference difference = pp_set_compare(&g->sets, sum->set, g->first_use[tensor],
	                                               g->first_use[tensor + 1] - g->first_use[tensor], &member);
	if (difference != PP_SET_SAME)
		return report_difference(g, difference, use_text(g, member));
	return axes_summed(g, sum, PP_SLOT_GRAD, tensor) && pp_grad_part(g, instr, sum, slot);
}

/* ---- instructions of the tail ---------------------------------------------------------------- */

bool pp_grad_losses_open(const struct pp_grad *g, enum pp_slot_class class)
{
	if (class != PP_SLOT_LOSSES || g->clipped[g->rank] == PP_NULL)
		return true;
	struct pp_message *message = pp_grad_error(g, "changes the losses after `clip`");
	pp_proof_also(g->proof, message, g->rank, g->clipped[g->rank], "used them");
	return false;
}

static bool zero(struct pp_grad *g, const struct pp_instr *instr)
{
	uint32_t
	    slot = instr->a[0],
	    class = slot < g->proof->program->rank[g->rank].slot_count ? pp_grad_slot(g, slot)->class : PP_SLOT_CLASS_COUNT;
	if (class != PP_SLOT_LOSSES && class != PP_SLOT_NORMS) {
		pp_grad_error(g, pp_arena_printf(g->proof->arena, "clears %s; only losses and norms are ever cleared",
		                                 pp_proof_slot(g->proof, g->rank, slot)));
		return false;
	}
	if (!pp_grad_settled(g, slot) || !pp_grad_losses_open(g, (enum pp_slot_class) class))
		return false;
	struct pp_sum *sum = &g->sum[g->rank][slot];
	if (class == PP_SLOT_LOSSES && sum->defined && sum->writer == PP_NULL) {
		const struct pp_stage_proof *seen = &g->proof->stage[g->loss_stage];
		if (seen->forwards == 0 || g->at < seen->first_forward)
			return true; /* cleared before the losses are written */
		struct pp_message *message = pp_grad_error(g, "clears losses of this step");
		pp_proof_also(g->proof, message, g->rank, seen->first_forward, "wrote the first loss");
		return false;
	}
	*sum = (struct pp_sum){.set = PP_SET_EMPTY, .defined = true, .writer = g->at};
	return true;
}

static bool add(struct pp_grad *g, const struct pp_instr *instr)
{
	uint32_t to = instr->a[0], from = instr->a[1];
	if (!class_is(g, to, PP_SLOT_GRAD) || !class_is(g, from, PP_SLOT_GRAD))
		return false;
	if (to == from || pp_grad_slot(g, to)->tensor != pp_grad_slot(g, from)->tensor) {
		pp_grad_error(g, pp_arena_printf(g->proof->arena, "adds %s, which is not another gradient of the same tensor",
		                                 pp_proof_slot(g->proof, g->rank, from)));
		return false;
	}
	struct pp_sum *target = pp_grad_read(g, to), *source = target ? pp_grad_read(g, from) : NULL;
	if (!source)
		return false;
	if (target->over != source->over) {
		pp_grad_error(g, "adds gradients summed over different axes");
		return false;
	}
	if (!pp_grad_part(g, instr, target, to) || !pp_grad_part(g, instr, source, from))
		return false;
	target->set = pp_set_union(&g->sets, target->set, source->set);
	target->writer = g->at;
	source->defined = false;
	return true;
}

uint64_t pp_grad_elements(const struct pp_grad *g, enum pp_slot_class class, uint32_t tensor)
{
	const struct pp_program *program = g->proof->program;
	if (class == PP_SLOT_LOSSES)
		return 2 * (uint64_t)program->microbatches;
	if (class == PP_SLOT_NORMS)
		return program->tensor_count;
	return pp_local_elements(program, tensor);
}

static bool sqnorm(struct pp_grad *g, const struct pp_instr *instr)
{
	if (instr->mb >= g->proof->program->tensor_count || !gradient_complete(g, instr, instr->a[0], instr->mb) ||
	    !class_is(g, instr->a[1], PP_SLOT_NORMS))
		return false;
	struct pp_sum *norms = pp_grad_read(g, instr->a[1]);
	if (!norms)
		return false;
	if (norms->over) { /* the other coordinates' parts of this norm would be missing */
		struct pp_message *message = pp_grad_error(g, "adds to norms that are summed over tp or dp already");
		pp_proof_also(g->proof, message, g->rank, norms->writer, "summed here");
		return false;
	}
	norms->set = pp_set_union(&g->sets, norms->set, pp_set_leaf(&g->sets, instr->mb));
	norms->writer = g->at;
	return true;
}

static bool losses_complete(struct pp_grad *g, uint32_t slot)
{
	if (!class_is(g, slot, PP_SLOT_LOSSES))
		return false;
	const struct pp_sum *losses = pp_grad_read(g, slot);
	if (!losses)
		return false;
	if (g->loss_stage == PP_NULL) /* cleared, or they would be those of nobody */
		return true;
	uint32_t member;
	enum pp_difference difference = pp_set_compare(&g->sets, losses->set, 0, 1, &member);
	if (difference != PP_SET_SAME)
		return report_difference(g, difference,
		                         pp_arena_printf(g->proof->arena, "the losses of stage %" PRIu32 " (rank %" PRIu32 ")",
		                                         g->loss_stage, g->proof->program->stages[g->loss_stage].rank));
	return axes_summed(g, losses, PP_SLOT_LOSSES, PP_NULL);
}

static bool norms_complete(struct pp_grad *g, uint32_t slot)
{
	if (!class_is(g, slot, PP_SLOT_NORMS))
		return false;
	const struct pp_sum *norms = pp_grad_read(g, slot);
	if (!norms)
		return false;
	uint32_t member;
	enum pp_difference difference = pp_set_compare(&g->sets, norms->set, 0, g->proof->program->tensor_count, &member);
	if (difference != PP_SET_SAME)
		return report_difference(g, difference,
		                         pp_arena_printf(g->proof->arena, "the norm of %s", pp_grad_tensor_text(g, member)));
	return axes_summed(g, norms, PP_SLOT_NORMS, PP_NULL);
}

/* Ranks must clip alike, or copies of a weight drift apart. */
static bool clip(struct pp_grad *g, const struct pp_instr *instr)
{
	const struct pp_program *program = g->proof->program;
	if (g->clipped[g->rank] != PP_NULL) {
		struct pp_message *message = pp_grad_error(g, "scales the gradients a second time");
		pp_proof_also(g->proof, message, g->rank, g->clipped[g->rank], "first");
		return false;
	}
	if (instr->sub != program->train.mean) {
		pp_grad_error(g, pp_arena_printf(g->proof->arena, "takes the %s, the program trains with the %s",
		                                 pp_mean_name[instr->sub], pp_mean_name[program->train.mean]));
		return false;
	}
	if (!losses_complete(g, instr->a[0]) || !norms_complete(g, instr->a[1]) || !class_is(g, instr->a[2], PP_SLOT_SCALE))
		return false;
	uint64_t order = g->sets.items[g->sum[g->rank][instr->a[1]].set].order;
	if (g->first_clip.rank == PP_NULL)
		g->first_clip = (struct pp_update){.rank = g->rank, .instr = g->at, .order = order};
	if (pp_proof_instr(g->proof, g->first_clip.rank, g->first_clip.instr)->mb != instr->mb) {
		struct pp_message *message = pp_grad_error(
		    g, pp_arena_printf(g->proof->arena, "uses row h%" PRIu32 ", another rank a different one", instr->mb));
		pp_proof_also(g->proof, message, g->first_clip.rank, g->first_clip.instr, "another rank");
		return false;
	}
	if (g->first_clip.order != order) {
		struct pp_message *message = pp_grad_error(
		    g, pp_arena_printf(g->proof->arena,
		                       "sums its norms in another order than rank %" PRIu32 ": their scales drift apart",
		                       g->first_clip.rank));
		pp_proof_also(g->proof, message, g->first_clip.rank, g->first_clip.instr, "the other scale");
		return false;
	}
	g->clipped[g->rank] = g->at;
	return true;
}

static bool moments_fit(const struct pp_grad *g, const struct pp_instr *instr, uint32_t tensor)
{
	if (instr->sub == PP_SGD) {
		if (instr->a[2] == PP_NULL && instr->a[3] == PP_NULL)
			return true;
		pp_grad_error(g, "has moments, which sgd does not use: they must be the null slot");
		return false;
	}
	if (!class_is(g, instr->a[2], PP_SLOT_MOMENT) || !class_is(g, instr->a[3], PP_SLOT_MOMENT) ||
	    !tensor_is(g, instr->a[2], tensor) || !tensor_is(g, instr->a[3], tensor))
		return false;
	if (instr->a[2] != instr->a[3])
		return true;
	pp_grad_error(g, "uses one slot for both moments");
	return false;
}

/* A weight that is not f32 is updated through its master copy, others have none. */
static bool master_fits(const struct pp_grad *g, const struct pp_instr *instr, uint32_t tensor)
{
	const struct pp_tensor *t = &g->proof->program->tensors[tensor];
	if (pp_tensor_has_master(t))
		return class_is(g, instr->extra, PP_SLOT_MASTER) && tensor_is(g, instr->extra, tensor);
	if (instr->extra == PP_NULL)
		return true;
	pp_grad_error(g, pp_arena_printf(g->proof->arena, "has %s, but %s is %s and its own master: leave it out",
	                                 pp_proof_slot(g->proof, g->rank, instr->extra), pp_grad_tensor_text(g, tensor),
	                                 pp_dtype_name[t->dtype]));
	return false;
}

/* A tensor without weight decay uses a row without; one with decay a row with, if there is any. */
static bool decays_as_told(const struct pp_grad *g, const struct pp_instr *instr, uint32_t tensor)
{
	const struct pp_train *train = &g->proof->program->train;
	bool wanted = false;
	if (instr->mb >= train->hyper_count) {
		pp_grad_error(g, pp_arena_printf(g->proof->arena, "uses row h%" PRIu32 ", the program has %" PRIu32 " rows",
		                                 instr->mb, train->hyper_count));
		return false;
	}
	for (uint32_t h = 0; h < train->hyper_count && g->proof->program->tensors[tensor].decay; h++)
		wanted |= train->hypers[h].weight_decay != 0;
	if ((train->hypers[instr->mb].weight_decay != 0) == wanted)
		return true;
	pp_grad_error(g,
	              pp_arena_printf(g->proof->arena, "uses row h%" PRIu32 ", whose weight decay is %g, for %s, which %s",
	                              instr->mb, train->hypers[instr->mb].weight_decay, pp_grad_tensor_text(g, tensor),
	                              wanted ? "decays" : "does not decay"));
	return false;
}

static bool same_rule(struct pp_grad *g, const struct pp_instr *instr, uint32_t tensor)
{
	struct pp_update *first = &g->first_update[tensor];
	if (instr->sub != g->proof->program->train.optimizer) {
		pp_grad_error(g, pp_arena_printf(g->proof->arena, "is %s, the program trains with %s",
		                                 pp_optimizer_name[instr->sub],
		                                 pp_optimizer_name[g->proof->program->train.optimizer]));
		return false;
	}
	if (!decays_as_told(g, instr, tensor))
		return false;
	uint64_t order = g->sets.items[g->sum[g->rank][instr->a[1]].set].order;
	if (first->rank == PP_NULL)
		*first = (struct pp_update){.rank = g->rank, .instr = g->at, .order = order};
	const struct pp_instr *other = pp_proof_instr(g->proof, first->rank, first->instr);
	if (other->mb == instr->mb && first->order == order)
		return true;
	const char *text =
	    other->mb == instr->mb
	        ? pp_arena_printf(g->proof->arena,
	                          "sums its gradient in another order than rank %" PRIu32 ": the copies drift apart",
	                          first->rank)
	        : pp_arena_printf(g->proof->arena,
	                          "uses row h%" PRIu32 ", rank %" PRIu32 " row h%" PRIu32 ": the copies drift apart",
	                          instr->mb, first->rank, other->mb);
	struct pp_message *message = pp_grad_error(g, text);
	pp_proof_also(g->proof, message, first->rank, first->instr, "the other copy");
	return false;
}

static bool optimize(struct pp_grad *g, const struct pp_instr *instr)
{
	if (!class_is(g, instr->a[0], PP_SLOT_WEIGHT))
		return false;
	uint32_t tensor = pp_grad_slot(g, instr->a[0])->tensor;
	uint32_t *update = &g->update[g->rank][instr->a[0]];
	if (tensor >= g->proof->program->tensor_count) {
		pp_grad_error(g, "updates a weight slot that belongs to no tensor");
		return false;
	}
	if (*update != PP_NULL) {
		struct pp_message *message = pp_grad_error(g, "updates this weight a second time");
		pp_proof_also(g->proof, message, g->rank, *update, "first");
		return false;
	}
	if (g->clipped[g->rank] == PP_NULL) {
		struct pp_message *message = pp_grad_error(g, "comes before `clip`: the scale of this step is not known");
		pp_help(message, "every rank runs one `clip` before its first `opt`");
		return false;
	}
	if (!gradient_complete(g, instr, instr->a[1], tensor) || !moments_fit(g, instr, tensor) ||
	    !master_fits(g, instr, tensor) || !same_rule(g, instr, tensor))
		return false;
	*update = g->at;
	g->sum[g->rank][instr->a[1]].defined = false;
	g->sum[g->rank][instr->a[0]].sharded = instr->flags & PP_SHARD;
	return true;
}

bool pp_grad_losses_known(struct pp_grad *g, uint32_t slot)
{
	const struct pp_sum *losses = &g->sum[g->rank][slot];
	uint32_t member;
	return losses->defined && pp_set_compare(&g->sets, losses->set, 0, 1, &member) == PP_SET_SAME &&
	       losses->over == axes_wanted(g, PP_SLOT_LOSSES, PP_NULL);
}

/* Training goes on after `eval` as if it had not run: of what lives on, only losses may change. */
static bool leaves_no_trace(const struct pp_grad *g, const struct pp_instr *instr)
{
	uint32_t slot = instr->op == PP_OP_COLL ? instr->a[3] : instr->a[0];
	bool good = instr->op == PP_OP_WAITC;
	if (instr->op == PP_OP_ZERO || instr->op == PP_OP_COLL)
		good = slot < g->proof->program->rank[g->rank].slot_count && pp_grad_slot(g, slot)->class == PP_SLOT_LOSSES;
	if (!good)
		pp_proof_error(g->proof, "V1", g->rank, g->at,
		               "does not belong into a forward-only program: it changes what training keeps");
	return good;
}

static bool visit(struct pp_grad *g, const struct pp_instr *instr, const struct pp_tail_event *event)
{
	if (g->proof->forward_only && !leaves_no_trace(g, instr))
		return false;
	switch ((enum pp_op)instr->op) {
	case PP_OP_ZERO:
		return zero(g, instr);
	case PP_OP_ADD:
		return add(g, instr);
	case PP_OP_COLL:
		return pp_grad_post(g, instr, event->joint);
	case PP_OP_WAITC:
		pp_grad_complete(g, event);
		return true;
	case PP_OP_SQNORM:
		return sqnorm(g, instr);
	case PP_OP_CLIP:
		return clip(g, instr);
	case PP_OP_OPT:
		return optimize(g, instr);
	case PP_OP_LOAD:
	case PP_OP_FWD:
	case PP_OP_REMAT:
	case PP_OP_BWD:
	case PP_OP_BWDI:
	case PP_OP_BWDW:
	case PP_OP_SEND:
	case PP_OP_RECV:
	case PP_OP_WAIT:
	case PP_OP_MARK:
	case PP_OP_COUNT:
		return true;
	}
	return true;
}

/* Run a rank's tail until it waits for a collective that others have not posted. */
bool pp_grad_advance(struct pp_grad *g)
{
	const struct pp_rank_proof *rank = &g->proof->rank[g->rank];
	for (; g->cursor[g->rank] < rank->tail_count; g->cursor[g->rank]++) {
		const struct pp_tail_event *event = &rank->tail[g->cursor[g->rank]];
		const struct pp_instr *instr = pp_proof_instr(g->proof, g->rank, event->instr);
		g->at = event->instr;
		if (instr->op == PP_OP_WAITC && !pp_grad_arrived(g, event->joint))
			return true;
		if (!visit(g, instr, event))
			return false;
	}
	return true;
}
