/* The mpi transport: life, failures, polling. A rank that gives up sends a note to all others, for MPI itself reports
 * nothing to the survivors of a lost rank.
 *
 * Requires: the same program on all ranks. Ensures: no call here waits for another rank, except MPI's own start and
 * end. All communicators are made when MPI starts, before any program is bound; channels and groups are tags on them.
 */
#include "transport_mpi.h"

#include "endpoint_mpi.h"

#include "executor/watch.h"

#if defined(OPEN_MPI) && OPEN_MPI
#include <mpi-ext.h>
#endif

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(OPEN_MPI) && OPEN_MPI
const bool pp_mpi_is_open_mpi = true;
#else
const bool pp_mpi_is_open_mpi = false;
#endif

enum { NOTE_TAG = 1, GRACE_NS = 300000000 };

static const uint64_t largest_piece = UINT64_C(1) << 30;

/* ---- failure --------------------------------------------------------------------------------- */

void pp_mpi_fail(struct pp_endpoint *endpoint, const char *text)
{
	if (endpoint->failed)
		return;
	endpoint->failed = true;
	snprintf(endpoint->failure, sizeof endpoint->failure, "%s", text);
}

bool pp_mpi_succeeded(struct pp_endpoint *endpoint, int error, const char *call)
{
	if (error == MPI_SUCCESS)
		return true;
	char reason[MPI_MAX_ERROR_STRING] = "";
	int length = 0;
	MPI_Error_string(error, reason, &length);
	char text[PP_MPI_FAILURE_TEXT];
	snprintf(text, sizeof text, "%s failed: %.300s", call, reason);
	pp_mpi_fail(endpoint, text);
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
	char name[PP_GRID_NAME], text[PP_GRID_NAME + 16];
	snprintf(text, sizeof text, "%s gave up", pp_grid_name(endpoint->program, endpoint->note.rank, name));
	if (!endpoint->failed)
		endpoint->told = true;
	pp_mpi_fail(endpoint, text);
	listen(endpoint);
}

static bool broken(struct pp_endpoint *endpoint)
{
	if (!endpoint->failed)
		hear(endpoint);
	return endpoint->failed;
}

static enum pp_progress pending(struct pp_endpoint *endpoint)
{
	return broken(endpoint) ? PP_FAILED : PP_PENDING;
}

/* The rank says itself why; the others are told only that it did. */
static void give_up(struct pp_endpoint *endpoint, const char *why)
{
	(void)why;
	if (endpoint->told)
		return;
	struct pp_mpi_note note = {.rank = (uint32_t)endpoint->rank};
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

/* ---- devices --------------------------------------------------------------------------------- */

static bool takes_devices(const struct pp_endpoint *endpoint)
{
	(void)endpoint;
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
	return MPIX_Query_cuda_support() == 1;
#elif defined(MPIX_GPU_SUPPORT_CUDA)
	int supported = 0;
	return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported) == MPI_SUCCESS && supported;
#else
	return false;
#endif
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void post_coll(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to)
{
	struct pp_mpi_line *line = &endpoint->lines[instr->a[1]];
	struct pp_part part = pp_part_of(instr, from, to, line->position);
	pp_pending_colls_add(&endpoint->colls, (struct pp_pending_coll){.id = instr->a[0],
	                                                                .line = instr->a[1],
	                                                                .number = pp_mpi_line_post(endpoint, line, &part)});
}

static uint32_t post_body(struct pp_endpoint *endpoint, enum pp_collective kind, enum pp_dtype dtype, const void *from,
                          void *to, uint64_t count)
{
	struct pp_part part = {
	    .from = from, .to = to, .count = count, .kind = (uint8_t)kind, .dtype = (uint8_t)dtype, .id = PP_NULL};
	return (uint32_t)pp_mpi_line_post(endpoint, &endpoint->lines[endpoint->program->group_count], &part);
}

/* ---- polling --------------------------------------------------------------------------------- */

static void poll(void *context)
{
	struct pp_endpoint *endpoint = context;
	pp_mpi_move_channels(endpoint);
	for (uint32_t i = 0; i < endpoint->colls.count; i++)
		pp_mpi_line_move(endpoint, &endpoint->lines[endpoint->colls.items[i].line]);
	pp_mpi_line_move(endpoint, &endpoint->lines[endpoint->program->group_count]);
}

static enum pp_progress test(struct pp_endpoint *endpoint, uint32_t index, uint32_t seq)
{
	const struct pp_mpi_channel *channel = &endpoint->channels[index];
	uint64_t number = channel->base + seq;
	if (channel->done > number)
		return PP_DONE;
	poll(endpoint);
	return channel->done > number ? PP_DONE : pending(endpoint);
}

static enum pp_progress test_coll(struct pp_endpoint *endpoint, uint32_t id)
{
	const struct pp_pending_coll *coll = pp_pending_colls_find(&endpoint->colls, id);
	if (!coll)
		return PP_DONE;
	const struct pp_mpi_line *line = &endpoint->lines[coll->line];
	if (line->done <= coll->number) {
		poll(endpoint);
		if (line->done <= coll->number)
			return pending(endpoint);
	}
	pp_pending_colls_take(&endpoint->colls, coll);
	return PP_DONE;
}

static enum pp_progress test_body(struct pp_endpoint *endpoint, uint32_t ticket)
{
	const struct pp_mpi_line *line = &endpoint->lines[endpoint->program->group_count];
	if ((int32_t)((uint32_t)line->done - ticket) <= 0) /* far fewer than 2^31 are outstanding */
		poll(endpoint);
	return (int32_t)((uint32_t)line->done - ticket) > 0 ? PP_DONE : pending(endpoint);
}

static void exchange(struct pp_endpoint *endpoint, const void *mine, void *all, size_t bytes)
{
	if (bytes > INT32_MAX)
		pp_mpi_fail(endpoint, "control data of 2 GiB and more");
	else if (bytes == 0)
		pp_mpi_succeeded(endpoint, MPI_Ibarrier(endpoint->control, &endpoint->exchange), "MPI_Ibarrier");
	else
		pp_mpi_succeeded(endpoint,
		                 MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, endpoint->control,
		                                &endpoint->exchange),
		                 "MPI_Iallgather");
}

