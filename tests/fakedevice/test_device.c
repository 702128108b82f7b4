/* The CUDA device on the fake runtime, held against the CPU device: the step tail, what the host reads, writes, loads
 * and keeps, initial weights in f32 and bf16, marks, settling, and what it refuses. Bodies: cuda.parity_*. */
#include "executor/cuda/cuda.h"
#include "executor/cuda/device_cuda.h"
#include "executor/cuda/kernels/members_cuda.h"
#include "executor/cuda/links/loop_cuda.h"
#include "executor/watch.h"

#include "fake.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { WEIGHT, GRAD, OTHER, MOMENT1, MOMENT2, MASTER, LOSSES, NORMS, SCALE, AUX, SLOTS };
enum { ROWS = 5, COLUMNS = 7, COUNT = ROWS * COLUMNS, MICROBATCHES = 2, TENSORS = 2, MARKS = 8, IDS = 6 };

/* A rank with one tensor and its state; tensor 0 is elsewhere. */
struct fixture {
	struct pp_slot slots[SLOTS];
	struct pp_rank rank;
	struct pp_tensor tensors[TENSORS];
	struct pp_hyper hypers[2];
	struct pp_instr load;
	struct pp_stream stream;
	struct pp_named_program named;
	struct pp_program program;
};

static void place(struct fixture *f, uint32_t slot, enum pp_slot_class class, uint64_t bytes)
{
	f->slots[slot] = (struct pp_slot){.class = (uint8_t) class,
	                                  .placed = true,
	                                  .tensor = slot <= MASTER ? 1 : PP_NULL,
	                                  .bytes = bytes,
	                                  .offset = (uint64_t)slot * 2 * PP_ALIGN};
}

static void make(struct fixture *f, enum pp_dtype dtype)
{
	const uint64_t floats = COUNT * sizeof(float);
	*f = (struct fixture){0};
	place(f, WEIGHT, PP_SLOT_WEIGHT, COUNT * pp_dtype_size[dtype]);
	place(f, GRAD, PP_SLOT_GRAD, floats);
	place(f, OTHER, PP_SLOT_GRAD, floats);
	place(f, MOMENT1, PP_SLOT_MOMENT, floats);
	place(f, MOMENT2, PP_SLOT_MOMENT, floats);
	place(f, MASTER, dtype == PP_F32 ? PP_SLOT_EXTRA : PP_SLOT_MASTER, floats);
	place(f, LOSSES, PP_SLOT_LOSSES, MICROBATCHES * 2 * sizeof(double));
	place(f, NORMS, PP_SLOT_NORMS, TENSORS * sizeof(double));
	place(f, SCALE, PP_SLOT_SCALE, PP_SCALE_COUNT * sizeof(double));
	place(f, AUX, PP_SLOT_AUX, 2 * IDS * sizeof(int32_t));
	f->rank = (struct pp_rank){.slots = f->slots, .slot_count = SLOTS, .arena_bytes = SLOTS * 2 * PP_ALIGN};
	f->tensors[0] =
	    (struct pp_tensor){.name = "elsewhere", .rows = 9, .columns = 9, .dims = 2, .dtype = (uint8_t)dtype};
	f->tensors[1] = (struct pp_tensor){.name = "w",
	                                   .rows = ROWS,
	                                   .columns = COLUMNS,
	                                   .dims = 2,
	                                   .dtype = (uint8_t)dtype,
	                                   .init = PP_INIT_NORMAL,
	                                   .std = 1};
	f->hypers[0] = (struct pp_hyper){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 0.5};
	f->hypers[1] = (struct pp_hyper){.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .weight_decay = 0, .clip = 0};
	f->load = (struct pp_instr){.op = PP_OP_LOAD, .sub = PP_LOAD_BOTH, .a = {AUX}};
	f->stream = (struct pp_stream){.items = &f->load, .count = 1};
	f->named = (struct pp_named_program){.name = "train", .streams = &f->stream};
	f->program = (struct pp_program){.ranks = 1,
	                                 .tp = 1,
	                                 .dp = 1,
	                                 .rank = &f->rank,
	                                 .tensors = f->tensors,
	                                 .tensor_count = TENSORS,
	                                 .microbatches = MICROBATCHES,
	                                 .train = {.microbatch = 2, .seq = IDS / 2, .hypers = f->hypers, .hyper_count = 2},
	                                 .programs = &f->named,
	                                 .program_count = 1};
}

