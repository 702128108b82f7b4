/* Names of rules, for the general evaluator. */
#include "rule_names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char letters[] = "FBIW";

uint32_t pp_counter_named(const char *name)
{
	if (strcmp(name, "mem") == 0)
		return PP_COUNTER_MEM;
	const char *letter = name[0] && !name[1] ? strchr(letters, name[0]) : NULL;
	return letter ? (uint32_t)(letter - letters) : PP_COUNTER_NONE;
}

/* ---- lists of names -------------------------------------------------------------------------- */

static uint32_t count_lets(const struct pp_stmt *body)
{
	uint32_t count = 0;
	for (; body; body = body->next)
		count += body->kind == PP_STMT_LET;
	return count;
}

static void add_lets(struct pp_rule_names *names, const struct pp_stmt *body)
{
	for (; body; body = body->next)
		if (body->kind == PP_STMT_LET)
			names->lets[names->let_count++] = body;
}

static uint32_t most_chunks(struct pp_arena *arena, const struct pp_rows_input *input)
{
	uint32_t most = 0, *count = PP_NEW_ARRAY(arena, uint32_t, input->ranks);
	for (uint32_t s = 0; s < input->stages; s++)
		if (++count[input->stage_rank[s]] > most)
			most = count[input->stage_rank[s]];
	return most;
}

void pp_rule_names_create(struct pp_arena *arena, const struct pp_rows_input *input, const struct pp_stmt *policy,
                          struct pp_rule_names *names)
{
	static const char *const rpvm[] = {"r", "p", "v", "m"};
	*names = (struct pp_rule_names){.arena = arena, .input = input, .most_chunks = most_chunks(arena, input)};
	names->lets =
	    PP_NEW_ARRAY(arena, const struct pp_stmt *, (size_t)count_lets(policy->body) + count_lets(input->block->body));
	add_lets(names, policy->body);
	add_lets(names, input->block->body);
	for (int i = 0; i < 4; i++)
		names->rpvm[i] = pp_intern_z(input->strings, rpvm[i]);
}

uint32_t pp_rule_let(const struct pp_rule_names *names, const struct pp_expr *path)
{
	uint32_t let = 0;
	while (let < names->let_count && (path->part_count != 1 || names->lets[let]->name.text != path->parts[0].text))
		let++;
	return let;
}

/* ---- looking up ------------------------------------------------------------------------------ */

enum state { UNKNOWN, BUSY, KNOWN, FAILED };

struct pp_rule_let {
	enum state state;
	struct pp_datum datum;
};

static enum pp_lookup let_value(struct pp_rule_eval *x, struct pp_eval *eval, uint32_t let, struct pp_datum *out)
{
	struct pp_rule_let *value = &x->lets[let];
	const struct pp_stmt *stmt = x->names->lets[let];
	if (value->state == BUSY) {
		pp_error(eval->diag, "E0107", stmt->name.span, "`let %s` depends on itself", stmt->name.text);
		value->state = FAILED;
	}
	if (value->state == UNKNOWN) {
		value->state = BUSY;
		bool ok = pp_eval_expr(eval, stmt->value, &value->datum);
		value->state = ok && value->state == BUSY ? KNOWN : FAILED;
	}
	*out = value->datum;
	return value->state == KNOWN ? PP_LOOKUP_FOUND : PP_LOOKUP_FAILED;
}

static enum pp_lookup wrong_chunk(struct pp_eval *eval, const struct pp_rule_eval *x, const struct pp_expr *path,
                                  int64_t chunk)
{
	struct pp_message *message =
	    pp_error(eval->diag, "E0609", path->span, "counter `%s`: there is no chunk %" PRId64, path->text, chunk);
	pp_help(message, "ranks hold %u chunk%s, counted from 0", x->names->most_chunks,
	        x->names->most_chunks == 1 ? "" : "s");
	return PP_LOOKUP_FAILED;
}

/* F.0, F.c. */
static enum pp_lookup of_chunk(struct pp_rule_eval *x, struct pp_eval *eval, const struct pp_expr *path, uint32_t kind,
                               struct pp_datum *out)
{
	int64_t chunk;
	const char *text = path->parts[1].text;
	if (text[0] >= '0' && text[0] <= '9') {
		chunk = strlen(text) > 9 ? INT64_MAX : strtoll(text, NULL, 10);
	} else {
		struct pp_expr name = {
		    .kind = PP_EXPR_PATH, .span = path->parts[1].span, .text = text, .parts = &path->parts[1], .part_count = 1};
		if (!pp_eval_whole(eval, &name, "chunk", &chunk))
			return PP_LOOKUP_FAILED;
	}
	if (chunk < 0 || chunk >= x->names->most_chunks)
		return wrong_chunk(eval, x, path, chunk);
	*out = pp_datum_whole(pp_counter_chunk(x->counters, kind, (uint32_t)chunk));
	return PP_LOOKUP_FOUND;
}

static enum pp_lookup look_up(void *context, struct pp_eval *eval, const struct pp_expr *path, struct pp_datum *out)
{
	struct pp_rule_eval *x = context;
	uint32_t counter = pp_counter_named(path->parts[0].text);
	if (counter == PP_COUNTER_MEM && path->part_count == 1) {
		uint64_t bytes = x->counters->bytes;
		*out = pp_datum_number((struct pp_rational){(pp_wide)bytes, 1}, PP_BYTES);
		return PP_LOOKUP_FOUND;
	}
	if (counter < PP_ACTION_KINDS && path->part_count == 1) {
		*out = pp_datum_whole(pp_counter_total(x->counters, counter));
		return PP_LOOKUP_FOUND;
	}
	if (counter < PP_ACTION_KINDS && path->part_count == 2)
		return of_chunk(x, eval, path, counter, out);
	uint32_t let = pp_rule_let(x->names, path);
	return let < x->names->let_count ? let_value(x, eval, let, out) : PP_LOOKUP_NONE;
}

static size_t list_names(void *context, const char **names, size_t room)
{
	const struct pp_rule_eval *x = context;
	size_t count = 0;
	for (; count < x->names->let_count && count < room; count++)
		names[count] = x->names->lets[count]->name.text;
	return count;
}

void pp_rule_eval_open(struct pp_rule_eval *rule, struct pp_arena *arena, const struct pp_rule_names *names,
                       uint32_t rank, uint32_t chunks, const struct pp_counters *counters, struct pp_diag *diag)
{
	static const struct pp_list_rank nothing;
	static const struct pp_counters none = {.rank = &nothing, .kind = PP_ACTION_KINDS};
	const int64_t values[] = {rank, names->input->ranks, chunks, names->input->microbatches};
	*rule = (struct pp_rule_eval){.names = names,
	                              .counters = counters ? counters : &none,
	                              .lets = PP_NEW_ARRAY(arena, struct pp_rule_let, names->let_count)};
	for (int i = 0; i < 4; i++)
		rule->bindings[i] = (struct pp_binding){names->rpvm[i], pp_datum_whole(values[i])};
	rule->scope = (struct pp_scope){.outer = names->input->scope,
	                                .bindings = rule->bindings,
	                                .count = 4,
	                                .lookup = look_up,
	                                .list = list_names,
	                                .context = rule};
	rule->eval =
	    (struct pp_eval){.arena = arena, .sources = names->input->sources, .diag = diag, .scope = &rule->scope};
}
