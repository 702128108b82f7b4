/* A schedule as rows of the language, one per rank, which compile to it again. */
#ifndef PP_ROWS_PRINT_H
#define PP_ROWS_PRINT_H

#include "schedule.h"

/* The `order { row | row … }` of a schedule that passes pp_schedule_check, indented by two blanks. `arena`: scratch. */
void pp_rows_print(struct pp_arena *arena, const struct pp_schedule *schedule, FILE *out);

/* Ranks of the stages as `place` wants them: "loop", "v", "linear", or a list "[0, 1, 1, 0]"; in the arena. */
const char *pp_place_text(struct pp_arena *arena, uint32_t ranks, uint32_t stages, const uint32_t *stage_rank);

#endif