static struct pp_device *create(const struct pp_device_ops *ops, struct fixture *f, uint64_t guard)
{
	struct pp_status status = {0};
	const struct pp_device_options options = {.marks = MARKS, .guard = guard, .graph = PP_GRAPH_BODY};
	struct pp_device *device = ops->create(&f->program, (struct pp_coord){0}, &options, &status);
	if (!device)
		fail_msg("%s", status.text);
	return device;
}

static void put(const struct pp_device_ops *ops, struct pp_device *device, uint32_t slot, const void *from,
                uint64_t bytes)
{
	struct pp_status status;
	assert_true(ops->write(device, slot, 0, bytes, from, &status));
}

static void get(const struct pp_device_ops *ops, struct pp_device *device, uint32_t slot, void *to, uint64_t bytes)
{
	struct pp_status status;
	assert_true(ops->read(device, slot, 0, bytes, to, &status));
}

static void settle(const struct pp_device_ops *ops, struct pp_device *device)
{
	enum pp_progress progress;
	while ((progress = ops->settle(device)) == PP_PENDING)
		nanosleep(&(struct timespec){0, 100000}, NULL);
	if (progress != PP_DONE)
		fail_msg("%s", ops->failure(device));
}

/* ---- step tail -------------------------------------------------------------------------------- */

/* What a step tail leaves behind. */
struct outcome {
	float weight[COUNT], grad[COUNT], moment1[COUNT], moment2[COUNT];
	double norms[TENSORS], scale[PP_SCALE_COUNT];
};

static void fill(const struct pp_device_ops *ops, struct pp_device *device)
{
	float values[COUNT];
	const double losses[2 * MICROBATCHES] = {3.5, 6, 2.5, 4}, norms[TENSORS] = {7, NAN};
	for (uint32_t i = 0; i < COUNT; i++)
		values[i] = 0.3f + (float)i;
	put(ops, device, WEIGHT, values, sizeof values);
	for (uint32_t i = 0; i < COUNT; i++)
		values[i] = 0.7f - 0.31f * (float)i;
	put(ops, device, GRAD, values, sizeof values);
	for (uint32_t i = 0; i < COUNT; i++)
		values[i] = 1.0f / (float)(i + 3);
	put(ops, device, OTHER, values, sizeof values);
	memset(values, 0, sizeof values);
	put(ops, device, MOMENT1, values, sizeof values);
	put(ops, device, MOMENT2, values, sizeof values);
	put(ops, device, LOSSES, losses, sizeof losses);
	put(ops, device, NORMS, norms, sizeof norms);
}

static struct outcome run_tail(const struct pp_device_ops *ops, struct fixture *f, enum pp_optimizer rule,
                               enum pp_mean mean, uint32_t row)
{
	struct outcome outcome;
	struct pp_device *device = create(ops, f, 0);
	fill(ops, device);
	for (uint64_t step = 1; step <= 2; step++) {
		const struct pp_update update = {.rule = rule,
		                                 .hyper = &f->hypers[row],
		                                 .lr = 0.125,
		                                 .step = step,
		                                 .weight = WEIGHT,
		                                 .grad = GRAD,
		                                 .moment1 = rule == PP_ADAMW ? MOMENT1 : PP_NULL,
		                                 .moment2 = rule == PP_ADAMW ? MOMENT2 : PP_NULL,
		                                 .master = PP_NULL,
		                                 .scale = SCALE};
		if (ops->begin)
			ops->begin(device, &f->stream, step, update.lr);
		ops->add(device, GRAD, OTHER, false);
		ops->sqnorm(device, GRAD, NORMS, 1, false);
		ops->clip(device, &f->hypers[row], mean, LOSSES, NORMS, SCALE);
		ops->opt(device, &update);
		if (ops->end)
			ops->end(device);
		settle(ops, device);
	}
	get(ops, device, WEIGHT, outcome.weight, sizeof outcome.weight);
	get(ops, device, GRAD, outcome.grad, sizeof outcome.grad);
	get(ops, device, MOMENT1, outcome.moment1, sizeof outcome.moment1);
	get(ops, device, MOMENT2, outcome.moment2, sizeof outcome.moment2);
	get(ops, device, NORMS, outcome.norms, sizeof outcome.norms);
	get(ops, device, SCALE, outcome.scale, sizeof outcome.scale);
	ops->destroy(device);
	return outcome;
}

