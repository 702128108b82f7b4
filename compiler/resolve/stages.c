/* Placement and the wishes for balance; an explicit split, here or in the schedule, is read by split.c. */
#include "resolver.h"

#include <string.h>

/* Ranks of an explicit list: each within 0..pp-1, each rank with a stage. */
static bool read_list(struct pp_resolver *resolver, const struct pp_field *field, struct pp_stages_spec *stages)
{
	uint32_t pp = resolver->out->spec.parallel.pp, count = field->value.count;
	if (count == 0 || count > 65535) {
		pp_error(resolver->diag, "E0106", field->expr->span, "`place` lists %u stages, outside 1..65535", count);
		return false;
	}
	stages->place_list = PP_NEW_ARRAY(resolver->arena, uint32_t, count);
	uint32_t *held = PP_NEW_ARRAY(resolver->arena, uint32_t, pp), most = 0;
	for (uint32_t i = 0; i < count; i++) {
		int64_t rank;
		if (!pp_datum_to_whole(&resolver->eval, field->expr, "a rank in `place`", &field->value.items[i], &rank))
			return false;
		if (rank < 0 || rank >= pp) {
			struct pp_message *message =
			    pp_error(resolver->diag, "E0106", field->expr->span,
			             "`place` puts stage %u on rank %lld, outside 0..%u", i, (long long)rank, pp - 1);
			pp_help(message, "ranks are 0 to pp - 1, and pp is %u", pp);
			return false;
		}
		stages->place_list[i] = (uint32_t)rank;
		held[rank]++;
		most = held[rank] > most ? held[rank] : most;
	}
	for (uint32_t rank = 0; rank < pp; rank++) {
		if (held[rank] > 0)
			continue;
		pp_help(
		    pp_error(resolver->diag, "E0402", field->expr->span, "`place` puts no stage on rank %u of %u", rank, pp),
		    "list each of the ranks 0..%u at least once", pp - 1);
		return false;
	}
	stages->place = PP_PLACE_LIST;
	stages->stage_count = count;
	struct pp_section *parallel = resolver->sections[PP_SECTION_PARALLEL];
	if (pp_field_given(parallel, PP_ATTR_parallel_vpp) && (uint64_t)resolver->out->spec.parallel.vpp * pp != count) {
		struct pp_message *message =
		    pp_error(resolver->diag, "E0402", field->expr->span, "`place` lists %u stages, pp·vpp is %u·%u", count, pp,
		             resolver->out->spec.parallel.vpp);
		pp_label(message, pp_field_span(parallel, PP_ATTR_parallel_vpp), "stages on each rank");
		pp_help(message, "leave `vpp` out: the list says it");
		return false;
	}
	resolver->out->spec.parallel.vpp = most;
	return true;
}

static bool read_place(struct pp_resolver *resolver, struct pp_section *section, struct pp_stages_spec *stages)
{
	const struct pp_parallel *parallel = &resolver->out->spec.parallel;
	const struct pp_field *field = pp_field_read(resolver, section, PP_ATTR_stages_place);
	if (!field)
		return false;
	if (resolver->imported && !pp_field_given(section, PP_ATTR_stages_place)) {
		pp_imported_place(resolver, stages);
		return true;
	}
	if (field->value.kind == PP_DATUM_LIST)
		return read_list(resolver, field, stages);
	stages->stage_count = parallel->pp * parallel->vpp;
	return pp_field_choice(resolver, section, PP_ATTR_stages_place, &stages->place);
}

const struct pp_stmt *pp_find_split(struct pp_resolver *resolver, const struct pp_stmt *block)
{
	const struct pp_stmt *found = NULL;
	for (const struct pp_stmt *at = block ? block->body : NULL; at; at = at->next) {
		if (at->kind != PP_STMT_SPLIT)
			continue;
		if (found) {
			pp_label(pp_error(resolver->diag, "E0103", at->span, "`split` is written twice"), found->span,
			         "first here");
			return NULL;
		}
		found = at;
	}
	return found;
}

static void check_limits(struct pp_resolver *resolver, struct pp_section *section, const struct pp_stages_spec *stages)
{
	if (stages->max_layers == 0 || stages->max_layers >= stages->min_layers)
		return;
	struct pp_message *message =
	    pp_error(resolver->diag, "E0106", pp_field_span(section, PP_ATTR_stages_max_layers),
	             "max_layers %u is less than min_layers %u", stages->max_layers, stages->min_layers);
	pp_label(message, pp_field_span(section, PP_ATTR_stages_min_layers), "min_layers");
	pp_help(message, "swap them, or leave one out");
}

/* With a split the wishes for balance would do nothing: say so instead of ignoring them. */
static void check_unused(struct pp_resolver *resolver, const struct pp_section *section, const struct pp_stmt *split)
{
	static const enum pp_attribute wishes[] = {PP_ATTR_stages_balance, PP_ATTR_stages_min_layers,
	                                           PP_ATTR_stages_max_layers};
	for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
		const struct pp_field *field = pp_field_of(section, wishes[i]);
		if (!field->expr)
			continue;
		struct pp_message *message =
		    pp_error(resolver->diag, "E0114", field->name_span, "`%s` has no effect beside an explicit split",
		             pp_attribute_table[wishes[i]].name);
		pp_label(message, split->span, "the split");
		pp_help(message, "remove one of the two");
	}
}

void pp_resolve_stages(struct pp_resolver *resolver)
{
	struct pp_spec *spec = &resolver->out->spec;
	struct pp_section *section = resolver->sections[PP_SECTION_STAGES];
	struct pp_stages_spec *stages = &spec->stages;
	const struct pp_stmt *split = pp_find_split(resolver, section->stmt);
	uint64_t least, most;
	stages->span = section->span;
	if (spec->parallel.pp == 0) /* not known: reported */
		return;
	pp_section_read_all(resolver, section);
	bool ok = pp_field_choice(resolver, section, PP_ATTR_stages_balance, &stages->balance);
	ok &= pp_field_whole(resolver, section, PP_ATTR_stages_min_layers, &least);
	ok &= pp_field_whole(resolver, section, PP_ATTR_stages_max_layers, &most);
	if (!read_place(resolver, section, stages) || !ok)
		return;
	stages->min_layers = (uint32_t)least;
	stages->max_layers = (uint32_t)most;
	stages->balance_span = pp_field_span(section, PP_ATTR_stages_balance);
	check_limits(resolver, section, stages);
	if (split)
		check_unused(resolver, section, split);
	stages->split_frozen = resolver->schedule_split != NULL;
	if (stages->split_frozen)
		split = resolver->schedule_split;
	if (split && spec->model.layer_count > 0)
		pp_resolve_split(resolver, split, stages->split_frozen ? resolver->schedule_split_module : section->module);
}
