/* The loop transport: ranks are threads, a transfer is one memcpy made by whichever end first sees both posts.
 *
 * Every counter below only grows; entry k of a queue of capacity n lives at k mod n, and n is the number of posts of a
 * step, so an entry is reused only after its step has ended. A queue's entries are written by their owner before its
 * counter is raised (release) and read by the mover after it (acquire); the mover holds the queue's flag.
 *
 * Requires: a verified program, one thread per endpoint. Ensures: rendezvous, FIFO, member order sums. */
#include "transport_loop.h"

#include "collective_loop.h"

#include "executor/pending_colls.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILURE_TEXT = 512 };

struct post {
	const struct pp_instr *instr;
	const void *from;
	void *to;
};

/* Posts of one end of a channel. */
struct queue {
	struct post *posts;
	uint32_t capacity;
	atomic_uint_least64_t posted;
	uint64_t base;   /* owner only: posts before the present step */
	uint64_t marked; /* owner only: posts that the mover has been told of */
};

struct channel {
	struct queue send, recv;
	atomic_uint_least64_t done;
	atomic_flag moving;
	struct pp_lane *lane; /* of a mover: made by the sender */
};

/* Membership of a rank in the instance of a group that its coordinate belongs to; no team: it is no member. The member
 * at position 0 owns the team. */
struct seat {
	struct pp_loop_team *team;
	uint32_t position;
	uint64_t marked; /* posts that the mover has been told of */
};

struct pp_endpoint {
	struct pp_loop *loop;
	uint32_t world;
	struct pp_coord coord;
	struct channel *channels; /* of the coordinate: [channel_count] */
	uint32_t *mine;           /* those that end here */
	uint32_t mine_count;
	struct seat *seats;            /* [group_count], then that of bodies */
	struct pp_pending_colls colls; /* line: the group */
	void *given; /* to the present exchange: a copy, so that a rank that gives up takes nothing away */
	size_t given_capacity;
	void *all;
	size_t bytes;
	uint64_t exchanges; /* begun */
	bool copied;
	struct pp_device *device; /* bound to, where there is a mover */
};

struct pp_loop {
	const struct pp_program *program;
	struct pp_transport_options options;
	const struct pp_loop_mover *mover; /* NULL: memcpy */
	uint32_t world;                    /* ranks */
	struct channel *channels;          /* [tp * dp][channel_count] */
	struct pp_endpoint *endpoints;
	atomic_uint_least64_t arrived, left; /* exchanges, counted over all ranks */
	atomic_int failed;                   /* 0 no, 1 its text is being written, 2 yes */
	char failure[FAILURE_TEXT];
	uint32_t gave_up;             /* the rank whose failure it is and which reports it; PP_NULL: all do */
	char told[PP_GRID_NAME + 16]; /* what the others say */
};

/* ---- failure --------------------------------------------------------------------------------- */

/* `rank`: which gives up, or PP_NULL. */
static void set_failure(struct pp_loop *loop, uint32_t rank, const char *text)
{
	int expected = 0;
	if (!atomic_compare_exchange_strong(&loop->failed, &expected, 1))
		return;
	snprintf(loop->failure, sizeof loop->failure, "%s", text);
	char name[PP_GRID_NAME];
	snprintf(loop->told, sizeof loop->told, "%s gave up", pp_grid_name(loop->program, rank, name));
	loop->gave_up = rank;
	atomic_store(&loop->failed, 2);
}

static void give_up(struct pp_endpoint *endpoint, const char *why)
{
	set_failure(endpoint->loop, endpoint->world, why);
}

static bool broken(struct pp_endpoint *endpoint)
{
	return atomic_load(&endpoint->loop->failed) != 0;
}

static const char *failure(const struct pp_endpoint *endpoint)
{
	const struct pp_loop *loop = endpoint->loop;
	while (atomic_load(&loop->failed) == 1) /* its text is being written */
		sched_yield();
	return loop->gave_up == PP_NULL || loop->gave_up == endpoint->world ? loop->failure : loop->told;
}