static void assert_near(const char *what, const float *wanted, const float *found)
{
	for (uint32_t i = 0; i < COUNT; i++)
		if (!(fabsf(found[i] - wanted[i]) <= 1e-5f * (fabsf(wanted[i]) + 1e-3f)))
			fail_msg("%s[%u]: %.9g, not %.9g", what, i, (double)found[i], (double)wanted[i]);
}

static void tail_is_the_cpu_s(void **state)
{
	(void)state;
	for (uint32_t row = 0; row < 2; row++)
		for (unsigned rule = 0; rule < PP_OPTIMIZER_COUNT; rule++) {
			struct fixture f;
			make(&f, PP_F32);
			enum pp_mean mean = row ? PP_MB_MEAN : PP_TOKEN_MEAN;
			struct outcome cpu = run_tail(&pp_device_cpu, &f, (enum pp_optimizer)rule, mean, row);
			struct outcome cuda = run_tail(&pp_device_cuda, &f, (enum pp_optimizer)rule, mean, row);
			assert_near("weight", cpu.weight, cuda.weight);
			assert_near("gradient", cpu.grad, cuda.grad);
			assert_near("moment 1", cpu.moment1, cuda.moment1);
			assert_near("moment 2", cpu.moment2, cuda.moment2);
			assert_true(cuda.norms[0] == 7 && fabs(cuda.norms[1] - cpu.norms[1]) <= 1e-12 * cpu.norms[1]);
			for (unsigned i = 0; i < PP_SCALE_COUNT; i++)
				assert_true(fabs(cuda.scale[i] - cpu.scale[i]) <= 1e-12 * fabs(cpu.scale[i]));
		}
}

/* A norm that is not finite: nothing moves. */
static void infinite_norms_update_nothing(void **state)
{
	(void)state;
	struct fixture f;
	make(&f, PP_F32);
	struct pp_device *device = create(&pp_device_cuda, &f, 0);
	fill(&pp_device_cuda, device);
	float before[COUNT], after[COUNT];
	const double norms[TENSORS] = {1, INFINITY};
	double scale[PP_SCALE_COUNT];
	put(&pp_device_cuda, device, NORMS, norms, sizeof norms);
	get(&pp_device_cuda, device, WEIGHT, before, sizeof before);
	pp_device_cuda.begin(device, &f.stream, 1, 0.5);
	pp_device_cuda.clip(device, &f.hypers[0], PP_TOKEN_MEAN, LOSSES, NORMS, SCALE);
	const struct pp_update update = {.rule = PP_SGD,
	                                 .hyper = &f.hypers[0],
	                                 .lr = 0.5,
	                                 .step = 1,
	                                 .weight = WEIGHT,
	                                 .grad = GRAD,
	                                 .moment1 = PP_NULL,
	                                 .moment2 = PP_NULL,
	                                 .master = PP_NULL,
	                                 .scale = SCALE};
	pp_device_cuda.opt(device, &update);
	pp_device_cuda.end(device);
	settle(&pp_device_cuda, device);
	get(&pp_device_cuda, device, WEIGHT, after, sizeof after);
	get(&pp_device_cuda, device, SCALE, scale, sizeof scale);
	assert_memory_equal(before, after, sizeof before);
	assert_true(scale[PP_SCALE_FINITE] == 0 && scale[PP_SCALE_FACTOR] == 0);
	pp_device_cuda.destroy(device);
}

