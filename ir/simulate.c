/* The run: simulate.h.
 *
 * Channels are deterministic, so times do not depend on the order in which ranks are advanced: a rank runs until it
 * waits for something that is not over, and is taken up again when it is. No event queue is needed. O(instructions). */
#include "simulate.h"

#include "lifetime.h"
#include "queues.h"

#include <string.h>

const char *const pp_idle_name[] = {"warm-up", "cool-down", "imbalance", "transfer", "head-of-line", "collective"};

/* A message or a collective. Elements: messages first, channel by channel. */
struct element {
	uint64_t begin;          /* latest post so far; once over: when the transfer began */
	uint64_t end;            /* once over */
	uint64_t produced;       /* messages: when the compute that made the value ended */
	uint32_t posted, wanted; /* posts */
	uint32_t first_post;     /* its posts are consecutive */
	uint32_t group;          /* collectives */
	bool over;
};

struct post {
	uint32_t next; /* in its queue */
	uint32_t queue, rank, instr, element;
};

struct rank_state {
	uint64_t clock;
	uint32_t at;           /* next instruction */
	uint32_t last_compute; /* index of the last one, PP_NULL: none */
	uint32_t waiting;      /* element, PP_NULL: none */
	bool in_work, computed, paired;
	uint64_t pair_first, pair_plan; /* ticks: of the pair's first op as planned, as run */
	uint64_t gap_from;              /* end of the last compute */
	uint64_t *written;              /* per slot: when its value was made */
	bool *live;                     /* per slot */
	uint64_t bytes;
	uint32_t stashes;
	uint64_t *last_reader; /* of aux, NULL: no such slots */
	struct flight {
		uint32_t id, element;
	} * flights; /* collectives posted and not waited for */
	size_t flight_count, flight_capacity;
};

struct run {
	const struct pp_program *program;
	const struct pp_named_program *named;
	struct pp_arena *scratch;
	struct pp_sim *sim;
	struct pp_queues queues;
	uint64_t *queue_free;
	uint32_t *head, *tail;
	struct element *elements;
	struct post *posts;
	uint32_t *first_message; /* [channels + 1] */
	uint32_t *sequence[2];   /* [channels]: posts so far */
	uint32_t message_count, element_count, post_count;
	uint32_t *first_joint; /* [groups]: element of the group's first collective */
	uint32_t *joint_limit; /* [groups] */
	uint32_t **joint_next; /* [groups][members, or 1 on a symbolic axis]: collectives posted so far */
	struct rank_state *ranks;
	uint32_t *work, work_count;
	uint32_t *check;
	size_t check_count, check_capacity;
	bool blocking;
};

/* ---- numbering -------------------------------------------------------------------------------------------------- */

static uint32_t members_of(const struct run *run, uint32_t group)
{
	const struct pp_group *g = &run->program->groups[group];
	return g->axis == PP_AXIS_PP ? g->member_count : 1;
}

/* A collective of the group is posted; `mine` counts those of this rank, `seen` says for which rank it counts. */
static void count_joint(const struct run *run, uint32_t group, uint32_t rank, uint32_t *mine, uint32_t *seen)
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
static void count_posts(struct run *run)
{
	const struct pp_program *program = run->program;
	uint32_t *mine = PP_NEW_ARRAY(run->scratch, uint32_t, program->group_count);
	uint32_t *seen = PP_NEW_ARRAY(run->scratch, uint32_t, program->group_count);
	for (uint32_t r = 0; r < program->ranks; r++) {
		const struct pp_stream *stream = &run->named->streams[r];
		run->ranks[r].last_compute = PP_NULL;
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *instr = &stream->items[i];
			if (pp_is_compute(instr))
				run->ranks[r].last_compute = i;
			else if (instr->op == PP_OP_SEND || instr->op == PP_OP_RECV)
				run->sequence[instr->op == PP_OP_RECV][instr->a[0]]++;
			else if (instr->op == PP_OP_COLL)
				count_joint(run, instr->a[1], r, mine, seen);
		}
	}
}

