/* Runs a body on the CPU. Part of device_cpu. */
#ifndef PP_BODY_CPU_H
#define PP_BODY_CPU_H

#include "device.h"

/* A call with its operands bound to addresses; weights and gradients lie in the arena at the offsets of their slots. */
struct pp_cpu_call {
	const struct pp_body *body;
	bool first; /* write gradients instead of adding */
	unsigned char *base[PP_BASE_COUNT];
	unsigned char *arena;
	const struct pp_slot *slots;
	const struct pp_body_link *link; /* polled between instructions and during sleeps; may be NULL */
	uint32_t tp, tp_coord;           /* size of the tensor-parallel group, own position */
	uint32_t *tickets;               /* [registers of the body]: of posts */
};

bool pp_cpu_has_op(enum pp_body_op op);

/* False: an await failed, the run is lost. */
bool pp_cpu_run_body(const struct pp_cpu_call *call);

#endif
