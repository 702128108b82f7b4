/* Attributes that follow from others when they are not given, and the message for those that must be. Each function
 * says the formula; the schema table repeats it for the manual. */
#include "resolver.h"

#include "compiler/policy.h"
#include "ir/capped.h"

#include <string.h>

void pp_report_missing(struct pp_resolver *resolver, const struct pp_section *section, enum pp_attribute attribute,
                       const char *example)
{
	const char *name = pp_attribute_table[attribute].name;
	if (section->partial)
		return;
	struct pp_message *message = pp_error(resolver->diag, "E0111", section->span, "`%s` needs `%s`: %s", section->title,
	                                      name, pp_schema_doc(resolver->arena, &pp_attribute_table[attribute]));
	if (section->stmt || strcmp(pp_block_table[section->block].parents, "()") == 0)
		pp_help(message, "write `%s = %s`", name, example);
	else
		pp_help(message, "write `%s { %s = %s }`", section->title, name, example);
}

static bool give(uint64_t value, struct pp_datum *out)
{
	*out = pp_datum_whole((int64_t)value);
	return true;
}

static bool copy_field(struct pp_resolver *resolver, enum pp_section_id id, enum pp_attribute attribute,
                       struct pp_datum *out)
{
	const struct pp_field *field = pp_field_read(resolver, resolver->sections[id], attribute);
	if (field && field->state == PP_READY)
		*out = field->value;
	return field && field->state == PP_READY;
}

static bool model_whole(struct pp_resolver *resolver, enum pp_attribute attribute, uint64_t *out)
{
	return pp_field_whole(resolver, resolver->sections[PP_SECTION_MODEL], attribute, out);
}

/* hidden / heads */
static bool derive_head_dim(struct pp_resolver *resolver, struct pp_datum *out)
{
	uint64_t hidden, heads;
	bool both = model_whole(resolver, PP_ATTR_model_hidden, &hidden);
	if (!model_whole(resolver, PP_ATTR_model_heads, &heads) || !both)
		return false;
	if (hidden % heads == 0)
		return give(hidden / heads, out);
	const struct pp_section *model = resolver->sections[PP_SECTION_MODEL];
	struct pp_message *message =
	    pp_error(resolver->diag, "E0302", pp_field_span(model, PP_ATTR_model_heads),
	             "hidden %llu is not divisible by %llu heads (remainder %llu)", (unsigned long long)hidden,
	             (unsigned long long)heads, (unsigned long long)(hidden % heads));
	pp_label(message, pp_field_span(model, PP_ATTR_model_hidden), "hidden");
	uint64_t below = heads, above = heads;
	while (hidden % below != 0)
		below--;
	while (above < hidden && hidden % above != 0)
		above++;
	if (hidden % above == 0 && above <= 65535)
		pp_help(message, "use heads = %llu or heads = %llu, or give head_dim", (unsigned long long)below,
		        (unsigned long long)above);
	else
		pp_help(message, "use heads = %llu, or give head_dim", (unsigned long long)below);
	return false;
}

/* 4 * hidden */
static bool derive_ffn(struct pp_resolver *resolver, struct pp_datum *out)
{
	uint64_t hidden;
	return model_whole(resolver, PP_ATTR_model_hidden, &hidden) && give(4 * hidden, out);
}

/* norm, act, pos, bias: what the family of models has. */
static bool derive_by_kind(struct pp_resolver *resolver, enum pp_attribute attribute, struct pp_datum *out)
{
	static const struct {
		enum pp_attribute attribute;
		const char *names[2]; /* of gpt2, of llama */
	} table[] = {{PP_ATTR_model_norm, {"layernorm", "rmsnorm"}},
	             {PP_ATTR_model_act, {"gelu_tanh", "swiglu"}},
	             {PP_ATTR_model_pos, {"learned", "rope"}}};
	uint8_t kind;
	if (!pp_field_choice(resolver, resolver->sections[PP_SECTION_MODEL], PP_ATTR_model_kind, &kind))
		return false;
	*out = pp_datum_bool(kind == 0);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (table[i].attribute == attribute)
			*out = pp_datum_name(pp_intern_z(resolver->strings, table[i].names[kind]));
	return true;
}

/* model.seq and train.seq: each from the other; one of them is needed. */
static bool derive_seq(struct pp_resolver *resolver, bool of_train, struct pp_datum *out)
{
	if (resolver->custom_only)
		return give(1, out);
	struct pp_section *model = resolver->sections[PP_SECTION_MODEL], *train = resolver->sections[PP_SECTION_TRAIN];
	if (of_train && pp_field_given(model, PP_ATTR_model_seq))
		return copy_field(resolver, PP_SECTION_MODEL, PP_ATTR_model_seq, out);
	if (!of_train)
		return copy_field(resolver, PP_SECTION_TRAIN, PP_ATTR_train_seq, out);
	if (train->stmt)
		pp_report_missing(resolver, train, PP_ATTR_train_seq, "32");
	return false;
}