static void number_elements(struct run *run)
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
	run->elements = PP_NEW_ARRAY(run->scratch, struct element, total);
	for (uint32_t e = 0; e < run->message_count; e++, posts += 2)
		run->elements[e] = (struct element){.wanted = 2, .first_post = posts};
	for (uint32_t g = 0; g < program->group_count; g++)
		for (uint32_t k = 0; k < run->joint_limit[g]; k++, posts += members_of(run, g))
			run->elements[run->first_joint[g] + k] =
			    (struct element){.wanted = members_of(run, g), .first_post = posts, .group = g};
	run->posts = PP_NEW_ARRAY(run->scratch, struct post, posts);
}

/* ---- transfers -----------------------------------------------------------------------------------------------------
 */

static void wake(struct run *run, uint32_t rank)
{
	if (run->ranks[rank].in_work)
		return;
	run->ranks[rank].in_work = true;
	run->work[run->work_count++] = rank;
}

/* A sum over n members as a ring: each step moves one n-th of the payload. */
static uint64_t collective_ticks(const struct pp_group *group, const struct pp_instr *instr, uint64_t members)
{
	if (members < 2)
		return 0;
	uint64_t steps = (instr->sub == PP_ALLREDUCE ? 2 : 1) * (members - 1);
	uint64_t part = (pp_payload_bytes(instr) + members - 1) / members, ticks;
	return __builtin_mul_overflow(steps, pp_transfer_ticks(group->latency, group->bandwidth, part), &ticks) ? UINT64_MAX
	                                                                                                        : ticks;
}

static uint64_t element_ticks(const struct run *run, const struct element *element)
{
	const struct post *post = &run->posts[element->first_post];
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

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
	uint64_t total;
	return __builtin_add_overflow(a, b, &total) ? UINT64_MAX : total;
}

static void complete(struct run *run, struct element *element)
{
	element->over = true;
	for (uint32_t i = 0; i < element->wanted; i++) {
		const struct post *post = &run->posts[element->first_post + i];
		if (post->queue != PP_NULL)
			element->begin = later(element->begin, run->queue_free[post->queue]);
	}
	element->end = sum(element->begin, element_ticks(run, element));
	for (uint32_t i = 0; i < element->wanted; i++) {
		const struct post *post = &run->posts[element->first_post + i];
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
			wake(run, post->rank);
	}
}

static void try_complete(struct run *run, uint32_t at)
{
	struct element *element = &run->elements[at];
	if (element->over || element->posted < element->wanted)
		return;
	for (uint32_t i = 0; i < element->wanted; i++) {
		uint32_t post = element->first_post + i, queue = run->posts[post].queue;
		if (queue != PP_NULL && run->head[queue] != post)
			return;
	}
	complete(run, element);
}

/* Post number `index` of an element. */
static void add_post(struct run *run, uint32_t at, uint32_t index, uint32_t rank, uint32_t queue)
{
	struct element *element = &run->elements[at];
	uint32_t post = element->first_post + index;
	run->posts[post] =
	    (struct post){.next = PP_NULL, .queue = queue, .rank = rank, .instr = run->ranks[rank].at, .element = at};
	element->posted++;
	element->begin = later(element->begin, run->ranks[rank].clock);
	if (queue != PP_NULL) {
		if (run->head[queue] == PP_NULL)
			run->head[queue] = post;
		else
			run->posts[run->tail[queue]].next = post;
		run->tail[queue] = post;
	}
	try_complete(run, at);
	while (run->check_count)
		try_complete(run, run->check[--run->check_count]);
}

/* ---- memory
 * ----------------------------------------------------------------------------------------------------------- */

static void write_slot(struct run *run, uint32_t rank, uint32_t slot)
{
	struct rank_state *state = &run->ranks[rank];
	struct pp_sim_rank *result = &run->sim->rank[rank];
	if (slot == PP_NULL)
		return;
	state->written[slot] = state->clock;
	if (state->live[slot])
		return;
	state->live[slot] = true;
	state->bytes += run->program->rank[rank].slots[slot].bytes;
	if (state->bytes <= result->peak_bytes)
		return;
	result->peak_bytes = state->bytes;
	result->peak_at = state->clock;
}

static void free_slot(struct run *run, uint32_t rank, uint32_t slot)
{
	struct rank_state *state = &run->ranks[rank];
	if (slot == PP_NULL || !state->live[slot])
		return;
	state->live[slot] = false;
	state->bytes -= run->program->rank[rank].slots[slot].bytes;
}

