/* Queue layouts: queues.h. */
#include "queues.h"

#include <stdlib.h>

struct channel_key {
	uint64_t key;
	uint32_t channel;
};

static int by_key(const void *left, const void *right)
{
	const struct channel_key *a = left, *b = right;
	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->channel < b->channel ? -1 : a->channel > b->channel;
}

/* Layouts `edge` and `pair`: channels between the same two ranks share a queue at each end. */
static void share_queues(struct pp_arena *arena, struct pp_queues *queues, bool directed)
{
	const struct pp_program *program = queues->program;
	struct channel_key *keys = PP_NEW_ARRAY(arena, struct channel_key, program->channel_count);
	for (uint32_t c = 0; c < program->channel_count; c++) {
		uint64_t a = program->channels[c].source, b = program->channels[c].destination;
		keys[c] = (struct channel_key){.key = directed || a < b ? a << 32 | b : b << 32 | a, .channel = c};
	}
	if (program->channel_count)
		qsort(keys, program->channel_count, sizeof *keys, by_key);
	for (uint32_t i = 0; i < program->channel_count; i++) {
		if (i == 0 || keys[i].key != keys[i - 1].key)
			queues->count += 2;
		uint32_t first = queues->count - 2, c = keys[i].channel;
		const struct pp_channel *channel = &program->channels[c];
		bool swapped = !directed && channel->source > channel->destination;
		queues->channel[0][c] = first + swapped;
		queues->channel[1][c] = first + !swapped;
	}
}

struct pp_queues pp_queues_assign(struct pp_arena *arena, const struct pp_program *program, enum pp_layout layout)
{
	struct pp_queues made = {.program = program, .layout = layout}, *queues = &made;
	for (int end = 0; end < 2; end++)
		queues->channel[end] = PP_NEW_ARRAY(arena, uint32_t, program->channel_count);
	queues->group = PP_NEW_ARRAY(arena, uint32_t, program->group_count);
	bool one = queues->layout == PP_LAYOUT_RANK || queues->layout == PP_LAYOUT_BLOCKING;
	if (queues->layout == PP_LAYOUT_EDGE || queues->layout == PP_LAYOUT_PAIR)
		share_queues(arena, queues, queues->layout == PP_LAYOUT_EDGE);
	for (uint32_t c = 0; c < program->channel_count; c++) {
		const struct pp_channel *channel = &program->channels[c];
		for (uint32_t end = 0; end < 2; end++) {
			uint32_t rank = end ? channel->destination : channel->source;
			if (one)
				queues->channel[end][c] = rank;
			else if (queues->layout == PP_LAYOUT_DIRECTION)
				queues->channel[end][c] = 2 * rank + channel->kind;
			else if (queues->layout == PP_LAYOUT_CHANNEL)
				queues->channel[end][c] = 2 * c + end;
		}
	}
	if (one)
		queues->count = program->ranks;
	else if (queues->layout == PP_LAYOUT_DIRECTION)
		queues->count = 2 * program->ranks;
	else if (queues->layout == PP_LAYOUT_CHANNEL)
		queues->count = 2 * program->channel_count;
	for (uint32_t g = 0; g < program->group_count; g++) {
		queues->group[g] = one ? PP_NULL : queues->count;
		if (!one)
			queues->count += program->groups[g].axis == PP_AXIS_PP ? program->groups[g].member_count : program->ranks;
	}
	return made;
}

uint32_t pp_group_member(const struct pp_group *group, uint32_t rank)
{
	uint32_t low = 0, high = group->member_count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (group->members[middle] <= rank)
			low = middle;
		else
			high = middle;
	}
	return low;
}

uint32_t pp_queues_collective(const struct pp_queues *queues, uint32_t group, uint32_t rank)
{
	if (queues->layout == PP_LAYOUT_RANK || queues->layout == PP_LAYOUT_BLOCKING)
		return rank;
	const struct pp_group *shape = &queues->program->groups[group];
	return queues->group[group] + (shape->axis == PP_AXIS_PP ? pp_group_member(shape, rank) : rank);
}

void pp_layouts_json(struct pp_json *json, const char *key, uint32_t layouts)
{
	pp_json_open_array(json, key);
	for (unsigned layout = 0; layout < PP_LAYOUT_COUNT; layout++)
		if (layouts >> layout & 1)
			pp_json_string(json, NULL, pp_layout_name[layout]);
	pp_json_close(json);
}
