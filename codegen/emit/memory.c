/* Memory over time. requires: intervals. A dynamic value lives from when the rank comes to the instruction that writes
 * its slot (for a receive: its post) until the last one that touches it before the next write is over (for a send: its
 * wait). The same rule as the simulator's peak. */
#include "emit.h"

#include "ir/lifetime.h"

#include <stdlib.h>
#include <string.h>

struct event {
	uint64_t at;
	int64_t change;
};

struct events {
	struct event *items;
	size_t count, capacity;
};

/* ---- curve ----------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;
	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return (x->change > y->change) - (x->change < y->change); /* what ends goes before what begins */
}

static struct pp_curve sum_up(struct pp_arena *arena, const struct events *events, uint64_t base)
{
	struct pp_curve curve = {.at = PP_NEW_ARRAY(arena, uint64_t, events->count + 1),
	                         .value = PP_NEW_ARRAY(arena, uint64_t, events->count + 1)};
	curve.value[0] = curve.peak = base;
	curve.count = 1;
	if (events->count)
		qsort(events->items, events->count, sizeof *events->items, by_time);
	uint64_t value = base;
	for (size_t i = 0; i < events->count; i++) {
		value += (uint64_t)events->items[i].change;
		if (i + 1 < events->count && events->items[i + 1].at == events->items[i].at)
			continue;
		if (curve.at[curve.count - 1] != events->items[i].at)
			curve.count++;
		curve.at[curve.count - 1] = events->items[i].at;
		curve.value[curve.count - 1] = value;
		if (value > curve.peak) {
			curve.peak = value;
			curve.peak_at = events->items[i].at;
		}
	}
	return curve;
}

static void add_value(struct pp_arena *arena, struct events *events, uint64_t start, uint64_t end, uint64_t size)
{
	if (end <= start || size == 0)
		return;
	*PP_PUSH(arena, &events->items, &events->count, &events->capacity, struct event) =
	    (struct event){start, (int64_t)size};
	*PP_PUSH(arena, &events->items, &events->count, &events->capacity, struct event) =
	    (struct event){end, -(int64_t)size};
}

/* The slots that an instruction writes as new values: bits over a[0] .. a[3], extra. What remat made is no new value of
 * the bwdi behind it. */
static unsigned written(const struct pp_instr *instr)
{
	static const uint8_t writes[PP_OP_COUNT] = {[PP_OP_LOAD] = 1, [PP_OP_FWD] = 4 | 8,   [PP_OP_REMAT] = 16,
	                                            [PP_OP_BWD] = 8,  [PP_OP_BWDI] = 8 | 16, [PP_OP_RECV] = 4};
	return writes[instr->op];
}

/* The slots that it touches. */
static unsigned touched(const struct pp_instr *instr)
{
	static const uint8_t touches[PP_OP_COUNT] = {
	    [PP_OP_LOAD] = 1,  [PP_OP_FWD] = 15,      [PP_OP_REMAT] = 1 | 16, [PP_OP_BWD] = 31,
	    [PP_OP_BWDI] = 31, [PP_OP_BWDW] = 3 | 16, [PP_OP_SEND] = 4,       [PP_OP_RECV] = 4};
	return touches[instr->op];
}

struct value {
	uint64_t start, end;
	bool live, recomputed; /* recomputed: by remat, and not yet touched by its backward */
};

/* A send that has not been waited for. */
struct flight {
	uint32_t channel, sequence, slot;
};

struct walk {
	struct pp_arena *arena;
	const struct pp_rank *memory;
	bool bytes;
	struct value *values; /* per slot */
	struct events events;
	struct flight *flights;
	size_t flight_count, flight_capacity;
	uint64_t clock; /* when the rank comes to the next instruction */
};

static bool is_static(const struct pp_slot *slot)
{
	return pp_slot_is_static((enum pp_slot_class)slot->class);
}

