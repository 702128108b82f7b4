/* A device: where bodies and local step-tail instructions run. Implementations: device_cpu.c, cuda/device_cuda.c. One
 * device object per world rank; ranks may be threads of one process, so no device keeps global state.
 *
 * The arena is owned by the device. Slots are addressed by (slot index of the rank); the device resolves offsets. A
 * device's memory need not be the host's: nobody but the device and transports that say `stream_ordered` computes with
 * addresses of slots; everyone else goes by read, write and keep.
 *
 * What is given to a device (call, zero, add, sqnorm, clip, opt, load_end, keep) runs in this order, perhaps later than
 * the call that gives it returns; settle says when all of it has run. */
#ifndef PP_DEVICE_H
#define PP_DEVICE_H

#include "transport.h"

#include "ir/grid.h"
#include "ir/status.h"

#include <stdbool.h>
#include <stdint.h>

struct pp_device; /* implementer's context */
struct pp_link;
struct pp_loop_mover;

/* The scale slot: four f64 that `clip` writes. */
enum pp_scale { PP_SCALE_FACTOR, PP_SCALE_NORM, PP_SCALE_FINITE, PP_SCALE_TOKENS, PP_SCALE_COUNT };

/* Operands of one body call: slots of the rank or PP_NULL. */
struct pp_call {
	const struct pp_body *body;
	uint32_t mb; /* selects the entry in the losses slot */
	bool first;  /* write gradients instead of adding */
	uint32_t in, aux, out, stash, extra, dout, din;
};

/* One update of a weight: slots of the rank, or PP_NULL. */
struct pp_update {
	enum pp_optimizer rule;
	const struct pp_hyper *hyper;
	double lr;
	uint64_t step; /* from 1 (bias correction) */
	uint32_t weight, grad, moment1, moment2;
	uint32_t master; /* f32 copy of a weight of half precision, which is then rounded from it */
	uint32_t scale;  /* the rank's scale slot: nothing happens if its PP_SCALE_FINITE is 0 */
	bool shard;      /* the own dp shard only, else all elements of the tensor */
};

/* How a body's collectives and polls reach the transport. */
struct pp_body_link {
	void *context;
	/* Called between body instructions so that transports make progress; may be NULL. */
	void (*poll)(void *context);
	/* Post a collective on the tensor-parallel group; returns a ticket for `await`. `count`: elements of `from` for
	 * allreduce and allgather (`to` takes tp * count of the latter), elements of `to` for reducescatter (`from` has
	 * tp * count). `from` may be `to` of an allreduce. From the post to the end of its await nobody reads or writes
	 * `to`, nor writes `from`. */
	uint32_t (*post)(void *context, enum pp_collective kind, enum pp_dtype dtype, const void *from, void *to,
	                 uint64_t count);
	/* Wait for a post. False: the run is lost. */
	bool (*await)(void *context, uint32_t ticket);
};

/* How much of a step a device may keep as one thing to start (CUDA: a graph): nothing, a body, all of it. */
enum pp_graph { PP_GRAPH_OFF, PP_GRAPH_BODY, PP_GRAPH_STEP };

/* What a run asks of its device. All 0: nothing special. */
struct pp_device_options {
	uint64_t guard;   /* bytes before and after the arena that belong to nobody; only where the device has_guards */
	uint32_t local;   /* this rank among those of this machine: which GPU it gets */
	const char *gpus; /* GPUs to use, by ordinal ("0,2"); NULL: all */
	uint32_t marks;   /* numbers that `mark` may get */
	enum pp_graph graph;
};

/* What a device holds of its own memory beside the arena, in bytes: by formula, and as measured, for which others on
 * the same device count too. */
enum pp_device_part {
	PP_DEVICE_CONTEXT, /* the driver's, before anything was allocated */
	PP_DEVICE_BESIDE,  /* scratch that the program has not planned, numbers that change from step to step */
	PP_DEVICE_KERNELS, /* code, and what libraries of kernels hold */
	PP_DEVICE_GRAPHS,
	PP_DEVICE_LATER, /* came after the device was made: links */
	PP_DEVICE_PART_COUNT
};

struct pp_device_holding {
	uint64_t memory, free, pinned; /* of the device; pinned: of the host, for copies */
	uint64_t predicted[PP_DEVICE_PART_COUNT], measured[PP_DEVICE_PART_COUNT];
};

