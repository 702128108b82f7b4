/* Fuzz target of rules: any bytes as a file of schedules; those with a `policy` are run on a small problem, as a draft
 * and for good. What is accepted is a schedule that runs within the room; a refusal says why. */
#include "messages.h"

#include "compiler/policy/make.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

enum { RANKS = 3, STAGES = 5, MICROBATCHES = 4 };

static const uint32_t stage_rank[STAGES] = {0, 1, 2, 1, 0};

static void run(struct pp_arena *arena, struct pp_strtab *strings, const struct pp_sources *sources,
                const struct pp_stmt *block, bool draft, struct pp_diag *diag)
{
	static const uint64_t room[RANKS] = {6144, 5120, PP_ROOM_UNLIMITED};
	struct pp_order_stage stages[STAGES];
	for (uint32_t s = 0; s < STAGES; s++)
		stages[s] = (struct pp_order_stage){.rank = stage_rank[s],
		                                    .ticks = {7 + s, 21, 10, 11},
		                                    .held = 1024,
		                                    .early = 256,
		                                    .more_split = 128,
		                                    .forward_hop = s + 1 < STAGES,
		                                    .backward_hop = s > 0};
	const struct pp_order_problem problem = {
	    .ranks = RANKS, .stages = STAGES, .microbatches = MICROBATCHES, .stage = stages, .room = room};
	struct pp_rows_input input = {.name = "mine",
	                              .block = block,
	                              .place = block->name.span,
	                              .ranks = RANKS,
	                              .stages = STAGES,
	                              .microbatches = MICROBATCHES,
	                              .stage_rank = stage_rank,
	                              .strings = strings,
	                              .sources = sources};
	struct pp_schedule schedule;
	struct pp_order_times times;
	bool ok = pp_rules_make(arena, &input, &problem, draft, diag, &schedule);
	if (ok != pp_diag_ok(diag) || (ok && !pp_schedule_check(arena, &schedule, diag)) ||
	    (ok && !pp_order_run(arena, &problem, schedule.rows, false, &times)) || (ok && !times.fits))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_strtab *strings = pp_strtab_create(arena);
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	const struct pp_source *source =
	    pp_sources_add(sources, "fuzz.pipe", pp_arena_copy(arena, (const char *)bytes, length), length);
	const struct pp_ast *ast = source ? pp_parse(arena, strings, source, diag) : NULL;
	const struct pp_stmt *stmt = ast && pp_diag_ok(diag) ? ast->first : NULL;
	for (unsigned made = 0; stmt && made < 8; stmt = stmt->next) {
		if (stmt->kind != PP_STMT_BLOCK || strcmp(stmt->name.text, "schedule") != 0 || !pp_rules_block(stmt))
			continue;
		for (int draft = 0; draft < 2; draft++) {
			struct pp_diag *own = pp_diag_create(arena, sources);
			run(arena, strings, sources, stmt, draft, own);
			print_messages(own);
		}
		made++;
	}
	pp_arena_destroy(arena);
	return 0;
}