/* ---- memory ----------------------------------------------------------------------------------- */

static void initial_weights_are_the_cpu_s(void **state)
{
	(void)state;
	struct fixture f;
	struct pp_status status;
	float cpu[COUNT], cuda[COUNT], master[COUNT];
	uint16_t half[COUNT];
	make(&f, PP_F32);
	struct pp_device *reference = create(&pp_device_cpu, &f, 0), *device = create(&pp_device_cuda, &f, 0);
	assert_true(pp_device_cpu.init(reference, 5, &status) && pp_device_cuda.init(device, 5, &status));
	get(&pp_device_cpu, reference, WEIGHT, cpu, sizeof cpu);
	get(&pp_device_cuda, device, WEIGHT, cuda, sizeof cuda);
	assert_memory_equal(cpu, cuda, sizeof cpu);
	get(&pp_device_cuda, device, MOMENT1, cuda, sizeof cuda);
	for (uint32_t i = 0; i < COUNT; i++)
		assert_true(cuda[i] == 0);
	pp_device_cpu.destroy(reference);
	pp_device_cuda.destroy(device);
	make(&f, PP_BF16);
	device = create(&pp_device_cuda, &f, 0);
	assert_true(pp_device_cuda.init(device, 5, &status));
	get(&pp_device_cuda, device, MASTER, master, sizeof master);
	get(&pp_device_cuda, device, WEIGHT, half, sizeof half);
	assert_memory_equal(cpu, master, sizeof cpu);
	for (uint32_t i = 0; i < COUNT; i++) {
		uint32_t bits = (uint32_t)half[i] << 16;
		float value;
		memcpy(&value, &bits, sizeof value);
		assert_true(fabsf(value - master[i]) <= fabsf(master[i]) / 256);
	}
	pp_device_cuda.destroy(device);
}

/* Parts of slots, longer than what copies go through, and the arena between its guards. */
static void parts_are_read_and_written(void **state)
{
	(void)state;
	enum { LARGE = 3 << 20, GUARD = 4096 };
	struct fixture f;
	struct pp_status status;
	make(&f, PP_F32);
	f.slots[OTHER].offset = f.rank.arena_bytes;
	f.slots[OTHER].bytes = LARGE;
	f.rank.arena_bytes += LARGE;
	struct pp_device *device = create(&pp_device_cuda, &f, GUARD);
	unsigned char *wrote = malloc(LARGE), *found = malloc(LARGE);
	for (uint32_t i = 0; i < LARGE; i++)
		wrote[i] = (unsigned char)(i * 2654435761u >> 24);
	assert_true(pp_device_cuda.write(device, OTHER, 5, LARGE - 5, wrote, &status));
	assert_true(pp_device_cuda.read(device, OTHER, 8, LARGE - 8, found, &status));
	assert_memory_equal(found, wrote + 3, LARGE - 8);
	assert_true(pp_device_cuda.read(device, PP_NULL, GUARD + f.slots[OTHER].offset + 5, 100, found, &status));
	assert_memory_equal(found, wrote, 100);
	assert_true(pp_device_cuda.write(device, PP_NULL, GUARD + f.rank.arena_bytes, GUARD, wrote, &status));
	assert_true(pp_device_cuda.read(device, PP_NULL, GUARD + f.rank.arena_bytes, GUARD, found, &status));
	assert_memory_equal(found, wrote, GUARD);
	free(wrote);
	free(found);
	pp_device_cuda.destroy(device);
}

