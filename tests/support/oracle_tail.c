/* The oracle's step tail: collectives over every axis, sums of uses, norms, updates. A gradient or weight of a program
 * with a sharded optimizer is a vector of as many words as there are shards. */
#include "oracle_state.h"

#include <string.h>

/* ---- groups ---------------------------------------------------------------------------------- */

static uint32_t member_count(const struct oracle *o, const struct pp_group *group)
{
	return group->axis == PP_AXIS_PP ? group->member_count : group->axis == PP_AXIS_TP ? o->tp : o->dp;
}

/* Number of the i-th member of the group that coordinate w is in. */
static uint32_t member(const struct oracle *o, const struct pp_group *group, uint32_t w, uint32_t i)
{
	const struct rank *rank = &o->ranks[w];
	uint32_t pp = group->axis == PP_AXIS_PP ? group->members[i] : rank->pp,
	         tp = group->axis == PP_AXIS_TP ? i : rank->tp, dp = group->axis == PP_AXIS_DP ? i : rank->dp;
	return pp + o->program->ranks * (tp + o->tp * dp);
}

static uint32_t position(const struct oracle *o, const struct pp_group *group, uint32_t w)
{
	for (uint32_t i = 0; i < member_count(o, group); i++)
		if (member(o, group, w, i) == w)
			return i;
	return PP_NULL;
}

/* Collectives that member w posts in group g, in the program with most of them. */
static uint32_t posts_in(const struct oracle *o, uint32_t w, uint32_t g)
{
	uint32_t most = 0;
	for (uint32_t p = 0; p < o->program->program_count; p++) {
		uint32_t count = 0;
		const struct pp_stream *stream = &o->program->programs[p].streams[o->ranks[w].pp];
		for (uint32_t i = 0; i < stream->count; i++)
			count += stream->items[i].op == PP_OP_COLL && stream->items[i].a[1] == g;
		most = count > most ? count : most;
	}
	return most;
}

void oracle_make_joints(struct oracle *o)
{
	const struct pp_program *program = o->program;
	o->joints = PP_NEW_ARRAY(o->arena, struct joint **, program->group_count);
	o->group_most = PP_NEW_ARRAY(o->arena, uint32_t, program->group_count);
	for (uint32_t g = 0; g < program->group_count; g++) {
		const struct pp_group *group = &program->groups[g];
		o->joints[g] = PP_NEW_ARRAY(o->arena, struct joint *, o->world);
		for (uint32_t w = 0; w < o->world; w++)
			o->group_most[g] = posts_in(o, w, g) > o->group_most[g] ? posts_in(o, w, g) : o->group_most[g];
		for (uint32_t w = 0; w < o->world; w++) {
			if (position(o, group, w) != 0)
				continue;
			o->joints[g][w] = PP_NEW_ARRAY(o->arena, struct joint, o->group_most[g]);
			for (uint32_t k = 0; k < o->group_most[g]; k++)
				o->joints[g][w][k].posted = PP_NEW_ARRAY(o->arena, uint32_t, member_count(o, group));
		}
	}
}

void oracle_end_joints(struct oracle *o)
{
	for (uint32_t g = 0; g < o->program->group_count; g++)
		for (uint32_t w = 0; w < o->world; w++)
			for (uint32_t k = 0; o->joints[g][w] && k < o->group_most[g]; k++) {
				struct joint *joint = &o->joints[g][w][k];
				memset(joint->posted, 0, member_count(o, &o->program->groups[g]) * sizeof *joint->posted);
				joint->arrived = 0;
				joint->over = false;
			}
}

static struct joint *joint_of(const struct oracle *o, uint32_t w, const struct flight *flight)
{
	const struct pp_group *group = &o->program->groups[flight->group];
	return &o->joints[flight->group][member(o, group, w, 0)][flight->number];
}

/* ---- collectives ----------------------------------------------------------------------------- */

void oracle_post(struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	struct rank *rank = &o->ranks[w];
	const struct pp_group *group = &o->program->groups[instr->a[1]];
	uint32_t at = position(o, group, w), number = rank->group_posts[instr->a[1]]++;
	if (at == PP_NULL) {
		o->poison++;
		return;
	}
	struct flight *flight = &rank->flights[rank->flight_count++];
	*flight = (struct flight){.id = instr->a[0],
	                          .group = instr->a[1],
	                          .number = number,
	                          .instr = rank->at,
	                          .before = {oracle_read(o, w, instr->a[2]), oracle_read(o, w, instr->a[3])}};
	flight->copy = PP_NEW_ARRAY(o->arena, uint64_t, rank->length[instr->a[2]]);
	memcpy(flight->copy, rank->value[instr->a[2]], rank->length[instr->a[2]] * sizeof *flight->copy);
	struct joint *joint = joint_of(o, w, flight);
	joint->posted[at] = rank->flight_count;
	joint->over = ++joint->arrived == member_count(o, group);
}

