/* Between layer_block.c and layer_heads.c: the lists of a block, and the way of q and k to attention and back. */
#ifndef PP_LAYER_BLOCK_H
#define PP_LAYER_BLOCK_H

#include "body_builder.h"
#include "layer_traffic.h"

/* clang-format off */
enum { /* gated: FC1 is the gate, FC2 the way down */
	NORM1_WEIGHT, NORM1_BIAS, Q_WEIGHT, Q_BIAS, K_WEIGHT, K_BIAS, V_WEIGHT, V_BIAS,
	Q_NORM_WEIGHT, K_NORM_WEIGHT, O_WEIGHT, O_BIAS,
	NORM2_WEIGHT, NORM2_BIAS, FC1_WEIGHT, FC1_BIAS, UP_WEIGHT, UP_BIAS, FC2_WEIGHT, FC2_BIAS, PP_BLOCK_PARAM_COUNT
};
enum {
	X, MEAN1, RSTD1, N1, Q, K, V, Q_PLAIN, K_PLAIN, Q_RSTD, K_RSTD, O, LSE, X2, MEAN2, RSTD2, N2, F, U, G, /* by F */
	DY, DF, DU, DN2, DX2, DQ, DK, DV, DQ_NORMED, DK_NORMED, DN1, PP_BLOCK_PART_COUNT /* output gradients, for W */
};
/* clang-format on */

static inline uint64_t pp_query_width(const struct pp_layer *layer)
{
	return pp_times(layer->heads, layer->head_dim);
}

static inline uint64_t pp_key_width(const struct pp_layer *layer)
{
	return pp_times(layer->kv_heads, layer->head_dim);
}

/* More tensor-parallel ranks than key/value heads: each holds the weights of all of them and uses one. */
static inline bool pp_shares_heads(const struct pp_layer *layer, const struct pp_shape *shape)
{
	return layer->kv_heads % shape->tp != 0;
}

/* What of them is on one rank. */
static inline uint32_t pp_local_heads(const struct pp_layer *layer, const struct pp_shape *shape)
{
	return layer->heads / shape->tp;
}

static inline uint32_t pp_local_kv_heads(const struct pp_layer *layer, const struct pp_shape *shape)
{
	return pp_shares_heads(layer, shape) ? 1 : layer->kv_heads / shape->tp;
}

static inline uint64_t pp_local_query(const struct pp_layer *layer, const struct pp_shape *shape)
{
	return pp_times(pp_local_heads(layer, shape), layer->head_dim);
}

static inline uint64_t pp_local_key(const struct pp_layer *layer, const struct pp_shape *shape)
{
	return pp_times(pp_local_kv_heads(layer, shape), layer->head_dim);
}

/* Columns that a rank projects to k, or to v. */
static inline uint64_t pp_projected_key(const struct pp_layer *layer, const struct pp_shape *shape)
{
	return pp_shares_heads(layer, shape) ? pp_key_width(layer) : pp_local_key(layer, shape);
}

static inline bool pp_is_gated(const struct pp_layer *layer)
{
	return layer->act == PP_ACT_SWIGLU;
}

static inline uint64_t pp_local_ffn(const struct pp_layer *layer, const struct pp_shape *shape)
{
	return layer->ffn / shape->tp;
}

/* From the whole of n1 to q, k, v and through attention to o. */
void pp_heads_forward(struct pp_layer_build *build, uint32_t n1);

/* From the gradient of o to dq, dk, dv, those of what the projections made, and of the norms of q and k. */
void pp_heads_backward(struct pp_layer_build *build, uint32_t output_gradient);

/* The gradients of what the projections of k and v make, of all heads. */
struct pp_key_gradients {
	uint32_t key, value;
};
struct pp_key_gradients pp_heads_projected(struct pp_layer_build *build);

/* From the whole of n2 to g; from the gradient of g to those of f and u. */
void pp_mlp_inner_forward(struct pp_layer_build *build, uint32_t n2);
void pp_activation_backward(struct pp_layer_build *build, uint32_t dg);

/* The instructions of a block with tp > 1 (layer_block_parallel.c), and its collectives. */
void pp_block_parallel_forward(struct pp_layer_build *build);
void pp_block_parallel_backward(struct pp_layer_build *build);
void pp_block_collectives(const struct pp_layer *layer, const struct pp_shape *shape,
                          struct pp_layer_collectives *list);

/* Bytes that qk-norm and rope move in a phase: F, I or W. */
uint64_t pp_heads_traffic(const struct pp_layer *layer, const struct pp_shape *shape, enum pp_phase phase);

#endif