static void free_aux(struct run *run, uint32_t rank, uint32_t slot)
{
	if (slot != PP_NULL && run->ranks[rank].last_reader && pp_bit(run->ranks[rank].last_reader, run->ranks[rank].at))
		free_slot(run, rank, slot);
}

/* What a compute op takes (at its start) and gives back (at its end). */
static void take_slots(struct run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct rank_state *state = &run->ranks[rank];
	if (instr->op == PP_OP_FWD) {
		write_slot(run, rank, instr->a[2]);
		write_slot(run, rank, instr->a[3]);
		if (++state->stashes > run->sim->rank[rank].peak_stashes)
			run->sim->rank[rank].peak_stashes = state->stashes;
	} else if (instr->op != PP_OP_BWDW) {
		write_slot(run, rank, instr->a[3]);
	}
}

static void give_slots(struct run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct rank_state *state = &run->ranks[rank];
	bool forward = instr->op == PP_OP_FWD, ends = instr->op == PP_OP_BWD || instr->op == PP_OP_BWDW;
	uint32_t out = forward ? instr->a[2] : instr->op == PP_OP_BWDW ? PP_NULL : instr->a[3];
	if (out != PP_NULL)
		state->written[out] = state->clock;
	if (forward)
		free_slot(run, rank, instr->a[0]);
	else if (instr->op != PP_OP_BWDW)
		free_slot(run, rank, instr->a[2]);
	if (ends) {
		free_slot(run, rank, instr->a[1]);
		state->stashes -= state->stashes > 0;
	}
	free_aux(run, rank, forward ? instr->a[1] : instr->a[0]);
}

/* ---- one instruction
 * ----------------------------------------------------------------------------------------------------- */

/* Ticks of a compute op; the two of a pair share pair_permille of their sum in proportion. */
static uint64_t compute_ticks(struct run *run, struct rank_state *state, const struct pp_instr *instr)
{
	uint64_t ticks = run->program->stages[instr->stage].ticks[pp_phase_of(instr)];
	uint64_t permille = run->program->cost.pair_permille ? run->program->cost.pair_permille : 1000;
	if (state->paired) {
		uint64_t whole =
		    (state->pair_plan + ticks) / 1000 * permille + (state->pair_plan + ticks) % 1000 * permille / 1000;
		state->paired = false;
		return whole > state->pair_first ? whole - state->pair_first : 0;
	}
	if (!(instr->flags & PP_PAIR))
		return ticks;
	state->paired = true;
	state->pair_plan = ticks;
	return state->pair_first = ticks / 1000 * permille + ticks % 1000 * permille / 1000;
}

/* A stretch without compute ends here. */
static void close_gap(struct run *run, uint32_t rank, uint64_t until)
{
	struct pp_sim_rank *result = &run->sim->rank[rank];
	uint64_t from = run->ranks[rank].gap_from;
	if (until <= from || until - from <= result->longest_idle)
		return;
	result->longest_idle = until - from;
	result->longest_idle_at = from;
}

static void compute(struct run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct rank_state *state = &run->ranks[rank];
	struct pp_sim_rank *result = &run->sim->rank[rank];
	uint64_t start = state->clock, ticks = compute_ticks(run, state, instr);
	close_gap(run, rank, start);
	if (!state->computed) {
		result->first = result->idle[PP_IDLE_WARMUP] = start;
		state->computed = true;
	}
	take_slots(run, rank, instr);
	state->clock = sum(start, ticks);
	give_slots(run, rank, instr);
	result->busy += ticks;
	result->last = state->gap_from = state->clock;
	if (run->sim->instr)
		run->sim->instr[rank][state->at] = (struct pp_interval){start, state->clock};
}

/* Between its first and its last compute a rank's idle time has a cause. */
static bool inside(const struct rank_state *state)
{
	return state->computed && state->last_compute != PP_NULL && state->at < state->last_compute;
}

static uint64_t overlap(uint64_t from, uint64_t to, uint64_t begin, uint64_t end)
{
	uint64_t start = later(from, begin), stop = to < end ? to : end;
	return stop > start ? stop - start : 0;
}

