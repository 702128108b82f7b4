/* Recompute in numbers: recompute.h.
 *
 * Attention keeps its output and the log-sum-exp of the scores (cost model 1.3), never the scores themselves. So to
 * compute it again saves little and takes the time of the attention core; what norms and activations make is as large
 * and takes next to no time. */
#include "recompute.h"

#include "cost.h"
#include "ir/figures.h"

#include <string.h>

struct pp_spec pp_recompute_instead(struct pp_arena *arena, const struct pp_spec *spec, uint8_t parts)
{
	struct pp_spec other = *spec;
	other.model.layers = PP_NEW_ARRAY(arena, struct pp_layer, spec->model.layer_count);
	memcpy(other.model.layers, spec->model.layers, spec->model.layer_count * sizeof *other.model.layers);
	for (uint32_t i = 0; i < spec->model.layer_count; i++)
		if (other.model.layers[i].kind == PP_LAYER_BLOCK)
			other.model.layers[i].recompute = parts;
	return other;
}

/* The first block that computes attention again and nothing else, or PP_NULL. */
static uint32_t attention_alone(const struct pp_model *model)
{
	for (uint32_t i = 0; i < model->layer_count; i++)
		if (model->layers[i].recompute == PP_RECOMPUTE_ATTENTION)
			return i;
	return PP_NULL;
}

/* "2.0 MiB for 0.31 ms": what a layer saves and what that takes. */
static const char *effect_text(struct pp_arena *arena, const struct pp_stages *stages, uint32_t layer,
                               struct pp_time_unit unit)
{
	return pp_arena_printf(arena, "%s for %s %s", pp_show_bytes(arena, stages->layers[layer].extra_bytes),
	                       pp_show_time(arena, stages->layer_ticks[layer][PP_PHASE_R], unit), unit.name);
}

void pp_recompute_warn(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages,
                       struct pp_diag *diag)
{
	uint32_t layer = attention_alone(&spec->model);
	if (layer == PP_NULL)
		return;
	const struct pp_layer_counts *counts = &stages->layers[layer];
	struct pp_time_unit unit = pp_time_unit_for(stages->layer_ticks[layer][PP_PHASE_B]);
	struct pp_spec other = pp_recompute_instead(arena, spec, PP_RECOMPUTE_NORM | PP_RECOMPUTE_ACT);
	struct pp_stages cheap = {0};
	pp_cost_layers(arena, &other, &cheap);
	struct pp_message *message = pp_warning(
	    diag, "W0707", spec->recompute_span,
	    "to compute attention again saves a block %s of %s per microbatch, and its backward of %s %s takes "
	    "%s %s longer",
	    pp_show_bytes(arena, counts->extra_bytes), pp_show_bytes(arena, counts->stash_bytes + counts->extra_bytes),
	    pp_show_time(arena, stages->layer_ticks[layer][PP_PHASE_B], unit), unit.name,
	    pp_show_time(arena, stages->layer_ticks[layer][PP_PHASE_R], unit), unit.name);
	pp_note(message, "attention keeps its output and a log-sum-exp, not the scores");
	pp_help(message, "`recompute = [norm, act]` saves %s", effect_text(arena, &cheap, layer, unit));
}
