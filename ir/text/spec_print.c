/* Canonical text of the resolved spec: one fact a line, every value in base units (bytes, ns, bytes/s, flop), layers in
 * order of execution. The same spec gives the same bytes everywhere. */
#include "ir/spec.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *const place_name[] = {"loop", "v", "linear", "list"};
static const char *const balance_name[] = {"time", "memory", "params", "layers", "even"};
static const char *const kind_name[PP_LAYER_KIND_COUNT] = {"embedding", "block", "norm", "head", "custom"};
static const char *const act_name[] = {"gelu", "gelu_tanh", "swiglu"};

/* The shortest digits that read back to the same double. */
static void print_real(double value, FILE *out)
{
	char text[40];
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	fputs(text, out);
}

static void print_time(const char *name, uint64_t time, FILE *out)
{
	if (time == PP_TIME_UNSET)
		fprintf(out, " %s derived", name);
	else
		fprintf(out, " %s %" PRIu64, name, time);
}

static void print_custom(const struct pp_custom *custom, FILE *out)
{
	fprintf(out, " params %" PRIu64 " flops %" PRIu64 " activation %" PRIu64 " output %" PRIu64, custom->params,
	        custom->flops, custom->activation, custom->output);
	print_time("time_f", custom->time_f, out);
	print_time("time_i", custom->time_i, out);
	print_time("time_w", custom->time_w, out);
}

static void print_recompute(const struct pp_layer *layer, FILE *out)
{
	static const char *const parts[] = {"norm", "act", "attention"};
	if (layer->recompute)
		fputs(layer->recompute == PP_RECOMPUTE_FULL ? " recompute full" : " recompute", out);
	for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (layer->recompute != PP_RECOMPUTE_FULL && layer->recompute >> i & 1)
			fprintf(out, " %s", parts[i]);
}

static void print_layer(const struct pp_layer *layer, FILE *out)
{
	fprintf(out, "  %s", layer->name);
	if (layer->indexed)
		fprintf(out, "[%" PRIu32 "]", layer->index);
	fprintf(out, " : %s", kind_name[layer->kind]);
	switch ((enum pp_layer_kind)layer->kind) {
	case PP_LAYER_EMBEDDING:
		fprintf(out, " hidden %" PRIu32 " vocab %" PRIu32 " padded %" PRIu32 " seq %" PRIu32, layer->hidden,
		        layer->vocab, layer->padded_vocab, layer->seq);
		if (layer->rope_theta)
			fputs(" no positions", out);
		break;
	case PP_LAYER_BLOCK:
		fprintf(out,
		        " hidden %" PRIu32 " heads %" PRIu32 " kv_heads %" PRIu32 " head_dim %" PRIu32 " ffn %" PRIu32
		        " seq %" PRIu32 " window %" PRIu32 " act %s norm %s%s",
		        layer->hidden, layer->heads, layer->kv_heads, layer->head_dim, layer->ffn, layer->seq, layer->window,
		        act_name[layer->act], layer->rms ? "rmsnorm" : "layernorm", layer->bias ? " bias" : "");
		if (layer->rope_theta)
			fprintf(out, " rope %" PRIu64, layer->rope_theta);
		if (layer->qkv_bias)
			fputs(" qkv_bias", out);
		if (layer->qk_norm)
			fputs(" qk_norm", out);
		print_recompute(layer, out);
		break;
	case PP_LAYER_NORM:
		fprintf(out, " hidden %" PRIu32 " norm %s%s", layer->hidden, layer->rms ? "rmsnorm" : "layernorm",
		        layer->bias ? " bias" : "");
		break;
	case PP_LAYER_HEAD:
		fprintf(out, " hidden %" PRIu32 " vocab %" PRIu32 " padded %" PRIu32, layer->hidden, layer->vocab,
		        layer->padded_vocab);
		if (layer->tie != PP_NULL)
			fprintf(out, " tie %" PRIu32, layer->tie);
		break;
	case PP_LAYER_CUSTOM:
		print_custom(&layer->custom, out);
		break;
	case PP_LAYER_KIND_COUNT:
		break;
	}
	fputc('\n', out);
}

