/* Any transport, with its posts in queues (ir/queues.h): a post goes to the transport below only when those before it
 * in its queue are over. So posts wait for each other as they do where several channels share one in-order stream; a
 * program must be proven for the layout, or its ranks may wait for ever. Posts of bodies keep a way of their own. */
#ifndef PP_QUEUED_H
#define PP_QUEUED_H

#include "executor/transport.h"

/* An endpoint over that of another transport, for the rank at `coord`. Everything is allocated here. NULL on failure.
 * Where the transport below may buffer, let it send synchronously: else a queue goes on before a message has arrived.
 */
struct pp_endpoint *pp_queued_open(const struct pp_program *program, struct pp_coord coord, enum pp_layout layout,
                                   const struct pp_transport_ops *ops, struct pp_endpoint *below,
                                   struct pp_status *status);
void pp_queued_close(struct pp_endpoint *endpoint);

extern const struct pp_transport_ops pp_transport_queued;
/* Over a transport in stream order. */
extern const struct pp_transport_ops pp_transport_queued_ordered;

#endif
