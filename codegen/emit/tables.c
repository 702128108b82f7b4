/* The tables of a program: tensors, slots, channels, groups, bodies. */
#include "emit.h"

#include <string.h>

static void heads(struct pp_table *table, const char *const *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		pp_table_cell(table, words[i]);
}

static const char *shape_text(const struct pp_dump *dump, const struct pp_tensor *tensor)
{
	if (tensor->dims == 1)
		return pp_arena_printf(dump->arena, "%s*%u", pp_dtype_name[tensor->dtype], tensor->rows);
	return pp_arena_printf(dump->arena, "%s*%ux%u", pp_dtype_name[tensor->dtype], tensor->rows, tensor->columns);
}

/* Stages that use a tensor: "0", or "0,3 (tied)". Uses are sorted by tensor; *next goes along. */
static const char *uses_text(const struct pp_dump *dump, uint32_t tensor, uint32_t *next)
{
	const struct pp_program *program = dump->program;
	const char *text = "";
	uint32_t count = 0;
	for (; *next < program->use_count && program->uses[*next].tensor == tensor; ++*next)
		if (count++ < 8)
			text = pp_arena_printf(dump->arena, "%s%s%u", text, count > 1 ? "," : "", program->uses[*next].stage);
	return count > 1 ? pp_arena_printf(dump->arena, "%s%s (tied)", text, count > 8 ? ",..." : "") : count ? text : "-";
}

static void print_tensors(const struct pp_dump *dump)
{
	static const char *const words[] = {"tensor", "name", "shape", "params", "init", "decay", "stages"};
	enum { COLUMNS = sizeof words / sizeof words[0] };
	if (dump->program->tensor_count == 0)
		return;
	struct pp_table table = pp_table_begin(dump->arena, COLUMNS, 1u << 1 | 1u << 2 | 1u << 4 | 1u << 6);
	heads(&table, words, COLUMNS);
	uint32_t next = 0;
	for (uint32_t i = 0; i < dump->program->tensor_count; i++) {
		const struct pp_tensor *tensor = &dump->program->tensors[i];
		pp_table_cell(&table, pp_arena_printf(dump->arena, "t%u", i));
		pp_table_cell(&table, tensor->name);
		pp_table_cell(&table, shape_text(dump, tensor));
		pp_table_cell(&table, pp_show_count(dump->arena, (uint64_t)tensor->rows * tensor->columns));
		pp_table_cell(&table, tensor->init == PP_INIT_NORMAL ? pp_arena_printf(dump->arena, "normal(%g)", tensor->std)
		                                                     : pp_init_name[tensor->init]);
		pp_table_cell(&table, tensor->decay ? "yes" : "no");
		pp_table_cell(&table, uses_text(dump, i, &next));
	}
	pp_table_print(&table, dump->out);
	fputc('\n', dump->out);
}

/* Classes that only some programs have are no columns of the others. Returns the number of those shown. */
static uint32_t shown_classes(const struct pp_dump *dump, bool shown[PP_SLOT_CLASS_COUNT])
{
	const struct pp_program *program = dump->program;
	uint32_t count = 0;
	for (unsigned class = 0; class < PP_SLOT_CLASS_COUNT; class ++)
		shown[class] = !dump->costless && class != PP_SLOT_EXTRA && class != PP_SLOT_MASTER && class != PP_SLOT_SCRATCH;
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		for (uint32_t i = 0; i < program->rank[rank].slot_count; i++)
			shown[program->rank[rank].slots[i].class] = true;
	for (unsigned class = 0; class < PP_SLOT_CLASS_COUNT; class ++)
		count += shown[class];
	return count;
}

