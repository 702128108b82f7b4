/* A program seen as an order of computes under costs (order.h): for bounds, predictions and views. */
#ifndef PP_ORDER_PROGRAM_H
#define PP_ORDER_PROGRAM_H

#include "order.h"
#include "program.h"

/* The costs of a program. Hops are latency + bytes / bandwidth of the channel, `held` the bytes of a stash, bytes
 * besides are what a backward keeps for a short time; `room` is the capacity without the reserve, static bytes and all
 * else (messages, workspace, padding) that the plan of `train` takes beside its stashes. Without a plan: without the
 * reserve and static bytes. */
struct pp_order_problem *pp_order_of_program(struct pp_arena *arena, const struct pp_program *program);

/* The order of the computes of `named`, [ranks]. */
struct pp_row *pp_order_rows_of(struct pp_arena *arena, const struct pp_program *program,
                                const struct pp_named_program *named);

#endif
