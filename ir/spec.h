/* The spec: everything a `.pipe` file says, resolved. All defaults are filled in, all names bound, every number in
 * base units (bytes, ns, bytes/s, flop, flop/s). Made by compiler/resolve/resolve.c, read by cost model, partition,
 * schedules, bodies and lowering. Lives in one arena. */
#ifndef PP_SPEC_H
#define PP_SPEC_H

#include "program.h"
#include "source.h"
#include "train.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum pp_layer_kind {
	PP_LAYER_EMBEDDING,
	PP_LAYER_BLOCK,
	PP_LAYER_NORM,
	PP_LAYER_HEAD,
	PP_LAYER_CUSTOM,
	PP_LAYER_KIND_COUNT
};
/* The first two are values of the `act` op's immediate; swiglu is an op of its own. */
enum pp_activation { PP_ACT_GELU, PP_ACT_GELU_TANH, PP_ACT_SWIGLU };

/* What a block computes again in the backward instead of keeping it: a mask. */
enum pp_recompute {
	PP_RECOMPUTE_NORM = 1,      /* outputs and statistics of norms */
	PP_RECOMPUTE_ACT = 2,       /* the activation's output */
	PP_RECOMPUTE_ATTENTION = 4, /* attention's output and log-sum-exp */
	PP_RECOMPUTE_LINEAR = 8, /* what linear layers make; only with all of the others: the block keeps its input alone */
	PP_RECOMPUTE_FULL = 15
};

/* Times of a custom layer, ns; the fused backward takes i + w. PP_TIME_UNSET: derived from flops. */
#define PP_TIME_UNSET UINT64_MAX
struct pp_custom {
	uint64_t params;     /* parameters: counted for memory and cost, not trained */
	uint64_t flops;      /* of F; I and W cost the same each */
	uint64_t activation; /* bytes stashed per microbatch */
	uint64_t output;     /* bytes of the boundary message if a stage ends here */
	uint64_t time_f, time_i, time_w;
};

/* One layer instance, in execution order. */
struct pp_layer {
	const char *name; /* of the `layer` statement: emb, block, norm, head, … */
	uint32_t index;   /* within the statement's count: block[index] */
	bool indexed;     /* written block[3]; false when the statement makes one layer: emb */
	uint8_t kind;     /* enum pp_layer_kind */
	uint32_t hidden, heads, kv_heads, head_dim, ffn, vocab, padded_vocab, seq;
	uint32_t window; /* attention: last keys seen; 0: all */
	uint8_t act;     /* enum pp_activation */
	bool bias;
	bool qkv_bias;       /* blocks: q, k and v have biases even where `bias` is false */
	bool qk_norm;        /* blocks: each head of q and k goes through an rmsnorm */
	uint64_t rope_theta; /* base of rotary positions in the blocks; 0: learned positions in the embedding */
	bool rms;            /* norm kind: false layernorm, true rmsnorm */
	uint8_t recompute;   /* blocks: enum pp_recompute */
	uint32_t block_ordinal, block_total; /* blocks: position among all blocks of the model and their number */
	uint32_t tie;                        /* head: index of the embedding layer whose weights it shares, or PP_NULL */
	struct pp_custom custom;
	struct pp_span span;
};

struct pp_model {
	const char *name;
	struct pp_layer *layers;
	uint32_t layer_count;
	uint32_t hidden, vocab, padded_vocab, seq;
	bool trains;     /* has embedding and head: data, loss, parameters. A model of custom layers only does not */
	double init_std; /* of normal weights; residual projections divide by sqrt(2 * blocks) */
};

struct pp_gpu {
	const char *name;
	uint64_t memory, reserve;       /* bytes */
	uint64_t flops[PP_DTYPE_COUNT]; /* peak flop/s for f32, bf16; 0: not given */
	uint64_t bandwidth;             /* of memory, bytes/s; 0: infinite */
	double efficiency;              /* share of the peak that matmuls reach */
	uint32_t sms, post_sms;         /* as in pp_rank */
};

struct pp_link {
	uint64_t bandwidth; /* bytes/s; 0: infinite (written `inf`) */
	uint64_t latency;   /* ns */
};

struct pp_cluster {
	const char *name;
	uint32_t nodes, gpus; /* gpus per node */
	struct pp_gpu gpu;
	struct pp_link intra, inter;
};

enum pp_place { PP_PLACE_LOOP, PP_PLACE_V, PP_PLACE_LINEAR, PP_PLACE_LIST };
enum pp_balance { PP_BALANCE_TIME, PP_BALANCE_MEMORY, PP_BALANCE_PARAMS, PP_BALANCE_LAYERS, PP_BALANCE_EVEN };

