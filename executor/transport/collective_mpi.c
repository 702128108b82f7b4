/* Collectives over MPI point-to-point, with sums in member order.
 *
 * A round moves up to `share` bytes from each member to each other. Scatter: every member sends every other the
 * elements that this one sums, and sums its own with those of the others in member order, so every element is computed
 * once. Gather: every member sends its sums, or what it gives, to all others. An allreduce is a scatter and a gather; a
 * short one is a scatter in which all get everything and compute the same sums. Two messages' time and 2 (n-1)/n of the
 * payload per member: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations in
 * MPICH, IJHPCA 19(1), 2005, section 4.5.
 *
 * Short posts send each member one message. Several of them are under way at once; a long post is alone. Which posts
 * are short follows from what is posted, so all members send their messages in one order.
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
	SHORT = 1 << 16, /* bytes that a short post brings to a member at most */
};

/* Elements of a payload. */
struct span {
	uint64_t at, count;
};

/* A post of a line, and how it travels. */
struct job {
	const struct pp_mpi_line *line;
	const struct pp_part *part;
	struct pp_mpi_flight *flight;
	bool brief;
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static bool is_short(const struct pp_mpi_line *line, const struct pp_part *part)
{
	return part->count * pp_dtype_size[part->dtype] <= line->short_share;
}

static struct job job_of(struct pp_mpi_line *line, uint64_t number)
{
	const struct pp_part *part = &line->posts[number % line->capacity];
	return (struct job){
	    .line = line, .part = part, .flight = &line->flights[number % PP_MPI_FLIGHTS], .brief = is_short(line, part)};
}

static uint64_t share_elements(const struct job *job)
{
	return (job->brief ? job->line->short_share : job->line->share) / pp_dtype_size[job->part->dtype];
}

/* Where the message of a member lies until it is summed. */
static unsigned char *received(const struct job *job, uint32_t member)
{
	const struct pp_mpi_line *line = job->line;
	return job->brief ? job->flight->buffer + member * line->short_share : line->buffer + member * line->share;
}

/* Elements of the present round that `member` sums, within the payload of all. */
static struct span summed_by(const struct job *job, uint32_t member)
{
	const struct pp_part *part = job->part;
	uint64_t share = share_elements(job), members = job->line->members;
	if (part->kind == PP_REDUCESCATTER) {
		uint64_t at = job->flight->round * share;
		return (struct span){member * part->count + at, least(share, part->count - at)};
	}
	if (job->brief)
		return (struct span){0, part->count};
	uint64_t at = job->flight->round * share * members;
	uint64_t left = least(part->count - at, share * members);
	uint64_t each = (left + members - 1) / members;
	uint64_t first = least(member * each, left);
	return (struct span){at + first, least(each, left - first)};
}

static uint64_t rounds(const struct job *job)
{
	uint64_t each = share_elements(job);
	if (job->part->kind == PP_ALLREDUCE && !job->brief)
		each *= job->line->members;
	return (job->part->count + each - 1) / each;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void receive(struct pp_endpoint *endpoint, const struct job *job, uint32_t member, void *to, uint64_t bytes)
{
	struct pp_mpi_flight *flight = job->flight;
	if (bytes == 0 || member == job->line->position)
		return;
	flight->wanted[flight->request_count] = (int)bytes;
	pp_mpi_succeeded(endpoint,
	                 MPI_Irecv(to, (int)bytes, MPI_BYTE, job->line->ranks[member], job->line->tag, endpoint->sums,
	                           &flight->requests[flight->request_count++]),
	                 "MPI_Irecv");
	flight->receive_count = flight->request_count;
}

static void send(struct pp_endpoint *endpoint, const struct job *job, uint32_t member, const void *from, uint64_t bytes)
{
	int rank = job->line->ranks[member], tag = job->line->tag, count = (int)bytes;
	if (bytes == 0 || member == job->line->position)
		return;
	MPI_Request *request = &job->flight->requests[job->flight->request_count++];
	if (endpoint->options.sync_send)
		pp_mpi_succeeded(endpoint, MPI_Issend(from, count, MPI_BYTE, rank, tag, endpoint->sums, request), "MPI_Issend");
	else
		pp_mpi_succeeded(endpoint, MPI_Isend(from, count, MPI_BYTE, rank, tag, endpoint->sums, request), "MPI_Isend");
}

static void begin_claims(struct pp_endpoint *endpoint, const struct job *job)
{
	const struct pp_mpi_line *line = job->line;
	struct pp_mpi_claim *own = &line->claims[line->position];
	*own = (struct pp_mpi_claim){
	    .number = line->done, .count = job->part->count, .kind = job->part->kind, .dtype = job->part->dtype};
	job->flight->phase = PP_MPI_CLAIM;
	for (uint32_t i = 0; i < line->members; i++)
		receive(endpoint, job, i, &line->claims[i], sizeof line->claims[i]);
	for (uint32_t i = 0; i < line->members; i++)
		send(endpoint, job, i, own, sizeof *own);
}

static void begin_scatter(struct pp_endpoint *endpoint, const struct job *job)
{
	const struct pp_part *part = job->part;
	uint64_t size = pp_dtype_size[part->dtype];
	job->flight->phase = PP_MPI_SCATTER;
	for (uint32_t i = 0; i < job->line->members; i++)
		receive(endpoint, job, i, received(job, i), summed_by(job, job->line->position).count * size);
	for (uint32_t i = 0; i < job->line->members; i++) {
		struct span span = summed_by(job, i);
		send(endpoint, job, i, part->from + span.at * size, span.count * size);
	}
}

/* What `member` has for the others in this round, within `to`. */
static struct span given_by(const struct job *job, uint32_t member)
{
	if (job->part->kind != PP_ALLGATHER)
		return summed_by(job, member);
	uint64_t share = share_elements(job), at = job->flight->round * share;
	return (struct span){member * job->part->count + at, least(share, job->part->count - at)};
}

static void begin_gather(struct pp_endpoint *endpoint, const struct job *job)
{
	const struct pp_part *part = job->part;
	uint64_t size = pp_dtype_size[part->dtype];
	struct span own = given_by(job, job->line->position);
	unsigned char *from = part->to + own.at * size;
	job->flight->phase = PP_MPI_GATHER;
	if (part->kind == PP_ALLGATHER) {
		const unsigned char *given = part->from + job->flight->round * share_elements(job) * size;
		if (given != from)
			memmove(from, given, own.count * size);
	}
	for (uint32_t i = 0; i < job->line->members; i++) {
		struct span span = given_by(job, i);
		receive(endpoint, job, i, part->to + span.at * size, span.count * size);
	}
	for (uint32_t i = 0; i < job->line->members; i++)
		send(endpoint, job, i, from, own.count * size);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The elements of a member that this rank sums. */
static const void *given(const void *context, uint32_t member)
{
	const struct job *job = context;
	uint32_t position = job->line->position;
	if (member != position)
		return received(job, member);
	return job->part->from + summed_by(job, position).at * pp_dtype_size[job->part->dtype];
}

static void sum(const struct job *job)
{
	const struct pp_part *part = job->part;
	uint32_t members = job->line->members, position = job->line->position;
	uint64_t size = pp_dtype_size[part->dtype];
	struct span span = summed_by(job, position);
	unsigned char *to = part->to;
	to += part->kind == PP_REDUCESCATTER ? job->flight->round * share_elements(job) * size : span.at * size;
	if (members == 1)
		memmove(to, part->from + span.at * size, span.count * size);
	else
		pp_transport_sum((enum pp_dtype)part->dtype, to, given, job, members, (size_t)span.count);
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
static bool check_lengths(struct pp_endpoint *endpoint, const struct job *job)
{
	const struct pp_mpi_flight *flight = job->flight;
	for (int i = 0; i < flight->receive_count; i++) {
		int count = 0;
		char group[32], text[PP_MPI_FAILURE_TEXT];
		MPI_Get_count(&flight->statuses[i], MPI_BYTE, &count);
		if (count == flight->wanted[i])
			continue;
		name_group(endpoint, job->line, group);
		snprintf(text, sizeof text, "members of %s disagree: got %d of %d bytes", group, count, flight->wanted[i]);
		pp_mpi_fail(endpoint, text);
		return false;
	}
	return true;
}

/* The first phase of a round, if there is another. */
static void begin_round(struct pp_endpoint *endpoint, const struct job *job)
{
	if (job->flight->round == rounds(job))
		job->flight->phase = PP_MPI_OVER;
	else if (job->part->kind == PP_ALLGATHER)
		begin_gather(endpoint, job);
	else
		begin_scatter(endpoint, job);
}

static void begin(struct pp_endpoint *endpoint, const struct job *job)
{
	job->flight->round = 0;
	job->flight->request_count = job->flight->receive_count = 0;
	if (endpoint->options.check_identity)
		begin_claims(endpoint, job);
	else
		begin_round(endpoint, job);
}

/* The messages of the present phase have come and gone: to the next one. */
static void go_on(struct pp_endpoint *endpoint, const struct job *job)
{
	if (!check_lengths(endpoint, job))
		return;
	job->flight->request_count = job->flight->receive_count = 0;
	switch (job->flight->phase) {
	case PP_MPI_CLAIM:
		if (check_claims(endpoint, job->line))
			begin_round(endpoint, job);
		return;
	case PP_MPI_SCATTER:
		sum(job);
		if (job->part->kind == PP_ALLREDUCE && !job->brief) {
			begin_gather(endpoint, job);
			return;
		}
		break;
	case PP_MPI_GATHER:
		break;
	case PP_MPI_OVER:
		return;
	}
	job->flight->round++;
	begin_round(endpoint, job);
}

/* May the next post begin? Behind others only if all of them are short; with claims one at a time. */
static bool may_begin(const struct pp_endpoint *endpoint, struct pp_mpi_line *line)
{
	if (line->begun == line->posted)
		return false;
	if (line->begun == line->done)
		return true;
	return !endpoint->options.check_identity && line->begun - line->done < PP_MPI_FLIGHTS &&
	       job_of(line, line->begun).brief && job_of(line, line->done).brief;
}

/* Has the phase of the post at the head ended? */
static bool is_through(struct pp_endpoint *endpoint, const struct pp_mpi_flight *flight)
{
	int over = 1;
	return (!flight->request_count ||
	        pp_mpi_succeeded(endpoint, MPI_Testall(flight->request_count, flight->requests, &over, flight->statuses),
	                         "a collective")) &&
	       over;
}

void pp_mpi_line_move(struct pp_endpoint *endpoint, struct pp_mpi_line *line)
{
	while (line->done < line->posted && !endpoint->failed) {
		while (may_begin(endpoint, line)) {
			struct job next = job_of(line, line->begun++);
			begin(endpoint, &next);
		}
		struct job head = job_of(line, line->done);
		if (!is_through(endpoint, head.flight))
			return;
		go_on(endpoint, &head);
		if (head.flight->phase == PP_MPI_OVER)
			line->done++;
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

static bool make_flight(struct pp_mpi_flight *flight, uint32_t members, uint64_t share)
{
	flight->phase = PP_MPI_OVER;
	flight->requests = calloc(2 * (size_t)members, sizeof *flight->requests);
	flight->statuses = calloc(2 * (size_t)members, sizeof *flight->statuses);
	flight->wanted = calloc(members, sizeof *flight->wanted);
	flight->buffer = calloc(members, share);
	return flight->requests && flight->statuses && flight->wanted && flight->buffer;
}

/* Whole elements of at most `bytes`, not more than `most`. */
static uint64_t share_of(uint64_t bytes, uint64_t most)
{
	uint64_t fits = least(bytes / sizeof(double), (most + sizeof(double) - 1) / sizeof(double));
	return (fits ? fits : 1) * sizeof(double);
}

bool pp_mpi_line_bind(struct pp_endpoint *endpoint, struct pp_mpi_line *line, const struct pp_group *group, int tag,
                      const struct pp_post_count *count)
{
	uint32_t position = pp_grid_position(group, endpoint->coord);
	if (position == PP_NULL)
		return true;
	uint32_t members = pp_grid_members(endpoint->program, group);
	uint64_t most = ALL_SHARES / members > LEAST_SHARE ? ALL_SHARES / members : LEAST_SHARE;
	*line = (struct pp_mpi_line){.tag = tag,
	                             .members = members,
	                             .position = position,
	                             .capacity = count->posts ? count->posts : 1,
	                             .share = share_of(least(most, endpoint->piece), count->bytes)};
	line->short_share = share_of(least(SHORT / (members > 1 ? members - 1 : 1), line->share), count->bytes);
	line->ranks = calloc(members, sizeof *line->ranks);
	line->posts = calloc(line->capacity, sizeof *line->posts);
	line->claims = calloc(members, sizeof *line->claims);
	line->buffer = calloc(members, line->share);
	bool ok = line->ranks && line->posts && line->claims && line->buffer;
	for (uint32_t i = 0; ok && i < PP_MPI_FLIGHTS; i++)
		ok = make_flight(&line->flights[i], members, line->short_share);
	for (uint32_t i = 0; ok && i < members; i++)
		line->ranks[i] = (int)pp_grid_member(endpoint->program, group, endpoint->coord, i);
	return ok;
}

void pp_mpi_line_free(struct pp_mpi_line *line)
{
	for (uint32_t i = 0; i < PP_MPI_FLIGHTS; i++) {
		free(line->flights[i].requests);
		free(line->flights[i].statuses);
		free(line->flights[i].wanted);
		free(line->flights[i].buffer);
	}
	free(line->ranks);
	free(line->posts);
	free(line->claims);
	free(line->buffer);
	*line = (struct pp_mpi_line){0};
}
