/* Softmax cross-entropy and its gradient. A block per token walks its row of logits twice: first for the largest and
 * the sum of exponentials, taken together by rescaling the sum whenever the largest grows, then, backwards, for the
 * gradient; the second time the row comes mostly out of the cache. Probabilities are never stored. Losses of tokens go
 * to scratch and are added in a fixed order. */
#include "launch.h"

#include "kernels_cuda.h"
#include "vector.h"

#include <math.h>

enum { BLOCK = 512, UNROLL = 4, SUM_BLOCK = 1024, STAT_LARGEST = 0, STAT_SUM, STAT_OWN, STATS };

template <typename T> __device__ __forceinline__ float exponential(float x);

template <> __device__ __forceinline__ float exponential<float>(float x)
{
	return expf(x);
}

template <> __device__ __forceinline__ float exponential<__nv_bfloat16>(float x)
{
	return pp_power2(x * LOG2_E);
}

/* A row of logits, of which the first `valid` columns count. It is cut into packs at addresses that are multiples of
 * 16, counted from the first element of the array; packs inner_first to inner_end - 1 lie inside the columns that
 * count, the others reach over an end, or all do where an array is off 16 bytes. */
template <typename T> struct logits_row {
	enum { SIZE = pack_of<T>::SIZE };
	const T *row;
	size_t columns, valid, packs, inner_first, inner_end;
	ptrdiff_t shift; /* elements of the first pack before the row */

	__device__ __forceinline__ logits_row(const T *array, const T *other, size_t number, size_t of_columns,
	                                      size_t that_count)
	    : row(array + number * of_columns), columns(of_columns), valid(that_count),
	      shift((ptrdiff_t)(number * of_columns % SIZE))
	{
		bool on_16 = ((reinterpret_cast<uintptr_t>(array) | reinterpret_cast<uintptr_t>(other)) & 15) == 0;
		packs = (columns + (size_t)shift + SIZE - 1) / SIZE;
		inner_first = shift ? 1 : 0;
		inner_end = on_16 ? (valid + (size_t)shift) / SIZE : 0;
	}
	__device__ __forceinline__ ptrdiff_t first(size_t number) const
	{
		return (ptrdiff_t)(number * SIZE) - shift;
	}
	__device__ __forceinline__ bool is_inner(size_t number) const
	{
		return number >= inner_first && number < inner_end;
	}
	/* Elements that do not count get `value`. */
	__device__ __forceinline__ void mask(size_t number, float value, pack<SIZE> *x) const
	{
#pragma unroll
		for (int i = 0; i < SIZE; i++) {
			ptrdiff_t at = first(number) + i;
			x->at[i] = at >= 0 && (size_t)at < valid ? x->at[i] : value;
		}
	}
};

/* f(number, pack, inner) for the packs of this thread: threadIdx.x, + BLOCK, and so on; UNROLL are loaded together.
 * `back`: from the end of the row, of which more is still in the cache after a walk to it. */
template <bool back, typename T, typename F> __device__ __forceinline__ void each_pack(const logits_row<T> &row, F f)
{
	enum { TOGETHER = BLOCK * UNROLL };
	size_t steps = (row.packs + TOGETHER - 1) / TOGETHER;
	for (size_t step = 0; step < steps; step++) {
		size_t number = (back ? steps - 1 - step : step) * TOGETHER + threadIdx.x;
		if (number >= row.inner_first && number + BLOCK * (UNROLL - 1) < row.inner_end) {
			raw_pack<T> raw[UNROLL];
#pragma unroll
			for (int u = 0; u < UNROLL; u++)
				raw[u] = load_16(row.row + row.first(number + u * BLOCK));
#pragma unroll
			for (int u = 0; u < UNROLL; u++)
				f(number + u * BLOCK, unpacked(raw[u]), true);
			continue;
		}
#pragma unroll 1
		for (size_t at = number; at < number + TOGETHER && at < row.packs; at += BLOCK) {
			if (row.is_inner(at))
				f(at, unpacked(load_16(row.row + row.first(at))), true);
			else
				f(at, load_each(row.row, row.first(at), row.columns), false);
		}
	}
}

/* Largest of some numbers and the sum of exp(x - largest). */
struct running {
	float largest, sum;
};

/* What to subtract: all may be -inf, then their exponentials are 0. */
__device__ __forceinline__ float shift_of(float largest)
{
	return largest == -INFINITY ? 0.0f : largest;
}

template <typename T> __device__ __forceinline__ struct running joined(struct running a, struct running b)
{
	float largest = fmaxf(a.largest, b.largest), shift = shift_of(largest);
	return {largest, a.sum * exponential<T>(a.largest - shift) + b.sum * exponential<T>(b.largest - shift)};
}

