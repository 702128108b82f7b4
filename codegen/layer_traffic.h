/* Bytes that the memory-bound body instructions move: the sizes of their operands, each once (cost model 1.7: such
 * instructions take bytes / (0.85 * memory bandwidth)). Small operands count too, so that a count can be compared
 * with the instructions exactly. */
#ifndef PP_LAYER_TRAFFIC_H
#define PP_LAYER_TRAFFIC_H

#include "layer_kind.h"

/* `arrays` arrays of the hidden state, rows x columns in the dtype of activations. */
static inline uint64_t pp_traffic_hidden(const struct pp_shape *shape, uint64_t arrays, uint64_t columns)
{
	return pp_times(pp_times(shape->rows, columns), arrays * pp_dtype_size[shape->dtype]);
}

/* `arrays` arrays of tokens x columns in the dtype of activations. */
static inline uint64_t pp_traffic_rows(const struct pp_shape *shape, uint64_t arrays, uint64_t columns)
{
	return pp_times(pp_times(shape->tokens, columns), arrays * pp_dtype_size[shape->dtype]);
}

/* mean and rstd of each row of the hidden state, f32. */
static inline uint64_t pp_traffic_statistics(const struct pp_layer *layer, const struct pp_shape *shape)
{
	return pp_times(shape->rows, layer->rms ? 4 : 8);
}

static inline bool pp_norm_has_beta(const struct pp_layer *layer)
{
	return layer->bias && !layer->rms;
}

/* x -> y, with gamma, beta and the statistics. */
static inline uint64_t pp_traffic_norm(const struct pp_layer *layer, const struct pp_shape *shape)
{
	uint64_t vectors = pp_times(layer->hidden, (pp_norm_has_beta(layer) ? 2 : 1) * pp_dtype_size[shape->dtype]);
	return pp_plus(pp_traffic_hidden(shape, 2, layer->hidden), pp_plus(vectors, pp_traffic_statistics(layer, shape)));
}

/* dy, x -> dx, with gamma and the statistics. */
static inline uint64_t pp_traffic_norm_dx(const struct pp_layer *layer, const struct pp_shape *shape)
{
	uint64_t vector = pp_times(layer->hidden, pp_dtype_size[shape->dtype]);
	return pp_plus(pp_traffic_hidden(shape, 3, layer->hidden), pp_plus(vector, pp_traffic_statistics(layer, shape)));
}

/* dy, x -> dgamma, dbeta (f32), with the statistics. */
static inline uint64_t pp_traffic_norm_dw(const struct pp_layer *layer, const struct pp_shape *shape)
{
	uint64_t vectors = pp_times(layer->hidden, pp_norm_has_beta(layer) ? 8 : 4);
	return pp_plus(pp_traffic_hidden(shape, 2, layer->hidden), pp_plus(vectors, pp_traffic_statistics(layer, shape)));
}

#endif
