/* Holds the operators of the CUDA device against the CPU kernels in double. The same program runs on the fake device
 * and on a GPU, without a test library.
 *
 * A case is a function of a shape: it draws values, computes what the reference gives, lets the device compute, and
 * expects. It runs in several rounds that must give the same bits: on the fake device with threads in ascending,
 * descending and random order; in one round all arrays begin off 16 bytes. Arrays of the device lie in poison (NaN),
 * which must be intact when the case is over. */
#ifndef PP_CONFORMANCE_OPS_H
#define PP_CONFORMANCE_OPS_H

#include "executor/cuda/kernels/kernels_cuda.h"
#include "ir/scratch.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ops_element { OPS_F32, OPS_BF16, OPS_F64, OPS_I32, OPS_ELEMENT_COUNT };

struct ops_memory; /* what a case holds until it is over */

struct ops {
	enum pp_cuda_type type;   /* of activations and weights in this case */
	enum ops_element element; /* the same */
	bool exact;               /* values are small integers, results must be equal */
	bool aligned;             /* set by a case that cannot work off 16 bytes, before it asks for arrays */
	cudaStream_t stream;
	struct ops_memory *memory;
};

/* Whether a list of cases also runs on integers. */
enum ops_also { OPS_CLOSE, OPS_CLOSE_AND_EXACT };

/* Runs a case for both types and all shapes (`count` structs of `size` bytes) in all rounds; prints a line for each
 * type. */
void ops_run(struct ops *ops, const char *name, void (*check)(struct ops *ops, const void *shape), const void *shapes,
             size_t count, size_t size, enum ops_also also);

/* ---- for cases: host values ------------------------------------------------------------------- */

/* Room for doubles, zero. Lives until the case is over, as all below. */
double *ops_zeros(struct ops *ops, size_t count);
/* In [-1, 1) or integers -3 to 3, rounded to the element; the same in every round. */
double *ops_values(struct ops *ops, enum ops_element element, size_t count);
double *ops_copy(struct ops *ops, size_t count, const double *values);
/* What the element keeps of a number. */
double ops_rounded(enum ops_element element, double value);
void ops_round(enum ops_element element, size_t count, double *values);
/* 0 to below - 1, favouring the first few; with `none`, some are -1. */
int32_t *ops_ids(struct ops *ops, size_t count, size_t below, bool none);

/* ---- for cases: the device --------------------------------------------------------------------- */

void *ops_give(struct ops *ops, enum ops_element element, size_t count, const double *values);
int32_t *ops_give_ids(struct ops *ops, size_t count, const int32_t *ids);
void *ops_room(struct ops *ops, enum ops_element element, size_t count);
void *ops_scratch(struct ops *ops, uint64_t bytes); /* aligned to 256 */

/* f32, f64: within 1e-5 of the largest expected; bf16: that, and what rounding takes. NaN matches NaN. */
void ops_expect(struct ops *ops, const char *what, enum ops_element element, size_t count, const void *device,
                const double *expected);
/* Equal to the nearest number of the element, whatever the values. */
void ops_expect_equal(struct ops *ops, const char *what, enum ops_element element, size_t count, const void *device,
                      const double *expected);

/* Two arrays of the device with the same bits. */
void ops_expect_same(struct ops *ops, const char *what, enum ops_element element, size_t count, const void *a,
                     const void *b);

/* The case could not run. */
void ops_fail(struct ops *ops, const char *why);

/* ---- the cases, one file each ------------------------------------------------------------------ */

void ops_embed(struct ops *ops);
void ops_norm(struct ops *ops);
void ops_linear(struct ops *ops);
void ops_rope(struct ops *ops);
void ops_pointwise(struct ops *ops);
void ops_shard(struct ops *ops);
void ops_loss(struct ops *ops);
void ops_reduce(struct ops *ops);
void ops_optimizer(struct ops *ops);

#endif
