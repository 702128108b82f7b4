/* Communicators and their operations, inside the fake. */
#ifndef PP_FAKE_NCCL_COMMUNICATOR_H
#define PP_FAKE_NCCL_COMMUNICATOR_H

#include "nccl_segment.h"
#include "stream.h"

#include <nccl.h>
#include <stdatomic.h>

/* A collective that has run before: kind, count, type and reduction of its first use. */
struct pp_fake_known {
	struct pp_fake_post post;
};

struct ncclComm {
	struct pp_fake_segment *segment;
	char name[PP_FAKE_NAME_BYTES]; /* of the segment */
	const char *label;             /* for reports; stays */
	uint32_t rank, ranks;
	int device;
	bool blocking;
	_Atomic bool aborted;
	_Atomic int state; /* ncclResult_t: what ncclCommGetAsyncError says */
	uint64_t splits, barriers;
	struct pp_fake_record *last; /* of its operations, which are one chain */
	const void *moved;           /* what the last one reads or writes */
	uint32_t in_graphs;          /* operations that graphs hold; with the lock */
	/* Captured so far: sends and receives by peer, collectives. */
	uint32_t captured_sends[PP_FAKE_RANKS_MOST], captured_receives[PP_FAKE_RANKS_MOST], captured_collectives;
	bool connected_to[PP_FAKE_RANKS_MOST], connected_from[PP_FAKE_RANKS_MOST];
	uint64_t mails_read[PP_FAKE_RANKS_MOST][2];
	struct pp_fake_known *known;
	uint32_t known_count;
	/* Written by the thread that runs the one operation that is at work. */
	uint64_t sends[PP_FAKE_RANKS_MOST], receives[PP_FAKE_RANKS_MOST]; /* begun, by peer */
	uint64_t collectives, pieces;
	uint64_t operations;
};

enum pp_fake_task_kind {
	PP_FAKE_SEND,
	PP_FAKE_RECEIVE,
	PP_FAKE_ALL_REDUCE,
	PP_FAKE_REDUCE_SCATTER,
	PP_FAKE_ALL_GATHER,
	PP_FAKE_BROADCAST,
};

extern const char *const pp_fake_task_names[];

/* One call within a group. */
struct pp_fake_task {
	enum pp_fake_task_kind kind;
	uint32_t peer; /* or root */
	uint64_t count;
	ncclDataType_t type;
	ncclRedOp_t reduction;
	uint32_t captured; /* as which one of its kind, from 1; 0: it is not */
	const unsigned char *from;
	unsigned char *to;
	/* How far it is. */
	bool begun, met, done;
	uint64_t sequence, bytes_done;
	bool published; /* collectives: the present piece */
};

struct pp_fake_nccl_operation {
	struct pp_fake_operation base;
	struct ncclComm *communicator;
	struct pp_fake_task *tasks;
	uint32_t task_count;
	bool resident; /* it has a place on the device */
	bool breaks;   /* its communicator is broken from here on */
	bool captured; /* in a graph */
};

uint64_t pp_fake_nccl_bytes(ncclDataType_t type); /* 0: unknown */

const char *pp_fake_nccl_type(int32_t type);
/* What is wrong with posts of two ranks of which one, or another one, is captured; "" if nothing is. */
const char *pp_fake_captures_text(uint32_t one, uint32_t other);

/* Moves a task on; true: something moved. No lock. */
bool pp_fake_transfer_step(struct ncclComm *communicator, struct pp_fake_task *task);
bool pp_fake_collective_step(struct ncclComm *communicator, struct pp_fake_task *task);

/* Host-blocking, with the lock (given up meanwhile). False: aborted. `what` for the table of a deadlock. */
bool pp_fake_nccl_barrier(struct pp_fake_host *host, struct ncclComm *communicator, const char *what);
/* First use of peers and collectives by these tasks: waits for the other sides. */
bool pp_fake_nccl_connect(struct pp_fake_host *host, struct ncclComm *communicator, const struct pp_fake_task *tasks,
                          uint32_t count);

/* Has a collective with this count, type and reduction run before? */
bool pp_fake_nccl_is_known(const struct ncclComm *communicator, const struct pp_fake_task *task);

/* Within a group an abort is told at once, and its end waited for with the group (true). */
bool pp_fake_nccl_abort_later(struct ncclComm *communicator);
/* The rest of an abort; with the lock. */
void pp_fake_nccl_reclaim(struct pp_fake_host *host, struct ncclComm *communicator);

extern const struct pp_fake_operation_kind pp_fake_nccl_kind;

#endif
