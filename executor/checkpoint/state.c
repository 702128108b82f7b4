/* Global names for the slots that outlive a step.
 *
 * Requires: a verified program, so slots of tensors are as long as what their coordinates hold. Ensures: every element
 * is stored by exactly one rank, whatever the cut. */
#include "state.h"

#include "ir/hash.h"
#include "ir/token_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const prefixes[PP_STATE_KINDS] = {"", "optimizer.m.", "optimizer.v.", ""};

/* What state_open gathers from. */
struct gathering {
	const struct pp_program *program;
	struct pp_coord coord;
	const uint32_t *owners;
	struct pp_state *state;
};

/* ---- extents --------------------------------------------------------------------------------- */

/* Does the optimizer keep it, so that with `zero` each dp coordinate has a shard? */
static bool of_optimizer(const struct pp_program *program, uint32_t tensor, enum pp_state_kind kind)
{
	return pp_state_is_moment(kind) || (kind == PP_STATE_WEIGHT && pp_tensor_has_master(&program->tensors[tensor]));
}

struct pp_extent pp_state_extent(const struct pp_program *program, uint32_t tensor, enum pp_state_kind kind,
                                 struct pp_coord coord)
{
	struct pp_extent extent = {.box = pp_tensor_box(program, tensor, coord.tp)};
	uint64_t all = (uint64_t)extent.box.rows * extent.box.columns, shard = pp_shard_elements(program, tensor);
	extent.count = all;
	if (of_optimizer(program, tensor, kind) && program->zero && pp_grid_extent(program, PP_AXIS_DP) > 1) {
		uint64_t first = coord.dp * shard;
		extent.first = first < all ? first : all;
		extent.count = all - extent.first < shard ? all - extent.first : shard;
	}
	return extent;
}

bool pp_state_stores(const struct pp_program *program, const uint32_t *owners, uint32_t tensor, enum pp_state_kind kind,
                     struct pp_coord coord)
{
	bool sharded = program->tensors[tensor].tp_grad == PP_TP_SHARDED;
	bool spread = of_optimizer(program, tensor, kind) && program->zero;
	return kind != PP_STATE_ROUNDED && owners[tensor] == coord.pp && (sharded || coord.tp == 0) &&
	       (spread || coord.dp == 0) && pp_state_extent(program, tensor, kind, coord).count > 0;
}

void pp_state_owners(const struct pp_program *program, uint32_t *owners)
{
	for (uint32_t t = 0; t < program->tensor_count; t++)
		owners[t] = PP_NULL;
	for (uint32_t i = 0; i < program->use_count; i++) {
		uint32_t rank = program->stages[program->uses[i].stage].rank, *lowest = &owners[program->uses[i].tensor];
		*lowest = rank < *lowest ? rank : *lowest;
	}
}

/* ---- items ----------------------------------------------------------------------------------- */

static bool add(const struct gathering *g, uint32_t tensor, enum pp_state_kind kind, uint32_t slot)
{
	const char *base = g->program->tensors[tensor].name;
	size_t size = strlen(prefixes[kind]) + strlen(base) + 1;
	char *name = malloc(size);
	if (!name)
		return false;
	snprintf(name, size, "%s%s", prefixes[kind], base);
	g->state->items[g->state->count++] = (struct pp_state_item){
	    .name = name,
	    .tensor = tensor,
	    .kind = (uint8_t)kind,
	    .stored = pp_state_stores(g->program, g->owners, tensor, kind, g->coord),
	    .slot = slot,
	    .extent = pp_state_extent(g->program, tensor, kind, g->coord),
	    .memory = &g->state->memory,
	};
	return true;
}

static bool names_are_free(const struct pp_program *program, struct pp_status *status)
{
	for (uint32_t t = 0; t < program->tensor_count; t++) {
		const char *name = program->tensors[t].name;
		bool taken = strcmp(name, "__metadata__") == 0;
		for (unsigned kind = PP_STATE_MOMENT1; kind <= PP_STATE_MOMENT2; kind++)
			taken = taken || strncmp(name, prefixes[kind], strlen(prefixes[kind])) == 0;
		if (taken)
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "tensor `%s` has a name that checkpoints keep for themselves; rename it", name);
	}
	return true;
}

