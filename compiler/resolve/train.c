/* One step (batch, number formats, optimizer) and the run (data, steps, learning rate). */
#include "resolver.h"

#include <math.h>
#include <string.h>

/* ---- batch ----------------------------------------------------------------------------------- */

/* All three given: they must agree. */
static void check_batch(struct pp_resolver *resolver, struct pp_section *train, uint64_t microbatch,
                        uint64_t microbatches)
{
	uint64_t global, dp, product;
	bool counted = pp_field_given(train, PP_ATTR_train_microbatches) || resolver->imported;
	if (!pp_field_given(train, PP_ATTR_train_global_batch) || !counted ||
	    !pp_field_given(train, PP_ATTR_train_microbatch))
		return;
	if (!pp_field_whole(resolver, train, PP_ATTR_train_global_batch, &global) ||
	    !pp_field_whole(resolver, resolver->sections[PP_SECTION_PARALLEL], PP_ATTR_parallel_dp, &dp))
		return;
	if (__builtin_mul_overflow(microbatch * microbatches, dp, &product))
		product = UINT64_MAX;
	if (product == global)
		return;
	struct pp_message *message = pp_error(resolver->diag, "E0701", pp_field_span(train, PP_ATTR_train_global_batch),
	                                      "global_batch %llu ≠ %llu · %llu · %llu = %llu", (unsigned long long)global,
	                                      (unsigned long long)microbatch, (unsigned long long)microbatches,
	                                      (unsigned long long)dp, (unsigned long long)product);
	pp_label(message, pp_field_span(train, PP_ATTR_train_microbatch), "microbatch");
	pp_label(message, pp_field_span(train, PP_ATTR_train_microbatches), "microbatches");
	pp_help(message, "drop one of the three, or use global_batch = %llu", (unsigned long long)product);
}

static void read_batch(struct pp_resolver *resolver, struct pp_section *train)
{
	struct pp_spec *spec = &resolver->out->spec;
	uint64_t microbatch, microbatches, seq;
	bool ok = pp_field_whole(resolver, train, PP_ATTR_train_microbatch, &microbatch);
	ok &= pp_field_whole(resolver, train, PP_ATTR_train_microbatches, &microbatches);
	ok &= pp_field_whole(resolver, train, PP_ATTR_train_seq, &seq);
	if (!ok)
		return;
	check_batch(resolver, train, microbatch, microbatches);
	spec->train.microbatch = (uint32_t)microbatch;
	spec->microbatches = (uint32_t)microbatches;
	spec->train.seq = (uint32_t)seq;
	spec->train.vocab = spec->model.vocab;
	struct pp_section *model = resolver->sections[PP_SECTION_MODEL];
	if (!spec->model.trains || spec->model.seq == spec->train.seq)
		return;
	struct pp_message *message = pp_error(resolver->diag, "E0704", pp_field_span(train, PP_ATTR_train_seq),
	                                      "train.seq %u is not model.seq %u", spec->train.seq, spec->model.seq);
	pp_label(message, pp_field_span(model, PP_ATTR_model_seq), "model.seq");
	pp_help(message, "give only one of the two");
}

/* ---- optimizer ------------------------------------------------------------------------------- */

static void read_optimizer(struct pp_resolver *resolver, struct pp_section *train, struct pp_hyper *hyper)
{
	struct pp_train *out = &resolver->out->spec.train;
	const struct pp_field *field = pp_field_read(resolver, train, PP_ATTR_train_optimizer);
	if (!field || !pp_field_choice(resolver, train, PP_ATTR_train_optimizer, &out->optimizer))
		return;
	struct pp_section *arguments = pp_section_arguments(resolver, field);
	if (!arguments)
		return;
	pp_section_read_all(resolver, arguments);
	if (arguments->block != PP_BLOCK_adamw)
		return;
	pp_field_real(resolver, arguments, PP_ATTR_adamw_beta1, &hyper->beta1);
	pp_field_real(resolver, arguments, PP_ATTR_adamw_beta2, &hyper->beta2);
	pp_field_real(resolver, arguments, PP_ATTR_adamw_eps, &hyper->eps);
}

