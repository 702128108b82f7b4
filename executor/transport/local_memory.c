/* Where each channel and group of a program lies in the shared memory. It is anonymous, so that nothing of it is left
 * behind however the processes end.
 *
 * Requires: a verified program. Ensures: all addresses are the same in all processes, since they inherit the mapping.
 */
#include "local_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE = 64, RING = 256 * 1024, PIECE = 64 * 1024, EXCHANGE_PIECE = 4096, LEAST = 64 };

/* A part of the memory, whole cache lines; NULL while bytes are only counted. */
static void *take(struct pp_local *local, uint64_t bytes)
{
	uint64_t at = local->bytes;
	local->bytes += (bytes + LINE - 1) / LINE * LINE;
	return local->memory ? (unsigned char *)local->memory + at : NULL;
}

static uint64_t room(uint64_t bytes, uint64_t most)
{
	uint64_t wanted = (bytes + LINE - 1) / LINE * LINE;
	return wanted < LEAST ? LEAST : wanted > most ? most : wanted;
}

static void place_team(struct pp_local *local, struct pp_local_team *team, uint32_t members, uint64_t piece)
{
	team->count = members;
	team->piece = piece;
	team->members = take(local, members * sizeof *team->members);
	team->data = take(local, 2 * members * piece);
}

/* The last is that of bodies. */
static const struct pp_group *group_at(const struct pp_program *program, uint32_t index)
{
	static const struct pp_group of_bodies = {.axis = PP_AXIS_TP};
	return index < program->group_count ? &program->groups[index] : &of_bodies;
}

/* The team of the rank's group; its first member comes first and has it placed. */
static bool place_group(struct pp_local *local, uint32_t world, uint32_t index, uint64_t bytes)
{
	const struct pp_group *group = group_at(local->program, index);
	struct pp_coord coord = pp_grid_coord(local->program, world);
	uint32_t position = pp_grid_position(group, coord), each = local->program->group_count + 1;
	struct pp_local_team **own = &local->teams[(size_t)world * each + index];
	if (position == PP_NULL)
		return true;
	if (position > 0) {
		*own = local->teams[(size_t)pp_grid_member(local->program, group, coord, 0) * each + index];
		return true;
	}
	if (!*own && !(*own = calloc(1, sizeof **own)))
		return false;
	place_team(local, *own, pp_grid_members(local->program, group), room(bytes, PIECE));
	return true;
}

static bool place_rank(struct pp_local *local, uint32_t world)
{
	const struct pp_program *program = local->program;
	struct pp_coord coord = pp_grid_coord(program, world);
	struct pp_post_counts counts;
	if (!pp_post_counts_make(program, coord.pp, &counts))
		return false;
	size_t slice = (size_t)coord.dp * pp_grid_extent(program, PP_AXIS_TP) + coord.tp;
	for (uint32_t i = 0; i < program->channel_count; i++) {
		struct pp_local_ring *ring = &local->rings[slice * program->channel_count + i];
		if (program->channels[i].source != coord.pp)
			continue;
		ring->capacity = room(counts.channel[i].bytes, RING);
		ring->shared = take(local, sizeof *ring->shared);
		ring->bytes = take(local, ring->capacity);
	}
	bool ok = true;
	for (uint32_t i = 0; ok && i <= program->group_count; i++)
		ok = place_group(local, world, i, i < program->group_count ? counts.group[i].bytes : counts.body.bytes);
	pp_post_counts_free(&counts);
	return ok;
}

static bool place_all(struct pp_local *local)
{
	local->bytes = 0;
	local->board = take(local, sizeof *local->board);
	place_team(local, &local->everyone, local->world, EXCHANGE_PIECE);
	/* Along every axis the coordinate 0 has the lowest world rank of its group, and members ascend. */
	for (uint32_t world = 0; world < local->world; world++)
		if (!place_rank(local, world))
			return false;
	return true;
}

bool pp_local_place(struct pp_local *local)
{
	const struct pp_program *program = local->program;
	size_t slices = (size_t)pp_grid_extent(program, PP_AXIS_TP) * pp_grid_extent(program, PP_AXIS_DP);
	local->rings = calloc(slices * program->channel_count + 1, sizeof *local->rings);
	local->teams = calloc((size_t)local->world * (program->group_count + 1), sizeof(struct pp_local_team *));
	if (!local->rings || !local->teams || !place_all(local))
		return false;
	int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
	void *memory = zero < 0 ? MAP_FAILED : mmap(NULL, local->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
	if (zero >= 0)
		close(zero);
	if (memory == MAP_FAILED)
		return false;
	local->memory = memory;
	return place_all(local);
}

void pp_local_free(struct pp_local *local)
{
	const struct pp_program *program = local->program;
	uint32_t each = program->group_count + 1;
	for (uint32_t world = 0; local->teams && world < local->world; world++)
		for (uint32_t i = 0; i < each; i++)
			if (pp_grid_position(group_at(program, i), pp_grid_coord(program, world)) == 0)
				free(local->teams[(size_t)world * each + i]);
	free(local->teams);
	free(local->rings);
	if (local->memory)
		munmap(local->memory, local->bytes);
}
