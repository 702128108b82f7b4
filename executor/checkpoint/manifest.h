/* manifest.json of a checkpoint: what was saved when, and which files hold which parts of which tensor. */
#ifndef PP_MANIFEST_H
#define PP_MANIFEST_H

#include "safetensors.h"
#include "state.h"

/* Where training stands: steps done, id of the first sample that has not been used. */
struct pp_training_point {
	uint64_t step, next_sample;
};

extern const char pp_manifest_schema[];     /* "piperun.checkpoint/2" */
extern const char pp_manifest_checksum[16]; /* the key that stands last */

/* The manifest as text (malloc, *length bytes). `files`: one per world rank, of 0 bytes where there is none. False: out
 * of memory. */
bool pp_manifest_make(const struct pp_program *program, const struct pp_training_point *point,
                      const struct pp_file_sum *files, char **text, size_t *length, struct pp_status *status);

struct pp_manifest;

/* Read the manifest of the checkpoint in this folder and check that it is whole. NULL on failure. */
struct pp_manifest *pp_manifest_read(const char *folder, struct pp_status *status);
void pp_manifest_free(struct pp_manifest *manifest);

struct pp_training_point pp_manifest_point(const struct pp_manifest *manifest);

/* Has it the program's tensors, padding apart? The first difference is named, with both shapes. */
bool pp_manifest_check_model(const struct pp_manifest *manifest, const struct pp_program *program,
                             struct pp_status *status);

/* Can the program go on from it: same seeds, optimizer? */
bool pp_manifest_check_training(const struct pp_manifest *manifest, const struct pp_program *program,
                                struct pp_status *status);

/* A part of a tensor, or of its moments: the rank whose file holds it, what was written to that file. */
struct pp_manifest_part {
	uint32_t rank;
	struct pp_file_sum sum;
	struct pp_extent extent;
};

/* The parts (malloc) of a tensor that pp_manifest_check_model has found; each lies within its saved shape. */
bool pp_manifest_parts(const struct pp_manifest *manifest, const char *tensor, bool moments,
                       struct pp_manifest_part **parts, uint32_t *count, struct pp_status *status);

/* Rows that the tensor was saved with: tables of tokens may have been padded otherwise. */
uint64_t pp_manifest_rows(const struct pp_manifest *manifest, const char *tensor);

#endif
