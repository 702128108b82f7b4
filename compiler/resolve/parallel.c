/* The grid: how many ranks lie along each axis, what is sharded over dp, how world ranks are numbered. Ensures:
 * tp·pp·dp·cp ranks fit the cluster (E0304), the order of axes names each that has several coordinates (E0315). */
#include "resolver.h"

#include <string.h>

struct grid {
	uint64_t tp, pp, dp, ranks, devices;
};

static const char *product_text(struct pp_resolver *resolver, const struct grid *grid)
{
	return pp_arena_printf(resolver->arena, "tp·pp·dp = %llu·%llu·%llu", (unsigned long long)grid->tp,
	                       (unsigned long long)grid->pp, (unsigned long long)grid->dp);
}

struct pp_span pp_grid_span(const struct pp_section *parallel, enum pp_attribute otherwise)
{
	static const uint16_t axes[] = {PP_ATTR_parallel_dp, PP_ATTR_parallel_pp, PP_ATTR_parallel_tp};
	for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
		const struct pp_field *field = pp_field_of(parallel, (enum pp_attribute)axes[i]);
		if (field->expr && field->origin == PP_ORIGIN_SET)
			return pp_field_span(parallel, (enum pp_attribute)axes[i]);
	}
	return pp_field_span(parallel, otherwise);
}

/* The axis that a change of its size alone would make fit; dp only where it is written. */
static enum pp_attribute misfit(const struct pp_section *parallel, const struct grid *grid)
{
	if (grid->devices % grid->tp != 0)
		return PP_ATTR_parallel_tp;
	bool dp_fits = grid->devices % (grid->tp * grid->pp) == 0;
	return dp_fits && pp_field_given(parallel, PP_ATTR_parallel_dp) ? PP_ATTR_parallel_dp : PP_ATTR_parallel_pp;
}

static void check_grid(struct pp_resolver *resolver, struct pp_section *parallel, const struct grid *grid)
{
	const char *idle;
	if (!pp_field_name(resolver, parallel, PP_ATTR_parallel_idle, &idle))
		return;
	if (grid->ranks == grid->devices || (grid->ranks < grid->devices && strcmp(idle, "allow") == 0))
		return;
	const struct pp_section *cluster = resolver->sections[PP_SECTION_CLUSTER];
	struct pp_message *message =
	    pp_error(resolver->diag, "E0304", pp_grid_span(parallel, misfit(parallel, grid)),
	             "%s = %llu but the cluster has %llu GPU%s", product_text(resolver, grid),
	             (unsigned long long)grid->ranks, (unsigned long long)grid->devices, grid->devices == 1 ? "" : "s");
	pp_label(message, pp_field_span(cluster, PP_ATTR_cluster_gpus), "%llu GPUs", (unsigned long long)grid->devices);
	unsigned long long pipeline = grid->tp * grid->pp;
	const char *otherwise = grid->ranks < grid->devices ? "set `idle = allow` in `parallel`"
	                                                    : pp_arena_printf(resolver->arena, "give the cluster %llu GPUs",
	                                                                      (unsigned long long)grid->ranks);
	if (grid->devices % pipeline == 0)
		pp_help(message, "use dp = %llu, or %s", grid->devices / pipeline, otherwise);
	else if (grid->devices % (grid->tp * grid->dp) == 0)
		pp_help(message, "use pp = %llu, or %s", (unsigned long long)(grid->devices / (grid->tp * grid->dp)),
		        otherwise);
	else if (grid->devices % grid->tp == 0)
		pp_help(message, "use pp = %llu with dp = 1, or %s", (unsigned long long)(grid->devices / grid->tp), otherwise);
	else
		pp_help(message, "use a tp that divides %llu, or %s", (unsigned long long)grid->devices, otherwise);
}

static void check_sp(struct pp_resolver *resolver, struct pp_section *parallel, uint64_t tp)
{
	bool sp;
	if (resolver->custom_only || !pp_field_truth(resolver, parallel, PP_ATTR_parallel_sp, &sp) || !sp)
		return;
	if (tp == 1)
		pp_help(pp_warning(resolver->diag, "W0307", pp_field_span(parallel, PP_ATTR_parallel_sp),
		                   "`sp = true` has no effect with tp = 1"),
		        "leave it out");
}

