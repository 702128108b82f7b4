/* Watching over runs: who is to blame, the words of the report, limits, and the star against strangers. */
#include "support/sample_program.h"

#include "executor/control/report.h"
#include "executor/control/stall.h"
#include "executor/control/star_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const uint64_t second = 1000000000;

/* Three ranks, two microbatches: rank 2 is in its second forward, rank 1 waits for a gradient of rank 2, rank 0 for one
 * of rank 1. */
struct run {
	struct pp_arena *arena;
	struct pp_account accounts[3];
	struct pp_scene scene;
};

static struct run make_run(void)
{
	struct run run = {.arena = pp_arena_create(NULL)};
	static const struct pp_seen places[3] = {
	    {.step = 4, .index = 6, .posts = 4, .waited = 2000000000},
	    {.step = 4, .index = 10, .posts = 6, .waited = 2000000000},
	    {.step = 4, .index = 5, .posts = 2},
	};
	run.scene.program =
	    pp_sample_program(run.arena, &(struct pp_sample){.ranks = 3, .chunks = 1, .microbatches = 2, .out_count = 4});
	run.scene.world = 3;
	for (int i = 0; i < 3; i++)
		run.accounts[i] = (struct pp_account){.placed = true, .place = places[i]};
	return run;
}

static struct pp_verdict judge(struct run *run)
{
	struct pp_verdict verdict;
	run->scene.accounts = run->accounts;
	assert_true(pp_scene_judge(&run->scene, &verdict));
	return verdict;
}

/* The report, to be freed. */
static char *report(struct run *run, const char *occasion)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	run->scene.accounts = run->accounts;
	pp_report_print(&run->scene, occasion, out);
	fclose(out);
	return text;
}

static void check_report(struct run *run, const char *occasion, const char *wanted)
{
	char *text = report(run, occasion);
	assert_string_equal(text, wanted);
	free(text);
	pp_arena_destroy(run->arena);
}

static void check_last_line(struct run *run, const char *wanted)
{
	char *text = report(run, "");
	const char *last = strstr(text, "error[");
	assert_non_null(last);
	assert_string_equal(last, wanted);
	free(text);
	pp_arena_destroy(run->arena);
}

/* ---- blame ----------------------------------------------------------------------------------- */

static void the_rank_that_does_not_wait_is_late(void **state)
{
	(void)state;
	struct run run = make_run();
	for (int i = 0; i < 2; i++) {
		run.accounts[2].place.waited = (uint64_t)i * second; /* of the host for a device that hangs */
		struct pp_verdict verdict = judge(&run);
		assert_int_equal(verdict.blame, PP_BLAME_LATE);
		assert_int_equal(verdict.rank, 2);
	}
	check_report(&run, "no rank has moved for 60.0 s",
	             "piperun: rank 0 waits: recv grad s1 m0 from rank 1 for 2.0 s (step 4, instruction 6 of 12); rank 1's "
	             "last instruction: wait for recv grad s2 m0 (step 4, instruction 10 of 20)\n"
	             "piperun: rank 1 waits: recv grad s2 m0 from rank 2 for 2.0 s (step 4, instruction 10 of 20); rank "
	             "2's last instruction: fwd s2 m1 (step 4, instruction 5 of 12)\n"
	             "piperun: rank 2 runs: fwd s2 m1 (step 4, instruction 5 of 12)\n"
	             "error[E0904]: rank 2 is waited for and does not get on with its work; last instruction: fwd s2 m1 "
	             "(step 4, instruction 5 of 12) (no rank has moved for 60.0 s)\n");
}

/* Rank 2 waits for the end of its first send, which rank 1 waits for, too. */
static void when_both_ends_have_posted_the_link_is_down(void **state)
{
	(void)state;
	struct run run = make_run();
	run.accounts[2].place = (struct pp_seen){.step = 4, .index = 10, .posts = 4, .waited = second};
	struct pp_verdict verdict = judge(&run);
	assert_int_equal(verdict.blame, PP_BLAME_LINK);
	assert_int_equal(verdict.rank, 1);
	assert_int_equal(verdict.other, 2);
	check_last_line(&run, "error[E0904]: what rank 1 and rank 2 have both posted does not move: look at the link "
	                      "between them\n");
}

