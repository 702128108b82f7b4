/* Reading a trace: trace_read.h. Slices of a rank stand in the order of its stream, step after step, so the k-th slice
 * of a rank is its k-th instruction that is no mark; category, stage and microbatch must agree with that. */
#include "trace_read.h"

#include "ir/grid.h"
#include "ir/lifetime.h"

#include <string.h>

struct slice {
	char phase[4], category[16];
	uint64_t rank, start, duration, stage, mb;
};

struct taker {
	const struct pp_program *program;
	const struct pp_named_program *named;
	struct pp_measure *measure;
	uint32_t world;
	uint64_t longest;
	uint64_t *times; /* [world][2 * longest] of the step that is being read */
	uint32_t *at;    /* [world]: next instruction */
	uint32_t done;   /* ranks whose step is whole */
	uint64_t steps;  /* whole */
	uint64_t *first; /* times of the first step, in case it is the only one */
	struct pp_json_reader *reader;
};

/* ---- one event ------------------------------------------------------------------------------- */

static bool read_arguments(struct pp_json_reader *reader, struct slice *slice)
{
	char key[32];
	if (!pp_json_enter_object(reader))
		return false;
	while (pp_json_next_key(reader, key, sizeof key)) {
		uint64_t *to = strcmp(key, "stage") == 0 ? &slice->stage : strcmp(key, "microbatch") == 0 ? &slice->mb : NULL;
		if (!(to ? pp_json_get_uint(reader, to, UINT32_MAX) : pp_json_skip(reader)))
			return false;
	}
	return !reader->failed;
}

