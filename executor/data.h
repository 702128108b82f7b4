/* Training data: samples of seq + 1 tokens. The same sample ids give the same tokens on every rank and for every
 * split of the batch.
 *
 * Sample `id` of a file of n usable tokens starts at pi(id mod N), N = n - seq start positions, pi a seeded
 * permutation, new per epoch (id div N); id = step * global_batch + index in the global batch
 * (for a run that goes on from another with another batch: see pp_data_continue). Microbatch m of dp
 * coordinate d holds samples (m * dp + d) * microbatch … of the step's global batch: microbatches of equal number lie
 * side by side, and a step has the same samples however dp and m share them. All tp coordinates and pipeline ranks of d
 * load the same. Input = tokens 0..seq-1, labels = tokens 1..seq. The last `eval_tail` of a file is not trained on.
 * Synthetic data: a seeded noisy map with known entropy.
 *
 * Held-out data, for evaluation, is a source of its own: a file from its beginning, or that tail, cut into samples one
 * after the other, so that each label counts once. Step k of it is batch k of an evaluation; samples beyond the end
 * hold token 0 and labels -1, which count for nothing. Held-out synthetic data: other samples of the same map. */
#ifndef PP_DATA_H
#define PP_DATA_H

#include "ir/grid.h"
#include "ir/status.h"

struct pp_data_source;

/* Open (mmap) the data of a program. `path` overrides train->data_path when not NULL. NULL on failure: missing file,
 * too short for one sample, token id >= vocab (checked on read: then pp_data_fill fails). */
struct pp_data_source *pp_data_open(const struct pp_program *program, struct pp_coord coord, const char *path,
                                    struct pp_status *status);
void pp_data_close(struct pp_data_source *data);

/* Open the held-out data. `path` stands in for train->data_path, of which the tail may be held out. NULL on failure:
 * also where the held-out data is too short for one sample. */
struct pp_data_source *pp_data_open_held_out(const struct pp_program *program, struct pp_coord coord, const char *path,
                                             struct pp_status *status);

/* Batches of an evaluation: train->eval_steps, or less where the held-out data ends. */
uint64_t pp_data_batches(const struct pp_data_source *held_out);

/* Write ids (i32[microbatch * seq]), labels, or ids then labels of microbatch `mb` of `step` to `to`. */
bool pp_data_fill(const struct pp_data_source *data, uint64_t step, uint32_t mb, enum pp_load what, int32_t *to,
                  struct pp_status *status);

/* Step `step` (from 0) begins with this sample: samples of later steps follow it. Without this, step 0 begins with 0.
 */
void pp_data_continue(struct pp_data_source *data, uint64_t step, uint64_t sample);

/* Entropy of the next token of synthetic data in nats: the loss that a perfect model reaches. */
double pp_data_entropy(const struct pp_data_source *data);

#endif
