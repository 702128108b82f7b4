/* Execution by provenance hashes: oracle.h. Slow and simple on purpose. */
#include "oracle.h"

#include "build_program.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, MEMBERS_MOST = 64 };

struct message {
	uint32_t posted[2]; /* index + 1 of the post */
	uint64_t at_post, carried;
	uint64_t token; /* garbage in the receive slot until its wait */
	bool over, waited[2];
};

struct joint {
	uint32_t posted[MEMBERS_MOST]; /* by member */
	uint32_t arrived;
	bool over;
};

struct flight {
	uint32_t id, group, number, instr;
	uint64_t before[2], *copy; /* of source and target slot at the post */
	bool waited;
};

struct rank {
	uint64_t **value; /* per slot: one word, or a vector for losses and norms */
	uint32_t *length;
	uint32_t at, stopped; /* next instruction; steps ended */
	struct flight *flights;
	uint32_t flight_count;
	uint32_t *group_posts;
};

struct oracle {
	struct pp_arena *arena;
	const struct pp_program *program;
	const struct pp_named_program *named; /* that runs */
	struct rank *ranks;
	struct message **messages;    /* [channels] */
	uint32_t *posts[2], *carried; /* [channels] */
	struct joint **joints;        /* [groups], symbolic ones unused */
	uint64_t seed, garbage, *made_of, poison;
	uint32_t most;
};

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = (a ^ 0x243f6a8885a308d3u) * 0x9e3779b97f4a7c15u + b;
	x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 32);
}

static uint64_t mix_all(uint64_t kind, const uint64_t *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		kind = mix(kind, values[i]);
	return kind;
}

static uint64_t garbage(struct oracle *o)
{
	return mix(0xdead, ++o->garbage);
}

/* ---- slots ----------------------------------------------------------------------------------- */

static uint64_t read(const struct oracle *o, uint32_t r, uint32_t slot)
{
	if (slot == PP_NULL)
		return 0;
	return mix_all(1, o->ranks[r].value[slot], o->ranks[r].length[slot]);
}

static bool share_bytes(const struct pp_slot *a, const struct pp_slot *b)
{
	return a->placed && b->placed && a->bytes && b->bytes && a->offset < b->offset + b->bytes &&
	       b->offset < a->offset + a->bytes;
}

static void destroy(struct oracle *o, uint32_t r, uint32_t slot)
{
	for (uint32_t i = 0; slot != PP_NULL && i < o->ranks[r].length[slot]; i++)
		o->ranks[r].value[slot][i] = garbage(o);
}

static void destroy_others(struct oracle *o, uint32_t r, uint32_t slot)
{
	const struct pp_rank *memory = &o->program->rank[r];
	for (uint32_t i = 0; i < memory->slot_count; i++)
		if (i != slot && share_bytes(&memory->slots[i], &memory->slots[slot]))
			destroy(o, r, i);
}

static void write(struct oracle *o, uint32_t r, uint32_t slot, uint64_t value)
{
	if (slot == PP_NULL)
		return;
	destroy_others(o, r, slot);
	for (uint32_t i = 0; i < o->ranks[r].length[slot]; i++)
		o->ranks[r].value[slot][i] = i ? mix(value, i) : value;
}

static uint32_t slot_of_class(const struct oracle *o, uint32_t r, enum pp_slot_class class)
{
	for (uint32_t i = 0; i < o->program->rank[r].slot_count; i++)
		if (o->program->rank[r].slots[i].class == class)
			return i;
	return PP_NULL;
}

/* ---- compute --------------------------------------------------------------------------------- */

/* Uses whose slots lie on this rank, whatever stage an instruction claims to be. */
static bool uses_here(const struct oracle *o, uint32_t r, const struct pp_use *use, uint32_t stage)
{
	return use->stage == stage && o->program->stages[stage].rank == r;
}

