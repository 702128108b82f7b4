/* A schedule as rows of the language, one per rank, every action by its stage: `order { 0F0 0F1 0B0 … | 1F0 … }`. */
#ifndef PP_ROWS_PRINT_H
#define PP_ROWS_PRINT_H

#include "schedule.h"

/* The `order` statement, indented by two blanks, lines of at most 120 columns; a comment in front of each row. */
void pp_rows_print(const struct pp_schedule *schedule, FILE *out);

/* Ranks of the stages as `place` wants them: "loop", "v", "linear", or a list "[0, 1, 1, 0]"; in the arena. */
const char *pp_place_text(struct pp_arena *arena, uint32_t ranks, uint32_t stages, const uint32_t *stage_rank);

#endif