/* ---- order of ranks -------------------------------------------------------------------------- */

static const char *const axis_names[] = {"pp", "tp", "dp"}; /* by enum pp_axis */

static uint32_t extent(const struct pp_parallel *parallel, enum pp_axis axis)
{
	return axis == PP_AXIS_PP ? parallel->pp : axis == PP_AXIS_TP ? parallel->tp : parallel->dp;
}

/* The list as written, with an axis behind it: "[tp, pp, dp]". */
static const char *list_with(struct pp_resolver *resolver, const struct pp_field *field, enum pp_axis axis)
{
	const char *text = "[";
	for (uint32_t i = 0; i < field->value.count; i++)
		text = pp_arena_printf(resolver->arena, "%s%s, ", text, field->value.items[i].text);
	return pp_arena_printf(resolver->arena, "%s%s]", text, axis_names[axis]);
}

/* Axes fastest first. One that is left out has one coordinate, and may as well come last. */
static void read_order(struct pp_resolver *resolver, struct pp_section *section, struct pp_parallel *parallel)
{
	static const uint8_t usual[] = {PP_AXIS_TP, PP_AXIS_DP, PP_AXIS_PP};
	const struct pp_field *field = pp_field_read(resolver, section, PP_ATTR_parallel_rank_order);
	uint32_t count = 0;
	bool listed[PP_AXIS_COUNT] = {false};
	for (uint32_t i = 0; field && field->state == PP_READY && i < field->value.count; i++) {
		const struct pp_datum *item = &field->value.items[i];
		if (item->kind != PP_DATUM_NAME) { /* a list of something else, from a parameter */
			pp_help(pp_error(resolver->diag, "E0207", pp_field_span(section, PP_ATTR_parallel_rank_order),
			                 "`rank_order` lists axes, and `%s` is none", pp_datum_text(resolver->arena, item)),
			        "axes are tp cp ep dp pp");
			return;
		}
		for (unsigned axis = 0; axis < PP_AXIS_COUNT; axis++)
			if (strcmp(item->text, axis_names[axis]) == 0 && !listed[axis]) {
				listed[axis] = true;
				parallel->rank_order[count++] = (uint8_t)axis;
			}
	}
	for (unsigned i = 0; i < PP_AXIS_COUNT; i++) {
		enum pp_axis axis = (enum pp_axis)usual[i];
		if (listed[axis])
			continue;
		parallel->rank_order[count++] = (uint8_t)axis;
		if (!field || field->state != PP_READY || extent(parallel, axis) == 1)
			continue;
		pp_help(pp_error(resolver->diag, "E0315", pp_field_span(section, PP_ATTR_parallel_rank_order),
		                 "`rank_order` leaves out %s, along which there are %u ranks", axis_names[axis],
		                 extent(parallel, axis)),
		        "write `rank_order = %s`: then ranks that differ in %s lie farthest apart",
		        list_with(resolver, field, axis), axis_names[axis]);
	}
}

/* ---- shards over dp -------------------------------------------------------------------------- */

/* Whether an optimizer's state is planned: custom layers have one where they say how many parameters they have. */
static bool has_states(const struct pp_resolver *resolver)
{
	const struct pp_model *model = &resolver->out->spec.model;
	for (uint32_t i = 0; resolver->custom_only && i < model->layer_count; i++)
		if (model->layers[i].custom.params)
			return true;
	return !resolver->custom_only;
}