static void who_is_past_a_post_and_has_not_made_it_is_named(void **state)
{
	(void)state;
	struct run run = make_run();
	run.accounts[2].place = (struct pp_seen){.step = 4, .index = 10, .posts = 3, .waited = second};
	struct pp_verdict verdict = judge(&run);
	assert_int_equal(verdict.blame, PP_BLAME_UNPOSTED);
	assert_int_equal(verdict.rank, 2);
	assert_int_equal(verdict.index, 7);
	/* The other end: it is the receive of rank 1 that is missing. */
	run.accounts[2].place.posts = 4;
	run.accounts[1].place.posts = 5;
	verdict = judge(&run);
	assert_int_equal(verdict.blame, PP_BLAME_UNPOSTED);
	assert_int_equal(verdict.rank, 1);
	assert_int_equal(verdict.index, 2);
	check_last_line(&run, "error[E0904]: rank 1 never posted its instruction 2, recv grad s2 m0; last instruction: "
	                      "wait for recv grad s2 m0 (step 4, instruction 10 of 20)\n");
}

/* A rank of an earlier step has not come to anything of this one; one of a later step is past all of it. */
static void steps_come_before_instructions(void **state)
{
	(void)state;
	struct run run = make_run();
	run.accounts[2].place = (struct pp_seen){.step = 3, .index = 11, .posts = 4};
	assert_int_equal(judge(&run).blame, PP_BLAME_LATE);
	run.accounts[2].place = (struct pp_seen){.step = 5, .index = 0};
	assert_int_equal(judge(&run).blame, PP_BLAME_LINK);
	run.accounts[2].place = (struct pp_seen){.step = 4, .batch = 1, .index = 0};
	assert_int_equal(judge(&run).blame, PP_BLAME_LINK);
	run.accounts[2].place = (struct pp_seen){.step = 4, .doing = "between steps"};
	assert_int_equal(judge(&run).blame, PP_BLAME_LINK);
	run.accounts[2].place = (struct pp_seen){.step = 3, .doing = "between steps"};
	assert_int_equal(judge(&run).blame, PP_BLAME_LATE);
	pp_arena_destroy(run.arena);
}

static void who_is_not_at_the_meeting_is_late(void **state)
{
	(void)state;
	struct run run = make_run();
	for (int i = 0; i < 3; i++)
		run.accounts[i].place = (struct pp_seen){.step = 4, .waited = second, .doing = "writing a checkpoint"};
	run.accounts[1].place.waited = 0;
	check_report(&run, "",
	             "piperun: rank 0 waits: writing a checkpoint for 1.0 s; rank 1's last seen: writing a checkpoint\n"
	             "piperun: rank 1 is writing a checkpoint\n"
	             "piperun: rank 2 waits: writing a checkpoint for 1.0 s; rank 1's last seen: writing a checkpoint\n"
	             "error[E0904]: rank 1 is waited for; last seen: writing a checkpoint\n");
}

static void the_first_cause_counts(void **state)
{
	(void)state;
	struct run run = make_run();
	/* A launcher's signals, and ranks that it killed already, come after the failure. */
	run.accounts[0].standing = PP_SIGNALLED;
	run.accounts[1].standing = PP_LOST;
	run.accounts[2].standing = PP_GAVE_UP;
	assert_int_equal(judge(&run).rank, 2);
	run.accounts[2].standing = PP_STOPPED;
	assert_int_equal(judge(&run).rank, 1);
	run.accounts[1].standing = PP_SILENT;
	assert_int_equal(judge(&run).rank, 2);
	run.accounts[2].standing = PP_PRESENT;
	assert_int_equal(judge(&run).rank, 1);
	run.accounts[1].standing = PP_PRESENT;
	assert_int_equal(judge(&run).rank, 0);
	assert_int_equal(judge(&run).blame, PP_BLAME_STANDING);
	pp_arena_destroy(run.arena);
}

