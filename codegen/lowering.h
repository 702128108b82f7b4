/* Inside codegen/: the tables that the parts of the lowering share. */
#ifndef PP_LOWERING_H
#define PP_LOWERING_H

#include "lower.h"

#include "ir/capped.h"

_Static_assert((int)PP_F == (int)PP_PHASE_F && (int)PP_B == (int)PP_PHASE_B && (int)PP_I == (int)PP_PHASE_I &&
                   (int)PP_W == (int)PP_PHASE_W,
               "actions of a schedule are phases");

/* One action of the schedule, or the recompute before its backward. Ids are consecutive per rank, in row order. */
struct pp_compute {
	uint32_t stage, mb, rank;
	uint8_t kind;          /* enum pp_phase: those of the schedule's actions, and R */
	uint8_t flags;         /* enum pp_instr_flag */
	uint32_t transfer_in;  /* that brings its boundary input, or PP_NULL */
	uint32_t transfer_out; /* that takes its output away, or PP_NULL */
	uint32_t in, out;      /* slots of boundary input and output, or PP_NULL */
	uint32_t stash, aux;   /* slots; aux may be PP_NULL */
	uint32_t extra;        /* slot or PP_NULL; of F: that of its microbatch in the backward */
};

/* One message. Ids are consecutive per channel, in the order in which its consumer's rank wants them (R1). */
struct pp_transfer {
	uint32_t producer, consumer; /* computes */
	uint32_t channel;
	uint64_t ticks;
};

struct pp_lowering {
	struct pp_arena *scratch;
	struct pp_program *program;
	const struct pp_spec *spec;
	const struct pp_schedule *schedule;
	struct pp_named_program *named; /* that is being made */
	bool forward_only;              /* it is `eval`: channels, depths and groups are those of `train` */
	uint32_t *outputs;              /* [ranks]: most forward outputs on their way at once in `train` */
	uint32_t *scratch_stash;        /* [ranks]: forward_only: the stash that nobody reads, PP_NULL: none yet */
	struct pp_compute *computes;
	uint32_t *base; /* [ranks + 1]: first compute of each rank */
	struct pp_transfer *transfers;
	uint32_t *channel_base;  /* [channels + 1]: first transfer of each channel */
	uint32_t *stream_length; /* [ranks]: instructions without the tail */
	uint32_t *stream_capacity;
	uint64_t makespan; /* simulated end of the last compute */
};

/* lower_link.c: the slowest link on the ring of a group. */
void pp_group_link(const struct pp_lowering *lowering, struct pp_group *group);

/* lower_emit.c: append to a rank's stream; `order` is the position in G of a post, else PP_NULL. */
void pp_lowering_emit(struct pp_lowering *lowering, uint32_t rank, const struct pp_instr *instr, uint32_t order);

/* `wait` for a transfer on one of its ranks; load and compute; the post of one end, `order` as above. */
void pp_lowering_emit_wait(struct pp_lowering *lowering, uint32_t rank, uint32_t transfer);
void pp_lowering_emit_compute(struct pp_lowering *lowering, uint32_t compute);
void pp_lowering_emit_post(struct pp_lowering *lowering, uint32_t transfer, bool receives, uint32_t order);

/* lower_graph.c: channels, computes, transfers, slots of values. Costs are integer ticks. */
void pp_lower_graph(struct pp_lowering *lowering);

/* lower_depth.c: program->channels[].depth. */
void pp_lower_depths(struct pp_lowering *lowering);

/* lower.c: the streams up to the last compute, as program->lowering says. */
void pp_lower_order(struct pp_lowering *lowering);

/* lower_free.c: the same without a global order. */
void pp_lower_free(struct pp_lowering *lowering);

/* lower_tail.c: what stands before the first and after the last compute; groups, hyper-parameter rows. */
void pp_lower_start(struct pp_lowering *lowering);
bool pp_lower_tail(struct pp_lowering *lowering, struct pp_diag *diag);
void pp_lower_eval_tail(struct pp_lowering *lowering);

/* The last compute of the step that begins with this one: the second of a pair that overlaps. A step begins when the
 * inputs of all of it are there, and what it makes is there at its end. */
static inline uint32_t pp_step_last(const struct pp_lowering *lowering, uint32_t first)
{
	while (lowering->computes[first].flags & PP_PAIR)
		first++;
	return first;
}

static inline uint64_t pp_compute_ticks(const struct pp_lowering *lowering, const struct pp_compute *compute)
{
	return lowering->program->stages[compute->stage].ticks[compute->kind];
}

static inline uint64_t pp_step_ticks(const struct pp_lowering *lowering, uint32_t first)
{
	uint32_t last = pp_step_last(lowering, first);
	uint64_t ticks = 0;
	for (uint32_t id = first; id <= last; id++)
		ticks = pp_plus(ticks, pp_compute_ticks(lowering, &lowering->computes[id]));
	return first == last ? ticks : pp_thousandths(ticks, lowering->program->cost.pair_permille);
}

#endif
