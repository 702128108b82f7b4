/* V1, V2, V5: each rank's stream by itself, over abstract slot states.
 *
 * requires: pp_prove_posts and pp_prove_match: a received value is what its send says, and the send is checked here,
 *           on its own rank; the induction over time is closed by V4.
 * ensures:  each (stage, mb) runs F and then B, or I and then W, once, on its rank, and where its stage recomputes one
 *           remat between; every value read is the one demanded; nothing live or in flight is overwritten, in slots or
 *           bytes; nothing is left live at the end. */
#include "slots.h"

#include "ir/lifetime.h"
#include "ir/operands.h"

#include <inttypes.h>

/* ---- compute --------------------------------------------------------------------------------- */

static bool loads(const struct pp_flow *f, uint32_t stage)
{
	return f->proof->program->stages[stage].loads_tokens || f->proof->program->stages[stage].loads_labels;
}

static bool recomputes(const struct pp_flow *f, uint32_t stage)
{
	return stage < f->proof->program->stage_count && f->proof->program->stages[stage].recomputes;
}

static bool read_aux(struct pp_flow *f, const struct pp_instr *instr, uint32_t slot, enum pp_phase phase)
{
	f->operand = "aux";
	if (!loads(f, instr->stage))
		return pp_flow_null(f, slot);
	if (slot == PP_NULL) {
		if (phase != PP_PHASE_F && !(f->needs_aux[instr->stage] >> phase & 1))
			return true;
		pp_flow_error(f, "V5", "has no `aux`, but it reads the tokens or labels of the microbatch");
		return false;
	}
	if (!pp_flow_holds(f, slot, PP_CLASS_AUX, PP_HOLDS_DATA, instr->stage, instr->mb))
		return false;
	if (pp_bit(f->last_reader, f->at))
		pp_flow_empty(f, slot);
	return true;
}

/* The stash operand is null where a stage keeps nothing, or for a forward that no backward follows, unless its body is
 * there and writes the stash all the same. */
static bool stash_absent(const struct pp_flow *f, const struct pp_instr *instr, uint32_t slot)
{
	const struct pp_stage *stage = &f->proof->program->stages[instr->stage];
	return slot == PP_NULL &&
	       (stage->stash_bytes == 0 || (f->proof->forward_only && stage->body[PP_PHASE_F] == PP_NULL));
}

/* Why an op that wants to find `from` and leave `to` may not run when it finds `found`. */
static const char *misplaced(uint8_t from, uint8_t to, uint8_t found)
{
	if (found >= to)
		return "runs a second time";
	if (found > from)
		return "comes on top of `bwdi`: the gradient would count twice";
	if (found == RAN_NOTHING)
		return "runs before its forward";
	return from == RAN_REMAT ? "runs before its `remat`" : "runs before its input gradient";
}

/* What runs has a body; a program without any is a schedule alone, and no executor takes it. */
static bool has_body(const struct pp_flow *f, const struct pp_instr *instr)
{
	const struct pp_program *program = f->proof->program;
	enum pp_phase phase = pp_phase_of(instr);
	if (program->body_count == 0 || program->stages[instr->stage].body[phase] != PP_NULL)
		return true;
	pp_flow_error(f, "V10",
	              pp_arena_printf(f->proof->arena, "has nothing to run: stage %" PRIu32 " has no body for phase %s",
	                              instr->stage, pp_phase_name[phase]));
	return false;
}

