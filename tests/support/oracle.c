/* Execution by provenance hashes: oracle.h. Slow and simple on purpose. */
#include "oracle.h"

#include "oracle_state.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 2 };

uint64_t oracle_mix(uint64_t a, uint64_t b)
{
	uint64_t x = (a ^ 0x243f6a8885a308d3u) * 0x9e3779b97f4a7c15u + b;
	x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 32);
}

uint64_t oracle_mix_all(uint64_t kind, const uint64_t *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		kind = oracle_mix(kind, values[i]);
	return kind;
}

uint64_t oracle_garbage(struct oracle *o)
{
	return oracle_mix(0xdead, ++o->garbage);
}

/* ---- slots ----------------------------------------------------------------------------------- */

uint64_t oracle_read(const struct oracle *o, uint32_t w, uint32_t slot)
{
	if (slot == PP_NULL)
		return 0;
	return oracle_mix_all(1, o->ranks[w].value[slot], o->ranks[w].length[slot]);
}

static bool share_bytes(const struct pp_slot *a, const struct pp_slot *b)
{
	return a->placed && b->placed && a->bytes && b->bytes && a->offset < b->offset + b->bytes &&
	       b->offset < a->offset + a->bytes;
}

void oracle_destroy(struct oracle *o, uint32_t w, uint32_t slot)
{
	for (uint32_t i = 0; slot != PP_NULL && i < o->ranks[w].length[slot]; i++)
		o->ranks[w].value[slot][i] = oracle_garbage(o);
}

void oracle_destroy_others(struct oracle *o, uint32_t w, uint32_t slot)
{
	const struct pp_rank *memory = o->ranks[w].memory;
	for (uint32_t i = 0; i < memory->slot_count; i++)
		if (i != slot && share_bytes(&memory->slots[i], &memory->slots[slot]))
			oracle_destroy(o, w, i);
}

void oracle_write(struct oracle *o, uint32_t w, uint32_t slot, uint64_t value)
{
	if (slot == PP_NULL)
		return;
	oracle_destroy_others(o, w, slot);
	for (uint32_t i = 0; i < o->ranks[w].length[slot]; i++)
		o->ranks[w].value[slot][i] = i ? oracle_mix(value, i) : value;
}

uint32_t oracle_slot_of(const struct oracle *o, uint32_t w, enum pp_slot_class class)
{
	for (uint32_t i = 0; i < o->ranks[w].memory->slot_count; i++)
		if (o->ranks[w].memory->slots[i].class == class)
			return i;
	return PP_NULL;
}

/* ---- compute --------------------------------------------------------------------------------- */

/* Uses whose slots lie on this rank, whatever stage an instruction claims to be. */
static bool uses_here(const struct oracle *o, uint32_t w, const struct pp_use *use, uint32_t stage)
{
	return use->stage == stage && o->program->stages[stage].rank == o->ranks[w].pp;
}

static uint64_t weights(const struct oracle *o, uint32_t w, uint32_t stage)
{
	uint64_t all = 3;
	for (uint32_t u = 0; u < o->program->use_count; u++)
		if (uses_here(o, w, &o->program->uses[u], stage))
			all = oracle_mix(all, oracle_read(o, w, o->program->uses[u].weight));
	return all;
}

/* Gradients differ between tp coordinates but for tensors that all of them hold and see whole. */
static void accumulate(struct oracle *o, uint32_t w, const struct pp_instr *instr, uint64_t from)
{
	struct rank *rank = &o->ranks[w];
	o->made_of[instr->stage] += oracle_mix(from, instr->mb);
	for (uint32_t u = 0; u < o->program->use_count; u++) {
		const struct pp_use *use = &o->program->uses[u];
		if (!uses_here(o, w, use, instr->stage))
			continue;
		bool equal = o->program->tensors[use->tensor].tp_grad == PP_TP_REPLICATED_EQUAL;
		for (uint32_t k = 0; k < rank->length[use->grad]; k++) {
			uint64_t *sum = &rank->value[use->grad][k];
			uint64_t part = oracle_mix(oracle_mix(from, u + 100), k * 64 + (equal ? 0 : rank->tp));
			*sum = instr->flags & PP_FIRST ? part : *sum + part;
		}
	}
}

