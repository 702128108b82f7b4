/* V4: no deadlock under rendezvous.
 *
 * requires: pp_prove_posts and pp_prove_match: every post has its partner, every wait its post.
 * ensures:  proof->layouts names the queue layouts in which the streams finish whatever the timing; `channel` is one.
 *           proof->in_order names those in which they do too where what a rank posts starts in the order of its
 *           stream.
 *
 * A message starts only when both ends are posted and head their queues; channels are deterministic, so one abstract
 * run decides for every timing. If the run in which a post completes before its rank goes on ("blocking") succeeds,
 * the order in which it completes things is a global order G of which every queue of every layout is a subsequence;
 * then the first unfinished element of G always heads all its queues, and no layout can deadlock. Only when it fails
 * are the layouts run one by one.
 *
 * Starts in order (NCCL_LAUNCH_ORDER_IMPLICIT): a post has a start and an end. It starts when all posts of its rank
 * before it have started, those before it in its queue have ended, and the waits before it are over; a message ends
 * when both of its posts have started. A layout thus ends less often than without; a coarser one less often than a
 * finer one, since it only adds reasons to wait. G serves here too: it starts and ends the posts of an element at once.
 * Collectives within bodies start in that order as well, yet are no part of the run: while one waits for the start of a
 * post before it, so does every post behind it, and nobody else waits for a compute.
 *
 * The streams stand for all coordinates of the tp and dp axes. G then does for the whole grid: put in the place of each
 * of its elements the copies of all coordinates, one after the other (of a collective over tp or dp: one for each of
 * its groups). Every queue of every coordinate is a subsequence of that, for all coordinates run the same streams, and
 * an element over tp or dp has all its members at one place. So a run of one coordinate decides for all. */
#include "state.h"

#include <inttypes.h>

/* ---- the blocking run ------------------------------------------------------------------------ */

/* A rank that stands at a post waits for its element; two ranks that stand at the ends of one message both go on. */
struct blocking {
	struct pp_proof *proof;
	uint32_t *cursor;   /* per rank: next event */
	uint32_t *standing; /* per rank: element it waits for, or PP_NULL */
	uint32_t *arrived;  /* per collective */
	uint32_t *work, work_count;
};

static void blocking_release(struct blocking *run, uint32_t rank)
{
	run->standing[rank] = PP_NULL;
	run->cursor[rank]++;
	run->work[run->work_count++] = rank;
}

/* True if the element completes now; the other ranks at it are released. */
static bool blocking_meet(struct blocking *run, uint32_t rank, uint32_t element)
{
	const struct pp_proof *proof = run->proof;
	if (element < proof->message_count) {
		const struct pp_channel *channel = &proof->program->channels[proof->message_channel[element]];
		uint32_t peer = channel->source == rank ? channel->destination : channel->source;
		if (run->standing[peer] != element)
			return false;
		blocking_release(run, peer);
		return true;
	}
	const struct pp_joint *joint = &proof->joints[element - proof->message_count];
	if (++run->arrived[element - proof->message_count] < joint->members)
		return false;
	const struct pp_group *group = &proof->program->groups[joint->group];
	for (uint32_t i = 0; joint->members > 1 && i < group->member_count; i++)
		if (group->members[i] != rank)
			blocking_release(run, group->members[i]);
	return true;
}

static void blocking_advance(struct blocking *run, uint32_t rank)
{
	const struct pp_rank_proof *stream = &run->proof->rank[rank];
	while (run->cursor[rank] < stream->event_count) {
		const struct pp_comm_event *event = &stream->events[run->cursor[rank]];
		if (!event->wait && !blocking_meet(run, rank, event->element)) {
			run->standing[rank] = event->element;
			return;
		}
		run->cursor[rank]++;
	}
}

static bool blocking_succeeds(struct pp_proof *proof)
{
	uint32_t ranks = proof->program->ranks;
	struct blocking run = {
	    .proof = proof,
	    .cursor = PP_NEW_ARRAY(proof->arena, uint32_t, ranks),
	    .standing = PP_NEW_ARRAY(proof->arena, uint32_t, ranks),
	    .arrived = PP_NEW_ARRAY(proof->arena, uint32_t, proof->joint_count),
	    .work = PP_NEW_ARRAY(proof->arena, uint32_t, ranks),
	};
	for (uint32_t r = ranks; r-- > 0;) {
		run.standing[r] = PP_NULL;
		run.work[run.work_count++] = r;
	}
	while (run.work_count)
		blocking_advance(&run, run.work[--run.work_count]);
	for (uint32_t r = 0; r < ranks; r++)
		if (run.cursor[r] < proof->rank[r].event_count)
			return false;
	return true;
}