/* V1: the op runs on its stage's rank, once, after what must precede it. */
static bool step(struct pp_flow *f, const struct pp_instr *instr, uint8_t from, uint8_t to)
{
	const struct pp_program *program = f->proof->program;
	if (instr->stage >= program->stage_count || instr->mb >= program->microbatches) {
		pp_flow_error(f, "V1",
		              pp_arena_printf(f->proof->arena, "is out of range: %" PRIu32 " stages, %" PRIu32 " microbatches",
		                              program->stage_count, program->microbatches));
		return false;
	}
	if (program->stages[instr->stage].rank != f->rank) {
		pp_flow_error(f, "V1",
		              pp_arena_printf(f->proof->arena, "is on the wrong rank: stage %" PRIu32 " lives on rank %" PRIu32,
		                              instr->stage, program->stages[instr->stage].rank));
		return false;
	}
	if (f->proof->forward_only && to != RAN_FORWARD) {
		pp_flow_error(f, "V1", "does not belong into a forward-only program");
		return false;
	}
	if (!has_body(f, instr))
		return false;
	uint8_t *progress = &f->progress[(size_t)instr->stage * program->microbatches + instr->mb];
	if (*progress == from) {
		*progress = to;
		return true;
	}
	struct pp_message *message = pp_flow_error(f, "V1", misplaced(from, to, *progress));
	for (uint32_t i = 0; i < f->at; i++) {
		const struct pp_instr *other = pp_proof_instr(f->proof, f->rank, i);
		if (pp_is_compute(other) && other->stage == instr->stage && other->mb == instr->mb)
			pp_proof_also(f->proof, message, f->rank, i, "earlier");
	}
	return false;
}

/* What B and I must find. */
static uint8_t before_backward(const struct pp_flow *f, const struct pp_instr *instr)
{
	return recomputes(f, instr->stage) ? RAN_REMAT : RAN_FORWARD;
}

static bool forward(struct pp_flow *f, const struct pp_instr *instr)
{
	if (!step(f, instr, RAN_NOTHING, RAN_FORWARD))
		return false;
	uint32_t s = instr->stage, m = instr->mb, in = instr->a[0], aux = instr->a[1], out = instr->a[2],
	         stash = instr->a[3];
	const struct pp_stage *stage = &f->proof->program->stages[s];
	struct pp_stage_proof *seen = &f->proof->stage[s];
	if (seen->forwards++ == 0)
		seen->first_forward = f->at;
	seen->last_forward = f->at;
	/* Outputs first: they must not take the place of the inputs, which are still being read. */
	f->operand = "out";
	if (s + 1 < f->proof->program->stage_count ? !pp_flow_put(f, out, PP_CLASS_OUT, PP_HOLDS_ACT, s, m, f->out_bytes[s])
	                                           : !pp_flow_null(f, out))
		return false;
	f->operand = "stash";
	if (!stash_absent(f, instr, stash)) {
		if (!pp_flow_put(f, stash, PP_CLASS_STASH, PP_HOLDS_STASH, s, m, stage->stash_bytes))
			return false;
		if (f->proof->forward_only)
			pp_flow_empty(f, stash);
	}
	if (++f->stashes > f->proof->rank[f->rank].peak_stashes)
		f->proof->rank[f->rank].peak_stashes = f->stashes;
	f->operand = "in";
	if (s > 0 ? !pp_flow_take(f, in, PP_CLASS_BOUNDARY, PP_HOLDS_ACT, s - 1, m) : !pp_flow_null(f, in))
		return false;
	return read_aux(f, instr, aux, PP_PHASE_F);
}

/* The part of bwd and bwdi that passes the gradient on. */
static bool gradient(struct pp_flow *f, const struct pp_instr *instr)
{
	uint32_t s = instr->stage, m = instr->mb, dout = instr->a[2], din = instr->a[3];
	f->operand = "din";
	if (s > 0 ? !pp_flow_put(f, din, PP_CLASS_OUT, PP_HOLDS_GRAD, s, m, f->out_bytes[s - 1]) : !pp_flow_null(f, din))
		return false;
	f->operand = "dout";
	return s + 1 < f->proof->program->stage_count ? pp_flow_take(f, dout, PP_CLASS_BOUNDARY, PP_HOLDS_GRAD, s + 1, m)
	                                              : pp_flow_null(f, dout);
}

