/* The NCCL transport: streams for the queues of a layout, lines for channels and groups, failures.
 *
 * Requires: an endpoint below for control data; a program that is proven for the layout. Ensures: a communicator's
 * posts are those of its line, in order; no post allocates. */
#include "nccl.h"

#include "capture.h"
#include "comms.h"
#include "identity.h"
#include "order.h"
#include "processors.h"

#include "executor/clock.h"
#include "executor/cuda/device_parts.h"
#include "executor/cuda/gpu.h"
#include "executor/pending_colls.h"

#include "ir/queues.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_NS = 10000000 };

struct pp_endpoint {
	struct pp_link_start start;
	struct pp_coord coord;
	struct pp_nccl_order order;
	struct pp_cuda *cuda;
	struct pp_nccl_plan plan;
	struct pp_nccl_world world;
	struct pp_nccl_line *lines; /* [plan.count] */
	cudaStream_t *streams;      /* of the rank's queues, then that of bodies */
	uint32_t stream_count;
	struct pp_pending_colls colls;
	struct pp_nccl_identity identity; /* with --check-identity */
	uint64_t looked;                  /* for errors, pp_clock() */
	bool failed;
	struct pp_status failure;
};

static struct pp_nccl_line *body_line(const struct pp_endpoint *endpoint)
{
	return &endpoint->lines[endpoint->plan.count - 1];
}

static bool note(struct pp_endpoint *endpoint, bool fine, const struct pp_status *status)
{
	if (!fine && !endpoint->failed) {
		endpoint->failed = true;
		endpoint->failure = *status;
	}
	return fine;
}

/* ---- posts and tests ------------------------------------------------------------------------- */

static bool is_message(const struct pp_endpoint *endpoint, const struct pp_nccl_line *line)
{
	return line->index < endpoint->start.program->channel_count;
}

static uint64_t post(struct pp_endpoint *endpoint, struct pp_nccl_line *line, const struct pp_part *part)
{
	struct pp_status status;
	uint64_t number = 0;
	if (endpoint->failed)
		return line->posted++;
	note(endpoint, pp_nccl_line_post(line, endpoint->cuda, part, &number, &status), &status);
	if (!is_message(endpoint, line))
		pp_nccl_identity_part(&endpoint->identity, line->index, part);
	return number;
}

static void post_message(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to)
{
	struct pp_nccl_line *line = &endpoint->lines[instr->a[0]];
	if (instr->a[1] == 0)
		line->base = line->posted;
	const struct pp_part part = {.from = from, .to = to, .count = instr->count, .dtype = instr->dtype, .id = PP_NULL};
	post(endpoint, line, &part);
	pp_nccl_identity_message(&endpoint->identity, instr);
}

static void post_send(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from)
{
	post_message(endpoint, instr, from, NULL);
}

static void post_recv(struct pp_endpoint *endpoint, const struct pp_instr *instr, void *to)
{
	post_message(endpoint, instr, NULL, to);
}

static void post_coll(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to)
{
	uint32_t index = endpoint->start.program->channel_count + instr->a[1];
	struct pp_nccl_line *line = &endpoint->lines[index];
	struct pp_part part = pp_part_of(instr, from, to, line->seat.position);
	pp_pending_colls_add(
	    &endpoint->colls,
	    (struct pp_pending_coll){.id = instr->a[0], .line = index, .number = post(endpoint, line, &part)});
}

static uint32_t post_body(struct pp_endpoint *endpoint, enum pp_collective kind, enum pp_dtype dtype, const void *from,
                          void *to, uint64_t count)
{
	const struct pp_part part = {
	    .from = from, .to = to, .count = count, .kind = (uint8_t)kind, .dtype = (uint8_t)dtype, .id = PP_NULL};
	return (uint32_t)post(endpoint, body_line(endpoint), &part);
}

/* What was posted will run; the device is told to come after it. */
static enum pp_progress follow(struct pp_endpoint *endpoint, const struct pp_nccl_line *line, uint64_t number)
{
	struct pp_status status;
	if (endpoint->failed)
		return PP_FAILED;
	return note(endpoint, pp_nccl_line_follow(line, endpoint->cuda, number, &status), &status) ? PP_DONE : PP_FAILED;
}

static enum pp_progress test(struct pp_endpoint *endpoint, uint32_t channel, uint32_t seq)
{
	const struct pp_nccl_line *line = &endpoint->lines[channel];
	return follow(endpoint, line, line->base + seq);
}

