/* Samples of times, and their medians: measure.h.
 *
 * A transfer is timed where that can be done: its receiver must have waited for it when the later of the two posts was
 * made, and both ends must share a clock. The time runs from that post to the end of the wait. A message that had come
 * before anybody waited says only that it took less. */
#include "measure.h"

#include "grid.h"
#include "lifetime.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct samples {
	uint64_t *items;
	size_t count, capacity;
};

struct channel_row {
	uint32_t channel;
	uint64_t bytes;
	struct samples samples;
};

struct joint_row {
	struct pp_profile_joint what;
	struct samples samples;
};

/* A collective of a stream and the instruction that waits for it. */
struct joint {
	uint32_t group, post, wait;
};

struct joints {
	struct joint *items;
	size_t count, capacity;
};

struct pp_measure {
	struct pp_arena *arena;
	const struct pp_program *program;
	const struct pp_named_program *named;
	const uint64_t *clock;
	const uint64_t *times; /* of this step */
	uint64_t longest, steps;
	struct samples *compute; /* [stages * phases] */
	struct samples *busy;    /* [ranks] */
	struct samples *tail;    /* [ranks * ops] */
	struct samples step, makespan, classes[PP_CLASS_COUNT];
	uint64_t spent[PP_CLASS_COUNT];
	uint32_t *first_message;  /* [channels + 1] */
	uint64_t *sent, *awaited; /* [messages]: when the two posts were made */
	uint64_t *bytes;          /* [messages] */
	struct channel_row *rows;
	size_t row_count, row_capacity;
	struct joints *joints; /* [ranks] */
	struct joint_row *joint_rows;
	size_t joint_row_count, joint_row_capacity;
};

static void add(struct pp_measure *measure, struct samples *samples, uint64_t value)
{
	*PP_PUSH(measure->arena, &samples->items, &samples->count, &samples->capacity, uint64_t) = value;
}

/* ---- classes --------------------------------------------------------------------------------- */

unsigned pp_class_of(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr)
{
	if (instr->op == PP_OP_WAIT && program->channels[instr->a[0]].source == rank)
		return PP_CLASS_WAIT_SEND;
	return instr->op;
}

const char *pp_class_name(unsigned kind)
{
	if (kind == PP_CLASS_WAIT_SEND)
		return "wait send";
	return kind == PP_OP_WAIT ? "wait recv" : pp_op_table[kind].mnemonic;
}

/* Ops whose times make rows of the tail. */
static bool is_tail_work(uint8_t op)
{
	static const bool works[PP_OP_COUNT] = {[PP_OP_LOAD] = true,   [PP_OP_ZERO] = true, [PP_OP_ADD] = true,
	                                        [PP_OP_SQNORM] = true, [PP_OP_CLIP] = true, [PP_OP_OPT] = true};
	return works[op];
}

/* ---- preparation ----------------------------------------------------------------------------- */

static void number_messages(struct pp_measure *measure)
{
	const struct pp_program *program = measure->program;
	uint32_t *count = PP_NEW_ARRAY(measure->arena, uint32_t, (size_t)program->channel_count + 1), total = 0;
	for (uint32_t r = 0; r < program->ranks; r++)
		for (uint32_t i = 0; i < measure->named->streams[r].count; i++)
			if (measure->named->streams[r].items[i].op == PP_OP_SEND)
				count[measure->named->streams[r].items[i].a[0]]++;
	for (uint32_t c = 0; c <= program->channel_count; c++) {
		uint32_t own = c < program->channel_count ? count[c] : 0;
		count[c] = total;
		total += own;
	}
	measure->first_message = count;
	measure->sent = PP_NEW_ARRAY(measure->arena, uint64_t, total);
	measure->awaited = PP_NEW_ARRAY(measure->arena, uint64_t, total);
	measure->bytes = PP_NEW_ARRAY(measure->arena, uint64_t, total);
	for (uint32_t r = 0; r < program->ranks; r++)
		for (uint32_t i = 0; i < measure->named->streams[r].count; i++) {
			const struct pp_instr *instr = &measure->named->streams[r].items[i];
			if (instr->op == PP_OP_SEND)
				measure->bytes[count[instr->a[0]] + instr->a[1]] = pp_payload_bytes(instr);
		}
}

