/* What a layer kind is, for the files layer_<kind>.c that implement one and the passes that use the table.
 *
 * A kind lists its parameters and the parts of its stash, counts its work, and writes its instructions. Everything
 * that follows from these lists (parameter totals, stash layout, tensors, uses, slots) is derived in one place each. */
#ifndef PP_LAYER_KIND_H
#define PP_LAYER_KIND_H

#include "layer.h"

#include "ir/capped.h"

enum { PP_PARAMS_MAX = 20, PP_PARTS_MAX = 32, PP_PART_ALIGN = 64, PP_NOT_SHARDED = 255 };

/* Sizes of one microbatch on one tensor-parallel rank. */
struct pp_shape {
	uint64_t tokens; /* microbatch * seq */
	uint64_t rows;   /* of the hidden state: the tokens, with sequence parallelism a tp-th of them */
	uint64_t seq;
	enum pp_dtype dtype; /* of activations and weights; gradients of weights are f32 */
	uint32_t tp;
	bool sp; /* false where tp = 1 */
};

/* How a value is spread over the tensor-parallel group: the same on all ranks, partial sums, a part of the rows or of
 * the columns. One rank alone holds all. */
enum pp_spread { PP_WHOLE, PP_SUMS, PP_ROWS, PP_COLUMNS };

/* The hidden state between layers. */
static inline enum pp_spread pp_hidden_spread(const struct pp_shape *shape)
{
	return shape->sp ? PP_ROWS : PP_WHOLE;
}

/* A parameter tensor of a layer, whole. rows = 0: the layer has none (no bias). */
struct pp_param {
	const char *suffix;     /* of the tensor's name: attn.q.weight */
	uint64_t rows, columns; /* columns = 0: a vector */
	uint64_t padding;       /* of the rows, those that only pad */
	uint8_t init;           /* enum pp_init */
	uint8_t shard;          /* dimension split over tp, or PP_NOT_SHARDED */
	bool partial;           /* not sharded, but each tp coordinate sees only a part of its gradient */
	bool residual;          /* projection onto the residual stream: initialised smaller */
};

/* A part of what a layer needs for its backward: one array. rows = 0: the layer has none.
 *
 * F makes parts of the first sort and keeps them in the stash, or leaves them in workspace and R makes them again in
 * extra. Parts of the second sort (`weight_pass`) are output gradients that the weight gradients read: in the split
 * form I writes them to extra for W; in the fused form they live in workspace. In the split form a part may take over
 * the bytes of a part that I has read for the last time. */
struct pp_part {
	const char *name;
	uint64_t rows, columns;
	uint8_t dtype;
	bool weight_pass;
	uint8_t again;  /* bit of enum pp_recompute that makes R compute it again; 0: always kept */
	uint8_t spread; /* enum pp_spread; rows and columns are those of this rank */
	uint8_t over;   /* the part whose bytes it takes over, or PP_NO_PART */
};
enum { PP_NO_PART = 255 };

struct pp_layer_build;

struct pp_kind {
	const char *name;
	bool wants_input;      /* keeps its input in the stash: part 0 */
	bool makes_hidden;     /* its output is the hidden state [tokens, hidden] */
	uint8_t gradient_part; /* the part that holds the gradient of its output, or PP_NO_PART: it has none */
	/* Fill in the list (zeroed by the caller); its order is the order of tensor ids. */
	void (*params)(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_param *params);
	/* Fill in the parts (zeroed by the caller). */
	void (*parts)(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_part *parts);
	/* FLOPs, traffic, message and fixed times; B is summed by the caller. */
	void (*count)(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts);
	/* Its collectives where tp > 1; NULL: it has none. */
	void (*collectives)(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_collectives *list);
	void (*forward)(struct pp_layer_build *build);
	/* All backward instructions in one order; the build keeps those of its phase (I: dx, W: dw, B: both). */
	void (*backward)(struct pp_layer_build *build);
};