/* Bytes that a member's payload must have: all of what the slot holds, or one shard of it. */
static uint64_t payload(const struct oracle *o, const struct pp_slot *slot, bool shard)
{
	if (slot->class == PP_SLOT_LOSSES || slot->class == PP_SLOT_NORMS)
		return shard ? 0 : slot->bytes;
	if (slot->tensor >= o->program->tensor_count)
		return 0;
	const struct pp_tensor *tensor = &o->program->tensors[slot->tensor];
	uint64_t elements = (uint64_t)tensor->rows * tensor->columns / (tensor->tp_grad == PP_TP_SHARDED ? o->tp : 1);
	uint64_t size = slot->class == PP_SLOT_WEIGHT ? pp_dtype_size[tensor->dtype] : 4;
	return size * (shard ? (elements + o->dp - 1) / o->dp : elements);
}

/* What member `from` puts in, or NULL: it does not go with the post of w. */
static const uint64_t *part_of(const struct oracle *o, uint32_t w, const struct pp_instr *instr, uint32_t from,
                               const struct flight *flight)
{
	const struct rank *rank = &o->ranks[from];
	const struct pp_instr *other = &rank->stream->items[flight->instr];
	const struct pp_slot *source = &rank->memory->slots[other->a[2]], *target = &o->ranks[w].memory->slots[instr->a[3]];
	bool shard = other->flags & PP_SHARD || other->sub != PP_ALLREDUCE;
	bool of_tensor = source->class == PP_SLOT_GRAD || source->class == PP_SLOT_WEIGHT;
	bool fits = other->sub == instr->sub && other->dtype == instr->dtype && other->count == instr->count &&
	            other->flags == instr->flags && rank->length[other->a[2]] == o->ranks[w].length[instr->a[3]] &&
	            source->class == target->class && (!of_tensor || source->tensor == target->tensor) &&
	            pp_payload_bytes(other) == payload(o, source, shard) && (!shard || other->a[2] == other->a[3]);
	return fits ? flight->copy : NULL;
}

static void take(struct oracle *o, const struct pp_instr *instr, uint32_t own, uint64_t *to, uint32_t length,
                 const uint64_t *part, uint32_t from)
{
	bool shard = instr->flags & PP_SHARD || instr->sub == PP_REDUCESCATTER;
	if (shard && (own >= length || !oracle_shards(o)))
		o->poison++;
	else if (instr->sub == PP_ALLGATHER && from < length)
		to[from] = part[from];
	else if (instr->sub == PP_ALLGATHER)
		o->poison++;
	else if (shard)
		to[own] += part[own];
	for (uint32_t k = 0; !shard && instr->sub == PP_ALLREDUCE && k < length; k++)
		to[k] += part[k];
}

/* What all members put in, into the target of w. */
static void land(struct oracle *o, uint32_t w, const struct pp_instr *instr, const struct flight *flight)
{
	struct rank *rank = &o->ranks[w];
	const struct pp_group *group = &o->program->groups[flight->group];
	const struct joint *joint = joint_of(o, w, flight);
	uint32_t length = rank->length[instr->a[3]];
	uint64_t *to = rank->value[instr->a[3]];
	oracle_destroy_others(o, w, instr->a[3]);
	if (instr->sub == PP_REDUCESCATTER)
		oracle_destroy(o, w, instr->a[3]);
	if (instr->sub == PP_ALLREDUCE && !(instr->flags & PP_SHARD))
		memset(to, 0, length * sizeof *to);
	else if (rank->dp < length)
		to[rank->dp] = 0;
	for (uint32_t i = 0; i < member_count(o, group); i++) {
		uint32_t from = member(o, group, w, i);
		const uint64_t *part = part_of(o, w, instr, from, &o->ranks[from].flights[joint->posted[i] - 1]);
		if (!part) {
			o->poison++;
			return;
		}
		take(o, instr, rank->dp, to, length, part, o->ranks[from].dp);
	}
}

bool oracle_wait(struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	struct rank *rank = &o->ranks[w];
	uint32_t at = rank->flight_count;
	while (at > 0 && rank->flights[at - 1].id != instr->a[0])
		at--;
	if (at == 0)
		return false;
	struct flight *flight = &rank->flights[at - 1];
	if (!joint_of(o, w, flight)->over)
		return false;
	if (flight->waited)
		return true;
	flight->waited = true;
	const struct pp_instr *post = &rank->stream->items[flight->instr];
	if (oracle_read(o, w, post->a[2]) != flight->before[0] || oracle_read(o, w, post->a[3]) != flight->before[1])
		o->poison++;
	land(o, w, post, flight);
	return true;
}

