/* Names of the program's enumerators and small look-ups. */
#include "program.h"

#include "capped.h"

#include <string.h>

const char *const pp_dtype_name[] = {"f32", "bf16", "f64", "i32"};
const char *const pp_value_name[] = {"act", "grad"};
const char *const pp_phase_name[] = {"F", "B", "I", "W", "R"};
const char *const pp_load_name[] = {"tokens", "labels", "tokens+labels"};
const char *const pp_collective_name[] = {"allreduce", "allgather", "reducescatter"};
const char *const pp_slot_class_name[] = {"recv",   "out",    "stash",  "aux",   "extra", "weight", "grad",
                                          "moment", "master", "losses", "norms", "scale", "work",   "scratch"};
const char *const pp_init_name[] = {"zero", "one", "normal"};
const char *const pp_tp_grad_name[] = {"sharded", "replicated_equal", "replicated_partial"};
const char *const pp_axis_name[] = {"pp", "tp", "dp"};
const char *const pp_rank_order_name[] = {"tp,dp,pp", "tp,pp,dp", "dp,tp,pp", "dp,pp,tp", "pp,tp,dp", "pp,dp,tp"};
const char *const pp_base_name[] = {"in",  "aux",  "out",    "stash", "extra", "dout",
                                    "din", "work", "weight", "grad",  "loss"};
const char *const pp_layout_name[] = {"channel", "edge", "direction", "pair", "rank", "blocking"};
const char *const pp_lowered_name[] = {"given", "end", "lazy", "start", "free"};
const char *const pp_flag_name[] = {"first", "pair", "shard"};
const uint32_t pp_dtype_size[] = {4, 2, 8, 4};

const char *const pp_optimizer_name[] = {"adamw", "sgd"};
const char *const pp_mean_name[] = {"token_mean", "mb_mean"};
const char *const pp_data_name[] = {"none", "synthetic", "file"};
const char *const pp_tokens_name[] = {"byte", "u16", "u32"};
const char *const pp_lr_name[] = {"constant", "cosine"};

bool pp_is_forward_only(const struct pp_named_program *named)
{
	return strcmp(named->name, "eval") == 0;
}

const struct pp_named_program *pp_program_find(const struct pp_program *program, const char *name)
{
	for (uint32_t i = 0; i < program->program_count; i++)
		if (strcmp(program->programs[i].name, name) == 0)
			return &program->programs[i];
	return NULL;
}

uint64_t pp_transfer_ticks(uint64_t latency, uint64_t bandwidth, uint64_t bytes)
{
	uint64_t ticks = 0;
	if (bandwidth && bytes) {
		const uint64_t ns_per_s = 1000000000;
		uint64_t whole = bytes / bandwidth, rest = bytes % bandwidth;
		/* rest < bandwidth; rest * 1e9 may overflow, so divide in two steps when it would. */
		uint64_t part;
		if (__builtin_mul_overflow(rest, ns_per_s, &part))
			part = rest / (bandwidth / ns_per_s);
		else
			part = part / bandwidth + (part % bandwidth != 0);
		if (__builtin_mul_overflow(whole, ns_per_s, &ticks) || __builtin_add_overflow(ticks, part, &ticks))
			return UINT64_MAX;
	}
	return __builtin_add_overflow(ticks, latency, &ticks) ? UINT64_MAX : ticks;
}

uint64_t pp_local_elements(const struct pp_program *program, uint32_t tensor)
{
	const struct pp_tensor *t = &program->tensors[tensor];
	uint64_t whole = (uint64_t)t->rows * t->columns;
	return t->tp_grad == PP_TP_SHARDED && program->tp > 1 ? whole / program->tp : whole;
}

uint64_t pp_shard_elements(const struct pp_program *program, uint32_t tensor)
{
	uint64_t local = pp_local_elements(program, tensor);
	if (!program->zero || program->dp < 2)
		return local;
	return local / program->dp + (local % program->dp != 0);
}

/* Elements of a weight or grad slot: the shards of all dp coordinates. */
static uint64_t padded_elements(const struct pp_program *program, uint32_t tensor)
{
	return program->zero && program->dp > 1 ? pp_times(pp_shard_elements(program, tensor), program->dp)
	                                        : pp_local_elements(program, tensor);
}

bool pp_slot_content_bytes(const struct pp_program *program, const struct pp_slot *slot, uint64_t *bytes)
{
	enum { SCALE_BYTES = 32, NORM_BYTES = 8, LOSS_BYTES = 16 };
	bool of_tensor = slot->tensor < program->tensor_count;
	uint32_t element = pp_dtype_size[PP_F32];
	switch ((enum pp_slot_class)slot->class) {
	case PP_SLOT_WEIGHT:
		if (of_tensor)
			element = pp_dtype_size[program->tensors[slot->tensor].dtype];
		*bytes = of_tensor ? pp_times(padded_elements(program, slot->tensor), element) : 0;
		return of_tensor;
	case PP_SLOT_GRAD:
		*bytes = of_tensor ? pp_times(padded_elements(program, slot->tensor), element) : 0;
		return of_tensor;
	case PP_SLOT_MOMENT:
	case PP_SLOT_MASTER:
		*bytes = of_tensor ? pp_times(pp_shard_elements(program, slot->tensor), element) : 0;
		return of_tensor;
	case PP_SLOT_LOSSES:
		*bytes = (uint64_t)LOSS_BYTES * program->microbatches;
		return true;
	case PP_SLOT_NORMS:
		*bytes = (uint64_t)NORM_BYTES * program->tensor_count;
		return true;
	case PP_SLOT_SCALE:
		*bytes = SCALE_BYTES;
		return true;
	case PP_SLOT_RECV:
	case PP_SLOT_OUT:
	case PP_SLOT_STASH:
	case PP_SLOT_AUX:
	case PP_SLOT_EXTRA:
	case PP_SLOT_WORK:
	case PP_SLOT_SCRATCH:
	case PP_SLOT_CLASS_COUNT:
		break;
	}
	return false;
}