static void a_machine_that_is_silent_is_named(void **state)
{
	(void)state;
	struct run run = make_run();
	for (int i = 0; i < 3; i++)
		snprintf(run.accounts[i].host, sizeof run.accounts[i].host, i ? "far" : "near");
	run.accounts[1].standing = run.accounts[2].standing = PP_SILENT;
	run.accounts[1].silent = run.accounts[2].silent = 10 * second;
	check_report(&run, "",
	             "piperun: rank 0 waits: recv grad s1 m0 from rank 1 for 2.0 s (step 4, instruction 6 of 12); rank 1's "
	             "last instruction: wait for recv grad s2 m0 (step 4, instruction 10 of 20)\n"
	             "error[E0904]: rank 1 on far does not answer, nor does any other rank there, for 10.0 s: the machine "
	             "or its link is down; last instruction: wait for recv grad s2 m0 (step 4, instruction 10 of 20); the "
	             "same holds for 1 other\n");
	run = make_run();
	snprintf(run.accounts[1].host, sizeof run.accounts[1].host, "far");
	snprintf(run.accounts[2].host, sizeof run.accounts[2].host, "far");
	run.accounts[2].standing = PP_SILENT;
	run.accounts[2].silent = 10 * second;
	check_last_line(&run, "error[E0904]: rank 2 on far does not answer: no heartbeat for 10.0 s, so its process is "
	                      "paused or cannot be reached; last instruction: fwd s2 m1 (step 4, instruction 5 of 12)\n");
}

/* Places come from other processes: nothing in them may lead out of the tables. */
static void nonsense_in_places_does_no_harm(void **state)
{
	(void)state;
	struct run run = make_run();
	run.accounts[1].place = (struct pp_seen){.step = UINT64_MAX, .index = UINT32_MAX, .program = 77, .waited = 1};
	run.accounts[2].place = (struct pp_seen){.step = 4, .index = UINT32_MAX, .posts = 0, .waited = 1, .stretch = 99};
	char *text = report(&run, "");
	assert_non_null(strstr(text, "error[E0904]: "));
	free(text);
	pp_arena_destroy(run.arena);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void the_longest_limit_of_those_present_holds(void **state)
{
	(void)state;
	struct run run = make_run();
	struct pp_stall stall;
	char text[PP_OCCASION_BYTES];
	const struct pp_limits limits = {.stretch = {[PP_STRETCH_START] = 300 * second,
	                                             [PP_STRETCH_FIRST] = 200 * second,
	                                             [PP_STRETCH_STEP] = 60 * second,
	                                             [PP_STRETCH_SAVE] = 600 * second,
	                                             [PP_STRETCH_EVAL] = 100 * second}};
	run.scene.accounts = run.accounts;
	assert_true(pp_stall_open(&stall, 3));
	for (int i = 0; i < 3; i++)
		run.accounts[i].place.stretch = PP_STRETCH_STEP;
	assert_false(pp_stall_look(&stall, &run.scene, &limits, text)); /* all have moved from nowhere */
	stall.moved -= 61 * second;
	assert_true(pp_stall_look(&stall, &run.scene, &limits, text));
	assert_string_equal(text, "no rank has moved for 61.0 s, the limit is that of --timeout");
	run.accounts[1].place.stretch = PP_STRETCH_SAVE; /* going over to something else is a move */
	assert_false(pp_stall_look(&stall, &run.scene, &limits, text));
	stall.moved -= 599 * second;
	assert_false(pp_stall_look(&stall, &run.scene, &limits, text));
	stall.moved -= 2 * second;
	assert_true(pp_stall_look(&stall, &run.scene, &limits, text));
	assert_non_null(strstr(text, "--timeout-save"));
	/* One that moves keeps all alive; waiting longer is no move; who has left does not count. */
	run.accounts[2].place.index++;
	assert_false(pp_stall_look(&stall, &run.scene, &limits, text));
	stall.moved -= 601 * second;
	run.accounts[0].place.waited += 601 * second;
	assert_true(pp_stall_look(&stall, &run.scene, &limits, text));
	run.accounts[1].standing = PP_ENDED;
	stall.moved = pp_clock() - 61 * second;
	assert_true(pp_stall_look(&stall, &run.scene, &limits, text));
	pp_stall_close(&stall);
	pp_arena_destroy(run.arena);
}

/* ---- the star -------------------------------------------------------------------------------- */

/* Rank 0's side of a star of two ranks, without its thread. */
struct hub {
	struct pp_star star;
	struct pp_star_address address;
	struct pp_limits limits;
	struct pp_watch watch;
};

static void open_hub(struct hub *hub)
{
	struct pp_status status;
	memset(hub, 0, sizeof *hub);
	hub->limits = (struct pp_limits){.heartbeat = 60 * second};
	for (int i = 0; i < PP_STRETCH_COUNT; i++)
		hub->limits.stretch[i] = 60 * second;
	pp_watch_init(&hub->watch, NULL, 0, PP_NO_DEADLINE);
	struct pp_star *star = &hub->star;
	star->watch = &hub->watch;
	star->world = 2;
	atomic_store(&star->limits, &hub->limits);
	for (int i = 0; i < PP_STRANGERS; i++)
		star->strangers[i].wire.socket = -1;
	star->peers = calloc(3, sizeof *star->peers);
	star->accounts = calloc(3, sizeof *star->accounts);
	star->page = calloc(1, sizeof *star->page + 2 * sizeof *star->page->ranks);
	star->peers[0].wire.socket = star->peers[1].wire.socket = -1;
	assert_true(pp_stall_open(&star->stall, 2));
	star->listener = pp_star_listen(&hub->address, true, &status);
	assert_true(star->listener >= 0);
	memcpy(star->token, hub->address.token, sizeof star->token);
}

static void close_hub(struct hub *hub)
{
	pp_hub_leave(&hub->star);
	pp_stall_close(&hub->star.stall);
	free(hub->star.peers);
	free(hub->star.accounts);
	free(hub->star.page);
}

static int dial(const struct hub *hub)
{
	struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)hub->address.port)};
	where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int connection = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(connection, (const struct sockaddr *)&where, sizeof where), 0);
	return connection;
}

