/* The machines and the grid: devices, links, and how many ranks lie along each axis. Ensures: tp·pp·dp·cp ranks fit the
 * cluster (E0304), the number format in use has a speed (E0503). */
#include "resolver.h"

#include <string.h>

static bool read_gpu(struct pp_resolver *resolver, struct pp_gpu *gpu)
{
	struct pp_section *section = resolver->sections[PP_SECTION_GPU], *flops = resolver->sections[PP_SECTION_FLOPS];
	const char *name;
	bool ok = pp_field_name(resolver, resolver->sections[PP_SECTION_CLUSTER], PP_ATTR_cluster_gpu, &name);
	gpu->name = section->stmt && strcmp(name, "cpu_core") == 0 ? pp_section_label(section) : name;
	ok &= pp_field_scaled(resolver, section, PP_ATTR_gpu_memory, 1, &gpu->memory);
	ok &= pp_field_scaled(resolver, section, PP_ATTR_gpu_reserve, 1, &gpu->reserve);
	ok &= pp_field_scaled(resolver, section, PP_ATTR_gpu_bandwidth, 1, &gpu->bandwidth);
	ok &= pp_field_real(resolver, section, PP_ATTR_gpu_efficiency, &gpu->efficiency);
	ok &= pp_field_scaled(resolver, flops, PP_ATTR_flops_fp32, 1, &gpu->flops[PP_F32]);
	ok &= pp_field_scaled(resolver, flops, PP_ATTR_flops_bf16, 1, &gpu->flops[PP_BF16]);
	if (ok && gpu->reserve >= gpu->memory) {
		struct pp_message *message =
		    pp_error(resolver->diag, "E0106", pp_field_span(section, PP_ATTR_gpu_reserve),
		             "`reserve` = %s leaves nothing of the memory",
		             pp_datum_text(resolver->arena, &pp_field_of(section, PP_ATTR_gpu_reserve)->value));
		pp_label(message, pp_field_span(section, PP_ATTR_gpu_memory), "memory is %s",
		         pp_datum_text(resolver->arena, &pp_field_of(section, PP_ATTR_gpu_memory)->value));
		pp_help(message, "use a smaller reserve");
	}
	return ok;
}

static bool read_link(struct pp_resolver *resolver, enum pp_section_id id, struct pp_link *link)
{
	struct pp_section *section = resolver->sections[id];
	bool ok = pp_field_scaled(resolver, section, PP_ATTR_link_bandwidth, 1, &link->bandwidth);
	return pp_field_scaled(resolver, section, PP_ATTR_link_latency, 1000000000, &link->latency) && ok;
}

/* A device that gives speeds must give the one that is used. */
static void check_speed(struct pp_resolver *resolver, const struct pp_gpu *gpu)
{
	uint8_t dtype;
	struct pp_section *train = resolver->sections[PP_SECTION_TRAIN];
	if (!pp_field_choice(resolver, train, PP_ATTR_train_dtype, &dtype))
		return;
	const char *name = dtype == 0 ? "fp32" : "bf16";
	if (gpu->flops[dtype == 0 ? PP_F32 : PP_BF16] > 0)
		return;
	const struct pp_section *flops = resolver->sections[PP_SECTION_FLOPS];
	struct pp_message *message = pp_error(resolver->diag, "E0503", flops->span,
	                                      "gpu `%s` gives no speed for %s, which `train` uses", gpu->name, name);
	if (pp_field_given(train, PP_ATTR_train_dtype))
		pp_label(message, pp_field_span(train, PP_ATTR_train_dtype), "%s", name);
	pp_help(message, "write `flops { %s = 100GFLOPS }` with the peak of the device, or use another dtype", name);
}