/* The rank waits from its clock until the element is over. */
static void pass_wait(struct run *run, uint32_t rank, const struct element *element, bool receives, bool collective)
{
	struct rank_state *state = &run->ranks[rank];
	uint64_t *idle = run->sim->rank[rank].idle, from = state->clock, to = later(from, element->end);
	uint8_t op = run->named->streams[rank].items[state->at].op;
	if (run->sim->instr && (op == PP_OP_WAIT || op == PP_OP_WAITC))
		run->sim->instr[rank][state->at] = (struct pp_interval){from, to};
	state->clock = to;
	if (!inside(state) || to == from)
		return;
	if (collective) {
		idle[PP_IDLE_COLLECTIVE] += to - from;
		return;
	}
	uint64_t produced = receives ? element->produced : 0;
	idle[PP_IDLE_IMBALANCE] += overlap(from, to, 0, produced);
	idle[PP_IDLE_HEAD_OF_LINE] += overlap(from, to, produced, element->begin);
	idle[PP_IDLE_TRANSFER] += overlap(from, to, element->begin, element->end);
}

/* Suspends the rank if the element is not over; else the rank's clock passes it. */
static bool wait_for(struct run *run, uint32_t rank, uint32_t at, bool receives, bool collective)
{
	if (!run->elements[at].over) {
		run->ranks[rank].waiting = at;
		return false;
	}
	pass_wait(run, rank, &run->elements[at], receives, collective);
	return true;
}

static uint32_t message_of(const struct run *run, const struct pp_instr *instr)
{
	return run->first_message[instr->a[0]] + instr->a[1];
}

/* In blocking mode the rank comes back to its post once that is over. */
static bool post_message(struct run *run, uint32_t rank, const struct pp_instr *instr)
{
	bool receives = instr->op == PP_OP_RECV;
	uint32_t channel = instr->a[0], at = message_of(run, instr);
	struct rank_state *state = &run->ranks[rank];
	if (instr->a[1] == run->sequence[receives][channel]) {
		run->sequence[receives][channel]++;
		if (receives) {
			run->sim->rank[rank].received++;
			write_slot(run, rank, instr->a[2]);
		} else {
			run->sim->rank[rank].sent++;
			run->elements[at].produced = state->written[instr->a[2]];
		}
		add_post(run, at, receives, rank, run->queues.channel[receives][channel]);
	}
	return !run->blocking || wait_for(run, rank, at, receives, false);
}

static bool wait_message(struct run *run, uint32_t rank, const struct pp_instr *instr)
{
	bool receives = run->program->channels[instr->a[0]].destination == rank;
	if (instr->a[1] >= run->sequence[receives][instr->a[0]])
		return false; /* not posted: never verified */
	uint32_t at = message_of(run, instr);
	if (!wait_for(run, rank, at, receives, false))
		return false;
	if (!receives) {
		const struct post *post = &run->posts[run->elements[at].first_post];
		free_slot(run, rank, run->named->streams[rank].items[post->instr].a[2]);
	}
	return true;
}

static bool post_collective(struct run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct rank_state *state = &run->ranks[rank];
	uint32_t group = instr->a[1];
	const struct pp_group *g = &run->program->groups[group];
	size_t known = state->flight_count;
	while (known > 0 && state->flights[known - 1].id != instr->a[0])
		known--;
	if (known == 0) {
		uint32_t *next = &run->joint_next[group][g->axis == PP_AXIS_PP ? pp_group_member(g, rank) : 0],
		         at = run->first_joint[group] + (*next)++;
		*PP_PUSH(run->scratch, &state->flights, &state->flight_count, &state->flight_capacity, struct flight) =
		    (struct flight){instr->a[0], at};
		known = state->flight_count;
		if (run->elements[at].posted < run->elements[at].wanted)
			add_post(run, at, run->elements[at].posted, rank, pp_queues_collective(&run->queues, group, rank));
	}
	return !run->blocking || wait_for(run, rank, state->flights[known - 1].element, false, true);
}

static bool wait_collective(struct run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct rank_state *state = &run->ranks[rank];
	size_t known = state->flight_count;
	while (known > 0 && state->flights[known - 1].id != instr->a[0])
		known--;
	if (known == 0 || !wait_for(run, rank, state->flights[known - 1].element, false, true))
		return false;
	state->flights[known - 1] = state->flights[--state->flight_count];
	return true;
}