static void find_joints(struct pp_measure *measure, uint32_t rank)
{
	const struct pp_stream *stream = &measure->named->streams[rank];
	struct joints *joints = &measure->joints[rank];
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op == PP_OP_COLL)
			*PP_PUSH(measure->arena, &joints->items, &joints->count, &joints->capacity, struct joint) =
			    (struct joint){.group = instr->a[1], .post = i, .wait = PP_NULL};
		/* Ids are used again once they have been waited for: the last post is meant. */
		for (size_t k = instr->op == PP_OP_WAITC ? joints->count : 0; k-- > 0;)
			if (stream->items[joints->items[k].post].a[0] == instr->a[0]) {
				joints->items[k].wait = i;
				break;
			}
	}
}

struct pp_measure *pp_measure_begin(struct pp_arena *arena, const struct pp_program *program,
                                    const struct pp_named_program *named, const uint64_t *clock)
{
	struct pp_measure *measure = PP_NEW(arena, struct pp_measure);
	measure->arena = arena;
	measure->program = program;
	measure->named = named;
	measure->clock = clock;
	measure->compute = PP_NEW_ARRAY(arena, struct samples, (size_t)program->stage_count * PP_PHASE_COUNT);
	measure->busy = PP_NEW_ARRAY(arena, struct samples, program->ranks);
	measure->tail = PP_NEW_ARRAY(arena, struct samples, (size_t)program->ranks * PP_OP_COUNT);
	measure->joints = PP_NEW_ARRAY(arena, struct joints, program->ranks);
	number_messages(measure);
	for (uint32_t r = 0; r < program->ranks; r++)
		find_joints(measure, r);
	return measure;
}

/* ---- one step -------------------------------------------------------------------------------- */

static const uint64_t *times_of(const struct pp_measure *measure, uint32_t world, uint32_t instr)
{
	return measure->times + 2 * (measure->longest * world + instr);
}

static uint64_t duration(const uint64_t *times)
{
	return times[1] > times[0] ? times[1] - times[0] : 0;
}

static bool share_clock(const struct pp_measure *measure, uint32_t a, uint32_t b)
{
	return !measure->clock || measure->clock[a] == measure->clock[b];
}

/* Times of single instructions. Returns the end of the rank's last compute, 0: none. */
static uint64_t take_rank(struct pp_measure *measure, uint32_t world)
{
	const struct pp_program *program = measure->program;
	uint32_t rank = pp_grid_coord(program, world).pp;
	const struct pp_stream *stream = &measure->named->streams[rank];
	uint64_t busy = 0, last = 0, tail[PP_OP_COUNT] = {0};
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		const uint64_t *at = times_of(measure, world, i);
		measure->spent[pp_class_of(program, rank, instr)] += duration(at);
		tail[instr->op] += duration(at);
		if (!pp_is_compute(instr))
			continue;
		add(measure, &measure->compute[instr->stage * (size_t)PP_PHASE_COUNT + pp_phase_of(instr)], duration(at));
		busy += duration(at);
		last = at[1];
	}
	add(measure, &measure->busy[rank], busy);
	for (uint8_t op = 0; op < PP_OP_COUNT; op++)
		if (is_tail_work(op) && tail[op])
			add(measure, &measure->tail[(size_t)rank * PP_OP_COUNT + op], tail[op]);
	return last;
}

static struct samples *channel_samples(struct pp_measure *measure, uint32_t channel, uint64_t bytes)
{
	for (size_t i = measure->row_count; i-- > 0;)
		if (measure->rows[i].channel == channel && measure->rows[i].bytes == bytes)
			return &measure->rows[i].samples;
	struct channel_row *row =
	    PP_PUSH(measure->arena, &measure->rows, &measure->row_count, &measure->row_capacity, struct channel_row);
	*row = (struct channel_row){.channel = channel, .bytes = bytes};
	return &row->samples;
}

