/* Stages: which contiguous layers each stage holds, on which rank, and what it costs. Made by compiler/partition.c
 * (choice of the split) and compiler/cost.c (prices), read by the schedule policies, bodies and lowering. */
#ifndef PP_STAGES_H
#define PP_STAGES_H

#include "capped.h"
#include "spec.h"

/* Exact counts of one layer for one microbatch on one tensor-parallel rank. Phases: F, I, W, R (B = I + W). */
struct pp_layer_counts {
	/* Trainable parameters of this use (a tied head counts its copy here too): of the model, without rows that pad the
	 * vocabulary; and the part of a dp coordinate, of each tensor that one rank keeps, with all padding. Without shards
	 * of the optimizer that part is all the rank keeps. */
	uint64_t params, shard_params;
	uint64_t matmul_flops[PP_PHASE_COUNT]; /* of linears */
	uint64_t attention_flops[PP_PHASE_COUNT];
	/* Of the two, what the model needs once and several tensor-parallel ranks do: time, but none of the model's work.
	 */
	uint64_t repeated_flops[PP_PHASE_COUNT];
	uint64_t memory_bytes[PP_PHASE_COUNT]; /* traffic of the memory-bound ops */
	uint64_t stash_bytes;                  /* kept from F to backward */
	uint64_t extra_bytes;                  /* made again, from R to the end of backward */
	uint64_t split_bytes;                  /* what the split form adds to extra, from I to W */
	uint64_t work_bytes;                   /* workspace of its bodies between other layers, the largest */
	uint64_t output_bytes;                 /* boundary message after this layer */
	uint64_t fixed_ns[PP_PHASE_COUNT];     /* custom layers with given times */
};

/* A rank's share of the model's own operations: those of all tensor-parallel ranks together count each once. */
static inline uint64_t pp_layer_flops(const struct pp_layer_counts *counts, unsigned phase)
{
	return pp_plus(counts->matmul_flops[phase], counts->attention_flops[phase]) - counts->repeated_flops[phase];
}

struct pp_stage_plan {
	uint32_t first_layer, layer_count, rank;
	uint64_t params; /* of the model in this stage; a tied tensor counts at the first of its stages on the rank */
	/* Weights, gradients, optimizer state; tied tensors as for params, but one gradient per use. */
	uint64_t static_bytes;
	uint64_t stash_bytes;           /* per microbatch in flight */
	uint64_t extra_bytes;           /* made again, per microbatch in its backward */
	uint64_t split_bytes;           /* per microbatch between I and W */
	uint64_t ticks[PP_PHASE_COUNT]; /* F, B = I + W, I, W, R in ns */
	uint64_t flops[PP_PHASE_COUNT]; /* pp_layer_flops, attention counted in full; those of R are none of the model's */
};

/* A split found by moving a layer of stage `from` to stage `to`; those between hand one on each. */
struct pp_joint_neighbour {
	uint32_t from, to;
	uint64_t makespan;
};
enum { PP_JOINT_NEIGHBOURS = 3 };

/* What judging splits by the simulated makespan came to: compiler/joint. */
struct pp_joint_report {
	uint64_t even, balanced, chosen; /* makespans, ns: of equal blocks (UINT64_MAX: not possible), of the least slowest
	                                  * rank, of the split in use */
	bool moved;                      /* the split in use is not that of the balance */
	bool quick;                      /* the orders were made quickly: that of the build may be faster */
	uint32_t runs;
	uint32_t rank; /* with most of the critical path */
	double share;  /* of the path's computes that is on it */
	struct pp_joint_neighbour next[PP_JOINT_NEIGHBOURS];
	uint32_t next_count;
};

struct pp_stages {
	struct pp_layer_counts *layers;          /* [layer_count of the model] */
	uint64_t (*layer_ticks)[PP_PHASE_COUNT]; /* [layer_count] */
	struct pp_stage_plan *items;
	uint32_t count;
	uint64_t bottleneck, bound; /* largest rank load (F + R + B of one microbatch, ns), and what no split goes below */
	uint64_t *rank_bytes; /* [ranks]: static bytes, stashes and extras in flight, as the memory caps counted them */
	bool over;            /* some rank is over its memory, as counted there */
	bool exact;           /* the split is proven best for its `balance` */
	const struct pp_joint_report *joint; /* NULL: the split was not judged by its makespan */
};

#endif