/* As many replicas as fit the cluster: nodes * gpus / (tp * pp * cp), rounded down where GPUs may idle. */
static bool derive_dp(struct pp_resolver *resolver, struct pp_section *parallel, struct pp_datum *out)
{
	uint64_t nodes, gpus, tp, pp, cp, needed;
	const char *idle;
	struct pp_section *cluster = resolver->sections[PP_SECTION_CLUSTER];
	if (!cluster->stmt && !pp_field_given(cluster, PP_ATTR_cluster_gpus))
		return give(1, out);
	if (!pp_field_whole(resolver, cluster, PP_ATTR_cluster_nodes, &nodes) ||
	    !pp_field_whole(resolver, cluster, PP_ATTR_cluster_gpus, &gpus) ||
	    !pp_field_whole(resolver, parallel, PP_ATTR_parallel_tp, &tp) ||
	    !pp_field_whole(resolver, parallel, PP_ATTR_parallel_pp, &pp) ||
	    !pp_field_whole(resolver, parallel, PP_ATTR_parallel_cp, &cp) ||
	    !pp_field_name(resolver, parallel, PP_ATTR_parallel_idle, &idle))
		return false;
	uint64_t devices = nodes * gpus;
	if (__builtin_mul_overflow(tp * pp, cp, &needed))
		needed = UINT64_MAX;
	bool spare = strcmp(idle, "allow") == 0;
	if (devices >= needed && (devices % needed == 0 || spare))
		return give(devices / needed, out);
	bool tp_fits = devices % tp == 0;
	struct pp_message *message = pp_error(
	    resolver->diag, "E0304", pp_grid_span(parallel, tp_fits ? PP_ATTR_parallel_pp : PP_ATTR_parallel_tp),
	    "tp·pp = %llu·%llu = %llu but the cluster has %llu GPU%s", (unsigned long long)tp, (unsigned long long)pp,
	    (unsigned long long)needed, (unsigned long long)devices, devices == 1 ? "" : "s");
	pp_label(message, pp_field_span(cluster, PP_ATTR_cluster_gpus), "%llu node%s of %llu GPUs",
	         (unsigned long long)nodes, nodes == 1 ? "" : "s", (unsigned long long)gpus);
	const char *fitting = pp_arena_printf(resolver->arena, "use a %s that divides %llu", tp_fits ? "pp" : "tp",
	                                      (unsigned long long)(tp_fits ? devices / tp : devices));
	if (devices > needed)
		pp_help(message, "set `idle = allow` in `parallel` to leave %llu unused, or %s",
		        (unsigned long long)(devices % needed), fitting);
	else if (tp_fits)
		pp_help(message, "use pp = %llu, or give the cluster %llu GPUs", (unsigned long long)(devices / tp),
		        (unsigned long long)needed);
	else
		pp_help(message, "%s, or give the cluster %llu GPUs", fitting, (unsigned long long)needed);
	return false;
}

/* ---- batch: global_batch = microbatch * microbatches * dp ------------------------------------ */

struct batch {
	uint64_t global, microbatch, microbatches, dp;
};

static void report_batch(struct pp_resolver *resolver, const struct batch *batch, bool microbatch)
{
	struct pp_section *train = resolver->sections[PP_SECTION_TRAIN];
	uint64_t divisor = (microbatch ? batch->microbatches : batch->microbatch) * batch->dp,
	         rest = batch->global % divisor;
	struct pp_message *message =
	    pp_error(resolver->diag, "E0702", pp_field_span(train, PP_ATTR_train_global_batch),
	             "global_batch %llu / (%s %llu · dp %llu) = %.6g %s (remainder %llu)",
	             (unsigned long long)batch->global, microbatch ? "microbatches" : "microbatch",
	             (unsigned long long)(microbatch ? batch->microbatches : batch->microbatch),
	             (unsigned long long)batch->dp, (double)batch->global / (double)divisor,
	             microbatch ? "samples per microbatch" : "microbatches", (unsigned long long)rest);
	if (microbatch)
		pp_label(message, pp_field_span(train, PP_ATTR_train_microbatches), "does not divide %llu",
		         (unsigned long long)batch->global);
	uint64_t seq;
	bool known = pp_field_given(train, PP_ATTR_train_seq) ||
	             pp_field_given(resolver->sections[PP_SECTION_MODEL], PP_ATTR_model_seq);
	if (!microbatch && known && batch->dp > 1 && pp_field_whole(resolver, train, PP_ATTR_train_seq, &seq))
		pp_note(message,
		        "one microbatch on each of %llu replicas is %llu samples, %llu tokens; %llu tokens are left over",
		        (unsigned long long)batch->dp, (unsigned long long)divisor, (unsigned long long)pp_times(divisor, seq),
		        (unsigned long long)pp_times(rest, seq));
	uint64_t below = batch->global - rest;
	if (below > 0)
		pp_help(message, "use global_batch = %llu or %llu", (unsigned long long)below,
		        (unsigned long long)(below + divisor));
	else
		pp_help(message, "use global_batch = %llu", (unsigned long long)divisor);
}

