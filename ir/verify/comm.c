/* V3, V7: both ends of every message and all members of every collective agree.
 *
 * requires: pp_prove_posts.
 * ensures:  the k-th send and the k-th recv of a channel carry the same value, count and dtype, those of the stage
 *           tables, to the rank of its reader; the members of a group issue the same collectives in the same order. */
#include "state.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- both ends agree ------------------------------------------------------------------------- */

static int by_ends(const void *left, const void *right)
{
	const struct pp_channel *const *a = left, *const *b = right;
	if ((*a)->source != (*b)->source)
		return (*a)->source < (*b)->source ? -1 : 1;
	if ((*a)->destination != (*b)->destination)
		return (*a)->destination < (*b)->destination ? -1 : 1;
	if ((*a)->kind != (*b)->kind)
		return (*a)->kind < (*b)->kind ? -1 : 1;
	return *a < *b ? -1 : *a > *b;
}

/* A channel is a pair of ranks and a kind: two entries with the same would share one FIFO of the transport. */
static bool channels_distinct(struct pp_proof *proof)
{
	const struct pp_program *program = proof->program;
	const struct pp_channel **sorted = PP_NEW_ARRAY(proof->arena, const struct pp_channel *, program->channel_count);
	for (uint32_t c = 0; c < program->channel_count; c++)
		sorted[c] = &program->channels[c];
	if (program->channel_count)
		qsort(sorted, program->channel_count, sizeof *sorted, by_ends);
	for (uint32_t i = 0; i < program->channel_count; i++) {
		const struct pp_channel *channel = sorted[i], *before = i ? sorted[i - 1] : NULL;
		if (channel->source == channel->destination) {
			pp_error(proof->diag, "V3", PP_NO_SPAN, "channel c%td goes from rank %" PRIu32 " to itself",
			         channel - program->channels, channel->source);
			return false;
		}
		if (before && before->source == channel->source && before->destination == channel->destination &&
		    before->kind == channel->kind) {
			pp_error(proof->diag, "V3", PP_NO_SPAN,
			         "channels c%td and c%td are the same: rank %" PRIu32 " to rank %" PRIu32 ", %s",
			         before - program->channels, channel - program->channels, channel->source, channel->destination,
			         pp_value_name[channel->kind]);
			return false;
		}
	}
	return true;
}

/* One end lacks its partner: name the post that has none. */
static bool ends_paired(struct pp_proof *proof, uint32_t c)
{
	const struct pp_channel *channel = &proof->program->channels[c];
	uint32_t sends = proof->post_count[PP_SEND_END][c], receives = proof->post_count[PP_RECV_END][c];
	if (sends == receives)
		return true;
	int end = sends > receives ? PP_SEND_END : PP_RECV_END;
	uint32_t fewer = sends > receives ? receives : sends;
	uint32_t rank = end ? channel->destination : channel->source, other = end ? channel->source : channel->destination;
	/* Where the claims of the two ends first part is where the post went missing or came in. */
	uint32_t k = 0, first = proof->first_message[c];
	for (; k < fewer; k++) {
		const struct pp_instr *send = pp_proof_instr(proof, channel->source, proof->posts[PP_SEND_END][first + k]);
		const struct pp_instr *recv = pp_proof_instr(proof, channel->destination, proof->posts[PP_RECV_END][first + k]);
		if (send->stage != recv->stage || send->mb != recv->mb)
			break;
	}
	struct pp_message *message =
	    pp_proof_error(proof, "V3", rank, proof->posts[end][first + k],
	                   "(#%" PRIu32 " of channel c%" PRIu32 ") has no matching %s on rank %" PRIu32, k, c,
	                   end ? "send" : "recv", other);
	pp_note(message,
	        "channel c%" PRIu32 ", rank %" PRIu32 " to rank %" PRIu32 " %s: %" PRIu32 " sends and %" PRIu32 " receives",
	        c, channel->source, channel->destination, pp_value_name[channel->kind], sends, receives);
	return false;
}

static const char *payload(const struct pp_proof *proof, const struct pp_instr *post)
{
	return pp_arena_printf(proof->arena, "%s s%" PRIu32 " m%" PRIu32 " %s*%" PRIu32,
	                       pp_value_name[proof->program->channels[post->a[0]].kind], post->stage, post->mb,
	                       pp_dtype_name[post->dtype], post->count);
}

/* What the stage tables say about a boundary value: its reader and its shape. The gradient of stage s has the shape
 * of the output of s - 1. */
static bool tables_agree(struct pp_proof *proof, uint32_t c, uint32_t index, const struct pp_instr *send)
{
	const struct pp_program *program = proof->program;
	const struct pp_channel *channel = &program->channels[c];
	bool act = channel->kind == PP_ACT;
	if (act ? send->stage + 1 >= program->stage_count : send->stage == 0) {
		pp_proof_error(proof, "V3", channel->source, index,
		               "sends a value that no stage reads: stage %" PRIu32 " is the %s", send->stage,
		               act ? "last" : "first");
		return false;
	}
	uint32_t reader = act ? send->stage + 1 : send->stage - 1;
	if (program->stages[reader].rank != channel->destination) {
		pp_proof_error(proof, "V3", channel->source, index,
		               "goes to rank %" PRIu32 ", but its reader, stage %" PRIu32 ", is on rank %" PRIu32,
		               channel->destination, reader, program->stages[reader].rank);
		return false;
	}
	const struct pp_stage *shape = &program->stages[act ? send->stage : send->stage - 1];
	if (send->count != shape->out_count || send->dtype != shape->out_dtype) {
		pp_proof_error(proof, "V3", channel->source, index,
		               "carries %s*%" PRIu32 ", but the boundary after stage %td is %s*%" PRIu32,
		               pp_dtype_name[send->dtype], send->count, shape - program->stages,
		               pp_dtype_name[shape->out_dtype], shape->out_count);
		return false;
	}
	return true;
}

