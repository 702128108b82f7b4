/* A schedule: for each pipeline rank the order of its compute actions, and nothing else. What a policy yields and
 * the lowering consumes. Text form: the CSV grid of torch.distributed.pipelining (schedule_read.h). */
#ifndef PP_SCHEDULE_H
#define PP_SCHEDULE_H

#include "arena.h"
#include "diag.h"
#include "source.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* F forward, B full backward, I input gradient, W weight gradient (PyTorch's letters). */
enum pp_action_kind { PP_F, PP_B, PP_I, PP_W, PP_ACTION_KINDS };

struct pp_action {
	uint32_t stage, mb;
	uint8_t kind;
	bool paired;         /* overlapped with the next action of the row */
	struct pp_span span; /* where the user wrote it, or PP_NO_SPAN */
};

struct pp_row {
	struct pp_action *actions;
	uint32_t count;
};

struct pp_search_report;

struct pp_schedule {
	const char *name; /* of the policy, for people */
	uint32_t ranks, stages, microbatches;
	bool by_stage;                         /* its actions are known as 2F0, with the stage in front, not as F0.1 */
	uint32_t *stage_rank;                  /* [stages]: the rank a stage lives on */
	struct pp_row *rows;                   /* [ranks] */
	const struct pp_search_report *search; /* of `schedule search`: how it went (compiler/search/search.h), or NULL */
	const char *remarks;                   /* lines that its maker leaves for --verbose, or NULL */
};

/* Check a schedule: each (stage, mb) has one F and either one B or one I and one W, on the stage's rank (E0603,
 * E0609); W after I, I/B after F where they share a row (E0606); rows and data flow together are acyclic, else the
 * shortest cycle is reported (E0605); pairs are two actions that can begin together (E0624). O(actions). */
bool pp_schedule_check(struct pp_arena *arena, const struct pp_schedule *schedule, struct pp_diag *diag);

/* Print as CSV: one row per rank, `2F0` cells, compute only, in order, no time alignment. */
void pp_schedule_print(const struct pp_schedule *schedule, FILE *out);

#endif