static uint64_t read_extra(const struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	bool reads = instr->op == PP_OP_BWDW || o->program->stages[instr->stage].recomputes;
	return reads ? oracle_read(o, w, instr->extra) : 0;
}

/* All inputs of a compute op on one coordinate. */
static uint64_t inputs(const struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	bool forward = instr->op == PP_OP_FWD, again = instr->op == PP_OP_REMAT;
	uint64_t all[] = {instr->op,
	                  instr->stage,
	                  instr->mb,
	                  again ? 0 : oracle_read(o, w, instr->a[forward ? 0 : 1]),
	                  oracle_read(o, w, instr->a[forward ? 1 : 0]),
	                  forward || again || instr->op == PP_OP_BWDW ? 0 : oracle_read(o, w, instr->a[2]),
	                  forward || again ? 0 : read_extra(o, w, instr),
	                  weights(o, w, instr->stage)};
	return oracle_mix_all(7, all, sizeof all / sizeof *all);
}

/* The bodies of the tp coordinates run as one: what comes out depends on what all of them read. */
static uint64_t joint_inputs(const struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	uint64_t all = 8;
	for (uint32_t tp = 0; tp < o->tp; tp++)
		all = oracle_mix(all, inputs(o, w + o->program->ranks * tp, instr));
	return all;
}

static void write_results(struct oracle *o, uint32_t w, const struct pp_instr *instr, uint64_t from)
{
	uint32_t losses = oracle_slot_of(o, w, PP_SLOT_LOSSES), tp = o->ranks[w].tp;
	if (instr->op == PP_OP_REMAT) {
		oracle_write(o, w, instr->extra, oracle_mix(from, 6 + 16 * tp));
	} else if (instr->op == PP_OP_FWD) {
		oracle_write(o, w, instr->a[2], oracle_mix(from, 1));
		oracle_write(o, w, instr->a[3], oracle_mix(from, 2 + 16 * tp));
		if (o->program->stages[instr->stage].loads_labels && losses != PP_NULL &&
		    instr->mb < o->ranks[w].length[losses])
			o->ranks[w].value[losses][instr->mb] = oracle_mix(from, 3);
	} else if (instr->op != PP_OP_BWDW) {
		oracle_write(o, w, instr->a[3], oracle_mix(from, 1));
	}
}

/* What is consumed turns to garbage; what a later op reads is left. */
static void consume(struct oracle *o, uint32_t w, const struct pp_instr *instr, uint64_t from)
{
	bool ends = instr->op == PP_OP_BWD || instr->op == PP_OP_BWDW;
	if (instr->op == PP_OP_REMAT)
		return;
	if (ends)
		accumulate(o, w, instr, oracle_mix(from, 4));
	if (instr->op == PP_OP_FWD)
		oracle_destroy(o, w, instr->a[0]);
	else if (instr->op != PP_OP_BWDW)
		oracle_destroy(o, w, instr->a[2]);
	if (ends) {
		oracle_destroy(o, w, instr->a[1]);
		oracle_destroy(o, w, instr->extra);
	}
	if (instr->op == PP_OP_BWDI) {
		oracle_write(o, w, instr->a[1], oracle_mix(from, 5));
		oracle_write(o, w, instr->extra, oracle_mix(from, 7));
	}
}

/* True if it ran, on all tp coordinates: the last one to come takes the others along. Inputs are read before and after
 * the outputs are written: they must not change meanwhile. */
