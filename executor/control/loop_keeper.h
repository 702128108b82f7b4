/* Keeps an eye on ranks that are threads of this process: what control/star.h is for processes. */
#ifndef PP_LOOP_KEEPER_H
#define PP_LOOP_KEEPER_H

#include "stall.h"

#include "executor/watch.h"

#include "ir/status.h"

struct pp_loop_keeper;

/* All pointers are the caller's. NULL: out of memory. */
struct pp_loop_keeper *pp_loop_keeper_open(const struct pp_program *program, struct pp_watch *watches,
                                           const struct pp_limits *limits, const struct pp_keeper_files *files);
void pp_loop_keeper_close(struct pp_loop_keeper *keeper);

/* A rank has ended, is lost or gave up (then *status says why). By any thread. */
void pp_loop_keeper_tell(struct pp_loop_keeper *keeper, uint32_t world, enum pp_standing standing,
                         const struct pp_status *status);

/* To be called again and again. If the run is lost, it prints the report and ends the process. */
void pp_loop_keeper_look(struct pp_loop_keeper *keeper);

/* As of the star. */
void pp_loop_keeper_signal(struct pp_loop_keeper *keeper, const char *why);
void pp_loop_keeper_stop(struct pp_loop_keeper *keeper, const char *why);

#endif
