/* V3, V6: one rank's posts and their waits; messages and collectives get their numbers.
 *
 * requires: indices in range.
 * ensures:  messages and collectives are numbered; each rank's events and step tail are listed in stream order; on
 *           each channel end the k-th post says #k and stands on the right rank, with at most `depth` receives in
 *           flight; every post is waited for exactly once, after it. */
#include "state.h"

#include <inttypes.h>

/* ---- numbering ------------------------------------------------------------------------------- */

/* Per-rank counters over groups, reset lazily: `seen` says for which rank `count` counts. */
struct group_counter {
	uint32_t *count, *seen;
};

static struct group_counter group_counter_create(const struct pp_proof *proof)
{
	uint32_t groups = proof->program->group_count;
	struct group_counter counter = {PP_NEW_ARRAY(proof->arena, uint32_t, groups),
	                                PP_NEW_ARRAY(proof->arena, uint32_t, groups)};
	for (uint32_t g = 0; g < groups; g++)
		counter.seen[g] = PP_NULL;
	return counter;
}

/* The number of collectives of `group` that `rank` has posted before; counts this one. */
static uint32_t group_next(struct group_counter *counter, uint32_t group, uint32_t rank)
{
	if (counter->seen[group] != rank) {
		counter->seen[group] = rank;
		counter->count[group] = 0;
	}
	return counter->count[group]++;
}

struct sizes {
	uint32_t events, tail;
};

static void count_rank(struct pp_proof *proof, uint32_t rank, struct group_counter *counter, uint32_t *singles,
                       struct sizes *sizes)
{
	const struct pp_stream *stream = &proof->named->streams[rank];
	*sizes = (struct sizes){0, 0};
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op < PP_OP_SEND)
			continue;
		if (instr->op <= PP_OP_WAIT) {
			sizes->events++;
			if (instr->op != PP_OP_WAIT)
				proof->post_count[instr->op == PP_OP_RECV][instr->a[0]]++;
			continue;
		}
		sizes->events += instr->op == PP_OP_COLL || instr->op == PP_OP_WAITC;
		sizes->tail += instr->op != PP_OP_MARK;
		if (instr->op != PP_OP_COLL)
			continue;
		uint32_t group = instr->a[1];
		if (proof->program->groups[group].axis != PP_AXIS_PP)
			++*singles;
		else if (group_next(counter, group, rank) >= proof->group_joints[group])
			proof->group_joints[group]++;
	}
}

static void number_messages(struct pp_proof *proof)
{
	const struct pp_program *program = proof->program;
	uint32_t total = 0;
	for (uint32_t c = 0; c < program->channel_count; c++) {
		proof->first_message[c] = total;
		uint32_t sends = proof->post_count[PP_SEND_END][c], receives = proof->post_count[PP_RECV_END][c];
		total += sends > receives ? sends : receives;
	}
	proof->first_message[program->channel_count] = total;
	proof->message_count = total;
	proof->message_channel = PP_NEW_ARRAY(proof->arena, uint32_t, total);
	for (uint32_t c = 0; c < program->channel_count; c++)
		for (uint32_t t = proof->first_message[c]; t < proof->first_message[c + 1]; t++)
			proof->message_channel[t] = c;
	for (int end = 0; end < 2; end++) {
		proof->posts[end] = PP_NEW_ARRAY(proof->arena, uint32_t, total);
		for (uint32_t t = 0; t < total; t++)
			proof->posts[end][t] = PP_NULL;
	}
}

static void number_joints(struct pp_proof *proof, uint32_t singles)
{
	const struct pp_program *program = proof->program;
	uint32_t total = 0;
	for (uint32_t g = 0; g < program->group_count; g++) {
		proof->first_joint[g] = total;
		total += proof->group_joints[g];
	}
	proof->joint_count = total; /* the singles are added as they come */
	proof->joints = PP_NEW_ARRAY(proof->arena, struct pp_joint, (size_t)total + singles);
	for (uint32_t g = 0; g < program->group_count; g++)
		for (uint32_t k = 0; k < proof->group_joints[g]; k++)
			proof->joints[proof->first_joint[g] + k] = (struct pp_joint){
			    .group = g, .sequence = k, .first_rank = PP_NULL, .members = program->groups[g].member_count};
}

