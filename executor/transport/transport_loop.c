/* The loop transport: ranks are threads, a transfer is one memcpy made by whichever end first sees both posts.
 *
 * Every counter below only grows; entry k of a queue of capacity n lives at k mod n, and n is the number of posts of a
 * step, so an entry is reused only after its step has ended. A queue's entries are written by their owner before its
 * counter is raised (release) and read by the mover after it (acquire); the mover holds the queue's flag.
 *
 * Requires: a verified program, one thread per endpoint. Ensures: rendezvous, FIFO, member order sums. */
#include "transport_loop.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUM_BYTES = 4096, FAILURE_TEXT = 512 };

struct post {
	const struct pp_instr *instr;
	const void *from;
	void *to;
};

/* Posts of one end of a channel, or of one member of a group. */
struct queue {
	struct post *posts;
	uint32_t capacity;
	atomic_uint_least64_t posted;
	uint64_t base; /* owner only: posts before the present step */
};

struct channel {
	struct queue send, recv;
	atomic_uint_least64_t done;
	atomic_flag moving;
};

struct group {
	struct queue *members;
	uint32_t member_count;
	atomic_uint_least64_t done;
	atomic_flag moving;
};

/* A collective posted and not yet waited for. */
struct pending_coll {
	uint32_t id, group;
	uint64_t number;
};

struct pp_endpoint {
	struct pp_loop *loop;
	uint32_t rank;
	uint32_t *channels; /* those that end here */
	uint32_t channel_count;
	struct pending_coll *colls;
	uint32_t coll_count;
	void *mine; /* of the present exchange: a copy, so that a rank that gives up takes nothing away */
	size_t mine_capacity;
	void *all;
	size_t bytes;
	uint64_t exchanges; /* begun */
	bool copied;
};

struct pp_loop {
	const struct pp_program *program;
	struct pp_transport_options options;
	struct channel *channels;
	struct group *groups;
	struct pp_endpoint *endpoints;
	atomic_uint_least64_t arrived, left; /* exchanges, counted over all ranks */
	atomic_int failed;                   /* 0 no, 1 its text is being written, 2 yes */
	char failure[FAILURE_TEXT];
	uint32_t gave_up; /* the rank whose failure it is and which reports it; PP_NULL: all do */
	char told[32];    /* what the others say */
};

/* ---- failure --------------------------------------------------------------------------------- */

/* `rank`: which gives up, or PP_NULL. */
static void set_failure(struct pp_loop *loop, uint32_t rank, const char *text)
{
	int expected = 0;
	if (!atomic_compare_exchange_strong(&loop->failed, &expected, 1))
		return;
	snprintf(loop->failure, sizeof loop->failure, "%s", text);
	snprintf(loop->told, sizeof loop->told, "rank %" PRIu32 " gave up", rank);
	loop->gave_up = rank;
	atomic_store(&loop->failed, 2);
}

static void give_up(struct pp_endpoint *endpoint, const char *why)
{
	set_failure(endpoint->loop, endpoint->rank, why);
}

static const char *failure(const struct pp_endpoint *endpoint)
{
	const struct pp_loop *loop = endpoint->loop;
	while (atomic_load(&loop->failed) == 1) /* its text is being written */
		sched_yield();
	return loop->gave_up == PP_NULL || loop->gave_up == endpoint->rank ? loop->failure : loop->told;
}

/* ---- channels -------------------------------------------------------------------------------- */

static void push(struct queue *queue, const struct pp_instr *instr, const void *from, void *to, bool first_of_step)
{
	uint64_t number = atomic_load_explicit(&queue->posted, memory_order_relaxed);
	if (first_of_step)
		queue->base = number;
	queue->posts[number % queue->capacity] = (struct post){instr, from, to};
	atomic_store_explicit(&queue->posted, number + 1, memory_order_release);
}

static bool transfer(struct pp_loop *loop, const struct post *send, const struct post *recv)
{
	struct pp_identity sent = pp_identity_of(loop->program, send->instr),
	                   expected = pp_identity_of(loop->program, recv->instr);
	bool equal = loop->options.check_identity ? pp_identity_equal(&sent, &expected) : sent.bytes == expected.bytes;
	if (!equal) {
		char text[FAILURE_TEXT];
		pp_identity_explain(&sent, &expected, text, sizeof text);
		set_failure(loop, PP_NULL, text);
		return false;
	}
	memcpy(recv->to, send->from, sent.bytes);
	return true;
}

