/* Scratch: memory beside a body's registers that kernels on a GPU use while they run. The formulas are those of the
 * CUDA kernels and depend on shapes only, so that the compiler can plan a slot for it and the device can check at load
 * that the slot is large enough. One area serves all kernels of a rank, one after the other; its size is that of the
 * hungriest. Bytes are multiples of PP_SCRATCH_ALIGN and saturate at UINT64_MAX. */
#ifndef PP_SCRATCH_H
#define PP_SCRATCH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pp_program;
struct pp_body;

enum { PP_SCRATCH_ALIGN = 256 };

/* Of a body: the most that one of its instructions needs. */
uint64_t pp_scratch_bytes(const struct pp_program *program, const struct pp_body *body);
/* Of the step tail of a pipeline rank. */
uint64_t pp_scratch_tail_bytes(const struct pp_program *program, uint32_t rank);
/* Of a pipeline rank: the most of its bodies and its step tail; 0: it needs none. */
uint64_t pp_scratch_rank_bytes(const struct pp_program *program, uint32_t rank);

/* ---- by kernel -------------------------------------------------------------------------------- */

/* A flag for each token: the first of its id. */
uint64_t pp_scratch_embed_dw(uint64_t tokens);

/* Sums over rows go in two levels: chunks of rows, then over the chunks. */
uint64_t pp_scratch_row_chunk(uint64_t rows); /* rows of a chunk, the last may be short */
uint64_t pp_scratch_norm_dw(uint64_t rows, uint64_t columns);
uint64_t pp_scratch_column_sums(uint64_t rows, uint64_t columns);

/* f32 cosines and sines of all positions of a sample. */
uint64_t pp_scratch_rotate(uint64_t seq, uint64_t head_columns);

/* A loss for each token, and their count. */
uint64_t pp_scratch_cross_entropy(uint64_t tokens);

/* For each token and query head the product of its output and the gradient of that. */
uint64_t pp_scratch_attention_dx(uint64_t tokens, uint64_t heads, uint64_t kv_heads, uint64_t head_columns);

/* The library of matrix products may split the inner dimension: room for eight parts of the result, at most 32 MiB. */
uint64_t pp_scratch_product(uint64_t rows, uint64_t columns);

/* Sums of chunks of all arrays of a launch: at most that many chunks. */
enum { PP_SCRATCH_NORM_CHUNKS = 4096 };
uint64_t pp_scratch_square_norms(void);

#ifdef __cplusplus
}
#endif

#endif
