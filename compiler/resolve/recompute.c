/* train.recompute: which parts of which blocks are computed again in the backward.
 *
 * requires: the layers of the model.
 * ensures:  layers[].recompute; a range of layers lies within the model's blocks and is not empty. */
#include "resolver.h"

#include <string.h>

static uint8_t part_of(const char *name)
{
	return strcmp(name, "norm") == 0  ? PP_RECOMPUTE_NORM
	       : strcmp(name, "act") == 0 ? PP_RECOMPUTE_ACT
	                                  : PP_RECOMPUTE_ATTENTION;
}

static uint8_t parts_of(const struct pp_datum *value)
{
	uint8_t parts = 0;
	for (uint32_t i = 0; value->kind == PP_DATUM_LIST && i < value->count; i++)
		parts |= part_of(value->items[i].text);
	if (value->kind != PP_DATUM_NAME)
		return parts;
	return strcmp(value->text, "full") == 0        ? PP_RECOMPUTE_FULL
	       : strcmp(value->text, "selective") == 0 ? PP_RECOMPUTE_ATTENTION
	                                               : 0;
}

static uint32_t count_blocks(const struct pp_model *model)
{
	uint32_t blocks = 0;
	for (uint32_t i = 0; i < model->layer_count; i++)
		blocks += model->layers[i].kind == PP_LAYER_BLOCK;
	return blocks;
}

/* The blocks that `layers = a..b` names; all where it is not given. */
static bool read_layers(struct pp_resolver *resolver, struct pp_section *arguments, uint32_t blocks, uint32_t *first,
                        uint32_t *last)
{
	enum pp_attribute attribute = arguments->block == PP_BLOCK_full ? PP_ATTR_full_layers : PP_ATTR_selective_layers;
	pp_section_read_all(resolver, arguments);
	if (!pp_field_given(arguments, attribute))
		return true;
	const struct pp_field *field = pp_field_read(resolver, arguments, attribute);
	int64_t from, to;
	if (!field || field->state != PP_READY ||
	    !pp_datum_to_whole(&resolver->eval, field->expr, "`layers`", &field->value.items[0], &from) ||
	    !pp_datum_to_whole(&resolver->eval, field->expr, "`layers`", &field->value.items[1], &to))
		return false;
	if (from > to) {
		pp_help(pp_error(resolver->diag, "E0106", field->expr->span, "`layers` = %lld..%lld is empty", (long long)from,
		                 (long long)to),
		        "write the smaller number first, or `recompute = none`");
		return false;
	}
	if (from < 0 || to >= (int64_t)blocks) {
		pp_help(pp_error(resolver->diag, "E0106", field->expr->span,
		                 "`layers` = %lld..%lld is outside 0..%lld: the model has %u block%s", (long long)from,
		                 (long long)to, (long long)blocks - 1, blocks, blocks == 1 ? "" : "s"),
		        "blocks are counted through the whole model, whatever stands between them");
		return false;
	}
	*first = (uint32_t)from;
	*last = (uint32_t)to;
	return true;
}

void pp_resolve_recompute(struct pp_resolver *resolver)
{
	struct pp_section *train = resolver->sections[PP_SECTION_TRAIN];
	struct pp_spec *spec = &resolver->out->spec;
	uint32_t blocks = count_blocks(&spec->model), first = 0, last = blocks;
	const struct pp_field *field = pp_field_read(resolver, train, PP_ATTR_train_recompute);
	if (!field || field->state != PP_READY || blocks == 0)
		return;
	struct pp_section *arguments = pp_section_arguments(resolver, field);
	if (arguments && !read_layers(resolver, arguments, blocks, &first, &last))
		return;
	if (field->expr)
		spec->recompute_span = field->expr->span;
	uint32_t ordinal = 0;
	for (uint32_t i = 0; i < spec->model.layer_count; i++) {
		struct pp_layer *layer = &spec->model.layers[i];
		if (layer->kind != PP_LAYER_BLOCK)
			continue;
		if (ordinal >= first && ordinal <= last)
			layer->recompute = parts_of(&field->value);
		ordinal++;
	}
}