/* Moments and master copies are named by the updates of the rank. */
static bool add_updated(const struct gathering *g)
{
	const struct pp_program *program = g->program;
	const struct pp_stream *stream = &pp_program_find(program, "train")->streams[g->coord.pp];
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op != PP_OP_OPT)
			continue;
		uint32_t tensor = program->rank[g->coord.pp].slots[instr->a[0]].tensor;
		for (unsigned k = 0; k < 2; k++)
			if (instr->a[2 + k] != PP_NULL &&
			    !add(g, tensor, (enum pp_state_kind)(PP_STATE_MOMENT1 + k), instr->a[2 + k]))
				return false;
		if (instr->extra != PP_NULL && !add(g, tensor, PP_STATE_WEIGHT, instr->extra))
			return false;
	}
	return true;
}

static bool add_weights(const struct gathering *g)
{
	uint32_t last = PP_NULL; /* uses are sorted by tensor, and those on one rank share the weight */
	for (uint32_t i = 0; i < g->program->use_count; i++) {
		const struct pp_use *use = &g->program->uses[i];
		if (g->program->stages[use->stage].rank != g->coord.pp || use->tensor == last)
			continue;
		last = use->tensor;
		bool rounded = pp_tensor_has_master(&g->program->tensors[use->tensor]);
		if (!add(g, use->tensor, rounded ? PP_STATE_ROUNDED : PP_STATE_WEIGHT, use->weight))
			return false;
	}
	return true;
}

static int by_tensor(const void *left, const void *right)
{
	const struct pp_state_item *a = left, *b = right;
	if (a->tensor != b->tensor)
		return a->tensor < b->tensor ? -1 : 1;
	return (int)a->kind - (int)b->kind;
}

bool pp_state_open(const struct pp_program *program, struct pp_coord coord, const struct pp_state_memory *memory,
                   struct pp_state *state, struct pp_status *status)
{
	if (!names_are_free(program, status))
		return false;
	size_t tensors = program->tensor_count;
	uint32_t *owners = malloc((tensors + 1) * sizeof *owners);
	*state = (struct pp_state){.memory = *memory, .items = calloc(PP_STATE_KINDS * tensors + 1, sizeof *state->items)};
	const struct gathering gathering = {program, coord, owners, state};
	bool ok = owners && state->items;
	if (ok)
		pp_state_owners(program, owners);
	ok = ok && add_weights(&gathering) && add_updated(&gathering);
	free(owners);
	if (ok)
		qsort(state->items, state->count, sizeof *state->items, by_tensor);
	return ok || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the state of rank %" PRIu32,
	                     pp_grid_rank(program, coord));
}

void pp_state_close(struct pp_state *state)
{
	for (uint32_t i = 0; i < state->count; i++)
		free(state->items[i].name);
	free(state->items);
	*state = (struct pp_state){0};
}

static bool read_item(const void *owner, uint64_t offset, uint64_t bytes, void *to, struct pp_status *status)
{
	const struct pp_state_item *item = owner;
	return item->memory->read(item->memory->context, item->slot, offset, bytes, to, status);
}

struct pp_named_tensor pp_state_describe(const struct pp_state_item *item, const struct pp_program *program)
{
	const struct pp_extent *extent = &item->extent;
	bool whole = extent->count == (uint64_t)extent->box.rows * extent->box.columns;
	return (struct pp_named_tensor){.name = item->name,
	                                .dims = whole ? program->tensors[item->tensor].dims : 1,
	                                .shape = {whole ? extent->box.rows : extent->count, extent->box.columns},
	                                .bytes = extent->count * sizeof(float),
	                                .read = read_item,
	                                .owner = item};
}

uint64_t pp_state_identity(const struct pp_program *program, const uint8_t *dtypes)
{
	uint64_t hash = PP_HASH_EMPTY;
	for (uint32_t t = 0; t < program->tensor_count; t++) {
		const struct pp_tensor *tensor = &program->tensors[t];
		char shape[64];
		int length = snprintf(shape, sizeof shape, " %s %" PRIu32 "x%" PRIu32 " %u\n",
		                      pp_dtype_name[dtypes ? dtypes[t] : tensor->dtype], pp_tensor_rows(program, t),
		                      tensor->columns, tensor->dims);
		hash = pp_hash_more(pp_hash_more(hash, tensor->name, strlen(tensor->name)), shape, (size_t)length);
	}
	return hash;
}
