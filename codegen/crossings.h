/* Values that cross from rank to rank, before there are channels: two for each border between stages of different
 * ranks. The lowering makes channels of them, and whoever asks for prices beforehand finds the same ones. */
#ifndef PP_CROSSINGS_H
#define PP_CROSSINGS_H

#include "ir/arena.h"
#include "ir/program.h"

struct pp_crossing {
	uint32_t source, destination; /* ranks */
	uint8_t kind;                 /* enum pp_value */
	uint32_t border;              /* the stage before the border: the value looks like its output */
};

/* Sorted by source, destination, kind, border: those of a channel follow each other. At most 2 * stages. */
uint32_t pp_crossings_find(struct pp_arena *arena, const uint32_t *stage_rank, uint32_t stages,
                           struct pp_crossing **crossings);

static inline bool pp_crossings_share(const struct pp_crossing *a, const struct pp_crossing *b)
{
	return a->source == b->source && a->destination == b->destination && a->kind == b->kind;
}

/* The stage that makes the value. */
static inline uint32_t pp_crossing_maker(const struct pp_crossing *crossing)
{
	return crossing->kind == PP_ACT ? crossing->border : crossing->border + 1;
}

#endif
