/* Descriptions of the tables of a program. Order of fields = order in text and in image records. */
#include "program_fields.h"

#include <assert.h>
#include <string.h>

static_assert(offsetof(struct pp_tensor, columns) == offsetof(struct pp_tensor, rows) + 4, "a shape is rows, columns");
static_assert(offsetof(struct pp_reg, columns) == offsetof(struct pp_reg, rows) + 4, "a shape is rows, columns");

enum { MOST_RANKS = 65536, MOST_LAYERS = 65535, MOST_SMS = 65535, MOST_CTAS = 64 };

static const uint64_t unit_ticks[PP_PHASE_COUNT] = {1, 2, 1, 1, 0}; /* the papers' F = 1, B = 2 */

static const struct pp_field about[] = {
    {.key = "schedule", .kind = PP_FIELD_TEXT, .offset = offsetof(struct pp_program, schedule_name)},
    {.key = "memory", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_program, schedule_memory)},
    {.key = "tool", .kind = PP_FIELD_TEXT, .offset = offsetof(struct pp_program, tool_version)},
    {.key = "lowering",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_program, lowering),
     .names = pp_lowered_name,
     .name_count = PP_LOWERED_COUNT},
};

static const struct pp_field grid[] = {
    {.key = "pp",
     .kind = PP_FIELD_U32,
     .offset = offsetof(struct pp_program, ranks),
     .required = true,
     .least = 1,
     .most = MOST_RANKS},
    {.key = "tp",
     .kind = PP_FIELD_U32,
     .offset = offsetof(struct pp_program, tp),
     .least = 1,
     .most = MOST_RANKS,
     .initial = 1},
    {.key = "dp",
     .kind = PP_FIELD_U32,
     .offset = offsetof(struct pp_program, dp),
     .least = 1,
     .most = MOST_RANKS,
     .initial = 1},
    {.key = "zero", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_program, zero), .most = 1},
    {.key = "vpp",
     .kind = PP_FIELD_U32,
     .offset = offsetof(struct pp_program, vpp),
     .least = 1,
     .most = MOST_LAYERS,
     .initial = 1},
    {.key = "order",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_program, rank_order),
     .names = pp_rank_order_name,
     .name_count = PP_RANK_ORDER_COUNT},
    {.key = "gpus", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_program, gpus), .most = UINT32_MAX},
    {.key = "microbatches",
     .kind = PP_FIELD_U32,
     .offset = offsetof(struct pp_program, microbatches),
     .required = true,
     .least = 1,
     .most = INT32_MAX},
};

static const struct pp_field device[] = {
    {.key = "node", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_rank, node), .most = UINT32_MAX},
    {.key = "gpu", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_rank, gpu), .most = UINT32_MAX},
    {.key = "capacity", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_rank, capacity)},
    {.key = "reserve", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_rank, reserve)},
    {.key = "arena", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_rank, arena_bytes)},
    {.key = "static", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_rank, static_bytes)},
    {.key = "live", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_rank, live_bytes)},
    {.key = "sms", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_rank, sms), .most = MOST_SMS},
    {.key = "post_sms", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_rank, post_sms), .most = MOST_SMS},
};

static const struct pp_field cost[] = {
    {.key = "memory_bandwidth", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_cost, memory_bandwidth)},
    {.key = "peak_flops", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_cost, peak_flops), .most = UINT64_MAX},
    {.key = "pair_permille",
     .kind = PP_FIELD_U32,
     .offset = offsetof(struct pp_cost, pair_permille),
     .most = 1000,
     .initial = 1000},
};

