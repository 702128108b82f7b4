/* How fast ranks reach each other: the placement of world ranks on nodes decides.
 * requires: the program's grid, the links of the cluster.
 * ensures:  latency and bandwidth of the slowest link among all coordinates, for they all run the same stream. */
#include "link.h"

#include "lowering.h"

#include "ir/grid.h"
#include "ir/profile.h"

static struct pp_link slower(struct pp_link a, struct pp_link b)
{
	if (b.latency > a.latency)
		a.latency = b.latency;
	if (b.bandwidth && (!a.bandwidth || b.bandwidth < a.bandwidth))
		a.bandwidth = b.bandwidth;
	return a;
}

/* Between a coordinate and one that differs from it along one axis. */
static struct pp_link link_along(const struct pp_program *program, const struct pp_cluster *cluster, enum pp_axis axis,
                                 uint32_t from, uint32_t to, struct pp_coord coord)
{
	struct pp_coord other = coord;
	*pp_grid_along(&coord, axis) = from;
	*pp_grid_along(&other, axis) = to;
	uint32_t gpus = cluster->gpus ? cluster->gpus : 1;
	return pp_grid_rank(program, coord) / gpus == pp_grid_rank(program, other) / gpus ? cluster->intra : cluster->inter;
}

/* The slowest over the coordinates of the two other axes. */
struct pp_link pp_link_between(const struct pp_program *program, const struct pp_cluster *cluster, enum pp_axis axis,
                               uint32_t from, uint32_t to)
{
	enum pp_axis other = axis == PP_AXIS_PP ? PP_AXIS_TP : PP_AXIS_PP,
	             third = axis == PP_AXIS_DP ? PP_AXIS_TP : PP_AXIS_DP;
	struct pp_link slowest = {0};
	struct pp_coord coord = {0};
	for (uint32_t i = 0; i < pp_grid_extent(program, other); i++)
		for (uint32_t k = 0; k < pp_grid_extent(program, third); k++) {
			*pp_grid_along(&coord, other) = i;
			*pp_grid_along(&coord, third) = k;
			struct pp_link link = link_along(program, cluster, axis, from, to, coord);
			slowest = i || k ? slower(slowest, link) : link;
		}
	return slowest;
}

static uint32_t node_of(const struct pp_program *program, const struct pp_cluster *cluster, uint32_t rank)
{
	return pp_grid_rank(program, (struct pp_coord){.pp = rank}) / (cluster->gpus ? cluster->gpus : 1);
}

struct pp_link pp_link_channel(const struct pp_program *program, const struct pp_spec *spec, uint32_t source,
                               uint32_t destination, enum pp_value kind, uint64_t bytes)
{
	const struct pp_cluster *cluster = &spec->cluster;
	struct pp_link link = pp_link_between(program, cluster, PP_AXIS_PP, source, destination);
	struct pp_profile_channel wanted = {.source = source,
	                                    .destination = destination,
	                                    .kind = (uint8_t)kind,
	                                    .between_nodes =
	                                        node_of(program, cluster, source) != node_of(program, cluster, destination),
	                                    .bytes = bytes};
	if (spec->profile)
		pp_profile_transfer(spec->profile, &wanted, &link.latency, &link.bandwidth);
	return link;
}

void pp_group_link(const struct pp_lowering *lowering, struct pp_group *group)
{
	uint32_t count = pp_grid_members(lowering->program, group);
	const struct pp_profile *profile = lowering->spec->profile;
	if (profile && pp_profile_ring(profile, (enum pp_axis)group->axis, count, &group->latency, &group->bandwidth))
		return;
	for (uint32_t i = 0; i < count; i++) { /* a ring is as fast as its slowest link */
		uint32_t next = (i + 1) % count;
		struct pp_link link =
		    group->axis == PP_AXIS_PP
		        ? pp_link_between(lowering->program, &lowering->spec->cluster, PP_AXIS_PP, group->members[i],
		                          group->members[next])
		        : pp_link_between(lowering->program, &lowering->spec->cluster, (enum pp_axis)group->axis, i, next);
		link = slower((struct pp_link){.bandwidth = group->bandwidth, .latency = group->latency}, link);
		group->bandwidth = link.bandwidth;
		group->latency = link.latency;
	}
}
