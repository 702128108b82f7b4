/* Who moves the data of a transfer, by transport: a parameter of the simulation.
 *
 * Hardware that copies on its own is the default of the compiler. Ranks of `loop` are threads: whichever of both ends
 * posts, waits or polls does the copy. `mpi` gets nowhere unless it is called at both ends: while a rank computes, data
 * moves where its body polls, between its instructions and every 200 us of a timed sleep. `nccl` copies with part of
 * the device: while a transfer of its own is under way a rank computes more slowly (share of the device: Calculon,
 * Isaev et al. 2023: 0.15 within a node, 0.02 between nodes). */
#ifndef PP_PROGRESS_H
#define PP_PROGRESS_H

#include <stdint.h>

enum pp_moves { PP_MOVES_ALONE, PP_MOVES_BY_ONE, PP_MOVES_BY_ALL }; /* a transfer begins when … has polled */

struct pp_progress_model {
	const char *transport;
	uint8_t moves;        /* enum pp_moves */
	uint32_t permille[2]; /* of a rank's speed that a transfer takes: on a node, between nodes */
};

enum { PP_PROGRESS_MODELS = 4, PP_PROGRESS_NAP = 200000 }; /* ns between polls of a timed sleep */
#define PP_PROGRESS_NAMES "none|loop|mpi|nccl"
extern const struct pp_progress_model pp_progress_models[PP_PROGRESS_MODELS]; /* in the order of these names */

/* The model of a transport, NULL: unknown. */
const struct pp_progress_model *pp_progress_find(const char *transport);

#endif