static void number(struct pp_proof *proof)
{
	const struct pp_program *program = proof->program;
	proof->first_message = PP_NEW_ARRAY(proof->arena, uint32_t, (size_t)program->channel_count + 1);
	proof->first_joint = PP_NEW_ARRAY(proof->arena, uint32_t, program->group_count);
	proof->group_joints = PP_NEW_ARRAY(proof->arena, uint32_t, program->group_count);
	for (int end = 0; end < 2; end++)
		proof->post_count[end] = PP_NEW_ARRAY(proof->arena, uint32_t, program->channel_count);
	proof->rank = PP_NEW_ARRAY(proof->arena, struct pp_rank_proof, program->ranks);
	struct group_counter counter = group_counter_create(proof);
	uint32_t singles = 0;
	for (uint32_t r = 0; r < program->ranks; r++) {
		struct sizes sizes;
		count_rank(proof, r, &counter, &singles, &sizes);
		proof->rank[r].events = PP_NEW_ARRAY(proof->arena, struct pp_comm_event, sizes.events);
		proof->rank[r].tail = PP_NEW_ARRAY(proof->arena, struct pp_tail_event, sizes.tail);
	}
	number_messages(proof);
	number_joints(proof, singles);
}

/* ---- one rank's posts and waits -------------------------------------------------------------- */

/* Collectives of one rank by their id: open addressing, twice as many places as posts. */
struct id_table {
	struct id_entry {
		uint32_t id, joint, instr;
		bool used, waited;
	} * entries;
	uint32_t mask;
};

static struct id_table id_table_create(const struct pp_proof *proof, uint32_t posts)
{
	uint32_t size = 4;
	while (size < 2 * (uint64_t)posts)
		size *= 2;
	return (struct id_table){.entries = PP_NEW_ARRAY(proof->arena, struct id_entry, size), .mask = size - 1};
}

static struct id_entry *id_find(const struct id_table *table, uint32_t id)
{
	uint32_t at = (id * 2654435761u) & table->mask;
	while (table->entries[at].used && table->entries[at].id != id)
		at = (at + 1) & table->mask;
	return &table->entries[at];
}

/* The walk over one rank. */
struct walk {
	struct pp_proof *proof;
	uint32_t rank;
	uint32_t *next[2];     /* per end and channel: posts so far */
	uint8_t *waited;       /* per message: bit per end */
	uint32_t *outstanding; /* per channel: receives posted and not waited for */
	struct group_counter collectives;
	struct id_table ids;
};

static void add_event(struct walk *w, uint32_t element, uint32_t instr, bool wait)
{
	struct pp_rank_proof *rank = &w->proof->rank[w->rank];
	rank->events[rank->event_count++] = (struct pp_comm_event){.element = element, .instr = instr, .wait = wait};
}

static bool post_message(struct walk *w, uint32_t index, const struct pp_instr *instr)
{
	struct pp_proof *proof = w->proof;
	const struct pp_channel *channel = &proof->program->channels[instr->a[0]];
	int end = instr->op == PP_OP_RECV;
	uint32_t owner = end ? channel->destination : channel->source;
	if (owner != w->rank) {
		pp_proof_error(proof, "V3", w->rank, index,
		               "uses channel c%" PRIu32 ", which goes from rank %" PRIu32 " to rank %" PRIu32, instr->a[0],
		               channel->source, channel->destination);
		return false;
	}
	uint32_t expected = w->next[end][instr->a[0]]++;
	if (instr->a[1] != expected) {
		struct pp_message *message =
		    pp_proof_error(proof, "V3", w->rank, index, "says #%" PRIu32 " but is %s #%" PRIu32 " of channel c%" PRIu32,
		                   instr->a[1], pp_op_table[instr->op].mnemonic, expected, instr->a[0]);
		pp_help(message, "a channel has no tags: its posts are numbered 0, 1, 2, ... in stream order");
		return false;
	}
	if (end && ++w->outstanding[instr->a[0]] > channel->depth) {
		pp_proof_error(proof, "V6", w->rank, index,
		               "is receive %" PRIu32 " in flight on channel c%" PRIu32 ", whose depth is %" PRIu32,
		               w->outstanding[instr->a[0]], instr->a[0], channel->depth);
		return false;
	}
	uint32_t element = proof->first_message[instr->a[0]] + expected;
	proof->posts[end][element] = index;
	add_event(w, element, index, false);
	return true;
}

