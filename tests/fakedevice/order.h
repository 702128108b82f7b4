/* The order in which operations of several communicators get onto one device: free, or that of the calls
 * (NCCL_LAUNCH_ORDER_IMPLICIT=1, or PP_FAKE_ORDERED=1 whatever that says): then an operation starts when the one before
 * it has started, or, with drivers older than 12.3, when that one has ended. Lock held. */
#ifndef PP_FAKE_ORDER_H
#define PP_FAKE_ORDER_H

#include "stream.h"

/* Makes the stream wait for its turn; nothing where the order is free. */
cudaError_t pp_fake_order_wait(struct pp_fake_host *host, struct CUstream_st *stream);
/* The operation, to be submitted next, is now the last of the device. */
void pp_fake_order_mark(struct CUstream_st *stream, struct pp_fake_operation *operation);
/* Communicators of one device are for one thread: several at a time is reported. */
void pp_fake_order_thread(const struct pp_fake_host *host, int device);

/* Room for one more NCCL operation on the device, where there is room for a few only (PP_FAKE_RESIDENT). Without the
 * lock. */
bool pp_fake_order_enter(int device);
void pp_fake_order_leave(int device);

#endif