/* V8's local part: the first weight gradient of a stage writes, the others add. */
static bool accumulate(struct pp_flow *f, const struct pp_instr *instr)
{
	struct pp_stage_proof *seen = &f->proof->stage[instr->stage];
	bool first = instr->flags & PP_FIRST;
	if (first != (seen->weights == 0)) {
		struct pp_message *message = pp_flow_error(
		    f, "V8",
		    first ? "carries `first`, but is not the first weight gradient of its stage: what was added before is lost"
		          : "is the first weight gradient of its stage and lacks `first`: it adds to the last step's");
		if (first)
			pp_proof_also(f->proof, message, f->rank, seen->last_weight, "added before");
		return false;
	}
	if (seen->weights && instr->mb < seen->last_weight_mb && f->proof->weights_ascend) {
		f->proof->weights_ascend = false;
		f->proof->descending_stage = instr->stage;
	}
	seen->weights++;
	seen->last_weight = f->at;
	seen->last_weight_mb = instr->mb;
	return true;
}

static bool rematerialize(struct pp_flow *f, const struct pp_instr *instr)
{
	if (!step(f, instr, RAN_FORWARD, RAN_REMAT))
		return false;
	if (!recomputes(f, instr->stage)) {
		pp_flow_error(f, "V1", "recomputes what its stage keeps: the stage does not say `recomputes`");
		return false;
	}
	f->operand = "extra";
	if (!pp_flow_put(f, instr->extra, PP_CLASS_EXTRA, PP_HOLDS_EXTRA, instr->stage, instr->mb,
	                 f->proof->program->stages[instr->stage].extra_bytes))
		return false;
	f->operand = "stash";
	return stash_absent(f, instr, instr->a[0]) ||
	       pp_flow_holds(f, instr->a[0], PP_CLASS_STASH, PP_HOLDS_STASH, instr->stage, instr->mb);
}

/* B and W leave extra empty; without recompute only W finds something there. */
static bool take_extra(struct pp_flow *f, const struct pp_instr *instr, uint32_t state, bool wanted)
{
	f->operand = "extra";
	return wanted ? pp_flow_take(f, instr->extra, PP_CLASS_EXTRA, state, instr->stage, instr->mb)
	              : pp_flow_null(f, instr->extra);
}

/* I leaves in extra what W needs; without recompute it is the first to write there. */
static bool keep_extra(struct pp_flow *f, const struct pp_instr *instr)
{
	uint64_t bytes = f->proof->program->stages[instr->stage].extra_bytes;
	f->operand = "extra";
	if (!recomputes(f, instr->stage))
		return bytes ? pp_flow_put(f, instr->extra, PP_CLASS_EXTRA, PP_HOLDS_EXTRA_W, instr->stage, instr->mb, bytes)
		             : pp_flow_null(f, instr->extra);
	if (!pp_flow_holds(f, instr->extra, PP_CLASS_EXTRA, PP_HOLDS_EXTRA, instr->stage, instr->mb))
		return false;
	f->value[instr->extra].state = PP_HOLDS_EXTRA_W;
	return true;
}

static bool backward(struct pp_flow *f, const struct pp_instr *instr)
{
	if (!step(f, instr, before_backward(f, instr), RAN_ALL) || !accumulate(f, instr) || !gradient(f, instr))
		return false;
	f->operand = "stash";
	f->stashes--;
	if (!stash_absent(f, instr, instr->a[1]) &&
	    !pp_flow_take(f, instr->a[1], PP_CLASS_STASH, PP_HOLDS_STASH, instr->stage, instr->mb))
		return false;
	return take_extra(f, instr, PP_HOLDS_EXTRA, recomputes(f, instr->stage)) &&
	       read_aux(f, instr, instr->a[0], PP_PHASE_B);
}

static bool input_gradient(struct pp_flow *f, const struct pp_instr *instr)
{
	if (!step(f, instr, before_backward(f, instr), RAN_INPUT_GRAD) || !keep_extra(f, instr) || !gradient(f, instr))
		return false;
	f->operand = "stash";
	if (!stash_absent(f, instr, instr->a[1])) {
		if (!pp_flow_holds(f, instr->a[1], PP_CLASS_STASH, PP_HOLDS_STASH, instr->stage, instr->mb))
			return false;
		f->value[instr->a[1]].state = PP_HOLDS_STASH_W;
	}
	return read_aux(f, instr, instr->a[0], PP_PHASE_I);
}

