/* Reading back what `piperun --trace` wrote: the times of every instruction, step by step. */
#ifndef PP_TRACE_READ_H
#define PP_TRACE_READ_H

#include "ir/json_read.h"
#include "ir/measure.h"

/* Feed every step but the first (unless it is the only one) to `measure`. False: *reader says where the file is no
 * trace of a run of this program, or holds no whole step. */
bool pp_trace_read(struct pp_arena *arena, const struct pp_program *program, const struct pp_named_program *named,
                   struct pp_json_reader *reader, struct pp_measure *measure);

/* What a JSON file of ours is, by its head or its "otherData"; "" where they do not say. */
struct pp_json_head {
	char schema[40], transport[16];
};
struct pp_json_head pp_json_head(const char *text, size_t length);

#endif