/* Data arrives, losses are kept as they were, marks rise, and all of it in order. */
static void loads_and_kept_losses_are_in_order(void **state)
{
	(void)state;
	struct fixture f;
	make(&f, PP_F32);
	struct pp_device *device = create(&pp_device_cuda, &f, 0);
	const double losses[2 * MICROBATCHES] = {1, 2, 3, 4};
	put(&pp_device_cuda, device, LOSSES, losses, sizeof losses);
	for (uint64_t step = 1; step <= 3; step++) {
		int32_t ids[2 * IDS], found[2 * IDS];
		uint64_t before = pp_clock();
		assert_false(pp_device_cuda.begin(device, &f.stream, step, 0.1));
		pp_device_cuda.mark(device, 0);
		int32_t *to = pp_device_cuda.load_begin(device, &f.load);
		for (uint32_t i = 0; i < 2 * IDS; i++)
			to[i] = ids[i] = (int32_t)(step * 100 + i);
		pp_device_cuda.load_end(device, &f.load);
		pp_device_cuda.mark(device, 1);
		pp_device_cuda.keep(device, LOSSES);
		pp_device_cuda.zero(device, LOSSES);
		pp_device_cuda.mark(device, 5);
		pp_device_cuda.end(device);
		settle(&pp_device_cuda, device);
		assert_int_equal(pp_device_cuda.passed(device), 5);
		uint64_t first = pp_device_cuda.marked(device, 0), last = pp_device_cuda.marked(device, 5);
		assert_true(before <= first && first <= pp_device_cuda.marked(device, 1));
		assert_true(pp_device_cuda.marked(device, 1) <= last && last <= pp_clock() + 1000000);
		get(&pp_device_cuda, device, AUX, found, sizeof found);
		assert_memory_equal(found, ids, sizeof ids);
		assert_memory_equal(pp_device_cuda.kept(device), step == 1 ? losses : (const double[4]){0}, sizeof losses);
	}
	pp_device_cuda.destroy(device);
}

/* Where the last step ended says nothing about the next one. */
static void nothing_is_passed_before_a_step_runs(void **state)
{
	(void)state;
	struct fixture f;
	struct pp_status status = {0};
	make(&f, PP_F32);
	for (unsigned graph = PP_GRAPH_BODY; graph <= PP_GRAPH_STEP; graph++) {
		const struct pp_device_options options = {.marks = MARKS, .graph = (enum pp_graph)graph};
		struct pp_device *device = pp_device_cuda.create(&f.program, (struct pp_coord){0}, &options, &status);
		assert_non_null(device);
		assert_int_equal(pp_device_cuda.passed(device), PP_NULL);
		for (uint64_t step = 1; step <= 4; step++) {
			bool replays = pp_device_cuda.begin(device, &f.stream, step, 0.1);
			assert_int_equal(replays, graph == PP_GRAPH_STEP && step > 2);
			assert_int_equal(pp_device_cuda.passed(device), PP_NULL);
			if (!replays) {
				pp_device_cuda.zero(device, LOSSES);
				pp_device_cuda.mark(device, 5);
			}
			pp_device_cuda.end(device);
			settle(&pp_device_cuda, device);
			assert_int_equal(pp_device_cuda.passed(device), 5);
		}
		pp_device_cuda.destroy(device);
	}
}

/* ---- refusals --------------------------------------------------------------------------------- */

static void assert_refused(struct fixture *f, const struct pp_device_options *options, const char *text)
{
	struct pp_status status = {0};
	assert_null(pp_device_cuda.create(&f->program, (struct pp_coord){0}, options, &status));
	if (!strstr(status.text, text))
		fail_msg("`%s` instead of `%s`", status.text, text);
}

