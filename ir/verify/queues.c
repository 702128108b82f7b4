/* A rendezvous run under a queue layout, and the report of where it gets stuck.
 *
 * requires: pp_prove_posts and pp_prove_match.
 * ensures:  pp_prove_layout is true iff every rank reaches the end of its stream; else V4 names all stuck ranks and
 *           the shortest cycle of the wait-for graph over ranks and elements. */
#include "state.h"

#include "ir/queues.h"

#include <inttypes.h>

const char *const pp_layout_queue[PP_LAYOUT_COUNT] = {"channel",       "edge", "direction of a rank",
                                                      "pair of ranks", "rank", "rank, with compute"};

/* ---- a run with queues ----------------------------------------------------------------------- */

/* What starts in order. */
struct starts {
	uint32_t **posts;         /* [ranks]: the posts of its stream so far */
	uint32_t *posted, *begun; /* [ranks]: how many; how many of them have started */
	bool *has;                /* per post: it has started */
};

/* Posts are numbered 2 * message + end; those of collective j start at `joint_posts[j]`. */
struct queued {
	struct pp_proof *proof;
	enum pp_layout layout;
	struct pp_queues queues;
	struct starts *starts;                             /* NULL: in any order */
	uint32_t *head, *tail;                             /* per queue: posts */
	uint32_t *next;                                    /* per post */
	uint32_t *joint_posts, *joint_arrived, *post_rank; /* post_rank: of collectives' posts, from 2 * messages on */
	uint8_t *state;                                    /* per element: bit per end posted (messages), DONE */
	uint32_t *cursor, *waiting;                        /* per rank */
	uint32_t *work, work_count;
	bool *in_work;
	uint32_t *check; /* elements that may have become ready */
	size_t check_count, check_capacity;
};

enum { DONE = 4 };

