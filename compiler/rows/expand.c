/* Patterns to raw actions: loops, repeats and weaves are written out, actions get their chunk and, where it is written,
 * their number. Requires a row whose scope is set up. Ensures that work is bounded by the length that a right row can
 * have, whatever the counts in the text say. */
#include "internal.h"

#include <inttypes.h>
#include <string.h>

const char *pp_row_action_title(const struct pp_row_build *row, char letter, uint32_t chunk)
{
	if (row->chunks <= 1)
		return pp_arena_printf(row->arena, "%c", letter);
	return pp_arena_printf(row->arena, "%c.%u", letter, chunk);
}

/* ---- bounds on the work ---------------------------------------------------------------------- */

static bool too_long(struct pp_row_build *row, struct pp_span span)
{
	struct pp_message *message =
	    pp_error(row->diag, "E0623", span, "rank %u: this writes more actions than any row can have", row->rank);
	pp_help(message,
	        "a row has one F, and one B or one I and one W, for each of %u microbatches on %u stage%s of the rank",
	        row->input->microbatches, row->chunks, row->chunks == 1 ? "" : "s");
	return false;
}

static bool step(struct pp_row_build *row, struct pp_span span)
{
	if (row->steps == 0)
		return too_long(row, span);
	row->steps--;
	return true;
}

static bool push(struct pp_row_build *row, struct pp_raw_action action)
{
	if (row->count >= row->longest)
		return too_long(row, action.span);
	*PP_PUSH(row->arena, &row->actions, &row->count, &row->capacity, struct pp_raw_action) = action;
	return true;
}

/* ---- counts ---------------------------------------------------------------------------------- */

enum { MOST_NAMES = 6 };

struct names {
	const char *seen[MOST_NAMES];
	int count;
	const char *text;
};

static void list_name(struct pp_row_build *row, const struct pp_expr *path, struct names *names)
{
	struct pp_datum value;
	const char *name = path->text;
	for (int i = 0; i < names->count; i++) {
		if (names->seen[i] == name)
			return;
	}
	if (names->count == MOST_NAMES || path->part_count != 1 || strcmp(name, "r") == 0 ||
	    !pp_eval_expr(&row->eval, path, &value))
		return;
	names->seen[names->count++] = name;
	names->text = pp_arena_printf(row->arena, "%s%s%s = %s", names->text, names->count > 1 ? ", " : " (", name,
	                              pp_datum_text(row->arena, &value));
}

/* Names in an expression that evaluates, with their values. */
static void list_names(struct pp_row_build *row, const struct pp_expr *expr, struct names *names)
{
	for (; expr; expr = expr->next) {
		if (expr->kind == PP_EXPR_PATH) {
			list_name(row, expr, names);
			continue;
		}
		if (expr->kind == PP_EXPR_CHOICE)
			continue; /* the branch not taken may not evaluate */
		if (expr->kind != PP_EXPR_CALL && expr->a)
			list_names(row, expr->a, names);
		if (expr->b)
			list_names(row, expr->b, names);
	}
}

/* A count in parentheses has them in its span. */
static const char *quote_count(struct pp_row_build *row, const struct pp_expr *expr)
{
	const char *text = pp_eval_quote(&row->eval, expr->span);
	size_t length = strlen(text);
	if (length < 2 || text[0] != '(' || text[length - 1] != ')')
		return text;
	return pp_arena_copy(row->arena, text + 1, length - 2);
}

static bool negative(struct pp_row_build *row, const struct pp_expr *expr, const char *what, int64_t count)
{
	struct names names = {.text = ""};
	list_names(row, expr, &names);
	struct pp_message *message = pp_error(row->diag, "E0604", expr->span, "%s %s is %" PRId64 " for rank %u%s%s", what,
	                                      quote_count(row, expr), count, row->rank, names.text, names.count ? ")" : "");
	pp_help(message, "a count is 0 or more; max(0, ...) leaves the part out");
	return false;
}

