/* The embedding and its gradient. The gradient adds up the rows of one token id in ascending order without sorting: the
 * first token of an id collects all later ones of it, a chunk of tokens at a time, and adds their rows. */
#include "launch.h"

#include "kernels_cuda.h"
#include "vector.h"

enum { BLOCK = 256, ROWS = BLOCK / WARP };
enum { SCANNED = 4, LOADED = 2, SAMPLES = 4 }; /* that a lane takes together: ids, packs of a row, rows of a sum */

struct table {
	size_t first, rows;
};

__device__ __forceinline__ bool is_here(struct table table, int32_t id)
{
	return id >= 0 && (size_t)id >= table.first && (size_t)id - table.first < table.rows;
}

template <typename T> struct embed_call {
	size_t tokens, columns, seq;
	struct table table;
	const int32_t *ids;
	const T *wte, *wpe;
	T *y;
};

/* A warp per token. */
template <typename T, bool aligned> __global__ void embed_rows(embed_call<T> call)
{
	enum { SIZE = pack_of<T>::SIZE };
	size_t t = (size_t)blockIdx.x * ROWS + threadIdx.y;
	if (t >= call.tokens)
		return;
	int32_t id = call.ids[t];
	bool here = is_here(call.table, id);
	const T *token = call.wte + (here ? (size_t)id - call.table.first : 0) * call.columns;
	const T *position = call.wpe ? call.wpe + t % call.seq * call.columns : NULL;
	T *y = call.y + t * call.columns;
	for (size_t first = threadIdx.x; first * SIZE < call.columns; first += WARP * LOADED) {
		raw_pack<T> of_token[LOADED] = {}, of_position[LOADED] = {};
#pragma unroll
		for (int u = 0; u < LOADED; u++) {
			size_t number = first + u * WARP;
			if (here && number * SIZE < call.columns)
				of_token[u] = load_raw<aligned>(token, number, call.columns);
			if (position && number * SIZE < call.columns)
				of_position[u] = load_raw<aligned>(position, number, call.columns);
		}
#pragma unroll
		for (int u = 0; u < LOADED; u++) {
			size_t number = first + u * WARP;
			pack<SIZE> sum = unpacked(of_token[u]), plus = unpacked(of_position[u]);
#pragma unroll
			for (int i = 0; i < SIZE; i++)
				sum.at[i] += plus.at[i];
			if (number * SIZE < call.columns)
				store<aligned>(y, number, call.columns, sum);
		}
	}
}

/* first[t] := no token before t has its id, and the id is here. A warp per token looks back. */
__global__ void embed_first(size_t tokens, struct table table, const int32_t *ids, unsigned char *first)
{
	size_t t = (size_t)blockIdx.x * ROWS + threadIdx.y;
	if (t >= tokens)
		return;
	int32_t id = ids[t];
	bool found = !is_here(table, id);
	for (size_t left = t; left > 0 && !found; left = left > WARP * SCANNED ? left - WARP * SCANNED : 0) {
		bool match = false;
#pragma unroll
		for (unsigned i = 0; i < SCANNED; i++) {
			size_t back = i * WARP + threadIdx.x + 1;
			match |= back <= left && ids[left - back] == id;
		}
		found = __any_sync(0xffffffffu, match);
	}
	if (threadIdx.x == 0)
		first[t] = !found;
}

template <typename T> struct embed_dw_call {
	size_t tokens, columns;
	struct table table;
	const int32_t *ids;
	const unsigned char *first;
	const T *dy;
	float *dwte;
};

/* The tokens of one chunk of WARP * SCANNED that have the id, in ascending order; how many. */
__device__ __forceinline__ unsigned collect(const int32_t *ids, size_t from, size_t tokens, int32_t id, uint32_t *list)
{
	int32_t seen[SCANNED];
	unsigned count = 0, lane = threadIdx.x % WARP;
#pragma unroll
	for (unsigned i = 0; i < SCANNED; i++) {
		size_t t = from + i * WARP + lane;
		seen[i] = t < tokens ? ids[t] : -1;
	}
#pragma unroll
	for (unsigned i = 0; i < SCANNED; i++) {
		uint32_t votes = __ballot_sync(0xffffffffu, seen[i] == id);
		if (seen[i] == id)
			list[count + (unsigned)__popc(votes & ((1u << lane) - 1))] = (uint32_t)(from + i * WARP + lane);
		count += (unsigned)__popc(votes);
	}
	return count;
}