static uint64_t size_of(const struct walk *walk, uint32_t slot)
{
	return walk->bytes ? walk->memory->slots[slot].bytes : walk->memory->slots[slot].class == PP_SLOT_STASH;
}

static void close_value(struct walk *walk, uint32_t slot)
{
	const struct value *value = &walk->values[slot];
	if (value->live)
		add_value(walk->arena, &walk->events, value->start, value->end, size_of(walk, slot));
}

static void touch_slot(struct walk *walk, uint32_t slot, bool writes, struct pp_interval interval)
{
	if (slot >= walk->memory->slot_count || is_static(&walk->memory->slots[slot]))
		return;
	struct value *value = &walk->values[slot];
	if (writes) {
		close_value(walk, slot);
		*value = (struct value){.start = walk->clock, .end = interval.end, .live = true};
	} else if (interval.end > value->end)
		value->end = interval.end;
}

static void touch_extra(struct walk *walk, const struct pp_instr *instr, struct pp_interval interval)
{
	if (instr->extra >= walk->memory->slot_count)
		return;
	struct value *value = &walk->values[instr->extra];
	touch_slot(walk, instr->extra, written(instr) & 16 && !value->recomputed, interval);
	value->recomputed = instr->op == PP_OP_REMAT;
}

/* A send's wait ends its reading. */
static void pass_wait(struct walk *walk, const struct pp_instr *wait, struct pp_interval interval)
{
	for (size_t i = walk->flight_count; i-- > 0;)
		if (walk->flights[i].channel == wait->a[0] && walk->flights[i].sequence == wait->a[1]) {
			touch_slot(walk, walk->flights[i].slot, false, interval);
			walk->flights[i] = walk->flights[--walk->flight_count];
			return;
		}
}

static void pass_instr(struct walk *walk, const struct pp_instr *instr, struct pp_interval interval)
{
	if (pp_is_compute(instr))
		walk->clock = interval.start;
	for (unsigned k = 0; k < 4; k++)
		if (touched(instr) >> k & 1)
			touch_slot(walk, instr->a[k], written(instr) >> k & 1, interval);
	if (touched(instr) & 16)
		touch_extra(walk, instr, interval);
	if (instr->op == PP_OP_SEND)
		*PP_PUSH(walk->arena, &walk->flights, &walk->flight_count, &walk->flight_capacity, struct flight) =
		    (struct flight){instr->a[0], instr->a[1], instr->a[2]};
	if (instr->op == PP_OP_WAIT)
		pass_wait(walk, instr, interval);
	if (instr->op != PP_OP_SEND && instr->op != PP_OP_RECV && instr->op != PP_OP_COLL && interval.end > walk->clock)
		walk->clock = interval.end;
}