static enum pp_progress test_exchange(struct pp_endpoint *endpoint)
{
	int arrived = 0;
	if (endpoint->failed ||
	    !pp_mpi_succeeded(endpoint, MPI_Test(&endpoint->exchange, &arrived, MPI_STATUS_IGNORE), "an exchange"))
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
	MPI_Comm *comms[] = {&endpoint->data, &endpoint->sums, &endpoint->control};
	bool ok =
	    pp_mpi_succeeded(endpoint, MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
	for (size_t i = 0; ok && i < sizeof comms / sizeof *comms; i++)
		ok = pp_mpi_succeeded(endpoint, MPI_Comm_dup(MPI_COMM_WORLD, comms[i]), "MPI_Comm_dup") &&
		     pp_mpi_succeeded(endpoint, MPI_Comm_set_errhandler(*comms[i], MPI_ERRORS_RETURN),
		                      "MPI_Comm_set_errhandler");
	ok = ok && pp_mpi_succeeded(endpoint, MPI_Comm_rank(endpoint->control, &endpoint->rank), "MPI_Comm_rank") &&
	     pp_mpi_succeeded(endpoint, MPI_Comm_size(endpoint->control, &endpoint->ranks), "MPI_Comm_size") &&
	     pp_mpi_succeeded(endpoint, listen(endpoint), "MPI_Irecv");
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

static bool tags_suffice(const struct pp_endpoint *endpoint, const struct pp_program *program, struct pp_status *status)
{
	int *limit = NULL, known = 0;
	MPI_Comm_get_attr(endpoint->data, MPI_TAG_UB, &limit, &known);
	uint64_t most = known && limit ? (uint64_t)*limit : 32767;
	uint64_t groups = (uint64_t)program->group_count + 1; /* with that of bodies */
	uint64_t wanted = program->channel_count > groups ? program->channel_count : groups;
	if (wanted <= most)
		return true;
	return pp_fail(status, PP_EXIT_ENVIRONMENT, "the program has %" PRIu64 " channels, this MPI has %" PRIu64 " tags",
	               wanted, most);
}

static void unbind(struct pp_endpoint *endpoint)
{
	pp_mpi_unbind_channels(endpoint);
	for (uint32_t i = 0; i < endpoint->line_count; i++)
		pp_mpi_line_free(&endpoint->lines[i]);
	free(endpoint->lines);
	pp_pending_colls_free(&endpoint->colls);
	endpoint->lines = NULL;
	endpoint->line_count = 0;
}

static bool bind_lines(struct pp_endpoint *endpoint, const struct pp_post_counts *counts)
{
	static const struct pp_group of_bodies = {.axis = PP_AXIS_TP};
	const struct pp_program *program = endpoint->program;
	endpoint->lines = calloc((size_t)program->group_count + 1, sizeof *endpoint->lines);
	if (!endpoint->lines || !pp_pending_colls_make(&endpoint->colls, counts->colls))
		return false;
	endpoint->line_count = program->group_count + 1;
	for (uint32_t i = 0; i < program->group_count; i++)
		if (!pp_mpi_line_bind(endpoint, &endpoint->lines[i], &program->groups[i], (int)i, &counts->group[i]))
			return false;
	return pp_mpi_line_bind(endpoint, &endpoint->lines[program->group_count], &of_bodies, (int)program->group_count,
	                        &counts->body);
}

bool pp_mpi_bind(struct pp_endpoint *endpoint, const struct pp_program *program,
                 const struct pp_transport_options *options, struct pp_status *status)
{
	unbind(endpoint);
	endpoint->program = program;
	endpoint->coord = pp_grid_coord(program, (uint32_t)endpoint->rank);
	endpoint->options = *options;
	endpoint->piece =
	    options->largest_message && options->largest_message < largest_piece ? options->largest_message : largest_piece;
	if (!tags_suffice(endpoint, program, status))
		return false;
	struct pp_post_counts counts;
	bool ok = pp_post_counts_make(program, endpoint->coord.pp, &counts) && pp_mpi_bind_channels(endpoint, &counts) &&
	          bind_lines(endpoint, &counts);
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

const struct pp_transport_ops pp_transport_mpi = {
    .name = "mpi",
    .takes_devices = takes_devices,
    .broken = broken,
    .post_send = pp_mpi_post_send,
    .post_recv = pp_mpi_post_recv,
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
