/* The ordering problem (ir/order.h) of stages that are split and priced, before there is a program. */
#ifndef PP_ORDER_PROBLEM_H
#define PP_ORDER_PROBLEM_H

#include "ir/order.h"
#include "ir/stages.h"

/* requires: stages->items (pp_cost_stages), stage_rank of each. headroom: bytes of every rank that an earlier plan took
 *           beside static bytes and what its order held; NULL: not planned yet, then workspace and the messages of one
 *           stage are counted. memory: a bound on what a rank may use, 0: none.
 * ensures:  the costs that pp_order_of_program finds in the finished program (pairs apart); room: capacity without
 *           reserve, or the bound if that is less, without static bytes and headroom. */
struct pp_order_problem *pp_order_of_stages(struct pp_arena *arena, const struct pp_spec *spec,
                                            const uint32_t *stage_rank, const struct pp_stages *stages,
                                            const uint64_t *headroom, uint64_t memory);

/* What a rank's arena may take: the memory of the device without its reserve, or `memory` (0: none) if that is less;
 * PP_ROOM_UNLIMITED: neither is given. */
uint64_t pp_order_limit(const struct pp_spec *spec, uint64_t memory);

/* Give the problem its `most_room`. least: [ranks], bytes that every program of these stages needs beside what its
 * order holds (memory_floor.h). planned: room was made from a plan, else it is an estimate that this takes the place
 * of. */
void pp_order_be_certain(struct pp_arena *arena, const struct pp_spec *spec, const uint64_t *least, uint64_t memory,
                         bool planned, struct pp_order_problem *problem);

/* An estimate of room that leaves a rank less than one microbatch takes is raised to that where a program may leave so
 * much. And what goes beyond is halved: orders that hold less need fewer messages too. */
void pp_order_squeeze(struct pp_arena *arena, unsigned halvings, struct pp_order_problem *problem);

/* Bytes that ranks lack for one microbatch on all of their stages, what any order holds at some time: [ranks] added to
 * `bytes`. False: none lacks any. */
bool pp_order_shortage(const struct pp_order_problem *problem, uint64_t *bytes);

/* Bytes that the plan of each rank of a program of these stages took beside their static bytes and what its order
 * holds, and no less than `before` (NULL: nothing known): the headroom of the next problem. */
uint64_t *pp_order_headroom(struct pp_arena *arena, const struct pp_program *program, const struct pp_stages *stages,
                            const uint64_t *before);

#endif