struct pp_curve pp_memory_curve(const struct pp_dump *dump, uint32_t rank, bool bytes)
{
	const struct pp_stream *stream = &dump->named->streams[rank];
	struct walk walk = {.arena = dump->arena, .memory = &dump->program->rank[rank], .bytes = bytes};
	walk.values = PP_NEW_ARRAY(dump->arena, struct value, walk.memory->slot_count);
	uint64_t base = 0;
	for (uint32_t s = 0; bytes && s < walk.memory->slot_count; s++)
		base += is_static(&walk.memory->slots[s]) ? walk.memory->slots[s].bytes : 0;
	for (uint32_t i = 0; i < stream->count; i++)
		pass_instr(&walk, &stream->items[i], dump->sim->instr[rank][i]);
	for (uint32_t s = 0; s < walk.memory->slot_count; s++)
		close_value(&walk, s);
	return sum_up(dump->arena, &walk.events, base);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Largest value of the curve in [from, to). */
static uint64_t largest_within(const struct pp_curve *curve, size_t *at, uint64_t from, uint64_t to)
{
	while (*at + 1 < curve->count && curve->at[*at + 1] <= from)
		++*at;
	uint64_t largest = curve->value[*at];
	for (size_t i = *at + 1; i < curve->count && curve->at[i] < to; i++)
		if (curve->value[i] > largest)
			largest = curve->value[i];
	return largest;
}

/* Stashes: their number, a..z from 10, `+` above. Bytes: tenths of the scale, 9 = 90 % and more. */
static char digit_of(const struct pp_dump *dump, uint64_t value, uint64_t scale)
{
	if (!dump->bytes)
		return value == 0 ? '.' : value < 10 ? (char)('0' + value) : value < 36 ? (char)('a' + (value - 10)) : '+';
	uint64_t tenth = scale ? (uint64_t)(10.0 * (double)value / (double)scale) : 0;
	return value == 0 ? '.' : (char)('0' + (tenth > 9 ? 9 : tenth));
}

static uint64_t capacity_of(const struct pp_dump *dump, uint32_t rank)
{
	const struct pp_rank *memory = &dump->program->rank[rank];
	return memory->capacity > memory->reserve ? memory->capacity - memory->reserve : memory->capacity;
}

/* `scale` is what nine tenths and more stand for. */
static void print_curve(const struct pp_dump *dump, uint32_t rank, const struct pp_curve *curve, uint64_t scale,
                        uint32_t columns, uint64_t from, uint64_t to)
{
	size_t at = 0;
	fprintf(dump->out, " r%-3u |", rank);
	for (uint32_t i = 0; i < columns; i++) {
		double slice = (double)(to - from) / columns;
		uint64_t start = from + (uint64_t)(i * slice), end = from + (uint64_t)((i + 1) * slice);
		fputc(digit_of(dump, largest_within(curve, &at, start, end > start ? end : start + 1), scale), dump->out);
	}
	if (dump->bytes)
		fprintf(dump->out, "| peak %s at t=%s\n", pp_show_bytes(dump->arena, curve->peak),
		        pp_dump_time(dump, curve->peak_at));
	else
		fprintf(dump->out, "| peak %llu\n", (unsigned long long)curve->peak);
}

/* A line for every run of chosen ranks with the same capacity. */
static void print_capacities(const struct pp_dump *dump)
{
	const uint32_t ranks = dump->program->ranks;
	for (uint32_t rank = 0, last; rank < ranks; rank = last + 1) {
		last = rank;
		if (!dump->chosen[rank])
			continue;
		while (last + 1 < ranks && dump->chosen[last + 1] && capacity_of(dump, last + 1) == capacity_of(dump, rank))
			last++;
		if (!capacity_of(dump, rank))
			continue;
		fprintf(dump->out, " capacity less reserve: %s on r%u", pp_show_bytes(dump->arena, capacity_of(dump, rank)),
		        rank);
		if (last > rank)
			fprintf(dump->out, "..r%u", last);
		fputc('\n', dump->out);
	}
}

/* Bytes of a rank's static slots by class. */
static void static_bytes(const struct pp_rank *memory, uint64_t bytes[PP_SLOT_CLASS_COUNT])
{
	memset(bytes, 0, PP_SLOT_CLASS_COUNT * sizeof *bytes);
	for (uint32_t i = 0; i < memory->slot_count; i++)
		if (pp_slot_is_static(memory->slots[i].class))
			bytes[memory->slots[i].class] += memory->slots[i].bytes;
}

/* What lies below every curve: "static of r0: weight 231.2 KiB, grad 462.5 KiB, …". */
static void print_statics(const struct pp_dump *dump, uint32_t rank)
{
	uint64_t bytes[PP_SLOT_CLASS_COUNT];
	bool any = false;
	static_bytes(&dump->program->rank[rank], bytes);
	for (unsigned class = 0; class < PP_SLOT_CLASS_COUNT; class ++) {
		if (!bytes[class])
			continue;
		if (!any)
			fprintf(dump->out, " static of r%u:", rank);
		fprintf(dump->out, "%s %s %s", any ? "," : "", pp_slot_class_name[class],
		        pp_show_bytes(dump->arena, bytes[class]));
		any = true;
	}
	if (any)
		fputc('\n', dump->out);
}

static void print_title(const struct pp_dump *dump, uint64_t from, uint64_t to, uint64_t largest)
{
	fprintf(dump->out, "%s over time, %s .. %s %s", dump->bytes ? "live bytes" : "stashes held",
	        pp_dump_time(dump, from), pp_dump_time(dump, to), dump->unit.name);
	if (dump->bytes)
		fprintf(dump->out, "; tenths of the largest peak, %s\n", pp_show_bytes(dump->arena, largest));
	else
		fputs("; a = 10, b = 11, ...\n", dump->out);
}

void pp_emit_memory(const struct pp_dump *dump)
{
	uint64_t end = dump->sim->makespan + dump->sim->tail, to = dump->to < end ? dump->to : end,
	         from = dump->from < to ? dump->from : to, largest = 0;
	const uint32_t around = dump->bytes ? 36 : 20, ranks = dump->program->ranks;
	uint32_t columns = dump->width > around + 20 ? dump->width - around : 20;
	if (!dump->bytes && dump->sim->makespan <= columns && from == 0 && to == end &&
	    to) /* unit costs: a column per unit */
		columns = (uint32_t)to;
	struct pp_curve *curves = PP_NEW_ARRAY(dump->arena, struct pp_curve, ranks);
	for (uint32_t rank = 0; rank < ranks; rank++) {
		if (dump->chosen[rank])
			curves[rank] = pp_memory_curve(dump, rank, dump->bytes);
		largest = curves[rank].peak > largest ? curves[rank].peak : largest;
	}
	print_title(dump, from, to, largest);
	for (uint32_t rank = 0; rank < ranks; rank++)
		if (dump->chosen[rank])
			print_curve(dump, rank, &curves[rank], largest, columns, from, to);
	for (uint32_t rank = 0; rank < ranks && dump->bytes; rank++)
		if (dump->chosen[rank])
			print_statics(dump, rank);
	if (dump->bytes)
		print_capacities(dump);
}

static void json_rank_memory(const struct pp_rank *memory, struct pp_json *json)
{
	uint64_t bytes[PP_SLOT_CLASS_COUNT];
	static_bytes(memory, bytes);
	pp_json_uint(json, "capacity", memory->capacity);
	pp_json_uint(json, "reserve", memory->reserve);
	pp_json_open_object(json, "static");
	for (unsigned class = 0; class < PP_SLOT_CLASS_COUNT; class ++)
		if (bytes[class])
			pp_json_uint(json, pp_slot_class_name[class], bytes[class]);
	pp_json_close(json);
}

void pp_emit_memory_json(const struct pp_dump *dump)
{
	struct pp_json json = pp_json_begin(dump->out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.memory/1");
	pp_json_string(&json, "unit", dump->bytes ? "bytes" : "stashes");
	pp_json_string(&json, "time_unit", pp_dump_time_unit(dump));
	pp_json_open_array(&json, "ranks");
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++) {
		if (!dump->chosen[rank])
			continue;
		struct pp_curve curve = pp_memory_curve(dump, rank, dump->bytes);
		pp_json_open_object(&json, NULL);
		pp_json_uint(&json, "rank", rank);
		pp_json_uint(&json, "peak", curve.peak);
		pp_json_uint(&json, "peak_at", curve.peak_at);
		if (!dump->costless)
			json_rank_memory(&dump->program->rank[rank], &json);
		pp_json_open_array(&json, "at");
		for (size_t i = 0; i < curve.count; i++)
			pp_json_uint(&json, NULL, curve.at[i]);
		pp_json_close(&json);
		pp_json_open_array(&json, "value");
		for (size_t i = 0; i < curve.count; i++)
			pp_json_uint(&json, NULL, curve.value[i]);
		pp_json_close(&json);
		pp_json_close(&json);
	}
	pp_json_close(&json);
	pp_json_close(&json);
	fputc('\n', dump->out);
}