/* The collective that a post belongs to: the last one whose posts start at or before it. */
static uint32_t post_joint(const struct queued *run, uint32_t post)
{
	uint32_t low = 0, high = run->proof->joint_count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (run->joint_posts[middle] <= post)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static uint32_t post_element(const struct queued *run, uint32_t post)
{
	uint32_t messages = run->proof->message_count;
	return post < 2 * messages ? post >> 1 : messages + post_joint(run, post);
}

static uint32_t post_owner(const struct queued *run, uint32_t post)
{
	const struct pp_proof *proof = run->proof;
	if (post >= 2 * proof->message_count)
		return run->post_rank[post - 2 * proof->message_count];
	const struct pp_channel *channel = &proof->program->channels[proof->message_channel[post >> 1]];
	return post & 1 ? channel->destination : channel->source;
}

static uint32_t post_queue(const struct queued *run, uint32_t post)
{
	const struct pp_proof *proof = run->proof;
	if (post < 2 * proof->message_count)
		return run->queues.channel[post & 1][proof->message_channel[post >> 1]];
	return pp_queues_collective(&run->queues, proof->joints[post_joint(run, post)].group, post_owner(run, post));
}

static void push_check(struct queued *run, uint32_t element)
{
	*PP_PUSH(run->proof->arena, &run->check, &run->check_count, &run->check_capacity, uint32_t) = element;
}

static void wake(struct queued *run, uint32_t rank, uint32_t element)
{
	if (run->waiting[rank] != element || run->in_work[rank])
		return;
	run->in_work[rank] = true;
	run->work[run->work_count++] = rank;
}

static bool heads(const struct queued *run, uint32_t post)
{
	uint32_t queue = post_queue(run, post);
	return queue == PP_NULL || run->head[queue] == post;
}

/* May it end as far as this rank goes? */
static bool has_started(const struct queued *run, uint32_t post)
{
	return run->starts ? run->starts->has[post] : heads(run, post);
}

/* Start what can start, in order. */
static void start_posts(struct queued *run, uint32_t rank)
{
	struct starts *starts = run->starts;
	while (starts->begun[rank] < starts->posted[rank]) {
		uint32_t post = starts->posts[rank][starts->begun[rank]];
		if (!heads(run, post))
			return;
		starts->has[post] = true;
		starts->begun[rank]++;
		push_check(run, post_element(run, post));
	}
}

static void leave_queue(struct queued *run, uint32_t post)
{
	uint32_t queue = post_queue(run, post);
	if (queue == PP_NULL)
		return;
	run->head[queue] = run->next[post];
	if (run->starts)
		start_posts(run, post_owner(run, post)); /* a queue is one rank's */
	else if (run->head[queue] != PP_NULL)
		push_check(run, post_element(run, run->head[queue]));
}

static void try_message(struct queued *run, uint32_t element)
{
	if (run->state[element] != 3 || !has_started(run, 2 * element) || !has_started(run, 2 * element + 1))
		return;
	const struct pp_channel *channel = &run->proof->program->channels[run->proof->message_channel[element]];
	run->state[element] |= DONE;
	leave_queue(run, 2 * element);
	leave_queue(run, 2 * element + 1);
	wake(run, channel->source, element);
	wake(run, channel->destination, element);
}

static void try_collective(struct queued *run, uint32_t element)
{
	const struct pp_proof *proof = run->proof;
	uint32_t joint = element - proof->message_count, members = proof->joints[joint].members;
	if (run->state[element] & DONE || run->joint_arrived[joint] < members)
		return;
	for (uint32_t i = 0; i < members; i++)
		if (!has_started(run, run->joint_posts[joint] + i))
			return;
	run->state[element] |= DONE;
	for (uint32_t i = 0; i < members; i++) {
		uint32_t post = run->joint_posts[joint] + i;
		leave_queue(run, post);
		wake(run, run->post_rank[post - 2 * proof->message_count], element);
	}
}

static void enqueue(struct queued *run, uint32_t rank, uint32_t post)
{
	uint32_t queue = post_queue(run, post);
	run->next[post] = PP_NULL;
	if (queue != PP_NULL) {
		if (run->head[queue] == PP_NULL)
			run->head[queue] = post;
		else
			run->next[run->tail[queue]] = post;
		run->tail[queue] = post;
	}
	if (!run->starts)
		return;
	run->starts->posts[rank][run->starts->posted[rank]++] = post;
	start_posts(run, rank);
}

static void post_event(struct queued *run, uint32_t rank, uint32_t element)
{
	const struct pp_proof *proof = run->proof;
	if (element < proof->message_count) {
		int end = pp_proof_end(proof, rank, proof->message_channel[element]);
		run->state[element] |= (uint8_t)(1 << end);
		enqueue(run, rank, 2 * element + (uint32_t)end);
	} else {
		uint32_t joint = element - proof->message_count;
		uint32_t post = run->joint_posts[joint] + run->joint_arrived[joint]++;
		run->post_rank[post - 2 * proof->message_count] = rank;
		enqueue(run, rank, post);
	}
	push_check(run, element);
	while (run->check_count) {
		uint32_t ready = run->check[--run->check_count];
		if (ready < proof->message_count)
			try_message(run, ready);
		else
			try_collective(run, ready);
	}
}

static void advance(struct queued *run, uint32_t rank)
{
	const struct pp_rank_proof *stream = &run->proof->rank[rank];
	if (run->waiting[rank] != PP_NULL) {
		if (!(run->state[run->waiting[rank]] & DONE))
			return;
		run->waiting[rank] = PP_NULL;
		run->cursor[rank]++;
	}
	while (run->cursor[rank] < stream->event_count) {
		const struct pp_comm_event *event = &stream->events[run->cursor[rank]];
		if (!event->wait)
			post_event(run, rank, event->element);
		bool waits = event->wait || run->layout == PP_LAYOUT_BLOCKING;
		if (waits && !(run->state[event->element] & DONE)) {
			run->waiting[rank] = event->element;
			return;
		}
		run->cursor[rank]++;
	}
}

static struct starts *starts_begin(const struct pp_proof *proof, uint32_t posts)
{
	struct pp_arena *arena = proof->arena;
	uint32_t ranks = proof->program->ranks;
	struct starts *starts = PP_NEW(arena, struct starts);
	*starts = (struct starts){.posts = PP_NEW_ARRAY(arena, uint32_t *, ranks),
	                          .posted = PP_NEW_ARRAY(arena, uint32_t, ranks),
	                          .begun = PP_NEW_ARRAY(arena, uint32_t, ranks),
	                          .has = PP_NEW_ARRAY(arena, bool, posts)};
	for (uint32_t r = 0; r < ranks; r++)
		starts->posts[r] = PP_NEW_ARRAY(arena, uint32_t, proof->rank[r].event_count / 2); /* each has a wait */
	return starts;
}

static struct queued queued_begin(struct pp_proof *proof, enum pp_layout layout, bool in_order)
{
	const struct pp_program *program = proof->program;
	struct pp_arena *arena = proof->arena;
	struct queued run = {.proof = proof, .layout = layout};
	run.queues = pp_queues_assign(arena, program, layout);
	run.head = PP_NEW_ARRAY(arena, uint32_t, run.queues.count);
	run.tail = PP_NEW_ARRAY(arena, uint32_t, run.queues.count);
	for (uint32_t q = 0; q < run.queues.count; q++)
		run.head[q] = PP_NULL;
	run.joint_posts = PP_NEW_ARRAY(arena, uint32_t, proof->joint_count);
	run.joint_arrived = PP_NEW_ARRAY(arena, uint32_t, proof->joint_count);
	uint32_t posts = 2 * proof->message_count;
	for (uint32_t j = 0; j < proof->joint_count; j++) {
		run.joint_posts[j] = posts;
		posts += proof->joints[j].members;
	}
	run.starts = in_order ? starts_begin(proof, posts) : NULL;
	run.next = PP_NEW_ARRAY(arena, uint32_t, posts);
	run.post_rank = PP_NEW_ARRAY(arena, uint32_t, posts - 2 * proof->message_count);
	run.state = PP_NEW_ARRAY(arena, uint8_t, (size_t)proof->message_count + proof->joint_count);
	run.cursor = PP_NEW_ARRAY(arena, uint32_t, program->ranks);
	run.waiting = PP_NEW_ARRAY(arena, uint32_t, program->ranks);
	run.work = PP_NEW_ARRAY(arena, uint32_t, program->ranks);
	run.in_work = PP_NEW_ARRAY(arena, bool, program->ranks);
	for (uint32_t r = program->ranks; r-- > 0;) {
		run.waiting[r] = PP_NULL;
		run.work[run.work_count++] = r;
		run.in_work[r] = true;
	}
	return run;
}

/* ---- the wait-for graph of a stuck run ------------------------------------------------------- */

/* Nodes: ranks, then elements. A stuck rank waits for an element; an element waits for the ranks that have not posted
 * their end of it and for the elements that stand before it in a queue. */
struct graph {
	const struct queued *run;
	uint32_t ranks, nodes;
	uint32_t *next; /* successors of the node looked at last */
	size_t next_count, next_capacity;
	uint32_t *parent, *visit; /* of the breadth-first search; visit: number of the search */
	uint32_t search;
	uint32_t *queue;
	uint32_t *member_seen; /* per rank: element for which it is known to have posted, plus 1 */
	uint64_t budget;       /* edges that may still be looked at */
};

enum { SEARCH_BUDGET = 20000000, LISTED = 16 };

static void add_successor(struct graph *graph, uint32_t node)
{
	*PP_PUSH(graph->run->proof->arena, &graph->next, &graph->next_count, &graph->next_capacity, uint32_t) = node;
}

static void add_blocker(struct graph *graph, uint32_t post)
{
	uint32_t queue = post_queue(graph->run, post);
	if (queue != PP_NULL && graph->run->head[queue] != post)
		add_successor(graph, graph->ranks + post_element(graph->run, graph->run->head[queue]));
}

static void collective_successors(struct graph *graph, uint32_t joint)
{
	const struct queued *run = graph->run;
	const struct pp_proof *proof = run->proof;
	uint32_t element = proof->message_count + joint;
	for (uint32_t i = 0; i < run->joint_arrived[joint]; i++) {
		uint32_t post = run->joint_posts[joint] + i;
		graph->member_seen[post_owner(run, post)] = element + 1;
		add_blocker(graph, post);
	}
	const struct pp_group *group = &proof->program->groups[proof->joints[joint].group];
	if (run->joint_arrived[joint] == proof->joints[joint].members)
		return;
	for (uint32_t i = 0; i < group->member_count; i++)
		if (graph->member_seen[group->members[i]] != element + 1)
			add_successor(graph, group->members[i]);
}

static void successors(struct graph *graph, uint32_t node)
{
	const struct queued *run = graph->run;
	const struct pp_proof *proof = run->proof;
	graph->next_count = 0;
	if (node < graph->ranks) {
		if (run->waiting[node] != PP_NULL)
			add_successor(graph, graph->ranks + run->waiting[node]);
		return;
	}
	uint32_t element = node - graph->ranks;
	if (element >= proof->message_count) {
		collective_successors(graph, element - proof->message_count);
		return;
	}
	const struct pp_channel *channel = &proof->program->channels[proof->message_channel[element]];
	for (uint32_t end = 0; end < 2; end++) {
		if (run->state[element] >> end & 1)
			add_blocker(graph, 2 * element + end);
		else
			add_successor(graph, end ? channel->destination : channel->source);
	}
}

/* Length of the shortest cycle through `start` below `limit`, or `limit`; graph->parent leads back from
 * graph->queue's last node, which closes it. */
static uint32_t cycle_through(struct graph *graph, uint32_t start, uint32_t limit, uint32_t *last)
{
	uint32_t head = 0, tail = 0, level_end = 1, length = 1;
	graph->search++;
	graph->queue[tail++] = start;
	graph->visit[start] = graph->search;
	while (head < tail && length < limit) {
		uint32_t node = graph->queue[head++];
		successors(graph, node);
		for (size_t i = 0; i < graph->next_count && graph->budget; i++, graph->budget--) {
			uint32_t next = graph->next[i];
			if (next == start) {
				*last = node;
				return length;
			}
			if (graph->visit[next] == graph->search)
				continue;
			graph->visit[next] = graph->search;
			graph->parent[next] = node;
			graph->queue[tail++] = next;
		}
		if (head == level_end) {
			length++;
			level_end = tail;
		}
	}
	return limit;
}

static uint32_t keep_shorter(struct graph *graph, uint32_t start, uint32_t best, uint32_t **cycle)
{
	uint32_t last, length = cycle_through(graph, start, best, &last);
	if (length >= best)
		return best;
	*cycle = PP_NEW_ARRAY(graph->run->proof->arena, uint32_t, length);
	for (uint32_t i = length; i-- > 0; last = graph->parent[last])
		(*cycle)[i] = last;
	return length;
}

/* The shortest cycle, its nodes in waiting order; 0: none found. Ranks first; a cycle without any is one of queues that
 * stand before each other, and goes through their heads. */
static uint32_t shortest_cycle(struct graph *graph, uint32_t **cycle)
{
	const struct queued *run = graph->run;
	uint32_t best = PP_NULL;
	for (uint32_t node = 0; node < graph->ranks; node++)
		if (run->waiting[node] != PP_NULL)
			best = keep_shorter(graph, node, best, cycle);
	for (uint32_t queue = 0; best == PP_NULL && queue < run->queues.count; queue++)
		if (run->head[queue] != PP_NULL)
			best = keep_shorter(graph, graph->ranks + post_element(run, run->head[queue]), best, cycle);
	return best == PP_NULL ? 0 : best;
}

static struct graph graph_begin(const struct queued *run)
{
	const struct pp_proof *proof = run->proof;
	uint32_t ranks = proof->program->ranks, nodes = ranks + proof->message_count + proof->joint_count;
	return (struct graph){
	    .run = run,
	    .ranks = ranks,
	    .nodes = nodes,
	    .parent = PP_NEW_ARRAY(proof->arena, uint32_t, nodes),
	    .visit = PP_NEW_ARRAY(proof->arena, uint32_t, nodes),
	    .queue = PP_NEW_ARRAY(proof->arena, uint32_t, nodes),
	    .member_seen = PP_NEW_ARRAY(proof->arena, uint32_t, ranks),
	    .budget = SEARCH_BUDGET,
	};
}

/* ---- the report ------------------------------------------------------------------------------ */

/* The instruction of `rank` at which the element was posted. */
static uint32_t posted_at(const struct queued *run, uint32_t rank, uint32_t element)
{
	const struct pp_rank_proof *stream = &run->proof->rank[rank];
	for (uint32_t i = 0; i <= run->cursor[rank] && i < stream->event_count; i++)
		if (stream->events[i].element == element)
			return stream->events[i].instr;
	return stream->events[run->cursor[rank]].instr;
}

static uint32_t stuck_instr(const struct queued *run, uint32_t rank)
{
	return run->proof->rank[rank].events[run->cursor[rank]].instr;
}

/* "send act s0 m3": what the rank waits for, by its own end. */
static const char *awaited_text(const struct queued *run, uint32_t rank)
{
	return pp_proof_text(run->proof, rank, posted_at(run, rank, run->waiting[rank]));
}

/* The post of an element that stands at the head of a queue in which `behind` waits, and its rank; PP_NULL: none. */
static uint32_t post_ahead(const struct queued *run, uint32_t element, uint32_t behind)
{
	for (uint32_t end = 0; behind < run->proof->message_count && end < 2; end++) {
		uint32_t queue = run->state[behind] >> end & 1 ? post_queue(run, 2 * behind + end) : PP_NULL;
		if (queue != PP_NULL && run->head[queue] != PP_NULL && post_element(run, run->head[queue]) == element)
			return run->head[queue];
	}
	return PP_NULL;
}

/* An element that blocks another one in a queue: the rank whose post stands there. */
static const char *ahead_text(const struct queued *run, uint32_t element, uint32_t behind)
{
	const struct pp_proof *proof = run->proof;
	if (element >= proof->message_count) {
		const struct pp_joint *joint = &proof->joints[element - proof->message_count];
		return pp_proof_text(proof, joint->first_rank, joint->first_instr);
	}
	uint32_t post = post_ahead(run, element, behind);
	if (post == PP_NULL)
		post = 2 * element + (run->state[element] & 1 ? PP_SEND_END : PP_RECV_END);
	uint32_t rank = post_owner(run, post);
	return pp_arena_printf(proof->arena, "rank %" PRIu32 " has %s first in the queue", rank,
	                       pp_proof_text(proof, rank, proof->posts[post & 1][element]));
}

static const char *path_text(const struct queued *run, const uint32_t *cycle, uint32_t length)
{
	struct pp_arena *arena = run->proof->arena;
	uint32_t ranks = run->proof->program->ranks;
	const char *text = "";
	for (uint32_t i = 0; i < length && i < 2 * LISTED; i++) {
		const char *arrow = *text ? " <- " : "";
		uint32_t before = cycle[(i + length - 1) % length];
		if (cycle[i] < ranks)
			text = pp_arena_printf(arena, "%s%srank %" PRIu32 " waits %s", text, arrow, cycle[i],
			                       awaited_text(run, cycle[i]));
		else if (before >= ranks)
			text = pp_arena_printf(arena, "%s%s%s", text, arrow, ahead_text(run, cycle[i] - ranks, before - ranks));
	}
	text = pp_arena_printf(arena, "%s%s", text, length > 2 * LISTED ? " <- ..." : "");
	return cycle[0] < ranks ? pp_arena_printf(arena, "%s <- rank %" PRIu32, text, cycle[0])
	                        : pp_arena_printf(arena, "%s <- the first of these", text);
}

static const char *stuck_text(const struct queued *run, uint32_t *count)
{
	struct pp_arena *arena = run->proof->arena;
	const char *text = "";
	*count = 0;
	for (uint32_t r = 0; r < run->proof->program->ranks; r++) {
		if (run->waiting[r] == PP_NULL || ++*count > LISTED)
			continue;
		text = pp_arena_printf(arena, "%s%srank %" PRIu32 " %s", text, *text ? ", " : "", r, awaited_text(run, r));
	}
	return *count > LISTED ? pp_arena_printf(arena, "%s and %" PRIu32 " more", text, *count - LISTED) : text;
}

/* Where the posts stand that queues of a cycle without ranks have first. */
static void label_heads(const struct queued *run, struct pp_message *message, const uint32_t *cycle, uint32_t length,
                        uint32_t ranks)
{
	for (uint32_t i = 0; i < length && cycle[0] >= ranks && i < LISTED; i++) {
		uint32_t post = post_ahead(run, cycle[i] - ranks, cycle[(i + length - 1) % length] - ranks);
		if (post == PP_NULL)
			continue;
		uint32_t rank = post_owner(run, post);
		pp_proof_also(run->proof, message, rank, run->proof->posts[post & 1][post >> 1], "first in its queue");
	}
}

static void report_stuck(const struct queued *run)
{
	struct graph graph = graph_begin(run);
	uint32_t *cycle = NULL, length = shortest_cycle(&graph, &cycle), count;
	const char *stuck = stuck_text(run, &count);
	uint32_t at = 0;
	while (run->waiting[at] == PP_NULL)
		at++;
	if (length && cycle[0] < graph.ranks)
		at = cycle[0];
	struct pp_message *message = pp_proof_error(run->proof, "V4", at, stuck_instr(run, at),
	                                            "never ends: %" PRIu32 " ranks wait for ever (one queue per %s)", count,
	                                            pp_layout_queue[run->layout]);
	for (uint32_t i = 1; i < length && i < 2 * LISTED; i++)
		if (cycle[i] < graph.ranks)
			pp_proof_also(run->proof, message, cycle[i], stuck_instr(run, cycle[i]), "waits here");
	label_heads(run, message, cycle, length, graph.ranks);
	if (length)
		pp_note(message, "%s", path_text(run, cycle, length));
	pp_note(message, "stuck: %s", stuck);
	const struct pp_proof_words *words = run->proof->words;
	pp_help(message, "%s",
	        words ? words->unstick : "post the receive before the wait that its sender's progress depends on");
}

/* True: every rank has got to the end of its stream. */
static bool runs_through(struct queued *run)
{
	while (run->work_count) {
		uint32_t rank = run->work[--run->work_count];
		run->in_work[rank] = false;
		advance(run, rank);
	}
	for (uint32_t r = 0; r < run->proof->program->ranks; r++)
		if (run->cursor[r] < run->proof->rank[r].event_count)
			return false;
	return true;
}

bool pp_layout_ends(struct pp_proof *proof, enum pp_layout layout, bool in_order)
{
	struct queued run = queued_begin(proof, layout, in_order);
	return runs_through(&run);
}

bool pp_prove_layout(struct pp_proof *proof, enum pp_layout layout)
{
	struct queued run = queued_begin(proof, layout, false);
	if (runs_through(&run))
		return true;
	report_stuck(&run);
	return false;
}
