/* The loop transport: all ranks are threads of this process. Zero buffering: data moves from slot to slot when both
 * ends are posted, and whichever end polls first moves it, or has it moved (loop_mover.h). It defines correct
 * behaviour; other transports are held to it. */
#ifndef PP_TRANSPORT_LOOP_H
#define PP_TRANSPORT_LOOP_H

#include "loop_mover.h"

struct pp_loop;

/* Channels, groups and endpoints of all ranks of a verified program. NULL: out of memory. */
struct pp_loop *pp_loop_create(const struct pp_program *program, const struct pp_transport_options *options,
                               struct pp_status *status);
void pp_loop_destroy(struct pp_loop *loop);

/* Before any endpoint is used: data is moved by this mover, so ranks use pp_transport_loop_ordered. */
void pp_loop_move_by(struct pp_loop *loop, const struct pp_loop_mover *mover);

/* The endpoint of a world rank: used by one thread. Memory given to posts must live until pp_loop_destroy if a rank
 * fails. */
struct pp_endpoint *pp_loop_endpoint(struct pp_loop *loop, uint32_t world);

extern const struct pp_transport_ops pp_transport_loop;

/* The same between ranks whose devices have memory of their own, over a mover: in stream order. Channels are matched as
 * above; a transfer runs once both devices have got to the posts. */
extern const struct pp_transport_ops pp_transport_loop_ordered;

#endif
