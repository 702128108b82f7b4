/* A program's order as a `schedule NAME { order { … } }` that compiles to it again: whatever made it, it is fixed from
 * then on. The rows: ir/rows_print.h. */
#include "emit.h"

#include "ir/order_program.h"
#include "ir/rows_print.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static void write_place(const struct pp_dump *dump, const uint32_t *stage_rank)
{
	const struct pp_program *program = dump->program;
	const char *place = pp_place_text(dump->arena, program->ranks, program->stage_count, stage_rank);
	if (program->vpp == 1 && strcmp(place, "loop") == 0)
		return; /* as if nothing is said */
	if (place[0] != '[')
		fprintf(dump->out, ", vpp = %u", program->vpp);
	fprintf(dump->out, ", place = %s", place);
}

/* NAME_rows where the name of the schedule makes one. */
static const char *name_of(const struct pp_dump *dump)
{
	const char *name = dump->program->schedule_name;
	bool plain = name && isalpha((unsigned char)name[0]) && strlen(name) < 40;
	for (const char *at = name; plain && *at; at++)
		plain = isalnum((unsigned char)*at) || *at == '_';
	return plain ? pp_arena_printf(dump->arena, "%s_rows", name) : "frozen";
}

/* What an order does not fix: the split that it was made for, and the room. */
static void write_surroundings(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	uint64_t room = 0;
	bool titled = true;
	for (uint32_t s = 0; s < program->stage_count; s++)
		titled &= program->stages[s].title && *program->stages[s].title;
	for (uint32_t s = 0; s < program->stage_count && titled; s++)
		fprintf(dump->out, "%s%s", s ? " | " : "# stages: ", program->stages[s].title);
	if (titled)
		fputc('\n', dump->out);
	for (uint32_t r = 0; r < program->ranks; r++) {
		uint64_t free = program->rank[r].capacity - program->rank[r].reserve;
		room = program->rank[r].capacity && (room == 0 || free < room) ? free : room;
	}
	if (room)
		fprintf(dump->out, "# a rank could use %s: memory <= %" PRIu64 "B\n", pp_show_bytes(dump->arena, room), room);
}

static void write_pair_cost(const struct pp_dump *dump, const struct pp_row *rows)
{
	const struct pp_program *program = dump->program;
	bool pairs = false;
	for (uint32_t r = 0; r < program->ranks; r++)
		for (uint32_t i = 0; i < rows[r].count; i++)
			pairs |= rows[r].actions[i].paired;
	if (!pairs || program->cost.pair_permille == 1000)
		return;
	fprintf(dump->out, "  overlap F&B = %u.%03u\n", program->cost.pair_permille / 1000,
	        program->cost.pair_permille % 1000);
}

void pp_emit_rows(const struct pp_dump *dump, const char *name)
{
	const struct pp_program *program = dump->program;
	struct pp_schedule schedule = {.ranks = program->ranks,
	                               .stages = program->stage_count,
	                               .microbatches = program->microbatches,
	                               .stage_rank = PP_NEW_ARRAY(dump->arena, uint32_t, program->stage_count),
	                               .rows = pp_order_rows_of(dump->arena, program, dump->named)};
	for (uint32_t s = 0; s < program->stage_count; s++)
		schedule.stage_rank[s] = program->stages[s].rank;
	fprintf(dump->out, "# for pp = %u", program->ranks);
	write_place(dump, schedule.stage_rank);
	fprintf(dump->out, ", microbatches = %u\n", program->microbatches);
	write_surroundings(dump);
	fprintf(dump->out, "schedule %s {\n", name ? name : name_of(dump));
	write_pair_cost(dump, schedule.rows);
	pp_rows_print(dump->arena, &schedule, dump->out);
	fputs("}\n", dump->out);
}