static bool weight_gradient(struct pp_flow *f, const struct pp_instr *instr)
{
	if (!step(f, instr, RAN_INPUT_GRAD, RAN_ALL) || !accumulate(f, instr))
		return false;
	f->operand = "stash";
	f->stashes--;
	if (!stash_absent(f, instr, instr->a[1]) &&
	    !pp_flow_take(f, instr->a[1], PP_CLASS_STASH, PP_HOLDS_STASH_W, instr->stage, instr->mb))
		return false;
	bool extra = recomputes(f, instr->stage) || f->proof->program->stages[instr->stage].extra_bytes;
	return take_extra(f, instr, PP_HOLDS_EXTRA_W, extra) && read_aux(f, instr, instr->a[0], PP_PHASE_W);
}

/* A load fills all of aux, no less and no more; in a program without bodies nobody says what that is. */
static bool brings_aux(const struct pp_flow *f, const struct pp_stage *stage)
{
	const struct pp_train *train = &f->proof->program->train;
	uint64_t tokens = (uint64_t)train->microbatch * train->seq, bytes;
	uint32_t arrays = (stage->loads_tokens ? 1u : 0) + (stage->loads_labels ? 1u : 0);
	if (f->proof->program->body_count == 0)
		return true;
	if (train->vocab == 0) {
		pp_flow_error(f, "V5", "loads data, but `train` says vocab 0: there is none");
		return false;
	}
	if (!__builtin_mul_overflow(tokens, arrays * pp_dtype_size[PP_I32], &bytes) && stage->aux_bytes == bytes)
		return true;
	pp_flow_error(f, "V5",
	              pp_arena_printf(f->proof->arena,
	                              "brings %s of %" PRIu64 " tokens (`train`), but stage %td says aux %" PRIu64,
	                              arrays == 1 ? "one array" : "two arrays", tokens, stage - f->proof->program->stages,
	                              stage->aux_bytes));
	return false;
}

