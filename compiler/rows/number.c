/* Raw actions to numbered ones. Requires a row that pp_row_expand accepted. Ensures: F once and backward once per chunk
 * and microbatch are counted right (E0603), no row mixes numberings (E0607), every bare W has a weight gradient to take
 * (E0606). Linear in the row. */
#include "internal.h"

#include <inttypes.h>

/* How often each chunk has each action; a bare W belongs to no chunk. */
struct counts {
	uint64_t (*chunk)[PP_ACTION_KINDS];
	uint64_t total[PP_ACTION_KINDS];
};

static struct counts count_actions(const struct pp_row_build *row)
{
	struct counts counts = {.chunk = pp_arena_alloc(row->arena, row->chunks + 1, sizeof *counts.chunk)};
	for (size_t i = 0; i < row->count; i++) {
		const struct pp_raw_action *action = &row->actions[i];
		counts.total[action->kind]++;
		if (action->chunk != PP_NO_NUMBER)
			counts.chunk[action->chunk][action->kind]++;
	}
	return counts;
}

/* The last action of this kind and chunk: where a missing one would stand, and where a surplus one does. */
static struct pp_span last_span(const struct pp_row_build *row, uint32_t kind, uint32_t other, uint32_t chunk)
{
	for (size_t i = row->count; i-- > 0;) {
		const struct pp_raw_action *action = &row->actions[i];
		if ((action->kind == kind || action->kind == other) &&
		    (action->chunk == chunk || action->chunk == PP_NO_NUMBER))
			return action->span;
	}
	return row->span;
}

static void wrong_count(struct pp_row_build *row, const char *title, uint64_t count, struct pp_span at)
{
	uint32_t m = row->input->microbatches;
	struct pp_message *message =
	    pp_error(row->diag, "E0603", row->input->shipped ? row->input->place : at,
	             "rank %u: %s count is %" PRIu64 ", wanted m = %u", row->rank, title, count, m);
	if (count < m)
		pp_help(message, "add %" PRIu64, m - count);
	else
		pp_help(message, "remove %" PRIu64, count - m);
}

static bool check_chunk(struct pp_row_build *row, const struct counts *counts, uint32_t chunk)
{
	const uint64_t *count = counts->chunk[chunk];
	uint32_t m = row->input->microbatches;
	if (count[PP_F] != m) {
		const char *title = pp_arena_printf(row->arena, "`%s`", pp_row_action_title(row, 'F', chunk));
		wrong_count(row, title, count[PP_F], last_span(row, PP_F, PP_F, chunk));
		return false;
	}
	if (count[PP_B] + count[PP_I] == m)
		return true;
	const char *b = pp_row_action_title(row, 'B', chunk), *i = pp_row_action_title(row, 'I', chunk);
	const char *title = !count[PP_I]   ? pp_arena_printf(row->arena, "`%s`", b)
	                    : !count[PP_B] ? pp_arena_printf(row->arena, "`%s`", i)
	                                   : pp_arena_printf(row->arena, "`%s` and `%s`", b, i);
	wrong_count(row, title, count[PP_B] + count[PP_I], last_span(row, PP_B, PP_I, chunk));
	return false;
}

/* Each I needs one W, of its chunk where the Ws name theirs. */
static bool check_weights(struct pp_row_build *row, const struct counts *counts)
{
	if (row->unchosen_weight) {
		if (counts->total[PP_W] == counts->total[PP_I])
			return true;
		struct pp_message *message = pp_error(row->diag, "E0603", last_span(row, PP_W, PP_W, PP_NO_NUMBER),
		                                      "rank %u: `W` count is %" PRIu64 ", wanted %" PRIu64 ", as many as `I`",
		                                      row->rank, counts->total[PP_W], counts->total[PP_I]);
		pp_help(message, "each I (input gradient) needs one W (weight gradient); B does both");
		return false;
	}
	for (uint32_t chunk = 0; chunk < row->chunks; chunk++) {
		const uint64_t *count = counts->chunk[chunk];
		if (count[PP_W] == count[PP_I])
			continue;
		struct pp_message *message = pp_error(row->diag, "E0603", last_span(row, PP_W, PP_I, chunk),
		                                      "rank %u: `%s` count is %" PRIu64 ", wanted %" PRIu64 ", as many as `%s`",
		                                      row->rank, pp_row_action_title(row, 'W', chunk), count[PP_W], count[PP_I],
		                                      pp_row_action_title(row, 'I', chunk));
		pp_help(message, "each I (input gradient) needs one W (weight gradient); B does both");
		return false;
	}
	return true;
}

static bool check_counts(struct pp_row_build *row)
{
	struct counts counts = count_actions(row);
	for (uint32_t chunk = 0; chunk < row->chunks; chunk++) {
		if (!check_chunk(row, &counts, chunk))
			return false;
	}
	return check_weights(row, &counts);
}

static bool check_numbering(struct pp_row_build *row)
{
	if (!pp_span_known(row->numbered) || !pp_span_known(row->unnumbered))
		return true;
	const char *numbered = pp_eval_quote(&row->eval, row->numbered),
	           *unnumbered = pp_eval_quote(&row->eval, row->unnumbered);
	bool first = row->numbered.start < row->unnumbered.start;
	struct pp_message *message =
	    pp_error(row->diag, "E0607", first ? row->unnumbered : row->numbered,
	             "row mixes numbered (`%s`) and unnumbered (`%s`) actions", numbered, unnumbered);
	pp_label(message, first ? row->numbered : row->unnumbered, first ? "numbered" : "not numbered");
	pp_help(message, "number all actions of the row, or none");
	return false;
}

