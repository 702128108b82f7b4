/* Mutation of programs: mutate.h. */
#include "mutate.h"

#include "build_program.h"

#include "ir/operands.h"
#include "random.h"

#include <string.h>

const char *const mutation_name[] = {
    "drop", "duplicate", "swap",  "neighbours", "move", "slot",  "channel",       "sequence",         "stage",  "mb",
    "op",   "flags",     "dtype", "count",      "kind", "group", "collective id", "collective order", "offset", "size"};

struct site {
	struct pp_program *program;
	uint32_t rank, at;
	struct pp_stream *stream;
	struct pp_instr *instr;
	uint64_t *seed;
};

static bool carries(const struct pp_instr *instr, char letter)
{
	return strchr(pp_op_table[instr->op].signature, letter) != NULL;
}

/* A random instruction whose signature has one of `letters` (NULL: any). */
static bool pick(struct site *site, const char *letters)
{
	for (int tries = 0; tries < 4000; tries++) {
		site->rank = random_below(site->seed, site->program->ranks);
		uint32_t programs = site->program->program_count;
		site->stream =
		    &site->program->programs[programs > 1 ? random_below(site->seed, programs) : 0].streams[site->rank];
		if (!site->stream->count)
			continue;
		site->at = random_below(site->seed, site->stream->count);
		site->instr = &site->stream->items[site->at];
		if (!letters || strpbrk(pp_op_table[site->instr->op].signature, letters))
			return true;
	}
	return false;
}

static void remove_at(struct pp_stream *stream, uint32_t at)
{
	memmove(&stream->items[at], &stream->items[at + 1], (stream->count - at - 1) * sizeof *stream->items);
	stream->count--;
}

/* build_copy leaves room for one more. */
static void insert_at(struct pp_stream *stream, uint32_t at, struct pp_instr instr)
{
	memmove(&stream->items[at + 1], &stream->items[at], (stream->count - at) * sizeof *stream->items);
	stream->items[at] = instr;
	stream->count++;
}

static void exchange(struct pp_stream *stream, uint32_t a, uint32_t b)
{
	struct pp_instr kept = stream->items[a];
	stream->items[a] = stream->items[b];
	stream->items[b] = kept;
}

static bool move_something(struct site *site, enum mutation kind)
{
	uint32_t other = random_below(site->seed, site->stream->count);
	struct pp_instr instr = *site->instr;
	switch (kind) {
	case MUTATE_DROP:
		remove_at(site->stream, site->at);
		return true;
	case MUTATE_DUPLICATE:
		insert_at(site->stream, random_below(site->seed, 2) ? site->at : other, instr);
		return true;
	case MUTATE_SWAP:
		exchange(site->stream, site->at, other);
		return true;
	case MUTATE_NEIGHBOURS:
		if (site->at + 1 == site->stream->count)
			return false;
		exchange(site->stream, site->at, site->at + 1);
		return true;
	default:
		remove_at(site->stream, site->at);
		insert_at(site->stream, other < site->stream->count ? other : site->stream->count, instr);
		return true;
	}
}

/* Another slot, usually of the same class. */
static bool retarget(struct site *site)
{
	const struct pp_rank *memory = &site->program->rank[site->rank];
	uint32_t operand;
	do
		operand = random_below(site->seed, PP_SLOT_OPERANDS);
	while (!carries(site->instr, (char)('1' + operand)));
	uint32_t *slot_of = operand < 4 ? &site->instr->a[operand] : &site->instr->extra, old = *slot_of;
	if (old == PP_NULL || random_below(site->seed, 12) == 0) {
		bool fixed = old != PP_NULL && pp_slot_is_static(memory->slots[old].class);
		if (site->instr->op == PP_OP_SEND || site->instr->op == PP_OP_RECV || site->instr->op == PP_OP_LOAD || fixed ||
		    (site->instr->op == PP_OP_REMAT && operand == 4) || site->instr->op >= PP_OP_COLL)
			return false; /* a reader refuses a null slot there */
		if (old != PP_NULL) {
			if (operand == 0 && site->instr->op != PP_OP_FWD)
				return false; /* whether a backward reads aux is said by its body, and these programs have none */
			*slot_of = PP_NULL;
			return true;
		}
	}
	bool any = random_below(site->seed, 4) == 0 && site->instr->op <= PP_OP_RECV;
	for (int tries = 0; tries < 200; tries++) {
		uint32_t slot = random_below(site->seed, memory->slot_count);
		if (slot == old || (!any && old != PP_NULL && memory->slots[slot].class != memory->slots[old].class))
			continue;
		*slot_of = slot;
		return true;
	}
	return false;
}

static bool change_op(struct site *site)
{
	static const uint8_t compute[] = {PP_OP_FWD, PP_OP_BWD, PP_OP_BWDI, PP_OP_BWDW, PP_OP_REMAT};
	struct pp_instr *instr = site->instr;
	if (instr->op >= PP_OP_FWD && instr->op <= PP_OP_BWDW) {
		bool extra = carries(instr, '5');
		instr->op = compute[random_below(site->seed, sizeof compute)];
		if (!extra && carries(instr, '5'))
			instr->extra = PP_NULL;
		*instr = pp_instr_canonical(instr, pp_op_members((enum pp_op)instr->op));
		return true;
	}
	if (instr->op != PP_OP_SEND && instr->op != PP_OP_RECV)
		return false;
	instr->op = instr->op == PP_OP_SEND ? PP_OP_RECV : PP_OP_SEND;
	return true;
}

