/* What training keeps from step to step, by global names: weights NAME, moments optimizer.m.NAME, optimizer.v.NAME.
 * Each coordinate of the grid holds an extent of each. All of it is f32: of a weight with a master copy, that is kept,
 * and the weight itself is made from it, rounded, wherever it is loaded. */
#ifndef PP_STATE_H
#define PP_STATE_H

#include "safetensors.h"

#include "ir/grid.h"

/* PP_STATE_ROUNDED: a weight with a master copy, of which PP_STATE_WEIGHT is that copy; never stored. */
enum pp_state_kind { PP_STATE_WEIGHT, PP_STATE_MOMENT1, PP_STATE_MOMENT2, PP_STATE_ROUNDED, PP_STATE_KINDS };

static inline bool pp_state_is_moment(unsigned kind)
{
	return kind == PP_STATE_MOMENT1 || kind == PP_STATE_MOMENT2;
}

/* Elements of a tensor that lie together: `count` of a rectangle of it, row-major, from the `first` on. */
struct pp_extent {
	struct pp_box box;
	uint64_t first, count;
};

/* Memory of slots, which a device may have elsewhere. */
struct pp_state_memory {
	void *context;
	bool (*read)(void *context, uint32_t slot, uint64_t offset, uint64_t bytes, void *to, struct pp_status *status);
	bool (*write)(void *context, uint32_t slot, uint64_t offset, uint64_t bytes, const void *from,
	              struct pp_status *status);
};

struct pp_state_item {
	char *name;
	uint32_t tensor;
	uint8_t kind; /* enum pp_state_kind */
	bool stored;  /* this rank writes it */
	uint32_t slot;
	struct pp_extent extent;
	const struct pp_state_memory *memory; /* the state's */
};

/* One rank's share, in tensor order. It stays where it is from open to close: items point to its memory. */
struct pp_state {
	struct pp_state_memory memory;
	struct pp_state_item *items;
	uint32_t count;
};

/* Name the state in the slots of a coordinate. False: out of memory, or a tensor's name is one of ours. */
bool pp_state_open(const struct pp_program *program, struct pp_coord coord, const struct pp_state_memory *memory,
                   struct pp_state *state, struct pp_status *status);
void pp_state_close(struct pp_state *state);

/* What a coordinate holds of a tensor that its pipeline rank uses. Shards of the optimizer's state may be empty. */
struct pp_extent pp_state_extent(const struct pp_program *program, uint32_t tensor, enum pp_state_kind kind,
                                 struct pp_coord coord);

/* Does the coordinate write its extent? Of copies, one does. `owners`: by pp_state_owners. */
bool pp_state_stores(const struct pp_program *program, const uint32_t *owners, uint32_t tensor, enum pp_state_kind kind,
                     struct pp_coord coord);

/* The lowest pipeline rank that uses each tensor, PP_NULL: none. owners[tensor_count]. */
void pp_state_owners(const struct pp_program *program, uint32_t *owners);

/* The item as a tensor of a file: a rectangle keeps its form, a shard of the optimizer's state is a row of elements. */
struct pp_named_tensor pp_state_describe(const struct pp_state_item *item, const struct pp_program *program);

/* Hash of names, shapes without padding and formats (`dtypes`, one per tensor; NULL: the program's own) of all tensors:
 * programs that agree on it, formats aside, can read each other's checkpoints. */
uint64_t pp_state_identity(const struct pp_program *program, const uint8_t *dtypes);

#endif
