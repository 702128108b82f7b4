/* Whole steps of tensor-, sequence- and data-parallel ranks on CPU devices over the loop transport, against PyTorch's
 * float64 losses and gradients by the norm rule of test_gradients.c. What is compared lies in the gradient slots when
 * the step is over: sums over tp, dp and tied layers are the program's own, copies must be the same bits on all ranks,
 * shards of heads and of a sharded optimizer are put together here. */
#include "reference_dumps.h"
#include "reference_spec.h"

#include "../unit/lowering_fixture.h"

#include "executor/interp.h"
#include "executor/transport/transport_loop.h"
#include "support/training.h"

#include <math.h>
#include <pthread.h>

/* How a model is cut. */
struct cut {
	uint32_t tp, dp, zero, pp;
	bool sp, split;
	uint32_t padded; /* rows of the token table */
	uint8_t recompute;
};

/* One rank: a thread. */
struct rank {
	const struct reference *model;
	struct pp_interp interp;
	struct pp_watch watch;
	struct pp_status status;
	pthread_t thread;
	bool went;
};

struct job {
	struct world world;
	struct reference *model;
	const struct pp_program *program;
	struct rank *ranks;
	uint32_t count;
};

/* ---- programs -------------------------------------------------------------------------------- */

/* Each backward becomes its two halves. */
static void split_backwards(struct world *w)
{
	for (uint32_t rank = 0; rank < w->schedule.ranks; rank++) {
		struct pp_row *row = &w->schedule.rows[rank], whole = *row;
		row->actions = PP_NEW_ARRAY(w->arena, struct pp_action, (size_t)2 * whole.count);
		row->count = 0;
		for (uint32_t i = 0; i < whole.count; i++) {
			struct pp_action action = whole.actions[i];
			bool backward = action.kind == PP_B;
			action.kind = backward ? PP_I : action.kind;
			row->actions[row->count++] = action;
			action.kind = PP_W;
			if (backward)
				row->actions[row->count++] = action;
		}
	}
}

static const struct pp_program *program_of(struct world *w, const struct reference *model, const struct cut *cut)
{
	static struct pp_hyper hypers[2];
	struct pp_spec *spec = reference_spec(w->arena, model);
	for (uint32_t i = 0; i < spec->model.layer_count; i++) {
		struct pp_layer *layer = &spec->model.layers[i];
		layer->padded_vocab = cut->padded;
		layer->recompute = layer->kind == PP_LAYER_BLOCK ? cut->recompute : 0;
	}
	spec->microbatches = model->shape.microbatches / cut->dp;
	spec->cluster.nodes = 1;
	spec->cluster.gpus = cut->pp * cut->tp * cut->dp;
	spec->parallel.pp = cut->pp;
	spec->parallel.tp = cut->tp;
	spec->parallel.sp = cut->sp;
	spec->parallel.dp = cut->dp;
	spec->parallel.zero = (uint8_t)cut->zero;
	spec->train.optimizer = PP_SGD;
	spec->train.hypers = hypers;
	spec->train.hyper_count = 2;
	write_interleaved(w, cut->pp, cut->pp == 1 ? 3 : 2, spec->microbatches);
	if (cut->split)
		split_backwards(w);
	const struct pp_program *program = pp_training_program(w->arena, spec, &w->schedule, w->diag);
	if (!program)
		fail_msg("%s", diagnostics(w));
	return program;
}

/* ---- a rank's run ---------------------------------------------------------------------------- */

/* In place of the data source: as that does, microbatches of equal number lie side by side. */
static void load(const struct rank *rank, const struct pp_instr *instr)
{
	const struct reference *model = rank->model;
	size_t tokens = (size_t)model->shape.microbatch * model->shape.seq;
	size_t first = tokens * ((size_t)instr->mb * rank->interp.program->dp + rank->interp.coord.dp);
	int32_t *to = rank->interp.slots[instr->a[0]];
	if (instr->sub != PP_LOAD_LABELS)
		memcpy(to, model->ids + first, tokens * sizeof *to);
	if (instr->sub != PP_LOAD_TOKENS)
		memcpy(to + (instr->sub == PP_LOAD_BOTH ? tokens : 0), model->labels + first, tokens * sizeof *to);
}

/* The stream up to each load, the load, and so on. */
static bool run_step(struct rank *rank)
{
	const struct pp_stream *stream = &rank->interp.program->programs[0].streams[rank->interp.coord.pp];
	for (uint32_t first = 0, end; first < stream->count; first = end + 1) {
		for (end = first; end < stream->count && stream->items[end].op != PP_OP_LOAD; end++)
			continue;
		struct pp_stream part = *stream;
		part.items += first;
		part.count = end - first;
		if (!pp_interp_step(&rank->interp, &part, &rank->status))
			return false;
		if (end < stream->count)
			load(rank, &stream->items[end]);
	}
	return true;
}

