/* Predicted against measured idle time: custom layers run as timed sleeps, so only the executor's waiting and moving of
 * data separates the two. Goal: within 5 percentage points on every rank, p <= 16. Usage: bench_idle [ms per forward]
 */
#include "unit/model_fixture.h"

#include "executor/launch.h"
#include "support/training.h"

#include "ir/program_text.h"

#include <stdlib.h>
#include <unistd.h>

static void fill_rows(struct pp_arena *arena, struct pp_schedule *schedule)
{
	uint32_t ranks = schedule->ranks, m = schedule->microbatches;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		struct pp_row *row = &schedule->rows[rank];
		uint32_t warmup = ranks - 1 - rank < m ? ranks - 1 - rank : m, forwards = 0, backwards = 0;
		row->actions = PP_NEW_ARRAY(arena, struct pp_action, 2 * (size_t)m);
		while (row->count < 2 * m) {
			bool forward = row->count < warmup || (forwards < m && (row->count - warmup) % 2 == 0);
			row->actions[row->count++] = (struct pp_action){
			    .stage = rank, .mb = forward ? forwards++ : backwards++, .kind = forward ? PP_F : PP_B};
		}
	}
}

static int run(uint32_t ranks, uint64_t time)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_diag *diag = pp_diag_create(arena, pp_sources_create(arena));
	struct model_size size = {16, 1, 1, 0, 16, 16, 4, 1, false};
	struct pp_spec *spec = fixture_spec(arena, &size);
	spec->model.layer_count = ranks;
	spec->model.layers = PP_NEW_ARRAY(arena, struct pp_layer, ranks);
	spec->model.trains = false;
	for (uint32_t i = 0; i < ranks; i++) {
		struct pp_custom custom = {
		    .output = 65536, .activation = 65536, .time_f = time + time * (i % 3) / 4, .time_i = time, .time_w = time};
		spec->model.layers[i] = fixture_custom(&size, "layer", custom);
	}
	spec->microbatches = 2 * ranks;
	spec->cluster.nodes = 1;
	spec->cluster.gpus = ranks;
	spec->train = (struct pp_train){.microbatch = 1, .seq = 4};
	struct pp_schedule schedule = {.name = "1f1b", .ranks = ranks, .stages = ranks, .microbatches = spec->microbatches};
	schedule.stage_rank = PP_NEW_ARRAY(arena, uint32_t, ranks);
	for (uint32_t s = 0; s < ranks; s++)
		schedule.stage_rank[s] = s;
	schedule.rows = PP_NEW_ARRAY(arena, struct pp_row, ranks);
	fill_rows(arena, &schedule);
	struct pp_program *program = pp_training_program(arena, spec, &schedule, diag);
	if (!program) {
		pp_diag_print(diag, stderr, PP_DIAG_HUMAN, false);
		return 1;
	}
	char path[] = "/tmp/pipec-idle-XXXXXX";
	int descriptor = mkstemp(path);
	FILE *out = descriptor < 0 ? NULL : fdopen(descriptor, "w");
	if (!out)
		return 3;
	pp_program_print(program, out);
	fclose(out);
	printf("\n%u ranks, %u microbatches, forward %.1f to %.1f ms\n", ranks, spec->microbatches, (double)time * 1e-6,
	       (double)time * 1.5e-6);
	fflush(stdout);
	struct pp_launch launch = {.arena = arena, .path = path, .device = &pp_device_cpu, .run = {.steps = 4}};
	int code = pp_launch_loop(&launch);
	unlink(path);
	pp_arena_destroy(arena);
	return code;
}

int main(int argc, char **argv)
{
	uint64_t time = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000000 : 2000000;
	for (uint32_t ranks = 2; ranks <= 16; ranks *= 2) {
		int code = run(ranks, time);
		if (code)
			return code;
	}
	return 0;
}
