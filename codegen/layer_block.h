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

/* From n1 to q, k, v and through attention to o. */
void pp_heads_forward(struct pp_layer_build *build);

/* From the gradient of o to dq, dk, dv, those of what the projections made, and of the norms of q and k. */
void pp_heads_backward(struct pp_layer_build *build, uint32_t output_gradient);

/* Bytes that qk-norm and rope move in a phase: F, I or W. */
uint64_t pp_heads_traffic(const struct pp_layer *layer, const struct pp_shape *shape, enum pp_phase phase);

#endif
