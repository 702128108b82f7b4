/* Messages and collectives of a simulated run: their numbers, queues, begin and end. */
#include "simulate_state.h"

#include "lifetime.h"

/* ---- numbering ------------------------------------------------------------------------------- */

/* Posts that a collective of the group needs. */
static uint32_t members_of(const struct pp_sim_run *run, uint32_t group)
{
	const struct pp_group *g = &run->program->groups[group];
	return g->axis == PP_AXIS_PP ? g->member_count : 1;
}

/* A collective of the group is posted; `mine` counts those of this rank, `seen` says for which rank it counts. */
static void count_joint(const struct pp_sim_run *run, uint32_t group, uint32_t rank, uint32_t *mine, uint32_t *seen)
{
	bool symbolic = run->program->groups[group].axis != PP_AXIS_PP;
	if (seen[group] != rank + 1 && !symbolic) {
		seen[group] = rank + 1;
		mine[group] = 0;
	}
	if (++mine[group] > run->joint_limit[group])
		run->joint_limit[group] = mine[group];
}

/* Posts of every channel end and, per group, of the member that posts most collectives (symbolic axes: all of them). */
static void count_posts(struct pp_sim_run *run)
{
	const struct pp_program *program = run->program;
	uint32_t *mine = PP_NEW_ARRAY(run->scratch, uint32_t, program->group_count);
	uint32_t *seen = PP_NEW_ARRAY(run->scratch, uint32_t, program->group_count);
	for (uint32_t r = 0; r < program->ranks; r++) {
		const struct pp_stream *stream = &run->named->streams[r];
		struct pp_sim_state *state = &run->ranks[r];
		state->last_compute = state->first_backward = state->last_forward = PP_NULL;
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *instr = &stream->items[i];
			if (pp_is_compute(instr)) {
				state->last_compute = i;
				if (instr->op == PP_OP_FWD)
					state->last_forward = i;
				else if (state->first_backward == PP_NULL && instr->op != PP_OP_REMAT)
					state->first_backward = i;
			} else if (instr->op == PP_OP_SEND || instr->op == PP_OP_RECV)
				run->sequence[instr->op == PP_OP_RECV][instr->a[0]]++;
			else if (instr->op == PP_OP_COLL)
				count_joint(run, instr->a[1], r, mine, seen);
		}
	}
}

void pp_sim_number(struct pp_sim_run *run)
{
	const struct pp_program *program = run->program;
	uint32_t total = 0, posts = 0;
	count_posts(run);
	for (uint32_t c = 0; c < program->channel_count; c++) {
		run->first_message[c] = total;
		total += run->sequence[0][c] > run->sequence[1][c] ? run->sequence[0][c] : run->sequence[1][c];
		run->sequence[0][c] = run->sequence[1][c] = 0;
	}
	run->first_message[program->channel_count] = run->message_count = total;
	for (uint32_t g = 0; g < program->group_count; g++) {
		run->first_joint[g] = total;
		total += run->joint_limit[g];
		run->joint_next[g] = PP_NEW_ARRAY(run->scratch, uint32_t, members_of(run, g));
	}
	run->element_count = total;
	run->elements = PP_NEW_ARRAY(run->scratch, struct pp_sim_element, total);
	for (uint32_t e = 0; e < run->message_count; e++, posts += 2)
		run->elements[e] = (struct pp_sim_element){.wanted = 2, .first_post = posts};
	for (uint32_t g = 0; g < program->group_count; g++)
		for (uint32_t k = 0; k < run->joint_limit[g]; k++, posts += members_of(run, g))
			run->elements[run->first_joint[g] + k] =
			    (struct pp_sim_element){.wanted = members_of(run, g), .first_post = posts, .group = g};
	run->posts = PP_NEW_ARRAY(run->scratch, struct pp_sim_post, posts);
}

/* ---- transfers ------------------------------------------------------------------------------- */

void pp_sim_wake(struct pp_sim_run *run, uint32_t rank)
{
	if (run->ranks[rank].in_work)
		return;
	struct pp_sim_state *state = &run->ranks[rank];
	state->in_work = true;
	if (run->progress) {
		uint64_t ended = state->waiting == PP_NULL ? 0 : run->elements[state->waiting].end;
		pp_sim_later_event(run, pp_sim_later(state->clock, ended), rank);
	} else
		run->work[run->work_count++] = rank;
}

uint64_t pp_ring_part(enum pp_collective kind, uint64_t payload, uint64_t members)
{
	return kind == PP_ALLREDUCE ? (payload + members - 1) / members : payload;
}