/* Turns until the hub has closed this connection. */
static void check_turned_away(struct hub *hub, int connection)
{
	char byte;
	ssize_t got = -1;
	for (int i = 0; i < 10000 && got != 0; i++) {
		pp_hub_turn(&hub->star, pp_clock());
		got = recv(connection, &byte, 1, MSG_DONTWAIT);
		assert_true(got <= 0);
		if (got < 0 && errno == ECONNRESET)
			break;
	}
	assert_true(got <= 0);
	close(connection);
	assert_int_equal(hub->star.connected, 0);
}

static void send_hello(int connection, uint32_t rank, const unsigned char *token, uint32_t magic)
{
	struct pp_wire wire = {.socket = connection};
	struct pp_frame frame = {.word = PP_WORD_HELLO, .rank = rank, .bytes = PP_TOKEN_BYTES, .magic = magic};
	memcpy(frame.data.token, token, PP_TOKEN_BYTES);
	if (magic == 0)
		assert_true(pp_wire_send(&wire, PP_WORD_HELLO, rank, 0, token, PP_TOKEN_BYTES));
	else
		assert_true(send(connection, &frame, offsetof(struct pp_frame, data) + PP_TOKEN_BYTES, 0) > 0);
}

static void strangers_are_turned_away(void **state)
{
	(void)state;
	struct hub hub;
	open_hub(&hub);
	unsigned char other[PP_TOKEN_BYTES];
	memcpy(other, hub.address.token, sizeof other);
	other[PP_TOKEN_BYTES - 1] ^= 1;
	int connection = dial(&hub);
	send_hello(connection, 1, other, 0);
	check_turned_away(&hub, connection);
	connection = dial(&hub);
	send_hello(connection, 2, hub.address.token, 0); /* there is no rank 2 */
	check_turned_away(&hub, connection);
	connection = dial(&hub);
	send_hello(connection, 0, hub.address.token, 0);
	check_turned_away(&hub, connection);
	connection = dial(&hub);
	send_hello(connection, 1, hub.address.token, 0x12345678); /* another version */
	check_turned_away(&hub, connection);
	connection = dial(&hub);
	assert_true(send(connection, "GET / HTTP/1.1\r\nHost: rank0.example.org\r\n\r\n", 44, 0) == 44);
	check_turned_away(&hub, connection);
	/* One that says nothing is closed in time, and more than fit do not keep ranks out. */
	int silent[PP_STRANGERS + 4];
	for (int i = 0; i < PP_STRANGERS + 4; i++)
		silent[i] = dial(&hub);
	pp_hub_turn(&hub.star, pp_clock());
	pp_hub_turn(&hub.star, pp_clock() + 6 * second);
	for (int i = 0; i < PP_STRANGERS + 4; i++)
		close(silent[i]);
	connection = dial(&hub);
	send_hello(connection, 1, hub.address.token, 0);
	for (int i = 0; i < 10000 && hub.star.connected == 0; i++)
		pp_hub_turn(&hub.star, pp_clock());
	assert_int_equal(hub.star.connected, 1);
	assert_int_equal(hub.star.listener, -1); /* all are there: nobody else can come */
	struct pp_wire wire = {.socket = connection};
	enum pp_arrival arrival = PP_NOTHING;
	for (int i = 0; i < 10000 && arrival == PP_NOTHING; i++)
		arrival = pp_wire_receive(&wire);
	assert_int_equal(arrival, PP_FRAME);
	assert_int_equal(wire.in.frame.word, PP_WORD_WELCOME);
	close(connection);
	close_hub(&hub);
}