static bool compute(struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	uint32_t ranks = o->program->ranks, first = w - ranks * o->ranks[w].tp;
	for (uint32_t tp = 0; tp < o->tp; tp++)
		if (o->ranks[first + ranks * tp].at != o->ranks[w].at)
			return false;
	uint64_t from = joint_inputs(o, first, instr);
	for (uint32_t tp = 0; tp < o->tp; tp++)
		write_results(o, first + ranks * tp, instr, from);
	if (joint_inputs(o, first, instr) != from)
		o->poison++;
	for (uint32_t tp = 0; tp < o->tp; tp++) {
		consume(o, first + ranks * tp, instr, from);
		o->ranks[first + ranks * tp].at++;
	}
	return true;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A channel of one replica: c + channels * replica. */
static struct rank *rank_at(const struct oracle *o, uint32_t channel, int end)
{
	const struct pp_channel *shape = &o->program->channels[channel % o->program->channel_count];
	uint32_t replica = channel / o->program->channel_count;
	return &o->ranks[(end ? shape->destination : shape->source) + o->program->ranks * replica];
}

static uint32_t channel_of(const struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	return instr->a[0] + o->program->channel_count * (w / o->program->ranks);
}

static void post(struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	uint32_t c = channel_of(o, w, instr);
	int end = instr->op == PP_OP_RECV;
	if (rank_at(o, c, end) != &o->ranks[w]) {
		o->poison++;
		return;
	}
	struct message *message = &o->messages[c][o->posts[end][c]++];
	message->posted[end] = o->ranks[w].at + 1;
	if (end) {
		message->token = oracle_garbage(o);
		oracle_write(o, w, instr->a[2], message->token);
		message->token = oracle_read(o, w, instr->a[2]);
	} else {
		message->at_post = oracle_read(o, w, instr->a[2]);
	}
}

/* The next message of a channel moves; its bytes are read now. */
static bool carry(struct oracle *o, uint32_t c)
{
	struct message *message = &o->messages[c][o->carried[c]];
	if (o->carried[c] >= o->posts[0][c] || o->carried[c] >= o->posts[1][c])
		return false;
	const struct rank *source = rank_at(o, c, 0);
	const struct pp_instr *send = &source->stream->items[message->posted[0] - 1];
	const struct pp_instr *recv = &rank_at(o, c, 1)->stream->items[message->posted[1] - 1];
	message->carried = oracle_read(o, (uint32_t)(source - o->ranks), send->a[2]);
	if (send->count != recv->count || send->dtype != recv->dtype || message->carried != message->at_post)
		o->poison++;
	message->over = true;
	o->carried[c]++;
	return true;
}

/* True if the rank goes on. */
static bool wait_message(struct oracle *o, uint32_t w, const struct pp_instr *instr)
{
	uint32_t c = channel_of(o, w, instr);
	int end = rank_at(o, c, 1) == &o->ranks[w];
	if (!end && rank_at(o, c, 0) != &o->ranks[w]) {
		o->poison++;
		return true;
	}
	if (instr->a[1] >= o->posts[end][c] || !o->messages[c][instr->a[1]].over)
		return false;
	struct message *message = &o->messages[c][instr->a[1]];
	if (message->waited[end])
		return true;
	message->waited[end] = true;
	uint32_t slot = o->ranks[w].stream->items[message->posted[end] - 1].a[2];
	if (oracle_read(o, w, slot) != (end ? message->token : message->at_post))
		o->poison++;
	if (end)
		oracle_write(o, w, slot, message->carried);
	else
		oracle_destroy(o, w, slot);
	return true;
}

/* ---- run ------------------------------------------------------------------------------------- */

static void load(struct oracle *o, uint32_t w, const struct pp_instr *instr, uint64_t number)
{
	uint64_t what[] = {number, instr->sub, instr->stage, instr->mb, o->ranks[w].dp};
	oracle_write(o, w, instr->a[0], oracle_mix_all(5, what, 5));
}

static bool step(struct oracle *o, uint32_t w, uint64_t number)
{
	struct rank *rank = &o->ranks[w];
	if (rank->at == rank->stream->count)
		return false;
	const struct pp_instr *instr = &rank->stream->items[rank->at];
	switch ((enum pp_op)instr->op) {
	case PP_OP_LOAD:
		load(o, w, instr, number);
		break;
	case PP_OP_REMAT:
	case PP_OP_FWD:
	case PP_OP_BWD:
	case PP_OP_BWDI:
	case PP_OP_BWDW:
		return compute(o, w, instr);
	case PP_OP_SEND:
	case PP_OP_RECV:
		post(o, w, instr);
		break;
	case PP_OP_WAIT:
		if (!wait_message(o, w, instr))
			return false;
		break;
	case PP_OP_COLL:
		oracle_post(o, w, instr);
		break;
	case PP_OP_WAITC:
		if (!oracle_wait(o, w, instr))
			return false;
		break;
	case PP_OP_ZERO:
	case PP_OP_ADD:
	case PP_OP_SQNORM:
	case PP_OP_CLIP:
	case PP_OP_OPT:
	case PP_OP_MARK:
	case PP_OP_COUNT:
		oracle_tail(o, w, instr);
		break;
	}
	rank->at++;
	return true;
}

/* Ranks and channels in random turns until nothing moves. */
static bool run_step(struct oracle *o, uint64_t number)
{
	uint32_t world = o->world, actors = world + o->program->channel_count * o->replicas;
	for (uint32_t idle = 0; idle < 40 * actors + 200;) {
		uint32_t actor = random_below(&o->seed, actors), burst = 1 + random_below(&o->seed, 4);
		bool moved = false;
		while (burst-- && (actor < world ? step(o, actor, number) : carry(o, actor - world)))
			moved = true;
		idle = moved ? 0 : idle + 1;
	}
	/* the random turns may have missed somebody */
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t a = 0; a < actors; a++)
			while (a < world ? step(o, a, number) : carry(o, a - world))
				moved = true;
	}
	for (uint32_t w = 0; w < world; w++)
		if (o->ranks[w].at != o->ranks[w].stream->count)
			return false;
	return true;
}

