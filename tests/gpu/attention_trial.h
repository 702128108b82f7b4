/* One shape of attention with its arrays, for programs that time it: bf16, random numbers. */
#ifndef PP_GPU_ATTENTION_TRIAL_H
#define PP_GPU_ATTENTION_TRIAL_H

#include "arrays.h"
#include "timing.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attention_trial {
	cudaStream_t stream;
	struct pp_attention shape;
	void *q, *k, *v, *d_o, *o, *dq, *dk, *dv; /* all of the same number of elements, which no shape exceeds */
	float *lse, *dot;
	bool rehearsal;
	struct gpu_ceilings ceilings;
};

/* Arrays and ceilings, which are printed; no shape yet. */
struct attention_trial attention_trial_make(bool rehearsal);
/* Samples of `seq` tokens, heads of `columns`, `group` query heads for each key head; in a rehearsal a small one. */
void attention_trial_shape(struct attention_trial *trial, size_t seq, size_t columns, size_t group);

/* Time `work(trial)` and print a line. `each`: operations for each query, key that it sees and column of a head. */
void attention_trial_report(struct attention_trial *trial, const char *what, const char *plan, double each,
                            void (*work)(void *));

#ifdef __cplusplus
}
#endif

#endif
