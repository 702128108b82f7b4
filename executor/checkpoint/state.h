/* What training keeps from step to step, by global names: weights NAME, moments optimizer.m.NAME, optimizer.v.NAME. */
#ifndef PP_STATE_H
#define PP_STATE_H

#include "ir/program.h"
#include "ir/status.h"

enum pp_part { PP_PART_WEIGHT, PP_PART_MOMENT1, PP_PART_MOMENT2, PP_PART_COUNT };

struct pp_state_item {
	char *name;
	uint32_t tensor;
	uint8_t part; /* enum pp_part */
	bool stored;  /* this rank writes it: the lowest rank that uses the tensor */
	void *at;
	uint64_t bytes;
};

/* One rank's share, in tensor order. */
struct pp_state {
	struct pp_state_item *items;
	uint32_t count;
};

/* Name the state in the rank's slots (addresses by slot). False: out of memory, or a tensor's name is one of ours. */
bool pp_state_open(const struct pp_program *program, uint32_t rank, void *const *slots, struct pp_state *state,
                   struct pp_status *status);
void pp_state_close(struct pp_state *state);

/* Hash of names, shapes and formats of all tensors: programs with the same can read each other's checkpoints. */
uint64_t pp_state_identity(const struct pp_program *program);

#endif