/* Slots of a rank by class: number and bytes. */
static void print_slots(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	bool shown[PP_SLOT_CLASS_COUNT];
	struct pp_table table = pp_table_begin(dump->arena, shown_classes(dump, shown) + (dump->costless ? 1 : 2), 0);
	pp_table_cell(&table, "slots");
	for (unsigned class = 0; class < PP_SLOT_CLASS_COUNT; class ++)
		if (shown[class])
			pp_table_cell(&table, pp_slot_class_name[class]);
	if (!dump->costless)
		pp_table_cell(&table, "arena");
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		if (!dump->chosen[rank])
			continue;
		uint64_t bytes[PP_SLOT_CLASS_COUNT] = {0};
		uint32_t count[PP_SLOT_CLASS_COUNT] = {0};
		for (uint32_t i = 0; i < program->rank[rank].slot_count; i++) {
			bytes[program->rank[rank].slots[i].class] += program->rank[rank].slots[i].bytes;
			count[program->rank[rank].slots[i].class]++;
		}
		pp_table_cell(&table, pp_arena_printf(dump->arena, "r%u", rank));
		for (unsigned class = 0; class < PP_SLOT_CLASS_COUNT; class ++)
			if (shown[class])
				pp_table_cell(&table, !count[class]    ? "-"
				                      : dump->costless ? pp_arena_printf(dump->arena, "%u", count[class])
				                                       : pp_arena_printf(dump->arena, "%u = %s", count[class],
				                                                         pp_show_bytes(dump->arena, bytes[class])));
		if (!dump->costless)
			pp_table_cell(&table, program->rank[rank].arena_bytes
			                          ? pp_show_bytes(dump->arena, program->rank[rank].arena_bytes)
			                          : "-");
	}
	pp_table_print(&table, dump->out);
	fputc('\n', dump->out);
}

static void print_channels(const struct pp_dump *dump)
{
	static const char *const words[] = {"channel", "from", "to", "kind", "depth", "messages", "latency", "bandwidth"};
	enum { COLUMNS = sizeof words / sizeof words[0], COLUMNS_OF_COSTS = 2 };
	if (dump->program->channel_count == 0)
		return;
	const unsigned columns = COLUMNS - (dump->costless ? COLUMNS_OF_COSTS : 0);
	struct pp_table table = pp_table_begin(dump->arena, columns, 1u << 3);
	heads(&table, words, columns);
	for (uint32_t i = 0; i < dump->program->channel_count; i++) {
		const struct pp_channel *channel = &dump->program->channels[i];
		if (!dump->chosen[channel->source] && !dump->chosen[channel->destination])
			continue;
		pp_table_cell(&table, pp_arena_printf(dump->arena, "c%u", i));
		pp_table_cell(&table, pp_arena_printf(dump->arena, "r%u", channel->source));
		pp_table_cell(&table, pp_arena_printf(dump->arena, "r%u", channel->destination));
		pp_table_cell(&table, pp_value_name[channel->kind]);
		pp_table_cell_uint(&table, channel->depth);
		pp_table_cell_uint(&table, channel->messages);
		if (dump->costless)
			continue;
		pp_table_cell(&table, pp_arena_printf(dump->arena, "%llu ns", (unsigned long long)channel->latency));
		pp_table_cell(&table, channel->bandwidth ? pp_show_rate(dump->arena, channel->bandwidth, "B/s") : "infinite");
	}
	pp_table_print(&table, dump->out);
	fputc('\n', dump->out);
}

static void print_groups(const struct pp_dump *dump)
{
	for (uint32_t i = 0; i < dump->program->group_count; i++) {
		const struct pp_group *group = &dump->program->groups[i];
		fprintf(dump->out, " group g%u: %s", i, pp_axis_name[group->axis]);
		for (uint32_t k = 0; k < group->member_count && k < 16; k++)
			fprintf(dump->out, "%sr%u", k ? "," : " ", group->members[k]);
		fprintf(dump->out, "%s, latency %llu ns, bandwidth %s\n", group->member_count > 16 ? ",..." : "",
		        (unsigned long long)group->latency,
		        group->bandwidth ? pp_show_rate(dump->arena, group->bandwidth, "B/s") : "infinite");
	}
	if (dump->program->group_count)
		fputc('\n', dump->out);
}

static void print_bodies(const struct pp_dump *dump)
{
	static const char *const words[] = {"body", "stage", "phase", "registers", "instructions", "workspace"};
	enum { COLUMNS = sizeof words / sizeof words[0] };
	if (dump->program->body_count == 0)
		return;
	struct pp_table table = pp_table_begin(dump->arena, COLUMNS, 1u << 2);
	heads(&table, words, COLUMNS);
	for (uint32_t i = 0; i < dump->program->body_count; i++) {
		const struct pp_body *body = &dump->program->bodies[i];
		if (!dump->chosen[dump->program->stages[body->stage].rank])
			continue;
		pp_table_cell(&table, pp_arena_printf(dump->arena, "b%u", i));
		pp_table_cell(&table, pp_arena_printf(dump->arena, "s%u", body->stage));
		pp_table_cell(&table, pp_phase_name[body->phase]);
		pp_table_cell_uint(&table, body->reg_count);
		pp_table_cell_uint(&table, body->count);
		pp_table_cell(&table, pp_show_bytes(dump->arena, body->work_bytes));
	}
	pp_table_print(&table, dump->out);
}

