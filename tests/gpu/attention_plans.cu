/* Which tiles make attention fastest: times every plan that is compiled in here, to choose those of attention.cu by.
 * The passes of the gradient count the operations that they carry out, three and four products.
 *
 * gpu_attention_plans [--small]; not built unless asked for: it takes a minute. */
#include "executor/cuda/kernels/launch.h"

#include "attention_trial.h"
#include "executor/cuda/kernels/attention_backward.h"
#include "executor/cuda/kernels/attention_forward.h"

#include <cstdio>

namespace
{

struct attention_arrays arrays_of(const struct attention_trial *t)
{
	return {t->d_o, t->q, t->k, t->v, t->o, t->lse, t->dot, t->dq, t->dk, t->dv};
}

template <class PLAN> void forward_work(void *argument)
{
	const struct attention_trial *t = static_cast<const struct attention_trial *>(argument);
	attention_forward_launch<PLAN>(t->stream, &t->shape, t->q, t->k, t->v, t->o, t->lse);
}

template <class PLAN> void dq_work(void *argument)
{
	const struct attention_trial *t = static_cast<const struct attention_trial *>(argument);
	struct attention_arrays arrays = arrays_of(t);
	attention_dq_launch<PLAN>(t->stream, &t->shape, &arrays);
}

template <class PLAN> void dkv_work(void *argument)
{
	const struct attention_trial *t = static_cast<const struct attention_trial *>(argument);
	struct attention_arrays arrays = arrays_of(t);
	attention_dkv_launch<PLAN>(t->stream, &t->shape, &arrays);
}

template <int WIDTH, int WARPS, int TILES, int KEYS, int BLOCKS> void forward(struct attention_trial &trial)
{
	char plan[32];
	snprintf(plan, sizeof plan, "%dx%d k%d b%d", WARPS, TILES, KEYS, BLOCKS);
	attention_trial_report(&trial, "forward", plan, 4, forward_work<forward_plan<WIDTH, WARPS, TILES, KEYS, BLOCKS>>);
}

template <int WIDTH, int WARPS, int TILES, int KEYS, int BLOCKS> void dq(struct attention_trial &trial)
{
	char plan[32];
	snprintf(plan, sizeof plan, "%dx%d k%d b%d", WARPS, TILES, KEYS, BLOCKS);
	attention_trial_report(&trial, "dq", plan, 6, dq_work<dq_plan<WIDTH, WARPS, TILES, KEYS, BLOCKS>>);
}

template <int WIDTH, int WARPS, int TILES, int QUERIES, int PART, int BLOCKS> void dkv(struct attention_trial &trial)
{
	char plan[32];
	snprintf(plan, sizeof plan, "%dx%d q%d/%d b%d", WARPS, TILES, QUERIES, PART, BLOCKS);
	attention_trial_report(&trial, "dkv", plan, 8, dkv_work<dkv_plan<WIDTH, WARPS, TILES, QUERIES, PART, BLOCKS>>);
}

void plans_64(struct attention_trial &trial)
{
	forward<64, 4, 2, 64, 2>(trial);
	forward<64, 4, 2, 128, 2>(trial);
	forward<64, 4, 2, 96, 2>(trial);
	forward<64, 4, 2, 32, 3>(trial);
	forward<64, 8, 1, 64, 2>(trial);
	forward<64, 8, 1, 128, 1>(trial);
	forward<64, 4, 1, 64, 4>(trial);
	forward<64, 4, 1, 128, 3>(trial);
	dq<64, 4, 2, 64, 2>(trial);
	dq<64, 4, 2, 32, 2>(trial);
	dq<64, 8, 1, 64, 2>(trial);
	dq<64, 4, 1, 64, 3>(trial);
	dq<64, 4, 1, 64, 4>(trial);
	dkv<64, 4, 2, 64, 32, 2>(trial);
	dkv<64, 4, 2, 64, 16, 2>(trial);
	dkv<64, 4, 1, 64, 32, 3>(trial);
	dkv<64, 4, 1, 64, 64, 2>(trial);
	dkv<64, 8, 1, 64, 32, 1>(trial);
	dkv<64, 8, 1, 64, 16, 2>(trial);
}

void plans_128(struct attention_trial &trial)
{
	forward<128, 4, 2, 32, 2>(trial);
	forward<128, 4, 2, 48, 2>(trial);
	forward<128, 4, 2, 64, 2>(trial);
	forward<128, 8, 1, 64, 1>(trial);
	forward<128, 8, 1, 128, 1>(trial);
	forward<128, 4, 1, 64, 2>(trial);
	forward<128, 4, 1, 64, 3>(trial);
	forward<128, 4, 1, 32, 3>(trial);
	dq<128, 4, 2, 32, 2>(trial);
	dq<128, 8, 1, 64, 1>(trial);
	dq<128, 8, 1, 32, 1>(trial);
	dq<128, 4, 1, 64, 2>(trial);
	dq<128, 4, 1, 32, 3>(trial);
	dkv<128, 4, 1, 64, 32, 2>(trial);
	dkv<128, 4, 1, 64, 16, 2>(trial);
	dkv<128, 4, 1, 64, 64, 2>(trial);
	dkv<128, 4, 1, 32, 32, 2>(trial);
	dkv<128, 8, 1, 64, 32, 1>(trial);
}

} // namespace

int main(int argc, char **argv)
{
	static const size_t lengths[] = {2048, 4096};
	struct attention_trial trial = attention_trial_make(gpu_rehearsal(argc, argv));
	for (size_t seq : lengths) {
		attention_trial_shape(&trial, seq, 64, 1);
		plans_64(trial);
		attention_trial_shape(&trial, seq, 128, 1);
		plans_128(trial);
	}
	return 0;
}
