/* Schedules as CSV in the vocabulary of torch.distributed.pipelining: one row per rank, cells such as 2F0 (stage,
 * action, microbatch), overlapped pairs as (0F7;7B3)OVERLAP_F_B.
 *
 * compute_only is a grid: a column is a step in which every action takes one unit, an empty cell is a step without
 * action (a loader posts receives by column). Recompute is no action there: a stage's module does it in backward. An
 * action stands in the first column after those of its predecessor on the rank and of the action that makes its input;
 * a row ends with its last action. Lines end with LF. ir/csv.h says what such files may hold; what is written here
 * passes that, and the rules of PyTorch's own loader. */
#include "emit.h"

#include "ir/lifetime.h"
#include "ir/rows_print.h"

#include <string.h>

static const uint32_t unplaced = UINT32_MAX;

static bool is_action(const struct pp_instr *instr)
{
	return pp_is_compute(instr) && instr->op != PP_OP_REMAT;
}

/* Column of each finished action by (stage, microbatch): one array for forwards, one for (input) gradients. */
struct columns {
	uint32_t *forward, *gradient;
	uint32_t microbatches;
};

static uint32_t *column_slot(const struct columns *columns, bool forward, uint32_t stage, uint32_t mb)
{
	return &(forward ? columns->forward : columns->gradient)[(size_t)stage * columns->microbatches + mb];
}

/* Column of the action that makes the input, `unplaced` if it has none yet; *wanted: there is such an action. */
static uint32_t input_column(const struct pp_program *program, const struct columns *columns,
                             const struct pp_instr *instr, bool *wanted)
{
	bool forward = instr->op == PP_OP_FWD;
	*wanted = forward ? instr->stage > 0 : instr->op != PP_OP_BWDW && instr->stage + 1 < program->stage_count;
	if (!*wanted)
		return unplaced;
	return *column_slot(columns, forward, forward ? instr->stage - 1 : instr->stage + 1, instr->mb);
}

/* First column in which this action and, for a pair, the next one may stand; `unplaced` if an input is missing. */
static uint32_t earliest(const struct pp_program *program, const struct columns *columns, const struct pp_instr *instr,
                         uint32_t after)
{
	bool wanted;
	uint32_t input = input_column(program, columns, instr, &wanted);
	if (wanted && input == unplaced)
		return unplaced;
	return wanted && input + 1 > after ? input + 1 : after;
}

static void record(const struct columns *columns, const struct pp_instr *instr, uint32_t column)
{
	if (instr->op != PP_OP_BWDW)
		*column_slot(columns, instr->op == PP_OP_FWD, instr->stage, instr->mb) = column;
}

struct row {
	struct pp_instr *actions; /* compute only */
	uint32_t *column;
	uint32_t count, done, next_column;
};

static void fill_row(struct pp_arena *arena, const struct pp_stream *stream, struct row *row)
{
	for (uint32_t i = 0; i < stream->count; i++)
		row->count += is_action(&stream->items[i]);
	row->actions = PP_NEW_ARRAY(arena, struct pp_instr, row->count);
	row->column = PP_NEW_ARRAY(arena, uint32_t, row->count);
	uint32_t at = 0;
	for (uint32_t i = 0; i < stream->count; i++)
		if (is_action(&stream->items[i]))
			row->actions[at++] = stream->items[i];
}

/* Place as many actions as have their inputs. */
static bool advance(const struct pp_program *program, const struct columns *columns, struct row *row)
{
	uint32_t before = row->done;
	while (row->done < row->count) {
		const struct pp_instr *instr = &row->actions[row->done];
		bool pair = (instr->flags & PP_PAIR) && row->done + 1 < row->count;
		uint32_t column = earliest(program, columns, instr, row->next_column);
		if (pair && column != unplaced)
			column = earliest(program, columns, instr + 1, column);
		if (column == unplaced)
			break;
		row->column[row->done++] = column;
		record(columns, instr, column);
		if (pair) {
			row->column[row->done++] = column;
			record(columns, instr + 1, column);
		}
		row->next_column = column + 1;
	}
	return row->done > before;
}