static void end_step(struct oracle *o)
{
	for (uint32_t c = 0; c < o->program->channel_count * o->replicas; c++) {
		for (int end = 0; end < 2; end++)
			for (uint32_t k = 0; k < o->posts[end][c]; k++)
				o->poison += !o->messages[c][k].waited[end];
		memset(o->messages[c], 0, o->most * sizeof **o->messages);
		o->posts[0][c] = o->posts[1][c] = o->carried[c] = 0;
	}
	for (uint32_t w = 0; w < o->world; w++) {
		struct rank *rank = &o->ranks[w];
		for (uint32_t i = 0; i < rank->flight_count; i++)
			o->poison += !rank->flights[i].waited;
		rank->flight_count = rank->at = 0;
		memset(rank->group_posts, 0, o->program->group_count * sizeof(uint32_t));
	}
	oracle_end_joints(o);
}

/* Every coordinate begins with the same weights, or its own part of them. */
static void begin_slot(struct oracle *o, uint32_t w, uint32_t i)
{
	struct rank *rank = &o->ranks[w];
	const struct pp_slot *slot = &rank->memory->slots[i];
	bool of_tensor = slot->tensor < o->program->tensor_count;
	bool words = (slot->class == PP_SLOT_WEIGHT || slot->class == PP_SLOT_GRAD) && of_tensor && oracle_shards(o);
	rank->length[i] = slot->class == PP_SLOT_LOSSES  ? o->program->microbatches
	                  : slot->class == PP_SLOT_NORMS ? o->program->tensor_count
	                  : words                        ? o->dp
	                                                 : 1;
	rank->value[i] = PP_NEW_ARRAY(o->arena, uint64_t, rank->length[i]);
	oracle_destroy(o, w, i);
	bool sharded = of_tensor && o->program->tensors[slot->tensor].tp_grad == PP_TP_SHARDED;
	for (uint32_t k = 0; slot->class == PP_SLOT_WEIGHT && k < rank->length[i]; k++)
		rank->value[i][k] = oracle_mix(oracle_mix(21, slot->tensor), k * 64 + (sharded ? rank->tp : 0));
	if (slot->class == PP_SLOT_MASTER)
		rank->value[i][0] =
		    oracle_mix(oracle_mix(22, slot->tensor), (oracle_shards(o) ? rank->dp * 64 : 0) + (sharded ? rank->tp : 0));
	if (slot->class == PP_SLOT_MOMENT)
		rank->value[i][0] = 0;
}