static uint64_t weights(const struct oracle *o, uint32_t r, uint32_t stage)
{
	uint64_t all = 3;
	for (uint32_t u = 0; u < o->program->use_count; u++)
		if (uses_here(o, r, &o->program->uses[u], stage))
			all = mix(all, read(o, r, o->program->uses[u].weight));
	return all;
}

static void accumulate(struct oracle *o, uint32_t r, const struct pp_instr *instr, uint64_t from)
{
	o->made_of[instr->stage] += mix(from, instr->mb);
	for (uint32_t u = 0; u < o->program->use_count; u++) {
		const struct pp_use *use = &o->program->uses[u];
		if (!uses_here(o, r, use, instr->stage))
			continue;
		uint64_t *sum = o->ranks[r].value[use->grad], part = mix(from, u + 100);
		*sum = instr->flags & PP_FIRST ? part : *sum + part;
	}
}

static uint64_t read_extra(const struct oracle *o, uint32_t r, const struct pp_instr *instr)
{
	bool reads = instr->op == PP_OP_BWDW || o->program->stages[instr->stage].recomputes;
	return reads ? read(o, r, instr->extra) : 0;
}

/* All inputs of a compute op, read before and after its outputs are written: they must not change meanwhile. */
static uint64_t inputs(const struct oracle *o, uint32_t r, const struct pp_instr *instr)
{
	bool forward = instr->op == PP_OP_FWD, again = instr->op == PP_OP_REMAT;
	uint64_t all[] = {instr->op,
	                  instr->stage,
	                  instr->mb,
	                  again ? 0 : read(o, r, instr->a[forward ? 0 : 1]),
	                  read(o, r, instr->a[forward ? 1 : 0]),
	                  forward || again || instr->op == PP_OP_BWDW ? 0 : read(o, r, instr->a[2]),
	                  forward || again ? 0 : read_extra(o, r, instr),
	                  weights(o, r, instr->stage)};
	return mix_all(7, all, sizeof all / sizeof *all);
}

/* Makes what a backward needs once more: reads the stash, leaves it as it is. */
static void recompute(struct oracle *o, uint32_t r, const struct pp_instr *instr)
{
	uint64_t from = inputs(o, r, instr);
	write(o, r, instr->extra, mix(from, 6));
	if (inputs(o, r, instr) != from)
		o->poison++;
}

static void compute(struct oracle *o, uint32_t r, const struct pp_instr *instr)
{
	uint64_t from = inputs(o, r, instr);
	uint32_t losses = slot_of_class(o, r, PP_SLOT_LOSSES);
	if (instr->op == PP_OP_FWD) {
		write(o, r, instr->a[2], mix(from, 1));
		write(o, r, instr->a[3], mix(from, 2));
		if (o->program->stages[instr->stage].loads_labels && losses != PP_NULL &&
		    instr->mb < o->ranks[r].length[losses])
			o->ranks[r].value[losses][instr->mb] = mix(from, 3);
	} else if (instr->op != PP_OP_BWDW) {
		write(o, r, instr->a[3], mix(from, 1));
	}
	if (inputs(o, r, instr) != from)
		o->poison++;
	if (instr->op == PP_OP_BWD || instr->op == PP_OP_BWDW)
		accumulate(o, r, instr, mix(from, 4));
	if (instr->op == PP_OP_FWD)
		destroy(o, r, instr->a[0]);
	else if (instr->op != PP_OP_BWDW)
		destroy(o, r, instr->a[2]);
	if (instr->op == PP_OP_BWD || instr->op == PP_OP_BWDW)
		destroy(o, r, instr->a[1]), destroy(o, r, instr->extra);
	if (instr->op == PP_OP_BWDI) {
		write(o, r, instr->a[1], mix(from, 5));
		write(o, r, instr->extra, mix(from, 7));
	}
}

/* ---- messages -------------------------------------------------------------------------------- */

static const struct pp_instr *instr_of(const struct oracle *o, uint32_t r, uint32_t index)
{
	return &o->named->streams[r].items[index];
}

