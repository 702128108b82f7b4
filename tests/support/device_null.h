/* A device that computes identities instead of layers: every forward writes a pattern that names (stage, microbatch,
 * step) and checks that its input names what it should; backwards likewise. Gradients get sums of numbers whose order
 * of addition matters. So a run on this device shows that every value reached the right place. */
#ifndef PP_DEVICE_NULL_H
#define PP_DEVICE_NULL_H

#include "executor/device.h"

extern const struct pp_device_ops pp_device_null;
/* The same, but bodies do nothing at all: for timing the interpreter. */
extern const struct pp_device_ops pp_device_void;

/* Number of wrong values seen, and the first of them in words. */
unsigned pp_device_null_errors(const struct pp_device *device, const char **first);

/* Hash of all gradient slots. */
uint64_t pp_device_null_digest(const struct pp_device *device);

#endif