static bool message_agrees(struct pp_proof *proof, uint32_t c, uint32_t sequence)
{
	const struct pp_channel *channel = &proof->program->channels[c];
	uint32_t element = proof->first_message[c] + sequence;
	uint32_t sent = proof->posts[PP_SEND_END][element], received = proof->posts[PP_RECV_END][element];
	const struct pp_instr *send = pp_proof_instr(proof, channel->source, sent);
	const struct pp_instr *recv = pp_proof_instr(proof, channel->destination, received);
	if (send->stage == recv->stage && send->mb == recv->mb && send->count == recv->count && send->dtype == recv->dtype)
		return tables_agree(proof, c, sent, send);
	struct pp_message *message =
	    pp_proof_error(proof, "V3", channel->destination, received,
	                   "(#%" PRIu32 " of channel c%" PRIu32 ") expects %s, but rank %" PRIu32 " sends %s", sequence, c,
	                   payload(proof, recv), channel->source, payload(proof, send));
	pp_proof_also(proof, message, channel->source, sent, "send #%" PRIu32, sequence);
	return false;
}

static bool messages_agree(struct pp_proof *proof)
{
	bool good = true;
	for (uint32_t c = 0; c < proof->program->channel_count; c++) {
		if (!ends_paired(proof, c)) {
			good = false;
			continue;
		}
		uint32_t count = proof->post_count[PP_SEND_END][c];
		if (!proof->forward_only && proof->program->channels[c].messages != count) {
			pp_error(proof->diag, "V3", PP_NO_SPAN,
			         "channel c%" PRIu32 " says %" PRIu32 " messages per step, the streams post %" PRIu32, c,
			         proof->program->channels[c].messages, count);
			good = false;
		}
		for (uint32_t k = 0; k < count; k++)
			if (!message_agrees(proof, c, k)) {
				good = false;
				break;
			}
	}
	return good;
}

/* ---- members agree --------------------------------------------------------------------------- */

static const char *collective(const struct pp_proof *proof, const struct pp_instr *post)
{
	return pp_arena_printf(proof->arena, "k%" PRIu32 " %s %s*%" PRIu32 "%s", post->a[0], pp_collective_name[post->sub],
	                       pp_dtype_name[post->dtype], post->count, post->flags & PP_SHARD ? " shard" : "");
}

static bool joint_agrees(struct pp_proof *proof, struct pp_joint *joint, uint32_t rank, uint32_t index)
{
	joint->posted++;
	if (joint->first_rank == PP_NULL) {
		joint->first_rank = rank;
		joint->first_instr = index;
		return true;
	}
	const struct pp_instr *first = pp_proof_instr(proof, joint->first_rank, joint->first_instr),
	                      *this = pp_proof_instr(proof, rank, index);
	if (first->a[0] == this->a[0] && first->sub == this->sub && first->dtype == this->dtype &&
	    first->count == this->count && first->flags == this->flags)
		return true;
	struct pp_message *message = pp_proof_error(
	    proof, "V7", rank, index,
	    "is collective %" PRIu32 " of group g%" PRIu32 " with %s, but rank %" PRIu32 " has %s there", joint->sequence,
	    joint->group, collective(proof, this), joint->first_rank, collective(proof, first));
	pp_proof_also(proof, message, joint->first_rank, joint->first_instr, "collective %" PRIu32 " of the group",
	              joint->sequence);
	return false;
}

/* The first member that does not post a collective. */
static uint32_t absent_member(const struct pp_proof *proof, uint32_t joint)
{
	const struct pp_group *group = &proof->program->groups[proof->joints[joint].group];
	for (uint32_t i = 0; i < group->member_count; i++) {
		const struct pp_rank_proof *rank = &proof->rank[group->members[i]];
		bool posts = false;
		for (uint32_t k = 0; k < rank->tail_count; k++)
			posts |= rank->tail[k].joint == joint;
		if (!posts)
			return group->members[i];
	}
	return PP_NULL;
}

static bool joints_agree(struct pp_proof *proof)
{
	bool good = true;
	for (uint32_t r = 0; r < proof->program->ranks; r++) {
		const struct pp_rank_proof *rank = &proof->rank[r];
		for (uint32_t i = 0; i < rank->tail_count && good; i++)
			if (pp_proof_instr(proof, r, rank->tail[i].instr)->op == PP_OP_COLL)
				good = joint_agrees(proof, &proof->joints[rank->tail[i].joint], r, rank->tail[i].instr);
	}
	for (uint32_t j = 0; j < proof->joint_count && good; j++) {
		const struct pp_joint *joint = &proof->joints[j];
		if (joint->posted == joint->members)
			continue;
		good = false;
		struct pp_message *message = pp_proof_error(proof, "V7", joint->first_rank, joint->first_instr,
		                                            "is collective %" PRIu32 " of group g%" PRIu32
		                                            ", which only %" PRIu32 " of %" PRIu32 " members post",
		                                            joint->sequence, joint->group, joint->posted, joint->members);
		uint32_t absent = absent_member(proof, j);
		if (absent != PP_NULL)
			pp_note(message, "rank %" PRIu32 " does not", absent);
		pp_help(message, "every member of a group issues the same collectives in the same order");
	}
	return good;
}

bool pp_prove_match(struct pp_proof *proof)
{
	return channels_distinct(proof) && messages_agree(proof) && joints_agree(proof);
}