static void warn_link(struct pp_resolver *resolver, const struct pp_cluster *cluster)
{
	const struct pp_section *inter = resolver->sections[PP_SECTION_INTER];
	if (cluster->nodes == 1 || inter->stmt)
		return;
	struct pp_message *message = pp_warning(resolver->diag, "W0504", resolver->sections[PP_SECTION_CLUSTER]->span,
	                                        "link `inter` is not given; assuming 5GB/s and 5us between nodes");
	pp_help(message, "write `link inter { bandwidth = 100Gbit/s  latency = 5us }` in the cluster");
}

void pp_resolve_cluster(struct pp_resolver *resolver)
{
	static const enum pp_section_id all[] = {PP_SECTION_CLUSTER, PP_SECTION_GPU, PP_SECTION_FLOPS, PP_SECTION_INTRA,
	                                         PP_SECTION_INTER};
	struct pp_cluster *cluster = &resolver->out->spec.cluster;
	struct pp_section *section = resolver->sections[PP_SECTION_CLUSTER];
	if (!section->stmt)
		return;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		pp_section_read_all(resolver, resolver->sections[all[i]]);
	for (const struct pp_stmt *at = section->stmt->body; at; at = at->next)
		if (at->kind == PP_STMT_BLOCK && strcmp(at->name.text, "group") == 0)
			return; /* refused: several kinds of nodes */
	uint64_t nodes, gpus;
	bool ok = pp_field_whole(resolver, section, PP_ATTR_cluster_nodes, &nodes);
	ok &= pp_field_whole(resolver, section, PP_ATTR_cluster_gpus, &gpus);
	cluster->name = pp_section_label(section);
	if (read_gpu(resolver, &cluster->gpu))
		check_speed(resolver, &cluster->gpu);
	read_link(resolver, PP_SECTION_INTRA, &cluster->intra);
	read_link(resolver, PP_SECTION_INTER, &cluster->inter);
	if (!ok)
		return;
	cluster->nodes = (uint32_t)nodes;
	cluster->gpus = (uint32_t)gpus;
	warn_link(resolver, cluster);
}

/* ---- the grid -------------------------------------------------------------------------------- */

struct grid {
	uint64_t tp, pp, dp, cp, ranks, devices;
};

static const char *product_text(struct pp_resolver *resolver, const struct grid *grid)
{
	if (grid->cp == 1)
		return pp_arena_printf(resolver->arena, "tp·pp·dp = %llu·%llu·%llu", (unsigned long long)grid->tp,
		                       (unsigned long long)grid->pp, (unsigned long long)grid->dp);
	return pp_arena_printf(resolver->arena, "tp·pp·dp·cp = %llu·%llu·%llu·%llu", (unsigned long long)grid->tp,
	                       (unsigned long long)grid->pp, (unsigned long long)grid->dp, (unsigned long long)grid->cp);
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
	    pp_error(resolver->diag, "E0304", pp_field_span(parallel, PP_ATTR_parallel_pp),
	             "%s = %llu but the cluster has %llu GPU%s", product_text(resolver, grid),
	             (unsigned long long)grid->ranks, (unsigned long long)grid->devices, grid->devices == 1 ? "" : "s");
	pp_label(message, pp_field_span(cluster, PP_ATTR_cluster_gpus), "%llu GPUs", (unsigned long long)grid->devices);
	const char *dp = grid->dp > 1 ? " with dp = 1" : "";
	unsigned long long fits = grid->devices / (grid->tp * grid->cp);
	if (grid->ranks < grid->devices)
		pp_help(message, "use pp = %llu%s, or set `idle = allow` in `parallel`", fits, dp);
	else if (fits > 0)
		pp_help(message, "use pp = %llu%s, or give the cluster %llu GPUs", fits, dp, (unsigned long long)grid->ranks);
	else
		pp_help(message, "give the cluster %llu GPUs", (unsigned long long)grid->ranks);
}