static bool count_of(struct pp_row_build *row, const struct pp_expr *expr, const char *what, int64_t *count)
{
	*count = 1;
	if (!expr)
		return true;
	if (!pp_eval_whole(&row->eval, expr, what, count))
		return false;
	return *count >= 0 || negative(row, expr, what, *count);
}

/* ---- actions --------------------------------------------------------------------------------- */

/* F, F3: letter and digits. */
static bool read_name(const char *name, struct pp_raw_action *action, bool *numbered, bool *fits)
{
	const char *letter = name[0] ? strchr("FBIW", name[0]) : NULL;
	if (!letter)
		return false;
	action->kind = (uint8_t)(letter - "FBIW");
	uint64_t number = 0;
	*fits = true;
	for (const char *digit = name + 1; *digit; digit++) {
		if (*digit < '0' || *digit > '9')
			return false;
		number = number * 10 + (uint64_t)(*digit - '0');
		if (number > UINT32_MAX - 1) {
			*fits = false;
			number = UINT32_MAX - 1;
		}
	}
	*numbered = name[1] != '\0';
	action->number = *numbered ? (uint32_t)number : PP_NO_NUMBER;
	return true;
}

static bool unknown_action(struct pp_row_build *row, const struct pp_action_ast *written)
{
	bool later = strchr("ROL", written->name[0]) &&
	             (written->name[1] == '\0' || (written->name[1] >= '0' && written->name[1] <= '9'));
	if (later) {
		pp_error(row->diag, "E0010", written->span, "action `%.40s` (recompute, offload, reload) is not supported yet",
		         written->name);
		return false;
	}
	struct pp_message *message = pp_error(row->diag, "E0621", written->span, "unknown action `%.40s`", written->name);
	if (strlen(written->name) == 1 && strchr("mprv", written->name[0]))
		pp_help(message, "to repeat an action write `F*%s`", written->name);
	else
		pp_help(message,
		        "actions are F (forward), B (backward), I (input gradient), W (weight gradient) and _ (nothing)");
	return false;
}

static bool wrong_number(struct pp_row_build *row, struct pp_span span, const char *text)
{
	uint32_t m = row->input->microbatches;
	pp_error(row->diag, "E0622", span, "microbatch %s is outside 0..%u (m = %u)", text, m - 1, m);
	return false;
}

/* E0609: a chunk that is not there. */
static bool wrong_chunk(struct pp_row_build *row, struct pp_span span)
{
	const char *text = pp_eval_quote(&row->eval, span);
	if (row->chunks == 0)
		pp_error(row->diag, "E0609", span, "action `%s`: rank %u holds no stage", text, row->rank);
	else if (row->chunks == 1)
		pp_help(pp_error(row->diag, "E0609", span, "action `%s`: rank %u holds 1 chunk (0)", text, row->rank),
		        "`vpp` in `parallel` is the number of stages on a rank");
	else
		pp_error(row->diag, "E0609", span, "action `%s`: rank %u holds %u chunks (0..%u)", text, row->rank, row->chunks,
		         row->chunks - 1);
	return false;
}

/* The chunk of a cell's stage. */
static bool stage_chunk(struct pp_row_build *row, const struct pp_action_ast *written, uint32_t *chunk)
{
	for (uint32_t i = 0; i < row->chunks; i++) {
		if (row->chunk_stage[i] == written->stage) {
			*chunk = i;
			return true;
		}
	}
	const struct pp_rows_input *input = row->input;
	if (written->stage >= input->stages)
		pp_error(row->diag, "E0609", written->span, "stage %" PRIu64 " does not exist; there are %u stages (0..%u)",
		         written->stage, input->stages, input->stages - 1);
	else
		pp_error(row->diag, "E0609", written->span, "stage %" PRIu64 " lives on rank %u, not on rank %u",
		         written->stage, input->stage_rank[written->stage], row->rank);
	return false;
}

static bool chunk_of(struct pp_row_build *row, const struct pp_action_ast *written, struct pp_raw_action *action)
{
	if (written->cell)
		return stage_chunk(row, written, &action->chunk);
	int64_t chunk = 0;
	if (written->chunk && !pp_eval_whole(&row->eval, written->chunk, "chunk", &chunk))
		return false;
	if (chunk < 0 || chunk >= row->chunks)
		return wrong_chunk(row, written->span);
	action->chunk = (uint32_t)chunk;
	return true;
}