static void note_posts(struct pp_measure *measure, uint32_t world, const struct pp_stream *stream)
{
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op != PP_OP_SEND && instr->op != PP_OP_RECV)
			continue;
		uint64_t *posts = instr->op == PP_OP_SEND ? measure->sent : measure->awaited;
		posts[measure->first_message[instr->a[0]] + instr->a[1]] = times_of(measure, world, i)[0];
	}
}

/* The waits of a receiver whose message came while it waited. */
static void take_transfers(struct pp_measure *measure, struct pp_coord coord, const struct pp_stream *stream)
{
	const struct pp_program *program = measure->program;
	uint32_t world = pp_grid_rank(program, coord);
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op != PP_OP_WAIT || program->channels[instr->a[0]].destination != coord.pp)
			continue;
		struct pp_coord source = {.pp = program->channels[instr->a[0]].source, .tp = coord.tp, .dp = coord.dp};
		uint32_t message = measure->first_message[instr->a[0]] + instr->a[1];
		uint64_t sent = measure->sent[message], awaited = measure->awaited[message];
		uint64_t posted = sent > awaited ? sent : awaited;
		const uint64_t *wait = times_of(measure, world, i);
		if (share_clock(measure, world, pp_grid_rank(program, source)) && wait[0] <= posted && posted <= wait[1])
			add(measure, channel_samples(measure, instr->a[0], measure->bytes[message]), wait[1] - posted);
	}
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* The next collective of a group at or behind `from`; NULL: none is left. */
static const struct joint *next_joint(const struct joints *joints, uint32_t group, size_t *from)
{
	while (*from < joints->count)
		if (joints->items[(*from)++].group == group)
			return &joints->items[*from - 1];
	return NULL;
}

static struct samples *joint_samples(struct pp_measure *measure, const struct pp_profile_joint *what)
{
	for (size_t i = 0; i < measure->joint_row_count; i++) {
		const struct pp_profile_joint *row = &measure->joint_rows[i].what;
		if (row->axis == what->axis && row->sub == what->sub && row->members == what->members &&
		    row->bytes == what->bytes)
			return &measure->joint_rows[i].samples;
	}
	struct joint_row *row = PP_PUSH(measure->arena, &measure->joint_rows, &measure->joint_row_count,
	                                &measure->joint_row_capacity, struct joint_row);
	row->what = *what;
	return &row->samples;
}

/* When each member made its post of one collective, and its wait. */
struct joint_times {
	uint64_t posted;  /* the last post */
	uint64_t ended;   /* the earliest end of a wait that had begun by then, UINT64_MAX: there is none */
	uint64_t last_in; /* the end of the last poster's own wait */
	bool comparable;
};

static void add_member(const struct pp_measure *measure, uint32_t first, uint32_t world, const struct joint *joint,
                       struct joint_times *joined)
{
	uint64_t posted = times_of(measure, world, joint->post)[0];
	joined->comparable = joined->comparable && joint->wait != PP_NULL && share_clock(measure, first, world);
	if (joint->wait == PP_NULL || posted < joined->posted)
		return;
	joined->posted = posted;
	joined->last_in = times_of(measure, world, joint->wait)[1];
}

/* One collective of the group that `coord` is the first member of, once the one before it had ended: they go one after
 * the other. False: there are no more. */
