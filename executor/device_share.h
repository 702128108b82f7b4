/* What devices have in common: which elements of a tensor a coordinate works on, and what they begin with. */
#ifndef PP_DEVICE_SHARE_H
#define PP_DEVICE_SHARE_H

#include "device.h"

#include "ir/grid.h"
#include "ir/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The call of a compute instruction (lifetime.h). */
struct pp_call pp_call_of(const struct pp_program *program, const struct pp_instr *instr);

/* Bytes that a `load` brings. */
uint64_t pp_load_bytes(const struct pp_program *program, const struct pp_instr *load);

/* Elements of a tensor, by their numbers among those that a tp coordinate holds. */
struct pp_elements {
	size_t first, count;
};

/* The dp shard `owner` of them. The last shards may be short or empty; what lies behind is padding. */
struct pp_elements pp_elements_of_shard(const struct pp_program *program, uint32_t tensor, uint32_t owner);

/* The own dp shard, or all. */
struct pp_elements pp_elements_of(const struct pp_program *program, struct pp_coord coord, uint32_t tensor, bool shard);

/* The rank's slot of a class of which there is at most one, PP_NULL: none. */
uint32_t pp_only_slot(const struct pp_rank *rank, enum pp_slot_class class);

/* A device itself writes to static slots; other slots are bounded by the verifier's body rules. */
bool pp_device_slots_fit(const struct pp_program *program, uint32_t rank, struct pp_status *status);

/* Registers of the largest body, at least 1. */
uint32_t pp_most_registers(const struct pp_program *program);

/* Initial values of elements `first` to `first` + count - 1 of those that a coordinate holds of a tensor, row-major,
 * from the draws of the whole tensor; padding is 0. */
void pp_weight_init(const struct pp_program *program, struct pp_coord coord, uint32_t tensor, uint64_t seed,
                    uint64_t first, uint64_t count, float *to);

#endif