/* Without a valid dp the division is done for dp = 1: its own error is reported. */
static bool read_batch(struct pp_resolver *resolver, struct batch *batch, bool microbatch)
{
	struct pp_section *train = resolver->sections[PP_SECTION_TRAIN];
	if (!pp_field_whole(resolver, resolver->sections[PP_SECTION_PARALLEL], PP_ATTR_parallel_dp, &batch->dp))
		return false;
	if (!pp_field_whole(resolver, train, PP_ATTR_train_global_batch, &batch->global))
		return false;
	return microbatch ? pp_field_whole(resolver, train, PP_ATTR_train_microbatches, &batch->microbatches)
	                  : pp_field_whole(resolver, train, PP_ATTR_train_microbatch, &batch->microbatch);
}

/* 1, or global_batch / (microbatches * dp) when both are given */
static bool derive_microbatch(struct pp_resolver *resolver, struct pp_section *train, struct pp_datum *out)
{
	struct batch batch;
	bool counted = pp_field_given(train, PP_ATTR_train_microbatches) || resolver->imported;
	if (!pp_field_given(train, PP_ATTR_train_global_batch) || !counted)
		return give(1, out);
	if (!read_batch(resolver, &batch, true))
		return false;
	if (batch.global % (batch.microbatches * batch.dp) == 0 && batch.global / (batch.microbatches * batch.dp) <= 65536)
		return give(batch.global / (batch.microbatches * batch.dp), out);
	report_batch(resolver, &batch, true);
	return false;
}

/* global_batch / (microbatch * dp) */
static bool derive_microbatches(struct pp_resolver *resolver, struct pp_section *train, struct pp_datum *out)
{
	struct batch batch;
	if (!pp_field_given(train, PP_ATTR_train_global_batch)) {
		if (train->stmt)
			pp_report_missing(resolver, train, PP_ATTR_train_microbatches, "8");
		return false;
	}
	if (!read_batch(resolver, &batch, false))
		return false;
	uint64_t share = batch.global / (batch.microbatch * batch.dp);
	if (batch.global % (batch.microbatch * batch.dp) != 0) {
		report_batch(resolver, &batch, false);
		return false;
	}
	if (share <= INT32_MAX)
		return give(share, out);
	pp_error(resolver->diag, "E0106", pp_field_span(train, PP_ATTR_train_global_batch),
	         "%llu microbatches are outside 1..2147483647", (unsigned long long)share);
	return false;
}

/* microbatch * microbatches * dp: each is bounded so that 64 bits hold the product */
static bool derive_global_batch(struct pp_resolver *resolver, struct pp_section *train, struct pp_datum *out)
{
	uint64_t microbatch, microbatches, dp, product;
	bool ok = pp_field_whole(resolver, train, PP_ATTR_train_microbatch, &microbatch);
	ok &= pp_field_whole(resolver, train, PP_ATTR_train_microbatches, &microbatches);
	ok &= pp_field_whole(resolver, resolver->sections[PP_SECTION_PARALLEL], PP_ATTR_parallel_dp, &dp);
	if (!ok)
		return false;
	if (!__builtin_mul_overflow(microbatch * microbatches, dp, &product) && product <= INT64_MAX)
		return give(product, out);
	pp_error(resolver->diag, "E0204", pp_field_span(train, PP_ATTR_train_microbatches),
	         "microbatch · microbatches · dp is too large");
	return false;
}

/* ---- run and devices ------------------------------------------------------------------------- */

static bool derive_tokens(struct pp_resolver *resolver, struct pp_datum *out)
{
	uint64_t vocab;
	if (resolver->custom_only || !model_whole(resolver, PP_ATTR_model_vocab, &vocab))
		return false;
	*out = pp_datum_name(vocab <= 256 ? "byte" : vocab <= 65536 ? "u16" : "u32");
	return true;
}

/* Needed to train; a spec without data is planned and not run. */
static bool derive_run(struct pp_resolver *resolver, struct pp_section *run, enum pp_attribute attribute, bool *absent)
{
	*absent = !pp_field_given(run, PP_ATTR_run_data);
	if (!*absent)
		pp_report_missing(resolver, run, attribute, attribute == PP_ATTR_run_steps ? "20" : "1e-3");
	return false;
}

static bool flops_described(const struct pp_resolver *resolver)
{
	const struct pp_section *flops = resolver->sections[PP_SECTION_FLOPS];
	for (size_t i = 0; i < flops->count; i++)
		if (flops->fields[i].expr)
			return true;
	return false;
}