/* The wait that came first, for messages about a second one. */
static uint32_t earlier_wait(const struct walk *w, uint32_t element, uint32_t index)
{
	const struct pp_rank_proof *rank = &w->proof->rank[w->rank];
	for (uint32_t i = 0; i < rank->event_count; i++)
		if (rank->events[i].wait && rank->events[i].element == element)
			return rank->events[i].instr;
	return index;
}

static bool wait_message(struct walk *w, uint32_t index, const struct pp_instr *instr)
{
	struct pp_proof *proof = w->proof;
	const struct pp_channel *channel = &proof->program->channels[instr->a[0]];
	if (channel->source != w->rank && channel->destination != w->rank) {
		pp_proof_error(proof, "V6", w->rank, index,
		               "waits on channel c%" PRIu32 ", which goes from rank %" PRIu32 " to rank %" PRIu32, instr->a[0],
		               channel->source, channel->destination);
		return false;
	}
	int end = pp_proof_end(proof, w->rank, instr->a[0]);
	if (instr->a[1] >= w->next[end][instr->a[0]]) {
		pp_proof_error(proof, "V6", w->rank, index,
		               "waits for %s #%" PRIu32 " of channel c%" PRIu32 ", which this rank has not posted before",
		               end ? "recv" : "send", instr->a[1], instr->a[0]);
		return false;
	}
	uint32_t element = proof->first_message[instr->a[0]] + instr->a[1];
	uint8_t bit = (uint8_t)(1u << end);
	if (w->waited[element] & bit) {
		struct pp_message *message = pp_proof_error(proof, "V6", w->rank, index, "waits a second time for this post");
		pp_proof_also(proof, message, w->rank, earlier_wait(w, element, index), "first wait");
		return false;
	}
	w->waited[element] |= bit;
	if (end)
		w->outstanding[instr->a[0]]--;
	add_event(w, element, index, true);
	return true;
}

