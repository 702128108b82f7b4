/* Which schedule is active, and what it is made of: rows of its own, or a library schedule by name. The rows themselves
 * are read by compiler/rows/rows.c. */
#include "resolver.h"

#include "compiler/policy.h"

#include <string.h>

/* ---- the choice ------------------------------------------------------------------------------ */

struct choice {
	const char *name;
	struct pp_span span; /* where it is chosen, or PP_NO_SPAN: --schedule */
};

static const char *name_of(const struct pp_stmt *schedule)
{
	return schedule->label.text ? schedule->label.text : "custom";
}

static bool is_schedule(const struct pp_stmt *stmt)
{
	return stmt->kind == PP_STMT_BLOCK && strcmp(stmt->name.text, "schedule") == 0;
}

static const struct pp_stmt *find_schedule(struct pp_resolver *resolver, const char *name, struct pp_module **owner)
{
	for (size_t i = 0; i <= resolver->main->open_count; i++) {
		*owner = i == 0 ? resolver->main : resolver->main->open[i - 1];
		for (const struct pp_stmt *stmt = (*owner)->ast->first; stmt; stmt = stmt->next)
			if (is_schedule(stmt) && strcmp(name_of(stmt), name) == 0)
				return stmt;
	}
	*owner = resolver->main;
	return NULL;
}

static const char *written_names(struct pp_resolver *resolver)
{
	const char *text = "";
	size_t count = 0;
	for (const struct pp_stmt *stmt = resolver->main->ast->first; stmt && count < 8; stmt = stmt->next)
		if (is_schedule(stmt) && ++count)
			text = pp_arena_printf(resolver->arena, "%s%s%s", text, *text ? ", " : "", name_of(stmt));
	return text;
}

static void report_unknown(struct pp_resolver *resolver, const struct choice *choice)
{
	for (const struct pp_stmt *stmt = resolver->main->ast->first; stmt; stmt = stmt->next)
		if (is_schedule(stmt) && strcmp(name_of(stmt), choice->name) == 0) {
			struct pp_message *missing =
			    pp_error(resolver->diag, "E0111", stmt->label.span,
			             "schedule `%.60s` has no `order`, and is none of the library", choice->name);
			pp_help(missing, "write `order for r { … }` or `policy { … }` in it, or use %s",
			        pp_policy_names(resolver->arena));
			return;
		}
	const char *written = written_names(resolver), *from = pp_span_known(choice->span) ? "" : "--schedule: ";
	struct pp_message *message =
	    pp_error(resolver->diag, "E0207", choice->span, "%sthere is no schedule `%.60s`", from, choice->name);
	const char *nearest = pp_policy_nearest(choice->name);
	for (const struct pp_stmt *stmt = resolver->main->ast->first; stmt; stmt = stmt->next) {
		const char *name = is_schedule(stmt) ? name_of(stmt) : NULL;
		if (name && pp_nearest(choice->name, &name, 1))
			nearest = name;
	}
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	else
		pp_help(message, "this file has %s; the library has %s", *written ? written : "none",
		        pp_policy_names(resolver->arena));
}

/* --schedule, else run.schedule, else the only one. False: reported. */
static bool choose(struct pp_resolver *resolver, struct choice *choice)
{
	const struct pp_stmt *only = NULL;
	size_t count = 0;
	if (resolver->options->schedule) {
		*choice = (struct choice){resolver->options->schedule, PP_NO_SPAN};
		return true;
	}
	struct pp_section *run = resolver->sections[PP_SECTION_RUN];
	if (pp_field_given(run, PP_ATTR_run_schedule)) {
		if (!pp_field_name(resolver, run, PP_ATTR_run_schedule, &choice->name))
			return false;
		choice->span = pp_field_span(run, PP_ATTR_run_schedule);
		return true;
	}
	for (const struct pp_stmt *stmt = resolver->main->ast->first; stmt; stmt = stmt->next) {
		if (!is_schedule(stmt))
			continue;
		only = stmt;
		count++;
	}
	if (count == 1) {
		*choice = (struct choice){name_of(only), only->name.span};
		return true;
	}
	struct pp_message *message;
	if (count == 0) {
		message = pp_error(resolver->diag, "E0111", pp_module_end(resolver->main), "there is no `schedule` block");
		pp_help(message, "write `schedule 1f1b`");
	} else {
		message = pp_error(resolver->diag, "E0111", only->name.span, "there are %zu schedules (%s) and none is chosen",
		                   count, written_names(resolver));
		pp_help(message, "write `run { schedule = %s }`, or pass --schedule %s", name_of(only), name_of(only));
	}
	return false;
}

