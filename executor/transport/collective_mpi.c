/* Collectives over MPI point-to-point, with sums in member order.
 *
 * A round moves up to `share` bytes from each member to each other. Scatter: every member sends every other the
 * elements that this one sums, and sums its own with those of the others in member order, so every element is computed
 * once. Gather: every member sends its sums, or what it gives, to all others. An allreduce is a scatter and a gather; a
 * short one is a scatter in which all get everything and compute the same sums. Two messages' time and 2 (n-1)/n of the
 * payload per member: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations in
 * MPICH, IJHPCA 19(1), 2005, section 4.5.
 *
 * Requires: all members post the same collectives of a group in the same order. Ensures: nothing waits; a payload is
 * neither written while it is sent nor read before it has come. */
#include "endpoint_mpi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ALL_SHARES = 1 << 20, /* bytes that a round brings to a member at most */
	LEAST_SHARE = 1 << 14,
	SHORT = 1 << 16, /* bytes that a member may get at once to save the gather */
};

/* Elements of a payload. */
struct span {
	uint64_t at, count;
};

static const struct pp_part *head(const struct pp_mpi_line *line)
{
	return &line->posts[line->done % line->capacity];
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t share_elements(const struct pp_mpi_line *line, const struct pp_part *part)
{
	return line->share / pp_dtype_size[part->dtype];
}

static bool is_short(const struct pp_mpi_line *line, const struct pp_part *part)
{
	uint64_t bytes = part->count * pp_dtype_size[part->dtype];
	return part->kind == PP_ALLREDUCE && bytes <= line->share && bytes * (line->members - 1) <= SHORT;
}

/* Elements of the present round that `member` sums, within the payload of all. */
static struct span summed_by(const struct pp_mpi_line *line, const struct pp_part *part, uint32_t member)
{
	uint64_t share = share_elements(line, part);
	if (part->kind == PP_REDUCESCATTER) {
		uint64_t at = line->round * share;
		return (struct span){member * part->count + at, least(share, part->count - at)};
	}
	if (is_short(line, part))
		return (struct span){0, part->count};
	uint64_t at = line->round * share * line->members;
	uint64_t left = least(part->count - at, share * line->members);
	uint64_t each = (left + line->members - 1) / line->members;
	uint64_t first = least(member * each, left);
	return (struct span){at + first, least(each, left - first)};
}

static uint64_t rounds(const struct pp_mpi_line *line, const struct pp_part *part)
{
	uint64_t each = share_elements(line, part);
	if (part->kind == PP_ALLREDUCE && !is_short(line, part))
		each *= line->members;
	return (part->count + each - 1) / each;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void receive(struct pp_endpoint *endpoint, struct pp_mpi_line *line, uint32_t member, void *to, uint64_t bytes)
{
	if (bytes == 0)
		return;
	line->wanted[line->request_count] = (int)bytes;
	pp_mpi_succeeded(endpoint,
	                 MPI_Irecv(to, (int)bytes, MPI_BYTE, line->ranks[member], line->tag, endpoint->sums,
	                           &line->requests[line->request_count++]),
	                 "MPI_Irecv");
	line->receive_count = line->request_count;
}

static void send(struct pp_endpoint *endpoint, struct pp_mpi_line *line, uint32_t member, const void *from,
                 uint64_t bytes)
{
	if (bytes == 0)
		return;
	MPI_Request *request = &line->requests[line->request_count++];
	if (endpoint->options.sync_send)
		pp_mpi_succeeded(
		    endpoint, MPI_Issend(from, (int)bytes, MPI_BYTE, line->ranks[member], line->tag, endpoint->sums, request),
		    "MPI_Issend");
	else
		pp_mpi_succeeded(endpoint,
		                 MPI_Isend(from, (int)bytes, MPI_BYTE, line->ranks[member], line->tag, endpoint->sums, request),
		                 "MPI_Isend");
}

static void begin_claims(struct pp_endpoint *endpoint, struct pp_mpi_line *line)
{
	const struct pp_part *part = head(line);
	struct pp_mpi_claim *own = &line->claims[line->position];
	*own = (struct pp_mpi_claim){.number = line->done, .count = part->count, .kind = part->kind, .dtype = part->dtype};
	line->phase = PP_MPI_CLAIM;
	for (uint32_t i = 0; i < line->members; i++)
		if (i != line->position)
			receive(endpoint, line, i, &line->claims[i], sizeof line->claims[i]);
	for (uint32_t i = 0; i < line->members; i++)
		if (i != line->position)
			send(endpoint, line, i, own, sizeof *own);
}

static void begin_scatter(struct pp_endpoint *endpoint, struct pp_mpi_line *line)
{
	const struct pp_part *part = head(line);
	uint64_t size = pp_dtype_size[part->dtype];
	line->phase = PP_MPI_SCATTER;
	for (uint32_t i = 0; i < line->members; i++)
		if (i != line->position)
			receive(endpoint, line, i, line->buffer + i * line->share,
			        summed_by(line, part, line->position).count * size);
	for (uint32_t i = 0; i < line->members; i++) {
		struct span span = summed_by(line, part, i);
		if (i != line->position)
			send(endpoint, line, i, part->from + span.at * size, span.count * size);
	}
}

/* What `member` has for the others in this round, within `to`. */
static struct span given_by(const struct pp_mpi_line *line, const struct pp_part *part, uint32_t member)
{
	if (part->kind != PP_ALLGATHER)
		return summed_by(line, part, member);
	uint64_t share = share_elements(line, part), at = line->round * share;
	return (struct span){member * part->count + at, least(share, part->count - at)};
}

static void begin_gather(struct pp_endpoint *endpoint, struct pp_mpi_line *line)
{
	const struct pp_part *part = head(line);
	uint64_t size = pp_dtype_size[part->dtype];
	struct span own = given_by(line, part, line->position);
	const unsigned char *from = part->to + own.at * size;
	line->phase = PP_MPI_GATHER;
	if (part->kind == PP_ALLGATHER) {
		const unsigned char *given = part->from + line->round * share_elements(line, part) * size;
		if (given != from)
			memmove(part->to + own.at * size, given, own.count * size);
	}
	for (uint32_t i = 0; i < line->members; i++) {
		struct span span = given_by(line, part, i);
		if (i != line->position)
			receive(endpoint, line, i, part->to + span.at * size, span.count * size);
	}
	for (uint32_t i = 0; i < line->members; i++)
		if (i != line->position)
			send(endpoint, line, i, from, own.count * size);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* In member order. Partial sums stay in the buffer of the first member, if that is another, so that the own elements
 * are read before `to`, which may be the same memory, is written. */
static void sum(const struct pp_mpi_line *line)
{
	const struct pp_part *part = head(line);
	uint64_t size = pp_dtype_size[part->dtype];
	struct span span = summed_by(line, part, line->position);
	unsigned char *to = part->to;
	to += part->kind == PP_REDUCESCATTER ? line->round * line->share : span.at * size;
	const unsigned char *own = part->from + span.at * size;
	if (line->members == 1) {
		memmove(to, own, span.count * size);
		return;
	}
	unsigned char *partial = line->position == 0 ? to : line->buffer;
	const unsigned char *before = line->position == 0 ? own : line->buffer;
	for (uint32_t i = 1; i < line->members; i++) {
		const unsigned char *next = i == line->position ? own : line->buffer + i * line->share;
		unsigned char *result = i + 1 == line->members ? to : partial;
		pp_transport_sum((enum pp_dtype)part->dtype, result, before, next, (size_t)span.count);
		before = result;
	}
}

/* ---- progress -------------------------------------------------------------------------------- */

static void name_group(const struct pp_endpoint *endpoint, const struct pp_mpi_line *line, char text[32])
{
	if ((uint32_t)line->tag < endpoint->program->group_count)
		snprintf(text, 32, "group g%d", line->tag);
	else
		snprintf(text, 32, "a tensor-parallel group");
}

static bool check_claims(struct pp_endpoint *endpoint, const struct pp_mpi_line *line)
{
	const struct pp_mpi_claim *first = &line->claims[0];
	char group[32], texts[2][PP_PART_TEXT], text[PP_MPI_FAILURE_TEXT];
	for (uint32_t i = 1; i < line->members; i++) {
		const struct pp_mpi_claim *other = &line->claims[i];
		if (other->number == first->number && other->count == first->count && other->kind == first->kind &&
		    other->dtype == first->dtype)
			continue;
		const struct pp_part parts[] = {
		    {.count = first->count, .kind = (uint8_t)first->kind, .dtype = (uint8_t)first->dtype},
		    {.count = other->count, .kind = (uint8_t)other->kind, .dtype = (uint8_t)other->dtype}};
		name_group(endpoint, line, group);
		snprintf(text, sizeof text, "members of %s disagree: member 0 posts %s, member %" PRIu32 " %s", group,
		         pp_part_text(&parts[0], texts[0]), i, pp_part_text(&parts[1], texts[1]));
		pp_mpi_fail(endpoint, text);
		return false;
	}
	return true;
}

/* A message that is shorter than posted would go unnoticed: MPI only reports longer ones. */
static bool check_lengths(struct pp_endpoint *endpoint, const struct pp_mpi_line *line)
{
	for (int i = 0; i < line->receive_count; i++) {
		int count = 0;
		char group[32], text[PP_MPI_FAILURE_TEXT];
		MPI_Get_count(&line->statuses[i], MPI_BYTE, &count);
		if (count == line->wanted[i])
			continue;
		name_group(endpoint, line, group);
		snprintf(text, sizeof text, "members of %s disagree: got %d of %d bytes", group, count, line->wanted[i]);
		pp_mpi_fail(endpoint, text);
		return false;
	}
	return true;
}

/* The first phase of a round. */
static void begin_round(struct pp_endpoint *endpoint, struct pp_mpi_line *line)
{
	const struct pp_part *part = head(line);
	if (line->round == rounds(line, part)) {
		line->phase = PP_MPI_IDLE;
		line->round = 0;
		line->done++;
	} else if (part->kind == PP_ALLGATHER) {
		begin_gather(endpoint, line);
	} else {
		begin_scatter(endpoint, line);
	}
}

/* The present phase is over: to the next one. */
static void go_on(struct pp_endpoint *endpoint, struct pp_mpi_line *line)
{
	const struct pp_part *part = head(line);
	if (!check_lengths(endpoint, line))
		return;
	line->request_count = line->receive_count = 0;
	switch (line->phase) {
	case PP_MPI_IDLE:
		if (endpoint->options.check_identity)
			begin_claims(endpoint, line);
		else
			begin_round(endpoint, line);
		return;
	case PP_MPI_CLAIM:
		if (check_claims(endpoint, line))
			begin_round(endpoint, line);
		return;
	case PP_MPI_SCATTER:
		sum(line);
		if (part->kind == PP_ALLREDUCE && !is_short(line, part)) {
			begin_gather(endpoint, line);
			return;
		}
		line->round++;
		begin_round(endpoint, line);
		return;
	case PP_MPI_GATHER:
		line->round++;
		begin_round(endpoint, line);
		return;
	}
}

void pp_mpi_line_move(struct pp_endpoint *endpoint, struct pp_mpi_line *line)
{
	while (line->done < line->posted && !endpoint->failed) {
		int over = 1;
		if (line->request_count &&
		    !pp_mpi_succeeded(endpoint, MPI_Testall(line->request_count, line->requests, &over, line->statuses),
		                      "a collective"))
			return;
		if (!over)
			return;
		go_on(endpoint, line);
	}
}

uint64_t pp_mpi_line_post(struct pp_endpoint *endpoint, struct pp_mpi_line *line, const struct pp_part *part)
{
	uint64_t number = line->posted++;
	line->posts[number % line->capacity] = *part;
	pp_mpi_line_move(endpoint, line);
	return number;
}

/* ---- life ------------------------------------------------------------------------------------ */

bool pp_mpi_line_bind(struct pp_endpoint *endpoint, struct pp_mpi_line *line, const struct pp_group *group, int tag,
                      const struct pp_post_count *count)
{
	uint32_t position = pp_grid_position(group, endpoint->coord);
	if (position == PP_NULL)
		return true;
	uint32_t members = pp_grid_members(endpoint->program, group);
	uint64_t share = ALL_SHARES / members > LEAST_SHARE ? ALL_SHARES / members : LEAST_SHARE;
	share = least(least(share, endpoint->piece) / sizeof(double), (count->bytes + 7) / sizeof(double)) * sizeof(double);
	*line = (struct pp_mpi_line){.tag = tag,
	                             .members = members,
	                             .position = position,
	                             .capacity = count->posts ? count->posts : 1,
	                             .share = share ? share : sizeof(double)};
	line->ranks = calloc(members, sizeof *line->ranks);
	line->posts = calloc(line->capacity, sizeof *line->posts);
	line->requests = calloc(2 * (size_t)members, sizeof *line->requests);
	line->statuses = calloc(2 * (size_t)members, sizeof *line->statuses);
	line->wanted = calloc(members, sizeof *line->wanted);
	line->claims = calloc(members, sizeof *line->claims);
	line->buffer = calloc(members, line->share);
	if (!line->ranks || !line->posts || !line->requests || !line->statuses || !line->wanted || !line->claims ||
	    !line->buffer)
		return false;
	for (uint32_t i = 0; i < members; i++)
		line->ranks[i] = (int)pp_grid_member(endpoint->program, group, endpoint->coord, i);
	return true;
}

void pp_mpi_line_free(struct pp_mpi_line *line)
{
	free(line->ranks);
	free(line->posts);
	free(line->requests);
	free(line->statuses);
	free(line->wanted);
	free(line->claims);
	free(line->buffer);
	*line = (struct pp_mpi_line){0};
}
