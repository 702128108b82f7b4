/* The machines: devices and links. Ensures: the number format in use has a speed (E0503). */
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
	uint64_t sms = 0, post_sms = 0;
	ok &= pp_field_whole(resolver, section, PP_ATTR_gpu_sms, &sms);
	ok &= pp_field_whole(resolver, section, PP_ATTR_gpu_post_sms, &post_sms);
	gpu->sms = (uint32_t)sms;
	gpu->post_sms = (uint32_t)post_sms;
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