/* What a model of custom layers lacks, and so what would be ignored beside it. */
static void refuse_for_custom(struct pp_resolver *resolver, const struct pp_section *section)
{
	static const struct {
		uint16_t attribute;
		const char *lacks;
	} refused[] = {
	    {PP_ATTR_train_seq, "tokens"},        {PP_ATTR_train_optimizer, "weights"},
	    {PP_ATTR_train_loss, "loss"},         {PP_ATTR_run_data, "loss"},
	    {PP_ATTR_run_eval_data, "loss"},      {PP_ATTR_run_lr, "weights"},
	    {PP_ATTR_run_clip, "weights"},        {PP_ATTR_run_weight_decay, "weights"},
	    {PP_ATTR_run_init_std, "weights"},    {PP_ATTR_train_recompute, "blocks"},
	    {PP_ATTR_run_checkpoint, "weights"},  {PP_ATTR_run_eval_every, "loss"},
	    {PP_ATTR_run_eval_steps, "loss"},     {PP_ATTR_parallel_sp, "tokens"},
	    {PP_ATTR_parallel_bucket, "weights"},
	};
	for (size_t i = 0; resolver->custom_only && i < sizeof refused / sizeof refused[0]; i++) {
		enum pp_attribute attribute = (enum pp_attribute)refused[i].attribute;
		if (attribute < section->first || attribute >= section->first + section->count ||
		    !pp_field_given(section, attribute))
			continue;
		pp_help(pp_error(resolver->diag, "E0114", pp_field_of(section, attribute)->name_span,
		                 "`%s` has no effect: a model of custom layers has no %s", pp_attribute_table[attribute].name,
		                 refused[i].lacks),
		        "remove it");
	}
}

void pp_resolve_train(struct pp_resolver *resolver)
{
	struct pp_section *train = resolver->sections[PP_SECTION_TRAIN], *run = resolver->sections[PP_SECTION_RUN];
	struct pp_spec *spec = &resolver->out->spec;
	struct pp_hyper hyper = {0};
	uint8_t dtype, mean;
	if (!train->stmt)
		return;
	pp_section_read_all(resolver, train);
	refuse_for_custom(resolver, resolver->sections[PP_SECTION_PARALLEL]);
	refuse_for_custom(resolver, train);
	read_batch(resolver, train);
	if (pp_field_choice(resolver, train, PP_ATTR_train_dtype, &dtype))
		spec->dtype = dtype == 0 ? PP_F32 : PP_BF16;
	if (pp_field_choice(resolver, train, PP_ATTR_train_loss, &mean))
		spec->train.mean = mean;
	read_optimizer(resolver, train, &hyper);
	pp_resolve_recompute(resolver);
	pp_field_real(resolver, run, PP_ATTR_run_weight_decay, &hyper.weight_decay);
	pp_field_real(resolver, run, PP_ATTR_run_clip, &hyper.clip);
	spec->train.hyper_count = 2;
	spec->train.hypers = PP_NEW_ARRAY(resolver->arena, struct pp_hyper, 2);
	spec->train.hypers[0] = hyper;
	hyper.weight_decay = 0;
	spec->train.hypers[1] = hyper;
}

/* ---- run ------------------------------------------------------------------------------------- */

static void read_rate(struct pp_resolver *resolver, struct pp_section *run)
{
	struct pp_train *train = &resolver->out->spec.train;
	const struct pp_field *field = pp_field_read(resolver, run, PP_ATTR_run_lr);
	if (!field || field->state != PP_READY)
		return;
	train->lr_kind = PP_LR_CONSTANT;
	struct pp_section *arguments = pp_section_arguments(resolver, field);
	if (!arguments) {
		train->lr_peak = train->lr_floor = pp_datum_to_real(&field->value);
		return;
	}
	bool cosine = arguments->block == PP_BLOCK_cosine;
	pp_section_read_all(resolver, arguments);
	pp_field_real(resolver, arguments, cosine ? PP_ATTR_cosine_peak : PP_ATTR_constant_peak, &train->lr_peak);
	pp_field_whole(resolver, arguments, cosine ? PP_ATTR_cosine_warmup : PP_ATTR_constant_warmup, &train->lr_warmup);
	train->lr_floor = train->lr_peak;
	if (!cosine)
		return;
	train->lr_kind = PP_LR_COSINE;
	if (!pp_field_real(resolver, arguments, PP_ATTR_cosine_floor, &train->lr_floor) ||
	    train->lr_floor <= train->lr_peak)
		return;
	struct pp_message *message = pp_error(resolver->diag, "E0106", pp_field_span(arguments, PP_ATTR_cosine_floor),
	                                      "floor %g is above peak %g", train->lr_floor, train->lr_peak);
	pp_label(message, pp_field_span(arguments, PP_ATTR_cosine_peak), "peak");
	pp_help(message, "swap them");
}

