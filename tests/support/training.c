/* Small GPTs that really train. */
#include "training.h"

#include "executor/transport/queued.h"
#include "executor/transport/transport_loop.h"

#include "codegen/layer.h"
#include "codegen/lower.h"
#include "codegen/plan_memory.h"
#include "compiler/cost.h"
#include "ir/file.h"
#include "ir/hash.h"
#include "ir/verify.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void split_layers(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_schedule *schedule,
                         struct pp_stages *stages)
{
	uint32_t layers = spec->model.layer_count;
	stages->count = schedule->stages;
	stages->items = PP_NEW_ARRAY(arena, struct pp_stage_plan, stages->count);
	for (uint32_t s = 0; s < stages->count; s++) {
		stages->items[s].first_layer = (uint32_t)((uint64_t)layers * s / stages->count);
		stages->items[s].layer_count =
		    (uint32_t)((uint64_t)layers * (s + 1) / stages->count) - stages->items[s].first_layer;
		stages->items[s].rank = schedule->stage_rank[s];
	}
}

static struct pp_program *frame(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_schedule *schedule)
{
	struct pp_program *program = PP_NEW(arena, struct pp_program);
	program->arena = arena;
	program->ranks = schedule->ranks;
	program->tp = spec->parallel.tp;
	program->dp = spec->parallel.dp;
	program->zero = spec->parallel.zero;
	program->vpp = (schedule->stages + schedule->ranks - 1) / schedule->ranks;
	program->stage_count = schedule->stages;
	program->microbatches = schedule->microbatches;
	program->rank = PP_NEW_ARRAY(arena, struct pp_rank, program->ranks);
	program->train = spec->train;
	program->schedule_name = schedule->name;
	return program;
}

struct pp_program *pp_training_program(struct pp_arena *arena, const struct pp_spec *spec,
                                       const struct pp_schedule *schedule, struct pp_diag *diag)
{
	return pp_training_program_lowered(arena, spec, schedule, PP_LOWERED_END, diag);
}

struct pp_program *pp_training_program_lowered(struct pp_arena *arena, const struct pp_spec *spec,
                                               const struct pp_schedule *schedule, enum pp_lowered lowering,
                                               struct pp_diag *diag)
{
	static const uint8_t phase_of[PP_ACTION_KINDS] = {
	    [PP_F] = 1 << PP_PHASE_F, [PP_B] = 1 << PP_PHASE_B, [PP_I] = 1 << PP_PHASE_I, [PP_W] = 1 << PP_PHASE_W};
	struct pp_stages stages = {0};
	split_layers(arena, spec, schedule, &stages);
	pp_cost_layers(arena, spec, &stages);
	pp_cost_stages(spec, &stages);
	uint8_t *phases = PP_NEW_ARRAY(arena, uint8_t, schedule->stages);
	for (uint32_t r = 0; r < schedule->ranks; r++)
		for (uint32_t i = 0; i < schedule->rows[r].count; i++)
			phases[schedule->rows[r].actions[i].stage] |= phase_of[schedule->rows[r].actions[i].kind];
	struct pp_program *program = frame(arena, spec, schedule);
	program->lowering = (uint8_t)lowering;
	if (!pp_layers_check(arena, spec, diag) || !pp_schedule_check(arena, schedule, diag))
		return NULL;
	pp_tensors_build(program, spec, &stages);
	pp_bodies_build(program, spec, &stages, phases);
	if (!pp_lower(program, spec, schedule, diag) || !pp_plan_memory(program, diag) ||
	    !pp_verify(program, &program->stamp, diag))
		return NULL;
	return program;
}

struct rank_job {
	struct pp_rank_run run;
	struct pp_endpoint *queued; /* or NULL */
	struct pp_status status;
	bool ok;
};

static void *run_job(void *argument)
{
	struct rank_job *job = argument;
	job->ok = pp_run_rank(&job->run, &job->status);
	return NULL;
}

static uint64_t hash_weights(const struct rank_job *job, const struct pp_use *use)
{
	const struct pp_program *program = job->run.program;
	const unsigned char *bytes = job->run.interp.slots[use->weight];
	return pp_hash_bytes(bytes, pp_local_elements(program, use->tensor) * sizeof(float));
}

/* Whether this world rank runs the use's stage; of tp coordinates the first. */
static bool holds(const struct pp_program *program, uint32_t world, const struct pp_use *use)
{
	struct pp_coord coord = pp_grid_coord(program, world);
	return coord.tp == 0 && coord.pp == program->stages[use->stage].rank;
}