static const struct pp_field train[] = {
    {.key = "microbatch",
     .kind = PP_FIELD_U32,
     .offset = offsetof(struct pp_train, microbatch),
     .most = UINT32_MAX,
     .initial = 1},
    {.key = "seq", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_train, seq), .most = UINT32_MAX, .initial = 1},
    {.key = "vocab", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_train, vocab), .most = INT32_MAX},
    {.key = "steps", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_train, steps), .initial = 1},
    {.key = "seed", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_train, seed), .most = UINT64_MAX},
    {.key = "optimizer",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_train, optimizer),
     .names = pp_optimizer_name,
     .name_count = PP_OPTIMIZER_COUNT},
    {.key = "mean",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_train, mean),
     .names = pp_mean_name,
     .name_count = PP_MEAN_COUNT},
    {.key = "data",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_train, data),
     .names = pp_data_name,
     .name_count = PP_DATA_COUNT},
    {.key = "tokens",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_train, tokens),
     .names = pp_tokens_name,
     .name_count = PP_TOKENS_COUNT},
    {.key = "path", .kind = PP_FIELD_TEXT, .offset = offsetof(struct pp_train, data_path)},
    {.key = "data_seed", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_train, data_seed), .most = UINT64_MAX},
    {.key = "eval_tail", .kind = PP_FIELD_NUMBER, .offset = offsetof(struct pp_train, eval_tail)},
    {.key = "eval_every", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_train, eval_every)},
    {.key = "eval_steps", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_train, eval_steps)},
    {.key = "eval_path", .kind = PP_FIELD_TEXT, .offset = offsetof(struct pp_train, eval_path)},
    {.key = "lr",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_train, lr_kind),
     .names = pp_lr_name,
     .name_count = PP_LR_COUNT},
    {.key = "peak", .kind = PP_FIELD_NUMBER, .offset = offsetof(struct pp_train, lr_peak)},
    {.key = "floor", .kind = PP_FIELD_NUMBER, .offset = offsetof(struct pp_train, lr_floor)},
    {.key = "warmup", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_train, lr_warmup)},
    {.key = "log_every", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_train, log_every), .initial = 1},
    {.key = "checkpoint_every", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_train, checkpoint_every)},
    {.key = "checkpoint_keep", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_train, checkpoint_keep)},
    {.key = "checkpoint_dir", .kind = PP_FIELD_TEXT, .offset = offsetof(struct pp_train, checkpoint_dir)},
};

static const struct pp_field hyper[] = {
    {.key = "beta1", .kind = PP_FIELD_NUMBER, .offset = offsetof(struct pp_hyper, beta1)},
    {.key = "beta2", .kind = PP_FIELD_NUMBER, .offset = offsetof(struct pp_hyper, beta2)},
    {.key = "eps", .kind = PP_FIELD_NUMBER, .offset = offsetof(struct pp_hyper, eps)},
    {.key = "decay", .kind = PP_FIELD_NUMBER, .offset = offsetof(struct pp_hyper, weight_decay)},
    {.key = "clip", .kind = PP_FIELD_NUMBER, .offset = offsetof(struct pp_hyper, clip)},
};

static const struct pp_field stage[] = {
    {.key = "rank",
     .kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_stage, rank),
     .required = true,
     .bound = PP_BOUND_RANK},
    {.key = "title", .kind = PP_FIELD_TEXT, .offset = offsetof(struct pp_stage, title)},
    {.key = "layer", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_stage, first_layer), .most = MOST_LAYERS},
    {.key = "layers", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_stage, layer_count), .most = MOST_LAYERS},
    {.key = "out",
     .kind = PP_FIELD_PAYLOAD,
     .offset = offsetof(struct pp_stage, out_count),
     .second = offsetof(struct pp_stage, out_dtype)},
    {.key = "tokens", .kind = PP_FIELD_FLAG, .offset = offsetof(struct pp_stage, loads_tokens)},
    {.key = "labels", .kind = PP_FIELD_FLAG, .offset = offsetof(struct pp_stage, loads_labels)},
    {.key = "recomputes", .kind = PP_FIELD_FLAG, .offset = offsetof(struct pp_stage, recomputes)},
    {.key = "stash", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_stage, stash_bytes)},
    {.key = "extra", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_stage, extra_bytes)},
    {.key = "aux", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_stage, aux_bytes)},
    {.key = "ticks", .kind = PP_FIELD_PHASES, .offset = offsetof(struct pp_stage, ticks), .initials = unit_ticks},
    {.key = "flops", .kind = PP_FIELD_PHASES, .offset = offsetof(struct pp_stage, flops), .most = UINT64_MAX},
    {.kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_stage, body[PP_PHASE_F]),
     .nullable = true,
     .bound = PP_BOUND_BODY,
     .initial = PP_NULL},
    {.kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_stage, body[PP_PHASE_B]),
     .nullable = true,
     .bound = PP_BOUND_BODY,
     .initial = PP_NULL},
    {.kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_stage, body[PP_PHASE_I]),
     .nullable = true,
     .bound = PP_BOUND_BODY,
     .initial = PP_NULL},
    {.kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_stage, body[PP_PHASE_W]),
     .nullable = true,
     .bound = PP_BOUND_BODY,
     .initial = PP_NULL},
    {.kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_stage, body[PP_PHASE_R]),
     .nullable = true,
     .bound = PP_BOUND_BODY,
     .initial = PP_NULL},
};

