/* --check-identity over NCCL, whose messages have no headers: each rank keeps a digest per communicator of what it has
 * posted on it since the start. Whenever ranks exchange control data, which is never within a step, the digests go
 * along, and those of the members of a communicator must be the same. */
#ifndef PP_NCCL_IDENTITY_H
#define PP_NCCL_IDENTITY_H

#include "executor/transport/collective.h"

struct pp_nccl_identity {
	const struct pp_program *program;
	uint32_t ranks, lines;
	uint64_t *digests; /* [lines] of this rank; NULL: nothing is compared */
	unsigned char *given, *taken;
	size_t given_room, taken_room;
	void *all; /* of the present exchange: where the caller wants its bytes */
	size_t bytes;
};

/* False: out of memory. */
bool pp_nccl_identity_make(struct pp_nccl_identity *identity, const struct pp_program *program, uint32_t lines);
void pp_nccl_identity_free(struct pp_nccl_identity *identity);

/* This rank posts a message, or its part of a collective on a line (plan.h). */
void pp_nccl_identity_message(struct pp_nccl_identity *identity, const struct pp_instr *instr);
void pp_nccl_identity_part(struct pp_nccl_identity *identity, uint32_t line, const struct pp_part *part);

/* An exchange of `bytes` bytes becomes one of *size, from `given` into `taken`. False: out of memory. */
bool pp_nccl_identity_pack(struct pp_nccl_identity *identity, const void *mine, void *all, size_t bytes, size_t *size);
/* That is over: the caller's bytes are where it wants them. False: members of a communicator, which *status names the
 * same way on all ranks, have posted different things. */
bool pp_nccl_identity_unpack(struct pp_nccl_identity *identity, struct pp_status *status);

#endif
