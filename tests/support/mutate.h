/* Random changes to one instruction, or to the place of one, in a program's streams. */
#ifndef PP_TEST_MUTATE_H
#define PP_TEST_MUTATE_H

#include "ir/program.h"

enum mutation {
	MUTATE_DROP,
	MUTATE_DUPLICATE,
	MUTATE_SWAP,
	MUTATE_NEIGHBOURS,
	MUTATE_MOVE,
	MUTATE_SLOT,
	MUTATE_CHANNEL,
	MUTATE_SEQUENCE,
	MUTATE_STAGE,
	MUTATE_MB,
	MUTATE_OP,
	MUTATE_FLAGS,
	MUTATE_DTYPE,
	MUTATE_COUNT,
	MUTATE_KIND, /* sub: load kind, collective, update rule, mean */
	MUTATE_GROUP,
	MUTATE_COLLECTIVE_ID,
	MUTATE_COLLECTIVE_ORDER,
	MUTATE_OFFSET, /* a slot's place in the arena: shares bytes with another */
	MUTATE_SIZE,   /* a slot's length */
	MUTATION_COUNT
};
extern const char *const mutation_name[MUTATION_COUNT];

/* Change `program` (a build_copy whose rank tables may be changed too). False: this kind found nothing to change. The
 * indices of the result are in range, as a reader would demand. */
bool mutate(struct pp_program *program, enum mutation kind, uint64_t *seed);

#endif