/* Frames that arrive byte by byte are frames all the same; lengths that no frame has end the connection. */
static void frames_come_in_pieces(void **state)
{
	(void)state;
	int ends[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	struct pp_wire from = {.socket = ends[0]}, to = {.socket = ends[1]};
	assert_true(pp_wire_send(&from, PP_WORD_FAILED, 7, 3, "why", 4));
	unsigned char bytes[sizeof(struct pp_frame)];
	ssize_t length = recv(ends[1], bytes, sizeof bytes, 0);
	for (ssize_t i = 0; i < length; i++) {
		assert_int_equal(send(ends[0], bytes + i, 1, 0), 1);
		assert_int_equal(pp_wire_receive(&to), i + 1 < length ? PP_NOTHING : PP_FRAME);
	}
	assert_int_equal(to.in.frame.rank, 7);
	assert_int_equal(to.in.frame.number, 3);
	assert_string_equal(to.in.frame.data.text, "why");
	struct pp_frame frame;
	memcpy(&frame, bytes, sizeof frame);
	frame.bytes = UINT32_MAX;
	assert_true(send(ends[0], &frame, offsetof(struct pp_frame, data), 0) > 0);
	assert_int_equal(pp_wire_receive(&to), PP_CLOSED);
	assert_int_equal(pp_wire_receive(&to), PP_CLOSED);
	assert_false(pp_wire_send(&from, PP_WORD_ASK, 0, 0, NULL, 0));
	close(ends[0]);
}

static void a_star_without_rank_0_is_refused_in_time(void **state)
{
	(void)state;
	struct pp_star_address address;
	struct pp_status status;
	struct pp_wire wire;
	close(pp_star_listen(&address, true, &status)); /* nobody listens any more */
	assert_false(pp_star_connect(&address, 3, second / 4, &wire, &status));
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	assert_non_null(strstr(status.text, "rank 3 cannot reach rank 0 over TCP at 127.0.0.1, port "));
	assert_non_null(strstr(status.text, "PP_CONTROL_ADDRESS"));
}

/* ---- stopping -------------------------------------------------------------------------------- */

static void a_gate_stops_after_the_last_step_that_began(void **state)
{
	(void)state;
	struct pp_watch watch;
	pp_watch_init(&watch, NULL, 0, PP_NO_DEADLINE);
	assert_true(pp_watch_pass(&watch, 1));
	assert_int_equal(atomic_load(&watch.gate.begun), 1);
	atomic_store(&watch.gate.held, true);
	atomic_store(&watch.gate.last, 2);
	assert_true(pp_watch_pass(&watch, 2));
	assert_false(pp_watch_pass(&watch, 3));
	pp_watch_init(&watch, NULL, 0, 1000000);
	atomic_store(&watch.gate.held, true);
	assert_false(pp_watch_pass(&watch, 1)); /* no answer: the deadline holds */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_rank_that_does_not_wait_is_late),
	    cmocka_unit_test(when_both_ends_have_posted_the_link_is_down),
	    cmocka_unit_test(who_is_past_a_post_and_has_not_made_it_is_named),
	    cmocka_unit_test(steps_come_before_instructions),
	    cmocka_unit_test(who_is_not_at_the_meeting_is_late),
	    cmocka_unit_test(the_first_cause_counts),
	    cmocka_unit_test(a_machine_that_is_silent_is_named),
	    cmocka_unit_test(nonsense_in_places_does_no_harm),
	    cmocka_unit_test(the_longest_limit_of_those_present_holds),
	    cmocka_unit_test(strangers_are_turned_away),
	    cmocka_unit_test(frames_come_in_pieces),
	    cmocka_unit_test(a_star_without_rank_0_is_refused_in_time),
	    cmocka_unit_test(a_gate_stops_after_the_last_step_that_began),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