static bool take_joint(struct pp_measure *measure, uint32_t number, struct pp_coord coord, size_t *cursors,
                       uint64_t *before)
{
	const struct pp_program *program = measure->program;
	const struct pp_group *group = &program->groups[number];
	struct joint_times joined = {.ended = UINT64_MAX, .comparable = true};
	uint32_t members = pp_grid_members(program, group), first = pp_grid_rank(program, coord);
	const struct pp_instr *instr = NULL;
	for (unsigned pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < members; i++) {
			uint32_t world = pp_grid_member(program, group, coord, i), rank = pp_grid_coord(program, world).pp;
			size_t cursor = cursors[i];
			const struct joint *joint = next_joint(&measure->joints[rank], number, &cursor);
			if (!joint)
				return false;
			instr = &measure->named->streams[rank].items[joint->post];
			if (pass == 0) {
				add_member(measure, first, world, joint, &joined);
				continue;
			}
			cursors[i] = cursor;
			const uint64_t *wait = joint->wait == PP_NULL ? NULL : times_of(measure, world, joint->wait);
			if (wait && wait[0] <= joined.posted && wait[1] >= joined.posted && wait[1] < joined.ended)
				joined.ended = wait[1];
		}
	uint64_t end = joined.ended == UINT64_MAX ? joined.last_in : joined.ended;
	struct pp_profile_joint what = {
	    .axis = group->axis, .sub = instr->sub, .members = members, .bytes = pp_payload_bytes(instr)};
	uint64_t begin = *before > joined.posted ? *before : joined.posted;
	if (joined.comparable && end >= begin)
		add(measure, joint_samples(measure, &what), end - begin);
	*before = end > *before ? end : *before;
	return true;
}

static void take_joints(struct pp_measure *measure)
{
	const struct pp_program *program = measure->program;
	struct pp_arena *scratch = pp_arena_scratch(measure->arena);
	for (uint32_t g = 0; g < program->group_count; g++) {
		uint32_t members = pp_grid_members(program, &program->groups[g]);
		for (uint32_t world = 0; members > 1 && world < pp_grid_world(program); world++) {
			struct pp_coord coord = pp_grid_coord(program, world);
			if (pp_grid_position(&program->groups[g], coord) != 0)
				continue;
			size_t *cursors = PP_NEW_ARRAY(scratch, size_t, members);
			uint64_t before = 0;
			while (take_joint(measure, g, coord, cursors, &before))
				continue;
		}
	}
	pp_arena_destroy(scratch);
}

/* From the first instruction of a rank to its last, and to its last compute: the longest of all ranks. */
static void take_step(struct pp_measure *measure, const uint64_t *last)
{
	uint64_t step = 0, makespan = 0;
	for (uint32_t world = 0; world < pp_grid_world(measure->program); world++) {
		const struct pp_stream *stream = &measure->named->streams[pp_grid_coord(measure->program, world).pp];
		if (stream->count == 0)
			continue;
		uint64_t begin = times_of(measure, world, 0)[0], end = times_of(measure, world, stream->count - 1)[1];
		step = end > begin && end - begin > step ? end - begin : step;
		makespan = last[world] > begin && last[world] - begin > makespan ? last[world] - begin : makespan;
	}
	add(measure, &measure->step, step);
	add(measure, &measure->makespan, makespan);
}

void pp_measure_step(struct pp_measure *measure, const uint64_t *times, uint64_t longest)
{
	const struct pp_program *program = measure->program;
	uint32_t world_size = (uint32_t)pp_grid_world(program);
	struct pp_arena *scratch = pp_arena_scratch(measure->arena);
	uint64_t *last = PP_NEW_ARRAY(scratch, uint64_t, world_size);
	measure->times = times;
	measure->longest = longest;
	measure->steps++;
	memset(measure->spent, 0, sizeof measure->spent);
	for (uint32_t world = 0; world < world_size; world++)
		last[world] = take_rank(measure, world);
	for (uint32_t dp = 0; dp < pp_grid_extent(program, PP_AXIS_DP); dp++)
		for (uint32_t tp = 0; tp < pp_grid_extent(program, PP_AXIS_TP); tp++) {
			struct pp_coord coord = {.tp = tp, .dp = dp};
			for (coord.pp = 0; coord.pp < program->ranks; coord.pp++)
				note_posts(measure, pp_grid_rank(program, coord), &measure->named->streams[coord.pp]);
			for (coord.pp = 0; coord.pp < program->ranks; coord.pp++)
				take_transfers(measure, coord, &measure->named->streams[coord.pp]);
		}
	take_joints(measure);
	take_step(measure, last);
	for (unsigned kind = 0; kind < PP_CLASS_COUNT; kind++)
		add(measure, &measure->classes[kind], measure->spent[kind]);
	pp_arena_destroy(scratch);
}

