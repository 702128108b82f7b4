/* Files of named tensors: 8 bytes little-endian length of the header, the header in JSON, raw little-endian data. All
 * tensors are f32. */
#ifndef PP_SAFETENSORS_H
#define PP_SAFETENSORS_H

#include "ir/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { PP_TENSOR_DIMS_MAX = 8 };

/* A tensor to write. */
struct pp_named_tensor {
	const char *name;
	uint8_t dims;
	uint64_t shape[PP_TENSOR_DIMS_MAX];
	uint64_t bytes;   /* of f32: 4 times the product of the shape */
	const void *data; /* in memory; NULL: `read` gives it piece by piece */
	bool (*read)(const void *owner, uint64_t offset, uint64_t bytes, void *to, struct pp_status *status);
	const void *owner;
};

/* What a file holds: its length and a checksum of all of it (not cryptographic). */
struct pp_file_sum {
	uint64_t bytes, hash;
};

/* Make the file, which must not exist, and bring it to disk. `between` (may be NULL) is called half way. */
bool pp_safetensors_write(const char *path, const struct pp_named_tensor *tensors, uint32_t count,
                          struct pp_file_sum *sum, void (*between)(void *), void *context, struct pp_status *status);

/* Is the file still what was written? */
bool pp_file_check(const char *path, const struct pp_file_sum *wanted, struct pp_status *status);

struct pp_safetensors;

/* Open a file and check its header whole: every tensor lies within the data, and together they cover it exactly.
 * NULL on failure. */
struct pp_safetensors *pp_safetensors_open(const char *path, struct pp_status *status);
void pp_safetensors_close(struct pp_safetensors *file);

/* Read `bytes` bytes from `offset` on of a tensor of `all` bytes. */
bool pp_safetensors_read(struct pp_safetensors *file, const char *name, uint64_t all, uint64_t offset, void *to,
                         uint64_t bytes, struct pp_status *status);

#endif
