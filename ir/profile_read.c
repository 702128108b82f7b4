/* Reading a profile: profile.h. The keys stand in the order in which pp_profile_print writes them, so a key that is
 * unknown, missing or given twice is found where it stands. Rows ascend, so none can be given twice. */
#include "profile.h"

#include <string.h>

enum { MOST_RANKS = 65536, MOST_STAGES = 65535 };
static const uint64_t most_count = UINT64_C(1) << 40, most_time = UINT64_C(1) << 62, most_bytes = UINT64_C(1) << 50;

/* ---- pieces ---------------------------------------------------------------------------------- */

static bool key(struct pp_json_reader *reader, const char *wanted)
{
	char found[40];
	if (pp_json_next_key(reader, found, sizeof found))
		return strcmp(found, wanted) == 0 || pp_json_wrong(reader, "expected key `%s`, got `%s`", wanted, found);
	return pp_json_wrong(reader, "key `%s` is missing", wanted);
}

/* The end of an object whose keys have all been read. */
static bool no_more_keys(struct pp_json_reader *reader)
{
	char found[40];
	if (!pp_json_next_key(reader, found, sizeof found))
		return !reader->failed;
	return pp_json_wrong(reader, "unknown key `%s`", found);
}

static bool get_uint(struct pp_json_reader *reader, const char *name, uint64_t *to, uint64_t most)
{
	return key(reader, name) && pp_json_get_uint(reader, to, most);
}

static bool get_small(struct pp_json_reader *reader, const char *name, uint32_t *to, uint32_t least, uint32_t most)
{
	uint64_t value;
	if (!get_uint(reader, name, &value, most))
		return false;
	*to = (uint32_t)value;
	return value >= least || pp_json_wrong(reader, "`%s` must be at least %u", name, least);
}

static bool get_text(struct pp_arena *arena, struct pp_json_reader *reader, const char *name, const char **to)
{
	char text[256];
	if (!key(reader, name) || !pp_json_get_string(reader, text, sizeof text))
		return false;
	*to = pp_arena_copy(arena, text, strlen(text));
	return true;
}

/* One of the names of a table. */
static bool get_choice(struct pp_json_reader *reader, const char *name, const char *const *names, unsigned count,
                       uint8_t *to)
{
	char text[40];
	if (!key(reader, name) || !pp_json_get_string(reader, text, sizeof text))
		return false;
	for (unsigned i = 0; i < count; i++)
		if (strcmp(names[i], text) == 0) {
			*to = (uint8_t)i;
			return true;
		}
	return pp_json_wrong(reader, "`%s` is no %s", text, name);
}

static bool get_time(struct pp_json_reader *reader, struct pp_profile_time *time)
{
	return get_uint(reader, "median", &time->median, most_time) &&
	       get_uint(reader, "spread", &time->spread, most_time) &&
	       get_uint(reader, "count", &time->count, most_count) &&
	       (time->count > 0 || pp_json_wrong(reader, "a time of 0 samples is none: leave the row out"));
}

static bool rows(struct pp_json_reader *reader, const char *name)
{
	return key(reader, name) && pp_json_enter_array(reader);
}

static bool next_row(struct pp_json_reader *reader)
{
	return pp_json_next_item(reader) && pp_json_enter_object(reader);
}

static bool ascending(struct pp_json_reader *reader, int order)
{
	return order < 0 || pp_json_wrong(reader, "this row is given twice or out of order");
}

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* ---- head ------------------------------------------------------------------------------------ */

static bool read_program(struct pp_arena *arena, struct pp_json_reader *reader, struct pp_profile *profile)
{
	return key(reader, "program") && pp_json_enter_object(reader) &&
	       get_text(arena, reader, "schedule", &profile->schedule) &&
	       get_small(reader, "pp", &profile->pp, 1, MOST_RANKS) &&
	       get_small(reader, "vpp", &profile->vpp, 0, MOST_STAGES) &&
	       get_small(reader, "tp", &profile->tp, 1, MOST_RANKS) &&
	       get_small(reader, "dp", &profile->dp, 1, MOST_RANKS) &&
	       get_small(reader, "stages", &profile->stage_count, 1, MOST_STAGES) &&
	       get_small(reader, "layers", &profile->layer_count, 0, MOST_STAGES) &&
	       get_small(reader, "microbatches", &profile->microbatches, 1, INT32_MAX) &&
	       get_small(reader, "microbatch", &profile->microbatch, 0, INT32_MAX) &&
	       get_small(reader, "seq", &profile->seq, 0, INT32_MAX) &&
	       get_small(reader, "vocab", &profile->vocab, 0, INT32_MAX) &&
	       get_choice(reader, "dtype", pp_dtype_name, PP_DTYPE_COUNT, &profile->dtype) && no_more_keys(reader);
}

static bool read_step(struct pp_json_reader *reader, const char *name, struct pp_profile_time *time)
{
	return key(reader, name) && pp_json_enter_object(reader) && get_time(reader, time) && no_more_keys(reader);
}

