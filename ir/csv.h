/* Schedules in the CSV of torch.distributed.pipelining: row i is rank i, each cell one action of a stage.
 *
 *     0F0,0F1,,0I0,0W0                 compute alone; a blank cell is an idle step of the grid
 *     (0F7;7B3)OVERLAP_F_B             two actions of two stages that may overlap
 *     0F0,0SEND_F0,1RECV_B0,0UNSHARD   with messages: each names its own stage, the other end is the stage beside it;
 *                                      gathering and dropping of sharded weights, reduction of gradients: no microbatch
 *
 * The file says nothing else: ranks are rows, a stage lives where its actions are, the microbatches are as many as the
 * largest number says. Letters changed once: in old files B was the input gradient and BW the whole backward.
 *
 * Reading is strict. Every message names row and cell, both from 1. */
#ifndef PP_CSV_H
#define PP_CSV_H

#include "schedule.h"

/* Kinds of cells: those of enum pp_action_kind, then: */
enum pp_csv_kind {
	PP_CSV_SEND_F = PP_ACTION_KINDS,
	PP_CSV_RECV_F,
	PP_CSV_SEND_B,
	PP_CSV_RECV_B,
	PP_CSV_UNSHARD,
	PP_CSV_RESHARD,
	PP_CSV_REDUCE_GRAD,
	PP_CSV_KINDS
};

extern const char *const pp_csv_kind_name[PP_CSV_KINDS]; /* F B I W SEND_F … */

struct pp_csv_cell {
	uint32_t stage, mb; /* mb 0 where the kind has none */
	uint32_t column;    /* of the file, from 0 */
	uint8_t kind;
	bool paired; /* overlaps with the next cell, which has the same column */
	struct pp_span span;
};

struct pp_csv_row {
	struct pp_csv_cell *cells;
	uint32_t count;
};

struct pp_csv {
	const struct pp_source *source;
	uint32_t ranks, stages, microbatches;
	uint32_t *stage_rank; /* [stages] */
	struct pp_csv_row *rows;
	bool comms;  /* holds more than compute */
	bool legacy; /* was written with the old letters */
};

/* Most cells of a file. */
enum { PP_CSV_MOST_CELLS = 1 << 25 };

/* Does this look like such a file? For telling files apart, by content. */
bool pp_csv_looks_like(const char *text, size_t length);

/* The cells of a file; `legacy`: B and BW are the old letters. NULL after errors in diag: E0613 for a cell, E0609 for a
 * stage on two rows or on none, E0623 for too many cells, E0650 for the file as a whole, E0651 for old letters. Not
 * checked: counts and order, for which there is pp_csv_check. */
struct pp_csv *pp_csv_read(struct pp_arena *arena, const struct pp_source *source, bool legacy, struct pp_diag *diag);

/* Its compute alone, in order; known by stage, with a name of the language made from that of the file: its last part up
 * to the first dot, other characters as `_`. */
struct pp_schedule *pp_csv_schedule(struct pp_arena *arena, const struct pp_csv *csv);

/* pp_schedule_check of the compute, and before it what is wrong in a way of these files alone (E0651, E0652). */
bool pp_csv_check(struct pp_arena *arena, const struct pp_csv *csv, const struct pp_schedule *schedule,
                  struct pp_diag *diag);

/* Where the actions of a row stand column by column: does every input of an action come from an earlier column? Loaders
 * that take columns for steps need that; those that only keep the order do not. Without messages. */
bool pp_csv_aligned(struct pp_arena *arena, const struct pp_csv *csv);

/* "csv row 2, cell 9" */
const char *pp_csv_place(struct pp_arena *arena, uint32_t rank, const struct pp_csv_cell *cell);

/* "2SEND_F4", "0UNSHARD" */
const char *pp_csv_text(struct pp_arena *arena, const struct pp_csv_cell *cell);

#endif
