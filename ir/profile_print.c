/* The text of a profile. ensures: the same bytes for the same numbers, one row per line. */
#include "profile.h"

#include "json.h"

static void put_time(struct pp_json *json, const struct pp_profile_time *time)
{
	pp_json_uint(json, "median", time->median);
	pp_json_uint(json, "spread", time->spread);
	pp_json_uint(json, "count", time->count);
}

static void put_program(struct pp_json *json, const struct pp_profile *profile)
{
	pp_json_line(json);
	pp_json_open_object(json, "program");
	pp_json_string(json, "schedule", profile->schedule);
	pp_json_uint(json, "pp", profile->pp);
	pp_json_uint(json, "vpp", profile->vpp);
	pp_json_uint(json, "tp", profile->tp);
	pp_json_uint(json, "dp", profile->dp);
	pp_json_uint(json, "stages", profile->stage_count);
	pp_json_uint(json, "layers", profile->layer_count);
	pp_json_uint(json, "microbatches", profile->microbatches);
	pp_json_uint(json, "microbatch", profile->microbatch);
	pp_json_uint(json, "seq", profile->seq);
	pp_json_uint(json, "vocab", profile->vocab);
	pp_json_string(json, "dtype", pp_dtype_name[profile->dtype]);
	pp_json_close(json);
}

static void put_step(struct pp_json *json, const char *key, const struct pp_profile_time *time)
{
	pp_json_line(json);
	pp_json_open_object(json, key);
	put_time(json, time);
	pp_json_close(json);
}

static void open_rows(struct pp_json *json, const char *key)
{
	pp_json_line(json);
	pp_json_open_array(json, key);
}

static void open_row(struct pp_json *json)
{
	pp_json_line(json);
	pp_json_open_object(json, NULL);
}

static void put_stages(struct pp_json *json, const struct pp_profile *profile)
{
	open_rows(json, "stages");
	for (uint32_t s = 0; s < profile->stage_count; s++) {
		const struct pp_profile_stage *stage = &profile->stages[s];
		open_row(json);
		pp_json_uint(json, "stage", s);
		pp_json_uint(json, "rank", stage->rank);
		pp_json_uint(json, "first_layer", stage->first_layer);
		pp_json_uint(json, "layers", stage->layer_count);
		pp_json_string(json, "title", stage->title);
		pp_json_close(json);
	}
	pp_json_close(json);
}

static void put_compute(struct pp_json *json, const struct pp_profile *profile)
{
	open_rows(json, "compute");
	for (uint32_t s = 0; s < profile->stage_count; s++)
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			const struct pp_profile_stage *stage = &profile->stages[s];
			if (stage->time[phase].count == 0)
				continue;
			open_row(json);
			pp_json_uint(json, "stage", s);
			pp_json_string(json, "phase", pp_phase_name[phase]);
			put_time(json, &stage->time[phase]);
			pp_json_uint(json, "flops", stage->flops[phase]);
			pp_json_close(json);
		}
	pp_json_close(json);
}

static void put_ranks(struct pp_json *json, const struct pp_profile *profile)
{
	open_rows(json, "ranks");
	for (uint32_t r = 0; r < profile->pp; r++) {
		open_row(json);
		pp_json_uint(json, "rank", r);
		put_time(json, &profile->ranks[r].busy);
		pp_json_close(json);
	}
	pp_json_close(json);
}

static void put_channels(struct pp_json *json, const struct pp_profile *profile)
{
	open_rows(json, "channels");
	for (size_t i = 0; i < profile->channel_count; i++) {
		const struct pp_profile_channel *channel = &profile->channels[i];
		open_row(json);
		pp_json_uint(json, "source", channel->source);
		pp_json_uint(json, "destination", channel->destination);
		pp_json_string(json, "kind", pp_value_name[channel->kind]);
		pp_json_bool(json, "between_nodes", channel->between_nodes);
		pp_json_uint(json, "bytes", channel->bytes);
		put_time(json, &channel->time);
		pp_json_close(json);
	}
	pp_json_close(json);
	open_rows(json, "links");
	for (unsigned between = 0; between < 2; between++) {
		if (!profile->link[between].given)
			continue;
		open_row(json);
		pp_json_bool(json, "between_nodes", between);
		pp_json_uint(json, "latency", profile->link[between].latency);
		pp_json_uint(json, "bandwidth", profile->link[between].bandwidth);
		pp_json_close(json);
	}
	pp_json_close(json);
}

static void put_tail(struct pp_json *json, const struct pp_profile *profile)
{
	open_rows(json, "collectives");
	for (size_t i = 0; i < profile->joint_count; i++) {
		const struct pp_profile_joint *joint = &profile->joints[i];
		open_row(json);
		pp_json_string(json, "axis", pp_axis_name[joint->axis]);
		pp_json_string(json, "op", pp_collective_name[joint->sub]);
		pp_json_uint(json, "members", joint->members);
		pp_json_uint(json, "bytes", joint->bytes);
		put_time(json, &joint->time);
		pp_json_close(json);
	}
	pp_json_close(json);
	open_rows(json, "tail");
	for (size_t i = 0; i < profile->tail_count; i++) {
		const struct pp_profile_tail *tail = &profile->tails[i];
		open_row(json);
		pp_json_uint(json, "rank", tail->rank);
		pp_json_string(json, "op", pp_op_table[tail->op].mnemonic);
		pp_json_uint(json, "bytes", tail->bytes);
		put_time(json, &tail->time);
		pp_json_close(json);
	}
	pp_json_close(json);
}

void pp_profile_print(const struct pp_profile *profile, FILE *out)
{
	struct pp_json json = pp_json_begin(out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "piperun.profile/1");
	pp_json_string(&json, "tool", profile->tool);
	pp_json_string(&json, "transport", profile->transport);
	pp_json_string(&json, "device", profile->device);
	pp_json_string(&json, "time_unit", "ns");
	pp_json_uint(&json, "steps", profile->steps);
	put_program(&json, profile);
	put_step(&json, "step", &profile->step);
	put_step(&json, "makespan", &profile->makespan);
	put_stages(&json, profile);
	put_compute(&json, profile);
	put_ranks(&json, profile);
	put_channels(&json, profile);
	put_tail(&json, profile);
	pp_json_line(&json);
	pp_json_close(&json);
	fputc('\n', out);
}
