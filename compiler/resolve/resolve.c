/* The order in which a file is resolved. Each step goes on as far as it can after an error of its own, and steps that
 * need what failed stay silent. */
#include "resolver.h"

#include <string.h>

struct listing {
	struct pp_setting *items;
	size_t count, capacity;
};

static void list(struct pp_resolver *resolver, struct listing *listing, struct pp_setting setting)
{
	*PP_PUSH(resolver->arena, &listing->items, &listing->count, &listing->capacity, struct pp_setting) = setting;
}

static void list_params(struct pp_resolver *resolver, struct listing *listing)
{
	for (size_t i = 0; i < resolver->main->count; i++) {
		const struct pp_symbol *symbol = &resolver->main->symbols[i];
		if (symbol->stmt->kind == PP_STMT_PARAM && symbol->state == PP_READY)
			list(resolver, listing,
			     (struct pp_setting){"param", symbol->key, symbol->value, symbol->origin, symbol->stmt->name.span});
	}
}

/* Defaults that nobody asked for are read too, once nothing else is wrong. */
static void read_presets(struct pp_resolver *resolver, struct pp_section *section)
{
	for (size_t i = 0; i < section->count; i++) {
		const char *preset = pp_attribute_table[section->first + i].preset;
		if (strncmp(preset, "required", 8) != 0 && strcmp(preset, "derived") != 0)
			pp_field_read(resolver, section, (enum pp_attribute)(section->first + i));
	}
}

static void list_fields(struct pp_resolver *resolver, const struct pp_section *section, const char *title,
                        struct listing *listing);

/* `lr = cosine(1e-3, warmup = 20)`: run.lr.peak, run.lr.warmup, run.lr.floor. */
static void list_arguments(struct pp_resolver *resolver, const struct pp_field *field, const char *title,
                           struct listing *listing)
{
	struct pp_section *arguments = pp_diag_ok(resolver->diag) ? pp_section_arguments(resolver, field) : NULL;
	if (!arguments)
		return;
	pp_section_read_all(resolver, arguments);
	read_presets(resolver, arguments);
	list_fields(resolver, arguments, title, listing);
}

static void list_fields(struct pp_resolver *resolver, const struct pp_section *section, const char *title,
                        struct listing *listing)
{
	for (size_t i = 0; i < section->count; i++) {
		const struct pp_field *field = &section->fields[i];
		const char *name = pp_attribute_table[section->first + i].name;
		if (field->state != PP_READY)
			continue;
		list(resolver, listing,
		     (struct pp_setting){title, name, field->value, field->origin,
		                         field->expr ? field->expr->span : PP_NO_SPAN});
		list_arguments(resolver, field, pp_arena_printf(resolver->arena, "%s.%s", title, name), listing);
	}
}

/* Numbers that follow from several attributes and that nobody writes. */
static void list_derived(struct pp_resolver *resolver, int section, struct listing *listing)
{
	const struct pp_spec *spec = &resolver->out->spec;
	const struct pp_parallel *parallel = &spec->parallel;
	uint64_t ranks = (uint64_t)parallel->tp * parallel->pp * parallel->dp;
	if (section == PP_SECTION_MODEL && spec->model.trains)
		list(resolver, listing,
		     (struct pp_setting){"model", "padded_vocab", pp_datum_whole(spec->model.padded_vocab), PP_ORIGIN_DERIVED,
		                         PP_NO_SPAN});
	if (section == PP_SECTION_PARALLEL && ranks)
		list(resolver, listing,
		     (struct pp_setting){"parallel", "ranks", pp_datum_whole((int64_t)ranks), PP_ORIGIN_DERIVED, PP_NO_SPAN});
	if (section == PP_SECTION_PARALLEL && ranks && pp_spec_idle_gpus(spec))
		list(resolver, listing,
		     (struct pp_setting){"parallel", "idle_gpus", pp_datum_whole((int64_t)pp_spec_idle_gpus(spec)),
		                         PP_ORIGIN_DERIVED, PP_NO_SPAN});
}