static enum pp_progress test_coll(struct pp_endpoint *endpoint, uint32_t id)
{
	const struct pp_pending_coll *coll = pp_pending_colls_find(&endpoint->colls, id);
	if (!coll)
		return PP_DONE;
	enum pp_progress progress = follow(endpoint, &endpoint->lines[coll->line], coll->number);
	pp_pending_colls_take(&endpoint->colls, coll);
	return progress;
}

static enum pp_progress test_body(struct pp_endpoint *endpoint, uint32_t ticket)
{
	const struct pp_nccl_line *line = body_line(endpoint);
	uint32_t behind = (uint32_t)line->posted - ticket; /* far fewer than 2^31 are outstanding */
	return follow(endpoint, line, line->posted - behind);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* NCCL says nothing by itself; it is asked now and then while the host waits for the device. */
static bool broken(struct pp_endpoint *endpoint)
{
	const struct pp_transport_ops *below = endpoint->start.below;
	struct pp_status status;
	uint64_t time = pp_clock();
	if (endpoint->failed || time - endpoint->looked < LOOK_NS)
		return endpoint->failed;
	endpoint->looked = time;
	for (uint32_t i = 0; i < endpoint->plan.count && !endpoint->failed; i++)
		note(endpoint, pp_nccl_line_sound(&endpoint->lines[i], &status), &status);
	if (!endpoint->failed && below->broken && below->broken(endpoint->start.endpoint)) {
		pp_fail(&status, PP_EXIT_RUN, "%s", below->failure(endpoint->start.endpoint));
		note(endpoint, false, &status);
	}
	return endpoint->failed;
}

static void poll(void *context)
{
	const struct pp_endpoint *endpoint = context;
	endpoint->start.below->poll(endpoint->start.endpoint);
}

/* What others wait for here never comes: their operations and ours are broken off. */
static void give_up(struct pp_endpoint *endpoint, const char *why)
{
	struct pp_status status;
	endpoint->start.below->give_up(endpoint->start.endpoint, why);
	pp_fail(&status, PP_EXIT_RUN, "%s", why);
	note(endpoint, false, &status);
	pp_nccl_world_end(&endpoint->world, endpoint->lines, endpoint->plan.count, true);
}

static const char *failure(const struct pp_endpoint *endpoint)
{
	return endpoint->failed ? endpoint->failure.text : endpoint->start.below->failure(endpoint->start.endpoint);
}

/* ---- control data ---------------------------------------------------------------------------- */

static void exchange(struct pp_endpoint *endpoint, const void *mine, void *all, size_t bytes)
{
	const struct pp_transport_ops *below = endpoint->start.below;
	struct pp_nccl_identity *identity = &endpoint->identity;
	size_t size;
	if (!identity->digests) {
		below->exchange(endpoint->start.endpoint, mine, all, bytes);
		return;
	}
	if (!pp_nccl_identity_pack(identity, mine, all, bytes, &size))
		give_up(endpoint, "out of memory for comparing what ranks have posted");
	else
		below->exchange(endpoint->start.endpoint, identity->given, identity->taken, size);
}

static enum pp_progress test_exchange(struct pp_endpoint *endpoint)
{
	struct pp_status status;
	enum pp_progress progress = endpoint->start.below->test_exchange(endpoint->start.endpoint);
	if (progress != PP_DONE || !endpoint->identity.digests ||
	    note(endpoint, pp_nccl_identity_unpack(&endpoint->identity, &status), &status))
		return progress;
	return PP_FAILED;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Before all others: the few blocks of a post start when the first place gets free, not behind those of a kernel that
 * were given earlier and have no place yet. */
static bool make_stream(cudaStream_t *stream, struct pp_status *status)
{
	int least = 0, greatest = 0;
	return pp_cuda_ok(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities", status) &&
	       pp_cuda_ok(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest), "making a stream", status);
}

/* One stream per queue: in it posts wait for each other. */
static bool make_streams(struct pp_endpoint *endpoint, struct pp_status *status)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_queues queues = pp_queues_assign(arena, endpoint->start.program, endpoint->order.layout);
	endpoint->stream_count = queues.count + 1;
	endpoint->streams = calloc(endpoint->stream_count, sizeof(cudaStream_t));
	bool ok = endpoint->streams || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for streams");
	for (uint32_t i = 0; ok && i < endpoint->plan.count; i++) {
		struct pp_nccl_line *line = &endpoint->lines[i];
		if (line->seat.members == 0)
			continue;
		uint32_t queue = pp_nccl_order_queue(&queues, i, line->seat.position, endpoint->coord.pp);
		cudaStream_t *stream = &endpoint->streams[queue == PP_NULL ? queues.count : queue];
		ok = *stream || make_stream(stream, status);
		line->stream = *stream;
	}
	pp_arena_destroy(arena);
	return ok;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool open_lines(struct pp_endpoint *endpoint, struct pp_status *status)
{
	const struct pp_program *program = endpoint->start.program;
	struct pp_post_counts counts;
	bool ok = pp_nccl_plan_make(&endpoint->plan, program);
	endpoint->lines = calloc((size_t)endpoint->plan.count + 1, sizeof *endpoint->lines);
	bool counted = pp_post_counts_make(program, endpoint->coord.pp, &counts);
	ok = (ok && endpoint->lines && counted && pp_pending_colls_make(&endpoint->colls, counts.colls)) ||
	     pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the channels of rank %" PRIu32, endpoint->start.world);
	if (ok && endpoint->start.options.check_identity)
		ok = pp_nccl_identity_make(&endpoint->identity, program, endpoint->plan.count) ||
		     pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for comparing what ranks post");
	for (uint32_t i = 0; ok && i < endpoint->plan.count; i++) {
		uint32_t group = i - program->channel_count;
		const struct pp_post_count *count = i < program->channel_count     ? &counts.channel[i]
		                                    : group < program->group_count ? &counts.group[group]
		                                                                   : &counts.body;
		endpoint->lines[i] = (struct pp_nccl_line){
		    .program = program, .index = i, .seat = pp_nccl_plan_seat(program, i, endpoint->coord)};
		if (endpoint->lines[i].seat.members && count->posts)
			ok = pp_nccl_line_open(&endpoint->lines[i], count->posts, status);
	}
	pp_post_counts_free(&counts);
	return ok;
}

/* Ranks that share a GPU see each other's memory come and go. */
static bool say_growth(const struct pp_endpoint *endpoint)
{
	char name[PP_GRID_NAME];
	if (endpoint->world.grown && !endpoint->start.quiet && !endpoint->start.shared)
		fprintf(
		    stderr,
		    "piperun: %s: NCCL took %.1f MiB more of the GPU when everything was used for the second time; steps may "
		    "have to wait for such a thing\n",
		    pp_grid_name(endpoint->start.program, endpoint->start.world, name),
		    (double)endpoint->world.grown / 1048576);
	return true;
}

static bool captures(const struct pp_endpoint *endpoint, const struct pp_device *device, struct pp_status *status)
{
	int driver = 0;
	cudaDriverGetVersion(&driver);
	return !device->steps || pp_nccl_capture_fits(endpoint->start.program, &endpoint->order, driver, status);
}

static bool bind(struct pp_endpoint *endpoint, struct pp_device *device, struct pp_status *status)
{
	endpoint->cuda = pp_cuda_of(device);
	bool ready = open_lines(endpoint, status) && make_streams(endpoint, status) && captures(endpoint, device, status);
	return pp_nccl_world_make(&endpoint->world, &endpoint->plan, endpoint->lines, endpoint->start.below,
	                          endpoint->start.endpoint, ready, status) &&
	       /* Nothing is in the arena yet. */
	       pp_nccl_world_warm(&endpoint->world, &endpoint->plan, endpoint->lines, pp_cuda_arena(device),
	                          device->rank->arena_bytes, status) &&
	       say_growth(endpoint);
}

/* NCCL refuses a GPU that two ranks of a machine share; ranks that seem to be on machines of their own it connects by
 * sockets. For trying things out. */
static void share_gpus(const struct pp_link_start *start)
{
	char host[32];
	if (!start->shared || getenv("NCCL_HOSTID"))
		return;
	snprintf(host, sizeof host, "rank-%" PRIu32, start->world);
	pp_late_variable_set(&start->environment->host, host);
	if (start->world == 0 && !start->quiet)
		fprintf(stderr, "piperun: ranks share GPUs: NCCL connects them by sockets (NCCL_HOSTID)\n");
}

/* The layout that the streams of every rank have connections to their GPUs for. */
static enum pp_layout choose_layout(const struct pp_link_start *start)
{
	enum { UNSAID = 8, MOST = 32 }; /* CUDA's */
	const char *said = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	unsigned long number = said ? strtoul(said, NULL, 10) : UNSAID;
	uint32_t connections = number < 1 ? 1 : number < MOST ? (uint32_t)number : MOST;
	enum pp_layout layout = pp_nccl_order_narrow(start->program, start->queues, connections);
	uint32_t streams = pp_nccl_order_streams(start->program, layout);
	if (start->world != 0 || start->quiet)
		return layout;
	if (streams > connections)
		fprintf(
		    stderr,
		    "piperun: warning: %" PRIu32 " streams of a rank share %" PRIu32
		    " connections to its GPU (CUDA_DEVICE_MAX_CONNECTIONS): they may wait for each other where the proof "
		    "knows nothing of it; set it to up to %d, or build the program with --lowering=end, which is proven for "
		    "fewer queues\n",
		    streams, connections, MOST);
	else if (layout != start->queues)
		fprintf(stderr,
		        "piperun: queues per %s, since those per %s are more than the %" PRIu32
		        " connections to a GPU (CUDA_DEVICE_MAX_CONNECTIONS)\n",
		        pp_layout_name[layout], pp_layout_name[start->queues], connections);
	return layout;
}

/* Launchers bind processes by default, some to one processor: srun, and Open MPI with one or two ranks. */
static void check_binding(const struct pp_link_start *start)
{
	if (start->world == 0 && !start->quiet && pp_nccl_processors() == 1)
		fprintf(
		    stderr,
		    "piperun: warning: rank 0 is bound to one processor, which its own threads and NCCL's then share, so that "
		    "every step takes longer; start with `mpirun --bind-to none` or `srun --cpu-bind=none`\n");
}

static struct pp_endpoint *open_link(const struct pp_link_start *start, struct pp_status *status)
{
	struct pp_nccl_versions versions = {.toolkit = CUDART_VERSION};
	const char *said = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
	struct pp_endpoint *endpoint = calloc(1, sizeof *endpoint);
	if (!endpoint) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
		return NULL;
	}
	uint32_t ranks = (uint32_t)pp_grid_world(start->program);
	endpoint->start = *start;
	endpoint->coord = pp_grid_coord(start->program, start->world);
	endpoint->world = (struct pp_nccl_world){.program = start->program, .rank = start->world, .ranks = ranks};
	cudaDriverGetVersion(&versions.driver);
	ncclGetVersion(&versions.nccl);
	share_gpus(start);
	check_binding(start);
	if (!pp_nccl_order_decide(start->program, choose_layout(start), &versions, said, &endpoint->order, status)) {
		free(endpoint);
		return NULL;
	}
	if (!said) /* a nccl.conf could say otherwise */
		pp_late_variable_set(&start->environment->order, endpoint->order.implicit ? "1" : "0");
	if (endpoint->order.unproven && start->world == 0 && !start->quiet)
		fprintf(stderr,
		        "piperun: warning: launches of NCCL are in no order, and the program does not know its GPUs, so that "
		        "nothing is proven of room for all that may run at once (V11): say `sms` in its cluster, or build "
		        "it with --lowering=end\n");
	if (start->world == 0 && !start->quiet)
		printf("NCCL %d.%d.%d, %s\n", versions.nccl / 10000, versions.nccl % 10000 / 100, versions.nccl % 100,
		       endpoint->order.text);
	return endpoint;
}

static void close_link(struct pp_endpoint *endpoint)
{
	if (endpoint->lines)
		pp_nccl_world_end(&endpoint->world, endpoint->lines, endpoint->plan.count, endpoint->failed);
	for (uint32_t i = 0; endpoint->lines && i < endpoint->plan.count; i++)
		pp_nccl_line_close(&endpoint->lines[i]);
	for (uint32_t i = 0; endpoint->streams && i < endpoint->stream_count; i++)
		if (endpoint->streams[i])
			cudaStreamDestroy(endpoint->streams[i]);
	pp_nccl_plan_free(&endpoint->plan);
	free(endpoint->streams);
	free(endpoint->lines);
	pp_pending_colls_free(&endpoint->colls);
	pp_nccl_identity_free(&endpoint->identity);
	free(endpoint);
}

_Static_assert((int)PP_GPU_UUID == (int)PP_DEVICE_ID, "a GPU is told by its UUID");

static const struct pp_transport_ops nccl_ops = {
    .name = "nccl",
    .stream_ordered = true,
    .captures = true,
    .bind = bind,
    .broken = broken,
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

const struct pp_link pp_link_nccl = {.name = "nccl",
                                     .ops = &nccl_ops,
                                     .has_queues = true,
                                     .identify = pp_gpu_identify,
                                     .open = open_link,
                                     .close = close_link};
