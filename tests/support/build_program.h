/* Programs for tests of the verifier and the simulator, built without the compiler: schedules of the known families and
 * random ones, and a small lowering of its own (a topological order of computes and transfers; no times). */
#ifndef PP_TEST_BUILD_PROGRAM_H
#define PP_TEST_BUILD_PROGRAM_H

#include "ir/program.h"
#include "ir/schedule.h"

struct build_options {
	uint32_t depth;     /* receive slots per channel; 0: 2 */
	bool trains;        /* tensors (one per stage, one tied between first and last stage), loss and a step tail */
	bool placed;        /* give slots offsets, all apart */
	uint32_t recompute; /* stages that recompute: bit (s mod 32) */
	uint32_t extra;     /* stages whose split backward keeps an extra from I to W: likewise */
	uint64_t ticks[PP_PHASE_COUNT]; /* of every stage; all 0: F 100, B 200, I 100, W 100, R 100 */
	uint64_t latency;               /* of every channel, ns */
	uint32_t tp, dp, zero;          /* 0: 1, 1, none; tensors in turn sharded, replicated, and partial over tp */
	bool half;                      /* weights are bf16 and have master copies */
};

struct pp_schedule *build_gpipe(struct pp_arena *arena, uint32_t ranks, uint32_t microbatches);
struct pp_schedule *build_1f1b(struct pp_arena *arena, uint32_t ranks, uint32_t microbatches);
/* Megatron's order, groups of `ranks`; microbatches a multiple of ranks. */
struct pp_schedule *build_interleaved(struct pp_arena *arena, uint32_t ranks, uint32_t chunks, uint32_t microbatches);
/* Split backward, each W as late as it keeps the 1F1B count of stashes. */
struct pp_schedule *build_zb_h1(struct pp_arena *arena, uint32_t ranks, uint32_t microbatches);
/* Any valid schedule: up to 5 ranks, 3 chunks, 7 microbatches, any placement, fused and split backwards mixed. */
struct pp_schedule *build_random(struct pp_arena *arena, uint64_t *seed);

struct pp_program *build_program(struct pp_arena *arena, const struct pp_schedule *schedule,
                                 const struct build_options *options);

/* "Receive, compute, send", each post followed by its wait: the stream that a schedule seems to ask for. Linear
 * placement, one stage per rank. */
struct pp_program *build_naive(struct pp_arena *arena, const struct pp_schedule *schedule);

/* Every rank exchanges one value with each neighbour: how the four posts are ordered. */
enum build_exchange {
	BUILD_FIXED,   /* send-previous, recv-previous, send-next, recv-next, each followed by its wait */
	BUILD_GROUPED, /* the same posts, then their waits */
	BUILD_PARITY,  /* even ranks send first, odd ranks receive first */
};
struct pp_program *build_exchange(struct pp_arena *arena, uint32_t ranks, enum build_exchange how);

/* A copy whose streams (with room for one more instruction each) and slots can be changed: the other tables are shared.
 */
struct pp_program *build_copy(struct pp_arena *arena, const struct pp_program *program);

#endif
