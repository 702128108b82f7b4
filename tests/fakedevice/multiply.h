/* The arithmetic of a matrix product on the CPU: d = alpha op(a) op(b) + beta c, f32 or bf16 operands, fp32
 * accumulation. No lock. */
#ifndef PP_FAKE_MULTIPLY_H
#define PP_FAKE_MULTIPLY_H

#include <library_types.h>
#include <stdbool.h>
#include <stdint.h>

/* As cuBLASLt describes one: `rows` x `columns` as stored, by rows or by columns, `stride` elements apart. */
struct pp_fake_matrix {
	cudaDataType_t type;
	bool by_rows;
	uint64_t rows, columns;
	int64_t stride;
	int32_t batch;
	int64_t batch_stride;
};

struct pp_fake_product {
	struct pp_fake_matrix a, b, c, d; /* c and d: the same shape */
	bool transpose_a, transpose_b;
	float alpha, beta;
	const void *a_at, *b_at, *c_at, *bias; /* bias: one element per row of d, added to all columns; NULL: none */
	cudaDataType_t bias_type;
	bool gelu; /* the tanh form, after the bias */
	void *d_at;
};

uint64_t pp_fake_type_bytes(cudaDataType_t type); /* 0: not one of ours */
/* Bytes from the first element to the end of the last, all of the batch. */
uint64_t pp_fake_matrix_bytes(const struct pp_fake_matrix *matrix);
void pp_fake_multiply(const struct pp_fake_product *product);

float pp_fake_from_bf16(uint16_t bits);
uint16_t pp_fake_to_bf16(float value); /* nearest, ties to even */

#endif
