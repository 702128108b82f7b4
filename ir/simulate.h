/* Discrete-event run of a program's streams with predicted costs: when each instruction starts and ends, where ranks
 * idle and why, how much memory is live. Integer ns ticks; deterministic. */
#ifndef PP_SIMULATE_H
#define PP_SIMULATE_H

#include "arena.h"
#include "program.h"

enum pp_idle { PP_IDLE_WARMUP, PP_IDLE_COOLDOWN, PP_IDLE_IMBALANCE, PP_IDLE_TRANSFER, PP_IDLE_HEAD_OF_LINE, PP_IDLE_COLLECTIVE, PP_IDLE_COUNT };
extern const char *const pp_idle_name[PP_IDLE_COUNT];

struct pp_interval {
	uint64_t start, end;
};

struct pp_sim_rank {
	uint64_t busy;                /* ns of compute (F, B, I, W) */
	uint64_t first, last;         /* start of the first and end of the last compute */
	uint64_t idle[PP_IDLE_COUNT]; /* ns by cause, 0 .. makespan; busy + sum = makespan */
	uint64_t longest_idle, longest_idle_at;
	uint64_t sent, received;      /* messages */
	uint32_t peak_stashes;        /* (stage, mb) forwards whose stash is held at once */
	uint64_t peak_bytes;          /* live bytes: static + dynamic values, at most arena_bytes */
	uint64_t peak_at;             /* ns */
};

struct pp_sim {
	uint64_t makespan;     /* 0 to the end of the last F/B/I/W */
	uint64_t tail;         /* the step tail after it (reductions, norm, update) */
	uint64_t longest_span; /* longest (last - first) of a rank */
	uint64_t bound;        /* lower bound on the makespan for these stage costs: see simulate.c */
	double work;           /* mean busy over ranks, ns */
	double bubble;         /* 1 - work / makespan */
	double overhead;       /* makespan / work - 1 */
	double span_bubble;    /* 1 - work / longest_span */
	double imbalance;      /* largest busy / mean busy - 1 */
	struct pp_sim_rank *rank;    /* [ranks] */
	struct pp_interval **instr;  /* [ranks][stream count]: start and end of each instruction; NULL unless asked */
};

/* Run `named` of a verified program under a queue layout. `intervals`: also fill in sim->instr. Returns false if it
 * does not finish (not verified for that layout). ≥ 10 M instructions per second. */
bool pp_simulate(struct pp_arena *arena, const struct pp_program *program, const struct pp_named_program *named,
                 enum pp_layout layout, bool intervals, struct pp_sim *sim);

#endif