/* Of the columns that count, by all threads of the block, each of which gets the same bits. */
template <typename T>
__device__ __forceinline__ struct running row_running(const logits_row<T> &row, struct running *shared)
{
	enum { SIZE = pack_of<T>::SIZE };
	struct running mine = {-INFINITY, 0.0f};
	each_pack<false>(row, [&](size_t number, pack<SIZE> x, bool inner) {
		float largest = mine.largest, sum = 0;
		if (!inner)
			row.mask(number, -INFINITY, &x);
#pragma unroll
		for (int i = 0; i < SIZE; i++)
			largest = fmaxf(largest, x.at[i]);
		float shift = shift_of(largest);
#pragma unroll
		for (int i = 0; i < SIZE; i++)
			sum += exponential<T>(x.at[i] - shift);
		mine = {largest, mine.sum * exponential<T>(mine.largest - shift) + sum};
	});
#pragma unroll
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
		struct running other = {__shfl_xor_sync(0xffffffffu, mine.largest, lanes),
		                        __shfl_xor_sync(0xffffffffu, mine.sum, lanes)};
		mine = joined<T>(mine, other);
	}
	if (threadIdx.x % WARP == 0)
		shared[threadIdx.x / WARP] = mine;
	__syncthreads();
	struct running all = shared[0];
	for (int i = 1; i < BLOCK / WARP; i++)
		all = joined<T>(all, shared[i]);
	return all;
}

/* dlogits = weight * (softmax - one at the label), 0 in columns that do not count; `label` may be no column of the row.
 */
template <typename T>
__device__ __forceinline__ void row_gradient(const logits_row<T> &row, T *out, struct running all, ptrdiff_t label,
                                             float weight)
{
	enum { SIZE = pack_of<T>::SIZE };
	float factor = weight / all.sum, shift = shift_of(all.largest);
	each_pack<true>(row, [&](size_t number, const pack<SIZE> &x, bool inner) {
		pack<SIZE> gradient;
		ptrdiff_t first = row.first(number);
#pragma unroll
		for (int i = 0; i < SIZE; i++)
			gradient.at[i] = exponential<T>(x.at[i] - shift) * factor;
		if (!inner)
			row.mask(number, 0.0f, &gradient);
		if (label >= first && label < first + SIZE) {
#pragma unroll
			for (int i = 0; i < SIZE; i++)
				gradient.at[i] -= first + i == label ? weight : 0.0f;
		}
		if (inner)
			store_16(out + first, packed<T>(gradient));
		else
			store_each(out, first, row.columns, gradient);
	});
}

template <typename T> __device__ __forceinline__ void row_zero(const logits_row<T> &row, T *out)
{
	for (size_t i = threadIdx.x; i < row.columns; i += BLOCK)
		out[i] = narrowed<T>(0.0f);
}

template <typename T> struct loss_call {
	size_t tokens, columns; /* of the array: all, or the shard */
	size_t vocab, start;    /* first column of the shard */
	size_t members;
	const T *logits;
	const int32_t *labels;
	float *stats_out;
	const float *stats;
	T *dlogits;
	double *losses;        /* of each token */
	const uint32_t *count; /* of labels, where the gradient is that of the mean, else NULL */
};

template <typename T> __device__ __forceinline__ size_t valid_columns(const loss_call<T> &call)
{
	size_t left = call.vocab > call.start ? call.vocab - call.start : 0;
	return left < call.columns ? left : call.columns;
}

/* The label as a column of the shard, or -1. */
template <typename T> __device__ __forceinline__ ptrdiff_t own_column(const loss_call<T> &call, int32_t label)
{
	bool mine = (size_t)label >= call.start && (size_t)label - call.start < call.columns;
	return mine ? (ptrdiff_t)((size_t)label - call.start) : -1;
}

template <typename T> __device__ __forceinline__ float weight_of(const loss_call<T> &call)
{
	return call.count && *call.count ? 1.0f / (float)*call.count : 1.0f;
}

__device__ __forceinline__ double token_loss(float sum, float largest, float own)
{
	return (double)(logf(sum) + (largest - own));
}

/* All columns are here. */
template <typename T> __global__ void __launch_bounds__(BLOCK, 2) loss_rows(loss_call<T> call)
{
	__shared__ struct running shared[BLOCK / WARP];
	size_t t = blockIdx.x;
	logits_row<T> row(call.logits, call.dlogits, t, call.columns, call.vocab);
	T *out = call.dlogits + t * call.columns;
	int32_t label = call.labels[t];
	if (label < 0) {
		row_zero(row, out);
		if (threadIdx.x == 0)
			call.losses[t] = 0;
		return;
	}
	float own = widened(row.row[label]); /* before the gradient may take its place */
	struct running all = row_running(row, shared);
	row_gradient(row, out, all, (ptrdiff_t)label, weight_of(call));
	if (threadIdx.x == 0)
		call.losses[t] = token_loss(all.sum, all.largest, own);
}

