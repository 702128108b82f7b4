/* The rules by which torch.distributed.pipelining takes a schedule file, written down apart from our own reader: a cell
 * is stage, letters, microbatch; what the loader's validation counts; what its lowering and its simulation of messages
 * need; what a run column by column needs. For tests of files that we write: each rule answers with NULL or what it
 * misses. */
#ifndef TORCH_RULES_H
#define TORCH_RULES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TORCH_RANKS = 16, TORCH_STAGES = 64, TORCH_MBS = 64, TORCH_CELLS = 4096 };

struct torch_action {
	int stage, mb, column;
	char kind[12];
};

struct torch_file {
	int ranks, stages;
	int count[TORCH_RANKS], columns[TORCH_RANKS];
	struct torch_action rows[TORCH_RANKS][TORCH_CELLS];
	bool blanks;
	int home[TORCH_STAGES];
};

/* Digits, then upper-case letters and `_`, then digits or none. */
static inline const char *torch_action_read(const char *at, struct torch_action *action)
{
	char *end;
	if (*at < '0' || *at > '9')
		return NULL;
	action->stage = (int)strtol(at, &end, 10);
	size_t letters = strspn(end, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
	if (letters == 0 || letters >= sizeof action->kind)
		return NULL;
	memcpy(action->kind, end, letters);
	action->kind[letters] = '\0';
	at = end + letters;
	action->mb = -1;
	if (*at >= '0' && *at <= '9') {
		action->mb = (int)strtol(at, &end, 10);
		at = end;
	}
	return at;
}

static inline void torch_push(struct torch_file *file, struct torch_action action)
{
	file->rows[file->ranks][file->count[file->ranks]++] = action;
	if (action.stage >= file->stages)
		file->stages = action.stage + 1;
}

/* Read a file of ours: no quotes, lines end with LF. */
static inline const char *torch_read(const char *text, struct torch_file *file)
{
	memset(file, 0, sizeof *file);
	for (const char *at = text; *at; file->ranks++) {
		for (int column = 0;; column++) {
			struct torch_action a = {.column = column}, b = {.column = column};
			if (*at == '(') {
				at = torch_action_read(at + 1, &a);
				at = at && *at == ';' ? torch_action_read(at + 1, &b) : NULL;
				if (!at || strncmp(at, ")OVERLAP_F_B", 12) != 0)
					return "a container is two actions and OVERLAP_F_B";
				at += 12;
				torch_push(file, a);
				torch_push(file, b);
			} else if (*at == ',' || *at == '\n') {
				file->blanks = true;
			} else {
				at = torch_action_read(at, &a);
				if (!at)
					return "a cell is stage, letters, microbatch";
				torch_push(file, a);
			}
			file->columns[file->ranks] = column + 1;
			if (*at == '\n')
				break;
			if (*at != ',')
				return "cells are separated by commas";
			at++;
		}
		at++;
	}
	return NULL;
}

static inline bool torch_is(const struct torch_action *action, const char *kind)
{
	return strcmp(action->kind, kind) == 0;
}

static inline bool torch_is_compute(const struct torch_action *action)
{
	return strlen(action->kind) == 1 && strchr("FBIW", action->kind[0]);
}

/* What the loader counts. `compute_only`: nothing but computes. */
static inline const char *torch_validate(struct torch_file *file, int ranks, int microbatches, bool compute_only)
{
	static bool seen[4][TORCH_STAGES][TORCH_MBS];
	static int count[4][TORCH_STAGES];
	memset(seen, 0, sizeof seen);
	memset(count, 0, sizeof count);
	memset(file->home, 0xff, sizeof file->home);
	if (file->ranks != ranks)
		return "as many rows as ranks";
	for (int rank = 0; rank < ranks; rank++)
		for (int i = 0; i < file->count[rank]; i++) {
			const struct torch_action *action = &file->rows[rank][i];
			if (file->home[action->stage] < 0)
				file->home[action->stage] = rank;
			if (file->home[action->stage] != rank)
				return "a stage is on one rank";
			if (!torch_is_compute(action)) {
				if (compute_only)
					return "nothing but F B I W";
				continue;
			}
			if (action->mb < 0 || action->mb >= microbatches)
				return "microbatches within their range";
			int kind = (int)(strchr("FBIW", action->kind[0]) - "FBIW");
			if ((kind == 1 || kind == 2) && !seen[0][action->stage][action->mb])
				return "B and I after F";
			if (kind == 3 && !seen[2][action->stage][action->mb])
				return "W after I";
			if (seen[kind][action->stage][action->mb])
				return "each once";
			seen[kind][action->stage][action->mb] = true;
			count[kind][action->stage]++;
		}
	for (int stage = 0; stage < file->stages; stage++)
		if (count[0][stage] != microbatches || count[2][stage] != count[3][stage] ||
		    count[1][stage] + count[2][stage] != microbatches)
			return "per stage m F, as many I as W, m B and I";
	return NULL;
}

/* The column of an action that makes the input, -1: none needed; *local: on the same rank. */
static inline int torch_input(const struct torch_file *file, const struct torch_action *action, bool *local)
{
	bool forward = torch_is(action, "F");
	int from = forward ? action->stage - 1 : action->stage + 1;
	*local = true;
	if (torch_is(action, "W") || from < 0 || from >= file->stages)
		return -1;
	int rank = file->home[from];
	*local = rank == file->home[action->stage];
	for (int i = 0; i < file->count[rank]; i++) {
		const struct torch_action *maker = &file->rows[rank][i];
		if (maker->stage == from && maker->mb == action->mb && torch_is_compute(maker) && !torch_is(maker, "W") &&
		    torch_is(maker, "F") == forward)
			return maker->column;
	}
	return TORCH_CELLS;
}

/* Column by column: what comes from another rank was made in an earlier column; blanks are steps. */
static inline const char *torch_columns(const struct torch_file *file)
{
	for (int rank = 0; rank < file->ranks; rank++)
		for (int i = 0; i < file->count[rank]; i++) {
			bool local;
			int made = torch_input(file, &file->rows[rank][i], &local);
			if (made >= 0 && !local && made >= file->rows[rank][i].column)
				return "inputs come from earlier columns";
		}
	return NULL;
}

/* Messages: rows are worked through in order; a SEND comes after its compute, a RECV after the SEND of its peer was
 * issued, a compute after its RECV. Ends when nothing moves: everything must have. */
static inline const char *torch_messages(const struct torch_file *file)
{
	static bool done[4][2][TORCH_STAGES][TORCH_MBS]; /* computed, sent, received: of backwards, of forwards */
	int at[TORCH_RANKS] = {0}, left = 0;
	memset(done, 0, sizeof done);
	if (file->blanks)
		return "no blank cells";
	for (int rank = 0; rank < file->ranks; rank++)
		left += file->count[rank];
	for (bool moved = true; moved;) {
		moved = false;
		for (int rank = 0; rank < file->ranks; rank++)
			for (; at[rank] < file->count[rank]; at[rank]++, left--, moved = true) {
				const struct torch_action *a = &file->rows[rank][at[rank]];
				bool forward = torch_is(a, "F") || strcmp(a->kind + (strlen(a->kind) - 1), "F") == 0, local;
				bool *mine[3] = {&done[0][forward][a->stage][a->mb], &done[1][forward][a->stage][a->mb],
				                 &done[2][forward][a->stage][a->mb]};
				int from = forward ? a->stage - 1 : a->stage + 1;
				bool ready = true;
				if (torch_is_compute(a)) {
					bool wants = torch_input(file, a, &local) >= 0;
					ready = !wants || (local ? done[0][forward][from][a->mb] : *mine[2]);
				} else if (strncmp(a->kind, "SEND", 4) == 0) {
					ready = *mine[0];
				} else {
					ready = done[1][forward][from][a->mb];
				}
				if (!ready)
					break;
				if (!torch_is(a, "W"))
					*mine[torch_is_compute(a) ? 0 : strncmp(a->kind, "SEND", 4) == 0 ? 1 : 2] = true;
			}
	}
	return left ? "every action runs" : NULL;
}

#endif
