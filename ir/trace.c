/* Chrome trace events, one per line. requires: names and categories that are plain ASCII without quotes or
 * backslashes (they come from mnemonics and numbers, not from the user). ensures: valid JSON, the same for the same
 * calls. */
#include "trace.h"

static const char *const track_name[PP_TRACE_TRACKS] = {"compute", "compute (overlapped)", "send", "recv",
                                                        "collective"};

static void event(struct pp_trace *trace, const char *phase, uint32_t rank, unsigned track)
{
	struct pp_writer *w = &trace->writer;
	pp_write_text(w, trace->comma ? ",\n{\"ph\": \"" : "\n{\"ph\": \"");
	trace->comma = true;
	pp_write_text(w, phase);
	pp_write_text(w, "\", \"pid\": ");
	pp_write_uint(w, rank);
	pp_write_text(w, ", \"tid\": ");
	pp_write_uint(w, track);
}

static void text_member(struct pp_writer *w, const char *key, const char *value)
{
	pp_write_text(w, ", \"");
	pp_write_text(w, key);
	pp_write_text(w, "\": \"");
	pp_write_text(w, value);
	pp_write_char(w, '"');
}

static void uint_member(struct pp_writer *w, const char *lead, uint64_t value)
{
	pp_write_text(w, lead);
	pp_write_uint(w, value);
}

/* ns as µs with three decimals. */
static void time_member(struct pp_writer *w, const char *key, uint64_t ns)
{
	pp_write_text(w, ", \"");
	pp_write_text(w, key);
	pp_write_text(w, "\": ");
	pp_write_uint(w, ns / 1000);
	pp_write_char(w, '.');
	pp_write_char(w, (char)('0' + ns / 100 % 10));
	pp_write_char(w, (char)('0' + ns / 10 % 10));
	pp_write_char(w, (char)('0' + ns % 10));
}

/* " pp 2 tp 1 dp 0", where there is more than a pipeline. */
static void write_coordinates(struct pp_trace *trace, uint32_t rank)
{
	struct pp_writer *w = &trace->writer;
	if (!trace->grid || pp_grid_world(trace->grid) == trace->grid->ranks)
		return;
	struct pp_coord coord = pp_grid_coord(trace->grid, rank);
	pp_write_text(w, " pp ");
	pp_write_uint(w, coord.pp);
	pp_write_text(w, " tp ");
	pp_write_uint(w, coord.tp);
	pp_write_text(w, " dp ");
	pp_write_uint(w, coord.dp);
}

/* "rank 07": padded so that viewers that sort by text sort by number. */
static void name_process(struct pp_trace *trace, uint32_t rank)
{
	struct pp_writer *w = &trace->writer;
	uint32_t largest = trace->ranks ? trace->ranks - 1 : 0, place = 1;
	while (largest / place >= 10)
		place *= 10;
	event(trace, "M", rank, 0);
	pp_write_text(w, ", \"name\": \"process_name\", \"args\": {\"name\": \"rank ");
	for (; place > 1 && rank / place == 0; place /= 10)
		pp_write_char(w, '0');
	pp_write_uint(w, rank);
	write_coordinates(trace, rank);
	pp_write_text(w, "\"}}");
	event(trace, "M", rank, 0);
	uint_member(w, ", \"name\": \"process_sort_index\", \"args\": {\"sort_index\": ", rank);
	pp_write_text(w, "}}");
}

static void name_threads(struct pp_trace *trace, uint32_t rank)
{
	struct pp_writer *w = &trace->writer;
	for (unsigned track = 0; track < PP_TRACE_TRACKS; track++) {
		event(trace, "M", rank, track);
		pp_write_text(w, ", \"name\": \"thread_name\", \"args\": {\"name\": \"");
		pp_write_text(w, track_name[track]);
		pp_write_text(w, "\"}}");
		event(trace, "M", rank, track);
		uint_member(w, ", \"name\": \"thread_sort_index\", \"args\": {\"sort_index\": ", track);
		pp_write_text(w, "}}");
	}
}

void pp_trace_begin(struct pp_trace *trace, FILE *out, uint32_t ranks, const struct pp_program *grid,
                    const char *transport)
{
	trace->ranks = ranks;
	trace->grid = grid;
	trace->comma = false;
	pp_write_begin(&trace->writer, out);
	pp_write_text(&trace->writer, "{\"displayTimeUnit\": \"ns\", \"otherData\": {\"schema\": \"pipec.trace/1\"");
	if (transport)
		text_member(&trace->writer, "transport", transport);
	pp_write_text(&trace->writer, "}, \"traceEvents\": [");
	for (uint32_t rank = 0; rank < ranks; rank++) {
		name_process(trace, rank);
		name_threads(trace, rank);
	}
}

void pp_trace_slice(struct pp_trace *trace, const struct pp_trace_slice *slice)
{
	struct pp_writer *w = &trace->writer;
	event(trace, "X", slice->rank, slice->track);
	text_member(w, "name", slice->name);
	text_member(w, "cat", slice->category);
	time_member(w, "ts", slice->start);
	time_member(w, "dur", slice->end - slice->start);
	pp_write_text(w, ", \"args\": {");
	const char *comma = "";
	if (slice->stage != PP_NULL) {
		uint_member(w, "\"stage\": ", slice->stage);
		comma = ", ";
	}
	if (slice->mb != PP_NULL) {
		pp_write_text(w, comma);
		uint_member(w, "\"microbatch\": ", slice->mb);
		comma = ", ";
	}
	if (slice->bytes) {
		pp_write_text(w, comma);
		uint_member(w, "\"bytes\": ", slice->bytes);
	}
	pp_write_text(w, "}}");
}

static void flow(struct pp_trace *trace, const char *phase, uint64_t id, uint32_t rank, enum pp_trace_track track,
                 uint64_t at)
{
	event(trace, phase, rank, track);
	pp_write_text(&trace->writer, ", \"name\": \"message\", \"cat\": \"message\"");
	uint_member(&trace->writer, ", \"id\": ", id);
	time_member(&trace->writer, "ts", at);
}

void pp_trace_flow_start(struct pp_trace *trace, uint64_t id, uint32_t rank, enum pp_trace_track track, uint64_t at)
{
	flow(trace, "s", id, rank, track, at);
	pp_write_char(&trace->writer, '}');
}

void pp_trace_flow_end(struct pp_trace *trace, uint64_t id, uint32_t rank, enum pp_trace_track track, uint64_t at)
{
	flow(trace, "f", id, rank, track, at);
	pp_write_text(&trace->writer, ", \"bp\": \"e\"}");
}

void pp_trace_counter(struct pp_trace *trace, uint32_t rank, const char *name, uint64_t at, uint64_t value)
{
	struct pp_writer *w = &trace->writer;
	event(trace, "C", rank, 0);
	text_member(w, "name", name);
	time_member(w, "ts", at);
	uint_member(w, ", \"args\": {\"value\": ", value);
	pp_write_text(w, "}}");
}

void pp_trace_end(struct pp_trace *trace)
{
	pp_write_text(&trace->writer, "\n]}\n");
	pp_write_flush(&trace->writer);
}