/* ---- a mover's marks ------------------------------------------------------------------------- */

/* What this rank posts as `number` comes after all that its device has been given, unless that was said before. */
static void mark_to(struct pp_endpoint *endpoint, struct pp_lane *lane, uint32_t end, uint64_t *marked, uint64_t number)
{
	struct pp_status status;
	if (*marked > number)
		return;
	*marked = number + 1;
	if (endpoint->device && !endpoint->loop->mover->mark(lane, endpoint->device, end, number, &status))
		set_failure(endpoint->loop, PP_NULL, status.text);
}

/* Nothing is left to do, but for what this rank's device is given from here on, which comes after. */
static enum pp_progress follow(struct pp_endpoint *endpoint, struct pp_lane *lane, uint64_t number)
{
	struct pp_status status;
	if (!endpoint->device || endpoint->loop->mover->follow(lane, endpoint->device, number, &status))
		return PP_DONE;
	set_failure(endpoint->loop, PP_NULL, status.text);
	return PP_FAILED;
}

/* ---- channels -------------------------------------------------------------------------------- */

enum end { SENDER, RECEIVER };

static void push(struct pp_endpoint *endpoint, struct channel *channel, enum end end, const struct post *post)
{
	struct queue *queue = end == SENDER ? &channel->send : &channel->recv;
	uint64_t number = atomic_load_explicit(&queue->posted, memory_order_relaxed);
	if (post->instr->a[1] == 0)
		queue->base = number;
	mark_to(endpoint, channel->lane, end, &queue->marked, number);
	queue->posts[number % queue->capacity] = *post;
	atomic_store_explicit(&queue->posted, number + 1, memory_order_release);
}

static bool move(struct pp_loop *loop, const struct channel *channel, uint64_t number, const struct post *send,
                 const struct post *recv, uint64_t bytes)
{
	if (!loop->mover) {
		memcpy(recv->to, send->from, bytes);
		return true;
	}
	struct pp_status status;
	if (loop->mover->copy(channel->lane, number, recv->to, send->from, bytes, &status))
		return true;
	set_failure(loop, PP_NULL, status.text);
	return false;
}

static bool transfer(struct pp_loop *loop, const struct channel *channel, uint64_t number)
{
	const struct post *send = &channel->send.posts[number % channel->send.capacity],
	                  *recv = &channel->recv.posts[number % channel->recv.capacity];
	struct pp_identity sent = pp_identity_of(loop->program, send->instr),
	                   expected = pp_identity_of(loop->program, recv->instr);
	bool equal = loop->options.check_identity ? pp_identity_equal(&sent, &expected) : sent.bytes == expected.bytes;
	if (!equal) {
		char text[FAILURE_TEXT];
		pp_identity_explain(&sent, &expected, text, sizeof text);
		set_failure(loop, PP_NULL, text);
		return false;
	}
	return move(loop, channel, number, send, recv, sent.bytes);
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
		if (!transfer(loop, channel, done))
			break;
		atomic_store_explicit(&channel->done, ++done, memory_order_release);
	}
	atomic_flag_clear(&channel->moving);
}

static void post_send(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from)
{
	struct channel *channel = &endpoint->channels[instr->a[0]];
	push(endpoint, channel, SENDER, &(struct post){instr, from, NULL});
	move_channel(endpoint->loop, channel);
}