/* ---- what it is made of ---------------------------------------------------------------------- */

static const struct pp_stmt *find_in_body(const struct pp_stmt *schedule, enum pp_stmt_kind kind, const char *name)
{
	for (const struct pp_stmt *at = schedule ? schedule->body : NULL; at; at = at->next)
		if (at->kind == kind && (!name || strcmp(at->name.text, name) == 0))
			return at;
	return NULL;
}

static bool use_policy(struct pp_resolver *resolver, const char *name, struct pp_span span)
{
	const struct pp_policy *policy = pp_policy_find(name);
	if (!policy) {
		report_unknown(resolver, &(struct choice){name, span});
		return false;
	}
	if (policy->status == PP_LATER) {
		pp_help(pp_not_yet(resolver, span, pp_arena_printf(resolver->arena, "schedule `%s`", name)),
		        "use %s, or write the rows: `order { … }`", pp_policy_names(resolver->arena));
		return false;
	}
	resolver->out->policy = name;
	return true;
}

static bool has_rows(const struct pp_stmt *schedule)
{
	return find_in_body(schedule, PP_STMT_ORDER, NULL) || find_in_body(schedule, PP_STMT_BLOCK, "policy");
}

/* Rows from a file, and rows beside it: which should hold? */
static bool refuse_both(struct pp_resolver *resolver, const struct pp_stmt *schedule)
{
	const struct pp_stmt *rows = find_in_body(schedule, PP_STMT_ORDER, NULL);
	rows = rows ? rows : find_in_body(schedule, PP_STMT_BLOCK, "policy");
	if (!schedule->from.text || !rows)
		return false;
	struct pp_message *message = pp_error(resolver->diag, "E0103", rows->span, "the rows are given twice");
	pp_label(message, schedule->from_text.span, "by this file");
	resolver->sections[PP_SECTION_TRAIN]->partial = true; /* what is missed there may be in the file */
	pp_help(message, "remove one");
	return true;
}

static void use_written(struct pp_resolver *resolver, const struct pp_stmt *schedule, struct pp_module *module)
{
	struct pp_section *section = resolver->sections[PP_SECTION_SCHEDULE];
	const struct pp_stmt *base = NULL;
	struct pp_module *base_module = module;
	const char *base_policy = NULL;
	if (schedule->extends && schedule->extends->kind == PP_EXPR_PATH) {
		base = pp_module_block(module, "schedule", schedule->extends, &base_module);
		if (base && !pp_section_extends_once(resolver, schedule, base))
			return;
		if (base)
			pp_section_fill(resolver, section, base, base_module, false);
		base_policy = base && base->label.text ? base->label.text : schedule->extends->text;
	}
	bool own = has_rows(schedule) || schedule->from.text;
	resolver->schedule_split = pp_find_split(resolver, schedule);
	resolver->schedule_split_module = module;
	if (!resolver->schedule_split && base && !own) {
		resolver->schedule_split = pp_find_split(resolver, base);
		resolver->schedule_split_module = base_module;
	}
	pp_section_fill(resolver, section, schedule, module, base != NULL);
	section->stmt = schedule;
	section->span = schedule->label.text ? schedule->label.span : schedule->name.span;
	if (refuse_both(resolver, schedule))
		return;
	if (own && schedule->label.text && pp_policy_find(schedule->label.text)) {
		pp_help(pp_error(resolver->diag, "E0103", schedule->label.span, "`%s` is a schedule of the library",
		                 schedule->label.text),
		        "give yours another name");
		return;
	}
	if (!schedule->from.text && !(base && base->from.text))
		pp_schedule_refuse_legacy(resolver);
	if (schedule->from.text)
		pp_schedule_import(resolver, schedule, module);
	else if (own)
		resolver->out->schedule = schedule;
	else if (base && base->from.text)
		pp_schedule_import(resolver, base, base_module);
	else if (base && has_rows(base))
		resolver->out->schedule = base;
	else if (base_policy)
		use_policy(resolver, base_policy, schedule->extends->span);
	else if (schedule->label.text)
		use_policy(resolver, schedule->label.text, schedule->label.span);
	else
		pp_help(
		    pp_error(resolver->diag, "E0111", schedule->name.span, "this schedule has neither a name nor an `order`"),
		    "write `schedule 1f1b`, or `schedule mine { order { … } }`");
	if (resolver->out->policy || resolver->out->schedule || resolver->out->imported)
		pp_section_read_all(resolver, section);
}