/* ---- the order of the text ------------------------------------------------------------------- */

/* `@N` on posts, where given, is the position in G: it must ascend along a stream and be the same at both ends of a
 * message and for all members of a collective. */
static bool order_ascends(struct pp_proof *proof, uint32_t rank)
{
	const struct pp_stream *stream = &proof->named->streams[rank];
	uint32_t before = PP_NULL;
	for (uint32_t i = 0; stream->order && i < stream->count; i++) {
		if (stream->order[i] == PP_NULL)
			continue;
		if (before != PP_NULL && stream->order[i] <= stream->order[before]) {
			struct pp_message *message = pp_proof_error(
			    proof, "V4", rank, i, "is @%" PRIu32 " in the global order, but an earlier post is @%" PRIu32,
			    stream->order[i], stream->order[before]);
			pp_proof_also(proof, message, rank, before, "@%" PRIu32, stream->order[before]);
			return false;
		}
		before = i;
	}
	return true;
}

static uint32_t order_of(const struct pp_proof *proof, uint32_t rank, uint32_t index)
{
	const struct pp_stream *stream = &proof->named->streams[rank];
	return stream->order ? stream->order[index] : PP_NULL;
}

/* The members of a collective say the same. */
static bool order_agrees_at(struct pp_proof *proof, uint32_t rank)
{
	for (uint32_t i = 0; i < proof->rank[rank].tail_count; i++) {
		const struct pp_tail_event *event = &proof->rank[rank].tail[i];
		if (pp_proof_instr(proof, rank, event->instr)->op != PP_OP_COLL)
			continue;
		const struct pp_joint *joint = &proof->joints[event->joint];
		uint32_t here = order_of(proof, rank, event->instr);
		uint32_t first = order_of(proof, joint->first_rank, joint->first_instr);
		if (here == PP_NULL || first == PP_NULL || here == first)
			continue;
		struct pp_message *message =
		    pp_proof_error(proof, "V4", rank, event->instr,
		                   "is @%" PRIu32 " in the global order, for rank %" PRIu32 " it is @%" PRIu32, here,
		                   joint->first_rank, first);
		pp_proof_also(proof, message, joint->first_rank, joint->first_instr, "@%" PRIu32, first);
		return false;
	}
	return true;
}

static bool order_agrees(struct pp_proof *proof)
{
	bool given = false;
	for (uint32_t r = 0; r < proof->program->ranks; r++) {
		given |= proof->named->streams[r].order != NULL;
		if (!order_ascends(proof, r))
			return false;
	}
	for (uint32_t r = 0; given && r < proof->program->ranks; r++)
		if (!order_agrees_at(proof, r))
			return false;
	for (uint32_t t = 0; given && t < proof->message_count; t++) {
		const struct pp_channel *channel = &proof->program->channels[proof->message_channel[t]];
		uint32_t sent = order_of(proof, channel->source, proof->posts[PP_SEND_END][t]);
		uint32_t received = order_of(proof, channel->destination, proof->posts[PP_RECV_END][t]);
		if (sent == PP_NULL || received == PP_NULL || sent == received)
			continue;
		struct pp_message *message =
		    pp_proof_error(proof, "V4", channel->destination, proof->posts[PP_RECV_END][t],
		                   "is @%" PRIu32 " in the global order, its send is @%" PRIu32, received, sent);
		pp_proof_also(proof, message, channel->source, proof->posts[PP_SEND_END][t], "@%" PRIu32, sent);
		return false;
	}
	return true;
}

/* ---- the property ---------------------------------------------------------------------------- */

bool pp_prove_order(struct pp_proof *proof)
{
	if (!order_agrees(proof))
		return false;
	if (blocking_succeeds(proof)) {
		proof->layouts = proof->in_order = PP_ALL_LAYOUTS;
		return true;
	}
	if (!pp_prove_layout(proof, PP_LAYOUT_CHANNEL))
		return false;
	proof->layouts = 1u << PP_LAYOUT_CHANNEL;
	for (int layout = PP_LAYOUT_EDGE; layout < PP_LAYOUT_BLOCKING; layout++)
		if (pp_layout_ends(proof, (enum pp_layout)layout, false))
			proof->layouts |= 1u << layout;
	for (int layout = 0; layout < PP_LAYOUT_BLOCKING; layout++)
		if (proof->layouts >> layout & 1 && pp_layout_ends(proof, (enum pp_layout)layout, true))
			proof->in_order |= 1u << layout;
		else if (layout == PP_LAYOUT_CHANNEL)
			break; /* the finest */
	return true;
}