static void read_zero(struct pp_resolver *resolver, struct pp_section *section, struct pp_parallel *parallel)
{
	uint64_t zero;
	if (!pp_field_whole(resolver, section, PP_ATTR_parallel_zero, &zero))
		return;
	struct pp_span span = pp_field_span(section, PP_ATTR_parallel_zero);
	if (zero > 1)
		pp_help(pp_not_yet(resolver, span, pp_arena_printf(resolver->arena, "`zero = %llu`", (unsigned long long)zero)),
		        "use `zero = 1`, which shards the state of the optimizer");
	else if (pp_field_given(section, PP_ATTR_parallel_zero) && !has_states(resolver))
		pp_help(pp_error(resolver->diag, "E0114", pp_field_of(section, PP_ATTR_parallel_zero)->name_span,
		                 "`zero` has no effect: these custom layers have no `params`"),
		        "remove it, or give the layers `params`");
	else if (zero == 1 && parallel->dp == 1)
		pp_help(pp_warning(resolver->diag, "W0316", span, "`zero = 1` has no effect with dp = 1"), "%s",
		        pp_field_of(section, PP_ATTR_parallel_dp)->origin == PP_ORIGIN_DERIVED
		            ? "leave it out, or give the cluster GPUs for a second replica"
		            : "leave it out");
	parallel->zero = parallel->dp > 1 ? (uint32_t)zero : 0;
}

/* ---- the grid -------------------------------------------------------------------------------- */

/* What is written, refused or not. */
static uint64_t written(struct pp_section *section, enum pp_attribute attribute)
{
	const struct pp_field *field = pp_field_of(section, attribute);
	int64_t whole;
	bool valid = field->expr && field->value.kind == PP_DATUM_NUMBER && field->value.exact &&
	             pp_rational_int64(field->value.number, &whole);
	return valid && whole >= 1 && whole <= 65536 ? (uint64_t)whole : 1;
}

void pp_resolve_parallel(struct pp_resolver *resolver)
{
	struct pp_section *section = resolver->sections[PP_SECTION_PARALLEL];
	struct pp_parallel *parallel = &resolver->out->spec.parallel;
	const struct pp_cluster *cluster = &resolver->out->spec.cluster;
	uint64_t vpp;
	struct grid grid;
	pp_section_read_all(resolver, section);
	bool sp = false, ok = pp_field_whole(resolver, section, PP_ATTR_parallel_pp, &grid.pp);
	ok &= pp_field_whole(resolver, section, PP_ATTR_parallel_tp, &grid.tp);
	ok &= pp_field_truth(resolver, section, PP_ATTR_parallel_sp, &sp);
	ok &= pp_field_whole(resolver, section, PP_ATTR_parallel_vpp, &vpp);
	if (!ok)
		return;
	check_sp(resolver, section, grid.tp);
	if (cluster->gpus == 0)
		return;
	grid.devices = (uint64_t)cluster->nodes * cluster->gpus;
	bool refused = written(section, PP_ATTR_parallel_cp) > 1;
	bool unknown = refused && !pp_field_given(section, PP_ATTR_parallel_dp); /* dp = auto depends on what is refused */
	grid.dp = 1;
	if (!unknown && !pp_field_whole(resolver, section, PP_ATTR_parallel_dp, &grid.dp))
		return;
	if (__builtin_mul_overflow(grid.tp * grid.pp, grid.dp, &grid.ranks))
		grid.ranks = UINT64_MAX;
	if (!refused || grid.ranks > grid.devices) /* with a refused cp: only what fits without it neither */
		check_grid(resolver, section, &grid);
	if (unknown)
		return;
	if (vpp * grid.pp > 65535)
		pp_help(pp_error(resolver->diag, "E0106", pp_field_span(section, PP_ATTR_parallel_vpp),
		                 "pp · vpp = %llu · %llu = %llu stages are outside 1..65535", (unsigned long long)grid.pp,
		                 (unsigned long long)vpp, (unsigned long long)(grid.pp * vpp)),
		        "use fewer ranks or stages on each rank");
	*parallel = (struct pp_parallel){
	    .tp = (uint32_t)grid.tp, .pp = (uint32_t)grid.pp, .vpp = (uint32_t)vpp, .dp = (uint32_t)grid.dp};
	parallel->sp = sp && grid.tp > 1;
	read_order(resolver, section, parallel);
	read_zero(resolver, section, parallel);
	pp_field_scaled(resolver, section, PP_ATTR_parallel_bucket, 1, &parallel->bucket);
}