static void refusals(void **state)
{
	(void)state;
	struct fixture f;
	make(&f, PP_F32);
	assert_refused(&f, &(struct pp_device_options){.gpus = "0,x"},
	               "--gpus=0,x: want numbers of GPUs from 0 to 1, as 0,2");
	assert_refused(&f, &(struct pp_device_options){.gpus = "9"}, "--gpus=9: want numbers of GPUs from 0 to 1, as 0,2");
	f.slots[NORMS].bytes = 8;
	assert_refused(&f, NULL, "norms slot 7 of rank 0 has 8 bytes, it needs 16");
	f.slots[NORMS].bytes = 16;
	f.slots[AUX].class = PP_SLOT_SCRATCH;
	assert_refused(&f, NULL, "scratch slot 9 of rank 0 has 48 bytes, kernels need ");
	f.slots[AUX].class = PP_SLOT_AUX;
	f.rank.arena_bytes = UINT64_C(1) << 40;
	assert_refused(&f, NULL, "rank 0 needs 10995116");
	assert_refused(&f, NULL, " are free: plan for less with `gpu.memory`, or give the rank a GPU of its own");
	f.rank.arena_bytes = UINT64_C(1) << 60;
	assert_refused(&f, NULL, "rank 0 needs an arena of 1152921504606846976 bytes");
	f.rank.arena_bytes = UINT64_MAX - 3; /* a sum with it would be small again */
	assert_refused(&f, NULL, "rank 0 needs an arena of 18446744073709551612 bytes");
	f.rank.arena_bytes = SLOTS * 2 * PP_ALIGN;
	assert_refused(&f, &(struct pp_device_options){.guard = UINT64_C(1) << 63},
	               "rank 0 needs 32768 bytes of scratch and guard zones of 9223372036854775808 bytes");
}

/* Attention that the kernels do not take, forward or backward: said before anything is computed. */
static void attention_beyond_the_kernels(void **state)
{
	(void)state;
	static const struct {
		enum pp_body_op op;
		uint32_t seq, tokens, heads, columns;
		const char *text;
	} cases[] = {
	    {PP_BODY_ATTN, 4, 4, 2, 514, "attention of stage 0 has heads 257 wide, the cuda device takes at most 256: "},
	    {PP_BODY_ATTN_DX, 4, 4, 2, 1024,
	     "attention of stage 0 has heads 512 wide, the cuda device takes at most 256: "},
	    {PP_BODY_ATTN, 4, 4, 65536, 65536,
	     "attention of stage 0 has 65536 heads, the cuda device takes at most 65535: "},
	    {PP_BODY_ATTN_DX, 4, 4 * 65536, 1, 8,
	     "attention of stage 0 has 65536 samples in a microbatch, the cuda device takes at most 65535: "},
	    {PP_BODY_ATTN_DX, 1 << 22, 1 << 22, 1, 8,
	     "attention of stage 0 has samples of 4194304 tokens, the cuda device takes at most 4194240: "},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct fixture f;
		make(&f, PP_F32);
		struct pp_reg regs[2] = {{.rows = 1, .columns = 1}, {.rows = cases[i].tokens, .columns = cases[i].columns}};
		struct pp_body_instr instr = {
		    .op = (uint8_t)cases[i].op, .operand = {0, 1}, .imm = {cases[i].seq, cases[i].heads, cases[i].heads, 0}};
		if (cases[i].op == PP_BODY_ATTN)
			instr.operand[0] = 1;
		struct pp_body body = {.regs = regs, .reg_count = 2, .items = &instr, .count = 1};
		struct pp_stage stage = {.rank = 0};
		f.program.stages = &stage;
		f.program.bodies = &body;
		f.program.body_count = 1;
		assert_refused(&f, NULL, cases[i].text);
	}
}

/* ---- threads ---------------------------------------------------------------------------------- */

struct elsewhere {
	struct fixture *fixture;
	struct pp_device *device;
	struct pp_lane *lane;
};

static void *make_elsewhere(void *argument)
{
	struct elsewhere *made = argument;
	struct pp_status status;
	made->device = pp_device_cuda.create(&made->fixture->program, (struct pp_coord){0},
	                                     &(struct pp_device_options){.local = 1}, &status);
	made->lane = made->device ? pp_loop_mover_cuda.open(made->device, 2, 1, &status) : NULL;
	return NULL;
}

static int current_gpu(void)
{
	int ordinal = -1;
	cudaGetDevice(&ordinal);
	return ordinal;
}