struct pp_parallel {
	/* With a list of ranks: vpp = most stages on one rank. */
	uint32_t tp, pp, vpp, dp;
	bool sp;                           /* sequence parallel: norms and residual stream on a tp-th of the tokens */
	uint32_t zero;                     /* 1: the optimizer's state is sharded over dp */
	uint8_t rank_order[PP_AXIS_COUNT]; /* enum pp_axis, fastest first: how world ranks are numbered */
	uint64_t bucket;                   /* bytes of gradients or weights that a rank has outstanding over dp at most */
};

/* What `schedule search` is after. */
struct pp_seek {
	uint8_t objective; /* enum pp_objective of compiler/search/search.h */
	uint64_t timeout;  /* ns */
	uint64_t seed;
	uint64_t effort;   /* actions evaluated at most; 0: the search's own */
	const char *start; /* the schedule that it starts from; NULL: all compete */
	bool used;         /* the schedule is searched */
	uint64_t deadline; /* monotonic ns at which the timeout strikes; 0: not begun */
	bool trial;        /* only to compare placements: search for a shorter time */
	struct pp_span start_span;
};

/* The `stages` block. */
struct pp_stages_spec {
	uint8_t place;        /* enum pp_place */
	uint32_t *place_list; /* PP_PLACE_LIST: one rank per stage */
	uint32_t stage_count;
	uint8_t balance;                 /* enum pp_balance */
	uint32_t min_layers, max_layers; /* per stage; max 0: no limit */
	uint32_t *split;                 /* explicit split: first layer of each stage, [stage_count + 1], or NULL */
	bool split_frozen;               /* it stands in the schedule, with the order that was made for it */
	struct pp_span split_span, balance_span, span;
	struct pp_span *stage_spans; /* of the parts of an explicit split, or NULL */
};

struct pp_profile;

struct pp_spec {
	struct pp_model model;
	struct pp_cluster cluster;
	struct pp_parallel parallel;
	struct pp_stages_spec stages;
	uint32_t microbatches;
	/* Of activations and weights: PP_F32, or PP_BF16, which piperun on CPU refuses. Gradients of weights are f32. */
	uint8_t dtype;
	/* hypers[0]: tensors with weight decay, hypers[1]: without; data PP_DATA_NONE: planned, not run. */
	struct pp_train train;
	const char *schedule_name; /* of the active schedule */
	uint64_t schedule_memory;  /* bound `memory <=` of the schedule, 0: none */
	struct pp_seek seek;       /* schedule search */
	uint32_t group;            /* interleaved: microbatches per group, 0: default */
	uint32_t pair_permille;    /* time of an overlapped pair, in thousandths of both in turn */
	bool drop_surplus;         /* its rows may have actions of microbatches that do not exist */
	struct pp_span model_span, cluster_span, parallel_span, schedule_span; /* names of the blocks */
	struct pp_span vpp_span, place_span;                                   /* of their values, else of their blocks */
	struct pp_span recompute_span;                                         /* of `recompute` where it is given */
	struct pp_span memory_span;       /* of `memory <= X` where it is given, else the schedule's */
	struct pp_span train_span;        /* of `microbatches` where it is given, else of the block */
	const struct pp_profile *profile; /* measured costs in place of the model's, or NULL */
};

/* Shards of the optimizer's state: the dp coordinates, or 1. */
static inline uint32_t pp_spec_shards(const struct pp_spec *spec)
{
	return spec->parallel.zero ? spec->parallel.dp : 1;
}

static inline uint64_t pp_spec_gpus(const struct pp_spec *spec)
{
	return (uint64_t)spec->cluster.nodes * spec->cluster.gpus;
}

/* GPUs of the cluster that no rank runs on; 0 where no cluster is given. */
static inline uint64_t pp_spec_idle_gpus(const struct pp_spec *spec)
{
	uint64_t ranks = (uint64_t)spec->parallel.tp * spec->parallel.pp * spec->parallel.dp;
	return pp_spec_gpus(spec) > ranks ? pp_spec_gpus(spec) - ranks : 0;
}

/* Canonical text: `pipec build --emit=spec`. Every value, in base units. */
void pp_spec_print(const struct pp_spec *spec, FILE *out);

/* "block[3]" or "emb", in the arena. */
const char *pp_layer_title(struct pp_arena *arena, const struct pp_layer *layer);

/* "emb, block[0..1]": neighbours of one statement joined; after eight groups "and N more"; "empty" for none. */
const char *pp_layers_title(struct pp_arena *arena, const struct pp_layer *layers, uint32_t count);

/* Whether a tensor-parallel group lies across the end of a node: its world ranks are first, first + stride, ... */
bool pp_tp_crosses_nodes(const struct pp_spec *spec, uint64_t *first, uint64_t *stride);

/* Rank of each stage for a placement: loop s mod p; v 0…p-1,p-1…0,…; linear s div v. */
uint32_t pp_place_rank(enum pp_place place, uint32_t stage, uint32_t ranks, uint32_t vpp);

#endif