static bool load(struct pp_flow *f, const struct pp_instr *instr)
{
	const struct pp_program *program = f->proof->program;
	if (instr->stage >= program->stage_count || instr->mb >= program->microbatches ||
	    program->stages[instr->stage].rank != f->rank) {
		pp_flow_error(f, "V1", "is for a stage or microbatch that this rank does not have");
		return false;
	}
	const struct pp_stage *stage = &program->stages[instr->stage];
	enum pp_load wanted = !stage->loads_tokens ? PP_LOAD_LABELS : stage->loads_labels ? PP_LOAD_BOTH : PP_LOAD_TOKENS;
	if (!loads(f, instr->stage) || instr->sub != wanted) {
		pp_flow_error(f, "V5",
		              pp_arena_printf(f->proof->arena, "loads %s, but stage %" PRIu32 " reads %s",
		                              pp_load_name[instr->sub], instr->stage,
		                              loads(f, instr->stage) ? pp_load_name[wanted] : "no data"));
		return false;
	}
	if (!brings_aux(f, stage))
		return false;
	f->operand = "aux";
	return pp_flow_put(f, instr->a[0], PP_CLASS_AUX, PP_HOLDS_DATA, instr->stage, instr->mb, stage->aux_bytes);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static uint32_t held_by(const struct pp_flow *f, const struct pp_instr *post)
{
	return f->proof->program->channels[post->a[0]].kind == PP_ACT ? PP_HOLDS_ACT : PP_HOLDS_GRAD;
}

static bool post_send(struct pp_flow *f, const struct pp_instr *instr)
{
	f->operand = "slot";
	if (!pp_flow_holds(f, instr->a[2], PP_CLASS_OUT, held_by(f, instr), instr->stage, instr->mb))
		return false;
	f->value[instr->a[2]].state = PP_BEING_SENT;
	f->value[instr->a[2]].writer = f->at;
	return true;
}

static bool post_receive(struct pp_flow *f, const struct pp_instr *instr)
{
	f->operand = "slot";
	return pp_flow_put(f, instr->a[2], PP_CLASS_RECV, PP_BEING_RECEIVED, instr->stage, instr->mb,
	                   pp_payload_bytes(instr));
}

static void wait_post(struct pp_flow *f, const struct pp_instr *instr)
{
	int end = pp_proof_end(f->proof, f->rank, instr->a[0]);
	uint32_t element = f->proof->first_message[instr->a[0]] + instr->a[1];
	const struct pp_instr *post = pp_proof_instr(f->proof, f->rank, f->proof->posts[end][element]);
	if (end == PP_SEND_END)
		pp_flow_empty(f, post->a[2]);
	else
		f->value[post->a[2]].state = held_by(f, post);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static bool visit(struct pp_flow *f, const struct pp_instr *instr)
{
	switch ((enum pp_op)instr->op) {
	case PP_OP_LOAD:
		return load(f, instr);
	case PP_OP_FWD:
		return forward(f, instr);
	case PP_OP_REMAT:
		return rematerialize(f, instr);
	case PP_OP_BWD:
		return backward(f, instr);
	case PP_OP_BWDI:
		return input_gradient(f, instr);
	case PP_OP_BWDW:
		return weight_gradient(f, instr);
	case PP_OP_SEND:
		return post_send(f, instr);
	case PP_OP_RECV:
		return post_receive(f, instr);
	case PP_OP_WAIT:
		wait_post(f, instr);
		return true;
	case PP_OP_COLL:
	case PP_OP_WAITC:
	case PP_OP_ZERO:
	case PP_OP_ADD:
	case PP_OP_SQNORM:
	case PP_OP_CLIP:
	case PP_OP_OPT:
	case PP_OP_MARK:
	case PP_OP_COUNT:
		return true;
	}
	return true;
}

/* Slot operand `index` of a compute op, PP_NULL where it has none. */
static uint32_t slot_operand(const struct pp_instr *instr, unsigned index)
{
	return pp_op_members((enum pp_op)instr->op) >> index & PP_USES_A0 ? pp_instr_slot(instr, index) : PP_NULL;
}

static bool adds_gradients(const struct pp_instr *instr)
{
	return instr->op != PP_OP_FWD && instr->op != PP_OP_REMAT;
}

/* What may stand between the two of a pair: what brings the inputs of the second. */
static bool keeps_pair(const struct pp_instr *instr)
{
	return instr->op == PP_OP_WAIT || instr->op == PP_OP_LOAD || instr->op == PP_OP_RECV;
}

/* Two compute ops that may overlap: nothing but what brings inputs stands between, and the second must not touch what
 * the first does. */
static bool pair_independent(struct pp_flow *f)
{
	const struct pp_stream *stream = &f->proof->named->streams[f->rank];
	const struct pp_instr *first = &stream->items[f->at];
	uint32_t next = f->at + 1;
	while (next < stream->count && keeps_pair(&stream->items[next]))
		next++;
	if (next < stream->count && !pp_is_compute(&stream->items[next])) {
		pp_proof_also(f->proof,
		              pp_flow_error(f, "V5",
		                            "may overlap the next compute op, but between them stands more than `wait`, "
		                            "`load` and `recv`"),
		              f->rank, next, "must stand behind both");
		return false;
	}
	if (next == stream->count) {
		pp_flow_error(f, "V5", "may overlap the next compute op, but there is none");
		return false;
	}
	const struct pp_instr *second = &stream->items[next];
	bool meet = adds_gradients(first) && adds_gradients(second) && first->stage == second->stage;
	for (unsigned i = 0; i < PP_SLOT_OPERANDS; i++)
		for (unsigned j = 0; j < PP_SLOT_OPERANDS; j++)
			meet |= slot_operand(first, i) != PP_NULL && slot_operand(first, i) == slot_operand(second, j);
	if (!meet)
		return true;
	struct pp_message *message =
	    pp_flow_error(f, "V5", "may overlap the next compute op, but both use the same slot or gradients");
	pp_proof_also(f->proof, message, f->rank, next, "the next compute op");
	return false;
}

static bool flags_allowed(struct pp_flow *f, const struct pp_instr *instr)
{
	if (instr->flags & PP_FIRST && instr->op != PP_OP_BWD && instr->op != PP_OP_BWDW) {
		pp_flow_error(f, "V8", "carries `first`, which only bwd and bwdw may");
		return false;
	}
	if (!(instr->flags & PP_PAIR))
		return true;
	if (pp_is_compute(instr))
		return pair_independent(f);
	pp_flow_error(f, "V5", "carries `pair`, which only compute ops may");
	return false;
}

static void note_peak(struct pp_flow *f)
{
	struct pp_rank_proof *rank = &f->proof->rank[f->rank];
	if (f->live.bytes <= rank->peak_bytes)
		return;
	rank->peak_bytes = f->live.bytes;
	rank->peak_instr = f->at;
}

static bool nothing_left(struct pp_flow *f)
{
	for (uint32_t i = 0; i < f->memory->slot_count; i++) {
		if (f->value[i].state == PP_HOLDS_NOTHING)
			continue;
		if (!pp_prove_backwards(f->proof, f->rank, f->progress))
			return false; /* what is missing explains what is left */
		f->at = f->value[i].writer;
		pp_flow_error(f, "V5",
		              pp_arena_printf(f->proof->arena, "leaves %s in %s, which nothing reads", pp_flow_held(f, i),
		                              pp_flow_slot(f, i)));
		return false;
	}
	return true;
}

static bool flow_rank(struct pp_flow *f)
{
	struct pp_proof *proof = f->proof;
	const struct pp_stream *stream = &proof->named->streams[f->rank];
	f->memory = &proof->program->rank[f->rank];
	f->value = PP_NEW_ARRAY(proof->arena, struct pp_slot_value, f->memory->slot_count);
	f->live = pp_live_begin(proof->arena, f->memory);
	f->stashes = f->held_count = 0;
	f->paired = false;
	f->last_reader = NULL;
	for (uint32_t s = 0; s < proof->program->stage_count && !f->last_reader; s++)
		if (proof->program->stages[s].rank == f->rank && loads(f, s))
			f->last_reader = pp_last_aux_readers(proof->arena, stream, f->memory->slot_count);
	for (f->at = 0; f->at < stream->count; f->at++) {
		const struct pp_instr *instr = &stream->items[f->at];
		uint32_t held = f->held_count;
		f->paired = instr->flags & PP_PAIR;
		if ((instr->flags && !flags_allowed(f, instr)) || !visit(f, instr))
			return false;
		f->paired = false;
		note_peak(f);
		if (pp_is_compute(instr))
			pp_flow_release(f, held);
	}
	return nothing_left(f);
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static uint8_t *aux_needs(const struct pp_proof *proof)
{
	const struct pp_program *program = proof->program;
	uint8_t *needs = PP_NEW_ARRAY(proof->arena, uint8_t, program->stage_count);
	for (uint32_t b = 0; b < program->body_count; b++) {
		const struct pp_body *body = &program->bodies[b];
		for (uint32_t i = 0; i < body->reg_count; i++)
			if (body->regs[i].base == PP_BASE_AUX)
				needs[body->stage] |= (uint8_t)(1u << body->phase);
	}
	return needs;
}

bool pp_prove_flow(struct pp_proof *proof)
{
	const struct pp_program *program = proof->program;
	if (!pp_prove_forwards(proof))
		return false;
	struct pp_flow f = {
	    .proof = proof,
	    .progress = PP_NEW_ARRAY(proof->arena, uint8_t, (size_t)program->stage_count * program->microbatches),
	    .out_bytes = PP_NEW_ARRAY(proof->arena, uint64_t, program->stage_count),
	    .needs_aux = aux_needs(proof),
	};
	for (uint32_t s = 0; s < program->stage_count; s++)
		f.out_bytes[s] = (uint64_t)program->stages[s].out_count * pp_dtype_size[program->stages[s].out_dtype];
	proof->stage = PP_NEW_ARRAY(proof->arena, struct pp_stage_proof, program->stage_count);
	proof->weights_ascend = true;
	bool good = true;
	for (f.rank = 0; f.rank < program->ranks; f.rank++)
		good &= flow_rank(&f);
	return good && pp_prove_backwards(proof, PP_NULL, f.progress);
}
