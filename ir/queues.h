/* The FIFO queues of a transport: which posts stand in one queue, per layout. A message or collective starts only when
 * all of its posts head their queues.
 *
 *   channel    one queue per channel and end
 *   edge       one per directed pair of ranks and end
 *   direction  one per rank for activations, one for gradients
 *   pair       one per rank and neighbour
 *   rank       one per rank, for everything
 *   blocking   as rank, and a rank goes on only when its post has completed
 *
 * Collectives: in the last two layouts the rank's queue; else one queue per group and member. On the symbolic axes,
 * whose members all run the same stream, that is one per group and pipeline rank. */
#ifndef PP_QUEUES_H
#define PP_QUEUES_H

#include "arena.h"
#include "json.h"
#include "program.h"

struct pp_queues {
	const struct pp_program *program;
	enum pp_layout layout;
	uint32_t *channel[2]; /* [channels] per end (0: source, 1: destination): its queue */
	uint32_t *group;      /* [groups]: queue of the first member, the others follow; PP_NULL: the rank's */
	uint32_t count;
};

struct pp_queues pp_queues_assign(struct pp_arena *arena, const struct pp_program *program, enum pp_layout layout);

/* The queue of a member's post of a collective. */
uint32_t pp_queues_collective(const struct pp_queues *queues, uint32_t group, uint32_t rank);

/* The names of a set of layouts (bit per enum pp_layout), as an array. */
void pp_layouts_json(struct pp_json *json, const char *key, uint32_t layouts);

/* Position of a rank among the members of a pp group to which it belongs. */
uint32_t pp_group_member(const struct pp_group *group, uint32_t rank);

#endif
