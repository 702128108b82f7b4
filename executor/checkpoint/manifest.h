/* manifest.json of a checkpoint: what was saved when, and which file holds which tensor. */
#ifndef PP_MANIFEST_H
#define PP_MANIFEST_H

#include "safetensors.h"

#include "ir/program.h"

/* Where training stands: steps done, id of the first sample that has not been used. */
struct pp_training_point {
	uint64_t step, next_sample;
};

/* The manifest as text (malloc, *length bytes). `files`: one per rank. False: out of memory. */
bool pp_manifest_make(const struct pp_program *program, const struct pp_training_point *point,
                      const struct pp_file_sum *files, char **text, size_t *length, struct pp_status *status);

struct pp_manifest;

/* Read the manifest of the checkpoint in this folder and check that it is whole. NULL on failure. */
struct pp_manifest *pp_manifest_read(const char *folder, struct pp_status *status);
void pp_manifest_free(struct pp_manifest *manifest);

struct pp_training_point pp_manifest_point(const struct pp_manifest *manifest);

/* Has it the program's tensors? The first difference is named, with both shapes. */
bool pp_manifest_check_model(const struct pp_manifest *manifest, const struct pp_program *program,
                             struct pp_status *status);

/* Can the program go on from it: same seeds, optimizer? */
bool pp_manifest_check_training(const struct pp_manifest *manifest, const struct pp_program *program,
                                struct pp_status *status);

/* The rank whose file holds a tensor that pp_manifest_check_model has found, and what was written to that file. */
bool pp_manifest_file(const struct pp_manifest *manifest, const char *tensor, uint32_t *rank, struct pp_file_sum *sum,
                      struct pp_status *status);

#endif
