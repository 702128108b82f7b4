/* Discrete-event run of a program's streams with predicted costs: when each instruction starts and ends, where ranks
 * idle and why, how much memory is live. Integer ns ticks; deterministic.
 *
 * A transfer starts when both ends are posted and head their queues, and takes latency + bytes / bandwidth of its
 * channel; its queues are busy meanwhile. Computes take the ticks of their stage. A pair that may overlap begins when
 * the inputs of both are there and takes pair_permille of the sum, and what both make is there at its end. A sum over n
 * members takes 2 (n - 1) ring steps, its halves n - 1. The step tail's memory traffic takes bytes / memory_bandwidth.
 * Everything else takes no time. With a progress model (progress.h) transfers also wait until somebody moves their
 * data, or slow computes down. */
#ifndef PP_SIMULATE_H
#define PP_SIMULATE_H

#include "arena.h"
#include "order.h"
#include "program.h"
#include "progress.h"

/* Why a rank idles. Between its first and its last compute, a wait for a value is split by what it waits for. */
enum pp_idle {
	PP_IDLE_WARMUP,    /* the pipeline fills: before the rank's first compute, and while the producer of a value awaited
	                    * before    its first backward had not ended */
	PP_IDLE_COOLDOWN,  /* it drains: the same after the rank's last forward, and from its last compute to the makespan
	                    * (the step  tail up to then included) */
	PP_IDLE_IMBALANCE, /* in between: the producer of the awaited value had not ended */
	PP_IDLE_TRANSFER,  /* the transfer of a finished value was under way (wait of a recv or of a send) */
	PP_IDLE_HEAD_OF_LINE, /* a finished value stood still: its queue, or the slot of its receiver, was not free, or
	                       * nobody moved it */
	PP_IDLE_COLLECTIVE,   /* a collective, or work of the step tail, between computes */
	PP_IDLE_COUNT
};
extern const char *const pp_idle_name[PP_IDLE_COUNT]; /* warm-up cool-down imbalance transfer head-of-line collective */

struct pp_interval {
	uint64_t start, end;
};

struct pp_sim_rank {
	uint64_t busy;                          /* ns of compute (F, B, I, W) */
	uint64_t first, last;                   /* start of the first and end of the last compute; both 0: none */
	uint64_t idle[PP_IDLE_COUNT];           /* ns by cause, 0 .. makespan; busy + sum = makespan */
	uint64_t longest_idle, longest_idle_at; /* the longest stretch without compute in 0 .. makespan */
	uint64_t sent, received;                /* messages */
	uint32_t peak_stashes;                  /* (stage, mb) forwards whose backward is still to come, most at once */
	uint64_t peak_bytes;                    /* live bytes: static + dynamic values, at most arena_bytes */
	uint64_t peak_at;                       /* ns */
};

struct pp_sim {
	uint64_t makespan;           /* 0 to the end of the last F/B/I/W */
	uint64_t tail;               /* the step tail after it (reductions, norm, update) */
	uint64_t longest_span;       /* longest (last - first) of a rank */
	struct pp_order_bound bound; /* on makespan and longest_span, for these computes, placement, links and memory */
	double work;                 /* mean busy over ranks, ns */
	double bubble;               /* 1 - work / makespan */
	double overhead;             /* makespan / work - 1 */
	double span_bubble;          /* 1 - work / longest_span */
	double imbalance;            /* largest busy / mean busy - 1 */
	struct pp_sim_rank *rank;    /* [ranks] */
	struct pp_interval **instr;  /* [ranks][stream count], NULL unless asked: start and end of an instruction. Posts:
	                                when their transfer or collective begins and is over. Waits: from when the rank comes
	                                to them until it goes on */
};

/* Run `named` of a verified program under a queue layout. `intervals`: also fill in sim->instr. Returns false if it
 * does not finish (not verified for that layout). ≥ 10 M instructions per second. */
bool pp_simulate(struct pp_arena *arena, const struct pp_program *program, const struct pp_named_program *named,
                 enum pp_layout layout, bool intervals, struct pp_sim *sim);

struct pp_sim_options {
	enum pp_layout layout;
	bool intervals;
	const struct pp_progress_model *progress; /* NULL: data moves on its own */
};

/* The same with a progress model. Runs in the order of time, which costs a logarithm of the ranks per instruction. */
bool pp_simulate_with(struct pp_arena *arena, const struct pp_program *program, const struct pp_named_program *named,
                      const struct pp_sim_options *options, struct pp_sim *sim);

/* Bytes of one step of a ring of so many members: an n-th of what an allreduce sums; what one member gives to an
 * allgather, or gets from a reducescatter, is its payload already. */
uint64_t pp_ring_part(enum pp_collective kind, uint64_t payload, uint64_t members);

/* Steps of that ring: 2 (n - 1) for an allreduce, n - 1 for its halves. */
uint64_t pp_ring_steps(enum pp_collective kind, uint64_t members);

/* Bytes that an instruction of the step tail moves: reads and writes of its slots, or of its shard of them. */
uint64_t pp_tail_traffic(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr);

/* What no order of the computes of `named`, on their ranks and within the room that its plan leaves, can beat:
 * bounds.c. Programs without pairs are held to orders without pairs. */
struct pp_order_bound pp_program_bound(struct pp_arena *arena, const struct pp_program *program,
                                       const struct pp_named_program *named);

#endif