/* Instructions of a rank in its longest program. */
static uint32_t program_length(const struct pp_program *program, uint32_t r)
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < program->program_count; i++)
		most = program->programs[i].streams[r].count > most ? program->programs[i].streams[r].count : most;
	return most;
}

static void begin_rank(struct oracle *o, uint32_t w)
{
	const struct pp_program *program = o->program;
	struct rank *rank = &o->ranks[w];
	rank->pp = w % program->ranks;
	rank->tp = w / program->ranks % o->tp;
	rank->dp = w / program->ranks / o->tp;
	rank->memory = &program->rank[rank->pp];
	uint32_t length = program_length(program, rank->pp);
	o->most = length > o->most ? length : o->most;
	rank->value = PP_NEW_ARRAY(o->arena, uint64_t *, rank->memory->slot_count);
	rank->length = PP_NEW_ARRAY(o->arena, uint32_t, rank->memory->slot_count);
	rank->flights = PP_NEW_ARRAY(o->arena, struct flight, length);
	rank->group_posts = PP_NEW_ARRAY(o->arena, uint32_t, program->group_count);
	for (uint32_t i = 0; i < rank->memory->slot_count; i++)
		begin_slot(o, w, i);
}

static struct oracle begin(struct pp_arena *arena, const struct pp_program *program, uint64_t seed)
{
	struct oracle o = {.arena = arena,
	                   .program = program,
	                   .tp = program->tp,
	                   .dp = program->dp,
	                   .replicas = program->tp * program->dp,
	                   .seed = seed,
	                   .made_of = PP_NEW_ARRAY(arena, uint64_t, program->stage_count)};
	o.world = o.replicas * program->ranks;
	o.ranks = PP_NEW_ARRAY(arena, struct rank, o.world);
	for (uint32_t w = 0; w < o.world; w++)
		begin_rank(&o, w);
	uint32_t channels = program->channel_count * o.replicas;
	o.messages = PP_NEW_ARRAY(arena, struct message *, channels);
	for (uint32_t c = 0; c < channels; c++)
		o.messages[c] = PP_NEW_ARRAY(arena, struct message, o.most);
	o.posts[0] = PP_NEW_ARRAY(arena, uint32_t, channels);
	o.posts[1] = PP_NEW_ARRAY(arena, uint32_t, channels);
	o.carried = PP_NEW_ARRAY(arena, uint32_t, channels);
	oracle_make_joints(&o);
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
		for (uint32_t w = 0; w < o.world; w++)
			o.ranks[w].stream = &program->programs[number % program->program_count].streams[o.ranks[w].pp];
		finished = run_step(&o, number);
		if (finished)
			end_step(&o);
		for (uint32_t w = 0; w < o.world; w++)
			for (uint32_t i = 0; program->tensor_count && i < o.ranks[w].memory->slot_count; i++) {
				uint8_t class = o.ranks[w].memory->slots[i].class;
				if (class == PP_SLOT_WEIGHT || class == PP_SLOT_MASTER || class == PP_SLOT_LOSSES ||
				    class == PP_SLOT_SCALE)
					*result = oracle_mix(*result, oracle_read(&o, w, i));
			}
	}
	for (uint32_t s = 0; s < program->stage_count; s++)
		*result = oracle_mix(*result, o.made_of[s]);
	if (o.poison)
		*result = oracle_mix(*result, oracle_garbage(&o) + seed);
	pp_arena_destroy(arena);
	return finished;
}