static void print_model(const struct pp_model *model, FILE *out)
{
	fprintf(out, "model %s\n", model->name);
	fprintf(out,
	        "  hidden %" PRIu32 "\n  vocab %" PRIu32 "\n  padded_vocab %" PRIu32 "\n  seq %" PRIu32
	        "\n  trains %s\n  init_std ",
	        model->hidden, model->vocab, model->padded_vocab, model->seq, model->trains ? "true" : "false");
	print_real(model->init_std, out);
	fprintf(out, "\nlayers %" PRIu32 "\n", model->layer_count);
	for (uint32_t i = 0; i < model->layer_count; i++)
		print_layer(&model->layers[i], out);
}

static void print_link(const char *name, const struct pp_link *link, FILE *out)
{
	fprintf(out, "  link %s bandwidth %" PRIu64 " latency %" PRIu64 "\n", name, link->bandwidth, link->latency);
}

static void print_cluster(const struct pp_cluster *cluster, FILE *out)
{
	const struct pp_gpu *gpu = &cluster->gpu;
	fprintf(out, "cluster %s\n  nodes %" PRIu32 "\n  gpus %" PRIu32 "\n", cluster->name, cluster->nodes, cluster->gpus);
	fprintf(out,
	        "  gpu %s memory %" PRIu64 " reserve %" PRIu64 " fp32 %" PRIu64 " bf16 %" PRIu64 " bandwidth %" PRIu64
	        " efficiency ",
	        gpu->name, gpu->memory, gpu->reserve, gpu->flops[PP_F32], gpu->flops[PP_BF16], gpu->bandwidth);
	print_real(gpu->efficiency, out);
	if (gpu->sms)
		fprintf(out, " sms %" PRIu32 " post_sms %" PRIu32, gpu->sms, gpu->post_sms);
	fputc('\n', out);
	print_link("intra", &cluster->intra, out);
	print_link("inter", &cluster->inter, out);
}

static void print_parallel(const struct pp_parallel *parallel, FILE *out)
{
	fprintf(out,
	        "parallel tp %" PRIu32 " pp %" PRIu32 " vpp %" PRIu32 " dp %" PRIu32 "\n  zero %" PRIu32
	        "\n  bucket %" PRIu64,
	        parallel->tp, parallel->pp, parallel->vpp, parallel->dp, parallel->zero, parallel->bucket);
	if (parallel->sp)
		fputs("\n  sp", out);
	fputs("\n  rank_order", out);
	for (unsigned i = 0; i < PP_AXIS_COUNT; i++)
		fprintf(out, " %s", pp_axis_name[parallel->rank_order[i]]);
	fputc('\n', out);
}

static void print_stages(const struct pp_stages_spec *stages, FILE *out)
{
	fprintf(out, "stages %" PRIu32 "\n  place %s", stages->stage_count, place_name[stages->place]);
	for (uint32_t i = 0; stages->place == PP_PLACE_LIST && i < stages->stage_count; i++)
		fprintf(out, " %" PRIu32, stages->place_list[i]);
	if (stages->split) {
		fputs("\n  split", out);
		for (uint32_t i = 0; i <= stages->stage_count; i++)
			fprintf(out, " %" PRIu32, stages->split[i]);
		fputc('\n', out);
		return;
	}
	fprintf(out, "\n  balance %s\n  min_layers %" PRIu32 "\n  max_layers ", balance_name[stages->balance],
	        stages->min_layers);
	if (stages->max_layers)
		fprintf(out, "%" PRIu32 "\n", stages->max_layers);
	else
		fputs("none\n", out);
}

static void print_named_real(const char *name, double value, FILE *out)
{
	fprintf(out, " %s ", name);
	print_real(value, out);
}

