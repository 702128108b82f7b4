/* Collectives between threads. Counters only grow; a member's entries are written before its counter is raised
 * (release) and read by the mover after it (acquire); the mover holds the team's flag.
 *
 * Requires: one thread per member, no more posts than it has room for. Ensures: sums in member order; an element is
 * written only after all that depends on what it held has been computed, so `to` may be `from` or lie in it. */
#include "collective_loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUM_BYTES = 4096 };

bool pp_loop_team_make(struct pp_loop_team *team, uint32_t members)
{
	team->member_count = members;
	team->members = calloc(members, sizeof *team->members);
	team->parts = calloc(members, sizeof *team->parts);
	return team->members && team->parts;
}

bool pp_loop_team_join(struct pp_loop_team *team, uint32_t member, uint32_t capacity)
{
	struct pp_loop_member *joins = &team->members[member];
	joins->capacity = capacity ? capacity : 1;
	joins->posts = calloc(joins->capacity, sizeof *joins->posts);
	return joins->posts != NULL;
}

void pp_loop_team_free(struct pp_loop_team *team)
{
	for (uint32_t i = 0; team->members && i < team->member_count; i++)
		free(team->members[i].posts);
	free(team->members);
	free(team->parts);
	team->members = NULL;
	team->parts = NULL;
}

uint64_t pp_loop_team_post(struct pp_loop_team *team, uint32_t member, const struct pp_part *part)
{
	struct pp_loop_member *own = &team->members[member];
	uint64_t number = pp_loop_team_next(team, member);
	own->posts[number % own->capacity] = *part;
	atomic_store_explicit(&own->posted, number + 1, memory_order_release);
	return number;
}

static const struct pp_part *part_of(const struct pp_loop_team *team, uint32_t member, uint64_t number)
{
	const struct pp_loop_member *posted = &team->members[member];
	return &posted->posts[number % posted->capacity];
}

/* The members' elements from `at` on. */
struct piece {
	const struct pp_loop_team *team;
	uint64_t number, at;
};

static const void *given(const void *context, uint32_t member)
{
	const struct piece *piece = context;
	const struct pp_part *part = part_of(piece->team, member, piece->number);
	return part->from + piece->at * pp_dtype_size[part->dtype];
}

static void sum_piece(const struct pp_loop_team *team, uint64_t number, uint64_t at, size_t count, void *sum)
{
	const struct piece piece = {team, number, at};
	enum pp_dtype dtype = (enum pp_dtype)part_of(team, 0, number)->dtype;
	pp_transport_sum(dtype, sum, given, &piece, team->member_count, count);
}

/* A piece at a time, so that it stays in the cache. */
static void allreduce(const struct pp_loop_team *team, uint64_t number)
{
	const struct pp_part *first = part_of(team, 0, number);
	size_t size = pp_dtype_size[first->dtype], piece = SUM_BYTES / size;
	double sum[SUM_BYTES / sizeof(double)];
	for (uint64_t at = 0; at < first->count; at += piece) {
		size_t count = first->count - at < piece ? (size_t)(first->count - at) : piece;
		sum_piece(team, number, at, count, sum);
		for (uint32_t i = 0; i < team->member_count; i++)
			memcpy(part_of(team, i, number)->to + at * size, sum, count * size);
	}
}

static void reducescatter(const struct pp_loop_team *team, uint64_t number)
{
	const struct pp_part *first = part_of(team, 0, number);
	size_t size = pp_dtype_size[first->dtype], piece = SUM_BYTES / size;
	double sum[SUM_BYTES / sizeof(double)];
	for (uint32_t i = 0; i < team->member_count; i++)
		for (uint64_t at = 0; at < first->count; at += piece) {
			size_t count = first->count - at < piece ? (size_t)(first->count - at) : piece;
			sum_piece(team, number, i * first->count + at, count, sum);
			memcpy(part_of(team, i, number)->to + at * size, sum, count * size);
		}
}

static void allgather(const struct pp_loop_team *team, uint64_t number)
{
	const struct pp_part *first = part_of(team, 0, number);
	size_t bytes = (size_t)first->count * pp_dtype_size[first->dtype];
	for (uint32_t i = 0; i < team->member_count; i++)
		for (uint32_t k = 0; k < team->member_count; k++) {
			const unsigned char *from = part_of(team, k, number)->from;
			unsigned char *to = part_of(team, i, number)->to + k * bytes;
			if (to != from)
				memmove(to, from, bytes);
		}
}

static void run_here(const struct pp_loop_team *team, uint64_t number)
{
	switch ((enum pp_collective)part_of(team, 0, number)->kind) {
	case PP_ALLREDUCE:
		allreduce(team, number);
		return;
	case PP_REDUCESCATTER:
		reducescatter(team, number);
		return;
	case PP_ALLGATHER:
		allgather(team, number);
		return;
	case PP_COLLECTIVE_COUNT:
		break;
	}
}

static bool run(struct pp_loop_team *team, uint64_t number, char *why, size_t size)
{
	if (!team->mover) {
		run_here(team, number);
		return true;
	}
	for (uint32_t i = 0; i < team->member_count; i++)
		team->parts[i] = part_of(team, i, number);
	struct pp_status status;
	if (team->mover->collect(team->lane, number, team->parts, team->member_count, &status))
		return true;
	snprintf(why, size, "cannot move data: %s", status.text);
	return false;
}

static bool all_posted(const struct pp_loop_team *team, uint64_t number)
{
	for (uint32_t i = 0; i < team->member_count; i++)
		if (atomic_load_explicit(&team->members[i].posted, memory_order_acquire) <= number)
			return false;
	return true;
}

static bool congruent(const struct pp_loop_team *team, uint64_t number, char *why, size_t size)
{
	const struct pp_part *first = part_of(team, 0, number);
	for (uint32_t i = 1; i < team->member_count; i++) {
		const struct pp_part *other = part_of(team, i, number);
		char texts[2][PP_PART_TEXT];
		if (pp_part_equal(first, other))
			continue;
		snprintf(why, size, "disagree: member 0 posts %s, member %" PRIu32 " %s", pp_part_text(first, texts[0]), i,
		         pp_part_text(other, texts[1]));
		return false;
	}
	return true;
}

bool pp_loop_team_move(struct pp_loop_team *team, char *why, size_t size)
{
	if (!all_posted(team, atomic_load_explicit(&team->done, memory_order_acquire)) ||
	    atomic_flag_test_and_set(&team->moving))
		return true;
	uint64_t done = atomic_load_explicit(&team->done, memory_order_acquire);
	bool fine = true;
	while (all_posted(team, done) && (fine = congruent(team, done, why, size) && run(team, done, why, size)))
		atomic_store_explicit(&team->done, ++done, memory_order_release);
	atomic_flag_clear(&team->moving);
	return fine;
}
