/* The verifier's driver: runs the parts over every named program, and names instructions in their messages.
 *
 * requires: a program whose indices are in range (readers and codegen guarantee it).
 * ensures:  true only if V1-V11 hold; then *stamp says what was proven. */
#include "state.h"

#include "ir/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

/* ---- naming ---------------------------------------------------------------------------------- */

const char *pp_proof_slot(const struct pp_proof *proof, uint32_t rank, uint32_t slot)
{
	if (slot == PP_NULL)
		return "the null slot";
	const struct pp_rank *owner = &proof->program->rank[rank];
	if (slot >= owner->slot_count)
		return pp_arena_printf(proof->arena, "slot %" PRIu32, slot);
	return pp_arena_printf(proof->arena, "%s.%" PRIu32, pp_slot_class_name[owner->slots[slot].class], slot);
}

static const char *tensor_name(const struct pp_proof *proof, uint32_t rank, const struct pp_instr *instr)
{
	const struct pp_program *program = proof->program;
	uint32_t tensor = instr->mb;
	if (instr->op == PP_OP_OPT)
		tensor = instr->a[0] < program->rank[rank].slot_count ? program->rank[rank].slots[instr->a[0]].tensor : PP_NULL;
	return tensor < program->tensor_count ? program->tensors[tensor].name : "?";
}

/* The post that a wait refers to, or PP_NULL. */
static uint32_t awaited(const struct pp_proof *proof, uint32_t rank, const struct pp_instr *wait)
{
	uint32_t channel = wait->a[0], sequence = wait->a[1];
	int end = pp_proof_end(proof, rank, channel);
	bool ours = end == PP_SEND_END || proof->program->channels[channel].destination == rank;
	if (!ours || sequence >= proof->first_message[channel + 1] - proof->first_message[channel])
		return PP_NULL;
	uint32_t post = proof->posts[end][proof->first_message[channel] + sequence];
	return post < proof->named->streams[rank].count ? post : PP_NULL;
}

static const char *post_text(const struct pp_proof *proof, const struct pp_instr *post, const char *before)
{
	return pp_arena_printf(proof->arena, "%s%s %s s%" PRIu32 " m%" PRIu32, before, pp_op_table[post->op].mnemonic,
	                       pp_value_name[proof->program->channels[post->a[0]].kind], post->stage, post->mb);
}

const char *pp_proof_text(const struct pp_proof *proof, uint32_t rank, uint32_t index)
{
	const struct pp_instr *instr = pp_proof_instr(proof, rank, index);
	const char *mnemonic = pp_op_table[instr->op].mnemonic;
	if (proof->words)
		return proof->words->text(proof, rank, index);
	switch ((enum pp_op)instr->op) {
	case PP_OP_LOAD:
		return pp_arena_printf(proof->arena, "%s %s s%" PRIu32 " m%" PRIu32, mnemonic, pp_load_name[instr->sub],
		                       instr->stage, instr->mb);
	case PP_OP_FWD:
	case PP_OP_REMAT:
	case PP_OP_BWD:
	case PP_OP_BWDI:
	case PP_OP_BWDW:
		return pp_arena_printf(proof->arena, "%s s%" PRIu32 " m%" PRIu32, mnemonic, instr->stage, instr->mb);
	case PP_OP_SEND:
	case PP_OP_RECV:
		return post_text(proof, instr, "");
	case PP_OP_WAIT: {
		uint32_t post = awaited(proof, rank, instr);
		if (post != PP_NULL)
			return post_text(proof, pp_proof_instr(proof, rank, post), "wait ");
		return pp_arena_printf(proof->arena, "wait c%" PRIu32 " #%" PRIu32, instr->a[0], instr->a[1]);
	}
	case PP_OP_COLL:
		return pp_arena_printf(proof->arena, "coll k%" PRIu32 " g%" PRIu32 " %s", instr->a[0], instr->a[1],
		                       pp_collective_name[instr->sub]);
	case PP_OP_WAITC:
		return pp_arena_printf(proof->arena, "waitc k%" PRIu32, instr->a[0]);
	case PP_OP_ZERO:
	case PP_OP_ADD:
		return pp_arena_printf(proof->arena, "%s %s", mnemonic, pp_proof_slot(proof, rank, instr->a[0]));
	case PP_OP_SQNORM:
	case PP_OP_OPT:
		return pp_arena_printf(proof->arena, "%s %s", mnemonic, tensor_name(proof, rank, instr));
	case PP_OP_CLIP:
	case PP_OP_MARK:
	case PP_OP_COUNT:
		break;
	}
	return mnemonic;
}

