/* The memory that the ranks of a machine share in the local transport: what each part is for. Every counter only grows.
 * Used by the files of the local transport only. */
#ifndef PP_LOCAL_MEMORY_H
#define PP_LOCAL_MEMORY_H

#include "collective.h"

#include <stdatomic.h>

enum { PP_LOCAL_FAILURE_TEXT = 512 };

/* Seen by all. */
struct pp_local_board {
	atomic_int failed; /* 0 no, 1 its text is being written, 2 yes */
	uint32_t gave_up;  /* the rank whose failure it is and which reports it; PP_NULL: all do */
	char failure[PP_LOCAL_FAILURE_TEXT];
	char told[PP_GRID_NAME + 16]; /* what the others say */
};

/* A channel of one coordinate. The sender announces a message once the receiver has posted it, then its bytes pass
 * through the ring. */
struct pp_local_channel {
	atomic_uint_least64_t wanted;   /* receives posted */
	atomic_uint_least64_t accepted; /* messages whose identity the receiver has looked at */
	atomic_uint_least64_t taken;    /* bytes, by the receiver */
	char padding[40];
	atomic_uint_least64_t announced; /* messages, by the sender */
	atomic_uint_least64_t given;     /* bytes, by the sender */
	struct pp_identity sent;         /* of the last one announced; the next waits until it is accepted */
};

/* What a member means to do, and how far it is: turns are pieces of collectives, counted on and on. */
struct pp_local_member {
	atomic_uint_least64_t filled, taken; /* turns */
	struct pp_local_claim {
		uint64_t number, count;
		uint32_t kind, dtype;
	} claims[2]; /* of turn t: t mod 2, as the data */
};

/* A channel or group as one process sees it. */
struct pp_local_ring {
	struct pp_local_channel *shared;
	unsigned char *bytes;
	uint64_t capacity;
};

struct pp_local_team {
	struct pp_local_member *members; /* [count], in shared memory */
	unsigned char *data;             /* [count][2][piece] */
	uint32_t count;
	uint64_t piece; /* bytes, a multiple of 8 */
};

static inline unsigned char *pp_local_piece(const struct pp_local_team *team, uint32_t member, uint64_t turn)
{
	return team->data + (2 * (uint64_t)member + turn % 2) * team->piece;
}

/* All of it, for one program. */
struct pp_local {
	const struct pp_program *program;
	struct pp_transport_options options;
	uint32_t world;
	struct pp_local_board *board;
	struct pp_local_ring *rings;   /* [tp * dp][channel_count] */
	struct pp_local_team **teams;  /* [world][group_count + 1]: the last is that of bodies; NULL: no member */
	struct pp_local_team everyone; /* of exchanges */
	void *memory;                  /* shared with the processes that are forked later */
	uint64_t bytes;
};

/* Place everything; with memory == NULL only count bytes. */
bool pp_local_place(struct pp_local *local);
void pp_local_free(struct pp_local *local);

#endif
