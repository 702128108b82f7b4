/* Writing a Chrome trace (JSON; chrome://tracing, Perfetto): one process per rank, one thread per track. Times are ns
 * from the start of the run, printed in µs with three decimals. Shared by `pipedump --format=trace` (predicted) and
 * `piperun --trace` (measured). Events may come in any order. */
#ifndef PP_TRACE_H
#define PP_TRACE_H

#include "grid.h"
#include "text/text_write.h"

#include <stdbool.h>
#include <stdint.h>

enum pp_trace_track {
	PP_TRACE_COMPUTE,
	PP_TRACE_PAIRED,
	PP_TRACE_SEND,
	PP_TRACE_RECV,
	PP_TRACE_COLLECTIVE,
	PP_TRACE_TRACKS
};

struct pp_trace {
	struct pp_writer writer;
	uint32_t ranks;
	const struct pp_program *grid;
	bool comma;
};

/* An action of a slice; stage and mb are PP_NULL where they mean nothing. */
struct pp_trace_slice {
	uint32_t rank;
	enum pp_trace_track track;
	const char *name;     /* "F2.5" */
	const char *category; /* "F", "send", … */
	uint64_t start, end;  /* ns */
	uint32_t stage, mb;
	uint64_t bytes; /* 0: not printed */
};

/* `grid`: the program whose world ranks these are, to be named with their coordinates; NULL: numbers alone.
 * `transport`: that of the run, NULL: predicted. */
void pp_trace_begin(struct pp_trace *trace, FILE *out, uint32_t ranks, const struct pp_program *grid,
                    const char *transport);
void pp_trace_slice(struct pp_trace *trace, const struct pp_trace_slice *slice);

/* An arrow from the slice on `rank` that holds time `at` to the one of the matching end call: same id. */
void pp_trace_flow_start(struct pp_trace *trace, uint64_t id, uint32_t rank, enum pp_trace_track track, uint64_t at);
void pp_trace_flow_end(struct pp_trace *trace, uint64_t id, uint32_t rank, enum pp_trace_track track, uint64_t at);

/* A step of a rank's curve, such as "memory (bytes)". */
void pp_trace_counter(struct pp_trace *trace, uint32_t rank, const char *name, uint64_t at, uint64_t value);

void pp_trace_end(struct pp_trace *trace);

#endif
