/* A transport: how the world ranks of a run talk. One endpoint per world rank; ranks may be threads of one process, so
 * no transport keeps global state. Implementations: executor/transport/transport_loop.h (threads),
 * executor/transport/transport_mpi.h.
 *
 * Semantics (program.h 1-3, 5): a channel is a FIFO; a transfer starts only once both ends are posted and its memory is
 * not touched by anyone else from the post to the completion. Nothing here blocks: posts return at once, tests poll
 * everything that is outstanding at this endpoint. The address given to a post is that of the slot.
 *
 * Where a device runs what it is given later than the host gives it (device.h), only stream-ordered transports will do:
 * there a post takes effect after all that the device had been given at the post, and PP_DONE means that everything
 * given to the device from now on comes after the completion.
 *
 * Channels and groups are those of the endpoint's coordinate (grid.h). Collectives sum in member order, element by
 * element ((s0 + s1) + s2 …), so all members get the same bits, and the same bits on every transport. */
#ifndef PP_TRANSPORT_H
#define PP_TRANSPORT_H

#include "ir/grid.h"
#include "ir/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pp_device;
struct pp_endpoint; /* implementer's context: one rank's end of everything */
struct pp_watch;

enum pp_progress { PP_PENDING, PP_DONE, PP_FAILED };

struct pp_transport_options {
	bool sync_send;           /* sends complete only when received, even small ones (loop: always so) */
	bool check_identity;      /* compare (channel, seq, stage, mb, kind, bytes) of both ends before each payload, and
	                             what the members of a group post */
	uint64_t largest_message; /* longer payloads travel in pieces of this many bytes; 0: the transport's own limit */
};

struct pp_transport_ops {
	const char *name;    /* "loop", "mpi", "nccl" */
	bool stream_ordered; /* as above; else addresses are the host's, and PP_DONE says that it has happened */
	bool captures;       /* posts may become part of a step that the device knows by heart: PP_GRAPH_STEP */
	/* Of stream-ordered ones that do not: why, for people. */
	const char *captures_not;
	/* Once the rank's device is made, before the first post. NULL: host memory, nothing to do. False: *status. */
	bool (*bind)(struct pp_endpoint *endpoint, struct pp_device *device, struct pp_status *status);
	/* Of a transport on host memory: may addresses of messages be those of a CUDA device? NULL: no. */
	bool (*takes_devices)(const struct pp_endpoint *endpoint);
	/* Has it failed, or another rank given up? Asked while a device runs what it was given. NULL: only tests say it. */
	bool (*broken)(struct pp_endpoint *endpoint);

	/* `send` and `recv` instructions: the k-th post of a step on a channel has seq k. */
	void (*post_send)(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from);
	void (*post_recv)(struct pp_endpoint *endpoint, const struct pp_instr *instr, void *to);
	/* A `coll` instruction. Only what pp_transport_supports says. `from` may be `to`: for allgather and reducescatter
	 * this is then room for the shares of all members, with the own one at its place. */
	void (*post_coll)(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to);

	/* A collective of a body on the tensor-parallel group of this coordinate; device.h says what `count` counts. All
	 * members post the same ones in the same order. Returns a ticket. */
	uint32_t (*post_body)(struct pp_endpoint *endpoint, enum pp_collective kind, enum pp_dtype dtype, const void *from,
	                      void *to, uint64_t count);

	/* Has this post of the present step completed? Moves whatever can move first. */
	enum pp_progress (*test)(struct pp_endpoint *endpoint, uint32_t channel, uint32_t seq);
	enum pp_progress (*test_coll)(struct pp_endpoint *endpoint, uint32_t id);
	enum pp_progress (*test_body)(struct pp_endpoint *endpoint, uint32_t ticket);
	/* For posts of a stream-ordered transport that are held back for a while (transport/queued.h). NULL where it is not
	 * one, or holds them back itself. `mark`: this instruction's post, the next one on its channel or group that is not
	 * marked, takes effect after what the device has been given by now, and not by when it is made. `probe`: PP_DONE if
	 * the post only needs the device to complete; the device is told nothing, as it is by a test. */
	void (*mark)(struct pp_endpoint *endpoint, const struct pp_instr *instr);
	enum pp_progress (*probe)(struct pp_endpoint *endpoint, const struct pp_instr *instr);
	/* Move whatever can move. Takes void * so that devices can call it between body instructions. */
	void (*poll)(void *endpoint);

	/* Control data, outside of channels: every rank gives `bytes` bytes and gets those of all ranks in rank order.
	 * Both buffers belong to the transport until test says PP_DONE. Zero bytes: a barrier. */
	void (*exchange)(struct pp_endpoint *endpoint, const void *mine, void *all, size_t bytes);
	enum pp_progress (*test_exchange)(struct pp_endpoint *endpoint);

	/* Tell all ranks that this one gives up: from now on their tests say PP_FAILED. Returns soon. `why` is for this
	 * rank's own report: the cause is said once. */
	void (*give_up)(struct pp_endpoint *endpoint, const char *why);
	/* Why a test said PP_FAILED: "rank 2 gave up", or what went wrong here. */
	const char *(*failure)(const struct pp_endpoint *endpoint);
};

/* Exchange and wait for it under the watch's deadline. */
bool pp_transport_exchange(const struct pp_transport_ops *ops, struct pp_endpoint *endpoint, struct pp_watch *watch,
                           const char *what, const void *mine, void *all, size_t bytes, struct pp_status *status);

/* Posts of a pipeline rank in its busiest program: how many can ever be outstanding, and the longest payload. */
struct pp_post_count {
	uint32_t posts;
	uint64_t bytes; /* of a share in collectives */
};

struct pp_post_counts {
	struct pp_post_count *channel; /* [channel_count] */
	struct pp_post_count *group;   /* [group_count] */
	struct pp_post_count body;     /* in the busiest body: a body waits for what it posts */
	uint32_t colls;                /* over all groups */
};

/* Allocated with malloc: release with pp_post_counts_free. False: out of memory. */
bool pp_post_counts_make(const struct pp_program *program, uint32_t rank, struct pp_post_counts *counts);
void pp_post_counts_free(struct pp_post_counts *counts);

/* True if the instruction's collective and dtype can run; else the reason goes to *status. */
bool pp_transport_supports(const struct pp_instr *coll, struct pp_status *status);

/* What member i gives to a sum. */
typedef const void *pp_given(const void *context, uint32_t member);

/* to[k] = given(0)[k] + given(1)[k] + …, in this order; f32 and f64 in their own precision, bf16 in f32 and rounded
 * once, to nearest even, at the end. `to` may be one of the given. */
void pp_transport_sum(enum pp_dtype dtype, void *to, pp_given *given, const void *context, uint32_t members,
                      size_t count);

/* What --check-identity compares. */
struct pp_identity {
	uint32_t channel, seq, stage, mb;
	uint64_t bytes;
	uint32_t dtype, kind;
};

struct pp_identity pp_identity_of(const struct pp_program *program, const struct pp_instr *instr);
bool pp_identity_equal(const struct pp_identity *a, const struct pp_identity *b);
/* "channel 2 #5: sent stage 3 mb 5 act 4096 bytes f32, expected …" */
void pp_identity_explain(const struct pp_identity *sent, const struct pp_identity *expected, char *text, size_t size);

#endif
