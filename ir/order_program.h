/* A program seen as an order of computes under costs (order.h): for bounds, predictions and views. */
#ifndef PP_ORDER_PROGRAM_H
#define PP_ORDER_PROGRAM_H

#include "order.h"
#include "program.h"

/* The costs of a program. Hops are latency + bytes / bandwidth of the channel, `held` the bytes of a stash, bytes
 * besides are what a backward keeps for a short time; `room` is what no program of these stages leaves more than: the
 * capacity without the reserve, static slots, the least workspace, and the messages of one compute. */
struct pp_order_problem *pp_order_of_program(struct pp_arena *arena, const struct pp_program *program);

/* What a compute of a stage takes in and gives out, as slots: forward and backward messages over a border look alike.
 */
uint64_t pp_order_passing_bytes(const struct pp_program *program, uint32_t stage);

/* The order of the computes of `named`, [ranks]. */
struct pp_row *pp_order_rows_of(struct pp_arena *arena, const struct pp_program *program,
                                const struct pp_named_program *named);

#endif