/* µs with three decimals are ns. */
static bool read_event(struct pp_json_reader *reader, struct slice *slice)
{
	char key[32];
	*slice = (struct slice){.stage = PP_NULL, .mb = PP_NULL};
	if (!pp_json_enter_object(reader))
		return false;
	while (pp_json_next_key(reader, key, sizeof key)) {
		bool ok;
		if (strcmp(key, "ph") == 0)
			ok = pp_json_get_string(reader, slice->phase, sizeof slice->phase);
		else if (strcmp(key, "cat") == 0)
			ok = pp_json_get_string(reader, slice->category, sizeof slice->category);
		else if (strcmp(key, "pid") == 0)
			ok = pp_json_get_uint(reader, &slice->rank, UINT32_MAX);
		else if (strcmp(key, "ts") == 0)
			ok = pp_json_get_decimal(reader, 3, &slice->start);
		else if (strcmp(key, "dur") == 0)
			ok = pp_json_get_decimal(reader, 3, &slice->duration);
		else if (strcmp(key, "args") == 0 && strcmp(slice->phase, "X") == 0)
			ok = read_arguments(reader, slice);
		else
			ok = pp_json_skip(reader);
		if (!ok)
			return false;
	}
	return !reader->failed;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The next instruction at or behind `at` that leaves a slice. */
static uint32_t next_traced(const struct pp_stream *stream, uint32_t at)
{
	while (at < stream->count && stream->items[at].op == PP_OP_MARK)
		at++;
	return at;
}

static const struct pp_stream *stream_of(const struct taker *taker, uint32_t world)
{
	return &taker->named->streams[pp_grid_coord(taker->program, world).pp];
}

static void begin_step(struct taker *taker)
{
	taker->done = 0;
	for (uint32_t world = 0; world < taker->world; world++) {
		taker->at[world] = next_traced(stream_of(taker, world), 0);
		taker->done += taker->at[world] == stream_of(taker, world)->count;
	}
}

static void end_step(struct taker *taker)
{
	if (taker->steps++ == 0)
		memcpy(taker->first, taker->times, taker->world * 2 * taker->longest * sizeof *taker->times);
	else
		pp_measure_step(taker->measure, taker->times, taker->longest);
	begin_step(taker);
}

static const char *category_of(const struct pp_instr *instr)
{
	return pp_is_compute(instr) ? pp_phase_name[pp_phase_of(instr)] : pp_op_table[instr->op].mnemonic;
}

static bool take_slice(struct taker *taker, const struct slice *slice)
{
	if (slice->rank >= taker->world)
		return pp_json_wrong(taker->reader, "rank %llu, but the program has %u", (unsigned long long)slice->rank,
		                     taker->world);
	uint32_t world = (uint32_t)slice->rank, at = taker->at[world];
	const struct pp_stream *stream = stream_of(taker, world);
	if (at >= stream->count)
		return pp_json_wrong(taker->reader, "rank %u has more slices in step %llu than instructions", world,
		                     (unsigned long long)taker->steps + 1);
	const struct pp_instr *instr = &stream->items[at];
	bool same = strcmp(slice->category, category_of(instr)) == 0;
	if (slice->stage != PP_NULL)
		same = same && slice->stage == instr->stage && slice->mb == instr->mb;
	if (!same)
		return pp_json_wrong(taker->reader,
		                     "`%s` where instruction %u of rank %u is a `%s`: a trace of another program",
		                     slice->category, at, world, category_of(instr));
	uint64_t *times = taker->times + 2 * (taker->longest * world + at);
	times[0] = slice->start;
	times[1] = slice->start + slice->duration;
	taker->at[world] = next_traced(stream, at + 1);
	if (taker->at[world] == stream->count && ++taker->done == taker->world)
		end_step(taker);
	return true;
}

static bool take_events(struct taker *taker)
{
	struct pp_json_reader *reader = taker->reader;
	if (!pp_json_enter_array(reader))
		return false;
	while (pp_json_next_item(reader)) {
		struct slice slice;
		size_t place = reader->at;
		if (!read_event(reader, &slice))
			return false;
		reader->token = place;
		if (strcmp(slice.phase, "X") == 0 && !take_slice(taker, &slice))
			return false;
	}
	return !reader->failed;
}

static struct taker begin(struct pp_arena *arena, const struct pp_program *program,
                          const struct pp_named_program *named, struct pp_json_reader *reader)
{
	struct taker taker = {
	    .program = program, .named = named, .world = (uint32_t)pp_grid_world(program), .longest = 1, .reader = reader};
	for (uint32_t r = 0; r < program->ranks; r++)
		if (named->streams[r].count > taker.longest)
			taker.longest = named->streams[r].count;
	taker.times = PP_NEW_ARRAY(arena, uint64_t, taker.world * 2 * taker.longest);
	taker.first = PP_NEW_ARRAY(arena, uint64_t, taker.world * 2 * taker.longest);
	taker.at = PP_NEW_ARRAY(arena, uint32_t, taker.world);
	begin_step(&taker);
	return taker;
}

bool pp_trace_read(struct pp_arena *arena, const struct pp_program *program, const struct pp_named_program *named,
                   struct pp_json_reader *reader, struct pp_measure *measure)
{
	struct taker taker = begin(arena, program, named, reader);
	char key[32];
	taker.measure = measure;
	if (!pp_json_enter_object(reader))
		return false;
	while (pp_json_next_key(reader, key, sizeof key))
		if (!(strcmp(key, "traceEvents") == 0 ? take_events(&taker) : pp_json_skip(reader)))
			return false;
	if (!pp_json_read_end(reader))
		return false;
	if (taker.steps == 0)
		return pp_json_wrong(reader, "this trace holds no whole step of the program");
	if (taker.steps == 1)
		pp_measure_step(measure, taker.first, taker.longest);
	return true;
}

/* ---- head ------------------------------------------------------------------------------------ */

/* Keys up to the first that holds rows. */
static void read_head(struct pp_json_reader *reader, struct pp_json_head *head)
{
	char key[32];
	if (!pp_json_enter_object(reader))
		return;
	while (pp_json_next_key(reader, key, sizeof key) && strcmp(key, "traceEvents") != 0 && strcmp(key, "program") != 0)
		if (strcmp(key, "schema") == 0)
			pp_json_get_string(reader, head->schema, sizeof head->schema);
		else if (strcmp(key, "transport") == 0)
			pp_json_get_string(reader, head->transport, sizeof head->transport);
		else if (strcmp(key, "otherData") == 0 && reader->depth == 1)
			read_head(reader, head);
		else
			pp_json_skip(reader);
}

struct pp_json_head pp_json_head(const char *text, size_t length)
{
	struct pp_json_reader reader = pp_json_read_begin(text, length);
	struct pp_json_head head = {{0}, {0}};
	read_head(&reader, &head);
	return head;
}