static void post(struct oracle *o, uint32_t r, const struct pp_instr *instr, uint32_t index)
{
	uint32_t c = instr->a[0];
	int end = instr->op == PP_OP_RECV;
	const struct pp_channel *channel = &o->program->channels[c];
	if ((end ? channel->destination : channel->source) != r) {
		o->poison++;
		return;
	}
	struct message *message = &o->messages[c][o->posts[end][c]++];
	message->posted[end] = index + 1;
	if (end) {
		message->token = garbage(o);
		write(o, r, instr->a[2], message->token);
		message->token = read(o, r, instr->a[2]);
	} else {
		message->at_post = read(o, r, instr->a[2]);
	}
}

/* The next message of a channel moves; its bytes are read now. */
static bool carry(struct oracle *o, uint32_t c)
{
	struct message *message = &o->messages[c][o->carried[c]];
	if (o->carried[c] >= o->posts[0][c] || o->carried[c] >= o->posts[1][c])
		return false;
	const struct pp_channel *channel = &o->program->channels[c];
	const struct pp_instr *send = instr_of(o, channel->source, message->posted[0] - 1);
	const struct pp_instr *recv = instr_of(o, channel->destination, message->posted[1] - 1);
	message->carried = read(o, channel->source, send->a[2]);
	if (send->count != recv->count || send->dtype != recv->dtype || message->carried != message->at_post)
		o->poison++;
	message->over = true;
	o->carried[c]++;
	return true;
}

