/* Digests of posts: FNV-1a over what pp_identity_equal and pp_part_equal look at.
 *
 * Requires: at an exchange all ranks have posted the same steps. Ensures: nothing is allocated by a post. */
#include "identity.h"

#include "plan.h"

#include "ir/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool pp_nccl_identity_make(struct pp_nccl_identity *identity, const struct pp_program *program, uint32_t lines)
{
	*identity = (struct pp_nccl_identity){.program = program,
	                                      .ranks = (uint32_t)pp_grid_world(program),
	                                      .lines = lines,
	                                      .digests = calloc(lines, sizeof *identity->digests)};
	for (uint32_t line = 0; identity->digests && line < lines; line++)
		identity->digests[line] = PP_HASH_EMPTY;
	return identity->digests != NULL;
}

void pp_nccl_identity_free(struct pp_nccl_identity *identity)
{
	free(identity->digests);
	free(identity->given);
	free(identity->taken);
	*identity = (struct pp_nccl_identity){0};
}

/* ---- posts ----------------------------------------------------------------------------------- */

static void add(struct pp_nccl_identity *identity, uint32_t line, const uint64_t *values, size_t count)
{
	identity->digests[line] = pp_hash_more(identity->digests[line], values, count * sizeof *values);
}

void pp_nccl_identity_message(struct pp_nccl_identity *identity, const struct pp_instr *instr)
{
	if (!identity->digests)
		return;
	const struct pp_identity one = pp_identity_of(identity->program, instr);
	const uint64_t values[] = {one.channel, one.seq, one.stage, one.mb, one.bytes, one.dtype, one.kind};
	add(identity, instr->a[0], values, sizeof values / sizeof *values);
}

void pp_nccl_identity_part(struct pp_nccl_identity *identity, uint32_t line, const struct pp_part *part)
{
	const uint64_t values[] = {part->kind, part->dtype, part->count};
	if (identity->digests)
		add(identity, line, values, sizeof values / sizeof *values);
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static bool make_room(unsigned char **memory, size_t *room, size_t bytes)
{
	if (bytes <= *room)
		return true;
	unsigned char *more = realloc(*memory, bytes);
	if (!more)
		return false;
	*memory = more;
	*room = bytes;
	return true;
}

bool pp_nccl_identity_pack(struct pp_nccl_identity *identity, const void *mine, void *all, size_t bytes, size_t *size)
{
	size_t own = identity->lines * sizeof *identity->digests, whole;
	identity->all = all;
	identity->bytes = bytes;
	if (__builtin_add_overflow(own, bytes, size) || __builtin_mul_overflow(*size, identity->ranks, &whole) ||
	    !make_room(&identity->given, &identity->given_room, *size) ||
	    !make_room(&identity->taken, &identity->taken_room, whole))
		return false;
	memcpy(identity->given, identity->digests, own);
	if (bytes)
		memcpy(identity->given + own, mine, bytes);
	return true;
}

static uint64_t digest_of(const struct pp_nccl_identity *identity, uint32_t rank, uint32_t line)
{
	size_t own = identity->lines * sizeof *identity->digests;
	uint64_t digest;
	memcpy(&digest, identity->taken + rank * (own + identity->bytes) + line * sizeof digest, sizeof digest);
	return digest;
}

/* A member against the first one of its communicator. */
static bool agrees(const struct pp_nccl_identity *identity, uint32_t rank, uint32_t line, struct pp_status *status)
{
	const struct pp_program *program = identity->program;
	const struct pp_nccl_seat seat = pp_nccl_plan_seat(program, line, pp_grid_coord(program, rank));
	if (seat.members < 2 || digest_of(identity, rank, line) == digest_of(identity, seat.first, line))
		return true;
	char name[PP_NCCL_NAME], first[PP_GRID_NAME], other[PP_GRID_NAME];
	return pp_fail(status, PP_EXIT_RUN,
	               "message identity differs: on %s, %s and %s have not posted the same; find the message with "
	               "--check-identity --staged",
	               pp_nccl_plan_name(program, line, name), pp_grid_name(program, seat.first, first),
	               pp_grid_name(program, rank, other));
}

bool pp_nccl_identity_unpack(struct pp_nccl_identity *identity, struct pp_status *status)
{
	size_t own = identity->lines * sizeof *identity->digests, size = own + identity->bytes;
	for (uint32_t rank = 0; rank < identity->ranks && identity->bytes; rank++)
		memcpy((unsigned char *)identity->all + rank * identity->bytes, identity->taken + rank * size + own,
		       identity->bytes);
	for (uint32_t line = 0; line < identity->lines; line++)
		for (uint32_t rank = 0; rank < identity->ranks; rank++)
			if (!agrees(identity, rank, line, status))
				return false;
	return true;
}
