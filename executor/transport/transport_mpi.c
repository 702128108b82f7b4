/* The mpi transport.
 *
 * Each post of a channel has its requests preallocated: an identity header if asked, then the payload in pieces of at
 * most 1 GiB (MPI counts are ints). All are posted at once; completion is looked at in order, so `done` of a channel
 * only grows, as in the loop transport. A rank that gives up sends a note to all others, for MPI itself reports nothing
 * to the survivors of a lost rank.
 *
 * Requires: the same program on all ranks. Ensures: no call here waits for another rank, except MPI's own start and
 * end. */
#include "transport_mpi.h"
#include "collective_mpi.h"

#include "executor/watch.h"

#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NOTE_TAG = 1, GRACE_NS = 300000000, FAILURE_TEXT = 512 };

static const uint64_t largest_piece = UINT64_C(1) << 30;

struct post {
	const struct pp_instr *instr;
	struct pp_identity header;
	uint32_t requests; /* in use */
};

struct channel {
	int peer; /* -1: not a channel of this rank */
	bool sends;
	struct post *posts;    /* ring */
	MPI_Request *requests; /* capacity * requests_per_post */
	uint32_t capacity, requests_per_post;
	uint64_t posted, done, base; /* base: posts before the present step */
	uint32_t next;               /* first request of the oldest post that is not known to be complete */
};

struct pending_coll {
	uint32_t id, group;
	uint64_t number; /* UINT64_MAX: done at once */
};

struct note {
	uint32_t rank;
};

struct pp_endpoint {
	MPI_Comm data, sums, control;
	int rank, ranks;
	const struct pp_program *program;
	struct pp_transport_options options;
	uint64_t piece;
	struct channel *channels;
	uint32_t *mine; /* channels that end here */
	uint32_t mine_count;
	struct pp_mpi_line *lines; /* by group */
	uint32_t line_count;
	struct pending_coll *colls;
	uint32_t coll_count;
	MPI_Request exchange, note_request;
	struct note note;
	bool failed, told;      /* told: by another rank's note */
	uint32_t first_to_fail; /* lowest rank that sent one, or PP_NULL */
	char failure[FAILURE_TEXT];
};

/* ---- failure --------------------------------------------------------------------------------- */

static void set_failure(struct pp_endpoint *endpoint, const char *text)
{
	if (endpoint->failed)
		return;
	endpoint->failed = true;
	snprintf(endpoint->failure, sizeof endpoint->failure, "%s", text);
}

/* False, with the failure recorded, unless the call succeeded. */
static bool succeeded(struct pp_endpoint *endpoint, int error, const char *call)
{
	if (error == MPI_SUCCESS)
		return true;
	char reason[MPI_MAX_ERROR_STRING] = "";
	int length = 0;
	MPI_Error_string(error, reason, &length);
	char text[FAILURE_TEXT];
	snprintf(text, sizeof text, "%s failed: %.300s", call, reason);
	set_failure(endpoint, text);
	return false;
}

static int listen(struct pp_endpoint *endpoint)
{
	return MPI_Irecv(&endpoint->note, (int)sizeof endpoint->note, MPI_BYTE, MPI_ANY_SOURCE, NOTE_TAG, endpoint->control,
	                 &endpoint->note_request);
}