void pp_schedule_choose(struct pp_resolver *resolver)
{
	struct choice choice = {0};
	struct pp_module *owner;
	if (!choose(resolver, &choice))
		return;
	const struct pp_stmt *schedule = find_schedule(resolver, choice.name, &owner);
	resolver->out->spec.schedule_name = choice.name;
	resolver->out->spec.schedule_span = schedule ? schedule->name.span : choice.span;
	if (schedule)
		use_written(resolver, schedule, owner);
	else
		use_policy(resolver, choice.name, choice.span);
}

/* ---- the scope of its rows ------------------------------------------------------------------- */

static enum pp_lookup lookup(void *context, struct pp_eval *eval, const struct pp_expr *path, struct pp_datum *out)
{
	struct pp_resolver *resolver = context;
	(void)eval;
	if (path->part_count != 1)
		return PP_LOOKUP_NONE;
	struct pp_section *section = resolver->sections[PP_SECTION_SCHEDULE];
	enum pp_attribute attribute = pp_schema_attribute(PP_BLOCK_schedule, path->parts[0].text);
	if (attribute == PP_ATTR_COUNT)
		return PP_LOOKUP_NONE;
	const struct pp_field *field = pp_field_read(resolver, section, attribute);
	if (!field)
		return PP_LOOKUP_FAILED;
	*out = field->state == PP_READY ? field->value : pp_datum_whole(0);
	return PP_LOOKUP_FOUND;
}

const struct pp_policy *pp_schedule_start(struct pp_resolver *resolver)
{
	struct pp_section *section = resolver->sections[PP_SECTION_SCHEDULE];
	const char *start;
	if (!pp_field_given(section, PP_ATTR_schedule_start) ||
	    !pp_field_name(resolver, section, PP_ATTR_schedule_start, &start))
		return NULL;
	const struct pp_policy *policy = pp_policy_find(start);
	return policy && policy->status == PP_NOW && strcmp(start, "search") != 0 ? policy : NULL;
}

static void read_seek(struct pp_resolver *resolver, struct pp_section *section, struct pp_seek *seek)
{
	seek->trial = resolver->options->hint.trial;
	seek->used = resolver->out->policy && strcmp(resolver->out->policy, "search") == 0;
	pp_field_choice(resolver, section, PP_ATTR_schedule_objective, &seek->objective);
	pp_field_scaled(resolver, section, PP_ATTR_schedule_timeout, 1000000000, &seek->timeout);
	pp_field_whole(resolver, section, PP_ATTR_schedule_seed, &seek->seed);
	pp_field_whole(resolver, section, PP_ATTR_schedule_effort, &seek->effort);
	if (!pp_field_given(section, PP_ATTR_schedule_start) ||
	    !pp_field_name(resolver, section, PP_ATTR_schedule_start, &seek->start))
		return;
	seek->start_span = pp_field_span(section, PP_ATTR_schedule_start);
	if (pp_schedule_start(resolver))
		return;
	struct pp_module *owner;
	bool written = find_schedule(resolver, seek->start, &owner) != NULL;
	struct pp_message *message =
	    pp_error(resolver->diag, "E0641", seek->start_span, "search can't start from `%.60s`%s", seek->start,
	             written ? ": it starts from schedules of the library only" : "");
	pp_help(message, "name a schedule of the library, as in `start = zb_v`, or leave it out: then all compete");
}

static void take_asserts(struct pp_resolver *resolver, const struct pp_stmt *schedule, const struct pp_scope *scope)
{
	for (const struct pp_stmt *at = schedule ? schedule->body : NULL; at; at = at->next)
		if (at->kind == PP_STMT_ASSERT)
			*PP_PUSH(resolver->arena, &resolver->asserts, &resolver->assert_count, &resolver->assert_capacity,
			         struct pp_assertion) = (struct pp_assertion){at, scope};
}

static bool grouped(const char *policy)
{
	static const char *const names[] = {"interleaved", "zb_h1", "gis", "gis_h"};
	for (size_t i = 0; policy && i < sizeof names / sizeof *names; i++)
		if (strcmp(policy, names[i]) == 0)
			return true;
	return false;
}

enum taken_by { TAKEN_BY_SEARCH, TAKEN_BY_GROUPS, TAKEN_BY_PAIRS };

/* Of schedules of the library; rows and rules of the file may read any setting but those of a search. */
static bool takes(const struct pp_resolver *resolver, enum taken_by by)
{
	const char *policy = resolver->out->policy;
	switch (by) {
	case TAKEN_BY_SEARCH:
		return policy && strcmp(policy, "search") == 0;
	case TAKEN_BY_GROUPS:
		return !policy || (grouped(policy) && resolver->out->spec.parallel.vpp > 1);
	case TAKEN_BY_PAIRS:
		return !policy || strcmp(policy, "dualpipe_v") == 0;
	}
	return true;
}

