/* A simulated run in the order of time, for transports whose data does not move on its own: progress.h.
 *
 * When a transfer can start, what its ends are doing then must be known: all ranks are taken in the order of their
 * clocks, so at every instant a rank is inside a compute whose end and polls are known, or it waits and polls. Events
 * are ranks that go on and transfers that could start; ties go to the lower rank, transfers last. */
#include "simulate_state.h"

#include <string.h>

const struct pp_progress_model pp_progress_models[PP_PROGRESS_MODELS] = {
    {.transport = "none", .moves = PP_MOVES_ALONE},
    {.transport = "loop", .moves = PP_MOVES_BY_ONE},
    {.transport = "mpi", .moves = PP_MOVES_BY_ALL},
    {.transport = "nccl", .moves = PP_MOVES_ALONE, .permille = {150, 20}},
};

const struct pp_progress_model *pp_progress_find(const char *transport)
{
	for (unsigned i = 0; i < PP_PROGRESS_MODELS; i++)
		if (strcmp(pp_progress_models[i].transport, transport) == 0)
			return &pp_progress_models[i];
	return NULL;
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool before(const struct pp_sim_event *a, const struct pp_sim_event *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

void pp_sim_later_event(struct pp_sim_run *run, uint64_t at, uint64_t number)
{
	PP_PUSH(run->scratch, &run->events, &run->event_count, &run->event_capacity, struct pp_sim_event);
	struct pp_sim_event event = {at, number};
	size_t hole = run->event_count - 1;
	while (hole > 0 && before(&event, &run->events[(hole - 1) / 2])) {
		run->events[hole] = run->events[(hole - 1) / 2];
		hole = (hole - 1) / 2;
	}
	run->events[hole] = event;
}

bool pp_sim_next_event(struct pp_sim_run *run, struct pp_sim_event *event)
{
	if (run->event_count == 0)
		return false;
	*event = run->events[0];
	struct pp_sim_event last = run->events[--run->event_count];
	size_t hole = 0, child;
	while ((child = 2 * hole + 1) < run->event_count) {
		if (child + 1 < run->event_count && before(&run->events[child + 1], &run->events[child]))
			child++;
		if (!before(&run->events[child], &last))
			break;
		run->events[hole] = run->events[child];
		hole = child;
	}
	run->events[hole] = last;
	return true;
}

/* ---- polls ----------------------------------------------------------------------------------- */

void pp_sim_busy(struct pp_sim_run *run, uint32_t rank, uint64_t start, const struct pp_instr *instr)
{
	struct pp_sim_state *state = &run->ranks[rank];
	const struct pp_program *program = run->program;
	uint32_t number = pp_is_compute(instr) ? program->stages[instr->stage].body[pp_phase_of(instr)] : PP_NULL;
	uint64_t ticks = state->clock - start, interval = ticks;
	if (number != PP_NULL && number < program->body_count && program->bodies[number].count) {
		const struct pp_body *body = &program->bodies[number];
		interval = ticks / body->count;
		for (uint32_t i = 0; i < body->count; i++)
			if (body->items[i].op == PP_BODY_SLEEP && interval > PP_PROGRESS_NAP)
				interval = PP_PROGRESS_NAP;
	}
	state->busy_from = start;
	state->busy_until = state->clock;
	state->poll_interval = interval ? interval : 1;
}

static uint64_t next_poll(const struct pp_sim_state *state, uint64_t at)
{
	if (at <= state->busy_from || at >= state->busy_until)
		return at;
	uint64_t polls = (at - state->busy_from + state->poll_interval - 1) / state->poll_interval;
	uint64_t poll = pp_plus(state->busy_from, pp_times(polls, state->poll_interval));
	return poll < state->busy_until ? poll : state->busy_until;
}

uint64_t pp_sim_first_move(const struct pp_sim_run *run, const struct pp_sim_element *element, uint64_t at)
{
	uint64_t one = UINT64_MAX, all = at;
	for (uint32_t i = 0; i < element->wanted; i++) {
		uint64_t poll = next_poll(&run->ranks[run->posts[element->first_post + i].rank], at);
		one = poll < one ? poll : one;
		all = poll > all ? poll : all;
	}
	switch ((enum pp_moves)run->progress->moves) {
	case PP_MOVES_ALONE:
		return at;
	case PP_MOVES_BY_ONE:
		return one;
	case PP_MOVES_BY_ALL:
		return all;
	}
	return at;
}

/* ---- shares of the device -------------------------------------------------------------------- */

void pp_sim_charge(struct pp_sim_run *run, const struct pp_sim_element *element)
{
	const struct pp_program *program = run->program;
	uint32_t number = (uint32_t)(element - run->elements);
	uint32_t node = program->rank[run->posts[element->first_post].rank].node;
	bool between = false;
	for (uint32_t i = 0; i < element->wanted; i++)
		between |= program->rank[run->posts[element->first_post + i].rank].node != node;
	uint64_t ticks = element->end - element->begin, permille = run->progress->permille[between];
	for (uint32_t i = 0; i < element->wanted; i++) {
		struct pp_sim_state *state = &run->ranks[run->posts[element->first_post + i].rank];
		if (state->waiting != number) /* who waits loses nothing */
			state->owed = pp_plus(state->owed, ticks / 1000 * permille + ticks % 1000 * permille / 1000);
	}
}
