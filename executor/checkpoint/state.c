/* Global names for the slots that outlive a step.
 *
 * Requires: a verified program, so slots of tensors are exactly as long as these. Ensures: every tensor is stored by
 * exactly one rank, whatever the cut. */
#include "state.h"

#include "ir/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const prefixes[PP_PART_COUNT] = {"", "optimizer.m.", "optimizer.v."};

static bool add(struct pp_state *state, const struct pp_program *program, uint32_t tensor, enum pp_part part, void *at,
                bool stored)
{
	const char *base = program->tensors[tensor].name;
	size_t size = strlen(prefixes[part]) + strlen(base) + 1;
	char *name = malloc(size);
	if (!name)
		return false;
	snprintf(name, size, "%s%s", prefixes[part], base);
	state->items[state->count++] = (struct pp_state_item){
	    .name = name,
	    .tensor = tensor,
	    .part = (uint8_t)part,
	    .stored = stored,
	    .at = at,
	    .bytes = (uint64_t)program->tensors[tensor].rows * program->tensors[tensor].columns * sizeof(float),
	};
	return true;
}

static bool names_are_free(const struct pp_program *program, struct pp_status *status)
{
	for (uint32_t t = 0; t < program->tensor_count; t++) {
		const char *name = program->tensors[t].name;
		bool taken = strcmp(name, "__metadata__") == 0;
		for (unsigned part = PP_PART_MOMENT1; part < PP_PART_COUNT; part++)
			taken = taken || strncmp(name, prefixes[part], strlen(prefixes[part])) == 0;
		if (taken)
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "tensor `%s` has a name that checkpoints keep for themselves; rename it", name);
	}
	return true;
}

/* Moments are named by the updates of the rank. */
static bool add_moments(struct pp_state *state, const struct pp_program *program, uint32_t rank, void *const *slots,
                        const bool *stored)
{
	const struct pp_named_program *named = pp_program_find(program, "train");
	const struct pp_stream *stream = &named->streams[rank];
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op != PP_OP_OPT)
			continue;
		uint32_t tensor = program->rank[rank].slots[instr->a[0]].tensor;
		for (unsigned k = 0; k < 2; k++)
			if (instr->a[2 + k] != PP_NULL && !add(state, program, tensor, (enum pp_part)(PP_PART_MOMENT1 + k),
			                                       slots[instr->a[2 + k]], stored[tensor]))
				return false;
	}
	return true;
}

static bool add_weights(struct pp_state *state, const struct pp_program *program, uint32_t rank, void *const *slots,
                        const uint32_t *owner)
{
	uint32_t last = PP_NULL; /* uses are sorted by tensor, and those on one rank share the weight */
	for (uint32_t i = 0; i < program->use_count; i++) {
		const struct pp_use *use = &program->uses[i];
		if (program->stages[use->stage].rank != rank || use->tensor == last)
			continue;
		last = use->tensor;
		if (!add(state, program, use->tensor, PP_PART_WEIGHT, slots[use->weight], owner[use->tensor] == rank))
			return false;
	}
	return true;
}

static int by_tensor(const void *left, const void *right)
{
	const struct pp_state_item *a = left, *b = right;
	if (a->tensor != b->tensor)
		return a->tensor < b->tensor ? -1 : 1;
	return (int)a->part - (int)b->part;
}

bool pp_state_open(const struct pp_program *program, uint32_t rank, void *const *slots, struct pp_state *state,
                   struct pp_status *status)
{
	if (!names_are_free(program, status))
		return false;
	size_t tensors = program->tensor_count;
	uint32_t *owner = malloc((tensors + 1) * sizeof *owner);
	bool *stored = calloc(tensors + 1, sizeof *stored);
	*state = (struct pp_state){.items = calloc(PP_PART_COUNT * tensors + 1, sizeof *state->items)};
	bool ok = owner && stored && state->items;
	for (size_t t = 0; ok && t < tensors; t++)
		owner[t] = PP_NULL;
	for (uint32_t i = 0; ok && i < program->use_count; i++) {
		uint32_t user = program->stages[program->uses[i].stage].rank, *lowest = &owner[program->uses[i].tensor];
		*lowest = user < *lowest ? user : *lowest;
	}
	for (size_t t = 0; ok && t < tensors; t++)
		stored[t] = owner[t] == rank;
	ok = ok && add_weights(state, program, rank, slots, owner) && add_moments(state, program, rank, slots, stored);
	free(owner);
	free(stored);
	if (ok)
		qsort(state->items, state->count, sizeof *state->items, by_tensor);
	return ok || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the state of rank %" PRIu32, rank);
}

void pp_state_close(struct pp_state *state)
{
	for (uint32_t i = 0; i < state->count; i++)
		free(state->items[i].name);
	free(state->items);
	*state = (struct pp_state){0};
}

uint64_t pp_state_identity(const struct pp_program *program)
{
	uint64_t hash = PP_HASH_EMPTY;
	for (uint32_t t = 0; t < program->tensor_count; t++) {
		const struct pp_tensor *tensor = &program->tensors[t];
		char shape[64];
		int length = snprintf(shape, sizeof shape, " %s %" PRIu32 "x%" PRIu32 " %u\n", pp_dtype_name[tensor->dtype],
		                      tensor->rows, tensor->columns, tensor->dims);
		hash = pp_hash_more(pp_hash_more(hash, tensor->name, strlen(tensor->name)), shape, (size_t)length);
	}
	return hash;
}
