/* Prints a small GPT's training program as text: write_training RANKS CHUNKS MICROBATCHES tied|untied WIDTH. Rows are
 * those of 1F1B and of interleaved 1F1B. For scripts that run piperun. */
#include "unit/model_fixture.h"

#include "support/training.h"

#include "ir/program_text.h"

#include <stdlib.h>

static uint32_t number(const char *text)
{
	return (uint32_t)strtoul(text, NULL, 10);
}

static void fill_rows(struct pp_arena *arena, struct pp_schedule *schedule, uint32_t chunks)
{
	uint32_t ranks = schedule->ranks, each = schedule->microbatches * chunks, round = ranks * chunks;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		struct pp_row *row = &schedule->rows[rank];
		uint32_t warmup = (chunks > 1 ? 2 : 1) * (ranks - 1 - rank) + (chunks - 1) * ranks, forwards = 0, backwards = 0;
		warmup = warmup < each ? warmup : each;
		row->actions = PP_NEW_ARRAY(arena, struct pp_action, 2 * (size_t)each);
		while (row->count < 2 * each) {
			bool forward = row->count < warmup || (forwards < each && (row->count - warmup) % 2 == 0);
			uint32_t n = forward ? forwards++ : backwards++, chunk = n % round / ranks;
			row->actions[row->count++] =
			    (struct pp_action){.stage = (forward ? chunk : chunks - 1 - chunk) * ranks + rank,
			                       .mb = n / round * ranks + n % ranks,
			                       .kind = forward ? PP_F : PP_B};
		}
	}
}

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	struct pp_hyper hypers[2] = {{0.9, 0.95, 1e-8, 0.1, 1.0}, {0.9, 0.95, 1e-8, 0.0, 1.0}};
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_diag *diag = pp_diag_create(arena, pp_sources_create(arena));
	uint32_t chunks = number(argv[2]), width = number(argv[5]);
	struct model_size size = {width, 4, 4, 6, 4 * width, 64, 16, 2, strcmp(argv[4], "tied") == 0};
	struct pp_schedule schedule = {.name = "1f1b", .ranks = number(argv[1]), .microbatches = number(argv[3])};
	struct pp_spec *spec = fixture_spec(arena, &size);
	schedule.stages = schedule.ranks * chunks;
	schedule.stage_rank = PP_NEW_ARRAY(arena, uint32_t, schedule.stages);
	for (uint32_t s = 0; s < schedule.stages; s++)
		schedule.stage_rank[s] = s % schedule.ranks;
	schedule.rows = PP_NEW_ARRAY(arena, struct pp_row, schedule.ranks);
	fill_rows(arena, &schedule, chunks);
	spec->microbatches = schedule.microbatches;
	spec->cluster.nodes = 1;
	spec->cluster.gpus = schedule.ranks;
	spec->train = (struct pp_train){.microbatch = 2,
	                                .seq = 16,
	                                .vocab = 64,
	                                .steps = 6,
	                                .seed = 5,
	                                .data = PP_DATA_SYNTHETIC,
	                                .data_seed = 9,
	                                .lr_kind = PP_LR_COSINE,
	                                .lr_peak = 0.003,
	                                .lr_floor = 0.0003,
	                                .lr_warmup = 2,
	                                .log_every = 1,
	                                .hypers = hypers,
	                                .hyper_count = 2};
	struct pp_program *program = pp_training_program(arena, spec, &schedule, diag);
	if (program)
		pp_program_print(program, stdout);
	else
		pp_diag_print(diag, stderr, PP_DIAG_HUMAN, false);
	pp_arena_destroy(arena);
	return program ? 0 : 1;
}
