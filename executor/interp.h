/* The interpreter: runs one rank's stream of one step, instruction by instruction. It decides nothing, allocates
 * nothing and compares no strings; its dispatch table is made from ops.def, so an op without a handler does not
 * compile. */
#ifndef PP_INTERP_H
#define PP_INTERP_H

#include "data.h"
#include "device.h"
#include "fault.h"
#include "transport.h"
#include "watch.h"

#include "ir/program.h"
#include "ir/status.h"

struct pp_interp {
	/* Set by the owner before the first step. */
	const struct pp_program *program;
	uint32_t world; /* world rank */
	const struct pp_device_ops *device_ops;
	struct pp_device *device;
	const struct pp_transport_ops *transport;
	struct pp_endpoint *endpoint;
	const struct pp_data_source *data; /* NULL: no loads in the program */
	struct pp_watch *watch;
	uint64_t jitter; /* seed of random delays before posts and compute; 0: none */
	struct pp_fault fault;
	/* Set by the owner before each step. */
	uint64_t step;  /* from 1 */
	uint64_t batch; /* of an evaluation after that step, from 1; 0: this is the step */
	double lr;
	/* Where times are kept, or NULL: [2 * count of the stream], start and end of each instruction, pp_clock(). Of a
	 * device with a clock of its own: when it began and ended them. */
	uint64_t *times;

	/* Made by pp_interp_open. */
	struct pp_coord coord;
	struct pp_body_link link;
	void **slots;    /* address of each slot of the rank: for transports */
	uint32_t scale;  /* slot, PP_NULL: none */
	uint32_t losses; /* slot, PP_NULL: none */
	/* Results of the last step. */
	uint64_t began, ended;     /* pp_clock() */
	bool timed;                /* the next two are known: not of every step where the device has a clock of its own */
	uint64_t computed;         /* ns in fwd, remat, bwd, bwdi, bwdw */
	uint64_t last_compute_end; /* pp_clock(); `began` if nothing was computed */
	uint32_t bad_loss;         /* first microbatch of this rank's own with a loss that is not finite, PP_NULL: none */
	bool summed;               /* losses are being summed over ranks: the device has kept those of its own */
	struct pp_status *status;  /* of the running step */
	bool lost;                 /* a planted `exit` has been reached: vanish without a word */
};

/* Check and prepare; false: out of memory. */
bool pp_interp_open(struct pp_interp *interp, struct pp_status *status);
void pp_interp_close(struct pp_interp *interp);

/* Marks (device.h) that streams of the program take. */
uint32_t pp_interp_marks(const struct pp_program *program);

/* Run one step of a program's stream, to its end on the device. False: *status says why (PP_EXIT_RUN); the other ranks
 * have not been told. */
bool pp_interp_step(struct pp_interp *interp, const struct pp_stream *stream, struct pp_status *status);

/* Between steps: what a slot holds. As the device's. */
bool pp_interp_read(const struct pp_interp *interp, uint32_t slot, uint64_t offset, uint64_t bytes, void *to,
                    struct pp_status *status);
bool pp_interp_write(const struct pp_interp *interp, uint32_t slot, uint64_t offset, uint64_t bytes, const void *from,
                     struct pp_status *status);

#endif