static const struct pp_field tensor[] = {
    {.key = "", .kind = PP_FIELD_WORD, .offset = offsetof(struct pp_tensor, name), .required = true},
    {.key = "",
     .kind = PP_FIELD_SHAPE,
     .offset = offsetof(struct pp_tensor, rows),
     .second = offsetof(struct pp_tensor, dtype),
     .third = offsetof(struct pp_tensor, dims),
     .required = true},
    {.key = "init",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_tensor, init),
     .names = pp_init_name,
     .name_count = PP_INIT_COUNT},
    {.key = "std", .kind = PP_FIELD_NUMBER, .offset = offsetof(struct pp_tensor, std)},
    {.key = "tp_grad",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_tensor, tp_grad),
     .names = pp_tp_grad_name,
     .name_count = PP_TP_GRAD_COUNT,
     .initial = PP_TP_REPLICATED_EQUAL},
    {.key = "shard", .kind = PP_FIELD_U8, .offset = offsetof(struct pp_tensor, shard), .most = 255, .initial = 255},
    {.key = "decay", .kind = PP_FIELD_FLAG, .offset = offsetof(struct pp_tensor, decay)},
};

static const struct pp_field slot[] = {
    {.kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_slot, class),
     .names = pp_slot_class_name,
     .name_count = PP_SLOT_CLASS_COUNT},
    {.key = "bytes", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_slot, bytes), .required = true},
    {.key = "at",
     .kind = PP_FIELD_PLACE,
     .offset = offsetof(struct pp_slot, offset),
     .second = offsetof(struct pp_slot, placed)},
    {.key = "tensor",
     .kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_slot, tensor),
     .nullable = true,
     .letter = 't',
     .bound = PP_BOUND_TENSOR,
     .initial = PP_NULL},
};

static const struct pp_field use[] = {
    {.key = "",
     .kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_use, tensor),
     .required = true,
     .letter = 't',
     .bound = PP_BOUND_TENSOR},
    {.key = "",
     .kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_use, stage),
     .required = true,
     .letter = 's',
     .bound = PP_BOUND_STAGE},
    {.key = "",
     .kind = PP_FIELD_SLOT,
     .offset = offsetof(struct pp_use, weight),
     .required = true,
     .nullable = true,
     .names = &pp_slot_class_name[PP_SLOT_WEIGHT]},
    {.key = "",
     .kind = PP_FIELD_SLOT,
     .offset = offsetof(struct pp_use, grad),
     .required = true,
     .nullable = true,
     .names = &pp_slot_class_name[PP_SLOT_GRAD]},
};

static const struct pp_field channel[] = {
    {.key = "",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_channel, kind),
     .required = true,
     .names = pp_value_name,
     .name_count = PP_VALUE_COUNT},
    {.key = "from",
     .kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_channel, source),
     .required = true,
     .bound = PP_BOUND_RANK},
    {.key = "to",
     .kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_channel, destination),
     .required = true,
     .bound = PP_BOUND_RANK},
    {.key = "depth",
     .kind = PP_FIELD_U32,
     .offset = offsetof(struct pp_channel, depth),
     .least = 1,
     .most = UINT32_MAX,
     .initial = 1},
    {.key = "messages",
     .kind = PP_FIELD_U32,
     .offset = offsetof(struct pp_channel, messages),
     .most = UINT32_MAX,
     .initial = PP_NULL},
    {.key = "latency", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_channel, latency)},
    {.key = "bandwidth", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_channel, bandwidth)},
    {.key = "ctas", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_channel, ctas), .most = MOST_CTAS},
};