/* "rank 1, instruction 17 `fwd s1 m2`" */
static const char *instruction_name(const struct pp_proof *proof, uint32_t rank, uint32_t index)
{
	if (proof->words)
		return proof->words->place(proof, rank, index);
	return pp_arena_printf(proof->arena, "rank %" PRIu32 ", instruction %" PRIu32 " `%s`", rank, index,
	                       pp_proof_text(proof, rank, index));
}

static struct pp_span span_of(const struct pp_proof *proof, uint32_t rank, uint32_t index)
{
	const struct pp_stream *stream = &proof->named->streams[rank];
	return stream->spans ? stream->spans[index] : PP_NO_SPAN;
}

static const char *format_text(struct pp_arena *arena, const char *format, va_list args)
{
	char text[512];
	vsnprintf(text, sizeof text, format, args);
	return pp_arena_copy(arena, text, strlen(text));
}

struct pp_message *pp_proof_error(struct pp_proof *proof, const char *code, uint32_t rank, uint32_t index,
                                  const char *format, ...)
{
	va_list args;
	va_start(args, format);
	const char *text = format_text(proof->arena, format, args);
	va_end(args);
	return pp_error(proof->diag, code, span_of(proof, rank, index), "%s %s", instruction_name(proof, rank, index),
	                text);
}

void pp_proof_also(struct pp_proof *proof, struct pp_message *message, uint32_t rank, uint32_t index,
                   const char *format, ...)
{
	va_list args;
	va_start(args, format);
	const char *text = format_text(proof->arena, format, args);
	va_end(args);
	struct pp_span span = span_of(proof, rank, index);
	if (pp_span_known(span))
		pp_label(message, span, "rank %" PRIu32 ": %s", rank, text);
	else
		pp_note(message, "%s: %s", instruction_name(proof, rank, index), text);
}

/* ---- driver ---------------------------------------------------------------------------------- */

static struct pp_proof proof_begin(const struct pp_program *program, const struct pp_named_program *named,
                                   struct pp_arena *arena, struct pp_diag *diag)
{
	return (struct pp_proof){
	    .program = program,
	    .named = named,
	    .diag = diag,
	    .arena = arena,
	    .forward_only = pp_is_forward_only(named),
	};
}

/* The later parts assume what the earlier ones prove, so the first failing part is the last one run. */
static bool prove(struct pp_proof *proof)
{
	return pp_prove_posts(proof) && pp_prove_match(proof) && pp_prove_flow(proof) && pp_prove_order(proof) &&
	       pp_prove_grad(proof) && pp_prove_residency(proof);
}

static void stamp_bits(const struct pp_proof *proof, struct pp_stamp *stamp)
{
	if (proof->weights_ascend)
		return;
	stamp->bits_fixed = false;
	snprintf(stamp->bits_reason, sizeof stamp->bits_reason,
	         "weight gradients of stage %" PRIu32 " are not added in ascending microbatch order",
	         proof->descending_stage);
}

bool pp_verify(const struct pp_program *program, struct pp_stamp *stamp, struct pp_diag *diag)
{
	*stamp = (struct pp_stamp){.layouts = PP_ALL_LAYOUTS, .in_order = PP_ALL_LAYOUTS, .bits_fixed = true};
	bool good = pp_verify_memory(program, diag);
	good &= pp_verify_bodies(program, diag);
	for (uint32_t i = 0; i < program->program_count; i++) {
		struct pp_arena *scratch = pp_arena_scratch(program->arena);
		struct pp_proof proof = proof_begin(program, &program->programs[i], scratch, diag);
		good &= prove(&proof);
		stamp->layouts &= proof.layouts;
		stamp->in_order &= proof.in_order;
		if (!proof.forward_only)
			stamp_bits(&proof, stamp);
		pp_arena_destroy(scratch);
	}
	stamp->proven = good;
	return good;
}

bool pp_verify_residency(const struct pp_program *program, struct pp_diag *diag)
{
	bool good = true;
	for (uint32_t i = 0; good && i < program->program_count; i++) {
		struct pp_arena *scratch = pp_arena_scratch(program->arena);
		struct pp_proof proof = proof_begin(program, &program->programs[i], scratch, diag);
		good = pp_prove_posts(&proof) && pp_prove_residency(&proof);
		pp_arena_destroy(scratch);
	}
	return good;
}

bool pp_verify_layout(const struct pp_program *program, const struct pp_named_program *named, enum pp_layout layout,
                      struct pp_diag *diag)
{
	struct pp_arena *scratch = pp_arena_scratch(program->arena);
	struct pp_proof proof = proof_begin(program, named, scratch, diag);
	bool good = pp_prove_posts(&proof) && pp_prove_match(&proof) && pp_prove_layout(&proof, layout);
	pp_arena_destroy(scratch);
	return good;
}