/* First step of a shard: what this member finds. */
template <typename T> __global__ void __launch_bounds__(BLOCK) loss_stats(loss_call<T> call)
{
	__shared__ struct running shared[BLOCK / WARP];
	size_t t = blockIdx.x;
	float *stats = call.stats_out + t * STATS;
	int32_t label = call.labels[t];
	if (label < 0) {
		if (threadIdx.x < STATS)
			stats[threadIdx.x] = 0;
		return;
	}
	logits_row<T> row(call.logits, call.logits, t, call.columns, valid_columns(call));
	struct running all = row_running(row, shared);
	if (threadIdx.x != 0)
		return;
	ptrdiff_t own = own_column(call, label);
	stats[STAT_LARGEST] = all.largest;
	stats[STAT_SUM] = all.sum;
	stats[STAT_OWN] = own >= 0 ? widened(row.row[own]) : -INFINITY;
}

/* Second step: the stats of all members, combined in their order, then the gradient. */
template <typename T> __global__ void __launch_bounds__(BLOCK) loss_shard(loss_call<T> call)
{
	size_t t = blockIdx.x;
	logits_row<T> row(call.logits, call.dlogits, t, call.columns, valid_columns(call));
	T *out = call.dlogits + t * call.columns;
	int32_t label = call.labels[t];
	if (label < 0) {
		row_zero(row, out);
		if (threadIdx.x == 0)
			call.losses[t] = 0;
		return;
	}
	float own = -INFINITY;
	struct running all = {-INFINITY, 0.0f};
	for (size_t i = 0; i < call.members; i++) {
		const float *of = call.stats + (i * call.tokens + t) * STATS;
		all.largest = fmaxf(all.largest, of[STAT_LARGEST]);
		own = fmaxf(own, of[STAT_OWN]);
	}
	for (size_t i = 0; i < call.members; i++) {
		const float *of = call.stats + (i * call.tokens + t) * STATS;
		if (of[STAT_SUM] != 0) /* NaN goes in */
			all.sum += of[STAT_SUM] * expf(of[STAT_LARGEST] - all.largest);
	}
	row_gradient(row, out, all, own_column(call, label), weight_of(call));
	if (threadIdx.x == 0)
		call.losses[t] = token_loss(all.sum, all.largest, own);
}

/* ---- sums over tokens ------------------------------------------------------------------------- */

/* One block. count := tokens with a label. */
__global__ void __launch_bounds__(SUM_BLOCK) count_labels(size_t tokens, const int32_t *labels, uint32_t *count)
{
	__shared__ uint32_t shared[WARPS_MAX];
	uint32_t mine = 0;
	for (size_t t = threadIdx.x; t < tokens; t += SUM_BLOCK)
		mine += labels[t] >= 0;
	mine = group_sum(mine, SUM_BLOCK / WARP, threadIdx.x / WARP, shared);
	if (threadIdx.x == 0)
		*count = mine;
}

/* One block. loss := sum and count. */
__global__ void __launch_bounds__(SUM_BLOCK)
    sum_losses(size_t tokens, const double *losses, const uint32_t *count, double *loss)
{
	__shared__ double shared[WARPS_MAX];
	double mine = 0;
	for (size_t t = threadIdx.x; t < tokens; t += SUM_BLOCK)
		mine += losses[t];
	mine = group_sum(mine, SUM_BLOCK / WARP, threadIdx.x / WARP, shared);
	if (threadIdx.x == 0) {
		loss[0] = mine;
		loss[1] = (double)*count;
	}
}

/* ---- launches --------------------------------------------------------------------------------- */

/* Scratch: the losses of tokens, then the count of labels. */
struct loss_scratch {
	double *losses;
	uint32_t *count;
};

static struct loss_scratch scratch_of(void *scratch, size_t tokens)
{
	double *losses = static_cast<double *>(scratch);
	return {losses, reinterpret_cast<uint32_t *>(losses + tokens)};
}

static void launch_count(cudaStream_t stream, size_t tokens, const int32_t *labels, uint32_t *count)
{
	PP_READS(labels, tokens * sizeof *labels);
	PP_WRITES(count, sizeof *count);
	PP_LAUNCH(count_labels, 1, SUM_BLOCK, 0, stream, tokens, labels, count);
}

static void launch_sum(cudaStream_t stream, size_t tokens, struct loss_scratch scratch, double *loss)
{
	PP_READS(scratch.losses, tokens * sizeof(double));
	PP_READS(scratch.count, sizeof(uint32_t));
	PP_WRITES(loss, 2 * sizeof *loss);
	PP_LAUNCH(sum_losses, 1, SUM_BLOCK, 0, stream, tokens, scratch.losses, scratch.count, loss);
}