static const struct pp_field group[] = {
    {.key = "",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_group, axis),
     .required = true,
     .names = pp_axis_name,
     .name_count = PP_AXIS_COUNT},
    {.key = "ranks",
     .kind = PP_FIELD_RANKS,
     .offset = offsetof(struct pp_group, members),
     .second = offsetof(struct pp_group, member_count),
     .bound = PP_BOUND_RANK},
    {.key = "latency", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_group, latency)},
    {.key = "bandwidth", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_group, bandwidth)},
    {.key = "ctas", .kind = PP_FIELD_U32, .offset = offsetof(struct pp_group, ctas), .most = MOST_CTAS},
};

static const struct pp_field body[] = {
    {.key = "",
     .kind = PP_FIELD_INDEX,
     .offset = offsetof(struct pp_body, stage),
     .required = true,
     .letter = 's',
     .bound = PP_BOUND_STAGE},
    {.key = "",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_body, phase),
     .required = true,
     .names = pp_phase_name,
     .name_count = PP_PHASE_COUNT},
    {.key = "work", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_body, work_bytes)},
};

static const char *const tp_type_name[PP_TYPE_COUNT] = {"R", "P", "S"};

static const struct pp_field reg[] = {
    {.key = "", .kind = PP_FIELD_WORD, .offset = offsetof(struct pp_reg, name), .required = true},
    {.key = "",
     .kind = PP_FIELD_BASE,
     .offset = offsetof(struct pp_reg, base),
     .second = offsetof(struct pp_reg, slot),
     .required = true},
    {.key = "",
     .kind = PP_FIELD_SHAPE,
     .offset = offsetof(struct pp_reg, rows),
     .second = offsetof(struct pp_reg, dtype),
     .required = true},
    {.key = "type",
     .kind = PP_FIELD_NAME,
     .offset = offsetof(struct pp_reg, type),
     .names = tp_type_name,
     .name_count = PP_TYPE_COUNT},
    {.key = "shard", .kind = PP_FIELD_U8, .offset = offsetof(struct pp_reg, shard), .most = 255},
    {.key = "at", .kind = PP_FIELD_U64, .offset = offsetof(struct pp_reg, offset)},
};

const struct pp_record pp_record_table[PP_RECORD_COUNT] = {
    [PP_RECORD_ABOUT] = {"about", 0, about, sizeof about / sizeof about[0], sizeof(struct pp_program)},
    [PP_RECORD_GRID] = {"grid", 0, grid, sizeof grid / sizeof grid[0], sizeof(struct pp_program)},
    [PP_RECORD_DEVICE] = {"device", 0, device, sizeof device / sizeof device[0], sizeof(struct pp_rank)},
    [PP_RECORD_COST] = {"cost", 0, cost, sizeof cost / sizeof cost[0], sizeof(struct pp_cost)},
    [PP_RECORD_TRAIN] = {"train", 0, train, sizeof train / sizeof train[0], sizeof(struct pp_train)},
    [PP_RECORD_HYPER] = {"hyper", 'h', hyper, sizeof hyper / sizeof hyper[0], sizeof(struct pp_hyper)},
    [PP_RECORD_STAGE] = {"stage", 's', stage, sizeof stage / sizeof stage[0], sizeof(struct pp_stage)},
    [PP_RECORD_TENSOR] = {"tensor", 't', tensor, sizeof tensor / sizeof tensor[0], sizeof(struct pp_tensor)},
    [PP_RECORD_SLOT] = {"slot", 0, slot, sizeof slot / sizeof slot[0], sizeof(struct pp_slot)},
    [PP_RECORD_USE] = {"use", 0, use, sizeof use / sizeof use[0], sizeof(struct pp_use)},
    [PP_RECORD_CHANNEL] = {"channel", 'c', channel, sizeof channel / sizeof channel[0], sizeof(struct pp_channel)},
    [PP_RECORD_GROUP] = {"group", 'g', group, sizeof group / sizeof group[0], sizeof(struct pp_group)},
    [PP_RECORD_BODY] = {"body", 'b', body, sizeof body / sizeof body[0], sizeof(struct pp_body)},
    [PP_RECORD_REG] = {"reg", 0, reg, sizeof reg / sizeof reg[0], sizeof(struct pp_reg)},
};

