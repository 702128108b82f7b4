/* Print a schedule as the CSV grid of torch.distributed.pipelining, compute only. An overlapped pair is one cell,
 * (0F7;7B3)OVERLAP_F_B. */
#include "ir/schedule.h"

static const char letters[PP_ACTION_KINDS] = {'F', 'B', 'I', 'W'};

static void print_action(const struct pp_action *action, FILE *out)
{
	fprintf(out, "%u%c%u", action->stage, letters[action->kind], action->mb);
}

static void print_row(const struct pp_row *row, FILE *out)
{
	for (uint32_t i = 0; i < row->count; i++) {
		if (i)
			fputc(',', out);
		bool paired = row->actions[i].paired && i + 1 < row->count;
		if (!paired) {
			print_action(&row->actions[i], out);
			continue;
		}
		fputc('(', out);
		print_action(&row->actions[i++], out);
		fputc(';', out);
		print_action(&row->actions[i], out);
		fputs(")OVERLAP_F_B", out);
	}
	fputc('\n', out);
}

void pp_schedule_print(const struct pp_schedule *schedule, FILE *out)
{
	for (uint32_t rank = 0; rank < schedule->ranks; rank++)
		print_row(&schedule->rows[rank], out);
}
