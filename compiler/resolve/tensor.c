/* What tensor parallelism cuts: heads, key and value heads, the feed-forward width, with sequence parallelism the
 * tokens of a sample, and nodes.
 *
 * requires: the model, the cluster and the grid resolved, as far as they could be.
 * ensures:  tp divides the heads (E0301), and the key and value heads or is a multiple of them with `kv_replicate`
 *           (E0303), ffn (E0317) and, with sp, seq (E0318); a tp group stays within a node unless `tp_across_nodes`
 *           (E0306). */
#include "resolver.h"

#include <string.h>

enum { MOST_TP = 65536, MOST_SHOWN = 8 };

/* One cause of trouble: the first block, or the embedding, that shows it. */
struct cut {
	const struct pp_layer *layer;
	uint32_t tp;
	bool sp, replicate;
};

static bool heads_fit(const struct cut *cut, uint32_t tp)
{
	return cut->layer->heads % tp == 0;
}

static bool kv_heads_fit(const struct cut *cut, uint32_t tp)
{
	uint32_t kv_heads = cut->layer->kv_heads;
	return kv_heads % tp == 0 || (cut->replicate && tp % kv_heads == 0);
}

static bool ffn_fits(const struct cut *cut, uint32_t tp)
{
	return cut->layer->ffn % tp == 0;
}

static bool seq_fits(const struct cut *cut, uint32_t tp)
{
	return !cut->sp || cut->layer->seq % tp == 0;
}

/* "tp = 1, 2 or 4": at most so many, those next to what was asked for. */
static const char *allowed_text(struct pp_arena *arena, const struct cut *cut)
{
	uint32_t shown[MOST_SHOWN], count = 0, above = 0;
	for (uint32_t tp = 1; tp <= MOST_TP && tp <= cut->layer->heads && above < MOST_SHOWN / 2; tp++) {
		if (!heads_fit(cut, tp) || !kv_heads_fit(cut, tp) || !ffn_fits(cut, tp) || !seq_fits(cut, tp))
			continue;
		above += tp > cut->tp;
		if (count == MOST_SHOWN)
			memmove(shown, shown + 1, --count * sizeof *shown);
		shown[count++] = tp;
	}
	const char *text = "tp = ";
	for (uint32_t i = 0; i < count; i++)
		text = pp_arena_printf(arena, "%s%u%s", text, shown[i], i + 2 < count ? ", " : i + 2 == count ? " or " : "");
	return text;
}

/* Where a size of the layer is written: in the model, or in a layer of its own. */
static struct pp_span size_span(struct pp_resolver *resolver, const struct cut *cut, enum pp_attribute attribute,
                                uint32_t value)
{
	const struct pp_section *model = resolver->sections[PP_SECTION_MODEL];
	uint64_t whole;
	bool of_model = pp_field_whole(resolver, resolver->sections[PP_SECTION_MODEL], attribute, &whole) && whole == value;
	return of_model && pp_field_given(model, attribute) ? pp_field_span(model, attribute) : cut->layer->span;
}

static struct pp_message *tp_error(struct pp_resolver *resolver, const char *code, const char *text)
{
	return pp_error(resolver->diag, code, pp_field_span(resolver->sections[PP_SECTION_PARALLEL], PP_ATTR_parallel_tp),
	                "%s", text);
}

static void report_heads(struct pp_resolver *resolver, const struct cut *cut)
{
	uint32_t heads = cut->layer->heads;
	struct pp_message *message =
	    tp_error(resolver, "E0301",
	             pp_arena_printf(resolver->arena, "%u attention heads cannot be split over tp = %u", heads, cut->tp));
	pp_label(message, size_span(resolver, cut, PP_ATTR_model_heads, heads), "%u heads", heads);
	pp_help(message, "use %s", allowed_text(resolver->arena, cut));
}

static void report_kv_heads(struct pp_resolver *resolver, const struct cut *cut)
{
	uint32_t kv_heads = cut->layer->kv_heads;
	bool fewer = kv_heads < cut->tp;
	const char *text =
	    fewer ? pp_arena_printf(resolver->arena, "%u key/value head%s < tp %u", kv_heads, kv_heads == 1 ? "" : "s",
	                            cut->tp)
	          : pp_arena_printf(resolver->arena, "%u key/value heads cannot be split over tp = %u", kv_heads, cut->tp);
	struct pp_message *message = tp_error(resolver, "E0303", text);
	pp_label(message, size_span(resolver, cut, PP_ATTR_model_kv_heads, kv_heads), "%u key/value head%s", kv_heads,
	         kv_heads == 1 ? "" : "s");
	if (fewer && cut->tp % kv_heads == 0)
		pp_help(message,
		        "set `kv_replicate = true`: %u ranks use each head, and every rank keeps the weights of all %u",
		        cut->tp / kv_heads, kv_heads);
	pp_help(message, "use %s", allowed_text(resolver->arena, cut));
}

static void report_ffn(struct pp_resolver *resolver, const struct cut *cut)
{
	struct pp_message *message =
	    tp_error(resolver, "E0317",
	             pp_arena_printf(resolver->arena, "ffn %u cannot be split over tp = %u", cut->layer->ffn, cut->tp));
	pp_label(message, size_span(resolver, cut, PP_ATTR_model_ffn, cut->layer->ffn), "%u / %u leaves %u",
	         cut->layer->ffn, cut->tp, cut->layer->ffn % cut->tp);
	pp_help(message, "use %s, or another ffn", allowed_text(resolver->arena, cut));
}