/* ---- numbering ------------------------------------------------------------------------------- */

/* Weight gradients that wait for their W: the positions of their I in the row, oldest first, for the rank and per
 * chunk. An entry taken by chunk stays in the list of the rank and is passed over there. */
struct pending {
	uint32_t *next_of_chunk;            /* [count of the row] */
	uint32_t *chunk_first, *chunk_last; /* [chunks] */
	uint32_t oldest;                    /* no untaken I of the rank stands before it */
	bool *taken;                        /* [count of the row] */
};

static struct pending pending_create(const struct pp_row_build *row)
{
	struct pending pending = {
	    .next_of_chunk = PP_NEW_ARRAY(row->arena, uint32_t, row->count),
	    .chunk_first = PP_NEW_ARRAY(row->arena, uint32_t, row->chunks),
	    .chunk_last = PP_NEW_ARRAY(row->arena, uint32_t, row->chunks),
	    .taken = PP_NEW_ARRAY(row->arena, bool, row->count),
	};
	for (uint32_t chunk = 0; chunk < row->chunks; chunk++)
		pending.chunk_first[chunk] = PP_NO_NUMBER;
	return pending;
}

static void add_pending(struct pending *pending, uint32_t chunk, uint32_t at)
{
	pending->next_of_chunk[at] = PP_NO_NUMBER;
	if (pending->chunk_first[chunk] == PP_NO_NUMBER)
		pending->chunk_first[chunk] = at;
	else
		pending->next_of_chunk[pending->chunk_last[chunk]] = at;
	pending->chunk_last[chunk] = at;
}

/* Position of the I whose weight gradient a W at `at` takes, or PP_NO_NUMBER. */
static uint32_t take_pending(struct pending *pending, const struct pp_row_build *row, uint32_t chunk, uint32_t at)
{
	uint32_t found = PP_NO_NUMBER;
	if (chunk == PP_NO_NUMBER) {
		while (pending->oldest < at && (row->actions[pending->oldest].kind != PP_I || pending->taken[pending->oldest]))
			pending->oldest++;
		if (pending->oldest == at)
			return PP_NO_NUMBER;
		chunk = row->actions[pending->oldest].chunk;
	}
	found = pending->chunk_first[chunk];
	if (found == PP_NO_NUMBER)
		return found;
	pending->chunk_first[chunk] = pending->next_of_chunk[found];
	pending->taken[found] = true;
	return found;
}

static bool no_pending(struct pp_row_build *row, const struct pp_raw_action *action)
{
	const char *title = action->chunk == PP_NO_NUMBER ? "W" : pp_row_action_title(row, 'W', action->chunk);
	const char *input = action->chunk == PP_NO_NUMBER ? "I" : pp_row_action_title(row, 'I', action->chunk);
	struct pp_message *message =
	    pp_error(row->diag, "E0606", action->span, "rank %u: `%s` comes before its `%s`", row->rank, title, input);
	pp_help(message, "a W takes the oldest weight gradient that an earlier I of the rank has left; here none is left");
	return false;
}

/* Give every action of an unnumbered row its microbatch. */
static bool number_actions(struct pp_row_build *row)
{
	uint32_t *forward = PP_NEW_ARRAY(row->arena, uint32_t, row->chunks),
	         *backward = PP_NEW_ARRAY(row->arena, uint32_t, row->chunks);
	struct pending pending = pending_create(row);
	for (size_t i = 0; i < row->count; i++) {
		struct pp_raw_action *action = &row->actions[i];
		switch ((enum pp_action_kind)action->kind) {
		case PP_F:
			action->number = forward[action->chunk]++;
			break;
		case PP_I:
			add_pending(&pending, action->chunk, (uint32_t)i);
			action->number = backward[action->chunk]++;
			break;
		case PP_B:
			action->number = backward[action->chunk]++;
			break;
		case PP_W: {
			uint32_t found = take_pending(&pending, row, action->chunk, (uint32_t)i);
			if (found == PP_NO_NUMBER)
				return no_pending(row, action);
			action->chunk = row->actions[found].chunk;
			action->number = row->actions[found].number;
			break;
		}
		case PP_ACTION_KINDS:
			break;
		}
	}
	return true;
}

/* Leave out what belongs to microbatches that do not exist. */
static void drop_surplus(struct pp_row_build *row)
{
	size_t kept = 0;
	bool before = false; /* the action before was kept */
	for (size_t i = 0; i < row->count; i++) {
		bool keep = row->actions[i].number < row->input->microbatches;
		if (keep)
			row->actions[kept++] = row->actions[i];
		else if (before)
			row->actions[kept - 1].paired = false;
		before = keep;
	}
	row->count = kept;
}

bool pp_row_number(struct pp_row_build *row, struct pp_row *out)
{
	bool unnumbered = pp_span_known(row->unnumbered), drop = row->drop_surplus && unnumbered;
	if (!check_numbering(row) || (!drop && !check_counts(row)))
		return false;
	if (unnumbered && !number_actions(row))
		return false;
	if (drop)
		drop_surplus(row);
	if (drop && !check_counts(row))
		return false;
	out->count = (uint32_t)row->count;
	out->actions = PP_NEW_ARRAY(row->arena, struct pp_action, row->count);
	for (size_t i = 0; i < row->count; i++) {
		const struct pp_raw_action *raw = &row->actions[i];
		out->actions[i] = (struct pp_action){.stage = row->chunk_stage[raw->chunk],
		                                     .mb = raw->number,
		                                     .kind = raw->kind,
		                                     .paired = raw->paired,
		                                     .span = raw->span};
	}
	return true;
}
