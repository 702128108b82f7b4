/* How fast attention is as training calls it, against the rate of a matrix product. Operations: 4 x columns of a head
 * for each query and key that it sees forward, 10 backward, however often the kernels compute scores anew.
 *
 * gpu_attention_speed [--ceilings] [--small]: --ceilings prints no more than those. */
#include "attention_trial.h"

#include <string.h>

static void forward(void *argument)
{
	const struct attention_trial *t = argument;
	pp_cuda_attention(t->stream, PP_CUDA_BF16, &t->shape, t->q, t->k, t->v, t->o, t->lse);
}

static void backward(void *argument)
{
	const struct attention_trial *t = argument;
	pp_cuda_attention_dx(t->stream, PP_CUDA_BF16, &t->shape, t->d_o, t->q, t->k, t->v, t->o, t->lse, t->dq, t->dk,
	                     t->dv, t->dot);
}

int main(int argc, char **argv)
{
	static const struct {
		size_t seq, columns, group;
	} shapes[] = {{1024, 64, 1}, {2048, 64, 1}, {4096, 64, 1}, {2048, 128, 1}, {4096, 128, 1}, {4096, 128, 4}};
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--ceilings") == 0) {
			gpu_ceilings_measure(gpu_stream_make(), gpu_rehearsal(argc, argv));
			return 0;
		}
	struct attention_trial trial = attention_trial_make(gpu_rehearsal(argc, argv));
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		attention_trial_shape(&trial, shapes[i].seq, shapes[i].columns, trial.rehearsal ? 1 : shapes[i].group);
		attention_trial_report(&trial, "forward", "", 4, forward);
		attention_trial_report(&trial, "backward", "", 10, backward);
	}
	return 0;
}