/* The main thread frees what ranks made, and starts no GPU of its own for it. */
static void another_thread_frees_on_the_rank_s_gpu(void **state)
{
	(void)state;
	struct fixture f;
	struct elsewhere made = {.fixture = &f};
	pthread_t thread;
	make(&f, PP_F32);
	assert_int_equal(pthread_create(&thread, NULL, make_elsewhere, &made), 0);
	pthread_join(thread, NULL);
	assert_non_null(made.lane);
	cudaSetDevice(0);
	pp_loop_mover_cuda.close(made.lane);
	assert_int_equal(current_gpu(), 1);
	cudaSetDevice(0);
	pp_device_cuda.destroy(made.device);
	assert_int_equal(current_gpu(), 1);
	cudaSetDevice(0);
}

/* An open lane has every sum that a step may ask for loaded. */
static void lanes_have_their_sums_loaded(void **state)
{
	(void)state;
	struct fixture f;
	struct pp_status status = {0};
	make(&f, PP_F32);
	struct pp_device *device = create(&pp_device_cuda, &f, 0);
	struct pp_lane *lane = pp_loop_mover_cuda.open(device, 2, 1, &status);
	assert_non_null(lane);
	static const enum pp_cuda_summand types[] = {PP_CUDA_SUM_F32, PP_CUDA_SUM_F64, PP_CUDA_SUM_BF16};
	cudaStream_t stream = pp_cuda_of(device)->compute;
	void *sum;
	assert_int_equal(cudaMalloc(&sum, sizeof(double)), cudaSuccess);
	const struct pp_cuda_members one = {.from = {sum}, .to = {sum}, .count = 1};
	pp_fake_freeze();
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		pp_cuda_sum_whole(stream, types[i], &one, 1);
		pp_cuda_sum_shares(stream, types[i], &one, 1);
	}
	pp_fake_thaw();
	assert_true(pp_cuda_wait(stream, "summing", &status));
	assert_string_equal(pp_fake_report(), "");
	cudaFree(sum);
	pp_loop_mover_cuda.close(lane);
	pp_device_cuda.destroy(device);
}

/* After its start a device allocates nothing. */
static void nothing_is_allocated_later(void **state)
{
	(void)state;
	struct fixture f;
	make(&f, PP_F32);
	struct pp_device *device = create(&pp_device_cuda, &f, 0);
	pp_fake_freeze();
	fill(&pp_device_cuda, device);
	pp_device_cuda.begin(device, &f.stream, 1, 0.5);
	pp_device_cuda.add(device, GRAD, OTHER, false);
	pp_device_cuda.sqnorm(device, GRAD, NORMS, 1, false);
	pp_device_cuda.clip(device, &f.hypers[0], PP_TOKEN_MEAN, LOSSES, NORMS, SCALE);
	pp_device_cuda.end(device);
	settle(&pp_device_cuda, device);
	pp_fake_thaw();
	pp_device_cuda.destroy(device);
	assert_int_equal(pp_fake_reports(), 0);
}

int main(void)
{
	setenv("PP_FAKE_DEVICES", "2", 1);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tail_is_the_cpu_s),
	    cmocka_unit_test(infinite_norms_update_nothing),
	    cmocka_unit_test(initial_weights_are_the_cpu_s),
	    cmocka_unit_test(parts_are_read_and_written),
	    cmocka_unit_test(loads_and_kept_losses_are_in_order),
	    cmocka_unit_test(nothing_is_passed_before_a_step_runs),
	    cmocka_unit_test(refusals),
	    cmocka_unit_test(attention_beyond_the_kernels),
	    cmocka_unit_test(lanes_have_their_sums_loaded),
	    cmocka_unit_test(another_thread_frees_on_the_rank_s_gpu),
	    cmocka_unit_test(nothing_is_allocated_later),
	};
	return cmocka_run_group_tests_name("device_cuda", tests, NULL, NULL);
}