struct pp_device_ops {
	const char *name; /* "cpu", "cuda" */
	bool has_guards;
	bool own_memory; /* slots are not in host memory: only stream-ordered transports can reach them */
	/* What moves its memory between ranks that are threads of one process; NULL: memcpy does. */
	const struct pp_loop_mover *mover;
	/* The same between processes, over a transport on host memory and by itself; NULL: its memory is the host's, or it
	 * cannot. */
	const struct pp_link *staged, *direct;
	/* Is there one on this machine? `apart`: asked by a process of its own. NULL: always. */
	bool (*present)(bool apart);
	bool (*supports)(enum pp_body_op op);
	bool half; /* computes in bf16, too */
	/* Allocate the arena of this coordinate's pipeline rank and prepare every body. Nothing is allocated after this.
	 * `options` may be NULL. Called by the thread that will use the device. */
	struct pp_device *(*create)(const struct pp_program *program, struct pp_coord coord,
	                            const struct pp_device_options *options, struct pp_status *status);
	void (*destroy)(struct pp_device *device);
	/* Address of a slot, for stream-ordered transports (CPU: host memory, for all). */
	void *(*slot)(struct pp_device *device, uint32_t slot);
	/* Host copies of part of a slot. Slot PP_NULL: the guard before the arena, the arena, and the guard after it, one
	 * after the other. After everything given so far; they return when the copy is made. Not within a captured step. */
	bool (*read)(struct pp_device *device, uint32_t slot, uint64_t offset, uint64_t bytes, void *to,
	             struct pp_status *status);
	bool (*write)(struct pp_device *device, uint32_t slot, uint64_t offset, uint64_t bytes, const void *from,
	              struct pp_status *status);

	/* A step of this stream begins: number `step` from 1, with this learning rate. True: the device knows it by heart,
	 * and of its instructions only loads are to be given. `end`: all has been given. NULL: every step is new to it. */
	bool (*begin)(struct pp_device *device, const struct pp_stream *stream, uint64_t step, double lr);
	void (*end)(struct pp_device *device);
	/* Let go of the steps that it knows by heart: they hold posts of links, and come before them at the end of a run,
	 * however it went. NULL: there are none. */
	void (*forget)(struct pp_device *device);
	/* Run a body. `link` may be NULL: no transport (then tp = 1). False: an await failed, the run is lost. */
	bool (*call)(struct pp_device *device, const struct pp_call *call, const struct pp_body_link *link);
	/* `load`: host memory to fill for its aux slot; load_end makes it arrive in order. They never block. */
	void *(*load_begin)(struct pp_device *device, const struct pp_instr *instr);
	void (*load_end)(struct pp_device *device, const struct pp_instr *instr);
	void (*zero)(struct pp_device *device, uint32_t slot);
	/* Here and below `shard`: on the own dp shard of gradients and weights only, else on all elements of the tensor. */
	void (*add)(struct pp_device *device, uint32_t destination, uint32_t source, bool shard);
	/* Writes 0 on coordinates that must not count: of tensors that all tp coordinates hold, all but the first. Sums
	 * shard by shard, so that the norms of shards add up to that of the whole, bit for bit. */
	void (*sqnorm)(struct pp_device *device, uint32_t grad, uint32_t norms, uint32_t tensor, bool shard);
	void (*clip)(struct pp_device *device, const struct pp_hyper *hyper, enum pp_mean mean, uint32_t losses,
	             uint32_t norms, uint32_t scale);
	void (*opt)(struct pp_device *device, const struct pp_update *update);
	/* A device may hold sqnorm and opt back, so that several start together. Let go of them: called before anything
	 * else is given to the device, to a transport or marked. NULL: nothing is held back. */
	void (*flush)(struct pp_device *device);
	/* Copy the losses slot aside as it is now; `kept` is that copy, readable once settled. Once in a step. */
	void (*keep)(struct pp_device *device, uint32_t slot);
	const void *(*kept)(struct pp_device *device);

	/* Has everything that was given run? Polled at the end of a step. PP_FAILED: `failure` says what went wrong, and at
	 * which instruction if that is known. */
	enum pp_progress (*settle)(struct pp_device *device);
	const char *(*failure)(const struct pp_device *device);

	/* Times by the device's own clock, NULL where calls have run when they return. `mark` notes, under a number below
	 * options.marks that rises within a step, when everything given so far will have run; `marked` gives it in
	 * pp_clock() ns once settled; `passed` is the last number of this step whose time has come, PP_NULL: none. */
	void (*mark)(struct pp_device *device, uint32_t number);
	uint64_t (*marked)(const struct pp_device *device, uint32_t number);
	uint32_t (*passed)(struct pp_device *device);

	/* For --memory. NULL: its memory is the process's. */
	void (*holding)(struct pp_device *device, struct pp_device_holding *holding);

	/* Initialise the weights of the rank by global tensor name (init.h), moments and everything else to 0. */
	bool (*init)(struct pp_device *device, uint64_t seed, struct pp_status *status);
};

extern const struct pp_device_ops pp_device_cpu;

#endif