/* True if the rank goes on. */
static bool wait_message(struct oracle *o, uint32_t r, const struct pp_instr *instr)
{
	uint32_t c = instr->a[0];
	const struct pp_channel *channel = &o->program->channels[c];
	if (channel->source != r && channel->destination != r) {
		o->poison++;
		return true;
	}
	int end = channel->destination == r;
	if (instr->a[1] >= o->posts[end][c] || !o->messages[c][instr->a[1]].over)
		return false;
	struct message *message = &o->messages[c][instr->a[1]];
	if (message->waited[end])
		return true;
	message->waited[end] = true;
	uint32_t slot = instr_of(o, r, message->posted[end] - 1)->a[2];
	if (read(o, r, slot) != (end ? message->token : message->at_post))
		o->poison++;
	if (end)
		write(o, r, slot, message->carried);
	else
		destroy(o, r, slot);
	return true;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static uint32_t member_of(const struct pp_group *group, uint32_t r)
{
	for (uint32_t i = 0; i < group->member_count; i++)
		if (group->members[i] == r)
			return i;
	return PP_NULL;
}

static void post_collective(struct oracle *o, uint32_t r, const struct pp_instr *instr, uint32_t index)
{
	struct rank *rank = &o->ranks[r];
	const struct pp_group *group = &o->program->groups[instr->a[1]];
	uint32_t member = member_of(group, r), number = rank->group_posts[instr->a[1]]++;
	if (member == PP_NULL) {
		o->poison++;
		return;
	}
	struct flight *flight = &rank->flights[rank->flight_count++];
	*flight = (struct flight){.id = instr->a[0],
	                          .group = instr->a[1],
	                          .number = number,
	                          .instr = index,
	                          .before = {read(o, r, instr->a[2]), read(o, r, instr->a[3])}};
	flight->copy = PP_NEW_ARRAY(o->arena, uint64_t, rank->length[instr->a[2]]);
	memcpy(flight->copy, rank->value[instr->a[2]], rank->length[instr->a[2]] * sizeof *flight->copy);
	struct joint *joint = &o->joints[instr->a[1]][number];
	joint->posted[member] = rank->flight_count;
	joint->over = ++joint->arrived == group->member_count;
}

/* Sum of what all members put in, into this rank's target. */
static void land(struct oracle *o, uint32_t r, const struct pp_instr *instr, const struct flight *flight)
{
	const struct pp_group *group = &o->program->groups[flight->group];
	const struct joint *joint = &o->joints[flight->group][flight->number];
	uint32_t length = o->ranks[r].length[instr->a[3]];
	destroy_others(o, r, instr->a[3]);
	memset(o->ranks[r].value[instr->a[3]], 0, length * sizeof(uint64_t));
	for (uint32_t i = 0; i < group->member_count; i++) {
		const struct rank *rank = &o->ranks[group->members[i]];
		const struct flight *part = &rank->flights[joint->posted[i] - 1];
		const struct pp_instr *other = instr_of(o, group->members[i], part->instr);
		const struct pp_slot *source = &o->program->rank[group->members[i]].slots[other->a[2]],
		                     *target = &o->program->rank[r].slots[instr->a[3]];
		uint64_t whole = rank->length[other->a[2]] > 1 ? 0 : 1;
		if (other->sub != instr->sub || other->dtype != instr->dtype || other->count != instr->count ||
		    rank->length[other->a[2]] != length || source->class != target->class ||
		    (whole && source->tensor != target->tensor) || other->sub != PP_ALLREDUCE ||
		    pp_payload_bytes(other) != source->bytes) {
			o->poison++;
			return;
		}
		for (uint32_t k = 0; k < length; k++)
			o->ranks[r].value[instr->a[3]][k] += part->copy[k];
	}
}

static bool wait_collective(struct oracle *o, uint32_t r, const struct pp_instr *instr)
{
	struct rank *rank = &o->ranks[r];
	uint32_t at = rank->flight_count;
	while (at > 0 && rank->flights[at - 1].id != instr->a[0])
		at--;
	if (at == 0)
		return false;
	struct flight *flight = &rank->flights[at - 1];
	if (!o->joints[flight->group][flight->number].over)
		return false;
	if (flight->waited)
		return true;
	flight->waited = true;
	const struct pp_instr *post_instr = instr_of(o, r, flight->instr);
	if (read(o, r, post_instr->a[2]) != flight->before[0] || read(o, r, post_instr->a[3]) != flight->before[1])
		o->poison++;
	land(o, r, post_instr, flight);
	return true;
}

/* ---- step tail ------------------------------------------------------------------------------- */

/* Rows with equal contents are equal. */
static uint64_t hyper(const struct oracle *o, uint32_t row, bool clips)
{
	const struct pp_hyper *h = &o->program->train.hypers[row];
	double values[] = {h->beta1, h->beta2, h->eps, h->weight_decay};
	uint64_t words[4];
	memcpy(words, clips ? &h->clip : values, clips ? sizeof h->clip : sizeof words);
	return mix_all(14, words, clips ? 1 : 4);
}

static void tail(struct oracle *o, uint32_t r, const struct pp_instr *instr)
{
	struct rank *rank = &o->ranks[r];
	switch (instr->op) {
	case PP_OP_ZERO:
		memset(rank->value[instr->a[0]], 0, rank->length[instr->a[0]] * sizeof(uint64_t));
		break;
	case PP_OP_ADD:
		rank->value[instr->a[0]][0] += rank->value[instr->a[1]][0];
		destroy(o, r, instr->a[1]);
		break;
	case PP_OP_SQNORM:
		if (instr->mb < rank->length[instr->a[1]])
			rank->value[instr->a[1]][instr->mb] = mix(read(o, r, instr->a[0]), 11);
		break;
	case PP_OP_CLIP: {
		uint64_t all[] = {read(o, r, instr->a[0]), read(o, r, instr->a[1]), instr->sub, hyper(o, instr->mb, true)};
		write(o, r, instr->a[2], mix_all(12, all, 4));
		break;
	}
	case PP_OP_OPT: {
		uint64_t all[] = {read(o, r, instr->a[0]),
		                  read(o, r, instr->a[1]),
		                  read(o, r, instr->a[2]),
		                  read(o, r, instr->a[3]),
		                  instr->sub,
		                  hyper(o, instr->mb, false),
		                  read(o, r, slot_of_class(o, r, PP_SLOT_SCALE))};
		uint64_t made = mix_all(13, all, 7);
		write(o, r, instr->a[0], made);
		write(o, r, instr->a[2], mix(made, 1));
		write(o, r, instr->a[3], mix(made, 2));
		destroy(o, r, instr->a[1]);
		break;
	}
	default:
		break;
	}
}

/* ---- run ------------------------------------------------------------------------------------- */

static bool step(struct oracle *o, uint32_t r, uint64_t number)
{
	struct rank *rank = &o->ranks[r];
	if (rank->at == o->named->streams[r].count)
		return false;
	const struct pp_instr *instr = instr_of(o, r, rank->at);
	switch ((enum pp_op)instr->op) {
	case PP_OP_LOAD: {
		uint64_t what[] = {number, instr->sub, instr->stage, instr->mb};
		write(o, r, instr->a[0], mix_all(5, what, 4));
		break;
	}
	case PP_OP_REMAT:
		recompute(o, r, instr);
		break;
	case PP_OP_FWD:
	case PP_OP_BWD:
	case PP_OP_BWDI:
	case PP_OP_BWDW:
		compute(o, r, instr);
		break;
	case PP_OP_SEND:
	case PP_OP_RECV:
		post(o, r, instr, rank->at);
		break;
	case PP_OP_WAIT:
		if (!wait_message(o, r, instr))
			return false;
		break;
	case PP_OP_COLL:
		post_collective(o, r, instr, rank->at);
		break;
	case PP_OP_WAITC:
		if (!wait_collective(o, r, instr))
			return false;
		break;
	case PP_OP_ZERO:
	case PP_OP_ADD:
	case PP_OP_SQNORM:
	case PP_OP_CLIP:
	case PP_OP_OPT:
	case PP_OP_MARK:
	case PP_OP_COUNT:
		tail(o, r, instr);
		break;
	}
	rank->at++;
	return true;
}

/* Ranks and channels in random turns until nothing moves. */
static bool run_step(struct oracle *o, uint64_t number)
{
	const struct pp_program *program = o->program;
	uint32_t actors = program->ranks + program->channel_count;
	for (uint32_t idle = 0; idle < 40 * actors + 200;) {
		uint32_t actor = random_below(&o->seed, actors), burst = 1 + random_below(&o->seed, 4);
		bool moved = false;
		while (burst-- && (actor < program->ranks ? step(o, actor, number) : carry(o, actor - program->ranks)))
			moved = true;
		idle = moved ? 0 : idle + 1;
	}
	/* the random turns may have missed somebody */
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t a = 0; a < actors; a++)
			while (a < program->ranks ? step(o, a, number) : carry(o, a - program->ranks))
				moved = true;
	}
	for (uint32_t r = 0; r < program->ranks; r++)
		if (o->ranks[r].at != o->named->streams[r].count)
			return false;
	return true;
}