static void check_warmup(struct pp_resolver *resolver, struct pp_section *run)
{
	const struct pp_train *train = &resolver->out->spec.train;
	if (train->lr_warmup <= train->steps || train->steps == 0)
		return;
	struct pp_message *message = pp_warning(resolver->diag, "W0706", pp_field_span(run, PP_ATTR_run_lr),
	                                        "warmup %llu is longer than the run of %llu steps",
	                                        (unsigned long long)train->lr_warmup, (unsigned long long)train->steps);
	pp_label(message, pp_field_span(run, PP_ATTR_run_steps), "steps");
	pp_help(message, "use a shorter warmup or more steps");
}

static const char *read_file_name(struct pp_resolver *resolver, const struct pp_field *field, const char *attribute,
                                  const char *instead)
{
	const char *name = field->value.text;
	if (!*name)
		pp_help(pp_error(resolver->diag, "E0207", field->expr->span, "`%s` is an empty name", attribute),
		        "name a file, or use `%s`", instead);
	else if (strchr(name, '*'))
		pp_help(pp_not_yet(resolver, field->expr->span, "data from several files"), "name one file");
	return name;
}

static void read_data(struct pp_resolver *resolver, struct pp_section *run)
{
	struct pp_train *train = &resolver->out->spec.train;
	const struct pp_field *field = pp_field_read(resolver, run, PP_ATTR_run_data);
	if (!field || field->state != PP_READY)
		return;
	if (resolver->custom_only)
		return;
	if (field->value.kind == PP_DATUM_STRING) {
		train->data = PP_DATA_FILE;
		train->data_path = read_file_name(resolver, field, "data", "synthetic(seed = 1)");
		pp_field_choice(resolver, run, PP_ATTR_run_tokens, &train->tokens);
		return;
	}
	train->data = PP_DATA_SYNTHETIC;
	struct pp_section *arguments = pp_section_arguments(resolver, field);
	if (arguments) {
		pp_section_read_all(resolver, arguments);
		pp_field_whole(resolver, arguments, PP_ATTR_synthetic_seed, &train->data_seed);
	}
}

/* Ids must fit the format: byte 256, u16 65536. */
static void check_tokens(struct pp_resolver *resolver, struct pp_section *run)
{
	const struct pp_train *train = &resolver->out->spec.train;
	static const uint64_t most[PP_TOKENS_COUNT] = {256, 65536, UINT32_MAX};
	if ((train->data != PP_DATA_FILE && !train->eval_path) || !pp_field_given(run, PP_ATTR_run_tokens) ||
	    train->vocab <= most[train->tokens])
		return;
	const struct pp_field *tokens = pp_field_read(resolver, run, PP_ATTR_run_tokens);
	if (!tokens || tokens->state != PP_READY)
		return;
	pp_warning(resolver->diag, "W0705", pp_field_span(run, PP_ATTR_run_tokens),
	           "tokens of a %s file reach only %llu of the %u in `vocab`", pp_tokens_name[train->tokens],
	           (unsigned long long)most[train->tokens], train->vocab);
}

