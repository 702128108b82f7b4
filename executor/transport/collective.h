/* Collectives as transports see them: one member's part of one collective. */
#ifndef PP_COLLECTIVE_H
#define PP_COLLECTIVE_H

#include "executor/transport.h"

struct pp_part {
	const unsigned char *from;
	unsigned char *to;
	/* Elements of one member's share: all of `from` and `to` for allreduce, `from` for allgather, `to` for
	 * reducescatter. */
	uint64_t count;
	uint8_t kind; /* enum pp_collective */
	uint8_t dtype;
	uint32_t id; /* of the stream's collective, or PP_NULL: a body's */
};

/* The part of a `coll` instruction. In place, allgather and reducescatter work on a slot that holds the shares of all
 * members: the own share lies at its place in it. */
struct pp_part pp_part_of(const struct pp_instr *coll, const void *from, void *to, uint32_t position);

/* Do two members mean the same collective? The id may differ: it is that of each member's stream. */
bool pp_part_equal(const struct pp_part *a, const struct pp_part *b);

/* "allreduce of f32*16" */
enum { PP_PART_TEXT = 64 };
const char *pp_part_text(const struct pp_part *part, char text[PP_PART_TEXT]);

#endif
