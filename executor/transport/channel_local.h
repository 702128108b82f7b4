/* One rank's end of a channel and of a group in the local transport. Used by transport_local.c. */
#ifndef PP_CHANNEL_LOCAL_H
#define PP_CHANNEL_LOCAL_H

#include "local_memory.h"

/* An end of a channel. Post k lies at k mod capacity. */
struct pp_local_end {
	const struct pp_local_ring *ring; /* NULL: the channel does not end here */
	bool sends;
	struct pp_local_post {
		const struct pp_instr *instr;
		const unsigned char *from;
		unsigned char *to;
	} * posts;
	uint32_t capacity;
	uint64_t posted, base, done; /* base: posts before the present step */
	bool begun;                  /* the message at the head */
	uint64_t moved;              /* bytes of it */
};

void pp_local_end_post(struct pp_local_end *end, const struct pp_instr *instr, const void *from, void *to);

/* Move what can move. False: the message is another than the receiver expects, `why` says which. */
bool pp_local_end_move(const struct pp_local *local, struct pp_local_end *end, char *why, size_t size);

/* The collectives of a group at one member, in order. */
struct pp_local_line {
	const struct pp_local_team *team; /* NULL: the rank is no member */
	uint32_t position;
	struct pp_part *posts;
	uint32_t capacity;
	uint64_t posted, done;
	uint64_t turn;  /* pieces taken, over all collectives */
	uint64_t piece; /* of the one at the head */
	bool filled;    /* the own part of this turn is there */
};

/* Returns the number of the post: it is over once `done` is larger. */
uint64_t pp_local_line_post(struct pp_local_line *line, const struct pp_part *part);

/* Move what can move. False: members mean different collectives, `why` goes on from "members of …". */
bool pp_local_line_move(struct pp_local_line *line, char *why, size_t size);

#endif