template <typename T> static void touch_rows(const loss_call<T> &call)
{
	size_t bytes = call.tokens * call.columns * sizeof(T);
	PP_READS(call.logits, bytes);
	PP_READS(call.labels, call.tokens * sizeof *call.labels);
	PP_READS(call.count, call.count ? sizeof(uint32_t) : 0);
	PP_WRITES(call.dlogits, bytes);
	PP_WRITES(call.losses, call.tokens * sizeof(double));
}

template <typename T>
static void cross_entropy(cudaStream_t stream, size_t tokens, size_t vocab, size_t columns, bool mean,
                          const void *logits, const int32_t *labels, void *dlogits, double *loss, void *memory)
{
	struct loss_scratch scratch = scratch_of(memory, tokens);
	loss_call<T> call = {};
	call.tokens = tokens;
	call.columns = columns;
	call.vocab = vocab;
	call.logits = static_cast<const T *>(logits);
	call.labels = labels;
	call.dlogits = static_cast<T *>(dlogits);
	call.losses = scratch.losses;
	call.count = mean ? scratch.count : NULL;
	launch_count(stream, tokens, labels, scratch.count);
	touch_rows(call);
	PP_LAUNCH(loss_rows<T>, (unsigned)tokens, BLOCK, 0, stream, call);
	launch_sum(stream, tokens, scratch, loss);
}

void pp_cuda_cross_entropy(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t vocab, size_t columns,
                           bool mean, const void *logits, const int32_t *labels, void *dlogits, double loss[2],
                           void *scratch)
{
	if (type == PP_CUDA_BF16)
		cross_entropy<__nv_bfloat16>(stream, tokens, vocab, columns, mean, logits, labels, dlogits, loss, scratch);
	else
		cross_entropy<float>(stream, tokens, vocab, columns, mean, logits, labels, dlogits, loss, scratch);
}

template <typename T>
static loss_call<T> shard_call(const struct pp_vocab_part *part, size_t tokens, const void *logits,
                               const int32_t *labels)
{
	loss_call<T> call = {};
	call.tokens = tokens;
	call.columns = part->columns;
	call.vocab = part->vocab;
	call.start = part->first;
	call.logits = static_cast<const T *>(logits);
	call.labels = labels;
	return call;
}

template <typename T>
static void cross_entropy_stats(cudaStream_t stream, const struct pp_vocab_part *part, size_t tokens,
                                const void *logits, const int32_t *labels, float *stats)
{
	loss_call<T> call = shard_call<T>(part, tokens, logits, labels);
	call.stats_out = stats;
	PP_READS(logits, tokens * call.columns * sizeof(T));
	PP_READS(labels, tokens * sizeof *labels);
	PP_WRITES(stats, tokens * STATS * sizeof *stats);
	PP_LAUNCH(loss_stats<T>, (unsigned)tokens, BLOCK, 0, stream, call);
}

void pp_cuda_cross_entropy_stats(cudaStream_t stream, enum pp_cuda_type type, const struct pp_vocab_part *part,
                                 size_t tokens, const void *logits, const int32_t *labels, float *stats)
{
	if (type == PP_CUDA_BF16)
		cross_entropy_stats<__nv_bfloat16>(stream, part, tokens, logits, labels, stats);
	else
		cross_entropy_stats<float>(stream, part, tokens, logits, labels, stats);
}

template <typename T>
static void cross_entropy_part(cudaStream_t stream, const struct pp_vocab_part *part, size_t tokens, size_t members,
                               bool mean, const void *logits, const int32_t *labels, const float *stats, void *dlogits,
                               double *loss, void *memory)
{
	struct loss_scratch scratch = scratch_of(memory, tokens);
	loss_call<T> call = shard_call<T>(part, tokens, logits, labels);
	call.members = members;
	call.stats = stats;
	call.dlogits = static_cast<T *>(dlogits);
	call.losses = scratch.losses;
	call.count = mean ? scratch.count : NULL;
	launch_count(stream, tokens, labels, scratch.count);
	touch_rows(call);
	PP_READS(stats, members * tokens * STATS * sizeof *stats);
	PP_LAUNCH_FREE(loss_shard<T>, (unsigned)tokens, BLOCK, stream, call);
	launch_sum(stream, tokens, scratch, loss);
}

void pp_cuda_cross_entropy_part(cudaStream_t stream, enum pp_cuda_type type, const struct pp_vocab_part *part,
                                size_t tokens, size_t members, bool mean, const void *logits, const int32_t *labels,
                                const float *stats, void *dlogits, double loss[2], void *scratch)
{
	if (type == PP_CUDA_BF16)
		cross_entropy_part<__nv_bfloat16>(stream, part, tokens, members, mean, logits, labels, stats, dlogits, loss,
		                                  scratch);
	else
		cross_entropy_part<float>(stream, part, tokens, members, mean, logits, labels, stats, dlogits, loss, scratch);
}
