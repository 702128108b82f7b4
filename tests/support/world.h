/* Transports as tests see them: a world of ranks that are threads of the test, each with an endpoint that is bound to a
 * program and, where a device has memory of its own, to a device. */
#ifndef PP_TEST_WORLD_H
#define PP_TEST_WORLD_H

#include "executor/transport.h"

/* The memory that a rank's posts lie in, if it is not the host's. Copies are behind all that the device was given, and
 * over when they return. */
struct pp_test_memory {
	void *context;
	void *(*take)(void *context, size_t bytes);
	void (*give)(void *context, void *there);
	void (*put)(void *context, void *there, const void *here, size_t bytes);
	void (*get)(void *context, void *here, const void *there, size_t bytes);
};

struct pp_test_seat {
	uint32_t rank;
	const struct pp_transport_ops *ops;
	struct pp_endpoint *endpoint;
	const struct pp_test_memory *memory; /* NULL: the host's */
	bool any_order;                      /* sums come in any order: values are such that it does not matter */
	void *world;                         /* implementer's */
};

/* A kind of world. Functions assert that they succeed. */
struct pp_test_world {
	const char *name;
	const struct pp_transport_ops *ops;
	/* Each in a process of its own: what it uses belongs to the threads that began with it. Options of transports
	 * change nothing of how it moves data. */
	bool apart;
	/* All of it, before any thread. */
	void *(*open)(const struct pp_program *program, const struct pp_transport_options *options);
	void (*close)(void *world);
	/* By the thread of the rank; NULL for `leave`: nothing to do. Nobody leaves before all have run. */
	void (*enter)(void *world, uint32_t rank, struct pp_test_seat *seat);
	void (*leave)(struct pp_test_seat *seat);
};

extern const struct pp_test_world pp_test_world_loop, pp_test_world_local;

/* Run every rank in a thread of its own. False: at least one returned false. */
bool pp_test_threads(const struct pp_test_world *world, const struct pp_program *program,
                     const struct pp_transport_options *options,
                     bool (*run)(void *context, const struct pp_test_seat *), void *context);

#endif