static void reset_field(const struct pp_field *field, void *record)
{
	switch (field->kind) {
	case PP_FIELD_U8:
	case PP_FIELD_NAME:
		*pp_member_u8(record, field->offset) = (uint8_t)field->initial;
		break;
	case PP_FIELD_U32:
	case PP_FIELD_INDEX:
		*pp_member_u32(record, field->offset) = (uint32_t)field->initial;
		break;
	case PP_FIELD_U64:
		*pp_member_u64(record, field->offset) = field->initial;
		break;
	case PP_FIELD_FLAG:
		*pp_member_flag(record, field->offset) = false;
		break;
	case PP_FIELD_NUMBER:
		*pp_member_number(record, field->offset) = 0;
		break;
	case PP_FIELD_TEXT:
	case PP_FIELD_WORD:
		*pp_member_text(record, field->offset) = NULL;
		break;
	case PP_FIELD_PAYLOAD:
		*pp_member_u32(record, field->offset) = 0;
		*pp_member_u8(record, field->second) = PP_F32;
		break;
	case PP_FIELD_SHAPE:
		pp_member_u32(record, field->offset)[0] = pp_member_u32(record, field->offset)[1] = 1;
		*pp_member_u8(record, field->second) = PP_F32;
		if (field->third)
			*pp_member_u8(record, field->third) = 1;
		break;
	case PP_FIELD_PLACE:
		*pp_member_u64(record, field->offset) = 0;
		*pp_member_flag(record, field->second) = false;
		break;
	case PP_FIELD_PHASES:
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			pp_member_u64(record, field->offset)[phase] = field->initials ? field->initials[phase] : 0;
		break;
	case PP_FIELD_RANKS:
		*pp_member_ranks(record, field->offset) = NULL;
		*pp_member_u32(record, field->second) = 0;
		break;
	case PP_FIELD_SLOT:
		*pp_member_u32(record, field->offset) = PP_NULL;
		break;
	case PP_FIELD_BASE:
		*pp_member_u8(record, field->offset) = PP_BASE_WORK;
		*pp_member_u32(record, field->second) = PP_NULL;
		break;
	}
}

void pp_record_reset(enum pp_record_kind kind, void *record)
{
	for (uint32_t i = 0; i < pp_record_table[kind].field_count; i++)
		reset_field(&pp_record_table[kind].fields[i], record);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

const char *const pp_bound_name[PP_BOUND_COUNT] = {"",        "rank",  "stage", "microbatch", "tensor",
                                                   "channel", "group", "hyper", "body",       "text"};

uint32_t pp_bound_count(const struct pp_program *program, enum pp_bound bound)
{
	switch (bound) {
	case PP_BOUND_RANK:
		return program->ranks;
	case PP_BOUND_STAGE:
		return program->stage_count;
	case PP_BOUND_MICROBATCH:
		return program->microbatches;
	case PP_BOUND_TENSOR:
		return program->tensor_count;
	case PP_BOUND_CHANNEL:
		return program->channel_count;
	case PP_BOUND_GROUP:
		return program->group_count;
	case PP_BOUND_HYPER:
		return program->train.hyper_count;
	case PP_BOUND_BODY:
		return program->body_count;
	case PP_BOUND_TEXT:
		return program->text_count;
	case PP_BOUND_NONE:
	case PP_BOUND_COUNT:
		break;
	}
	return UINT32_MAX;
}