void pp_emit_tables(const struct pp_dump *dump)
{
	print_tensors(dump);
	print_slots(dump);
	print_channels(dump);
	print_groups(dump);
	print_bodies(dump);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_tensors(const struct pp_program *program, struct pp_json *json)
{
	pp_json_open_array(json, "tensors");
	for (uint32_t i = 0; i < program->tensor_count; i++) {
		const struct pp_tensor *tensor = &program->tensors[i];
		pp_json_open_object(json, NULL);
		pp_json_string(json, "name", tensor->name);
		pp_json_string(json, "dtype", pp_dtype_name[tensor->dtype]);
		pp_json_open_array(json, "shape");
		pp_json_uint(json, NULL, tensor->rows);
		if (tensor->dims == 2)
			pp_json_uint(json, NULL, tensor->columns);
		pp_json_close(json);
		pp_json_string(json, "init", pp_init_name[tensor->init]);
		pp_json_number(json, "std", tensor->std);
		pp_json_bool(json, "decay", tensor->decay);
		pp_json_close(json);
	}
	pp_json_close(json);
}

static void json_slots(const struct pp_dump *dump, struct pp_json *json)
{
	pp_json_open_array(json, "ranks");
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++) {
		if (!dump->chosen[rank])
			continue;
		pp_json_open_object(json, NULL);
		pp_json_uint(json, "rank", rank);
		if (!dump->costless)
			pp_json_uint(json, "arena_bytes", dump->program->rank[rank].arena_bytes);
		pp_json_open_array(json, "slots");
		for (uint32_t i = 0; i < dump->program->rank[rank].slot_count; i++) {
			const struct pp_slot *slot = &dump->program->rank[rank].slots[i];
			pp_json_open_object(json, NULL);
			pp_json_string(json, "class", pp_slot_class_name[slot->class]);
			if (!dump->costless)
				pp_json_uint(json, "bytes", slot->bytes);
			if (slot->placed && !dump->costless)
				pp_json_uint(json, "offset", slot->offset);
			if (slot->tensor != PP_NULL)
				pp_json_uint(json, "tensor", slot->tensor);
			pp_json_close(json);
		}
		pp_json_close(json);
		pp_json_close(json);
	}
	pp_json_close(json);
}

static void json_channels(const struct pp_dump *dump, struct pp_json *json)
{
	const struct pp_program *program = dump->program;
	pp_json_open_array(json, "channels");
	for (uint32_t i = 0; i < program->channel_count; i++) {
		const struct pp_channel *channel = &program->channels[i];
		pp_json_open_object(json, NULL);
		pp_json_uint(json, "from", channel->source);
		pp_json_uint(json, "to", channel->destination);
		pp_json_string(json, "kind", pp_value_name[channel->kind]);
		pp_json_uint(json, "depth", channel->depth);
		pp_json_uint(json, "messages", channel->messages);
		if (!dump->costless) {
			pp_json_uint(json, "latency_ns", channel->latency);
			pp_json_uint(json, "bandwidth", channel->bandwidth);
		}
		pp_json_close(json);
	}
	pp_json_close(json);
}

void pp_emit_tables_json(const struct pp_dump *dump)
{
	struct pp_json json = pp_json_begin(dump->out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.tables/1");
	json_tensors(dump->program, &json);
	json_slots(dump, &json);
	json_channels(dump, &json);
	pp_json_open_array(&json, "bodies");
	for (uint32_t i = 0; i < dump->program->body_count; i++) {
		const struct pp_body *body = &dump->program->bodies[i];
		pp_json_open_object(&json, NULL);
		pp_json_uint(&json, "stage", body->stage);
		pp_json_string(&json, "phase", pp_phase_name[body->phase]);
		pp_json_uint(&json, "registers", body->reg_count);
		pp_json_uint(&json, "instructions", body->count);
		pp_json_uint(&json, "work_bytes", body->work_bytes);
		pp_json_close(&json);
	}
	pp_json_close(&json);
	pp_json_close(&json);
	fputc('\n', dump->out);
}
