/* What the ranks of a communicator share: a piece of POSIX shared memory, whether they are threads of one process or
 * processes. Every counter only grows, and each is written by one rank. No lock: atomics order what they announce. */
#ifndef PP_FAKE_NCCL_SEGMENT_H
#define PP_FAKE_NCCL_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	PP_FAKE_RANKS_MOST = 64,
	PP_FAKE_RING_BYTES = 1 << 16,
	PP_FAKE_CHUNK_BYTES = 1 << 15,
	PP_FAKE_MAIL_ROOM = 16,
	PP_FAKE_POST_ROOM = 16,
	PP_FAKE_NAME_BYTES = 96,
};

/* What one end of a transfer, or one member of a collective, has posted. */
struct pp_fake_post {
	uint64_t count;
	int32_t type;                  /* ncclDataType_t */
	int32_t kind, operation, root; /* of collectives */
	uint32_t captured;             /* as which one, from 1; 0: it is not */
};

/* From one rank to another. */
struct pp_fake_pipe {
	_Atomic uint64_t sends, receives;                                                    /* posted so far */
	struct pp_fake_post send_posts[PP_FAKE_POST_ROOM], receive_posts[PP_FAKE_POST_ROOM]; /* the last ones */
	_Atomic uint64_t written, read;                                                      /* bytes, over all transfers */
	unsigned char ring[PP_FAKE_RING_BYTES];
};

/* First contact, from one rank to another: what each side connects. */
struct pp_fake_mail {
	_Atomic uint64_t sent;
	_Atomic int32_t values[PP_FAKE_MAIL_ROOM];
};

/* One member's part of the collectives: pieces that it has put here, and pieces of all that it has taken. */
struct pp_fake_share {
	_Atomic uint64_t published, consumed;
	struct pp_fake_post post;
	uint64_t sequence;
	unsigned char bytes[PP_FAKE_CHUNK_BYTES];
};

struct pp_fake_member {
	_Atomic int32_t color, key; /* of the split going on */
	_Atomic uint64_t machine;
	_Atomic int32_t device;
	_Atomic uint64_t arrived; /* barriers reached */
	struct pp_fake_share share;
};

struct pp_fake_segment {
	_Atomic uint32_t ranks; /* as the first to come says; 0: nobody has yet */
	_Atomic uint32_t joined, left;
	struct pp_fake_member members[];
	/* then pipes [from][to] and mails [from][to][two kinds] */
};

uint64_t pp_fake_segment_bytes(uint32_t ranks);
/* Opens or makes it; NULL: no shared memory. */
struct pp_fake_segment *pp_fake_segment_open(const char *name, uint32_t ranks);
void pp_fake_segment_close(struct pp_fake_segment *segment, uint32_t ranks);
void pp_fake_segment_remove(const char *name);

struct pp_fake_pipe *pp_fake_segment_pipe(struct pp_fake_segment *segment, uint32_t ranks, uint32_t from, uint32_t to);
/* kind 0: of a sender or of both directions; 1: of a receiver. */
struct pp_fake_mail *pp_fake_segment_mail(struct pp_fake_segment *segment, uint32_t ranks, uint32_t from, uint32_t to,
                                          uint32_t kind);

#endif
