/* Time of the search against size: value, bound and gap of 1F1B's memory and of half of it. */
#include "compiler/search/search.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* F, I, W = 10, 11, 7 ms of a rank, hops of 1 ms; room for `limit` microbatches. */
static void measure(uint32_t ranks, uint32_t chunks, uint32_t microbatches, uint32_t limit)
{
	static const uint64_t ticks[] = {[PP_F] = 10000000, [PP_B] = 18000000, [PP_I] = 11000000, [PP_W] = 7000000};
	struct pp_arena *arena = pp_arena_create(NULL);
	uint32_t stages = ranks * chunks;
	struct pp_order_stage *stage = PP_NEW_ARRAY(arena, struct pp_order_stage, stages);
	uint64_t *room = PP_NEW_ARRAY(arena, uint64_t, ranks);
	struct pp_row *rows = PP_NEW_ARRAY(arena, struct pp_row, ranks);
	for (uint32_t s = 0; s < stages; s++) {
		stage[s] =
		    (struct pp_order_stage){.rank = s / ranks % 2 ? ranks - 1 - s % ranks : s % ranks, .held = 1000 / chunks};
		for (unsigned kind = 0; kind < PP_ACTION_KINDS; kind++)
			stage[s].ticks[kind] = ticks[kind] / chunks;
	}
	for (uint32_t s = 0; s + 1 < stages; s++)
		if (stage[s].rank != stage[s + 1].rank)
			stage[s].forward_hop = stage[s + 1].backward_hop = 1000000;
	for (uint32_t r = 0; r < ranks; r++)
		room[r] = (uint64_t)1000 * limit;
	struct pp_order_problem problem = {ranks, stages, microbatches, stage, room, 1000, false, NULL};
	struct pp_search_options options = {.seed = 1};
	struct pp_search_report report;
	double begun = now();
	pp_search(arena, &problem, &options, rows, &report);
	double seconds = now() - begun;
	printf("%5" PRIu32 " %5" PRIu32 " %5" PRIu32 " %5" PRIu32 " %9.1f ms %6.2f %% %6.2f s  %s, %s\n", ranks, chunks,
	       microbatches, limit, (double)report.value * 1e-6,
	       100.0 * ((double)report.value / (double)report.bound.makespan - 1), seconds, report.start, report.stopped);
	pp_arena_destroy(arena);
}

int main(void)
{
	puts("    p     v     m limit     makespan      gap      CPU  from, stopped by");
	for (uint32_t ranks = 4; ranks <= 64; ranks *= 2)
		for (uint32_t chunks = 1; chunks <= 2; chunks++)
			for (uint32_t limit = ranks; limit >= ranks / 2; limit -= ranks / 2)
				measure(ranks, chunks, ranks == 64 ? 1024 : 4 * ranks, limit);
	return 0;
}
