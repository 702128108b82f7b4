/* Posts in queues.
 *
 * Requires: a verified program; the posts of a step are over when the next one begins. Ensures: the first post of each
 * queue, and no other, is with the transport below. On a device a post takes effect from where it was posted, however
 * long it stood in its queue, and makes nothing wait but what its `wait` says. */
#include "queued.h"

#include "ir/queues.h"

#include <stdlib.h>

struct post {
	const struct pp_instr *instr;
	const void *from;
	void *to;
	uint32_t next; /* in its queue, or among the free ones */
};

struct queue {
	uint32_t first, last; /* posts, PP_NULL: empty */
};

struct pp_endpoint {
	const struct pp_transport_ops *ops;
	struct pp_endpoint *below;
	const struct pp_program *program;
	struct pp_coord coord;
	struct pp_arena *arena;
	struct pp_queues layout;
	struct queue *queues; /* [layout.count]: those of other ranks stay empty */
	uint32_t *mine;       /* queues of this rank */
	uint32_t mine_count;
	struct post *posts;
	uint32_t free;    /* first free post */
	uint32_t *issued; /* [channels]: posts of the present step that went below */
};

/* ---- queues ---------------------------------------------------------------------------------- */

static void issue(struct pp_endpoint *endpoint, const struct post *post)
{
	const struct pp_instr *instr = post->instr;
	if (instr->op == PP_OP_COLL) {
		endpoint->ops->post_coll(endpoint->below, instr, post->from, post->to);
		return;
	}
	if (instr->op == PP_OP_SEND)
		endpoint->ops->post_send(endpoint->below, instr, post->from);
	else
		endpoint->ops->post_recv(endpoint->below, instr, post->to);
	endpoint->issued[instr->a[0]] = instr->a[1] + 1;
}

static void enqueue(struct pp_endpoint *endpoint, uint32_t index, const struct pp_instr *instr, const void *from,
                    void *to)
{
	struct queue *queue = &endpoint->queues[index];
	uint32_t number = endpoint->free;
	struct post *post = &endpoint->posts[number];
	endpoint->free = post->next;
	*post = (struct post){.instr = instr, .from = from, .to = to, .next = PP_NULL};
	if (instr->op != PP_OP_COLL && instr->a[1] == 0)
		endpoint->issued[instr->a[0]] = 0;
	if (queue->first == PP_NULL) {
		queue->first = queue->last = number;
		issue(endpoint, post);
		return;
	}
	if (endpoint->ops->mark)
		endpoint->ops->mark(endpoint->below, instr);
	endpoint->posts[queue->last].next = number;
	queue->last = number;
}

static enum pp_progress progress_of(const struct pp_endpoint *endpoint, const struct post *post)
{
	if (endpoint->ops->probe)
		return endpoint->ops->probe(endpoint->below, post->instr);
	if (post->instr->op == PP_OP_COLL)
		return endpoint->ops->test_coll(endpoint->below, post->instr->a[0]);
	return endpoint->ops->test(endpoint->below, post->instr->a[0], post->instr->a[1]);
}

/* Let go of posts that are over, send those behind them below. PP_FAILED, or PP_PENDING. */
static enum pp_progress advance(struct pp_endpoint *endpoint)
{
	for (uint32_t i = 0; i < endpoint->mine_count; i++) {
		struct queue *queue = &endpoint->queues[endpoint->mine[i]];
		while (queue->first != PP_NULL) {
			struct post *post = &endpoint->posts[queue->first];
			enum pp_progress progress = progress_of(endpoint, post);
			if (progress == PP_FAILED)
				return PP_FAILED;
			if (progress == PP_PENDING)
				break;
			uint32_t over = queue->first;
			queue->first = post->next;
			post->next = endpoint->free;
			endpoint->free = over;
			if (queue->first != PP_NULL)
				issue(endpoint, &endpoint->posts[queue->first]);
		}
	}
	return PP_PENDING;
}

/* ---- a transport ----------------------------------------------------------------------------- */

static void post_send(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from)
{
	enqueue(endpoint, endpoint->layout.channel[0][instr->a[0]], instr, from, NULL);
}

static void post_recv(struct pp_endpoint *endpoint, const struct pp_instr *instr, void *to)
{
	enqueue(endpoint, endpoint->layout.channel[1][instr->a[0]], instr, NULL, to);
}

/* Only a queue of the whole rank holds collectives back; groups are queues of their own below. */
static bool queues_collectives(const struct pp_endpoint *endpoint)
{
	return endpoint->layout.layout == PP_LAYOUT_RANK;
}

static void post_coll(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to)
{
	if (queues_collectives(endpoint))
		enqueue(endpoint, pp_queues_collective(&endpoint->layout, instr->a[1], endpoint->coord.pp), instr, from, to);
	else
		endpoint->ops->post_coll(endpoint->below, instr, from, to);
}

static uint32_t post_body(struct pp_endpoint *endpoint, enum pp_collective kind, enum pp_dtype dtype, const void *from,
                          void *to, uint64_t count)
{
	return endpoint->ops->post_body(endpoint->below, kind, dtype, from, to, count);
}

