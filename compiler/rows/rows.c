/* The `order` statements of a schedule to one row per rank. Requires a parsed block. Ensures that every rank has
 * exactly one row, made by exactly one statement. */
#include "internal.h"

#include "compiler/rows.h"

#include <inttypes.h>
#include <string.h>

struct expander {
	const struct pp_rows_input *input;
	struct pp_arena *arena;
	struct pp_diag *diag;
	uint32_t *first_chunk;        /* [ranks + 1] into chunk_stage */
	uint32_t *chunk_stage;        /* [stages], by rank, ascending */
	const struct pp_stmt **owner; /* [ranks]: the statement that wrote the row */
	const char *names[4];         /* r p v m, interned */
	struct pp_let *lets;
	uint32_t let_count;
	struct pp_raw_action *actions, *scratch; /* kept from row to row */
	bool drop_surplus;
	uint64_t microbatches; /* that a row may be written for */
	size_t capacity, scratch_capacity;
	struct pp_schedule *out;
};

/* ---- setting up ------------------------------------------------------------------------------ */

static void list_chunks(struct expander *x)
{
	const struct pp_rows_input *input = x->input;
	x->first_chunk = PP_NEW_ARRAY(x->arena, uint32_t, (size_t)input->ranks + 1);
	x->chunk_stage = PP_NEW_ARRAY(x->arena, uint32_t, input->stages);
	for (uint32_t s = 0; s < input->stages; s++)
		x->first_chunk[input->stage_rank[s] + 1]++;
	for (uint32_t r = 0; r < input->ranks; r++)
		x->first_chunk[r + 1] += x->first_chunk[r];
	uint32_t *at = PP_NEW_ARRAY(x->arena, uint32_t, input->ranks);
	memcpy(at, x->first_chunk, input->ranks * sizeof *at);
	for (uint32_t s = 0; s < input->stages; s++)
		x->chunk_stage[at[input->stage_rank[s]]++] = s;
}

static void list_lets(struct expander *x)
{
	uint32_t count = 0;
	for (const struct pp_stmt *stmt = x->input->block->body; stmt; stmt = stmt->next)
		count += stmt->kind == PP_STMT_LET;
	x->lets = PP_NEW_ARRAY(x->arena, struct pp_let, count);
	for (const struct pp_stmt *stmt = x->input->block->body; stmt; stmt = stmt->next) {
		if (stmt->kind == PP_STMT_LET)
			x->lets[x->let_count++].stmt = stmt;
	}
}

/* Every schedule has at least F and B of every stage and microbatch: refuse before expanding what cannot be held. */
static bool fits(const struct expander *x)
{
	const struct pp_rows_input *input = x->input;
	uint64_t least = 2 * (uint64_t)input->stages * x->microbatches;
	if (least <= PP_ROWS_MOST_ACTIONS)
		return true;
	struct pp_message *message = pp_error(x->diag, "E0623", input->place,
	                                      "schedule is too large: %u stages x %" PRIu64
	                                      " microbatches are at least %" PRIu64 " actions, %u are possible",
	                                      input->stages, x->microbatches, least, (unsigned)PP_ROWS_MOST_ACTIONS);
	if (x->microbatches == input->microbatches)
		pp_help(message, "use fewer microbatches: beyond a few times the number of ranks they gain little");
	else
		pp_help(message, "a schedule with `surplus = drop` is written for 2p microbatches at least: use another one");
	return false;
}

/* `surplus = drop` of the block itself. */
static bool drops_surplus(const struct pp_stmt *block)
{
	for (const struct pp_stmt *at = block->body; at; at = at->next)
		if (at->kind == PP_STMT_ATTRIBUTE && strcmp(at->name.text, "surplus") == 0 && at->value &&
		    at->value->kind == PP_EXPR_PATH && strcmp(at->value->text, "drop") == 0)
			return true;
	return false;
}

/* ---- names of a row -------------------------------------------------------------------------- */

static enum pp_lookup let_value(struct pp_row_build *row, struct pp_eval *eval, struct pp_let *let,
                                struct pp_datum *out)
{
	if (let->state == PP_LET_BUSY) {
		pp_error(eval->diag, "E0107", let->stmt->name.span, "`let %s` depends on itself", let->stmt->name.text);
		let->state = PP_LET_FAILED;
	}
	if (let->state == PP_LET_FAILED)
		return PP_LOOKUP_FAILED;
	if (let->state == PP_LET_UNKNOWN) {
		let->state = PP_LET_BUSY;
		const struct pp_scope *inner = eval->scope;
		eval->scope = &row->scope; /* a let does not see the loop variables of who reads it */
		bool ok = pp_eval_expr(eval, let->stmt->value, &let->value);
		eval->scope = inner;
		let->state = ok && let->state == PP_LET_BUSY ? PP_LET_KNOWN : PP_LET_FAILED;
	}
	*out = let->value;
	return let->state == PP_LET_KNOWN ? PP_LOOKUP_FOUND : PP_LOOKUP_FAILED;
}