static void post_recv(struct pp_endpoint *endpoint, const struct pp_instr *instr, void *to)
{
	struct channel *channel = &endpoint->channels[instr->a[0]];
	push(endpoint, channel, RECEIVER, &(struct post){instr, NULL, to});
	move_channel(endpoint->loop, channel);
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* `group`: group_count for that of bodies. */
static void move_team(struct pp_endpoint *endpoint, uint32_t group)
{
	struct pp_loop *loop = endpoint->loop;
	char why[FAILURE_TEXT / 2], text[FAILURE_TEXT];
	if (pp_loop_team_move(endpoint->seats[group].team, why, sizeof why))
		return;
	if (group < loop->program->group_count)
		snprintf(text, sizeof text, "members of group g%" PRIu32 " %s", group, why);
	else
		snprintf(text, sizeof text, "members of a tensor-parallel group %s", why);
	set_failure(loop, PP_NULL, text);
}

static uint64_t post_part(struct pp_endpoint *endpoint, uint32_t group, const struct pp_part *part)
{
	struct seat *seat = &endpoint->seats[group];
	mark_to(endpoint, seat->team->lane, seat->position, &seat->marked, pp_loop_team_next(seat->team, seat->position));
	uint64_t number = pp_loop_team_post(seat->team, seat->position, part);
	move_team(endpoint, group);
	return number;
}

static void post_coll(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to)
{
	uint32_t group = instr->a[1];
	struct pp_part part = pp_part_of(instr, from, to, endpoint->seats[group].position);
	pp_pending_colls_add(
	    &endpoint->colls,
	    (struct pp_pending_coll){.id = instr->a[0], .line = group, .number = post_part(endpoint, group, &part)});
}

static uint32_t post_body(struct pp_endpoint *endpoint, enum pp_collective kind, enum pp_dtype dtype, const void *from,
                          void *to, uint64_t count)
{
	struct pp_part part = {
	    .from = from, .to = to, .count = count, .kind = (uint8_t)kind, .dtype = (uint8_t)dtype, .id = PP_NULL};
	return (uint32_t)post_part(endpoint, endpoint->loop->program->group_count, &part);
}

/* ---- polling --------------------------------------------------------------------------------- */

static void poll(void *context)
{
	struct pp_endpoint *endpoint = context;
	struct pp_loop *loop = endpoint->loop;
	for (uint32_t i = 0; i < endpoint->mine_count; i++)
		move_channel(loop, &endpoint->channels[endpoint->mine[i]]);
	for (uint32_t i = 0; i < endpoint->colls.count; i++)
		move_team(endpoint, endpoint->colls.items[i].line);
	move_team(endpoint, loop->program->group_count);
}

static enum pp_progress pending(const struct pp_endpoint *endpoint)
{
	return atomic_load(&endpoint->loop->failed) ? PP_FAILED : PP_PENDING;
}

static struct queue *own_queue(const struct pp_endpoint *endpoint, uint32_t index)
{
	struct channel *channel = &endpoint->channels[index];
	bool sender = endpoint->loop->program->channels[index].source == endpoint->coord.pp;
	return sender ? &channel->send : &channel->recv;
}

/* Has this number of a channel been moved? */
static enum pp_progress look(struct pp_endpoint *endpoint, const struct channel *channel, uint64_t number)
{
	if (atomic_load_explicit(&channel->done, memory_order_acquire) > number)
		return PP_DONE;
	poll(endpoint);
	return atomic_load_explicit(&channel->done, memory_order_acquire) > number ? PP_DONE : pending(endpoint);
}

static enum pp_progress look_at_coll(struct pp_endpoint *endpoint, const struct pp_pending_coll *coll)
{
	const struct pp_loop_team *team = endpoint->seats[coll->line].team;
	if (pp_loop_team_is_done(team, coll->number))
		return PP_DONE;
	poll(endpoint);
	return pp_loop_team_is_done(team, coll->number) ? PP_DONE : pending(endpoint);
}

static enum pp_progress test(struct pp_endpoint *endpoint, uint32_t index, uint32_t seq)
{
	const struct channel *channel = &endpoint->channels[index];
	uint64_t number = own_queue(endpoint, index)->base + seq;
	enum pp_progress progress = look(endpoint, channel, number);
	return progress == PP_DONE ? follow(endpoint, channel->lane, number) : progress;
}

static enum pp_progress test_coll(struct pp_endpoint *endpoint, uint32_t id)
{
	const struct pp_pending_coll *coll = pp_pending_colls_find(&endpoint->colls, id);
	enum pp_progress progress = coll ? look_at_coll(endpoint, coll) : PP_DONE;
	if (!coll || progress != PP_DONE)
		return progress;
	progress = follow(endpoint, endpoint->seats[coll->line].team->lane, coll->number);
	pp_pending_colls_take(&endpoint->colls, coll);
	return progress;
}

static enum pp_progress probe(struct pp_endpoint *endpoint, const struct pp_instr *instr)
{
	if (instr->op != PP_OP_COLL)
		return look(endpoint, &endpoint->channels[instr->a[0]], own_queue(endpoint, instr->a[0])->base + instr->a[1]);
	const struct pp_pending_coll *coll = pp_pending_colls_find(&endpoint->colls, instr->a[0]);
	return coll ? look_at_coll(endpoint, coll) : PP_DONE;
}

static void mark(struct pp_endpoint *endpoint, const struct pp_instr *instr)
{
	if (instr->op == PP_OP_COLL) {
		struct seat *seat = &endpoint->seats[instr->a[1]];
		mark_to(endpoint, seat->team->lane, seat->position, &seat->marked, seat->marked);
		return;
	}
	struct channel *channel = &endpoint->channels[instr->a[0]];
	struct queue *queue = own_queue(endpoint, instr->a[0]);
	mark_to(endpoint, channel->lane, queue == &channel->send ? SENDER : RECEIVER, &queue->marked, queue->marked);
}

static enum pp_progress test_body(struct pp_endpoint *endpoint, uint32_t ticket)
{
	const struct pp_loop_team *team = endpoint->seats[endpoint->loop->program->group_count].team;
	for (int i = 0; i < 2; i++) {
		uint64_t done = atomic_load_explicit(&team->done, memory_order_acquire);
		uint32_t ahead = (uint32_t)done - ticket; /* far fewer than 2^31 are outstanding */
		if ((int32_t)ahead > 0)
			return follow(endpoint, team->lane, done - ahead);
		if (i == 0)
			poll(endpoint);
	}
	return atomic_load(&endpoint->loop->failed) ? PP_FAILED : PP_PENDING;
}

/* ---- exchange -------------------------------------------------------------------------------- */

static void exchange(struct pp_endpoint *endpoint, const void *mine, void *all, size_t bytes)
{
	if (atomic_load(&endpoint->loop->failed))
		return;
	if (bytes > endpoint->given_capacity) {
		void *grown = realloc(endpoint->given, bytes);
		if (!grown) {
			give_up(endpoint, "out of memory");
			return;
		}
		endpoint->given = grown;
		endpoint->given_capacity = bytes;
	}
	if (bytes)
		memcpy(endpoint->given, mine, bytes);
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
	uint64_t wanted = endpoint->exchanges * loop->world;
	if (atomic_load(&loop->failed))
		return PP_FAILED;
	poll(endpoint);
	if (!endpoint->copied && atomic_load(&loop->arrived) >= wanted) {
		for (uint32_t rank = 0; rank < loop->world && endpoint->bytes; rank++)
			memcpy((unsigned char *)endpoint->all + rank * endpoint->bytes, loop->endpoints[rank].given,
			       endpoint->bytes);
		endpoint->copied = true;
		atomic_fetch_add(&loop->left, 1);
	}
	if (endpoint->copied && atomic_load(&loop->left) >= wanted)
		return PP_DONE;
	return atomic_load(&loop->failed) ? PP_FAILED : PP_PENDING;
}

/* ---- lanes of a mover ------------------------------------------------------------------------ */

/* The sender of a channel and the first member of a group make the lane, before any rank posts. */
static bool bind(struct pp_endpoint *endpoint, struct pp_device *device, struct pp_status *status)
{
	struct pp_loop *loop = endpoint->loop;
	const struct pp_loop_mover *mover = loop->mover;
	endpoint->device = device;
	for (uint32_t i = 0; i < endpoint->mine_count; i++) {
		struct channel *channel = &endpoint->channels[endpoint->mine[i]];
		if (loop->program->channels[endpoint->mine[i]].source == endpoint->coord.pp &&
		    !(channel->lane = mover->open(device, 2, channel->send.capacity, status)))
			return false;
	}
	for (uint32_t i = 0; i <= loop->program->group_count; i++) {
		struct pp_loop_team *team = endpoint->seats[i].team;
		if (!team || endpoint->seats[i].position != 0)
			continue;
		team->mover = mover;
		if (!(team->lane = mover->open(device, team->member_count, team->members[0].capacity, status)))
			return false;
	}
	return true;
}

void pp_loop_move_by(struct pp_loop *loop, const struct pp_loop_mover *mover)
{
	loop->mover = mover;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool make_queue(struct queue *queue, uint32_t capacity)
{
	queue->capacity = capacity ? capacity : 1;
	queue->posts = calloc(queue->capacity, sizeof *queue->posts);
	return queue->posts != NULL;
}

/* The team of a group that the rank belongs to: made by the member at position 0, which comes first. */
static bool take_seat(struct pp_endpoint *endpoint, const struct pp_group *group, struct seat *seat, uint32_t capacity)
{
	struct pp_loop *loop = endpoint->loop;
	uint32_t position = pp_grid_position(group, endpoint->coord);
	if (position == PP_NULL)
		return true;
	seat->position = position;
	if (position == 0) {
		seat->team = calloc(1, sizeof *seat->team);
		if (!seat->team || !pp_loop_team_make(seat->team, pp_grid_members(loop->program, group)))
			return false;
	} else {
		uint32_t owner = pp_grid_member(loop->program, group, endpoint->coord, 0);
		seat->team = loop->endpoints[owner].seats[seat - endpoint->seats].team;
	}
	return pp_loop_team_join(seat->team, position, capacity);
}

static bool make_channels(struct pp_endpoint *endpoint, const struct pp_post_counts *counts)
{
	const struct pp_program *program = endpoint->loop->program;
	for (uint32_t i = 0; i < program->channel_count; i++) {
		bool sends = program->channels[i].source == endpoint->coord.pp;
		if (!sends && program->channels[i].destination != endpoint->coord.pp)
			continue;
		struct channel *channel = &endpoint->channels[i];
		if (!make_queue(sends ? &channel->send : &channel->recv, counts->channel[i].posts))
			return false;
		endpoint->mine[endpoint->mine_count++] = i;
	}
	return true;
}

static bool make_rank(struct pp_loop *loop, uint32_t world)
{
	static const struct pp_group of_bodies = {.axis = PP_AXIS_TP};
	const struct pp_program *program = loop->program;
	struct pp_endpoint *endpoint = &loop->endpoints[world];
	struct pp_post_counts counts;
	*endpoint = (struct pp_endpoint){.loop = loop, .world = world, .coord = pp_grid_coord(program, world)};
	if (!pp_post_counts_make(program, endpoint->coord.pp, &counts))
		return false;
	uint64_t slice = (uint64_t)endpoint->coord.dp * pp_grid_extent(program, PP_AXIS_TP) + endpoint->coord.tp;
	endpoint->channels = loop->channels + slice * program->channel_count;
	endpoint->mine = calloc((size_t)program->channel_count + 1, sizeof *endpoint->mine);
	endpoint->seats = calloc((size_t)program->group_count + 1, sizeof *endpoint->seats);
	bool ok = endpoint->mine && endpoint->seats && pp_pending_colls_make(&endpoint->colls, counts.colls) &&
	          make_channels(endpoint, &counts);
	for (uint32_t i = 0; ok && i < program->group_count; i++)
		ok = take_seat(endpoint, &program->groups[i], &endpoint->seats[i], counts.group[i].posts);
	ok = ok && take_seat(endpoint, &of_bodies, &endpoint->seats[program->group_count], counts.body.posts);
	pp_post_counts_free(&counts);
	return ok;
}

static bool make_tables(struct pp_loop *loop)
{
	const struct pp_program *program = loop->program;
	size_t slices = (size_t)pp_grid_extent(program, PP_AXIS_TP) * pp_grid_extent(program, PP_AXIS_DP);
	loop->channels = calloc(slices * program->channel_count + 1, sizeof *loop->channels);
	loop->endpoints = calloc(loop->world, sizeof *loop->endpoints);
	if (!loop->channels || !loop->endpoints)
		return false;
	/* Along every axis the coordinate 0 has the lowest world rank of its group, and members ascend. */
	for (uint32_t world = 0; world < loop->world; world++)
		if (!make_rank(loop, world))
			return false;
	return true;
}

struct pp_loop *pp_loop_create(const struct pp_program *program, const struct pp_transport_options *options,
                               struct pp_status *status)
{
	struct pp_loop *loop = calloc(1, sizeof *loop);
	uint32_t world = (uint32_t)pp_grid_world(program);
	if (loop) {
		loop->program = program;
		loop->options = *options;
		loop->world = world;
		if (make_tables(loop))
			return loop;
		pp_loop_destroy(loop);
	}
	pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the channels of %" PRIu32 " ranks", world);
	return NULL;
}

static void free_rank(struct pp_endpoint *endpoint)
{
	const struct pp_program *program = endpoint->loop->program;
	for (uint32_t i = 0; endpoint->mine && i < endpoint->mine_count; i++) {
		struct channel *channel = &endpoint->channels[endpoint->mine[i]];
		bool sends = program->channels[endpoint->mine[i]].source == endpoint->coord.pp;
		free(sends ? channel->send.posts : channel->recv.posts);
		if (sends && channel->lane)
			endpoint->loop->mover->close(channel->lane);
	}
	for (uint32_t i = 0; endpoint->seats && i <= program->group_count; i++)
		if (endpoint->seats[i].team && endpoint->seats[i].position == 0) {
			if (endpoint->seats[i].team->lane)
				endpoint->loop->mover->close(endpoint->seats[i].team->lane);
			pp_loop_team_free(endpoint->seats[i].team);
			free(endpoint->seats[i].team);
		}
	free(endpoint->mine);
	free(endpoint->seats);
	pp_pending_colls_free(&endpoint->colls);
	free(endpoint->given);
}

void pp_loop_destroy(struct pp_loop *loop)
{
	for (uint32_t world = 0; loop->endpoints && world < loop->world; world++)
		if (loop->endpoints[world].loop)
			free_rank(&loop->endpoints[world]);
	free(loop->channels);
	free(loop->endpoints);
	free(loop);
}

struct pp_endpoint *pp_loop_endpoint(struct pp_loop *loop, uint32_t world)
{
	return &loop->endpoints[world];
}

const struct pp_transport_ops pp_transport_loop = {
    .name = "loop",
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

const struct pp_transport_ops pp_transport_loop_ordered = {
    .name = "loop",
    .stream_ordered = true,
    .captures_not = "its ranks are threads, and what two threads capture does not become one graph",
    .bind = bind,
    .broken = broken,
    .post_send = post_send,
    .post_recv = post_recv,
    .post_coll = post_coll,
    .post_body = post_body,
    .test = test,
    .test_coll = test_coll,
    .test_body = test_body,
    .mark = mark,
    .probe = probe,
    .poll = poll,
    .exchange = exchange,
    .test_exchange = test_exchange,
    .give_up = give_up,
    .failure = failure,
};
