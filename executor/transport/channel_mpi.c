/* Channels over MPI. Each post has its requests preallocated: an identity header if asked, then the payload in pieces,
 * for MPI counts are ints. All are posted at once; completion is looked at in order, so `done` of a channel only grows,
 * as in the loop transport.
 *
 * Requires: a bound program. Ensures: FIFO; nothing waits. */
#include "endpoint_mpi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The next entry of the channel's ring, with room for its requests. */
static struct pp_mpi_post *push(struct pp_mpi_channel *channel, const struct pp_instr *instr, MPI_Request **requests)
{
	if (instr->a[1] == 0)
		channel->base = channel->posted;
	uint64_t at = channel->posted++ % channel->capacity;
	*requests = &channel->requests[at * channel->requests_per_post];
	channel->posts[at].instr = instr;
	channel->posts[at].requests = 0;
	return &channel->posts[at];
}

void pp_mpi_post_send(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from)
{
	struct pp_mpi_channel *channel = &endpoint->channels[instr->a[0]];
	MPI_Request *requests;
	struct pp_mpi_post *post = push(channel, instr, &requests);
	int tag = (int)instr->a[0];
	if (endpoint->options.check_identity) {
		post->header = pp_identity_of(endpoint->program, instr);
		pp_mpi_succeeded(endpoint,
		                 MPI_Isend(&post->header, (int)sizeof post->header, MPI_BYTE, channel->peer, tag,
		                           endpoint->data, &requests[post->requests++]),
		                 "MPI_Isend");
	}
	uint64_t bytes = pp_payload_bytes(instr);
	for (uint64_t at = 0; at == 0 || at < bytes; at += endpoint->piece) {
		int count = (int)(bytes - at < endpoint->piece ? bytes - at : endpoint->piece);
		const unsigned char *start = (const unsigned char *)from + at;
		MPI_Request *request = &requests[post->requests++];
		if (endpoint->options.sync_send)
			pp_mpi_succeeded(endpoint, MPI_Issend(start, count, MPI_BYTE, channel->peer, tag, endpoint->data, request),
			                 "MPI_Issend");
		else
			pp_mpi_succeeded(endpoint, MPI_Isend(start, count, MPI_BYTE, channel->peer, tag, endpoint->data, request),
			                 "MPI_Isend");
	}
}

void pp_mpi_post_recv(struct pp_endpoint *endpoint, const struct pp_instr *instr, void *to)
{
	struct pp_mpi_channel *channel = &endpoint->channels[instr->a[0]];
	MPI_Request *requests;
	struct pp_mpi_post *post = push(channel, instr, &requests);
	int tag = (int)instr->a[0];
	if (endpoint->options.check_identity)
		pp_mpi_succeeded(endpoint,
		                 MPI_Irecv(&post->header, (int)sizeof post->header, MPI_BYTE, channel->peer, tag,
		                           endpoint->data, &requests[post->requests++]),
		                 "MPI_Irecv");
	uint64_t bytes = pp_payload_bytes(instr);
	for (uint64_t at = 0; at == 0 || at < bytes; at += endpoint->piece) {
		int count = (int)(bytes - at < endpoint->piece ? bytes - at : endpoint->piece);
		pp_mpi_succeeded(endpoint,
		                 MPI_Irecv((unsigned char *)to + at, count, MPI_BYTE, channel->peer, tag, endpoint->data,
		                           &requests[post->requests++]),
		                 "MPI_Irecv");
	}
}

static bool check_header(struct pp_endpoint *endpoint, const struct pp_mpi_post *post)
{
	struct pp_identity expected = pp_identity_of(endpoint->program, post->instr);
	if (pp_identity_equal(&post->header, &expected))
		return true;
	char text[PP_MPI_FAILURE_TEXT];
	pp_identity_explain(&post->header, &expected, text, sizeof text);
	pp_mpi_fail(endpoint, text);
	return false;
}

/* A payload that is shorter than posted would go unnoticed: MPI only reports longer ones. */
static bool check_length(struct pp_endpoint *endpoint, const struct pp_mpi_channel *channel,
                         const struct pp_mpi_post *post, const MPI_Status *status)
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
	char text[PP_MPI_FAILURE_TEXT];
	snprintf(text, sizeof text, "c%" PRIu32 " #%" PRIu32 ": got %d of %" PRIu64 " bytes", post->instr->a[0],
	         post->instr->a[1], count, wanted);
	pp_mpi_fail(endpoint, text);
	return false;
}

static void move_channel(struct pp_endpoint *endpoint, struct pp_mpi_channel *channel)
{
	while (channel->done < channel->posted && !endpoint->failed) {
		uint64_t at = channel->done % channel->capacity;
		const struct pp_mpi_post *post = &channel->posts[at];
		MPI_Request *requests = &channel->requests[at * channel->requests_per_post];
		for (; channel->next < post->requests; channel->next++) {
			int arrived = 0;
			MPI_Status status;
			if (!pp_mpi_succeeded(endpoint, MPI_Test(&requests[channel->next], &arrived, &status), "a transfer") ||
			    !arrived)
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

void pp_mpi_move_channels(struct pp_endpoint *endpoint)
{
	for (uint32_t i = 0; i < endpoint->mine_count; i++)
		move_channel(endpoint, &endpoint->channels[endpoint->mine[i]]);
}

bool pp_mpi_bind_channels(struct pp_endpoint *endpoint, const struct pp_post_counts *counts)
{
	const struct pp_program *program = endpoint->program;
	endpoint->channels = calloc((size_t)program->channel_count + 1, sizeof *endpoint->channels);
	endpoint->mine = calloc((size_t)program->channel_count + 1, sizeof *endpoint->mine);
	if (!endpoint->channels || !endpoint->mine)
		return false;
	for (uint32_t i = 0; i < program->channel_count; i++) {
		const struct pp_channel *named = &program->channels[i];
		struct pp_mpi_channel *channel = &endpoint->channels[i];
		if (named->source != endpoint->coord.pp && named->destination != endpoint->coord.pp)
			continue;
		channel->sends = named->source == endpoint->coord.pp;
		struct pp_coord peer = endpoint->coord;
		peer.pp = channel->sends ? named->destination : named->source;
		channel->peer = (int)pp_grid_rank(program, peer);
		channel->capacity = counts->channel[i].posts ? counts->channel[i].posts : 1;
		uint64_t pieces = counts->channel[i].bytes / endpoint->piece + 2; /* the header's, and a last part */
		size_t requests;
		if (pieces > UINT32_MAX || __builtin_mul_overflow((size_t)channel->capacity, (size_t)pieces, &requests))
			return false;
		channel->requests_per_post = (uint32_t)pieces;
		endpoint->mine[endpoint->mine_count++] = i;
		channel->posts = calloc(channel->capacity, sizeof *channel->posts);
		channel->requests = calloc(requests, sizeof *channel->requests);
		if (!channel->posts || !channel->requests)
			return false;
	}
	return true;
}

void pp_mpi_unbind_channels(struct pp_endpoint *endpoint)
{
	for (uint32_t i = 0; i < endpoint->mine_count; i++) {
		free(endpoint->channels[endpoint->mine[i]].posts);
		free(endpoint->channels[endpoint->mine[i]].requests);
	}
	free(endpoint->channels);
	free(endpoint->mine);
	endpoint->channels = NULL;
	endpoint->mine = NULL;
	endpoint->mine_count = 0;
}