static enum pp_lookup find_let(void *context, struct pp_eval *eval, const struct pp_expr *path, struct pp_datum *out)
{
	struct pp_row_build *row = context;
	for (uint32_t i = 0; path->part_count == 1 && i < row->let_count; i++) {
		if (row->lets[i].stmt->name.text == path->parts[0].text)
			return let_value(row, eval, &row->lets[i], out);
	}
	return PP_LOOKUP_NONE;
}

static size_t list_let_names(void *context, const char **names, size_t room)
{
	const struct pp_row_build *row = context;
	size_t count = 0;
	for (; count < row->let_count && count < room; count++)
		names[count] = row->lets[count].stmt->name.text;
	return count;
}

/* Make a row ready for expansion. It must stay where it is: its scope points into it. */
static void open_row(struct expander *x, struct pp_row_build *row, uint32_t rank, const struct pp_stmt *order,
                     struct pp_span span)
{
	const struct pp_rows_input *input = x->input;
	uint32_t chunks = x->first_chunk[rank + 1] - x->first_chunk[rank];
	*row = (struct pp_row_build){
	    .input = input,
	    .arena = x->arena,
	    .diag = x->diag,
	    .rank = rank,
	    .chunks = chunks,
	    .chunk_stage = x->chunk_stage + x->first_chunk[rank],
	    .span = span,
	    .lets = x->lets,
	    .let_count = x->let_count,
	    .actions = x->actions,
	    .capacity = x->capacity,
	    .scratch = x->scratch,
	    .scratch_capacity = x->scratch_capacity,
	    .drop_surplus = x->drop_surplus,
	};
	row->longest = 6 * x->microbatches * chunks + 1024;
	row->steps = 8 * row->longest + (1 << 20);
	for (uint32_t i = 0; i < x->let_count; i++)
		x->lets[i].state = PP_LET_UNKNOWN;
	const int64_t values[] = {rank, input->ranks, chunks, input->microbatches};
	for (int i = 0; i < 4; i++)
		row->names[i] = (struct pp_binding){x->names[i], pp_datum_whole(values[i])};
	bool named = order && order->name.text;
	if (named)
		row->names[4] = (struct pp_binding){order->name.text, pp_datum_whole(rank)};
	row->scope = (struct pp_scope){.outer = input->scope,
	                               .bindings = row->names,
	                               .count = named ? 5 : 4,
	                               .lookup = find_let,
	                               .list = list_let_names,
	                               .context = row};
	row->eval = (struct pp_eval){.arena = x->arena, .sources = input->sources, .diag = x->diag, .scope = &row->scope};
}

static void close_row(struct expander *x, const struct pp_row_build *row)
{
	x->actions = row->actions;
	x->capacity = row->capacity;
	x->scratch = row->scratch;
	x->scratch_capacity = row->scratch_capacity;
}

/* ---- statements ------------------------------------------------------------------------------ */

static bool take_rank(struct expander *x, uint32_t rank, const struct pp_stmt *order)
{
	if (!x->owner[rank]) {
		x->owner[rank] = order;
		return true;
	}
	struct pp_message *message = pp_error(x->diag, "E0620", order->span, "rank %u has a row already", rank);
	pp_label(message, x->owner[rank]->span, "its first row");
	pp_help(message, "write one row per rank; `order for r in 0..1 { ... }` writes those of some ranks");
	return false;
}

static bool one_row(struct expander *x, uint32_t rank, const struct pp_stmt *order, struct pp_span span,
                    const struct pp_pattern *first, const struct pp_pattern *end)
{
	struct pp_row_build row;
	open_row(x, &row, rank, order, span);
	bool ok = take_rank(x, rank, order) && pp_row_expand(&row, first, end) && pp_row_number(&row, &x->out->rows[rank]);
	close_row(x, &row);
	return ok;
}

/* `order for r [in a..b] { row }`. The first rank that fails ends it: the others would say the same. */
static bool row_for_each(struct expander *x, const struct pp_stmt *order)
{
	int64_t first = 0, last = (int64_t)x->input->ranks - 1;
	if (order->range) {
		struct pp_eval eval = {.arena = x->arena, .sources = x->input->sources, .diag = x->diag};
		struct pp_binding names[] = {{x->names[1], pp_datum_whole(x->input->ranks)},
		                             {x->names[3], pp_datum_whole(x->input->microbatches)}};
		struct pp_scope scope = {.outer = x->input->scope, .bindings = names, .count = 2};
		eval.scope = &scope;
		if (!pp_eval_range(&eval, order->range, "range of ranks", &first, &last))
			return false;
	}
	if (first <= last && (first < 0 || last >= x->input->ranks)) {
		pp_error(x->diag, "E0620", order->range->span, "ranks %" PRId64 "..%" PRId64 " are not within 0..%u (p = %u)",
		         first, last, x->input->ranks - 1, x->input->ranks);
		return false;
	}
	for (int64_t rank = first; rank <= last; rank++) {
		if (!one_row(x, (uint32_t)rank, order, order->span, order->pattern, NULL))
			return false;
	}
	return true;
}