static void report_seq(struct pp_resolver *resolver, const struct cut *cut)
{
	struct pp_message *message = tp_error(
	    resolver, "E0318",
	    pp_arena_printf(resolver->arena, "%u tokens of a sample cannot be split over tp = %u, as `sp = true` does",
	                    cut->layer->seq, cut->tp));
	pp_label(message, pp_field_span(resolver->sections[PP_SECTION_PARALLEL], PP_ATTR_parallel_sp), "sp");
	pp_help(message, "use %s, `sp = false`, or another seq", allowed_text(resolver->arena, cut));
}

/* The first block that does not fit, or NULL. */
static const struct pp_layer *misfit(const struct pp_model *model, struct cut cut,
                                     bool (*fits)(const struct cut *, uint32_t))
{
	for (uint32_t i = 0; i < model->layer_count; i++) {
		cut.layer = &model->layers[i];
		if (cut.layer->kind == PP_LAYER_BLOCK && !fits(&cut, cut.tp))
			return cut.layer;
	}
	return NULL;
}

/* One trouble: the help names the degrees that have none. */
static void check_model(struct pp_resolver *resolver, struct cut cut)
{
	static const struct {
		bool (*fits)(const struct cut *, uint32_t);
		void (*report)(struct pp_resolver *, const struct cut *);
	} checks[] = {
	    {heads_fit, report_heads}, {kv_heads_fit, report_kv_heads}, {ffn_fits, report_ffn}, {seq_fits, report_seq}};
	for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
		cut.layer = misfit(&resolver->out->spec.model, cut, checks[i].fits);
		if (!cut.layer)
			continue;
		checks[i].report(resolver, &cut);
		return;
	}
}

/* ---- padding --------------------------------------------------------------------------------- */

static void warn_padding(struct pp_resolver *resolver, uint32_t tp)
{
	const struct pp_model *model = &resolver->out->spec.model;
	struct pp_section *section = resolver->sections[PP_SECTION_MODEL];
	if (model->vocab == model->padded_vocab || pp_field_given(section, PP_ATTR_model_pad_vocab))
		return;
	uint64_t usual = ((uint64_t)model->vocab + 128ull * tp - 1) / (128ull * tp) * (128ull * tp);
	struct pp_message *message =
	    pp_warning(resolver->diag, "W0308", pp_field_span(section, PP_ATTR_model_vocab),
	               "vocab %u is padded to %u, a multiple of tp %u", model->vocab, model->padded_vocab, tp);
	pp_help(message, "write `pad_vocab = 1` to say so, or `pad_vocab = 128`: a multiple of 128 * tp, %llu",
	        (unsigned long long)usual);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static const char *group_text(struct pp_arena *arena, uint64_t first, uint64_t stride, uint32_t count)
{
	const char *text = "{";
	for (uint32_t i = 0; i < count && i < MOST_SHOWN; i++)
		text = pp_arena_printf(arena, "%s%s%llu", text, i ? "," : "", (unsigned long long)(first + i * stride));
	return pp_arena_printf(arena, "%s%s}", text, count > MOST_SHOWN ? ",..." : "");
}

static const char *rate_text(struct pp_arena *arena, uint64_t bandwidth)
{
	return bandwidth ? pp_arena_printf(arena, "%.6g GB/s", (double)bandwidth / 1e9) : "no limit";
}

static void check_nodes(struct pp_resolver *resolver)
{
	const struct pp_spec *spec = &resolver->out->spec;
	const struct pp_parallel *parallel = &spec->parallel;
	const struct pp_cluster *cluster = &spec->cluster;
	struct pp_section *section = resolver->sections[PP_SECTION_PARALLEL];
	uint64_t gpus = cluster->gpus, first, stride;
	const char *across;
	if (!pp_field_name(resolver, section, PP_ATTR_parallel_tp_across_nodes, &across) || strcmp(across, "allow") == 0 ||
	    !pp_tp_crosses_nodes(spec, &first, &stride))
		return;
	uint64_t last = first + (parallel->tp - 1) * stride;
	const char *slower = "";
	if (cluster->inter.bandwidth != cluster->intra.bandwidth)
		slower = pp_arena_printf(resolver->arena, ": its collectives run at %s instead of %s",
		                         rate_text(resolver->arena, cluster->inter.bandwidth),
		                         rate_text(resolver->arena, cluster->intra.bandwidth));
	struct pp_message *message =
	    pp_error(resolver->diag, "E0306", pp_field_span(section, PP_ATTR_parallel_tp),
	             "tp group %s crosses nodes %llu and %llu%s", group_text(resolver->arena, first, stride, parallel->tp),
	             (unsigned long long)(first / gpus), (unsigned long long)(last / gpus), slower);
	if (stride > 1 && gpus % parallel->tp == 0)
		pp_help(message, "put tp first in `rank_order`");
	else if (gpus == 1)
		pp_help(message, "use tp = 1: a node has one GPU");
	else
		pp_help(message, "use a tp that divides the %llu GPUs of a node%s", (unsigned long long)gpus,
		        stride > 1 ? ", with tp first in `rank_order`" : "");
	pp_help(message, "`tp_across_nodes = allow` in `parallel` permits it");
}

void pp_resolve_tensor(struct pp_resolver *resolver)
{
	const struct pp_parallel *parallel = &resolver->out->spec.parallel;
	bool replicate;
	if (parallel->tp <= 1 || resolver->out->spec.cluster.gpus == 0)
		return;
	check_nodes(resolver);
	if (resolver->custom_only ||
	    !pp_field_truth(resolver, resolver->sections[PP_SECTION_MODEL], PP_ATTR_model_kv_replicate, &replicate))
		return;
	check_model(resolver, (struct cut){.tp = parallel->tp, .sp = parallel->sp, .replicate = replicate});
	warn_padding(resolver, parallel->tp);
}