/* Move everything of a channel that both ends have posted, unless the other end is at it. */
static void move_channel(struct pp_loop *loop, struct channel *channel)
{
	uint64_t done = atomic_load_explicit(&channel->done, memory_order_acquire);
	if (done >= atomic_load_explicit(&channel->send.posted, memory_order_acquire) ||
	    done >= atomic_load_explicit(&channel->recv.posted, memory_order_acquire))
		return;
	if (atomic_flag_test_and_set(&channel->moving))
		return;
	done = atomic_load_explicit(&channel->done, memory_order_acquire);
	while (done < atomic_load_explicit(&channel->send.posted, memory_order_acquire) &&
	       done < atomic_load_explicit(&channel->recv.posted, memory_order_acquire)) {
		if (!transfer(loop, &channel->send.posts[done % channel->send.capacity],
		              &channel->recv.posts[done % channel->recv.capacity]))
			break;
		atomic_store_explicit(&channel->done, ++done, memory_order_release);
	}
	atomic_flag_clear(&channel->moving);
}

static void post_send(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from)
{
	struct channel *channel = &endpoint->loop->channels[instr->a[0]];
	push(&channel->send, instr, from, NULL, instr->a[1] == 0);
	move_channel(endpoint->loop, channel);
}

static void post_recv(struct pp_endpoint *endpoint, const struct pp_instr *instr, void *to)
{
	struct channel *channel = &endpoint->loop->channels[instr->a[0]];
	push(&channel->recv, instr, NULL, to, instr->a[1] == 0);
	move_channel(endpoint->loop, channel);
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* Sum the members' `from` in member order into every member's `to`, a piece at a time: `to` may be `from`. */
static void reduce(struct group *group, uint64_t number)
{
	const struct pp_instr *instr = group->members[0].posts[number % group->members[0].capacity].instr;
	size_t size = pp_dtype_size[instr->dtype], piece = SUM_BYTES / size;
	double sum[SUM_BYTES / sizeof(double)];
	for (size_t at = 0; at < instr->count; at += piece) {
		size_t count = instr->count - at < piece ? instr->count - at : piece;
		for (uint32_t i = 0; i < group->member_count; i++) {
			const unsigned char *from = group->members[i].posts[number % group->members[i].capacity].from;
			if (i == 0)
				memcpy(sum, from + at * size, count * size);
			else
				pp_transport_sum((enum pp_dtype)instr->dtype, sum, sum, from + at * size, count);
		}
		for (uint32_t i = 0; i < group->member_count; i++) {
			unsigned char *to = group->members[i].posts[number % group->members[i].capacity].to;
			memcpy(to + at * size, sum, count * size);
		}
	}
}

static bool all_posted(struct group *group, uint64_t number)
{
	for (uint32_t i = 0; i < group->member_count; i++)
		if (atomic_load_explicit(&group->members[i].posted, memory_order_acquire) <= number)
			return false;
	return true;
}

static bool congruent(struct pp_loop *loop, struct group *group, uint64_t number)
{
	const struct pp_instr *first = group->members[0].posts[number % group->members[0].capacity].instr;
	for (uint32_t i = 1; i < group->member_count; i++) {
		const struct pp_instr *other = group->members[i].posts[number % group->members[i].capacity].instr;
		if (other->count != first->count || other->dtype != first->dtype || other->sub != first->sub) {
			char text[FAILURE_TEXT];
			snprintf(text, sizeof text,
			         "members of group g%" PRIu32 " disagree: %" PRIu32 " elements of %s against %" PRIu32 " of %s",
			         first->a[1], first->count, pp_dtype_name[first->dtype], other->count, pp_dtype_name[other->dtype]);
			set_failure(loop, PP_NULL, text);
			return false;
		}
	}
	return true;
}

static void move_group(struct pp_loop *loop, struct group *group)
{
	if (!all_posted(group, atomic_load_explicit(&group->done, memory_order_acquire)) ||
	    atomic_flag_test_and_set(&group->moving))
		return;
	uint64_t done = atomic_load_explicit(&group->done, memory_order_acquire);
	while (all_posted(group, done) && congruent(loop, group, done)) {
		reduce(group, done);
		atomic_store_explicit(&group->done, ++done, memory_order_release);
	}
	atomic_flag_clear(&group->moving);
}

static bool is_solo(const struct pp_group *group)
{
	return group->axis != PP_AXIS_PP || group->member_count == 1;
}

static void post_coll(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to)
{
	struct pp_loop *loop = endpoint->loop;
	struct pending_coll *pending = &endpoint->colls[endpoint->coll_count++];
	const struct pp_group *named = &loop->program->groups[instr->a[1]];
	*pending = (struct pending_coll){.id = instr->a[0], .group = instr->a[1], .number = UINT64_MAX};
	if (is_solo(named)) {
		memmove(to, from, pp_payload_bytes(instr));
		return;
	}
	struct group *group = &loop->groups[instr->a[1]];
	struct queue *queue = &group->members[pp_grid_position(named, (struct pp_coord){.pp = endpoint->rank})];
	pending->number = atomic_load_explicit(&queue->posted, memory_order_relaxed);
	push(queue, instr, from, to, false);
	move_group(loop, group);
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
	struct pp_loop *loop = endpoint->loop;
	for (uint32_t i = 0; i < endpoint->channel_count; i++)
		move_channel(loop, &loop->channels[endpoint->channels[i]]);
	for (uint32_t i = 0; i < endpoint->coll_count; i++)
		if (endpoint->colls[i].number != UINT64_MAX)
			move_group(loop, &loop->groups[endpoint->colls[i].group]);
}

static enum pp_progress test(struct pp_endpoint *endpoint, uint32_t index, uint32_t seq)
{
	struct pp_loop *loop = endpoint->loop;
	struct channel *channel = &loop->channels[index];
	bool sender = loop->program->channels[index].source == endpoint->rank;
	uint64_t number = (sender ? channel->send.base : channel->recv.base) + seq;
	if (atomic_load_explicit(&channel->done, memory_order_acquire) > number)
		return PP_DONE;
	poll(endpoint);
	if (atomic_load_explicit(&channel->done, memory_order_acquire) > number)
		return PP_DONE;
	return atomic_load(&loop->failed) ? PP_FAILED : PP_PENDING;
}

static enum pp_progress test_coll(struct pp_endpoint *endpoint, uint32_t id)
{
	struct pp_loop *loop = endpoint->loop;
	uint32_t at = 0;
	while (at < endpoint->coll_count && endpoint->colls[at].id != id)
		at++;
	if (at == endpoint->coll_count)
		return PP_DONE;
	const struct pending_coll *pending = &endpoint->colls[at];
	if (pending->number != UINT64_MAX) {
		poll(endpoint);
		if (atomic_load_explicit(&loop->groups[pending->group].done, memory_order_acquire) <= pending->number)
			return atomic_load(&loop->failed) ? PP_FAILED : PP_PENDING;
	}
	endpoint->colls[at] = endpoint->colls[--endpoint->coll_count];
	return PP_DONE;
}

/* ---- exchange -------------------------------------------------------------------------------- */

static void exchange(struct pp_endpoint *endpoint, const void *mine, void *all, size_t bytes)
{
	if (atomic_load(&endpoint->loop->failed))
		return;
	if (bytes > endpoint->mine_capacity) {
		void *grown = realloc(endpoint->mine, bytes);
		if (!grown) {
			give_up(endpoint, "out of memory");
			return;
		}
		endpoint->mine = grown;
		endpoint->mine_capacity = bytes;
	}
	if (bytes)
		memcpy(endpoint->mine, mine, bytes);
	endpoint->all = all;
	endpoint->bytes = bytes;
	endpoint->copied = false;
	endpoint->exchanges++;
	atomic_fetch_add(&endpoint->loop->arrived, 1);
}

/* Wait for all to arrive, copy, wait for all to have copied: then `mine` is the caller's again. */
static enum pp_progress test_exchange(struct pp_endpoint *endpoint)
{
	struct pp_loop *loop = endpoint->loop;
	uint64_t wanted = endpoint->exchanges * loop->program->ranks;
	if (atomic_load(&loop->failed))
		return PP_FAILED;
	poll(endpoint);
	if (!endpoint->copied && atomic_load(&loop->arrived) >= wanted) {
		for (uint32_t rank = 0; rank < loop->program->ranks && endpoint->bytes; rank++)
			memcpy((unsigned char *)endpoint->all + rank * endpoint->bytes, loop->endpoints[rank].mine,
			       endpoint->bytes);
		endpoint->copied = true;
		atomic_fetch_add(&loop->left, 1);
	}
	if (endpoint->copied && atomic_load(&loop->left) >= wanted)
		return PP_DONE;
	return atomic_load(&loop->failed) ? PP_FAILED : PP_PENDING;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool make_queue(struct queue *queue, uint32_t capacity)
{
	queue->capacity = capacity ? capacity : 1;
	queue->posts = calloc(queue->capacity, sizeof *queue->posts);
	return queue->posts != NULL;
}

static bool make_rank(struct pp_loop *loop, uint32_t rank)
{
	const struct pp_program *program = loop->program;
	struct pp_endpoint *endpoint = &loop->endpoints[rank];
	struct pp_post_counts counts;
	if (!pp_post_counts_make(program, rank, &counts))
		return false;
	*endpoint = (struct pp_endpoint){.loop = loop, .rank = rank};
	endpoint->channels = calloc((size_t)program->channel_count + 1, sizeof *endpoint->channels);
	endpoint->colls = calloc((size_t)counts.colls + 1, sizeof *endpoint->colls);
	bool ok = endpoint->channels && endpoint->colls;
	for (uint32_t i = 0; ok && i < program->channel_count; i++) {
		if (program->channels[i].source == rank)
			ok = make_queue(&loop->channels[i].send, counts.channel[i]);
		else if (program->channels[i].destination == rank)
			ok = make_queue(&loop->channels[i].recv, counts.channel[i]);
		else
			continue;
		endpoint->channels[endpoint->channel_count++] = i;
	}
	for (uint32_t i = 0; ok && i < program->group_count; i++) {
		uint32_t position = is_solo(&program->groups[i])
		                        ? PP_NULL
		                        : pp_grid_position(&program->groups[i], (struct pp_coord){.pp = rank});
		if (position != PP_NULL)
			ok = make_queue(&loop->groups[i].members[position], counts.group[i]);
	}
	pp_post_counts_free(&counts);
	return ok;
}

static bool make_tables(struct pp_loop *loop)
{
	const struct pp_program *program = loop->program;
	loop->channels = calloc((size_t)program->channel_count + 1, sizeof *loop->channels);
	loop->groups = calloc((size_t)program->group_count + 1, sizeof *loop->groups);
	loop->endpoints = calloc(program->ranks, sizeof *loop->endpoints);
	if (!loop->channels || !loop->groups || !loop->endpoints)
		return false;
	for (uint32_t i = 0; i < program->group_count; i++) {
		if (is_solo(&program->groups[i]))
			continue;
		loop->groups[i].member_count = program->groups[i].member_count;
		loop->groups[i].members = calloc((size_t)program->groups[i].member_count + 1, sizeof *loop->groups[i].members);
		if (!loop->groups[i].members)
			return false;
	}
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		if (!make_rank(loop, rank))
			return false;
	return true;
}

struct pp_loop *pp_loop_create(const struct pp_program *program, const struct pp_transport_options *options,
                               struct pp_status *status)
{
	struct pp_loop *loop = calloc(1, sizeof *loop);
	if (loop) {
		loop->program = program;
		loop->options = *options;
		if (make_tables(loop))
			return loop;
		pp_loop_destroy(loop);
	}
	pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the channels of %" PRIu32 " ranks", program->ranks);
	return NULL;
}

void pp_loop_destroy(struct pp_loop *loop)
{
	const struct pp_program *program = loop->program;
	for (uint32_t i = 0; loop->channels && i < program->channel_count; i++) {
		free(loop->channels[i].send.posts);
		free(loop->channels[i].recv.posts);
	}
	for (uint32_t i = 0; loop->groups && i < program->group_count; i++) {
		for (uint32_t k = 0; loop->groups[i].members && k < loop->groups[i].member_count; k++)
			free(loop->groups[i].members[k].posts);
		free(loop->groups[i].members);
	}
	for (uint32_t rank = 0; loop->endpoints && rank < program->ranks; rank++) {
		free(loop->endpoints[rank].channels);
		free(loop->endpoints[rank].colls);
		free(loop->endpoints[rank].mine);
	}
	free(loop->channels);
	free(loop->groups);
	free(loop->endpoints);
	free(loop);
}

struct pp_endpoint *pp_loop_endpoint(struct pp_loop *loop, uint32_t rank)
{
	return &loop->endpoints[rank];
}

const struct pp_transport_ops pp_transport_loop = {
    .name = "loop",
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