/* dp may come from the cluster: then the message says from what. */
static void refuse_dp(struct pp_resolver *resolver, struct pp_section *parallel, const struct grid *grid)
{
	const struct pp_field *dp = pp_field_of(parallel, PP_ATTR_parallel_dp);
	bool derived = dp->origin == PP_ORIGIN_DERIVED;
	const char *what = pp_arena_printf(resolver->arena, "`dp = %llu`%s", (unsigned long long)grid->dp,
	                                   derived ? pp_arena_printf(resolver->arena, " (%llu GPUs / %llu)",
	                                                             (unsigned long long)grid->devices,
	                                                             (unsigned long long)(grid->devices / grid->dp))
	                                           : "");
	struct pp_message *message = pp_not_yet(resolver, pp_field_span(parallel, PP_ATTR_parallel_dp), what);
	if (!derived)
		pp_help(message, "use `dp = 1`");
	else if (grid->devices % grid->tp == 0 && grid->devices / grid->tp <= 65536)
		pp_help(message, "use pp = %llu, or set `idle = allow` to leave the other GPUs unused",
		        (unsigned long long)(grid->devices / grid->tp));
}

static void check_sp(struct pp_resolver *resolver, struct pp_section *parallel, uint64_t tp)
{
	bool sp;
	if (!pp_field_truth(resolver, parallel, PP_ATTR_parallel_sp, &sp) || !sp)
		return;
	if (tp == 1)
		pp_help(pp_warning(resolver->diag, "W0307", pp_field_span(parallel, PP_ATTR_parallel_sp),
		                   "`sp = true` has no effect with tp = 1"),
		        "leave it out");
	else
		pp_help(pp_not_yet(resolver, pp_field_span(parallel, PP_ATTR_parallel_sp), "`sp = true`"),
		        "use `sp = false`, which is the default");
}

/* A refused tp or cp still counts in the product. */
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
	bool ok = pp_field_whole(resolver, section, PP_ATTR_parallel_pp, &grid.pp);
	ok &= pp_field_whole(resolver, section, PP_ATTR_parallel_vpp, &vpp);
	grid.tp = written(section, PP_ATTR_parallel_tp);
	grid.cp = written(section, PP_ATTR_parallel_cp);
	check_sp(resolver, section, grid.tp);
	if (!ok || cluster->gpus == 0)
		return;
	grid.devices = (uint64_t)cluster->nodes * cluster->gpus;
	bool refused = grid.tp > 1 || grid.cp > 1;
	bool unknown = refused && !pp_field_given(section, PP_ATTR_parallel_dp); /* dp = auto depends on what is refused */
	grid.dp = 1;
	if (!unknown && !pp_field_whole(resolver, section, PP_ATTR_parallel_dp, &grid.dp))
		return;
	if (__builtin_mul_overflow(grid.tp * grid.pp, grid.dp, &grid.ranks) ||
	    __builtin_mul_overflow(grid.ranks, grid.cp, &grid.ranks))
		grid.ranks = UINT64_MAX;
	if (!unknown || grid.ranks > grid.devices)
		check_grid(resolver, section, &grid);
	if (unknown)
		return;
	if (grid.dp > 1)
		refuse_dp(resolver, section, &grid);
	if (vpp * grid.pp > 65535)
		pp_help(pp_error(resolver->diag, "E0106", pp_field_span(section, PP_ATTR_parallel_vpp),
		                 "pp · vpp = %llu · %llu = %llu stages are outside 1..65535", (unsigned long long)grid.pp,
		                 (unsigned long long)vpp, (unsigned long long)(grid.pp * vpp)),
		        "use fewer ranks or stages on each rank");
	*parallel = (struct pp_parallel){.tp = (uint32_t)grid.tp,
	                                 .pp = (uint32_t)grid.pp,
	                                 .vpp = (uint32_t)vpp,
	                                 .dp = (uint32_t)grid.dp,
	                                 .rank_order = {PP_AXIS_TP, PP_AXIS_DP, PP_AXIS_PP}};
	pp_field_scaled(resolver, section, PP_ATTR_parallel_bucket, 1, &parallel->bucket);
}