/* ---- results --------------------------------------------------------------------------------- */

static int ascending(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return a < b ? -1 : a > b;
}

/* Of an even number of samples the lower of the two in the middle. */
static struct pp_profile_time time_of(struct samples *samples)
{
	if (samples->count == 0)
		return (struct pp_profile_time){0};
	qsort(samples->items, samples->count, sizeof *samples->items, ascending);
	size_t last = samples->count - 1;
	return (struct pp_profile_time){.median = samples->items[last / 2],
	                                .spread = samples->items[last - last / 4] - samples->items[last / 4],
	                                .count = samples->count};
}

uint64_t pp_measure_class(struct pp_measure *measure, unsigned kind)
{
	return time_of(&measure->classes[kind]).median;
}

static int by_channel(const void *left, const void *right)
{
	const struct pp_profile_channel *a = left, *b = right;
	uint64_t keys[2][4] = {{a->source, a->destination, a->kind, a->bytes},
	                       {b->source, b->destination, b->kind, b->bytes}};
	for (int i = 0; i < 4; i++)
		if (keys[0][i] != keys[1][i])
			return keys[0][i] < keys[1][i] ? -1 : 1;
	return 0;
}

static int by_joint(const void *left, const void *right)
{
	const struct pp_profile_joint *a = left, *b = right;
	uint64_t keys[2][4] = {{a->axis, a->sub, a->members, a->bytes}, {b->axis, b->sub, b->members, b->bytes}};
	for (int i = 0; i < 4; i++)
		if (keys[0][i] != keys[1][i])
			return keys[0][i] < keys[1][i] ? -1 : 1;
	return 0;
}

static void put_channels(struct pp_measure *measure, struct pp_profile *profile)
{
	const struct pp_program *program = measure->program;
	profile->channels = PP_NEW_ARRAY(measure->arena, struct pp_profile_channel, measure->row_count);
	for (size_t i = 0; i < measure->row_count; i++) {
		const struct pp_channel *channel = &program->channels[measure->rows[i].channel];
		profile->channels[profile->channel_count++] = (struct pp_profile_channel){
		    .source = channel->source,
		    .destination = channel->destination,
		    .kind = channel->kind,
		    .between_nodes = program->rank[channel->source].node != program->rank[channel->destination].node,
		    .bytes = measure->rows[i].bytes,
		    .time = time_of(&measure->rows[i].samples)};
	}
	if (profile->channel_count)
		qsort(profile->channels, profile->channel_count, sizeof *profile->channels, by_channel);
}

/* Least squares of time over bytes, one point per row. Without two sizes, or where larger messages were not slower,
 * there is no such line. */
static void fit_link(struct pp_profile *profile, bool between_nodes)
{
	double count = 0, bytes = 0, time = 0, square = 0, product = 0;
	for (size_t i = 0; i < profile->channel_count; i++) {
		const struct pp_profile_channel *row = &profile->channels[i];
		if (row->between_nodes != between_nodes)
			continue;
		double x = (double)row->bytes, y = (double)row->time.median;
		count++;
		bytes += x;
		time += y;
		square += x * x;
		product += x * y;
	}
	double spread = count * square - bytes * bytes, slope = spread > 0 ? (count * product - bytes * time) / spread : 0;
	double latency = count > 0 ? (time - slope * bytes) / count : 0;
	if (slope < 1e-9)
		return;
	profile->link[between_nodes] = (struct pp_profile_link){.given = true,
	                                                        .latency = (uint64_t)(latency > 0 ? latency + 0.5 : 0),
	                                                        .bandwidth = (uint64_t)(1e9 / slope + 0.5)};
}