static bool read_schema(struct pp_json_reader *reader)
{
	char text[40];
	if (!pp_json_enter_object(reader) || !key(reader, "schema") || !pp_json_get_string(reader, text, sizeof text))
		return false;
	return strcmp(text, "piperun.profile/1") == 0 ||
	       pp_json_wrong(reader, "this is of schema `%s`, a profile is of schema `piperun.profile/1`", text);
}

static bool read_head(struct pp_arena *arena, struct pp_json_reader *reader, struct pp_profile *profile)
{
	char unit[8];
	if (!read_schema(reader) || !get_text(arena, reader, "tool", &profile->tool) ||
	    !get_text(arena, reader, "transport", &profile->transport) ||
	    !get_text(arena, reader, "device", &profile->device) || !key(reader, "time_unit") ||
	    !pp_json_get_string(reader, unit, sizeof unit))
		return false;
	if (strcmp(unit, "ns") != 0)
		return pp_json_wrong(reader, "times must be in `ns`");
	return get_uint(reader, "steps", &profile->steps, most_count) && read_program(arena, reader, profile) &&
	       read_step(reader, "step", &profile->step) && read_step(reader, "makespan", &profile->makespan);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static bool read_stage(struct pp_arena *arena, struct pp_json_reader *reader, struct pp_profile *profile, uint32_t at,
                       uint32_t *layers)
{
	struct pp_profile_stage *stage = &profile->stages[at];
	uint32_t number;
	if (!get_small(reader, "stage", &number, 0, MOST_STAGES))
		return false;
	if (number != at)
		return pp_json_wrong(reader, "expected stage %u of %u, got %u", at, profile->stage_count, number);
	if (!get_small(reader, "rank", &stage->rank, 0, profile->pp - 1) ||
	    !get_small(reader, "first_layer", &stage->first_layer, 0, MOST_STAGES))
		return false;
	if (stage->first_layer != *layers)
		return pp_json_wrong(reader, "stage %u must begin with layer %u, got %u", at, *layers, stage->first_layer);
	if (!get_small(reader, "layers", &stage->layer_count, 0, MOST_STAGES) ||
	    !get_text(arena, reader, "title", &stage->title))
		return false;
	*layers += stage->layer_count;
	return no_more_keys(reader);
}

static bool read_stages(struct pp_arena *arena, struct pp_json_reader *reader, struct pp_profile *profile)
{
	uint32_t at = 0, layers = 0;
	profile->stages = PP_NEW_ARRAY(arena, struct pp_profile_stage, profile->stage_count);
	if (!rows(reader, "stages"))
		return false;
	while (next_row(reader)) {
		if (at == profile->stage_count)
			return pp_json_wrong(reader, "more stages than `program` says (%u)", profile->stage_count);
		if (!read_stage(arena, reader, profile, at++, &layers))
			return false;
	}
	if (!reader->failed && (at < profile->stage_count || layers != profile->layer_count))
		return pp_json_wrong(reader, "%u stages with %u layers, but `program` says %u with %u", at, layers,
		                     profile->stage_count, profile->layer_count);
	return !reader->failed;
}

static bool read_compute(struct pp_json_reader *reader, struct pp_profile *profile)
{
	int64_t before = -1;
	if (!rows(reader, "compute"))
		return false;
	while (next_row(reader)) {
		uint32_t stage;
		uint8_t phase = 0;
		if (!get_small(reader, "stage", &stage, 0, profile->stage_count - 1) ||
		    !get_choice(reader, "phase", pp_phase_name, PP_PHASE_COUNT, &phase))
			return false;
		int64_t order = (int64_t)stage * PP_PHASE_COUNT + phase;
		struct pp_profile_stage *row = &profile->stages[stage];
		if (!ascending(reader, before < order ? -1 : 0) || !get_time(reader, &row->time[phase]) ||
		    !get_uint(reader, "flops", &row->flops[phase], UINT64_MAX) || !no_more_keys(reader))
			return false;
		before = order;
	}
	return !reader->failed;
}

static bool read_ranks(struct pp_arena *arena, struct pp_json_reader *reader, struct pp_profile *profile)
{
	uint32_t at = 0;
	profile->ranks = PP_NEW_ARRAY(arena, struct pp_profile_rank, profile->pp);
	if (!rows(reader, "ranks"))
		return false;
	while (next_row(reader)) {
		uint32_t rank;
		if (!get_small(reader, "rank", &rank, 0, profile->pp - 1))
			return false;
		if (rank != at)
			return pp_json_wrong(reader, "expected rank %u of %u, got %u", at, profile->pp, rank);
		if (!get_time(reader, &profile->ranks[at++].busy) || !no_more_keys(reader))
			return false;
	}
	return !reader->failed &&
	       (at == profile->pp || pp_json_wrong(reader, "%u ranks, but `program` says %u", at, profile->pp));
}

static int compare_channels(const struct pp_profile_channel *a, const struct pp_profile_channel *b)
{
	int order = compare(a->source, b->source);
	order = order ? order : compare(a->destination, b->destination);
	order = order ? order : compare(a->kind, b->kind);
	return order ? order : compare(a->bytes, b->bytes);
}

static bool read_channels(struct pp_arena *arena, struct pp_json_reader *reader, struct pp_profile *profile)
{
	if (!rows(reader, "channels"))
		return false;
	while (next_row(reader)) {
		struct pp_profile_channel *row = PP_PUSH(arena, &profile->channels, &profile->channel_count,
		                                         &profile->channel_capacity, struct pp_profile_channel);
		if (!get_small(reader, "source", &row->source, 0, profile->pp - 1) ||
		    !get_small(reader, "destination", &row->destination, 0, profile->pp - 1))
			return false;
		if (row->source == row->destination)
			return pp_json_wrong(reader, "a channel from rank %u to itself", row->source);
		if (!get_choice(reader, "kind", pp_value_name, PP_VALUE_COUNT, &row->kind) || !key(reader, "between_nodes") ||
		    !pp_json_get_bool(reader, &row->between_nodes) || !get_uint(reader, "bytes", &row->bytes, most_bytes) ||
		    !ascending(reader, profile->channel_count > 1 ? compare_channels(row - 1, row) : -1) ||
		    !get_time(reader, &row->time) || !no_more_keys(reader))
			return false;
	}
	return !reader->failed;
}

static bool read_links(struct pp_json_reader *reader, struct pp_profile *profile)
{
	if (!rows(reader, "links"))
		return false;
	while (next_row(reader)) {
		bool between;
		if (!key(reader, "between_nodes") || !pp_json_get_bool(reader, &between))
			return false;
		struct pp_profile_link *link = &profile->link[between];
		if (!ascending(reader, link->given || profile->link[1].given ? 0 : -1))
			return false;
		link->given = true;
		if (!get_uint(reader, "latency", &link->latency, most_time) ||
		    !get_uint(reader, "bandwidth", &link->bandwidth, UINT64_MAX) || !no_more_keys(reader))
			return false;
	}
	return !reader->failed;
}

static int compare_joints(const struct pp_profile_joint *a, const struct pp_profile_joint *b)
{
	int order = compare(a->axis, b->axis);
	order = order ? order : compare(a->sub, b->sub);
	order = order ? order : compare(a->members, b->members);
	return order ? order : compare(a->bytes, b->bytes);
}

static bool read_joints(struct pp_arena *arena, struct pp_json_reader *reader, struct pp_profile *profile)
{
	if (!rows(reader, "collectives"))
		return false;
	while (next_row(reader)) {
		struct pp_profile_joint *row =
		    PP_PUSH(arena, &profile->joints, &profile->joint_count, &profile->joint_capacity, struct pp_profile_joint);
		if (!get_choice(reader, "axis", pp_axis_name, PP_AXIS_COUNT, &row->axis) ||
		    !get_choice(reader, "op", pp_collective_name, PP_COLLECTIVE_COUNT, &row->sub) ||
		    !get_small(reader, "members", &row->members, 2, MOST_RANKS) ||
		    !get_uint(reader, "bytes", &row->bytes, most_bytes) ||
		    !ascending(reader, profile->joint_count > 1 ? compare_joints(row - 1, row) : -1) ||
		    !get_time(reader, &row->time) || !no_more_keys(reader))
			return false;
	}
	return !reader->failed;
}

static bool get_op(struct pp_json_reader *reader, uint8_t *op)
{
	const char *names[PP_OP_COUNT];
	for (unsigned i = 0; i < PP_OP_COUNT; i++)
		names[i] = pp_op_table[i].mnemonic;
	return get_choice(reader, "op", names, PP_OP_COUNT, op);
}

static bool read_tails(struct pp_arena *arena, struct pp_json_reader *reader, struct pp_profile *profile)
{
	if (!rows(reader, "tail"))
		return false;
	while (next_row(reader)) {
		struct pp_profile_tail *row =
		    PP_PUSH(arena, &profile->tails, &profile->tail_count, &profile->tail_capacity, struct pp_profile_tail);
		if (!get_small(reader, "rank", &row->rank, 0, profile->pp - 1) || !get_op(reader, &row->op))
			return false;
		const struct pp_profile_tail *last = row - 1;
		int order = profile->tail_count > 1 ? compare(last->rank, row->rank) : -1;
		order = order ? order : compare(last->op, row->op);
		if (!ascending(reader, order) || !get_uint(reader, "bytes", &row->bytes, UINT64_MAX) ||
		    !get_time(reader, &row->time) || !no_more_keys(reader))
			return false;
	}
	return !reader->failed;
}

struct pp_profile *pp_profile_read(struct pp_arena *arena, struct pp_json_reader *reader)
{
	struct pp_profile *profile = PP_NEW(arena, struct pp_profile);
	bool ok = read_head(arena, reader, profile) && read_stages(arena, reader, profile) &&
	          read_compute(reader, profile) && read_ranks(arena, reader, profile) &&
	          read_channels(arena, reader, profile) && read_links(reader, profile) &&
	          read_joints(arena, reader, profile) && read_tails(arena, reader, profile) && no_more_keys(reader) &&
	          pp_json_read_end(reader);
	return ok ? profile : NULL;
}