static void note_numbering(struct pp_row_build *row, struct pp_span span, bool numbered)
{
	struct pp_span *first = numbered ? &row->numbered : &row->unnumbered;
	if (!pp_span_known(*first))
		*first = span;
}

static bool numbered_action(struct pp_row_build *row, struct pp_raw_action action, int64_t number)
{
	if (number < 0 || number >= row->input->microbatches)
		return wrong_number(row, action.span, pp_arena_printf(row->arena, "%" PRId64, number));
	action.number = (uint32_t)number;
	return push(row, action);
}

/* F[i], F[a..b]. */
static bool indexed_action(struct pp_row_build *row, const struct pp_action_ast *written, struct pp_raw_action action,
                           bool in_pair)
{
	int64_t first, last;
	if (written->index->kind != PP_EXPR_RANGE) {
		if (!pp_eval_whole(&row->eval, written->index, "microbatch", &first))
			return false;
		return numbered_action(row, action, first);
	}
	if (in_pair) {
		pp_error(row->diag, "E0624", written->span, "a range cannot be one half of a pair; write the pair in a `for`");
		return false;
	}
	if (!pp_eval_range(&row->eval, written->index, "microbatch", &first, &last))
		return false;
	for (int64_t number = first; number <= last; number++) {
		if (!numbered_action(row, action, number))
			return false;
	}
	return true;
}

static bool cell_action(struct pp_row_build *row, const struct pp_action_ast *written, struct pp_raw_action action)
{
	action.kind = (uint8_t)(strchr("FBIW", written->name[0]) - "FBIW");
	if (written->number >= row->input->microbatches)
		return wrong_number(row, written->span, pp_arena_printf(row->arena, "%" PRIu64, written->number));
	action.number = (uint32_t)written->number;
	return push(row, action);
}

static bool one_action(struct pp_row_build *row, const struct pp_action_ast *written, bool in_pair)
{
	struct pp_raw_action action = {.span = written->span, .paired = written->next != NULL};
	bool numbered = true, fits = true;
	if (strcmp(written->name, "_") == 0)
		return true;
	if (!written->cell && !read_name(written->name, &action, &numbered, &fits))
		return unknown_action(row, written);
	if (!chunk_of(row, written, &action))
		return false;
	note_numbering(row, written->span, numbered || written->index);
	if (written->cell)
		return cell_action(row, written, action);
	if (!fits || (numbered && action.number >= row->input->microbatches))
		return wrong_number(row, written->span, written->name + 1);
	if (written->index && numbered) {
		pp_error(row->diag, "E0621", written->span, "`%.40s` has a number already; write either F3 or F[3]",
		         written->name);
		return false;
	}
	if (written->index)
		return indexed_action(row, written, action, in_pair);
	if (action.kind == PP_W && !numbered && !written->chunk) {
		action.chunk = PP_NO_NUMBER;
		row->unchosen_weight = true;
	}
	return push(row, action);
}