static void put_joints(struct pp_measure *measure, struct pp_profile *profile)
{
	profile->joints = PP_NEW_ARRAY(measure->arena, struct pp_profile_joint, measure->joint_row_count);
	for (size_t i = 0; i < measure->joint_row_count; i++) {
		profile->joints[profile->joint_count] = measure->joint_rows[i].what;
		profile->joints[profile->joint_count++].time = time_of(&measure->joint_rows[i].samples);
	}
	if (profile->joint_count)
		qsort(profile->joints, profile->joint_count, sizeof *profile->joints, by_joint);
}

static uint64_t tail_bytes(const struct pp_measure *measure, uint32_t rank, unsigned op)
{
	const struct pp_stream *stream = &measure->named->streams[rank];
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < stream->count; i++)
		if (stream->items[i].op == op)
			bytes += pp_tail_traffic(measure->program, rank, &stream->items[i]);
	return bytes;
}

static void put_tail(struct pp_measure *measure, struct pp_profile *profile)
{
	for (uint32_t rank = 0; rank < measure->program->ranks; rank++)
		for (uint8_t op = 0; op < PP_OP_COUNT; op++) {
			struct samples *samples = &measure->tail[(size_t)rank * PP_OP_COUNT + op];
			if (samples->count)
				*PP_PUSH(measure->arena, &profile->tails, &profile->tail_count, &profile->tail_capacity,
				         struct pp_profile_tail) = (struct pp_profile_tail){
				    .rank = rank, .op = op, .bytes = tail_bytes(measure, rank, op), .time = time_of(samples)};
		}
}

static void put_stages(struct pp_measure *measure, struct pp_profile *profile)
{
	const struct pp_program *program = measure->program;
	profile->stage_count = program->stage_count;
	profile->stages = PP_NEW_ARRAY(measure->arena, struct pp_profile_stage, program->stage_count);
	for (uint32_t s = 0; s < program->stage_count; s++) {
		const struct pp_stage *stage = &program->stages[s];
		struct pp_profile_stage *to = &profile->stages[s];
		to->rank = stage->rank;
		to->first_layer = stage->first_layer;
		to->layer_count = stage->layer_count;
		to->title = stage->title ? stage->title : "";
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			to->flops[phase] = stage->flops[phase];
			to->time[phase] = time_of(&measure->compute[(size_t)s * PP_PHASE_COUNT + phase]);
		}
		profile->layer_count += stage->layer_count;
	}
}

struct pp_profile *pp_measure_end(struct pp_measure *measure)
{
	const struct pp_program *program = measure->program;
	struct pp_profile *profile = PP_NEW(measure->arena, struct pp_profile);
	assert(measure->steps > 0);
	*profile = (struct pp_profile){.schedule = program->schedule_name ? program->schedule_name : "",
	                               .pp = program->ranks,
	                               .vpp = program->vpp,
	                               .tp = pp_grid_extent(program, PP_AXIS_TP),
	                               .dp = pp_grid_extent(program, PP_AXIS_DP),
	                               .microbatches = program->microbatches,
	                               .microbatch = program->train.microbatch,
	                               .seq = program->train.seq,
	                               .vocab = program->train.vocab,
	                               .dtype = program->tensor_count ? program->tensors[0].dtype : PP_F32,
	                               .steps = measure->steps,
	                               .step = time_of(&measure->step),
	                               .makespan = time_of(&measure->makespan)};
	put_stages(measure, profile);
	profile->ranks = PP_NEW_ARRAY(measure->arena, struct pp_profile_rank, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++)
		profile->ranks[r].busy = time_of(&measure->busy[r]);
	put_channels(measure, profile);
	fit_link(profile, false);
	fit_link(profile, true);
	put_joints(measure, profile);
	put_tail(measure, profile);
	return profile;
}