/* `eval_every` and `eval_steps` say nothing where nothing is evaluated. */
static void refuse_without_data(struct pp_resolver *resolver, const struct pp_section *run)
{
	static const uint16_t lonely[] = {PP_ATTR_run_eval_every, PP_ATTR_run_eval_steps};
	for (size_t i = 0; i < sizeof lonely / sizeof lonely[0]; i++) {
		enum pp_attribute attribute = (enum pp_attribute)lonely[i];
		if (pp_field_given(run, attribute))
			pp_help(pp_error(resolver->diag, "E0114", pp_field_of(run, attribute)->name_span,
			                 "`%s` has no effect without `eval_data`", pp_attribute_table[attribute].name),
			        "add `eval_data = tail(0.1)` or a file, or remove it");
	}
}

static void read_evaluation(struct pp_resolver *resolver, struct pp_section *run)
{
	struct pp_train *train = &resolver->out->spec.train;
	if (resolver->custom_only)
		return;
	if (!pp_field_given(run, PP_ATTR_run_eval_data)) {
		refuse_without_data(resolver, run);
		return;
	}
	const struct pp_field *field = pp_field_read(resolver, run, PP_ATTR_run_eval_data);
	if (!field || field->state != PP_READY)
		return;
	if (field->value.kind == PP_DATUM_STRING) {
		train->eval_path = read_file_name(resolver, field, "eval_data", "tail(0.1)");
		pp_field_choice(resolver, run, PP_ATTR_run_tokens, &train->tokens);
	} else {
		struct pp_section *arguments = pp_section_arguments(resolver, field);
		if (!arguments)
			return;
		pp_section_read_all(resolver, arguments);
		pp_field_real(resolver, arguments, PP_ATTR_tail_share, &train->eval_tail);
	}
	if (pp_field_given(run, PP_ATTR_run_eval_every))
		pp_field_whole(resolver, run, PP_ATTR_run_eval_every, &train->eval_every);
	pp_field_whole(resolver, run, PP_ATTR_run_eval_steps, &train->eval_steps);
}

static void read_checkpoint(struct pp_resolver *resolver, struct pp_section *run)
{
	struct pp_train *train = &resolver->out->spec.train;
	const struct pp_field *field = pp_field_read(resolver, run, PP_ATTR_run_checkpoint);
	struct pp_section *arguments = field && field->state == PP_READY ? pp_section_arguments(resolver, field) : NULL;
	if (!arguments)
		return;
	if (resolver->custom_only)
		return;
	pp_section_read_all(resolver, arguments);
	pp_field_whole(resolver, arguments, PP_ATTR_every_steps, &train->checkpoint_every);
	pp_field_whole(resolver, arguments, PP_ATTR_every_keep, &train->checkpoint_keep);
	train->checkpoint_dir = "checkpoints";
	if (pp_field_given(arguments, PP_ATTR_every_dir))
		pp_field_name(resolver, arguments, PP_ATTR_every_dir, &train->checkpoint_dir);
	if (!*train->checkpoint_dir)
		pp_help(pp_error(resolver->diag, "E0207", field->expr->span, "`dir` is an empty name"), "name a folder");
}

void pp_resolve_run(struct pp_resolver *resolver)
{
	struct pp_section *run = resolver->sections[PP_SECTION_RUN];
	struct pp_spec *spec = &resolver->out->spec;
	struct pp_train *train = &spec->train;
	pp_section_read_all(resolver, run);
	refuse_for_custom(resolver, run);
	read_data(resolver, run);
	read_evaluation(resolver, run);
	if (pp_field_whole(resolver, run, PP_ATTR_run_steps, &train->steps) && train->steps == 0)
		train->steps = 1; /* not given: nothing to train on */
	pp_field_whole(resolver, run, PP_ATTR_run_seed, &train->seed);
	pp_field_whole(resolver, run, PP_ATTR_run_log_every, &train->log_every);
	read_checkpoint(resolver, run);
	read_rate(resolver, run);
	check_warmup(resolver, run);
	check_tokens(resolver, run);
	if (!pp_field_given(run, PP_ATTR_run_init_std))
		spec->model.init_std = spec->model.hidden ? sqrt(2.0 / (5.0 * spec->model.hidden)) : 0.0;
	else
		pp_field_real(resolver, run, PP_ATTR_run_init_std, &spec->model.init_std);
}
