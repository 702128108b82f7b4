/* The run: simulate.h.
 *
 * Channels are deterministic, so times do not depend on the order in which ranks are advanced: a rank runs until it
 * waits for something that is not over, and is taken up again when it is. No event queue is needed. O(instructions). */
#include "simulate_state.h"

#include "lifetime.h"

const char *const pp_idle_name[] = {"warm-up", "cool-down", "imbalance", "transfer", "head-of-line", "collective"};

/* ---- memory ---------------------------------------------------------------------------------- */

static void write_slot(struct pp_sim_run *run, uint32_t rank, uint32_t slot)
{
	struct pp_sim_state *state = &run->ranks[rank];
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

static void free_slot(struct pp_sim_run *run, uint32_t rank, uint32_t slot)
{
	struct pp_sim_state *state = &run->ranks[rank];
	if (slot == PP_NULL || !state->live[slot])
		return;
	state->live[slot] = false;
	state->bytes -= run->program->rank[rank].slots[slot].bytes;
}

static void free_aux(struct pp_sim_run *run, uint32_t rank, uint32_t slot, uint32_t reader)
{
	if (slot != PP_NULL && run->ranks[rank].last_reader && pp_bit(run->ranks[rank].last_reader, reader))
		free_slot(run, rank, slot);
}

/* What a compute op takes (at its start) and gives back (at its end). */
static void take_slots(struct pp_sim_run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct pp_sim_state *state = &run->ranks[rank];
	if (instr->op == PP_OP_FWD) {
		write_slot(run, rank, instr->a[2]);
		write_slot(run, rank, instr->a[3]);
		if (++state->stashes > run->sim->rank[rank].peak_stashes)
			run->sim->rank[rank].peak_stashes = state->stashes;
	} else if (instr->op == PP_OP_REMAT) {
		write_slot(run, rank, instr->extra);
	} else if (instr->op != PP_OP_BWDW) {
		write_slot(run, rank, instr->a[3]);
		write_slot(run, rank, instr->extra);
	}
}

static void give_slots(struct pp_sim_run *run, uint32_t rank, const struct pp_instr *instr, uint32_t at)
{
	struct pp_sim_state *state = &run->ranks[rank];
	if (instr->op == PP_OP_REMAT)
		return;
	bool forward = instr->op == PP_OP_FWD;
	bool ends = forward ? run->forward_only : instr->op == PP_OP_BWD || instr->op == PP_OP_BWDW;
	uint32_t out = forward ? instr->a[2] : instr->op == PP_OP_BWDW ? PP_NULL : instr->a[3];
	if (out != PP_NULL)
		state->written[out] = state->clock;
	if (forward)
		free_slot(run, rank, instr->a[0]);
	else if (instr->op != PP_OP_BWDW)
		free_slot(run, rank, instr->a[2]);
	if (ends) {
		free_slot(run, rank, instr->a[forward ? 3 : 1]);
		if (!forward)
			free_slot(run, rank, instr->extra);
		state->stashes -= state->stashes > 0;
	}
	free_aux(run, rank, forward ? instr->a[1] : instr->a[0], at);
}

/* ---- one instruction ------------------------------------------------------------------------- */

static uint64_t ticks_of(const struct pp_sim_run *run, const struct pp_instr *instr)
{
	return run->program->stages[instr->stage].ticks[pp_phase_of(instr)];
}

/* A stretch without compute ends here. */
static void close_gap(struct pp_sim_run *run, uint32_t rank, uint64_t until)
{
	struct pp_sim_rank *result = &run->sim->rank[rank];
	uint64_t from = run->ranks[rank].gap_from;
	if (until <= from || until - from <= result->longest_idle)
		return;
	result->longest_idle = until - from;
	result->longest_idle_at = from;
}

/* One compute op, or two that overlap; `first` and `last` are their positions. The two share the time of the pair in
 * proportion, for those who look, but what the first makes is there when both have ended. */
static void run_computes(struct pp_sim_run *run, uint32_t rank, uint32_t first, uint32_t last)
{
	struct pp_sim_state *state = &run->ranks[rank];
	struct pp_sim_rank *result = &run->sim->rank[rank];
	const struct pp_instr *items = run->named->streams[rank].items;
	bool pair = first != last;
	uint64_t start = state->clock, ticks = ticks_of(run, &items[last]), share = ticks_of(run, &items[first]);
	uint64_t permille = run->program->cost.pair_permille;
	if (pair)
		ticks = pp_thousandths(pp_plus(share, ticks), permille);
	share = pair ? pp_thousandths(share, permille) : ticks;
	ticks = pp_plus(ticks, state->owed);
	state->owed = 0;
	close_gap(run, rank, start);
	if (!state->computed) {
		result->first = start;
		result->idle[PP_IDLE_WARMUP] += start;
		state->computed = true;
	}
	take_slots(run, rank, &items[first]);
	if (pair)
		take_slots(run, rank, &items[last]);
	state->clock = pp_plus(start, ticks);
	if (run->progress)
		pp_sim_busy(run, rank, start, &items[last]);
	give_slots(run, rank, &items[first], first);
	if (pair)
		give_slots(run, rank, &items[last], last);
	result->busy = pp_plus(result->busy, ticks);
	result->last = state->gap_from = state->clock;
	if (!run->sim->instr)
		return;
	uint64_t between = pair ? pp_plus(start, share) : state->clock;
	run->sim->instr[rank][first] = (struct pp_interval){start, between};
	if (pair)
		run->sim->instr[rank][last] = (struct pp_interval){between, state->clock};
}

/* The first of a pair begins together with the second: when the inputs of both are there. */
static void compute(struct pp_sim_run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct pp_sim_state *state = &run->ranks[rank];
	if (instr->flags & PP_PAIR && state->pair_at == PP_NULL) {
		state->pair_at = state->at;
		return;
	}
	uint32_t first = state->pair_at == PP_NULL ? state->at : state->pair_at;
	state->pair_at = PP_NULL;
	run_computes(run, rank, first, state->at);
}

/* What neither waits nor fetches something stands between the two of a pair: then they run one after the other. */
static void part_pair(struct pp_sim_run *run, uint32_t rank)
{
	struct pp_sim_state *state = &run->ranks[rank];
	uint32_t first = state->pair_at;
	state->pair_at = PP_NULL;
	run_computes(run, rank, first, first);
}

/* Between its first and its last compute a rank's idle time has a cause. */
static bool inside(const struct pp_sim_state *state)
{
	return state->computed && state->last_compute != PP_NULL && state->at < state->last_compute;
}

static uint64_t overlap(uint64_t from, uint64_t to, uint64_t begin, uint64_t end)
{
	uint64_t start = pp_sim_later(from, begin), stop = to < end ? to : end;
	return stop > start ? stop - start : 0;
}

/* Why a producer that has not ended keeps the rank waiting. */
static enum pp_idle late_producer(const struct pp_sim_state *state)
{
	if (state->first_backward != PP_NULL && state->at < state->first_backward)
		return PP_IDLE_WARMUP;
	return state->last_forward == PP_NULL || state->at > state->last_forward ? PP_IDLE_COOLDOWN : PP_IDLE_IMBALANCE;
}

/* The rank waits from its clock until the element is over. */
static void pass_wait(struct pp_sim_run *run, uint32_t rank, const struct pp_sim_element *element, bool receives,
                      bool collective)
{
	struct pp_sim_state *state = &run->ranks[rank];
	uint64_t *idle = run->sim->rank[rank].idle, from = state->clock, to = pp_sim_later(from, element->end);
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
	idle[late_producer(state)] += overlap(from, to, 0, produced);
	idle[PP_IDLE_HEAD_OF_LINE] += overlap(from, to, produced, element->begin);
	idle[PP_IDLE_TRANSFER] += overlap(from, to, element->begin, element->end);
}

/* Suspends the rank if the element is not over; else the rank's clock passes it. */
static bool wait_for(struct pp_sim_run *run, uint32_t rank, uint32_t at, bool receives, bool collective)
{
	if (!run->elements[at].over) {
		run->ranks[rank].waiting = at;
		return false;
	}
	pass_wait(run, rank, &run->elements[at], receives, collective);
	return true;
}

static uint32_t message_of(const struct pp_sim_run *run, const struct pp_instr *instr)
{
	return run->first_message[instr->a[0]] + instr->a[1];
}

/* In blocking mode the rank comes back to its post once that is over. */
static bool post_message(struct pp_sim_run *run, uint32_t rank, const struct pp_instr *instr)
{
	bool receives = instr->op == PP_OP_RECV;
	uint32_t channel = instr->a[0], at = message_of(run, instr);
	struct pp_sim_state *state = &run->ranks[rank];
	if (instr->a[1] == run->sequence[receives][channel]) {
		run->sequence[receives][channel]++;
		if (receives) {
			run->sim->rank[rank].received++;
			write_slot(run, rank, instr->a[2]);
		} else {
			run->sim->rank[rank].sent++;
			run->elements[at].produced = state->written[instr->a[2]];
		}
		pp_sim_post(run, at, receives, rank, run->queues.channel[receives][channel]);
	}
	return !run->blocking || wait_for(run, rank, at, receives, false);
}

static bool wait_message(struct pp_sim_run *run, uint32_t rank, const struct pp_instr *instr)
{
	bool receives = run->program->channels[instr->a[0]].destination == rank;
	if (instr->a[1] >= run->sequence[receives][instr->a[0]])
		return false; /* not posted: never verified */
	uint32_t at = message_of(run, instr);
	if (!wait_for(run, rank, at, receives, false))
		return false;
	if (!receives) {
		const struct pp_sim_post *post = &run->posts[run->elements[at].first_post];
		free_slot(run, rank, run->named->streams[rank].items[post->instr].a[2]);
	}
	return true;
}

static bool post_collective(struct pp_sim_run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct pp_sim_state *state = &run->ranks[rank];
	uint32_t group = instr->a[1];
	const struct pp_group *g = &run->program->groups[group];
	size_t known = state->flight_count;
	while (known > 0 && state->flights[known - 1].id != instr->a[0])
		known--;
	if (known == 0) {
		uint32_t *next = &run->joint_next[group][g->axis == PP_AXIS_PP ? pp_group_member(g, rank) : 0],
		         at = run->first_joint[group] + (*next)++;
		*PP_PUSH(run->scratch, &state->flights, &state->flight_count, &state->flight_capacity, struct pp_sim_flight) =
		    (struct pp_sim_flight){instr->a[0], at};
		known = state->flight_count;
		if (run->elements[at].posted < run->elements[at].wanted)
			pp_sim_post(run, at, run->elements[at].posted, rank, pp_queues_collective(&run->queues, group, rank));
	}
	return !run->blocking || wait_for(run, rank, state->flights[known - 1].element, false, true);
}

static bool wait_collective(struct pp_sim_run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct pp_sim_state *state = &run->ranks[rank];
	size_t known = state->flight_count;
	while (known > 0 && state->flights[known - 1].id != instr->a[0])
		known--;
	if (known == 0 || !wait_for(run, rank, state->flights[known - 1].element, false, true))
		return false;
	state->flights[known - 1] = state->flights[--state->flight_count];
	return true;
}

uint64_t pp_tail_traffic(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr)
{
	static const uint8_t passes[PP_OP_COUNT][PP_SLOT_OPERANDS] = {[PP_OP_ZERO] = {1},
	                                                              [PP_OP_ADD] = {2, 1},
	                                                              [PP_OP_SQNORM] = {1},
	                                                              [PP_OP_CLIP] = {1, 1, 1},
	                                                              [PP_OP_OPT] = {2, 1, 2, 2, 2}};
	const struct pp_rank *memory = &program->rank[rank];
	uint64_t bytes = 0;
	for (unsigned i = 0; i < PP_SLOT_OPERANDS; i++) {
		if (!passes[instr->op][i] || pp_instr_slot(instr, i) >= memory->slot_count)
			continue;
		const struct pp_slot *slot = &memory->slots[pp_instr_slot(instr, i)];
		bool own = slot->class == PP_SLOT_MOMENT || slot->class == PP_SLOT_MASTER; /* which are shards already */
		bool part = instr->flags & PP_SHARD && !own;
		/* A weight with a master copy is only written. */
		bool written = instr->op == PP_OP_OPT && slot->class == PP_SLOT_WEIGHT && instr->extra != PP_NULL;
		bytes = pp_plus(bytes, (written ? 1 : passes[instr->op][i]) *
		                           (part ? slot->bytes / (program->dp ? program->dp : 1) : slot->bytes));
	}
	return bytes;
}

static void tail_work(struct pp_sim_run *run, uint32_t rank, const struct pp_instr *instr)
{
	struct pp_sim_state *state = &run->ranks[rank];
	uint64_t start = state->clock, bandwidth = run->program->cost.memory_bandwidth;
	if (bandwidth)
		state->clock = pp_plus(start, pp_transfer_ticks(0, bandwidth, pp_tail_traffic(run->program, rank, instr)));
	if (run->progress && state->clock > start)
		pp_sim_busy(run, rank, start, instr);
	if (inside(state))
		run->sim->rank[rank].idle[PP_IDLE_COLLECTIVE] += state->clock - start;
	if (run->sim->instr)
		run->sim->instr[rank][state->at] = (struct pp_interval){start, state->clock};
}

/* May stand between the two of a pair. */
static bool keeps_pair(const struct pp_instr *instr)
{
	return pp_is_compute(instr) || instr->op == PP_OP_WAIT || instr->op == PP_OP_LOAD || instr->op == PP_OP_RECV;
}

/* False: the rank cannot go on yet. */
static bool execute(struct pp_sim_run *run, uint32_t rank, const struct pp_instr *instr)
{
	if (run->ranks[rank].pair_at != PP_NULL && !keeps_pair(instr))
		part_pair(run, rank);
	switch ((enum pp_op)instr->op) {
	case PP_OP_LOAD:
		write_slot(run, rank, instr->a[0]);
		tail_work(run, rank, instr);
		return true;
	case PP_OP_FWD:
	case PP_OP_REMAT:
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

static void advance(struct pp_sim_run *run, uint32_t rank)
{
	const struct pp_stream *stream = &run->named->streams[rank];
	struct pp_sim_state *state = &run->ranks[rank];
	state->waiting = PP_NULL;
	while (state->at < stream->count && execute(run, rank, &stream->items[state->at])) {
		state->at++;
		if (run->event_count && run->events[0].at < state->clock) { /* something else comes first */
			pp_sim_wake(run, rank);
			return;
		}
	}
}

/* All ranks, in the order of time. */
static void run_by_time(struct pp_sim_run *run)
{
	struct pp_sim_event event;
	while (pp_sim_next_event(run, &event)) {
		run->now = event.at;
		if (event.number >= run->program->ranks) {
			pp_sim_start(run, (uint32_t)(event.number - run->program->ranks));
			continue;
		}
		run->ranks[event.number].in_work = false;
		advance(run, (uint32_t)event.number);
	}
}

/* All ranks, in any order. */
static void run_by_need(struct pp_sim_run *run)
{
	while (run->work_count) {
		uint32_t rank = run->work[--run->work_count];
		run->ranks[rank].in_work = false;
		advance(run, rank);
	}
}

/* ---- results --------------------------------------------------------------------------------- */

static void finish_rank(struct pp_sim_run *run, uint32_t rank)
{
	struct pp_sim *sim = run->sim;
	struct pp_sim_rank *result = &sim->rank[rank];
	close_gap(run, rank, sim->makespan);
	result->idle[PP_IDLE_COOLDOWN] += sim->makespan - result->last;
	if (result->last - result->first > sim->longest_span)
		sim->longest_span = result->last - result->first;
}

static void finish(struct pp_sim_run *run)
{
	struct pp_sim *sim = run->sim;
	uint32_t ranks = run->program->ranks;
	uint64_t end = 0, most = 0;
	double total = 0;
	for (uint32_t r = 0; r < ranks; r++) {
		sim->makespan = pp_sim_later(sim->makespan, sim->rank[r].last);
		end = pp_sim_later(end, run->ranks[r].clock);
		most = pp_sim_later(most, sim->rank[r].busy);
		total += (double)sim->rank[r].busy;
	}
	for (uint32_t r = 0; r < ranks; r++)
		finish_rank(run, r);
	sim->tail = end > sim->makespan ? end - sim->makespan : 0;
	sim->work = total / (double)ranks;
	if (sim->work <= 0)
		return;
	sim->bubble = 1 - sim->work / (double)sim->makespan;
	sim->overhead = (double)sim->makespan / sim->work - 1;
	sim->span_bubble = 1 - sim->work / (double)sim->longest_span;
	sim->imbalance = (double)most / sim->work - 1;
}

static void begin_rank(struct pp_sim_run *run, uint32_t rank)
{
	const struct pp_rank *memory = &run->program->rank[rank];
	struct pp_sim_state *state = &run->ranks[rank];
	bool aux = false;
	state->waiting = state->pair_at = PP_NULL;
	state->written = PP_NEW_ARRAY(run->scratch, uint64_t, memory->slot_count);
	state->live = PP_NEW_ARRAY(run->scratch, bool, memory->slot_count);
	for (uint32_t i = 0; i < memory->slot_count; i++) {
		aux |= memory->slots[i].class == PP_SLOT_AUX;
		if (pp_slot_is_static(memory->slots[i].class))
			state->bytes = pp_plus(state->bytes, memory->slots[i].bytes);
	}
	run->sim->rank[rank].peak_bytes = state->bytes;
	if (aux)
		state->last_reader = pp_last_aux_readers(run->scratch, &run->named->streams[rank], memory->slot_count);
	pp_sim_wake(run, rank);
}

/* Whether what ranks do in the meantime changes when a transfer takes place, or the other way round. */
static bool needs_time(const struct pp_progress_model *progress)
{
	return progress->moves != PP_MOVES_ALONE || progress->permille[0] || progress->permille[1];
}

static struct pp_sim_run begin(struct pp_arena *scratch, const struct pp_program *program,
                               const struct pp_named_program *named, const struct pp_sim_options *options,
                               struct pp_sim *sim)
{
	const struct pp_progress_model *progress = options->progress;
	struct pp_sim_run run = {.program = program,
	                         .named = named,
	                         .scratch = scratch,
	                         .sim = sim,
	                         .blocking = options->layout == PP_LAYOUT_BLOCKING,
	                         .progress = progress && needs_time(progress) ? progress : NULL};
	run.forward_only = pp_is_forward_only(named);
	run.queues = pp_queues_assign(scratch, program, options->layout);
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
	run.ranks = PP_NEW_ARRAY(scratch, struct pp_sim_state, program->ranks);
	run.work = PP_NEW_ARRAY(scratch, uint32_t, program->ranks);
	pp_sim_number(&run);
	for (uint32_t r = program->ranks; r-- > 0;)
		begin_rank(&run, r);
	return run;
}

bool pp_simulate(struct pp_arena *arena, const struct pp_program *program, const struct pp_named_program *named,
                 enum pp_layout layout, bool intervals, struct pp_sim *sim)
{
	struct pp_sim_options options = {.layout = layout, .intervals = intervals};
	return pp_simulate_with(arena, program, named, &options, sim);
}

bool pp_simulate_with(struct pp_arena *arena, const struct pp_program *program, const struct pp_named_program *named,
                      const struct pp_sim_options *options, struct pp_sim *sim)
{
	*sim = (struct pp_sim){.rank = PP_NEW_ARRAY(arena, struct pp_sim_rank, program->ranks)};
	if (options->intervals) {
		sim->instr = PP_NEW_ARRAY(arena, struct pp_interval *, program->ranks);
		for (uint32_t r = 0; r < program->ranks; r++)
			sim->instr[r] = PP_NEW_ARRAY(arena, struct pp_interval, named->streams[r].count);
	}
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct pp_sim_run run = begin(scratch, program, named, options, sim);
	if (run.progress)
		run_by_time(&run);
	else
		run_by_need(&run);
	bool finished = true;
	for (uint32_t r = 0; r < program->ranks; r++)
		finished &= run.ranks[r].at == named->streams[r].count;
	if (finished) {
		finish(&run);
		sim->bound = pp_program_bound(arena, program, named);
	}
	pp_arena_destroy(scratch);
	return finished;
}
