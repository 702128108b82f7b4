/* Noticing that no rank moves any more. */
#ifndef PP_STALL_H
#define PP_STALL_H

#include "judge.h"

/* Longest times without progress, ns. */
struct pp_limits {
	uint64_t stretch[PP_STRETCH_COUNT]; /* of any rank; the longest of those that ranks are in holds */
	uint64_t heartbeat;                 /* of one process */
};

/* Paths, or NULL. */
struct pp_keeper_files {
	const char *stop;   /* stop once this file is there */
	const char *report; /* append the report here as well */
};

struct pp_stall {
	struct pp_seen *last; /* of each rank */
	uint64_t moved;       /* pp_clock() when any of them last did */
};

/* False: out of memory. */
bool pp_stall_open(struct pp_stall *stall, uint32_t world);
void pp_stall_close(struct pp_stall *stall);

/* Ranks that are present have stood still for longer than their limit; `text` then says so. */
enum { PP_OCCASION_BYTES = 128 };
bool pp_stall_look(struct pp_stall *stall, const struct pp_scene *scene, const struct pp_limits *limits,
                   char text[PP_OCCASION_BYTES]);

#endif
