/* Shapes of attention to time: arrays made once, rates by the operations that the definition asks for. */
#include "attention_trial.h"

#include <stdio.h>

enum { HIDDEN = 2048, TOKENS = 16384, SMALL_TOKENS = 128 };

struct attention_trial attention_trial_make(bool rehearsal)
{
	size_t count = rehearsal ? SMALL_TOKENS * 256 : (size_t)TOKENS * HIDDEN;
	cudaStream_t stream = gpu_stream_make();
	struct attention_trial trial = {
	    .stream = stream, .rehearsal = rehearsal, .ceilings = gpu_ceilings_measure(stream, rehearsal)};
	trial.q = gpu_array_random(stream, PP_CUDA_BF16, count, 1, 1).device;
	trial.k = gpu_array_random(stream, PP_CUDA_BF16, count, 2, 1).device;
	trial.v = gpu_array_random(stream, PP_CUDA_BF16, count, 3, 1).device;
	trial.d_o = gpu_array_random(stream, PP_CUDA_BF16, count, 4, 1).device;
	void **const results[] = {&trial.o, &trial.dq, &trial.dk, &trial.dv};
	for (size_t i = 0; i < sizeof results / sizeof *results; i++)
		*results[i] = gpu_array_unset(stream, PP_CUDA_BF16, count).device;
	trial.lse = gpu_array_unset(stream, PP_CUDA_F32, count / 64).device;
	trial.dot = gpu_array_unset(stream, PP_CUDA_F32, count / 64).device;
	return trial;
}

void attention_trial_shape(struct attention_trial *trial, size_t seq, size_t columns, size_t group)
{
	size_t heads = trial->rehearsal ? 2 : HIDDEN / columns;
	trial->shape = (struct pp_attention){
	    .tokens = trial->rehearsal ? SMALL_TOKENS : TOKENS,
	    .seq = trial->rehearsal ? 64 : seq,
	    .heads = heads,
	    .kv_heads = heads / group,
	    .head_columns = columns,
	};
}

void attention_trial_report(struct attention_trial *trial, const char *what, const char *plan, double each,
                            void (*work)(void *))
{
	const struct pp_attention *s = &trial->shape;
	double seconds = gpu_seconds(trial->stream, trial->rehearsal, work, trial);
	double pairs = 0.5 * (double)s->seq * (double)(s->seq + 1) * (double)(s->tokens / s->seq * s->heads);
	double rate = each * (double)s->head_columns * pairs / seconds;
	char where[80];
	snprintf(where, sizeof where, "%zu/%zu x %zu seq %zu", s->heads, s->kv_heads, s->head_columns, s->seq);
	printf("attention %-9s %-22s %-14s %8.3f ms %7.1f TFLOP/s %5.1f %%\n", what, where, plan, seconds * 1e3,
	       rate * 1e-12, 100 * rate / trial->ceilings.product);
	fflush(stdout);
}
