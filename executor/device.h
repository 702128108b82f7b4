/* A device: where bodies and local step-tail instructions run. Implementations: device_cpu.c (later CUDA). One device
 * object per world rank; ranks may be threads of one process, so no device keeps global state.
 *
 * The arena is owned by the device. Slots are addressed by (slot index of the rank); the device resolves offsets. */
#ifndef PP_DEVICE_H
#define PP_DEVICE_H

#include "ir/grid.h"
#include "ir/status.h"

#include <stdbool.h>
#include <stdint.h>

struct pp_device; /* implementer's context */
struct pp_loop_mover;

/* Operands of one body call: slots of the rank or PP_NULL. */
struct pp_call {
	const struct pp_body *body;
	uint32_t mb; /* selects the entry in the losses slot */
	bool first;  /* write gradients instead of adding */
	uint32_t in, aux, out, stash, extra, dout, din;
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

struct pp_device_ops {
	const char *name; /* "cpu" */
	/* What moves its memory between ranks that are threads of one process; NULL: memcpy does. */
	const struct pp_loop_mover *mover;
	bool (*supports)(enum pp_body_op op);
	/* Allocate the arena of this coordinate's pipeline rank and prepare every body. Nothing is allocated after this. */
	struct pp_device *(*create)(const struct pp_program *program, struct pp_coord coord, struct pp_status *status);
	/* As create, with `guard` bytes of host memory before and after the arena that belong to nobody; NULL where the
	 * device has no such thing. */
	struct pp_device *(*create_guarded)(const struct pp_program *program, struct pp_coord coord, uint64_t guard,
	                                    struct pp_status *status);
	void (*destroy)(struct pp_device *device);
	/* Host address of a slot for transports and data (CPU: in the arena itself). */
	void *(*slot)(struct pp_device *device, uint32_t slot);
	/* Run a body. `link` may be NULL: no transport (then tp = 1). False: an await failed, the run is lost. */
	bool (*call)(struct pp_device *device, const struct pp_call *call, const struct pp_body_link *link);
	void (*zero)(struct pp_device *device, uint32_t slot);
	/* Here and below `shard`: on the own dp shard of gradients and weights only, else on all elements of the tensor. */
	void (*add)(struct pp_device *device, uint32_t destination, uint32_t source, bool shard);
	/* Writes 0 on coordinates that must not count: of tensors that all tp coordinates hold, all but the first. Sums
	 * shard by shard, so that the norms of shards add up to that of the whole, bit for bit. */
	void (*sqnorm)(struct pp_device *device, uint32_t grad, uint32_t norms, uint32_t tensor, bool shard);
	void (*clip)(struct pp_device *device, const struct pp_hyper *hyper, enum pp_mean mean, uint32_t losses,
	             uint32_t norms, uint32_t scale);
	/* `step` from 1 (bias correction); `scale` is the rank's scale slot. Does nothing if scale[2] is 0. */
	void (*opt)(struct pp_device *device, enum pp_optimizer rule, const struct pp_hyper *hyper, double lr,
	            uint64_t step, uint32_t weight, uint32_t grad, uint32_t moment1, uint32_t moment2, uint32_t scale,
	            bool shard);
	/* Initialise the weights of the rank by global tensor name (init.h), moments and everything else to 0. */
	void (*init)(struct pp_device *device, uint64_t seed);
};

extern const struct pp_device_ops pp_device_cpu;

#endif
