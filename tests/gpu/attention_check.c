/* Attention on the device against the CPU kernels, which get the same numbers (bf16 ones rounded beforehand): output,
 * log-sum-exp and gradients of shapes with odd lengths, windows, shared key heads, all widths of tiles. The bits must
 * come out the same each time: on a GPU run after run, on the fake device in every order of threads and blocks.
 *
 * gpu_attention [--few | --large]: only the first shapes, for tools that slow things down; or shapes as in training
 * too. Exit 0: all agree. */
#include "arrays.h"
#include "ir/scratch.h"

#ifdef PP_FAKE_DEVICE
#include "emulation_order.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shapes: tokens, seq, heads, kv_heads, head_columns, window. Queries of the first have scores far apart, so that the
 * running softmax has to shift. */
static const struct pp_attention small_shapes[] = {
    {150, 150, 1, 1, 64, 0}, {131, 131, 1, 1, 80, 70},   {33, 33, 3, 1, 20, 0},   {154, 77, 2, 2, 64, 0},
    {37, 37, 1, 1, 32, 5},   {40, 40, 1, 1, 256, 0},     {130, 130, 1, 1, 64, 1}, {150, 150, 2, 1, 64, 20},
    {3, 1, 2, 1, 64, 0},     {225, 225, 1, 1, 128, 130},
};

static const struct pp_attention large_shapes[] = {
    {4096, 1024, 25, 25, 64, 0},
    {4096, 2048, 8, 2, 128, 0},
    {3001, 3001, 4, 4, 64, 1000},
    {1500, 500, 3, 1, 96, 0},
};

enum { O, LSE, DQ, DK, DV, RESULTS, FEW = 3 };
static const char *const names[RESULTS] = {"o", "lse", "dq", "dk", "dv"};

/* Everything of one shape. */
struct trial {
	cudaStream_t stream;
	const struct pp_attention *shape;
	enum pp_cuda_type type;
	struct gpu_array q, k, v, d_o, scratch, result[RESULTS];
	float *expected[RESULTS];
};

static size_t result_count(const struct pp_attention *shape, int which)
{
	if (which == LSE)
		return shape->tokens * shape->heads;
	return shape->tokens * (which == DK || which == DV ? shape->kv_heads : shape->heads) * shape->head_columns;
}

static struct trial trial_of(cudaStream_t stream, const struct pp_attention *shape, enum pp_cuda_type type)
{
	struct trial trial = {.stream = stream, .shape = shape, .type = type};
	size_t q_count = result_count(shape, O), kv_count = result_count(shape, DK);
	trial.q = gpu_array_random(stream, type, q_count, 1, shape == small_shapes ? 8 : 1);
	trial.k = gpu_array_random(stream, type, kv_count, 2, 1);
	trial.v = gpu_array_random(stream, type, kv_count, 3, 1);
	trial.d_o = gpu_array_random(stream, type, q_count, 4, 1);
	uint64_t bytes = pp_scratch_attention_dx(shape->tokens, shape->heads, shape->kv_heads, shape->head_columns);
	trial.scratch = gpu_array_unset(stream, PP_CUDA_F32, (size_t)bytes / sizeof(float));
	for (int i = 0; i < RESULTS; i++) {
		trial.result[i] = gpu_array_unset(stream, i == LSE ? PP_CUDA_F32 : type, result_count(shape, i));
		trial.expected[i] = malloc(result_count(shape, i) * sizeof(float));
		if (!trial.expected[i])
			exit(3);
	}
	return trial;
}

static void trial_free(struct trial *trial)
{
	gpu_array_free(&trial->q);
	gpu_array_free(&trial->k);
	gpu_array_free(&trial->v);
	gpu_array_free(&trial->d_o);
	gpu_array_free(&trial->scratch);
	for (int i = 0; i < RESULTS; i++) {
		gpu_array_free(&trial->result[i]);
		free(trial->expected[i]);
	}
}