/* A gpu that the cluster describes itself has no name to be told by: that it is described, and where. */
static void list_described_gpu(const struct pp_resolver *resolver, const struct listing *listing)
{
	const struct pp_section *gpu = resolver->sections[PP_SECTION_GPU];
	for (size_t i = 0; i < listing->count && gpu->stmt; i++) {
		struct pp_setting *setting = &listing->items[i];
		if (strcmp(setting->block, "cluster") != 0 || strcmp(setting->attribute, "gpu") != 0 ||
		    setting->origin != PP_ORIGIN_DEFAULT)
			continue;
		setting->value.text = pp_section_label(gpu);
		setting->origin = PP_ORIGIN_FILE;
		setting->span = gpu->stmt->name.span;
	}
}

/* What `pipec show` prints: params, then each block in the order of the schema. */
static void list_settings(struct pp_resolver *resolver)
{
	struct listing listing = {0};
	list_params(resolver, &listing);
	for (int i = 0; i < PP_SECTION_COUNT; i++) {
		struct pp_section *section = resolver->sections[i];
		if (pp_diag_ok(resolver->diag))
			read_presets(resolver, section);
		list_fields(resolver, section, section->title, &listing);
		list_derived(resolver, i, &listing);
	}
	list_described_gpu(resolver, &listing);
	resolver->out->settings = listing.items;
	resolver->out->setting_count = listing.count;
}

/* Where later passes point when something is wrong with a whole block; `microbatches` for the batch. */
static void note_spans(struct pp_resolver *resolver)
{
	struct pp_spec *spec = &resolver->out->spec;
	spec->model_span = resolver->sections[PP_SECTION_MODEL]->span;
	spec->cluster_span = resolver->sections[PP_SECTION_CLUSTER]->span;
	spec->parallel_span = resolver->sections[PP_SECTION_PARALLEL]->span;
	spec->vpp_span = pp_field_span(resolver->sections[PP_SECTION_PARALLEL], PP_ATTR_parallel_vpp);
	spec->place_span = pp_field_span(resolver->sections[PP_SECTION_STAGES], PP_ATTR_stages_place);
	spec->train_span = pp_field_span(resolver->sections[PP_SECTION_TRAIN], PP_ATTR_train_microbatches);
}

static void resolve_blocks(struct pp_resolver *resolver)
{
	pp_sections_set(resolver);
	pp_schedule_choose(resolver);
	resolver->custom_only = pp_model_is_custom(resolver);
	pp_params_read_all(resolver);
	pp_resolve_model(resolver);
	pp_resolve_cluster(resolver);
	pp_resolve_parallel(resolver);
	pp_resolve_tensor(resolver);
	pp_resolve_train(resolver);
	pp_resolve_stages(resolver);
	pp_resolve_run(resolver);
	pp_resolve_schedule(resolver);
	pp_imported_check(resolver);
	note_spans(resolver);
	pp_names_check_schedules(resolver);
	pp_asserts_check_now(resolver);
}

bool pp_resolve(struct pp_arena *arena, struct pp_strtab *strings, struct pp_sources *sources, const struct pp_ast *ast,
                const struct pp_resolve_options *options, struct pp_diag *diag, struct pp_resolved *out)
{
	struct pp_resolver *resolver = PP_NEW(arena, struct pp_resolver);
	size_t before = pp_diag_errors(diag);
	*out = (struct pp_resolved){.strings = strings, .sources = sources};
	*resolver = (struct pp_resolver){.arena = arena,
	                                 .strings = strings,
	                                 .sources = sources,
	                                 .diag = diag,
	                                 .options = options,
	                                 .out = out,
	                                 .eval = {.arena = arena, .sources = sources, .diag = diag}};
	pp_modules_load(resolver, ast);
	resolver->eval.scope = &resolver->main->scope;
	pp_params_define(resolver);
	pp_names_mark(resolver);
	pp_params_report_unused(resolver);
	pp_sections_find(resolver);
	resolve_blocks(resolver);
	list_settings(resolver);
	return pp_diag_errors(diag) == before;
}
