/* Thread blocks of communicators: ctas.h. */
#include "ctas.h"

#include "link.h"

#include "ir/diag.h"
#include "ir/source.h"
#include "ir/verify.h"

/* Of messages within a node and between nodes, and of collectives along dp and tp. The first is what NCCL needs to fill
 * such a link; a rank that can't have that many at once goes on with the next. */
struct level {
	uint32_t near, far, dp, tp;
};

static const struct level levels[] = {{4, 2, 8, 16}, {4, 2, 8, 8}, {2, 2, 4, 8},
                                      {2, 1, 4, 4},  {1, 1, 2, 2}, {1, 1, 1, 1}};

/* Do some of these coordinates lie on different nodes? In a cluster whose only latency is that between nodes, the
 * slowest link tells. */
static bool is_far(const struct pp_program *program, const struct pp_spec *spec, uint32_t from, uint32_t to)
{
	const struct pp_cluster probe = {.gpus = spec->cluster.gpus, .inter = {.latency = 1}};
	return pp_link_between(program, &probe, PP_AXIS_PP, from, to).latency > 0;
}

static uint32_t of_group(const struct pp_program *program, const struct pp_spec *spec, const struct pp_group *group,
                         const struct level *level)
{
	if (group->axis != PP_AXIS_PP)
		return group->axis == PP_AXIS_TP ? level->tp : level->dp;
	bool far = false;
	for (uint32_t i = 1; i < group->member_count; i++)
		far |= is_far(program, spec, group->members[i - 1], group->members[i]);
	return far ? level->far : level->near;
}

static void give(struct pp_program *program, const struct pp_spec *spec, const struct level *level)
{
	for (uint32_t c = 0; c < program->channel_count; c++) {
		struct pp_channel *channel = &program->channels[c];
		channel->ctas = is_far(program, spec, channel->source, channel->destination) ? level->far : level->near;
	}
	for (uint32_t g = 0; g < program->group_count; g++)
		program->groups[g].ctas = of_group(program, spec, &program->groups[g], level);
}

static bool fits(const struct pp_program *program)
{
	struct pp_arena *scratch = pp_arena_scratch(program->arena);
	bool good = pp_verify_residency(program, pp_diag_create(scratch, pp_sources_create(scratch)));
	pp_arena_destroy(scratch);
	return good;
}

void pp_give_ctas(struct pp_program *program, const struct pp_spec *spec)
{
	if (!spec->cluster.gpu.sms)
		return;
	for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
		give(program, spec, &levels[i]);
		if (fits(program))
			return;
	}
}
