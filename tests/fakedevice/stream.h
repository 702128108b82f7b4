/* Streams and what runs on them. A stream is a queue of operations; threads of the runtime (pool.c) carry the heads of
 * all streams forward, one operation of a stream at a time. Lock held, unless said otherwise. */
#ifndef PP_FAKE_STREAM_H
#define PP_FAKE_STREAM_H

#include "host.h"
#include "races.h"
#include "thread_sanitizer.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A point in a stream that others can wait for: what cudaEventRecord leaves behind. Counted references. */
struct pp_fake_record {
	uint32_t references;
	bool done;
	uint64_t time; /* when it was done */
	struct pp_fake_clock clock;
	const char *where;               /* of the stream */
	struct pp_fake_capture *capture; /* recorded within this one: stands for `node` and is never done */
	uint32_t node;
	char token;
};

struct pp_fake_record *pp_fake_record_make(void);
struct pp_fake_record *pp_fake_record_keep(struct pp_fake_record *record); /* NULL stays NULL */
void pp_fake_record_drop(struct pp_fake_record *record);

enum pp_fake_outcome {
	PP_FAKE_REFUSED, /* it could not even start */
	PP_FAKE_BLOCKED, /* nothing moved: it needs something from elsewhere */
	PP_FAKE_MOVED,   /* something did, not all */
	PP_FAKE_FINISHED,
};

struct pp_fake_operation;

struct pp_fake_operation_kind {
	/* Goes on with the operation, without the lock and without ever waiting. NULL: nothing to do. */
	enum pp_fake_outcome (*step)(struct pp_fake_operation *operation);
	/* Ready for another run (in graphs); NULL: always. Without the lock. */
	void (*restart)(struct pp_fake_operation *operation);
	/* What it waits for, for the table of a deadlock; NULL: its name says it. */
	void (*describe)(const struct pp_fake_operation *operation, char *text, size_t size);
	/* Frees it. With the lock. */
	void (*release)(struct pp_fake_operation *operation);
	bool talks;    /* moves by what other streams or processes do: step it again now and then */
	bool computes; /* a step may take long */
};

struct pp_fake_operation {
	const struct pp_fake_operation_kind *kind;
	struct pp_fake_operation *next;
	const char *name; /* must stay */
	/* Starts only after; is done with; has started. NULL: none. */
	struct pp_fake_record *awaits, *records, *starts;
	/* The place of the last record of a chain (a communicator, a graph): operations with the same one follow each other
	 * in the order of the calls, whatever their streams. NULL: in no chain. */
	struct pp_fake_record **chain;
	struct pp_fake_touch *touches; /* the operation's own */
	uint32_t touch_count;
	char token;
};

struct CUstream_st {
	struct CUstream_st *next; /* of all */
	int device;
	int priority; /* below 0: before others */
	uint32_t agent;
	const char *where; /* "stream 2 of host 0", for reports; stays */
	struct pp_fake_clock clock;
	struct pp_fake_operation *head, *tail;
	uint64_t given, finished;
	uint64_t waits, event_records; /* calls, for planted faults */
	bool running;                  /* a thread is at its head */
	bool blocked;                  /* at its last step the head didn't move, at this count of attempts: */
	uint64_t tried_at;
	uint64_t rests_until; /* jitter */
	bool destroyed;       /* goes when it has run dry */
	struct pp_fake_capture *capture;
	uint32_t *capture_after; /* nodes that the next captured operation depends on */
	uint32_t capture_after_count;
	struct pp_fake_fiber fiber;
};

/* All streams, by `next`. */
struct CUstream_st *pp_fake_streams(void);
/* The stream of a handle; NULL, reported, if it is the NULL stream or none. */
struct CUstream_st *pp_fake_stream(cudaStream_t handle, const char *call);

/* The operation that base members are set of, zeroed: `bytes` is the size of the whole. */
void *pp_fake_operation_make(const struct pp_fake_operation_kind *kind, size_t bytes, const char *name);
void pp_fake_operation_touches(struct pp_fake_operation *operation, const void *start, uint64_t bytes, bool writes);
/* Sets the operation behind the last of its chain, and as its last. Done by pp_fake_submit. */
void pp_fake_operation_chain(struct pp_fake_operation *operation, struct pp_fake_record **chain);
void pp_fake_operation_free(struct pp_fake_operation *operation);
void pp_fake_operation_text(const struct pp_fake_operation *operation, char *text, size_t size);
extern const struct pp_fake_operation_kind pp_fake_nothing; /* waits and records */

/* Gives the stream the operation, which is the stream's then; where the stream is being captured the graph's. Touches
 * are checked. An error: the operation is freed and nothing has changed. */
cudaError_t pp_fake_submit(struct pp_fake_host *host, struct CUstream_st *stream, struct pp_fake_operation *operation);

/* What cudaEventRecord and cudaStreamWaitEvent do, captures included. The record is the caller's to drop; NULL: an
 * error. */
struct pp_fake_record *pp_fake_stream_record(struct pp_fake_host *host, struct CUstream_st *stream);
cudaError_t pp_fake_stream_wait(struct pp_fake_host *host, struct CUstream_st *stream, struct pp_fake_record *record);

/* A launch of this code, which CUDA loads if it is the first of the process: reported within a step and in a capture.
 */
void pp_fake_code_runs(const struct CUstream_st *stream, uint64_t code, const char *name);

/* Blocks until all that the stream has been given has run. */
void pp_fake_stream_await(struct pp_fake_host *host, struct CUstream_st *stream, const char *call);
/* The same for all streams of a device. */
void pp_fake_streams_await(struct pp_fake_host *host, int device, const char *call);
/* Frees a destroyed stream that has run dry. */
void pp_fake_stream_reap(struct CUstream_st *stream);

/* Does the operation block its stream at the moment, as far as the last attempts say? */
bool pp_fake_stream_stuck(const struct CUstream_st *stream);

/* The threads that run streams: started with the first work. */
void pp_fake_pool_start(void);

/* Peer access of one device to another's memory. */
bool pp_fake_peers(int device, int other);

#endif