/* Has another rank given up? Listens on for further notes. */
static void hear(struct pp_endpoint *endpoint)
{
	int arrived = 0;
	if (MPI_Test(&endpoint->note_request, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || !arrived)
		return;
	char text[32];
	snprintf(text, sizeof text, "rank %" PRIu32 " gave up", endpoint->note.rank);
	if (!endpoint->failed)
		endpoint->told = true;
	set_failure(endpoint, text);
	if (endpoint->note.rank < endpoint->first_to_fail)
		endpoint->first_to_fail = endpoint->note.rank;
	listen(endpoint);
}

static enum pp_progress pending(struct pp_endpoint *endpoint)
{
	if (!endpoint->failed)
		hear(endpoint);
	return endpoint->failed ? PP_FAILED : PP_PENDING;
}

/* The rank says itself why; the others are told only that it did. */
static void give_up(struct pp_endpoint *endpoint, const char *why)
{
	(void)why;
	if (endpoint->told)
		return;
	struct note note = {.rank = (uint32_t)endpoint->rank};
	size_t count = (size_t)endpoint->ranks;
	MPI_Request *requests = malloc(count * sizeof *requests);
	if (!requests)
		return;
	for (int i = 0; i < endpoint->ranks; i++) {
		requests[i] = MPI_REQUEST_NULL;
		if (i != endpoint->rank)
			MPI_Isend(&note, (int)sizeof note, MPI_BYTE, i, NOTE_TAG, endpoint->control, &requests[i]);
	}
	/* Others notice while they poll; a lost one never does. */
	bool all = false;
	for (uint64_t start = pp_clock(); !all && pp_clock() - start < GRACE_NS;) {
		all = true;
		for (int i = 0; i < endpoint->ranks; i++) {
			int sent = 0;
			all = MPI_Test(&requests[i], &sent, MPI_STATUS_IGNORE) == MPI_SUCCESS && sent && all;
		}
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	free(requests);
}

static const char *failure(const struct pp_endpoint *endpoint)
{
	return endpoint->failure;
}

/* ---- channels -------------------------------------------------------------------------------- */

/* The next entry of the channel's ring, with room for its requests. */
static struct post *push(struct channel *channel, const struct pp_instr *instr, MPI_Request **requests)
{
	if (instr->a[1] == 0)
		channel->base = channel->posted;
	uint64_t at = channel->posted++ % channel->capacity;
	*requests = &channel->requests[at * channel->requests_per_post];
	channel->posts[at].instr = instr;
	channel->posts[at].requests = 0;
	return &channel->posts[at];
}

static void post_send(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from)
{
	struct channel *channel = &endpoint->channels[instr->a[0]];
	MPI_Request *requests;
	struct post *post = push(channel, instr, &requests);
	int tag = (int)instr->a[0];
	if (endpoint->options.check_identity) {
		post->header = pp_identity_of(endpoint->program, instr);
		succeeded(endpoint,
		          MPI_Isend(&post->header, (int)sizeof post->header, MPI_BYTE, channel->peer, tag, endpoint->data,
		                    &requests[post->requests++]),
		          "MPI_Isend");
	}
	uint64_t bytes = pp_payload_bytes(instr);
	for (uint64_t at = 0; at == 0 || at < bytes; at += endpoint->piece) {
		int count = (int)(bytes - at < endpoint->piece ? bytes - at : endpoint->piece);
		const unsigned char *start = (const unsigned char *)from + at;
		MPI_Request *request = &requests[post->requests++];
		if (endpoint->options.sync_send)
			succeeded(endpoint, MPI_Issend(start, count, MPI_BYTE, channel->peer, tag, endpoint->data, request),
			          "MPI_Issend");
		else
			succeeded(endpoint, MPI_Isend(start, count, MPI_BYTE, channel->peer, tag, endpoint->data, request),
			          "MPI_Isend");
	}
}

static void post_recv(struct pp_endpoint *endpoint, const struct pp_instr *instr, void *to)
{
	struct channel *channel = &endpoint->channels[instr->a[0]];
	MPI_Request *requests;
	struct post *post = push(channel, instr, &requests);
	int tag = (int)instr->a[0];
	if (endpoint->options.check_identity)
		succeeded(endpoint,
		          MPI_Irecv(&post->header, (int)sizeof post->header, MPI_BYTE, channel->peer, tag, endpoint->data,
		                    &requests[post->requests++]),
		          "MPI_Irecv");
	uint64_t bytes = pp_payload_bytes(instr);
	for (uint64_t at = 0; at == 0 || at < bytes; at += endpoint->piece) {
		int count = (int)(bytes - at < endpoint->piece ? bytes - at : endpoint->piece);
		succeeded(endpoint,
		          MPI_Irecv((unsigned char *)to + at, count, MPI_BYTE, channel->peer, tag, endpoint->data,
		                    &requests[post->requests++]),
		          "MPI_Irecv");
	}
}

static bool check_header(struct pp_endpoint *endpoint, const struct post *post)
{
	struct pp_identity expected = pp_identity_of(endpoint->program, post->instr);
	if (pp_identity_equal(&post->header, &expected))
		return true;
	char text[FAILURE_TEXT];
	pp_identity_explain(&post->header, &expected, text, sizeof text);
	set_failure(endpoint, text);
	return false;
}

/* A payload that is shorter than posted would go unnoticed: MPI only reports longer ones. */
static bool check_length(struct pp_endpoint *endpoint, const struct channel *channel, const struct post *post,
                         const MPI_Status *status)
{
	uint32_t header = endpoint->options.check_identity ? 1 : 0;
	if (channel->sends || channel->next < header)
		return true;
	uint64_t at = (channel->next - header) * endpoint->piece, bytes = pp_payload_bytes(post->instr);
	uint64_t wanted = bytes - at < endpoint->piece ? bytes - at : endpoint->piece;
	int count = 0;
	MPI_Get_count(status, MPI_BYTE, &count);
	if ((uint64_t)count == wanted)
		return true;
	char text[FAILURE_TEXT];
	snprintf(text, sizeof text, "c%" PRIu32 " #%" PRIu32 ": got %d of %" PRIu64 " bytes", post->instr->a[0],
	         post->instr->a[1], count, wanted);
	set_failure(endpoint, text);
	return false;
}

static void move_channel(struct pp_endpoint *endpoint, struct channel *channel)
{
	while (channel->done < channel->posted && !endpoint->failed) {
		uint64_t at = channel->done % channel->capacity;
		const struct post *post = &channel->posts[at];
		MPI_Request *requests = &channel->requests[at * channel->requests_per_post];
		for (; channel->next < post->requests; channel->next++) {
			int arrived = 0;
			MPI_Status status;
			if (!succeeded(endpoint, MPI_Test(&requests[channel->next], &arrived, &status), "a transfer") || !arrived)
				return;
			if (channel->next == 0 && endpoint->options.check_identity && !channel->sends &&
			    !check_header(endpoint, post))
				return;
			if (!check_length(endpoint, channel, post, &status))
				return;
		}
		channel->next = 0;
		channel->done++;
	}
}

/* ---- collectives ----------------------------------------------------------------------------- */

static bool is_solo(const struct pp_group *group)
{
	return group->axis != PP_AXIS_PP || group->member_count == 1;
}

static void move_line(struct pp_endpoint *endpoint, struct pp_mpi_line *line)
{
	if (!endpoint->failed)
		succeeded(endpoint, pp_mpi_line_poll(line), "a reduction");
}

static void post_coll(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to)
{
	struct pending_coll *coll = &endpoint->colls[endpoint->coll_count++];
	*coll = (struct pending_coll){.id = instr->a[0], .group = instr->a[1], .number = UINT64_MAX};
	if (is_solo(&endpoint->program->groups[instr->a[1]])) {
		memmove(to, from, pp_payload_bytes(instr));
		return;
	}
	struct pp_mpi_line *line = &endpoint->lines[instr->a[1]];
	coll->number = line->posted;
	line->posts[line->posted++ % line->capacity] =
	    (struct pp_mpi_reduction){.from = from, .to = to, .count = instr->count, .dtype = (enum pp_dtype)instr->dtype};
	move_line(endpoint, line);
}

static uint32_t post_body(struct pp_endpoint *endpoint, enum pp_collective kind, enum pp_dtype dtype, const void *from,
                          void *to, uint64_t count)
{
	(void)endpoint;
	(void)kind;
	memmove(to, from, count * pp_dtype_size[dtype]);
	return 0;
}

static enum pp_progress test_body(struct pp_endpoint *endpoint, uint32_t ticket)
{
	(void)endpoint;
	(void)ticket;
	return PP_DONE;
}

/* ---- polling --------------------------------------------------------------------------------- */

static void poll(void *context)
{
	struct pp_endpoint *endpoint = context;
	for (uint32_t i = 0; i < endpoint->mine_count; i++)
		move_channel(endpoint, &endpoint->channels[endpoint->mine[i]]);
	for (uint32_t i = 0; i < endpoint->coll_count; i++)
		if (endpoint->colls[i].number != UINT64_MAX)
			move_line(endpoint, &endpoint->lines[endpoint->colls[i].group]);
}

static enum pp_progress test(struct pp_endpoint *endpoint, uint32_t index, uint32_t seq)
{
	const struct channel *channel = &endpoint->channels[index];
	uint64_t number = channel->base + seq;
	if (channel->done > number)
		return PP_DONE;
	poll(endpoint);
	return channel->done > number ? PP_DONE : pending(endpoint);
}

static enum pp_progress test_coll(struct pp_endpoint *endpoint, uint32_t id)
{
	uint32_t at = 0;
	while (at < endpoint->coll_count && endpoint->colls[at].id != id)
		at++;
	if (at == endpoint->coll_count)
		return PP_DONE;
	const struct pending_coll *coll = &endpoint->colls[at];
	if (coll->number != UINT64_MAX) {
		poll(endpoint);
		if (endpoint->lines[coll->group].done <= coll->number)
			return pending(endpoint);
	}
	endpoint->colls[at] = endpoint->colls[--endpoint->coll_count];
	return PP_DONE;
}

static void exchange(struct pp_endpoint *endpoint, const void *mine, void *all, size_t bytes)
{
	if (bytes > INT32_MAX)
		set_failure(endpoint, "control data of 2 GiB and more");
	else if (bytes == 0)
		succeeded(endpoint, MPI_Ibarrier(endpoint->control, &endpoint->exchange), "MPI_Ibarrier");
	else
		succeeded(endpoint,
		          MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, endpoint->control,
		                         &endpoint->exchange),
		          "MPI_Iallgather");
}

static enum pp_progress test_exchange(struct pp_endpoint *endpoint)
{
	int arrived = 0;
	if (endpoint->failed ||
	    !succeeded(endpoint, MPI_Test(&endpoint->exchange, &arrived, MPI_STATUS_IGNORE), "an exchange"))
		return PP_FAILED;
	return arrived ? PP_DONE : pending(endpoint);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct pp_endpoint *pp_mpi_open(struct pp_status *status)
{
	struct pp_endpoint *endpoint = calloc(1, sizeof *endpoint);
	int provided = 0;
	if (!endpoint) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
		return NULL;
	}
	endpoint->exchange = endpoint->note_request = MPI_REQUEST_NULL;
	endpoint->first_to_fail = PP_NULL;
	MPI_Comm *comms[] = {&endpoint->data, &endpoint->sums, &endpoint->control};
	bool ok = succeeded(endpoint, MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
	for (size_t i = 0; ok && i < sizeof comms / sizeof *comms; i++)
		ok = succeeded(endpoint, MPI_Comm_dup(MPI_COMM_WORLD, comms[i]), "MPI_Comm_dup") &&
		     succeeded(endpoint, MPI_Comm_set_errhandler(*comms[i], MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
	ok = ok && succeeded(endpoint, MPI_Comm_rank(endpoint->control, &endpoint->rank), "MPI_Comm_rank") &&
	     succeeded(endpoint, MPI_Comm_size(endpoint->control, &endpoint->ranks), "MPI_Comm_size") &&
	     succeeded(endpoint, listen(endpoint), "MPI_Irecv");
	if (ok)
		return endpoint;
	pp_fail(status, PP_EXIT_ENVIRONMENT, "MPI does not start: %s", endpoint->failure);
	free(endpoint);
	return NULL;
}

uint32_t pp_mpi_rank(const struct pp_endpoint *endpoint)
{
	return (uint32_t)endpoint->rank;
}

uint32_t pp_mpi_ranks(const struct pp_endpoint *endpoint)
{
	return (uint32_t)endpoint->ranks;
}

/* Largest payload of each channel, to know into how many pieces it may fall. */
static void widest_payloads(const struct pp_program *program, uint32_t rank, uint64_t *widest)
{
	for (uint32_t i = 0; i < program->program_count; i++) {
		const struct pp_stream *stream = &program->programs[i].streams[rank];
		for (uint32_t k = 0; k < stream->count; k++) {
			const struct pp_instr *instr = &stream->items[k];
			if ((instr->op == PP_OP_SEND || instr->op == PP_OP_RECV) && pp_payload_bytes(instr) > widest[instr->a[0]])
				widest[instr->a[0]] = pp_payload_bytes(instr);
		}
	}
}

static bool bind_channels(struct pp_endpoint *endpoint, const struct pp_program *program,
                          const struct pp_post_counts *counts)
{
	uint32_t rank = (uint32_t)endpoint->rank;
	endpoint->channels = calloc((size_t)program->channel_count + 1, sizeof *endpoint->channels);
	endpoint->mine = calloc((size_t)program->channel_count + 1, sizeof *endpoint->mine);
	uint64_t *widest = calloc((size_t)program->channel_count + 1, sizeof *widest);
	bool ok = endpoint->channels && endpoint->mine && widest;
	if (ok)
		widest_payloads(program, rank, widest);
	for (uint32_t i = 0; ok && i < program->channel_count; i++) {
		const struct pp_channel *named = &program->channels[i];
		struct channel *channel = &endpoint->channels[i];
		if (named->source != rank && named->destination != rank)
			continue;
		channel->sends = named->source == rank;
		channel->peer = (int)(channel->sends ? named->destination : named->source);
		channel->capacity = counts->channel[i] ? counts->channel[i] : 1;
		uint64_t pieces = widest[i] / endpoint->piece + 2; /* the header's, and a last part */
		size_t requests;
		if (pieces > UINT32_MAX || __builtin_mul_overflow((size_t)channel->capacity, (size_t)pieces, &requests)) {
			ok = false;
			break;
		}
		channel->requests_per_post = (uint32_t)pieces;
		channel->posts = calloc(channel->capacity, sizeof *channel->posts);
		channel->requests = calloc(requests, sizeof *channel->requests);
		ok = channel->posts && channel->requests;
		endpoint->mine[endpoint->mine_count++] = i;
	}
	free(widest);
	return ok;
}

static bool bind_lines(struct pp_endpoint *endpoint, const struct pp_program *program,
                       const struct pp_post_counts *counts)
{
	endpoint->colls = calloc((size_t)counts->colls + 1, sizeof *endpoint->colls);
	endpoint->lines = calloc((size_t)program->group_count + 1, sizeof *endpoint->lines);
	if (!endpoint->colls || !endpoint->lines)
		return false;
	endpoint->line_count = program->group_count;
	for (uint32_t i = 0; i < program->group_count; i++) {
		const struct pp_group *group = &program->groups[i];
		uint32_t position =
		    is_solo(group) ? PP_NULL : pp_grid_position(group, (struct pp_coord){.pp = (uint32_t)endpoint->rank});
		if (position == PP_NULL)
			continue;
		struct pp_mpi_line *line = &endpoint->lines[i];
		line->comm = endpoint->sums;
		line->tag = (int)i;
		line->before = position ? (int)group->members[position - 1] : -1;
		line->after = position + 1 < group->member_count ? (int)group->members[position + 1] : -1;
		line->capacity = counts->group[i] ? counts->group[i] : 1;
		line->posts = calloc(line->capacity, sizeof *line->posts);
		line->piece = malloc(PP_MPI_PIECE);
		if (!line->posts || !line->piece)
			return false;
	}
	return true;
}

static bool tags_suffice(const struct pp_endpoint *endpoint, const struct pp_program *program, struct pp_status *status)
{
	int *limit = NULL, known = 0;
	MPI_Comm_get_attr(endpoint->data, MPI_TAG_UB, &limit, &known);
	uint64_t most = known && limit ? (uint64_t)*limit : 32767;
	uint64_t wanted = program->channel_count > program->group_count ? program->channel_count : program->group_count;
	if (wanted <= most)
		return true;
	return pp_fail(status, PP_EXIT_ENVIRONMENT, "the program has %" PRIu64 " channels, this MPI has %" PRIu64 " tags",
	               wanted, most);
}

static void unbind(struct pp_endpoint *endpoint)
{
	for (uint32_t i = 0; i < endpoint->mine_count; i++) {
		free(endpoint->channels[endpoint->mine[i]].posts);
		free(endpoint->channels[endpoint->mine[i]].requests);
	}
	for (uint32_t i = 0; i < endpoint->line_count; i++) {
		free(endpoint->lines[i].posts);
		free(endpoint->lines[i].piece);
	}
	free(endpoint->channels);
	free(endpoint->mine);
	free(endpoint->lines);
	free(endpoint->colls);
	endpoint->channels = NULL;
	endpoint->mine = NULL;
	endpoint->lines = NULL;
	endpoint->colls = NULL;
	endpoint->mine_count = endpoint->coll_count = endpoint->line_count = 0;
}

bool pp_mpi_bind(struct pp_endpoint *endpoint, const struct pp_program *program,
                 const struct pp_transport_options *options, struct pp_status *status)
{
	unbind(endpoint);
	endpoint->program = program;
	endpoint->options = *options;
	endpoint->piece =
	    options->largest_message && options->largest_message < largest_piece ? options->largest_message : largest_piece;
	if (!tags_suffice(endpoint, program, status))
		return false;
	struct pp_post_counts counts;
	bool ok = pp_post_counts_make(program, (uint32_t)endpoint->rank, &counts) &&
	          bind_channels(endpoint, program, &counts) && bind_lines(endpoint, program, &counts);
	pp_post_counts_free(&counts);
	return ok || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the channels of rank %d", endpoint->rank);
}

void pp_mpi_close(struct pp_endpoint *endpoint)
{
	if (endpoint->note_request != MPI_REQUEST_NULL) {
		MPI_Cancel(&endpoint->note_request);
		MPI_Wait(&endpoint->note_request, MPI_STATUS_IGNORE); /* local: cancelled or already there */
	}
	unbind(endpoint);
	MPI_Comm_free(&endpoint->data);
	MPI_Comm_free(&endpoint->sums);
	MPI_Comm_free(&endpoint->control);
	MPI_Finalize();
	free(endpoint);
}

/* One rank aborts, the lowest of those that gave up by themselves: several at once confuse launchers. The others wait
 * to be ended, but not for ever. */
void pp_mpi_abort(struct pp_endpoint *endpoint, int code)
{
	uint64_t start = pp_clock();
	while (pp_clock() - start < GRACE_NS) {
		hear(endpoint);
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	if (!endpoint->told && (uint32_t)endpoint->rank < endpoint->first_to_fail)
		MPI_Abort(endpoint->control, code);
	nanosleep(&(struct timespec){3, 0}, NULL);
	_exit(code);
}

const struct pp_transport_ops pp_transport_mpi = {
    .name = "mpi",
    .post_send = post_send,
    .post_recv = post_recv,
    .post_coll = post_coll,
    .post_body = post_body,
    .test = test,
    .test_coll = test_coll,
    .test_body = test_body,
    .poll = poll,
    .exchange = exchange,
    .test_exchange = test_exchange,
    .give_up = give_up,
    .failure = failure,
};