static void end_step(struct oracle *o)
{
	for (uint32_t c = 0; c < o->program->channel_count; c++) {
		for (int end = 0; end < 2; end++)
			for (uint32_t k = 0; k < o->posts[end][c]; k++)
				o->poison += !o->messages[c][k].waited[end];
		memset(o->messages[c], 0, o->most * sizeof **o->messages);
		o->posts[0][c] = o->posts[1][c] = o->carried[c] = 0;
	}
	for (uint32_t r = 0; r < o->program->ranks; r++) {
		struct rank *rank = &o->ranks[r];
		for (uint32_t i = 0; i < rank->flight_count; i++)
			o->poison += !rank->flights[i].waited;
		rank->flight_count = rank->at = 0;
		memset(rank->group_posts, 0, o->program->group_count * sizeof(uint32_t));
	}
	for (uint32_t g = 0; g < o->program->group_count; g++)
		memset(o->joints[g], 0, o->most * sizeof **o->joints);
}

/* Instructions of a rank in its longest program. */
static uint32_t program_length(const struct pp_program *program, uint32_t r)
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < program->program_count; i++)
		most = program->programs[i].streams[r].count > most ? program->programs[i].streams[r].count : most;
	return most;
}

static struct oracle begin(struct pp_arena *arena, const struct pp_program *program, uint64_t seed)
{
	struct oracle o = {.arena = arena,
	                   .program = program,
	                   .seed = seed,
	                   .made_of = PP_NEW_ARRAY(arena, uint64_t, program->stage_count)};
	o.ranks = PP_NEW_ARRAY(arena, struct rank, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++) {
		struct rank *rank = &o.ranks[r];
		const struct pp_rank *memory = &program->rank[r];
		if (program_length(program, r) > o.most)
			o.most = program_length(program, r);
		rank->value = PP_NEW_ARRAY(arena, uint64_t *, memory->slot_count);
		rank->length = PP_NEW_ARRAY(arena, uint32_t, memory->slot_count);
		rank->flights = PP_NEW_ARRAY(arena, struct flight, program_length(program, r));
		rank->group_posts = PP_NEW_ARRAY(arena, uint32_t, program->group_count);
		for (uint32_t i = 0; i < memory->slot_count; i++) {
			const struct pp_slot *slot = &memory->slots[i];
			rank->length[i] = slot->class == PP_SLOT_LOSSES  ? program->microbatches
			                  : slot->class == PP_SLOT_NORMS ? program->tensor_count
			                                                 : 1;
			rank->value[i] = PP_NEW_ARRAY(arena, uint64_t, rank->length[i]);
			destroy(&o, r, i);
			if (slot->class == PP_SLOT_WEIGHT)
				rank->value[i][0] = mix(21, slot->tensor);
			else if (slot->class == PP_SLOT_MOMENT)
				rank->value[i][0] = 0;
		}
	}
	o.messages = PP_NEW_ARRAY(arena, struct message *, program->channel_count);
	for (uint32_t c = 0; c < program->channel_count; c++)
		o.messages[c] = PP_NEW_ARRAY(arena, struct message, o.most);
	o.joints = PP_NEW_ARRAY(arena, struct joint *, program->group_count);
	for (uint32_t g = 0; g < program->group_count; g++)
		o.joints[g] = PP_NEW_ARRAY(arena, struct joint, o.most);
	o.posts[0] = PP_NEW_ARRAY(arena, uint32_t, program->channel_count);
	o.posts[1] = PP_NEW_ARRAY(arena, uint32_t, program->channel_count);
	o.carried = PP_NEW_ARRAY(arena, uint32_t, program->channel_count);
	return o;
}

bool oracle_run(const struct pp_program *program, uint64_t seed, uint64_t *result)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct oracle o = begin(arena, program, seed);
	bool finished = true;
	*result = 0;
	/* Every program in turn, and all of them again: what one leaves behind the next one finds. */
	for (uint64_t number = 0; number < STEPS * program->program_count && finished; number++) {
		o.named = &program->programs[number % program->program_count];
		finished = run_step(&o, number);
		if (finished)
			end_step(&o);
		for (uint32_t r = 0; r < program->ranks; r++)
			for (uint32_t i = 0; program->tensor_count && i < program->rank[r].slot_count; i++) {
				uint8_t class = program->rank[r].slots[i].class;
				if (class == PP_SLOT_WEIGHT || class == PP_SLOT_LOSSES || class == PP_SLOT_SCALE)
					*result = mix(*result, read(&o, r, i));
			}
	}
	for (uint32_t s = 0; s < program->stage_count; s++)
		*result = mix(*result, o.made_of[s]);
	if (o.poison)
		*result = mix(*result, garbage(&o) + seed);
	pp_arena_destroy(arena);
	return finished;
}