/* ---- local ----------------------------------------------------------------------------------- */

/* Rows with equal contents are equal. */
static uint64_t hyper(const struct oracle *o, uint32_t row, bool clips)
{
	const struct pp_hyper *h = &o->program->train.hypers[row];
	double values[] = {h->beta1, h->beta2, h->eps, h->weight_decay};
	uint64_t words[4];
	memcpy(words, clips ? &h->clip : values, clips ? sizeof h->clip : sizeof words);
	return oracle_mix_all(14, words, clips ? 1 : 4);
}

/* Which words of a slot an instruction acts on. */
static bool words_of(struct oracle *o, uint32_t w, const struct pp_instr *instr, uint32_t slot, uint32_t *first,
                     uint32_t *end)
{
	const struct rank *rank = &o->ranks[w];
	bool shard = instr->flags & PP_SHARD;
	*first = shard ? rank->dp : 0;
	*end = shard ? rank->dp + 1 : rank->length[slot];
	if (!shard || (oracle_shards(o) && *end <= rank->length[slot]))
		return true;
	o->poison++;
	return false;
}

static void add(struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	uint32_t first, end;
	struct rank *rank = &o->ranks[w];
	if (words_of(o, w, instr, instr->a[0], &first, &end))
		for (uint32_t k = first; k < end && k < rank->length[instr->a[1]]; k++)
			rank->value[instr->a[0]][k] += rank->value[instr->a[1]][k];
	oracle_destroy(o, w, instr->a[1]);
}

/* Squares add up: a norm is a sum over words. Tensors that all tp coordinates hold count on the first. */
static void square(struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	uint32_t first, end;
	struct rank *rank = &o->ranks[w];
	if (instr->mb >= rank->length[instr->a[1]] || !words_of(o, w, instr, instr->a[0], &first, &end))
		return;
	uint64_t sum = 0;
	bool counts = rank->tp == 0 || o->program->tensors[instr->mb].tp_grad == PP_TP_SHARDED;
	for (uint32_t k = first; counts && k < end; k++)
		sum += oracle_mix(rank->value[instr->a[0]][k], 11);
	rank->value[instr->a[1]][instr->mb] = sum;
}

/* The moments are those of the words that are updated: all in one word where there are no shards. */
static void update(struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	uint32_t first, end;
	struct rank *rank = &o->ranks[w];
	if (!words_of(o, w, instr, instr->a[0], &first, &end) || end - first != 1) {
		o->poison++;
		return;
	}
	bool master = instr->extra != PP_NULL;
	uint64_t all[] = {master ? oracle_read(o, w, instr->extra) : rank->value[instr->a[0]][first],
	                  rank->value[instr->a[1]][first < rank->length[instr->a[1]] ? first : 0],
	                  oracle_read(o, w, instr->a[2]),
	                  oracle_read(o, w, instr->a[3]),
	                  instr->sub,
	                  hyper(o, instr->mb, false),
	                  oracle_read(o, w, oracle_slot_of(o, w, PP_SLOT_SCALE))};
	uint64_t made = oracle_mix_all(13, all, 7);
	oracle_destroy_others(o, w, instr->a[0]);
	rank->value[instr->a[0]][first] = master ? oracle_mix(made, 3) : made;
	if (master)
		oracle_write(o, w, instr->extra, made);
	oracle_write(o, w, instr->a[2], oracle_mix(made, 1));
	oracle_write(o, w, instr->a[3], oracle_mix(made, 2));
	oracle_destroy(o, w, instr->a[1]);
}

void oracle_tail(struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	struct rank *rank = &o->ranks[w];
	switch (instr->op) {
	case PP_OP_ZERO:
		memset(rank->value[instr->a[0]], 0, rank->length[instr->a[0]] * sizeof(uint64_t));
		break;
	case PP_OP_ADD:
		add(o, w, instr);
		break;
	case PP_OP_SQNORM:
		square(o, w, instr);
		break;
	case PP_OP_CLIP: {
		uint64_t all[] = {oracle_read(o, w, instr->a[0]), oracle_read(o, w, instr->a[1]), instr->sub,
		                  hyper(o, instr->mb, true)};
		oracle_write(o, w, instr->a[2], oracle_mix_all(12, all, 4));
		break;
	}
	case PP_OP_OPT:
		update(o, w, instr);
		break;
	default:
		break;
	}
}