extern const struct pp_kind *const pp_kinds[PP_LAYER_KIND_COUNT];
extern const struct pp_kind pp_kind_embedding, pp_kind_block, pp_kind_norm, pp_kind_head, pp_kind_custom;

struct pp_shape pp_shape_make(const struct pp_layer *layer, const struct pp_spec *spec);

/* The share of a parameter that one tensor-parallel rank holds. */
struct pp_param pp_param_local(const struct pp_param *param, const struct pp_shape *shape);

static inline void pp_collective_add(struct pp_layer_collectives *list, enum pp_collective kind, unsigned phases,
                                     uint64_t bytes, uint64_t window)
{
	list->items[list->count++] = (struct pp_layer_collective){(uint8_t)kind, (uint8_t)phases, bytes, window};
}

enum {
	PP_IN_F = 1 << PP_PHASE_F,
	PP_IN_B = 1 << PP_PHASE_B,
	PP_IN_I = 1 << PP_PHASE_I,
	PP_IN_W = 1 << PP_PHASE_W,
	PP_IN_R = 1 << PP_PHASE_R
};

/* What reduces partial sums to the hidden state. */
static inline enum pp_collective pp_reduction_kind(const struct pp_shape *shape)
{
	return shape->sp ? PP_REDUCESCATTER : PP_ALLREDUCE;
}

/* Where the parts of a layer lie in its shares of stash and extra, and the sizes of these. Multiples of PP_PART_ALIGN,
 * so the shares of a stage's layers add up exactly. */
enum pp_area { PP_AREA_WORK, PP_AREA_STASH, PP_AREA_EXTRA, PP_AREA_COUNT };
struct pp_part_layout {
	struct pp_part parts[PP_PARTS_MAX];
	uint8_t area[PP_PARTS_MAX]; /* enum pp_area; of its backward bodies */
	uint64_t offset[PP_PARTS_MAX];
	uint64_t bytes[PP_AREA_COUNT]; /* of workspace: 0, bodies place it */
};
void pp_part_layout_make(const struct pp_layer *layer, const struct pp_shape *shape, bool split,
                         struct pp_part_layout *layout);

/* The value that crosses a boundary between layers. RAW: the message of custom layers, which only takes up room. */
enum pp_flow_kind { PP_FLOW_NONE, PP_FLOW_HIDDEN, PP_FLOW_RAW };
struct pp_flow {
	uint8_t kind; /* enum pp_flow_kind */
	uint8_t dtype;
	uint8_t spread; /* enum pp_spread */
	uint64_t rows, columns;
};

/* What crosses the boundary after `layer`, given what crosses the one before it (PP_FLOW_NONE, zeroed, before the
 * first). A custom layer passes the hidden state on; elsewhere it sends as many bytes as it says. */
struct pp_flow pp_flow_after(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_flow before);
uint64_t pp_flow_bytes(const struct pp_flow *flow);

/* Which tensors and uses the parameters of each layer are; PP_NULL where it has none. One per layer, in the arena. */
struct pp_layer_tensors {
	uint32_t tensor[PP_PARAMS_MAX], use[PP_PARAMS_MAX];
};
struct pp_layer_tensors *pp_layer_tensors_make(struct pp_arena *arena, const struct pp_spec *spec,
                                               uint32_t *tensor_count, uint32_t *use_count);

/* Make the static slots of every rank and bind the uses to them. The last is the workspace, its size still open. */
void pp_static_slots_build(struct pp_program *program, const struct pp_spec *spec, const struct pp_stages *stages);

/* Workspace of the layer's bodies, the larger of both forms of backward, and of F and R where it recomputes, where it
 * stands between others in a stage. requires: it fits. */
uint64_t pp_layer_work_bytes(const struct pp_layer *layer, const struct pp_spec *spec);

/* block.3 or emb: what the names of a layer's tensors and registers begin with. */
const char *pp_layer_prefix(struct pp_arena *arena, const struct pp_layer *layer);

#endif