/* Bytes that an instruction of the step tail moves: reads and writes of its slots. */
static uint64_t traffic(const struct pp_rank *memory, const struct pp_instr *instr)
{
	static const uint8_t passes[PP_OP_COUNT][4] = {[PP_OP_ZERO] = {1},
	                                               [PP_OP_ADD] = {2, 1},
	                                               [PP_OP_SQNORM] = {1},
	                                               [PP_OP_CLIP] = {1, 1, 1},
	                                               [PP_OP_OPT] = {2, 1, 2, 2}};
	uint64_t bytes = 0;
	for (int i = 0; i < 4; i++)
		if (passes[instr->op][i] && instr->a[i] < memory->slot_count)
			bytes = sum(bytes, passes[instr->op][i] * memory->slots[instr->a[i]].bytes);
	return bytes;
}

static void tail_work(struct run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct rank_state *state = &run->ranks[rank];
	uint64_t start = state->clock, bandwidth = run->program->cost.memory_bandwidth;
	if (bandwidth)
		state->clock = sum(start, pp_transfer_ticks(0, bandwidth, traffic(&run->program->rank[rank], instr)));
	if (inside(state))
		run->sim->rank[rank].idle[PP_IDLE_COLLECTIVE] += state->clock - start;
	if (run->sim->instr)
		run->sim->instr[rank][state->at] = (struct pp_interval){start, state->clock};
}

/* False: the rank cannot go on yet. */
static bool execute(struct run *run, uint32_t rank, const struct pp_instr *instr)
{
	switch ((enum pp_op)instr->op) {
	case PP_OP_LOAD:
		write_slot(run, rank, instr->a[0]);
		tail_work(run, rank, instr);
		return true;
	case PP_OP_FWD:
	case PP_OP_BWD:
	case PP_OP_BWDI:
	case PP_OP_BWDW:
		compute(run, rank, instr);
		return true;
	case PP_OP_SEND:
	case PP_OP_RECV:
		return post_message(run, rank, instr);
	case PP_OP_WAIT:
		return wait_message(run, rank, instr);
	case PP_OP_COLL:
		return post_collective(run, rank, instr);
	case PP_OP_WAITC:
		return wait_collective(run, rank, instr);
	case PP_OP_ZERO:
	case PP_OP_ADD:
	case PP_OP_SQNORM:
	case PP_OP_CLIP:
	case PP_OP_OPT:
	case PP_OP_MARK:
		tail_work(run, rank, instr);
		return true;
	case PP_OP_COUNT:
		break;
	}
	return true;
}

static void advance(struct run *run, uint32_t rank)
{
	const struct pp_stream *stream = &run->named->streams[rank];
	struct rank_state *state = &run->ranks[rank];
	state->waiting = PP_NULL;
	while (state->at < stream->count && execute(run, rank, &stream->items[state->at]))
		state->at++;
}

/* ---- results
 * ---------------------------------------------------------------------------------------------------------------- */

static void finish_rank(struct run *run, uint32_t rank)
{
	struct pp_sim *sim = run->sim;
	struct pp_sim_rank *result = &sim->rank[rank];
	close_gap(run, rank, sim->makespan);
	result->idle[PP_IDLE_COOLDOWN] = sim->makespan - result->last;
	if (result->last - result->first > sim->longest_span)
		sim->longest_span = result->last - result->first;
}

static void finish(struct run *run)
{
	struct pp_sim *sim = run->sim;
	uint32_t ranks = run->program->ranks;
	uint64_t end = 0, most = 0, *busy = PP_NEW_ARRAY(run->scratch, uint64_t, ranks);
	double total = 0;
	for (uint32_t r = 0; r < ranks; r++) {
		sim->makespan = later(sim->makespan, sim->rank[r].last);
		end = later(end, run->ranks[r].clock);
		busy[r] = sim->rank[r].busy;
		most = later(most, busy[r]);
		total += (double)busy[r];
	}
	for (uint32_t r = 0; r < ranks; r++)
		finish_rank(run, r);
	sim->tail = end > sim->makespan ? end - sim->makespan : 0;
	sim->bound = pp_makespan_bound(run->scratch, run->program, run->named, busy);
	sim->work = total / (double)ranks;
	if (sim->work <= 0)
		return;
	sim->bubble = 1 - sim->work / (double)sim->makespan;
	sim->overhead = (double)sim->makespan / sim->work - 1;
	sim->span_bubble = 1 - sim->work / (double)sim->longest_span;
	sim->imbalance = (double)most / sim->work - 1;
}