static enum pp_progress test(struct pp_endpoint *endpoint, uint32_t channel, uint32_t seq)
{
	if (advance(endpoint) == PP_FAILED)
		return PP_FAILED;
	return seq < endpoint->issued[channel] ? endpoint->ops->test(endpoint->below, channel, seq) : PP_PENDING;
}

static enum pp_progress test_coll(struct pp_endpoint *endpoint, uint32_t id)
{
	if (!queues_collectives(endpoint)) {
		advance(endpoint);
		return endpoint->ops->test_coll(endpoint->below, id);
	}
	if (advance(endpoint) == PP_FAILED)
		return PP_FAILED;
	for (uint32_t at = endpoint->queues[endpoint->coord.pp].first; at != PP_NULL; at = endpoint->posts[at].next)
		if (endpoint->posts[at].instr->op == PP_OP_COLL && endpoint->posts[at].instr->a[0] == id)
			return PP_PENDING;
	return endpoint->ops->test_coll(endpoint->below, id);
}

static enum pp_progress test_body(struct pp_endpoint *endpoint, uint32_t seq)
{
	advance(endpoint);
	return endpoint->ops->test_body(endpoint->below, seq);
}

static void poll(void *context)
{
	struct pp_endpoint *endpoint = context;
	advance(endpoint);
	endpoint->ops->poll(endpoint->below);
}

static void exchange(struct pp_endpoint *endpoint, const void *mine, void *all, size_t bytes)
{
	endpoint->ops->exchange(endpoint->below, mine, all, bytes);
}

static enum pp_progress test_exchange(struct pp_endpoint *endpoint)
{
	return endpoint->ops->test_exchange(endpoint->below);
}

static void give_up(struct pp_endpoint *endpoint, const char *why)
{
	endpoint->ops->give_up(endpoint->below, why);
}

static const char *failure(const struct pp_endpoint *endpoint)
{
	return endpoint->ops->failure(endpoint->below);
}

static bool bind(struct pp_endpoint *endpoint, struct pp_device *device, struct pp_status *status)
{
	return endpoint->ops->bind(endpoint->below, device, status);
}

static bool broken(struct pp_endpoint *endpoint)
{
	return endpoint->ops->broken && endpoint->ops->broken(endpoint->below);
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool make_tables(struct pp_endpoint *endpoint)
{
	const struct pp_program *program = endpoint->program;
	uint32_t rank = endpoint->coord.pp, count = endpoint->layout.count;
	struct pp_post_counts counts;
	if (!pp_post_counts_make(program, rank, &counts))
		return false;
	uint64_t posts = counts.colls;
	for (uint32_t c = 0; c < program->channel_count; c++)
		posts += counts.channel[c].posts;
	pp_post_counts_free(&counts);
	endpoint->queues = PP_NEW_ARRAY(endpoint->arena, struct queue, count);
	endpoint->mine = PP_NEW_ARRAY(endpoint->arena, uint32_t, count);
	endpoint->posts = PP_NEW_ARRAY(endpoint->arena, struct post, posts + 1);
	endpoint->issued = PP_NEW_ARRAY(endpoint->arena, uint32_t, program->channel_count);
	bool *seen = PP_NEW_ARRAY(endpoint->arena, bool, count);
	for (uint64_t i = 0; i <= posts; i++)
		endpoint->posts[i].next = (uint32_t)i + 1;
	for (uint32_t q = 0; q < count; q++)
		endpoint->queues[q] = (struct queue){PP_NULL, PP_NULL};
	if (queues_collectives(endpoint))
		seen[rank] = true;
	for (uint32_t c = 0; c < program->channel_count; c++) {
		if (program->channels[c].source == rank)
			seen[endpoint->layout.channel[0][c]] = true;
		if (program->channels[c].destination == rank)
			seen[endpoint->layout.channel[1][c]] = true;
	}
	for (uint32_t q = 0; q < count; q++)
		if (seen[q])
			endpoint->mine[endpoint->mine_count++] = q;
	return true;
}

struct pp_endpoint *pp_queued_open(const struct pp_program *program, struct pp_coord coord, enum pp_layout layout,
                                   const struct pp_transport_ops *ops, struct pp_endpoint *below,
                                   struct pp_status *status)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_endpoint *endpoint = PP_NEW(arena, struct pp_endpoint);
	*endpoint =
	    (struct pp_endpoint){.ops = ops, .below = below, .program = program, .coord = coord, .arena = arena, .free = 0};
	endpoint->layout = pp_queues_assign(arena, program, layout);
	if (make_tables(endpoint))
		return endpoint;
	pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the queues of a rank");
	pp_arena_destroy(arena);
	return NULL;
}

void pp_queued_close(struct pp_endpoint *endpoint)
{
	if (endpoint)
		pp_arena_destroy(endpoint->arena);
}

const struct pp_transport_ops pp_transport_queued = {
    .name = "queued",
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

const struct pp_transport_ops pp_transport_queued_ordered = {
    .name = "queued",
    .stream_ordered = true,
    .captures_not = "the host keeps their queues",
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