static bool item(struct pp_row_build *row, const struct pp_action_ast *action)
{
	bool in_pair = action->next != NULL;
	if (in_pair && action->next->next) {
		pp_error(row->diag, "E0624", action->next->next->span, "only two actions can overlap");
		return false;
	}
	for (; action; action = action->next) {
		if (in_pair && strcmp(action->name, "_") == 0) {
			pp_error(row->diag, "E0624", action->span, "`_` cannot be one half of a pair");
			return false;
		}
		if (!one_action(row, action, in_pair))
			return false;
	}
	return true;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static bool repeated(struct pp_row_build *row, const struct pp_pattern *part)
{
	int64_t count;
	if (!count_of(row, part->repeat, "repeat count", &count))
		return false;
	for (int64_t i = 0; i < count; i++) {
		if (!step(row, part->span))
			return false;
		bool ok = part->kind == PP_PATTERN_ITEM ? item(row, part->action) : pp_row_expand(row, part->body, NULL);
		if (!ok)
			return false;
	}
	return true;
}

static bool loop(struct pp_row_build *row, const struct pp_pattern *part)
{
	int64_t first, last;
	if (!pp_eval_range(&row->eval, part->range, "loop range", &first, &last))
		return false;
	struct pp_binding name = {.name = part->variable.text};
	const struct pp_scope *outer = row->eval.scope;
	struct pp_scope inner = {.outer = outer, .bindings = &name, .count = 1};
	row->eval.scope = &inner;
	bool ok = true;
	for (int64_t at = first; ok && at <= last; at++) {
		name.value = pp_datum_whole(at);
		ok = step(row, part->span) && pp_row_expand(row, part->body, NULL);
		if (at == INT64_MAX)
			break;
	}
	row->eval.scope = outer;
	return ok;
}

/* Actions of one turn: an action, the two of a pair, or what an inner weave does in one round. */
static size_t turn(const struct pp_raw_action *actions, size_t at)
{
	size_t last = at;
	while (actions[last].paired || actions[last].glued)
		last++;
	return last - at + 1;
}

static struct pp_raw_action *scratch_for(struct pp_row_build *row, size_t count)
{
	if (row->scratch_capacity < count) {
		row->scratch = PP_NEW_ARRAY(row->arena, struct pp_raw_action, 2 * count);
		row->scratch_capacity = 2 * count;
	}
	return row->scratch;
}

/* Merge A = [a, b) and B = [b, end) of the row: `ahead` turns of A, then rounds of a turn of A and one of B, then the
 * rest. */
static void merge(struct pp_row_build *row, size_t a, size_t b, int64_t ahead)
{
	size_t end = row->count, start = a, middle = b, count = 0;
	struct pp_raw_action *merged = scratch_for(row, end - start);
	const struct pp_raw_action *actions = row->actions;
	bool from_a = true;
	while (a < middle || b < end) {
		bool take_a = a < middle && (ahead > 0 || from_a || b == end);
		size_t *at = take_a ? &a : &b;
		for (size_t left = turn(actions, *at); left > 0; left--)
			merged[count++] = actions[(*at)++];
		if (take_a && ahead == 0 && b < end)
			merged[count - 1].glued = true;
		if (take_a && ahead > 0)
			ahead--;
		else
			from_a = !take_a;
	}
	memcpy(row->actions + start, merged, count * sizeof *merged);
}

static bool weave(struct pp_row_build *row, const struct pp_pattern *part)
{
	int64_t ahead;
	if (!count_of(row, part->count, "weave count", &ahead))
		return false;
	size_t a = row->count;
	if (!pp_row_expand(row, part->body, NULL))
		return false;
	size_t b = row->count;
	if (!pp_row_expand(row, part->other, NULL))
		return false;
	if (row->count - a > row->steps)
		return too_long(row, part->span);
	row->steps -= row->count - a;
	if (row->count > a)
		merge(row, a, b, ahead);
	return true;
}

static bool bar_inside(struct pp_row_build *row, const struct pp_pattern *part)
{
	struct pp_message *message =
	    pp_error(row->diag, "E0620", part->span, "`|` separates rows and cannot stand inside one");
	pp_help(message, "write rows as `order { row | row }`, or one row for all ranks as `order for r { row }`");
	return false;
}

bool pp_row_expand(struct pp_row_build *row, const struct pp_pattern *part, const struct pp_pattern *end)
{
	for (bool ok = true; part && part != end; part = part->next) {
		switch (part->kind) {
		case PP_PATTERN_BAR:
			ok = bar_inside(row, part);
			break;
		case PP_PATTERN_ITEM:
		case PP_PATTERN_GROUP:
			ok = repeated(row, part);
			break;
		case PP_PATTERN_FOR:
			ok = loop(row, part);
			break;
		case PP_PATTERN_WEAVE:
			ok = weave(row, part);
			break;
		}
		if (!ok)
			return false;
	}
	return true;
}