/* A block per token; only the first of an id goes on. Each warp collects a chunk, then all add the rows found. */
template <typename T, bool aligned> __global__ void __launch_bounds__(BLOCK) embed_add(embed_dw_call<T> call)
{
	enum { SIZE = pack_of<T>::SIZE, CHUNK = WARP * SCANNED };
	__shared__ uint32_t list[ROWS][CHUNK];
	__shared__ unsigned counts[ROWS];
	size_t t = blockIdx.x;
	if (!call.first[t])
		return;
	int32_t id = call.ids[t];
	float *row = call.dwte + ((size_t)id - call.table.first) * call.columns;
	unsigned warp = threadIdx.x / WARP;
	for (size_t from = t; from < call.tokens; from += (size_t)ROWS * CHUNK) {
		unsigned count = collect(call.ids, from + (size_t)warp * CHUNK, call.tokens, id, list[warp]);
		if (threadIdx.x % WARP == 0)
			counts[warp] = count;
		__syncthreads();
		unsigned found = 0;
		for (unsigned w = 0; w < ROWS; w++)
			found += counts[w];
		for (size_t number = threadIdx.x; found > 0 && number * SIZE < call.columns; number += BLOCK) {
			pack<SIZE> sum = load_f32<aligned, SIZE>(row, number, call.columns);
			for (unsigned w = 0; w < ROWS; w++) {
#pragma unroll 4
				for (unsigned i = 0; i < counts[w]; i++) {
					pack<SIZE> dy = load<aligned>(call.dy + list[w][i] * call.columns, number, call.columns);
#pragma unroll
					for (int j = 0; j < SIZE; j++)
						sum.at[j] += dy.at[j];
				}
			}
			store_f32<aligned, SIZE>(row, number, call.columns, sum);
		}
		__syncthreads();
	}
}

template <typename T> struct positions_call {
	size_t tokens, columns, seq, positions;
	const T *dy;
	float *dwpe;
	bool accumulate;
};

/* A warp per position adds up the samples. Positions beyond seq get 0. */
template <typename T, bool aligned> __global__ void embed_positions(positions_call<T> call)
{
	enum { SIZE = pack_of<T>::SIZE };
	size_t position = (size_t)blockIdx.x * ROWS + threadIdx.y;
	if (position >= call.positions)
		return;
	float *row = call.dwpe + position * call.columns;
	size_t from = position < call.seq ? position : call.tokens;
	for (size_t number = threadIdx.x; number * SIZE < call.columns; number += WARP) {
		pack<SIZE> sum = {};
		if (call.accumulate)
			sum = load_f32<aligned, SIZE>(row, number, call.columns);
#pragma unroll 1
		for (size_t first = from; first < call.tokens; first += call.seq * SAMPLES) {
			raw_pack<T> raw[SAMPLES] = {};
#pragma unroll
			for (int i = 0; i < SAMPLES; i++)
				if (first + i * call.seq < call.tokens)
					raw[i] = load_raw<aligned>(call.dy + (first + i * call.seq) * call.columns, number, call.columns);
#pragma unroll
			for (int i = 0; i < SAMPLES; i++) {
				pack<SIZE> dy = unpacked(raw[i]);
#pragma unroll
				for (int j = 0; j < SIZE; j++)
					sum.at[j] += dy.at[j];
			}
		}
		store_f32<aligned, SIZE>(row, number, call.columns, sum);
	}
}

/* ---- launches --------------------------------------------------------------------------------- */