/* E0114: what the schedule does not look at. */
static void refuse_without_effect(struct pp_resolver *resolver, const struct pp_section *section)
{
	static const struct {
		uint16_t attribute, by;
		const char *help;
	} rows[] = {
	    {PP_ATTR_schedule_objective, TAKEN_BY_SEARCH, "remove it, or use schedule search"},
	    {PP_ATTR_schedule_timeout, TAKEN_BY_SEARCH, "remove it, or use schedule search"},
	    {PP_ATTR_schedule_seed, TAKEN_BY_SEARCH, "remove it, or use schedule search"},
	    {PP_ATTR_schedule_effort, TAKEN_BY_SEARCH, "remove it, or use schedule search"},
	    {PP_ATTR_schedule_start, TAKEN_BY_SEARCH, "remove it, or use schedule search"},
	    {PP_ATTR_schedule_group, TAKEN_BY_GROUPS, "remove it, or use interleaved, zb_h1, gis or gis_h with `vpp` >= 2"},
	    {PP_ATTR_schedule_pair_cost, TAKEN_BY_PAIRS, "remove it, or use dualpipe_v, or rows with pairs: `F&B.1`"},
	};
	const struct pp_resolved *out = resolver->out;
	for (size_t i = 0; i < sizeof rows / sizeof *rows && !resolver->options->all_schedules; i++) {
		enum pp_attribute attribute = (enum pp_attribute)rows[i].attribute;
		if (!pp_field_given(section, attribute) || takes(resolver, (enum taken_by)rows[i].by) ||
		    (!out->policy && !out->schedule && !out->imported))
			continue;
		pp_help(pp_error(resolver->diag, "E0114", pp_field_of(section, attribute)->name_span,
		                 "`%s` has no effect under %s%.60s%s%s", pp_attribute_table[attribute].name,
		                 out->policy ? "`" : "", out->policy ? out->policy : "a schedule of rows or rules",
		                 out->policy ? "`" : "",
		                 rows[i].by == TAKEN_BY_GROUPS && grouped(out->policy) ? " with one stage on a rank" : ""),
		        "%s", rows[i].help);
	}
}

void pp_resolve_schedule(struct pp_resolver *resolver)
{
	struct pp_spec *spec = &resolver->out->spec;
	struct pp_section *section = resolver->sections[PP_SECTION_SCHEDULE];
	uint64_t group, memory;
	if (pp_field_scaled(resolver, section, PP_ATTR_schedule_memory, 1, &memory))
		spec->schedule_memory = memory;
	spec->memory_span = spec->schedule_span;
	if (pp_field_given(section, PP_ATTR_schedule_memory))
		spec->memory_span = pp_span_join(pp_field_of(section, PP_ATTR_schedule_memory)->name_span,
		                                 pp_field_span(section, PP_ATTR_schedule_memory));
	if (pp_field_whole(resolver, section, PP_ATTR_schedule_group, &group))
		spec->group = (uint32_t)group;
	read_seek(resolver, section, &spec->seek);
	refuse_without_effect(resolver, section);
	double pair;
	uint8_t surplus;
	spec->pair_permille = 1000;
	if (pp_field_real(resolver, section, PP_ATTR_schedule_pair_cost, &pair) && pair > 0)
		spec->pair_permille = (uint32_t)(pair * 1000 + 0.5);
	if (pp_field_choice(resolver, section, PP_ATTR_schedule_surplus, &surplus))
		spec->drop_surplus = surplus == 1;
	struct pp_binding *names = PP_NEW_ARRAY(resolver->arena, struct pp_binding, 3);
	names[0] = (struct pp_binding){pp_intern_z(resolver->strings, "p"), pp_datum_whole(spec->parallel.pp)};
	names[1] = (struct pp_binding){pp_intern_z(resolver->strings, "m"), pp_datum_whole(spec->microbatches)};
	names[2] = (struct pp_binding){pp_intern_z(resolver->strings, "v"), pp_datum_whole(spec->parallel.vpp)};
	struct pp_module *module = section->stmt ? section->module : resolver->main;
	struct pp_scope *own = PP_NEW(resolver->arena, struct pp_scope), *counts = PP_NEW(resolver->arena, struct pp_scope);
	*own = (struct pp_scope){.outer = &module->scope, .lookup = lookup, .context = resolver};
	*counts = (struct pp_scope){.outer = own, .bindings = names, .count = 3};
	resolver->out->scope = counts;
	take_asserts(resolver, section->stmt, counts);
	if (resolver->out->schedule != section->stmt)
		take_asserts(resolver, resolver->out->schedule, counts); /* of what it extends */
}