static void begin_rank(struct run *run, uint32_t rank)
{
	const struct pp_rank *memory = &run->program->rank[rank];
	struct rank_state *state = &run->ranks[rank];
	bool aux = false;
	state->waiting = PP_NULL;
	state->written = PP_NEW_ARRAY(run->scratch, uint64_t, memory->slot_count);
	state->live = PP_NEW_ARRAY(run->scratch, bool, memory->slot_count);
	for (uint32_t i = 0; i < memory->slot_count; i++) {
		aux |= memory->slots[i].class == PP_SLOT_AUX;
		if (pp_slot_is_static(memory->slots[i].class))
			state->bytes = sum(state->bytes, memory->slots[i].bytes);
	}
	run->sim->rank[rank].peak_bytes = state->bytes;
	if (aux)
		state->last_reader = pp_last_aux_readers(run->scratch, &run->named->streams[rank], memory->slot_count);
	wake(run, rank);
}

static struct run begin(struct pp_arena *scratch, const struct pp_program *program,
                        const struct pp_named_program *named, enum pp_layout layout, struct pp_sim *sim)
{
	struct run run = {
	    .program = program, .named = named, .scratch = scratch, .sim = sim, .blocking = layout == PP_LAYOUT_BLOCKING};
	run.queues = pp_queues_assign(scratch, program, layout);
	run.queue_free = PP_NEW_ARRAY(scratch, uint64_t, run.queues.count);
	run.head = PP_NEW_ARRAY(scratch, uint32_t, run.queues.count);
	run.tail = PP_NEW_ARRAY(scratch, uint32_t, run.queues.count);
	for (uint32_t q = 0; q < run.queues.count; q++)
		run.head[q] = PP_NULL;
	run.first_message = PP_NEW_ARRAY(scratch, uint32_t, (size_t)program->channel_count + 1);
	for (int end = 0; end < 2; end++)
		run.sequence[end] = PP_NEW_ARRAY(scratch, uint32_t, program->channel_count);
	run.first_joint = PP_NEW_ARRAY(scratch, uint32_t, program->group_count);
	run.joint_limit = PP_NEW_ARRAY(scratch, uint32_t, program->group_count);
	run.joint_next = PP_NEW_ARRAY(scratch, uint32_t *, program->group_count);
	run.ranks = PP_NEW_ARRAY(scratch, struct rank_state, program->ranks);
	run.work = PP_NEW_ARRAY(scratch, uint32_t, program->ranks);
	number_elements(&run);
	for (uint32_t r = program->ranks; r-- > 0;)
		begin_rank(&run, r);
	return run;
}

bool pp_simulate(struct pp_arena *arena, const struct pp_program *program, const struct pp_named_program *named,
                 enum pp_layout layout, bool intervals, struct pp_sim *sim)
{
	*sim = (struct pp_sim){.rank = PP_NEW_ARRAY(arena, struct pp_sim_rank, program->ranks)};
	if (intervals) {
		sim->instr = PP_NEW_ARRAY(arena, struct pp_interval *, program->ranks);
		for (uint32_t r = 0; r < program->ranks; r++)
			sim->instr[r] = PP_NEW_ARRAY(arena, struct pp_interval, named->streams[r].count);
	}
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct run run = begin(scratch, program, named, layout, sim);
	while (run.work_count) {
		uint32_t rank = run.work[--run.work_count];
		run.ranks[rank].in_work = false;
		advance(&run, rank);
	}
	bool finished = true;
	for (uint32_t r = 0; r < program->ranks; r++)
		finished &= run.ranks[r].at == named->streams[r].count;
	if (finished)
		finish(&run);
	pp_arena_destroy(scratch);
	return finished;
}