template <typename T> static void embed(cudaStream_t stream, const embed_call<T> &call)
{
	bool aligned =
	    call.columns % pack_of<T>::SIZE == 0 && on_16_bytes(call.wte) && on_16_bytes(call.wpe) && on_16_bytes(call.y);
	dim3 block(WARP, ROWS);
	PP_READS(call.ids, call.tokens * sizeof *call.ids);
	PP_READS(call.wte, call.table.rows * call.columns * sizeof(T));
	size_t positions = call.tokens < call.seq ? call.tokens : call.seq;
	PP_READS(call.wpe, call.wpe ? positions * call.columns * sizeof(T) : 0);
	PP_WRITES(call.y, call.tokens * call.columns * sizeof(T));
	if (aligned)
		PP_LAUNCH_FREE((embed_rows<T, true>), blocks_of(call.tokens, ROWS), block, stream, call);
	else
		PP_LAUNCH_FREE((embed_rows<T, false>), blocks_of(call.tokens, ROWS), block, stream, call);
}

void pp_cuda_embed(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns, size_t seq,
                   const struct pp_table_part *part, const int32_t *ids, const void *wte, const void *wpe, void *y)
{
	typedef __nv_bfloat16 bf16;
	struct table table = {part->first, part->rows};
	if (type == PP_CUDA_BF16)
		embed<bf16>(stream, {tokens, columns, seq, table, ids, (const bf16 *)wte, (const bf16 *)wpe, (bf16 *)y});
	else
		embed<float>(stream, {tokens, columns, seq, table, ids, (const float *)wte, (const float *)wpe, (float *)y});
}

template <typename T> static void add_tokens(cudaStream_t stream, const embed_dw_call<T> &call, unsigned char *first)
{
	bool aligned = call.columns % pack_of<T>::SIZE == 0 && on_16_bytes(call.dy) && on_16_bytes(call.dwte);
	PP_READS(call.ids, call.tokens * sizeof *call.ids);
	PP_WRITES(first, call.tokens);
	PP_LAUNCH(embed_first, blocks_of(call.tokens, ROWS), dim3(WARP, ROWS), 0, stream, call.tokens, call.table, call.ids,
	          first);
	PP_READS(call.ids, call.tokens * sizeof *call.ids);
	PP_READS(first, call.tokens);
	PP_READS(call.dy, call.tokens * call.columns * sizeof(T));
	PP_WRITES(call.dwte, call.table.rows * call.columns * sizeof *call.dwte);
	if (aligned)
		PP_LAUNCH((embed_add<T, true>), (unsigned)call.tokens, BLOCK, 0, stream, call);
	else
		PP_LAUNCH((embed_add<T, false>), (unsigned)call.tokens, BLOCK, 0, stream, call);
}

template <typename T> static void add_positions(cudaStream_t stream, const positions_call<T> &call)
{
	bool aligned = call.columns % pack_of<T>::SIZE == 0 && on_16_bytes(call.dy) && on_16_bytes(call.dwpe);
	dim3 block(WARP, ROWS);
	PP_READS(call.dy, call.tokens * call.columns * sizeof(T));
	PP_WRITES(call.dwpe, call.positions * call.columns * sizeof *call.dwpe);
	if (aligned)
		PP_LAUNCH_FREE((embed_positions<T, true>), blocks_of(call.positions, ROWS), block, stream, call);
	else
		PP_LAUNCH_FREE((embed_positions<T, false>), blocks_of(call.positions, ROWS), block, stream, call);
}

void pp_cuda_embed_dw(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns, size_t seq,
                      const struct pp_table_part *part, size_t positions, const int32_t *ids, const void *dy,
                      float *dwte, bool accumulate_wte, float *dwpe, bool accumulate_wpe, void *scratch)
{
	typedef __nv_bfloat16 bf16;
	struct table table = {part->first, part->rows};
	unsigned char *first = static_cast<unsigned char *>(scratch);
	if (!accumulate_wte)
		pp_cuda_zero(stream, table.rows * columns * sizeof *dwte, dwte);
	if (type == PP_CUDA_BF16)
		add_tokens<bf16>(stream, {tokens, columns, table, ids, first, (const bf16 *)dy, dwte}, first);
	else
		add_tokens<float>(stream, {tokens, columns, table, ids, first, (const float *)dy, dwte}, first);
	if (!dwpe)
		return;
	if (type == PP_CUDA_BF16)
		add_positions<bf16>(stream, {tokens, columns, seq, positions, (const bf16 *)dy, dwpe, accumulate_wpe});
	else
		add_positions<float>(stream, {tokens, columns, seq, positions, (const float *)dy, dwpe, accumulate_wpe});
}