static bool change_kind(struct site *site)
{
	uint32_t limit = carries(site->instr, 'k') ? PP_LOAD_COUNT : carries(site->instr, 'r') ? PP_COLLECTIVE_COUNT : 2;
	site->instr->sub = (uint8_t)((site->instr->sub + 1 + random_below(site->seed, limit - 1)) % limit);
	return true;
}

/* A reader knows where flags may stand. */
static bool change_flag(struct site *site)
{
	bool weights = site->instr->op == PP_OP_BWD || site->instr->op == PP_OP_BWDW;
	bool tail = site->instr->op == PP_OP_COLL || site->instr->op == PP_OP_SQNORM || site->instr->op == PP_OP_OPT;
	site->instr->flags ^= weights ? PP_FIRST : PP_SHARD;
	return weights || tail;
}

static bool change_mb(struct site *site)
{
	uint32_t limit = carries(site->instr, 'm')   ? site->program->microbatches
	                 : carries(site->instr, 'n') ? site->program->tensor_count
	                                             : site->program->train.hyper_count;
	if (limit < 2)
		return false;
	site->instr->mb = (site->instr->mb + 1 + random_below(site->seed, limit - 1)) % limit;
	return true;
}

static bool other_value(uint32_t *value, uint32_t limit, uint64_t *seed)
{
	if (limit < 2)
		return false;
	*value = (*value + 1 + random_below(seed, limit - 1)) % limit;
	return true;
}

/* Two collectives of one rank, each with its wait behind it, change places. */
static bool change_collectives(struct site *site)
{
	uint32_t first = PP_NULL, second = PP_NULL;
	for (uint32_t i = site->at; i < site->stream->count && second == PP_NULL; i++)
		if (site->stream->items[i].op == PP_OP_COLL)
			*(first == PP_NULL ? &first : &second) = i;
	if (second == PP_NULL || second + 1 >= site->stream->count)
		return false;
	exchange(site->stream, first, second);
	exchange(site->stream, first + 1, second + 1);
	return true;
}

static bool overlap_slots(struct site *site)
{
	struct pp_rank *memory = &site->program->rank[site->rank];
	struct pp_slot *slot = &memory->slots[random_below(site->seed, memory->slot_count)],
	               *other = &memory->slots[random_below(site->seed, memory->slot_count)];
	if (slot == other || !slot->placed || !other->placed || slot->offset == other->offset)
		return false;
	slot->offset = other->offset;
	uint64_t end = slot->offset + slot->bytes;
	memory->arena_bytes = end > memory->arena_bytes ? end : memory->arena_bytes;
	return true;
}

static bool resize_slot(struct site *site)
{
	struct pp_rank *memory = &site->program->rank[site->rank];
	struct pp_slot *slot = &memory->slots[random_below(site->seed, memory->slot_count)];
	slot->bytes = random_below(site->seed, 2) ? slot->bytes + PP_ALIGN : slot->bytes / 2;
	uint64_t end = slot->offset + slot->bytes;
	if (slot->placed && end > memory->arena_bytes)
		memory->arena_bytes = end;
	return true;
}

bool mutate(struct pp_program *program, enum mutation kind, uint64_t *seed)
{
	static const char *const letters[MUTATION_COUNT] = {
	    [MUTATE_SLOT] = "12345", [MUTATE_CHANNEL] = "c",  [MUTATE_SEQUENCE] = "q",     [MUTATE_STAGE] = "s",
	    [MUTATE_MB] = "mnh",     [MUTATE_FLAGS] = "srnu", [MUTATE_DTYPE] = "t",        [MUTATE_COUNT] = "t",
	    [MUTATE_KIND] = "krue",  [MUTATE_GROUP] = "G",    [MUTATE_COLLECTIVE_ID] = "K"};
	struct site site = {.program = program, .seed = seed};
	if (!pick(&site, letters[kind]))
		return false;
	switch (kind) {
	case MUTATE_DROP:
	case MUTATE_DUPLICATE:
	case MUTATE_SWAP:
	case MUTATE_NEIGHBOURS:
	case MUTATE_MOVE:
		return move_something(&site, kind);
	case MUTATE_SLOT:
		return retarget(&site);
	case MUTATE_CHANNEL:
		return other_value(&site.instr->a[0], program->channel_count, seed);
	case MUTATE_SEQUENCE:
		site.instr->a[1] += random_below(seed, 2) || !site.instr->a[1] ? 1 : UINT32_MAX;
		return true;
	case MUTATE_STAGE:
		return other_value(&site.instr->stage, program->stage_count, seed);
	case MUTATE_MB:
		return change_mb(&site);
	case MUTATE_OP:
		return change_op(&site);
	case MUTATE_FLAGS:
		return change_flag(&site);
	case MUTATE_DTYPE:
		site.instr->dtype =
		    (uint8_t)((site.instr->dtype + 1 + random_below(seed, PP_DTYPE_COUNT - 1)) % PP_DTYPE_COUNT);
		return true;
	case MUTATE_COUNT:
		site.instr->count += random_below(seed, 2) ? 1 : UINT32_MAX;
		return true;
	case MUTATE_KIND:
		return change_kind(&site);
	case MUTATE_GROUP:
		return other_value(&site.instr->a[1], program->group_count, seed);
	case MUTATE_COLLECTIVE_ID:
		site.instr->a[0] += 1 + random_below(seed, 3);
		return true;
	case MUTATE_COLLECTIVE_ORDER:
		return change_collectives(&site);
	case MUTATE_OFFSET:
		return overlap_slots(&site);
	case MUTATE_SIZE:
		return resize_slot(&site);
	case MUTATION_COUNT:
		break;
	}
	return false;
}