static void print_train(const struct pp_spec *spec, FILE *out)
{
	const struct pp_train *train = &spec->train;
	fprintf(out,
	        "train\n  microbatch %" PRIu32 "\n  microbatches %" PRIu32 "\n  global_batch %" PRIu64 "\n  seq %" PRIu32
	        "\n  dtype %s\n  loss %s\n",
	        train->microbatch, spec->microbatches, (uint64_t)train->microbatch * spec->microbatches * spec->parallel.dp,
	        train->seq, pp_dtype_name[spec->dtype], pp_mean_name[train->mean]);
	fprintf(out, "  optimizer %s\n", pp_optimizer_name[train->optimizer]);
	for (uint32_t i = 0; i < train->hyper_count; i++) {
		fputs("  hyper", out);
		print_named_real("beta1", train->hypers[i].beta1, out);
		print_named_real("beta2", train->hypers[i].beta2, out);
		print_named_real("eps", train->hypers[i].eps, out);
		print_named_real("weight_decay", train->hypers[i].weight_decay, out);
		print_named_real("clip", train->hypers[i].clip, out);
		fputc('\n', out);
	}
}

static void print_evaluation(const struct pp_train *train, FILE *out)
{
	if (!train->eval_steps)
		return;
	fputs("  evaluation ", out);
	if (train->eval_path)
		fprintf(out, "\"%s\" tokens %s", train->eval_path, pp_tokens_name[train->tokens]);
	else
		fputs("tail", out);
	fprintf(out, " every %" PRIu64 " batches %" PRIu64 "\n", train->eval_every, train->eval_steps);
}

static void print_run(const struct pp_train *train, FILE *out)
{
	fprintf(out, "run\n  data %s", pp_data_name[train->data]);
	if (train->data == PP_DATA_SYNTHETIC)
		fprintf(out, " seed %" PRIu64, train->data_seed);
	if (train->data == PP_DATA_FILE)
		fprintf(out, " \"%s\" tokens %s", train->data_path, pp_tokens_name[train->tokens]);
	fprintf(out, "\n  eval_tail");
	print_named_real("share", train->eval_tail, out);
	fprintf(out, "\n  steps %" PRIu64 "\n  lr %s", train->steps, pp_lr_name[train->lr_kind]);
	print_named_real("peak", train->lr_peak, out);
	print_named_real("floor", train->lr_floor, out);
	fprintf(out, " warmup %" PRIu64 "\n  seed %" PRIu64 "\n  log_every %" PRIu64 "\n", train->lr_warmup, train->seed,
	        train->log_every);
	print_evaluation(train, out);
	if (train->checkpoint_every)
		fprintf(out, "  checkpoint every %" PRIu64 " dir \"%s\" keep %" PRIu64 "\n", train->checkpoint_every,
		        train->checkpoint_dir, train->checkpoint_keep);
}

/* What a search goes by. */
static void print_seek(const struct pp_seek *seek, FILE *out)
{
	static const char *const objective_name[] = {"time", "span", "memory"};
	fprintf(out, "  objective %s\n  timeout %" PRIu64 "\n  seed %" PRIu64 "\n", objective_name[seek->objective],
	        seek->timeout, seek->seed);
	if (seek->effort)
		fprintf(out, "  effort %" PRIu64 "\n", seek->effort);
	if (seek->start)
		fprintf(out, "  start %s\n", seek->start);
}

void pp_spec_print(const struct pp_spec *spec, FILE *out)
{
	print_model(&spec->model, out);
	print_cluster(&spec->cluster, out);
	print_parallel(&spec->parallel, out);
	print_stages(&spec->stages, out);
	fprintf(out, "schedule %s\n", spec->schedule_name);
	if (spec->schedule_memory)
		fprintf(out, "  memory %" PRIu64 "\n", spec->schedule_memory);
	if (spec->seek.used)
		print_seek(&spec->seek, out);
	if (spec->group)
		fprintf(out, "  group %" PRIu32 "\n", spec->group);
	print_train(spec, out);
	print_run(&spec->train, out);
}
