/* State of a simulated run. Private to ir/simulate*.c. */
#ifndef PP_SIMULATE_STATE_H
#define PP_SIMULATE_STATE_H

#include "queues.h"
#include "capped.h"
#include "lifetime.h"
#include "simulate.h"

/* A message or a collective. Elements: messages first, channel by channel. */
struct pp_sim_element {
	uint64_t begin;          /* latest post so far; once over: when the transfer began */
	uint64_t end;            /* once over */
	uint64_t produced;       /* messages: when the compute that made the value ended */
	uint32_t posted, wanted; /* posts */
	uint32_t first_post;     /* its posts are consecutive */
	uint32_t group;          /* collectives */
	bool over;
	bool ready; /* with a progress model: heads its queues, its start is an event */
};

struct pp_sim_post {
	uint32_t next; /* in its queue */
	uint32_t queue, rank, instr, element;
};

struct pp_sim_state {
	uint64_t clock;
	uint32_t at;                           /* next instruction */
	uint32_t last_compute;                 /* index of the last one, PP_NULL: none */
	uint32_t first_backward, last_forward; /* likewise */
	uint32_t waiting;                      /* element, PP_NULL: none */
	uint32_t pair_at; /* index of the first of a pair, which begins with the second; PP_NULL: none */
	bool in_work, computed;
	uint64_t gap_from; /* end of the last compute */
	/* With a progress model: the last compute or other work, how often it polls, and what transfers have taken from
	 * computes to come. */
	uint64_t busy_from, busy_until, poll_interval, owed;
	uint64_t *written; /* per slot: when its value was made */
	bool *live;        /* per slot */
	uint64_t bytes;
	uint32_t stashes;
	uint64_t *last_reader; /* of aux, NULL: no such slots */
	struct pp_sim_flight {
		uint32_t id, element;
	} * flights; /* collectives posted and not waited for */
	size_t flight_count, flight_capacity;
};

/* With a progress model. `number`: a rank, or the number of ranks + an element. */
struct pp_sim_event {
	uint64_t at, number;
};

struct pp_sim_run {
	const struct pp_program *program;
	const struct pp_named_program *named;
	struct pp_arena *scratch;
	struct pp_sim *sim;
	struct pp_queues queues;
	uint64_t *queue_free;
	uint32_t *head, *tail;
	struct pp_sim_element *elements;
	struct pp_sim_post *posts;
	uint32_t *first_message; /* [channels + 1] */
	uint32_t *sequence[2];   /* [channels]: posts so far */
	uint32_t message_count, element_count, post_count;
	uint32_t *first_joint; /* [groups]: element of the group's first collective */
	uint32_t *joint_limit; /* [groups] */
	uint32_t **joint_next; /* [groups][members, or 1 on a symbolic axis]: collectives posted so far */
	struct pp_sim_state *ranks;
	uint32_t *work, work_count;
	uint32_t *check;
	size_t check_count, check_capacity;
	const struct pp_progress_model *progress; /* NULL: the order of time does not matter */
	uint64_t now;
	struct pp_sim_event *events; /* a heap */
	size_t event_count, event_capacity;
	bool blocking, forward_only;
};

static inline uint64_t pp_sim_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Number the messages and collectives of the streams, and note each rank's last compute. */
void pp_sim_number(struct pp_sim_run *run);

/* The rank may go on. */
void pp_sim_wake(struct pp_sim_run *run, uint32_t rank);

/* Post number `index` of an element, made at the rank's clock; what can start, starts. */
void pp_sim_post(struct pp_sim_run *run, uint32_t at, uint32_t index, uint32_t rank, uint32_t queue);

/* A transfer that was to start at this instant may do so. */
void pp_sim_start(struct pp_sim_run *run, uint32_t element);

/* simulate_progress.c: only with a progress model. */
void pp_sim_later_event(struct pp_sim_run *run, uint64_t at, uint64_t number);
bool pp_sim_next_event(struct pp_sim_run *run, struct pp_sim_event *event);

/* The rank is busy with an instruction from `start` to its clock. */
void pp_sim_busy(struct pp_sim_run *run, uint32_t rank, uint64_t start, const struct pp_instr *instr);

/* When an element that could start at this instant does. */
uint64_t pp_sim_first_move(const struct pp_sim_run *run, const struct pp_sim_element *element, uint64_t at);

/* An element that is over has slowed its ranks down. */
void pp_sim_charge(struct pp_sim_run *run, const struct pp_sim_element *element);

#endif