static struct row *place_all(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	size_t cells = (size_t)program->stage_count * program->microbatches;
	struct columns columns = {.microbatches = program->microbatches};
	columns.forward = PP_NEW_ARRAY(dump->arena, uint32_t, cells);
	columns.gradient = PP_NEW_ARRAY(dump->arena, uint32_t, cells);
	memset(columns.forward, 0xff, cells * sizeof(uint32_t));
	memset(columns.gradient, 0xff, cells * sizeof(uint32_t));
	struct row *rows = PP_NEW_ARRAY(dump->arena, struct row, program->ranks);
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		fill_row(dump->arena, &dump->named->streams[rank], &rows[rank]);
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t rank = 0; rank < program->ranks; rank++)
			moved = advance(program, &columns, &rows[rank]) || moved;
	}
	return rows;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void print_action(const struct pp_dump *dump, const struct pp_instr *instr)
{
	fprintf(dump->out, "%u%c%u", instr->stage, pp_compute_letter(instr), instr->mb);
}

static void print_pair(const struct pp_dump *dump, const struct pp_instr *first, const struct pp_instr *second)
{
	fputc('(', dump->out);
	print_action(dump, first);
	fputc(';', dump->out);
	print_action(dump, second);
	fputs(")OVERLAP_F_B", dump->out); /* whatever the letters: PyTorch has no other container */
}

void pp_emit_csv(const struct pp_dump *dump)
{
	const struct row *rows = place_all(dump);
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++) {
		if (!dump->chosen[rank])
			continue;
		uint32_t at = 0;
		for (uint32_t column = 0; at < rows[rank].done; column++) {
			if (column)
				fputc(',', dump->out);
			if (rows[rank].column[at] != column)
				continue;
			const struct pp_instr *instr = &rows[rank].actions[at++];
			if (at < rows[rank].done && rows[rank].column[at] == column)
				print_pair(dump, instr, &rows[rank].actions[at++]);
			else
				print_action(dump, instr);
		}
		fputc('\n', dump->out);
	}
}

/* Every action with its transfers, in the order of the stream and without empty cells (the loader rejects them). */
void pp_emit_csv_comms(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		const struct pp_stream *stream = &dump->named->streams[rank];
		const char *comma = "";
		for (uint32_t i = 0; dump->chosen[rank] && i < stream->count; i++) {
			const struct pp_instr *instr = &stream->items[i];
			bool message = instr->op == PP_OP_SEND || instr->op == PP_OP_RECV;
			if (!message && !is_action(instr))
				continue;
			fputs(comma, dump->out);
			comma = ",";
			bool pair = (instr->flags & PP_PAIR) && i + 1 < stream->count && pp_is_compute(instr + 1);
			if (pair) {
				print_pair(dump, instr, instr + 1);
				i++;
			} else if (message) {
				bool grad = program->channels[instr->a[0]].kind == PP_GRAD;
				uint32_t stage = instr->op == PP_OP_SEND ? instr->stage : grad ? instr->stage - 1 : instr->stage + 1;
				fprintf(dump->out, "%u%s_%c%u", stage, instr->op == PP_OP_SEND ? "SEND" : "RECV", grad ? 'B' : 'F',
				        instr->mb);
			} else
				print_action(dump, instr);
		}
		if (dump->chosen[rank])
			fputc('\n', dump->out);
	}
}

const char *pp_csv_note(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	uint32_t *ranks = PP_NEW_ARRAY(dump->arena, uint32_t, program->stage_count);
	for (uint32_t s = 0; s < program->stage_count; s++)
		ranks[s] = program->stages[s].rank;
	for (uint32_t r = 0; r < program->ranks; r++)
		if (!dump->chosen[r])
			return "a loader wants all rows: leave --rank out";
	if (pp_is_forward_only(dump->named))
		return "PyTorch refuses a schedule without backwards; this shows the order alone";
	const char *place = pp_place_text(dump->arena, program->ranks, program->stage_count, ranks);
	if (strcmp(place, "loop") == 0 || strcmp(place, "v") == 0)
		return NULL;
	return pp_arena_printf(dump->arena,
	                       "place = %s is neither loop nor v: _PipelineScheduleRuntime takes it from the file, no "
	                       "schedule class of PyTorch places its stages so",
	                       place);
}