static void *run(void *argument)
{
	struct rank *rank = argument;
	rank->went = run_step(rank);
	if (!rank->went)
		pp_transport_loop.give_up(rank->interp.endpoint, rank->status.text);
	return NULL;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* Where element `index` of a rank's share lies in the whole; false: it pads. */
static bool whole_index(const struct pp_program *program, const struct pp_tensor *tensor, uint32_t rank, size_t index,
                        const struct reference_tensor *whole, size_t *at)
{
	bool sharded = tensor->tp_grad == PP_TP_SHARDED;
	uint32_t columns = sharded && tensor->shard == 1 ? tensor->columns / program->tp : tensor->columns;
	size_t row = index / columns, column = index % columns;
	if (sharded && tensor->shard == 0)
		row += (size_t)rank * (tensor->rows / program->tp);
	if (sharded && tensor->shard == 1)
		column += (size_t)rank * columns;
	*at = row * whole->columns + column;
	return row < whole->rows;
}

static bool holds(const struct rank *rank, const struct pp_use *use)
{
	return rank->interp.program->stages[use->stage].rank == rank->interp.coord.pp;
}

static void put_weights(const struct rank *rank)
{
	const struct pp_program *program = rank->interp.program;
	assert_int_equal(program->tensor_count, rank->model->tensor_count);
	for (uint32_t u = 0; u < program->use_count; u++) {
		const struct pp_use *use = &program->uses[u];
		const struct pp_tensor *tensor = &program->tensors[use->tensor];
		const struct reference_tensor *from = reference_tensor_named(rank->model, tensor->name);
		size_t count = pp_local_elements(program, use->tensor), at;
		assert_non_null(from);
		if (!holds(rank, use))
			continue;
		float *to = rank->interp.slots[use->weight];
		for (size_t i = 0; i < count; i++)
			to[i] = whole_index(program, tensor, rank->interp.coord.tp, i, from, &at) ? from->weight[at] : 0;
	}
}

/* A rank's part of a tensor's gradient, to where others have put theirs; `seen`: elements that some rank has put. */
static void take_gradient(const struct rank *rank, const struct pp_use *use, struct reference *model, bool *seen)
{
	const struct pp_program *program = rank->interp.program;
	const struct pp_tensor *tensor = &program->tensors[use->tensor];
	struct reference_tensor *to = reference_tensor_named(model, tensor->name);
	const float *from = rank->interp.slots[use->grad];
	size_t count = pp_local_elements(program, use->tensor), shard = pp_shard_elements(program, use->tensor), at,
	       first = program->zero ? rank->interp.coord.dp * shard : 0;
	for (size_t i = first; i < count && i < first + shard; i++) {
		if (!whole_index(program, tensor, rank->interp.coord.tp, i, to, &at)) {
			assert_true(from[i] == 0); /* of a row that pads */
			continue;
		}
		if (seen[at])
			assert_memory_equal(&to->gradient[at], &from[i], sizeof *from);
		to->gradient[at] = from[i];
		seen[at] = true;
	}
}

/* The first use on a rank has the sum of all. */
static void take_gradients(const struct job *job)
{
	const struct pp_program *program = job->program;
	for (uint32_t t = 0; t < program->tensor_count; t++) {
		const struct reference_tensor *tensor = reference_tensor_named(job->model, program->tensors[t].name);
		size_t count = (size_t)tensor->rows * tensor->columns;
		bool *seen = PP_NEW_ARRAY(job->world.arena, bool, count);
		for (uint32_t r = 0; r < job->count; r++) {
			const struct pp_use *use = program->uses, *end = use + program->use_count;
			while (use < end && (use->tensor != t || !holds(&job->ranks[r], use)))
				use++;
			if (use < end)
				take_gradient(&job->ranks[r], use, job->model, seen);
		}
		for (size_t i = 0; i < count; i++)
			assert_true(seen[i]);
	}
}

/* Every rank has the losses of all replicas. */
static void check_losses(const struct rank *rank)
{
	const struct pp_program *program = rank->interp.program;
	const struct pp_rank *own = &program->rank[rank->interp.coord.pp];
	const double *losses = NULL;
	for (uint32_t i = 0; i < own->slot_count; i++)
		if (own->slots[i].class == PP_SLOT_LOSSES)
			losses = rank->interp.slots[i];
	assert_non_null(losses);
	for (uint32_t m = 0; m < program->microbatches; m++) {
		double sum = 0, count = 0;
		for (uint32_t d = 0; d < program->dp; d++) {
			sum += rank->model->loss[2 * (m * program->dp + d)];
			count += rank->model->loss[2 * (m * program->dp + d) + 1];
		}
		assert_true(fabs(losses[2 * m] - sum) <= 1e-6 * sum);
		assert_true(losses[2 * m + 1] == count);
	}
}

/* ---- models ---------------------------------------------------------------------------------- */

static void open_rank(struct job *job, uint32_t world, struct pp_loop *loop)
{
	struct rank *rank = &job->ranks[world];
	pp_watch_init(&rank->watch, job->program, world, UINT64_C(60000000000));
	rank->model = job->model;
	rank->interp = (struct pp_interp){.program = job->program,
	                                  .world = world,
	                                  .device_ops = &pp_device_cpu,
	                                  .transport = &pp_transport_loop,
	                                  .endpoint = pp_loop_endpoint(loop, world),
	                                  .watch = &rank->watch,
	                                  .step = 1};
	rank->interp.device = pp_device_cpu.create(job->program, pp_grid_coord(job->program, world), NULL, &rank->status);
	assert_non_null(rank->interp.device);
	assert_true(pp_interp_open(&rank->interp, &rank->status));
	pp_device_cpu.init(rank->interp.device, 1, NULL);
	put_weights(rank);
}

static void run_ranks(const struct job *job)
{
	for (uint32_t r = 0; r < job->count; r++)
		assert_int_equal(pthread_create(&job->ranks[r].thread, NULL, run, &job->ranks[r]), 0);
	for (uint32_t r = 0; r < job->count; r++)
		pthread_join(job->ranks[r].thread, NULL);
	for (uint32_t r = 0; r < job->count; r++) {
		if (!job->ranks[r].went)
			fail_msg("rank %u: %s", r, job->ranks[r].status.text);
		check_losses(&job->ranks[r]);
	}
}

static struct reference *run_cut(const char *path, const struct cut *cut)
{
	struct job job = {.world = make_world(1), .model = reference_read(path)};
	assert_non_null(job.model);
	job.program = program_of(&job.world, job.model, cut);
	job.count = (uint32_t)pp_grid_world(job.program);
	assert_int_equal(job.count, cut->tp * cut->dp * cut->pp);
	job.ranks = PP_NEW_ARRAY(job.world.arena, struct rank, job.count);
	struct pp_status status = {0};
	struct pp_loop *loop = pp_loop_create(job.program, &(struct pp_transport_options){0}, &status);
	assert_non_null(loop);
	for (uint32_t r = 0; r < job.count; r++)
		open_rank(&job, r, loop);
	run_ranks(&job);
	take_gradients(&job);
	reference_assert_gradients(job.model);
	for (uint32_t r = 0; r < job.count; r++) {
		pp_interp_close(&job.ranks[r].interp);
		pp_device_cpu.destroy(job.ranks[r].interp.device);
	}
	pp_loop_destroy(loop);
	end_world(&job.world);
	return job.model;
}

/* Right, and the same bits when blocks compute again. */
static void check_cut(const char *path, struct cut cut, bool recomputes)
{
	static const uint8_t again[] = {PP_RECOMPUTE_FULL, PP_RECOMPUTE_NORM | PP_RECOMPUTE_ACT, PP_RECOMPUTE_ATTENTION};
	struct reference *model = run_cut(path, &cut);
	for (size_t i = 0; i < sizeof again && recomputes; i++) {
		cut.recompute = again[i];
		struct reference *other = run_cut(path, &cut);
		for (uint32_t t = 0; t < model->tensor_count; t++)
			assert_memory_equal(other->tensors[t].gradient, model->tensors[t].gradient,
			                    (size_t)model->tensors[t].rows * model->tensors[t].columns * sizeof(float));
		reference_free(other);
	}
	reference_free(model);
}

static void check_replicas(const char *path, struct cut cut)
{
	static const struct pp_parallel replicas[] = {{.dp = 1}, {.dp = 2}, {.dp = 2, .zero = 1}};
	for (size_t i = 0; i < sizeof replicas / sizeof *replicas; i++)
		for (cut.pp = 1; cut.pp <= 2; cut.pp++) {
			cut.dp = replicas[i].dp;
			cut.zero = replicas[i].zero;
			check_cut(path, cut, cut.dp == 1 && cut.pp == 1);
		}
}

/* tp = 4: two key/value heads then serve two ranks each. */
static void check(const char *path)
{
	for (uint32_t tp = 1; tp <= 4; tp *= 2)
		for (unsigned sp = 0; sp <= (tp > 1); sp++)
			for (unsigned split = 0; split < 2; split++)
				check_replicas(path, (struct cut){.tp = tp, .sp = sp, .split = split, .padded = sp && split ? 48 : 32});
}

static void compare(void **state)
{
	check(reference_path(state));
}

int main(void)
{
	return reference_run_all("parallel gradients", compare);
}