static struct pp_span row_span(const struct pp_stmt *order, const struct pp_pattern *first,
                               const struct pp_pattern *end)
{
	if (first == end)
		return order->span;
	struct pp_span span = first->span;
	for (; first != end; first = first->next)
		span = pp_span_join(span, first->span);
	return span;
}

static uint64_t count_rows(const struct pp_pattern *part)
{
	uint64_t rows = 1;
	for (; part; part = part->next)
		rows += part->kind == PP_PATTERN_BAR;
	return rows;
}

/* `order { row | row | … }`. Each row may be wrong on its own. */
static bool rows_in_turn(struct expander *x, const struct pp_stmt *order)
{
	uint64_t rows = count_rows(order->pattern);
	if (rows != x->input->ranks) {
		struct pp_message *message =
		    pp_error(x->diag, "E0620", order->span, "order has %" PRIu64 " row%s, wanted p = %u", rows,
		             rows == 1 ? "" : "s", x->input->ranks);
		pp_help(message, "rows are separated by `|`; one row written for every rank is `order for r { ... }`");
		return false;
	}
	bool ok = true;
	const struct pp_pattern *first = order->pattern;
	for (uint32_t rank = 0; rank < x->input->ranks; rank++) {
		const struct pp_pattern *end = first;
		while (end && end->kind != PP_PATTERN_BAR)
			end = end->next;
		ok = one_row(x, rank, order, row_span(order, first, end), first, end) && ok;
		first = end ? end->next : NULL;
	}
	return ok;
}

static bool every_rank_has_a_row(const struct expander *x)
{
	for (uint32_t rank = 0; rank < x->input->ranks; rank++) {
		if (x->owner[rank])
			continue;
		struct pp_message *message = pp_error(x->diag, "E0620", x->input->block->span,
		                                      "schedule `%s` has no row for rank %u", x->input->name, rank);
		pp_help(message, "add `order for r in %u..%u { ... }`", rank, rank);
		return false;
	}
	return true;
}

/* "needs one stage per rank; with several use interleaved": what it needs, and the help. */
static void report_unusable(struct expander *x, const char *text)
{
	const char *help = strstr(text, "; ");
	int length = help ? (int)(help - text) : (int)strlen(text);
	struct pp_message *message = pp_error(x->diag, "E0614", x->input->place, "`%s` %.*s", x->input->name, length, text);
	if (help)
		pp_help(message, "%s", help + 2);
}

/* The asserts of a library schedule say what it needs, for every rank. */
static bool usable(struct expander *x)
{
	for (uint32_t rank = 0; x->input->shipped && rank < x->input->ranks; rank++) {
		struct pp_row_build row;
		open_row(x, &row, rank, NULL, x->input->place);
		for (const struct pp_stmt *stmt = x->input->block->body; stmt; stmt = stmt->next) {
			bool truth = true;
			if (stmt->kind == PP_STMT_ASSERT && !pp_eval_truth(&row.eval, stmt->value, "`assert`", &truth))
				return false;
			if (truth)
				continue;
			report_unusable(x, stmt->text.text ? stmt->text.text : "cannot be used here");
			return false;
		}
	}
	return true;
}

static bool expand_orders(struct expander *x)
{
	bool ok = true;
	for (const struct pp_stmt *stmt = x->input->block->body; stmt; stmt = stmt->next) {
		if (stmt->kind == PP_STMT_ORDER)
			ok = (stmt->name.text ? row_for_each(x, stmt) : rows_in_turn(x, stmt)) && ok;
	}
	return ok && every_rank_has_a_row(x);
}

bool pp_rows_expand(struct pp_arena *arena, const struct pp_rows_input *input, struct pp_diag *diag,
                    struct pp_schedule *out)
{
	struct expander x = {.input = input, .arena = arena, .diag = diag, .out = out};
	*out = (struct pp_schedule){
	    .name = input->name, .ranks = input->ranks, .stages = input->stages, .microbatches = input->microbatches};
	x.drop_surplus = input->drop_surplus || (input->shipped && drops_surplus(input->block));
	x.microbatches = input->microbatches;
	if (x.drop_surplus && x.microbatches < 2 * (uint64_t)input->ranks)
		x.microbatches = 2 * (uint64_t)input->ranks;
	if (!fits(&x))
		return false;
	out->stage_rank = PP_NEW_ARRAY(arena, uint32_t, input->stages);
	memcpy(out->stage_rank, input->stage_rank, input->stages * sizeof *out->stage_rank);
	out->rows = PP_NEW_ARRAY(arena, struct pp_row, input->ranks);
	x.owner = PP_NEW_ARRAY(arena, const struct pp_stmt *, input->ranks);
	static const char *const names[] = {"r", "p", "v", "m"};
	for (int i = 0; i < 4; i++)
		x.names[i] = pp_intern_z(input->strings, names[i]);
	list_chunks(&x);
	list_lets(&x);
	return usable(&x) && expand_orders(&x);
}