static void run(struct trial *trial)
{
	struct gpu_array *r = trial->result;
	for (int i = 0; i < RESULTS; i++)
		gpu_array_unset_again(&r[i]);
	gpu_array_unset_again(&trial->scratch);
	pp_cuda_attention(trial->stream, trial->type, trial->shape, trial->q.device, trial->k.device, trial->v.device,
	                  r[O].device, r[LSE].device);
	pp_cuda_attention_dx(trial->stream, trial->type, trial->shape, trial->d_o.device, trial->q.device, trial->k.device,
	                     trial->v.device, r[O].device, r[LSE].device, r[DQ].device, r[DK].device, r[DV].device,
	                     trial->scratch.device);
	gpu_finish(trial->stream);
}

/* Do the bits stay the same in other orders, or when it runs again? */
static bool repeats(struct trial *trial)
{
	uint64_t bits[RESULTS];
	for (int i = 0; i < RESULTS; i++)
		bits[i] = gpu_array_bits(&trial->result[i]);
	bool same = true;
	for (int again = 1; again < 3; again++) {
#ifdef PP_FAKE_DEVICE
		pp_emulation_set_order(again == 1 ? PP_EMULATE_DOWN : PP_EMULATE_RANDOM, 7);
#endif
		run(trial);
		for (int i = 0; i < RESULTS; i++)
			same = same && bits[i] == gpu_array_bits(&trial->result[i]);
	}
#ifdef PP_FAKE_DEVICE
	pp_emulation_set_order(PP_EMULATE_UP, 1);
#endif
	return same;
}

/* Some gradients are 0 but for rounding (a window of one token); they are measured against a tenth of their inputs. */
static bool check(cudaStream_t stream, const struct pp_attention *shape, enum pp_cuda_type type)
{
	struct trial trial = trial_of(stream, shape, type);
	float **e = trial.expected;
	pp_cpu_attention(shape, trial.q.host, trial.k.host, trial.v.host, e[O], e[LSE]);
	pp_cpu_attention_dx(shape, trial.d_o.host, trial.q.host, trial.k.host, trial.v.host, e[O], e[LSE], e[DQ], e[DK],
	                    e[DV]);
	run(&trial);
	double limit = type == PP_CUDA_F32 ? 1e-5 : 8e-3;
	bool good = true;
	printf("attention %-4s seq %zu x %zu, heads %zu / %zu x %zu, window %zu:", gpu_type_name(type), shape->seq,
	       shape->tokens / shape->seq, shape->heads, shape->kv_heads, shape->head_columns, shape->window);
	for (int i = 0; i < RESULTS; i++) {
		gpu_array_fetch(&trial.result[i]);
		double distance = gpu_distance(trial.result[i].count, trial.result[i].host, e[i], 0.1);
		good = good && distance <= (i == LSE ? 1e-5 : limit);
		printf(" %s %.1e", names[i], distance);
	}
	bool same = repeats(&trial);
	printf("%s%s\n", good ? "" : "  WRONG", same ? "" : "  OTHER BITS IN ANOTHER ORDER");
	trial_free(&trial);
	return good && same;
}

static bool asked(int argc, char **argv, const char *option)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], option) == 0)
			return true;
	return false;
}

static int check_all(cudaStream_t stream, const struct pp_attention *shapes, size_t count)
{
	int bad = 0;
	for (size_t i = 0; i < count; i++)
		for (int type = 0; type < PP_CUDA_TYPE_COUNT; type++)
			bad += !check(stream, &shapes[i], (enum pp_cuda_type)type);
	return bad;
}

int main(int argc, char **argv)
{
	size_t small = sizeof small_shapes / sizeof *small_shapes, large = sizeof large_shapes / sizeof *large_shapes;
	cudaStream_t stream = gpu_stream_make();
	int bad = check_all(stream, small_shapes, asked(argc, argv, "--few") ? FEW : small);
	if (asked(argc, argv, "--large"))
		bad += check_all(stream, large_shapes, large);
	printf(bad ? "%d shapes are wrong\n" : "attention agrees with the CPU kernels\n", bad);
	return bad ? 1 : 0;
}