static void collect_weights(struct pp_arena *arena, const struct pp_program *program, const struct rank_job *jobs,
                            struct pp_training_result *result)
{
	result->hashes = PP_NEW_ARRAY(arena, uint64_t, program->tensor_count + 1);
	bool *seen = PP_NEW_ARRAY(arena, bool, program->tensor_count + 1);
	for (uint32_t i = 0; i < program->use_count; i++)
		for (uint32_t world = 0; world < pp_grid_world(program); world++) {
			const struct pp_use *use = &program->uses[i];
			if (!holds(program, world, use))
				continue;
			uint64_t hash = hash_weights(&jobs[world], use), *kept = &result->hashes[use->tensor];
			*kept = !seen[use->tensor] || *kept == hash ? hash : 0;
			seen[use->tensor] = true;
		}
}

/* Of each JSON line, what does not depend on time. */
static void collect_steps(struct pp_arena *arena, const char *path, struct pp_training_result *result)
{
	char *text;
	size_t length;
	struct pp_status status;
	if (!pp_file_read(arena, path, &text, &length, &status))
		return;
	static const char evaluation_line[] = "{\"schema\": \"piperun.eval/1\"";
	char *step = result->steps = pp_arena_alloc(arena, length + 1, 1);
	char *evaluation = result->evaluations = pp_arena_alloc(arena, length + 1, 1);
	for (char *line = text; *line; line = strchr(line, '\n') + 1) {
		bool evaluates = strncmp(line, evaluation_line, sizeof evaluation_line - 1) == 0;
		const char *from = strstr(line, evaluates ? "\"step\"" : "\"loss\""),
		           *until = strstr(line, ", \"tokens_per_s\"");
		assert(from && until);
		char **to = evaluates ? &evaluation : &step;
		memcpy(*to, from, (size_t)(until - from));
		*to += until - from;
		*(*to)++ = '\n';
	}
}

struct pp_training_result pp_training_run(struct pp_arena *arena, const struct pp_program *program,
                                          const struct pp_transport_options *transport,
                                          const struct pp_run_options *options)
{
	return pp_training_run_probed(arena, program, transport, options,
	                              &(struct pp_training_probe){.device = &pp_device_cpu});
}

struct pp_training_result pp_training_run_probed(struct pp_arena *arena, const struct pp_program *program,
                                                 const struct pp_transport_options *transport,
                                                 const struct pp_run_options *options,
                                                 const struct pp_training_probe *probe)
{
	struct pp_training_result result = {.ok = true, .steps = "", .evaluations = ""};
	uint32_t world = (uint32_t)pp_grid_world(program);
	char path[] = "/tmp/pipec-training-XXXXXX";
	int descriptor = mkstemp(path);
	struct pp_run_options own = *options;
	own.metrics_path = path;
	own.quiet = true;
	struct pp_loop *loop = pp_loop_create(program, transport, &result.status);
	struct pp_watch *watches = PP_NEW_ARRAY(arena, struct pp_watch, world);
	struct rank_job *jobs = PP_NEW_ARRAY(arena, struct rank_job, world);
	pthread_t *threads = PP_NEW_ARRAY(arena, pthread_t, world);
	assert(descriptor >= 0 && loop);
	close(descriptor);
	for (uint32_t i = 0; i < world; i++) {
		pp_watch_init(&watches[i], program, i, probe->timeout ? probe->timeout : UINT64_C(60000000000));
		if (probe->queues != PP_LAYOUT_CHANNEL)
			jobs[i].queued = pp_queued_open(program, pp_grid_coord(program, i), probe->queues, &pp_transport_loop,
			                                pp_loop_endpoint(loop, i), &result.status);
		jobs[i].run = (struct pp_rank_run){.program = program,
		                                   .world = i,
		                                   .device_ops = probe->device,
		                                   .transport = jobs[i].queued ? &pp_transport_queued : &pp_transport_loop,
		                                   .endpoint = jobs[i].queued ? jobs[i].queued : pp_loop_endpoint(loop, i),
		                                   .watch = &watches[i],
		                                   .options = &own};
		int error = pthread_create(&threads[i], NULL, run_job, &jobs[i]);
		assert(error == 0);
		(void)error;
	}
	for (uint32_t i = 0; i < world; i++) {
		pthread_join(threads[i], NULL);
		if (!jobs[i].ok && result.ok)
			result.status = jobs[i].status;
		result.ok = result.ok && jobs[i].ok;
	}
	collect_steps(arena, path, &result);
	if (result.ok)
		collect_weights(arena, program, jobs, &result);
	for (uint32_t i = 0; probe->look && result.ok && i < world; i++)
		probe->look(&jobs[i].run.interp, probe->context);
	for (uint32_t i = 0; i < world; i++)
		pp_run_rank_free(&jobs[i].run);
	for (uint32_t i = 0; i < world; i++)
		pp_queued_close(jobs[i].queued);
	pp_loop_destroy(loop);
	unlink(path);
	return result;
}