static bool is_member(const struct pp_group *group, uint32_t rank)
{
	uint32_t low = 0, high = group->member_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (group->members[middle] < rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low < group->member_count && group->members[low] == rank;
}

/* The collective that this post belongs to: shared by the members of a pp group, its own on a symbolic axis. */
static uint32_t joint_of(struct walk *w, const struct pp_instr *instr)
{
	struct pp_proof *proof = w->proof;
	uint32_t group = instr->a[1];
	if (proof->program->groups[group].axis == PP_AXIS_PP)
		return proof->first_joint[group] + group_next(&w->collectives, group, w->rank);
	uint32_t joint = proof->joint_count++;
	proof->joints[joint] = (struct pp_joint){.group = group, .first_rank = PP_NULL, .members = 1};
	return joint;
}

static void add_tail(struct walk *w, uint32_t index, uint32_t joint, uint32_t post)
{
	struct pp_rank_proof *rank = &w->proof->rank[w->rank];
	rank->tail[rank->tail_count++] = (struct pp_tail_event){.instr = index, .joint = joint, .post = post};
}

static bool post_collective(struct walk *w, uint32_t index, const struct pp_instr *instr)
{
	struct pp_proof *proof = w->proof;
	const struct pp_group *group = &proof->program->groups[instr->a[1]];
	if (group->axis == PP_AXIS_PP && !is_member(group, w->rank)) {
		pp_proof_error(proof, "V7", w->rank, index,
		               "takes part in group g%" PRIu32 ", of which rank %" PRIu32 " is no member", instr->a[1],
		               w->rank);
		return false;
	}
	struct id_entry *entry = id_find(&w->ids, instr->a[0]);
	if (entry->used) {
		struct pp_message *message =
		    pp_proof_error(proof, "V7", w->rank, index, "posts collective k%" PRIu32 " a second time", instr->a[0]);
		pp_proof_also(proof, message, w->rank, entry->instr, "first post");
		return false;
	}
	uint32_t joint = joint_of(w, instr);
	*entry = (struct id_entry){.id = instr->a[0], .joint = joint, .instr = index, .used = true};
	add_event(w, proof->message_count + joint, index, false);
	add_tail(w, index, joint, index);
	return true;
}

static bool wait_collective(struct walk *w, uint32_t index, const struct pp_instr *instr)
{
	struct pp_proof *proof = w->proof;
	struct id_entry *entry = id_find(&w->ids, instr->a[0]);
	if (!entry->used || entry->waited) {
		pp_proof_error(proof, "V6", w->rank, index,
		               entry->used ? "waits a second time for collective k%" PRIu32
		                           : "waits for collective k%" PRIu32 ", which this rank has not posted before",
		               instr->a[0]);
		return false;
	}
	entry->waited = true;
	add_event(w, proof->message_count + entry->joint, index, true);
	add_tail(w, index, entry->joint, entry->instr);
	return true;
}

static bool visit(struct walk *w, uint32_t index, const struct pp_instr *instr)
{
	switch ((enum pp_op)instr->op) {
	case PP_OP_LOAD:
	case PP_OP_FWD:
	case PP_OP_REMAT:
	case PP_OP_BWD:
	case PP_OP_BWDI:
	case PP_OP_BWDW:
	case PP_OP_MARK:
	case PP_OP_COUNT:
		return true;
	case PP_OP_SEND:
	case PP_OP_RECV:
		return post_message(w, index, instr);
	case PP_OP_WAIT:
		return wait_message(w, index, instr);
	case PP_OP_COLL:
		return post_collective(w, index, instr);
	case PP_OP_WAITC:
		return wait_collective(w, index, instr);
	case PP_OP_ZERO:
	case PP_OP_ADD:
	case PP_OP_SQNORM:
	case PP_OP_CLIP:
	case PP_OP_OPT:
		add_tail(w, index, PP_NULL, PP_NULL);
		return true;
	}
	return true;
}

/* The first post of this rank that nobody waits for, reported. */
static bool all_waited(struct walk *w)
{
	struct pp_proof *proof = w->proof;
	const struct pp_rank_proof *rank = &proof->rank[w->rank];
	for (uint32_t i = 0; i < rank->event_count; i++) {
		const struct pp_comm_event *event = &rank->events[i];
		if (event->wait)
			continue;
		bool waited;
		if (event->element < proof->message_count) {
			int end = pp_proof_end(proof, w->rank, proof->message_channel[event->element]);
			waited = w->waited[event->element] >> end & 1;
		} else {
			waited = id_find(&w->ids, pp_proof_instr(proof, w->rank, event->instr)->a[0])->waited;
		}
		if (waited)
			continue;
		struct pp_message *message = pp_proof_error(proof, "V6", w->rank, event->instr, "is never waited for");
		pp_help(message, "every post needs one `wait` (collectives: `waitc`) before the step ends");
		return false;
	}
	return true;
}

static bool walk_rank(struct walk *w)
{
	const struct pp_stream *stream = &w->proof->named->streams[w->rank];
	uint32_t collectives = 0;
	for (uint32_t i = 0; i < stream->count; i++)
		collectives += stream->items[i].op == PP_OP_COLL;
	w->ids = id_table_create(w->proof, collectives);
	for (uint32_t i = 0; i < stream->count; i++)
		if (!visit(w, i, &stream->items[i]))
			return false;
	return all_waited(w);
}

bool pp_prove_posts(struct pp_proof *proof)
{
	number(proof);
	uint32_t channels = proof->program->channel_count;
	struct walk w = {
	    .proof = proof,
	    .next = {PP_NEW_ARRAY(proof->arena, uint32_t, channels), PP_NEW_ARRAY(proof->arena, uint32_t, channels)},
	    .waited = PP_NEW_ARRAY(proof->arena, uint8_t, proof->message_count),
	    .outstanding = PP_NEW_ARRAY(proof->arena, uint32_t, channels),
	    .collectives = group_counter_create(proof),
	};
	bool good = true;
	for (w.rank = 0; w.rank < proof->program->ranks; w.rank++)
		good &= walk_rank(&w);
	return good;
}
