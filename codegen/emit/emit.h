/* Views of a program for people and exports for other tools: one emit_NAME.c each, all writing to dump->out. */
#ifndef PP_EMIT_H
#define PP_EMIT_H

#include "codegen/trace_read.h"
#include "ir/arena.h"
#include "ir/figures.h"
#include "ir/json.h"
#include "ir/program.h"
#include "ir/simulate.h"
#include "ir/status.h"

#include <stdio.h>

struct pp_dump {
	struct pp_arena *arena;
	FILE *out;
	const char *file; /* as the user named it */
	const struct pp_program *program;
	const struct pp_named_program *named;
	const struct pp_sim *sim; /* with intervals; NULL for views that show no times */
	const bool *chosen;       /* [ranks] */
	const uint32_t *chunk;    /* [stages]: position among the stages of its rank */
	bool costless;            /* a schedule alone: times are units, values have no bytes */
	struct pp_time_unit unit;
	uint32_t width;    /* columns of the terminal */
	uint32_t pixels;   /* of a picture, 0: as wide as it wants */
	uint64_t from, to; /* ns, window of Gantt and memory curve; to = UINT64_MAX: the end */
	bool bytes;        /* memory in bytes instead of stashes */
	bool color, utf8;
	const char *transport; /* whose progress model the times are for, "none": data moves on its own */
};

void pp_emit_header(const struct pp_dump *dump); /* one line: what this program is */
void pp_emit_stats(const struct pp_dump *dump);
void pp_emit_gantt(const struct pp_dump *dump);
void pp_emit_list(const struct pp_dump *dump);
void pp_emit_memory(const struct pp_dump *dump);
void pp_emit_map(const struct pp_dump *dump);
void pp_emit_tables(const struct pp_dump *dump);

/* The same as one JSON object, with "schema": "pipec.NAME/1". */
void pp_emit_stats_json(const struct pp_dump *dump);
void pp_emit_gantt_json(const struct pp_dump *dump);
void pp_emit_list_json(const struct pp_dump *dump);
void pp_emit_memory_json(const struct pp_dump *dump);
void pp_emit_map_json(const struct pp_dump *dump);
void pp_emit_tables_json(const struct pp_dump *dump);

/* PyTorch's schedule files: compute only, one column per step, time-aligned; or every action with its transfers. */
void pp_emit_csv(const struct pp_dump *dump);
void pp_emit_csv_comms(const struct pp_dump *dump);
/* What PyTorch cannot do with such a file, for people; NULL: nothing. */
const char *pp_csv_note(const struct pp_dump *dump);

/* The order of the computes as a `schedule` block that compiles to it again. name NULL: one made of the schedule's. */
void pp_emit_rows(const struct pp_dump *dump, const char *name);

void pp_emit_trace(const struct pp_dump *dump);
void pp_emit_gantt_svg(const struct pp_dump *dump); /* a standalone picture */

/* A trace or a profile of a run. */
struct pp_measured_file {
	const char *path;
	char *text;
	size_t length;
	struct pp_json_head head;
};

bool pp_measured_file_read(struct pp_arena *arena, const char *path, struct pp_measured_file *file,
                           struct pp_status *status);

/* Predicted against measured: a file of a run of this program. */
bool pp_emit_diff(const struct pp_dump *dump, const struct pp_measured_file *file, bool json, struct pp_status *status);

/* Two programs side by side: figures, idle time by cause, memory, where the orders of their ranks part. Written to
 * the stream of the first. JSON has "schema": "pipec.compare/1". */
void pp_emit_diff_programs(const struct pp_dump *first, const struct pp_dump *second, bool json);

/* ---- helpers of the emitters (text.c) -------------------------------------------------------- */

const char *pp_dump_time_unit(const struct pp_dump *dump);         /* of the times in JSON */
const char *pp_dump_time(const struct pp_dump *dump, uint64_t ns); /* in dump->unit, without its name */

/* "F3", or "F3.1" for chunk 1 of a rank that holds several stages. */
const char *pp_dump_action(const struct pp_dump *dump, const struct pp_instr *instr);

/* F B I W R of a compute instruction, '\0' for others. */
char pp_compute_letter(const struct pp_instr *instr);

/* What a rank's memory holds over time, from the intervals of the run. */
struct pp_curve {
	uint64_t *at;    /* ns, ascending */
	uint64_t *value; /* from at[i] on */
	size_t count;
	uint64_t peak, peak_at;
};

/* Stashes held (`bytes` false) or live bytes, static slots included. */
struct pp_curve pp_memory_curve(const struct pp_dump *dump, uint32_t rank, bool bytes);

/* Of the costs of stages, which may be far below the unit of the whole step. */
struct pp_time_unit pp_stage_unit(const struct pp_dump *dump);

/* Parameters of the model in a use of a tensor, without rows that pad the vocabulary; and in the distinct tensors of a
 * pipeline rank. */
uint64_t pp_use_params(const struct pp_program *program, uint32_t use);
uint64_t pp_rank_params(const struct pp_program *program, uint32_t rank);

#endif