uint64_t pp_ring_steps(enum pp_collective kind, uint64_t members)
{
	return (kind == PP_ALLREDUCE ? 2 : 1) * (members - 1);
}

static uint64_t collective_ticks(const struct pp_group *group, const struct pp_instr *instr, uint64_t members)
{
	enum pp_collective kind = (enum pp_collective)instr->sub;
	if (members < 2)
		return 0;
	uint64_t part = pp_ring_part(kind, pp_payload_bytes(instr), members);
	return pp_times(pp_ring_steps(kind, members), pp_transfer_ticks(group->latency, group->bandwidth, part));
}

static uint64_t element_ticks(const struct pp_sim_run *run, const struct pp_sim_element *element)
{
	const struct pp_sim_post *post = &run->posts[element->first_post];
	const struct pp_instr *instr = &run->named->streams[post->rank].items[post->instr];
	if (instr->op == PP_OP_COLL) {
		const struct pp_group *group = &run->program->groups[element->group];
		uint64_t members = group->axis == PP_AXIS_PP   ? group->member_count
		                   : group->axis == PP_AXIS_TP ? run->program->tp
		                                               : run->program->dp;
		return collective_ticks(group, instr, members);
	}
	const struct pp_channel *channel = &run->program->channels[instr->a[0]];
	return pp_transfer_ticks(channel->latency, channel->bandwidth, pp_payload_bytes(instr));
}

static void complete(struct pp_sim_run *run, struct pp_sim_element *element)
{
	element->over = true;
	element->end = pp_plus(element->begin, element_ticks(run, element));
	if (run->progress)
		pp_sim_charge(run, element);
	for (uint32_t i = 0; i < element->wanted; i++) {
		const struct pp_sim_post *post = &run->posts[element->first_post + i];
		if (post->queue != PP_NULL) {
			run->queue_free[post->queue] = element->end;
			uint32_t next = run->head[post->queue] = post->next;
			if (next != PP_NULL)
				*PP_PUSH(run->scratch, &run->check, &run->check_count, &run->check_capacity, uint32_t) =
				    run->posts[next].element;
		}
		if (run->sim->instr)
			run->sim->instr[post->rank][post->instr] = (struct pp_interval){element->begin, element->end};
		if (run->ranks[post->rank].waiting == (uint32_t)(element - run->elements))
			pp_sim_wake(run, post->rank);
	}
}

static void try_complete(struct pp_sim_run *run, uint32_t at)
{
	struct pp_sim_element *element = &run->elements[at];
	if (element->over || element->ready || element->posted < element->wanted)
		return;
	for (uint32_t i = 0; i < element->wanted; i++) {
		uint32_t post = element->first_post + i, queue = run->posts[post].queue;
		if (queue != PP_NULL && run->head[queue] != post)
			return;
	}
	for (uint32_t i = 0; i < element->wanted; i++) {
		const struct pp_sim_post *post = &run->posts[element->first_post + i];
		if (post->queue != PP_NULL)
			element->begin = pp_sim_later(element->begin, run->queue_free[post->queue]);
	}
	element->ready = true;
	if (run->progress)
		pp_sim_later_event(run, element->begin, (uint64_t)run->program->ranks + at);
	else
		complete(run, element);
}

/* Elements that have come to the heads of their queues. */
static void check_heads(struct pp_sim_run *run)
{
	while (run->check_count)
		try_complete(run, run->check[--run->check_count]);
}

void pp_sim_start(struct pp_sim_run *run, uint32_t element)
{
	run->elements[element].begin = pp_sim_first_move(run, &run->elements[element], run->now);
	complete(run, &run->elements[element]);
	check_heads(run);
}

void pp_sim_post(struct pp_sim_run *run, uint32_t at, uint32_t index, uint32_t rank, uint32_t queue)
{
	struct pp_sim_element *element = &run->elements[at];
	uint32_t post = element->first_post + index;
	run->posts[post] = (struct pp_sim_post){
	    .next = PP_NULL, .queue = queue, .rank = rank, .instr = run->ranks[rank].at, .element = at};
	element->posted++;
	element->begin = pp_sim_later(element->begin, run->ranks[rank].clock);
	if (queue != PP_NULL) {
		if (run->head[queue] == PP_NULL)
			run->head[queue] = post;
		else
			run->posts[run->tail[queue]].next = post;
		run->tail[queue] = post;
	}
	try_complete(run, at);
	check_heads(run);
}