/* 100 GFLOPS for a CPU core; a device that gives speeds gives all it has. */
static bool derive_flops(struct pp_resolver *resolver, struct pp_datum *out, bool *absent)
{
	*absent = flops_described(resolver);
	*out = pp_datum_number(pp_rational_whole(100000000000), PP_SPEED);
	return !*absent;
}

static bool derive_bandwidth(struct pp_resolver *resolver, struct pp_datum *out)
{
	if (flops_described(resolver))
		*out = pp_datum_name(pp_intern_z(resolver->strings, "inf"));
	else
		*out = pp_datum_number(pp_rational_whole(10000000000), PP_RATE);
	return true;
}

/* bf16 runs on GPUs only: as many as the smallest that is supported has, an A100. */
static bool derive_sms(struct pp_resolver *resolver, struct pp_datum *out)
{
	enum { A100 = 108 };
	uint8_t dtype;
	return pp_field_choice(resolver, resolver->sections[PP_SECTION_TRAIN], PP_ATTR_train_dtype, &dtype) &&
	       give(dtype == 1 ? A100 : 0, out);
}

/* sms / 4 */
static bool derive_post_sms(struct pp_resolver *resolver, struct pp_section *gpu, struct pp_datum *out)
{
	uint64_t sms;
	return pp_field_whole(resolver, gpu, PP_ATTR_gpu_sms, &sms) && give(sms / 4, out);
}

bool pp_derive_from_policy(struct pp_resolver *resolver, enum pp_attribute attribute, struct pp_datum *out)
{
	const char *name = resolver->out->policy;
	const struct pp_policy *policy = name ? pp_policy_find(name) : NULL;
	const struct pp_place_hint *hint = &resolver->options->hint;
	if (policy && strcmp(name, "search") == 0) {
		const struct pp_policy *start = pp_schedule_start(resolver);
		policy = start && (start->vpp || start->place == PP_PLACE_V) ? start : policy;
	}
	if (policy && strcmp(policy->name, "search") == 0 && hint->place) {
		if (attribute == PP_ATTR_parallel_vpp)
			return give(hint->vpp, out);
		*out = pp_datum_name(pp_intern_z(resolver->strings, hint->place));
		return attribute == PP_ATTR_stages_place;
	}
	if (attribute == PP_ATTR_parallel_vpp && policy && policy->vpp)
		return give(policy->vpp, out);
	if (attribute != PP_ATTR_stages_place || !policy || policy->place == PP_PLACE_LIST ||
	    policy->place == PP_PLACE_LOOP)
		return false;
	*out = pp_datum_name(pp_intern_z(resolver->strings, pp_place_name[policy->place]));
	return true;
}

bool pp_derive(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
               struct pp_datum *out, bool *absent)
{
	*absent = false;
	if (attribute == PP_ATTR_model_kv_heads)
		return copy_field(resolver, PP_SECTION_MODEL, PP_ATTR_model_heads, out);
	if (attribute == PP_ATTR_model_head_dim)
		return derive_head_dim(resolver, out);
	if (attribute == PP_ATTR_model_ffn)
		return derive_ffn(resolver, out);
	if (attribute == PP_ATTR_model_norm || attribute == PP_ATTR_model_act || attribute == PP_ATTR_model_pos ||
	    attribute == PP_ATTR_model_bias)
		return derive_by_kind(resolver, attribute, out);
	if (attribute == PP_ATTR_model_seq || attribute == PP_ATTR_train_seq)
		return derive_seq(resolver, attribute == PP_ATTR_train_seq, out);
	if (attribute == PP_ATTR_parallel_dp)
		return derive_dp(resolver, section, out);
	if (attribute == PP_ATTR_train_microbatch)
		return derive_microbatch(resolver, section, out);
	if (attribute == PP_ATTR_train_microbatches)
		return derive_microbatches(resolver, section, out);
	if (attribute == PP_ATTR_train_global_batch)
		return derive_global_batch(resolver, section, out);
	if (attribute == PP_ATTR_run_tokens)
		return derive_tokens(resolver, out);
	if (attribute == PP_ATTR_run_steps || attribute == PP_ATTR_run_lr)
		return derive_run(resolver, section, attribute, absent);
	if (attribute == PP_ATTR_gpu_bandwidth)
		return derive_bandwidth(resolver, out);
	if (attribute == PP_ATTR_gpu_sms)
		return derive_sms(resolver, out);
	if (attribute == PP_ATTR_gpu_post_sms)
		return derive_post_sms(resolver, section, out);
	if (attribute == PP_ATTR_flops_fp32 || attribute == PP_ATTR_flops_bf16)
		return derive_flops(resolver, out, absent);
	*absent = true; /* init_std: worked out with the model */
	return false;
}
