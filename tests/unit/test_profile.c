/* Profiles: measuring what the simulator did finds what it was told; the file's whole text; every kind of damage is
 * refused at its place. */
#include "support/verify_fixture.h"

#include "ir/grid.h"
#include "ir/measure.h"

#include <stdlib.h>

enum { STEPS = 3 };

/* The instants of a simulated step as a rank would note them: a post takes no time when the rank comes to it. */
static uint64_t *times_of(struct pp_arena *arena, const struct pp_program *program, uint64_t *longest)
{
	struct pp_sim sim;
	const struct pp_named_program *named = &program->programs[0];
	assert_true(pp_simulate(arena, program, named, PP_LAYOUT_CHANNEL, true, &sim));
	*longest = 0;
	for (uint32_t r = 0; r < program->ranks; r++)
		*longest = named->streams[r].count > *longest ? named->streams[r].count : *longest;
	uint64_t *times = PP_NEW_ARRAY(arena, uint64_t, program->ranks * 2 * *longest);
	for (uint32_t r = 0; r < program->ranks; r++) {
		uint64_t clock = 0, *at = times + r * 2 * *longest;
		for (uint32_t i = 0; i < named->streams[r].count; i++) {
			uint8_t op = named->streams[r].items[i].op;
			bool post = op == PP_OP_SEND || op == PP_OP_RECV || op == PP_OP_COLL;
			at[2 * i] = clock;
			clock = post ? clock : sim.instr[r][i].end;
			at[2 * i + 1] = clock;
		}
	}
	return times;
}

static struct pp_profile *measured(struct pp_arena *arena, const struct pp_program *program, const uint64_t *clocks)
{
	uint64_t longest;
	uint64_t *times = times_of(arena, program, &longest);
	struct pp_measure *measure = pp_measure_begin(arena, program, &program->programs[0], clocks);
	for (int step = 0; step < STEPS; step++)
		pp_measure_step(measure, times, longest);
	struct pp_profile *profile = pp_measure_end(measure);
	profile->tool = "piperun 0";
	profile->transport = "loop";
	profile->device = "cpu";
	return profile;
}

static char *text_of(const struct pp_profile *profile)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_profile_print(profile, out);
	fclose(out);
	return text;
}

static void assert_time(const struct pp_profile_time *time, uint64_t median, uint64_t count)
{
	assert_int_equal(time->median, median);
	assert_int_equal(time->spread, 0);
	assert_int_equal(time->count, count);
}

static struct pp_program *trained(struct pp_arena *arena, uint32_t ranks, uint32_t microbatches)
{
	struct build_options options = {.depth = 2, .latency = 50, .trains = true};
	return build_program(arena, build_1f1b(arena, ranks, microbatches), &options);
}

static void finds_what_was_simulated(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = trained(arena, 4, 8);
	for (uint32_t g = 0; g < program->group_count; g++)
		program->groups[g].latency = 10;
	struct pp_profile *profile = measured(arena, program, NULL);
	struct pp_sim sim;
	assert_true(pp_simulate(arena, program, &program->programs[0], PP_LAYOUT_CHANNEL, false, &sim));
	assert_int_equal(profile->steps, STEPS);
	assert_time(&profile->step, sim.makespan + sim.tail, STEPS);
	assert_time(&profile->makespan, sim.makespan, STEPS);
	for (uint32_t s = 0; s < 4; s++) {
		assert_time(&profile->stages[s].time[PP_PHASE_F], 100, 8 * STEPS);
		assert_time(&profile->stages[s].time[PP_PHASE_B], 200, 8 * STEPS);
		assert_int_equal(profile->stages[s].time[PP_PHASE_I].count, 0);
		assert_time(&profile->ranks[s].busy, sim.rank[s].busy, STEPS);
	}
	assert_int_equal(profile->channel_count, 6);
	for (size_t i = 0; i < profile->channel_count; i++)
		assert_int_equal(profile->channels[i].time.median, 50);
	assert_false(profile->link[0].given); /* one size only */
	assert_true(profile->joint_count >= 2);
	for (size_t i = 0; i < profile->joint_count; i++) /* a ring of 2 (n - 1) steps */
		assert_int_equal(profile->joints[i].time.median, 10 * 2 * (profile->joints[i].members - 1));
	pp_arena_destroy(arena);
}

/* On a grid all coordinates of the other axes add their samples; messages stay within a coordinate. */
static void finds_the_same_on_a_grid(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = trained(arena, 4, 8);
	uint64_t longest;
	uint64_t *one = times_of(arena, program, &longest);
	program->tp = 3;
	program->dp = 2;
	uint64_t world = pp_grid_world(program);
	uint64_t *times = PP_NEW_ARRAY(arena, uint64_t, world * 2 * longest);
	for (uint32_t w = 0; w < world; w++) {
		struct pp_coord coord = pp_grid_coord(program, w);
		/* Coordinates are at odds by far: taking a message of another one would show. */
		for (uint64_t i = 0; i < 2 * longest; i++)
			times[w * 2 * longest + i] = one[coord.pp * 2 * longest + i] + 1000000 * (coord.tp + 3 * coord.dp);
	}
	struct pp_measure *measure = pp_measure_begin(arena, program, &program->programs[0], NULL);
	pp_measure_step(measure, times, longest);
	struct pp_profile *profile = pp_measure_end(measure);
	assert_int_equal(profile->tp, 3);
	assert_int_equal(profile->dp, 2);
	for (uint32_t s = 0; s < 4; s++)
		assert_time(&profile->stages[s].time[PP_PHASE_F], 100, 8 * 6);
	assert_int_equal(profile->channel_count, 6);
	for (size_t i = 0; i < profile->channel_count; i++)
		assert_int_equal(profile->channels[i].time.median, 50);
	pp_arena_destroy(arena);
}

/* Ranks whose clocks cannot be compared have no transfers in common. */
static void clocks_apart(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const uint64_t clocks[] = {1, 1, 2, 2};
	struct pp_profile *profile = measured(arena, trained(arena, 4, 8), clocks);
	assert_int_equal(profile->channel_count, 4);
	for (size_t i = 0; i < profile->channel_count; i++)
		assert_int_equal(profile->channels[i].source / 2, profile->channels[i].destination / 2);
	pp_arena_destroy(arena);
}

/* latency 50 ns + bytes / 4 GB/s, from messages of two sizes. */
static void fits_a_link(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = trained(arena, 3, 8);
	for (uint32_t c = 0; c < program->channel_count; c++)
		program->channels[c].bandwidth = UINT64_C(4000000000);
	for (uint32_t r = 0; r < 3; r++)
		for (uint32_t i = 0; i < program->programs[0].streams[r].count; i++) {
			struct pp_instr *instr = &program->programs[0].streams[r].items[i];
			if (instr->op == PP_OP_SEND || instr->op == PP_OP_RECV)
				instr->count = instr->a[0] % 2 ? 100 : 1100;
		}
	struct pp_profile *profile = measured(arena, program, NULL);
	assert_true(profile->link[0].given && !profile->link[1].given);
	assert_int_equal(profile->link[0].latency, 50);
	assert_in_range(profile->link[0].bandwidth, 3999000000, 4001000000);
	pp_arena_destroy(arena);
}

static const char whole[] =
    "{\"schema\": \"piperun.profile/1\", \"tool\": \"piperun 0\", \"transport\": \"loop\", \"device\": \"cpu\", "
    "\"time_unit\": \"ns\", \"steps\": 3,\n"
    "\"program\": {\"schedule\": \"1f1b\", \"pp\": 2, \"vpp\": 1, \"tp\": 1, \"dp\": 1, \"stages\": 2, \"layers\": 2, "
    "\"microbatches\": 2, \"microbatch\": 1, \"seq\": 4, \"vocab\": 16, \"dtype\": \"f32\"},\n"
    "\"step\": {\"median\": 1000, \"spread\": 0, \"count\": 3},\n"
    "\"makespan\": {\"median\": 1000, \"spread\": 0, \"count\": 3},\n"
    "\"stages\": [\n"
    "{\"stage\": 0, \"rank\": 0, \"first_layer\": 0, \"layers\": 1, \"title\": \"first\"},\n"
    "{\"stage\": 1, \"rank\": 1, \"first_layer\": 1, \"layers\": 1, \"title\": \"last\"}],\n"
    "\"compute\": [\n"
    "{\"stage\": 0, \"phase\": \"F\", \"median\": 100, \"spread\": 0, \"count\": 6, \"flops\": 7},\n"
    "{\"stage\": 0, \"phase\": \"B\", \"median\": 200, \"spread\": 0, \"count\": 6, \"flops\": 14},\n"
    "{\"stage\": 1, \"phase\": \"F\", \"median\": 100, \"spread\": 0, \"count\": 6, \"flops\": 7},\n"
    "{\"stage\": 1, \"phase\": \"B\", \"median\": 200, \"spread\": 0, \"count\": 6, \"flops\": 14}],\n"
    "\"ranks\": [\n"
    "{\"rank\": 0, \"median\": 600, \"spread\": 0, \"count\": 3},\n"
    "{\"rank\": 1, \"median\": 600, \"spread\": 0, \"count\": 3}],\n"
    "\"channels\": [\n"
    "{\"source\": 0, \"destination\": 1, \"kind\": \"act\", \"between_nodes\": false, \"bytes\": 256, \"median\": 50, "
    "\"spread\": 0, \"count\": 6},\n"
    "{\"source\": 1, \"destination\": 0, \"kind\": \"grad\", \"between_nodes\": false, \"bytes\": 256, \"median\": 50, "
    "\"spread\": 0, \"count\": 3}],\n"
    "\"links\": [],\n"
    "\"collectives\": [\n"
    "{\"axis\": \"pp\", \"op\": \"allreduce\", \"members\": 2, \"bytes\": 8, \"median\": 20, \"spread\": 1, \"count\": "
    "3}],\n"
    "\"tail\": [\n"
    "{\"rank\": 0, \"op\": \"opt\", \"bytes\": 4096, \"median\": 70, \"spread\": 2, \"count\": 3}]\n"
    "}\n";

static struct pp_profile *read_text(struct pp_arena *arena, const char *text, size_t length,
                                    struct pp_json_reader *reader)
{
	*reader = pp_json_read_begin(text, length);
	return pp_profile_read(arena, reader);
}

static void reads_what_it_prints(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_json_reader reader;
	struct pp_profile *profile = read_text(arena, whole, strlen(whole), &reader);
	if (!profile)
		fail_msg("%s at %zu", reader.wrong, reader.wrong_at);
	char *text = text_of(profile);
	assert_string_equal(text, whole);
	free(text);
	text = text_of(measured(arena, trained(arena, 4, 8), NULL));
	char *again = text_of(read_text(arena, text, strlen(text), &reader));
	assert_string_equal(text, again);
	free(text);
	free(again);
	pp_arena_destroy(arena);
}

/* `from` becomes `to`; the message and the text at its place. */
struct damage {
	const char *from, *to, *message, *place;
};

static const struct damage damages[] = {
    {"piperun.profile/1", "piperun.profile/2",
     "this is of schema `piperun.profile/2`, a profile is of schema `piperun.profile/1`", "\"piperun.profile/2"},
    {"\"device\"", "\"devices\"", "expected key `device`, got `devices`", "\"devices"},
    {"\"time_unit\": \"ns\"", "\"time_unit\": \"us\"", "times must be in `ns`", "\"us"},
    {", \"steps\": 3", "", "expected key `steps`, got `program`", "\"program"},
    {"\"f32\"}", "\"f32\", \"more\": 1}", "unknown key `more`", "\"more"},
    {"\"pp\": 2", "\"pp\": 0", "`pp` must be at least 1", "0"},
    {"\"pp\": 2", "\"pp\": 70000", "this number must be at most 65536", "70000"},
    {"\"stages\": 2", "\"stages\": 3", "2 stages with 2 layers, but `program` says 3 with 2", NULL},
    {"\"f32\"", "\"f31\"", "`f31` is no dtype", "\"f31"},
    {"\"step\": {\"median\": 1000", "\"step\": {\"median\": -1000", "this number must not be negative", "-1000"},
    {"\"step\": {\"median\": 1000", "\"step\": {\"median\": NaN", "expected a number, got `N`", "NaN"},
    {"\"step\": {\"median\": 1000", "\"step\": {\"median\": 1e3",
     "this number must be whole, without point or exponent", "1e3"},
    {"\"step\": {\"median\": 1000", "\"step\": {\"median\": 99999999999999999999", "this number is too large",
     "99999999999999999999"},
    {"\"step\": {\"median\": 1000", "\"step\": {\"median\": 5000000000000000000",
     "this number must be at most 4611686018427387904", "5000000000000000000"},
    {"\"step\": {\"median\": 1000", "\"step\": {\"median\": 01000", "this number has a zero in front", "01000"},
    {"\"step\": {\"median\": 1000, \"spread\": 0, \"count\": 3",
     "\"step\": {\"median\": 1000, \"spread\": 0, \"count\": 0", "a time of 0 samples is none: leave the row out", "0"},
    {"{\"stage\": 1, \"rank\": 1", "{\"stage\": 0, \"rank\": 1", "expected stage 1 of 2, got 0", "0"},
    {"{\"stage\": 1, \"rank\": 1", "{\"stage\": 1, \"rank\": 2", "this number must be at most 1", "2"},
    {"\"first_layer\": 1", "\"first_layer\": 0", "stage 1 must begin with layer 1, got 0", "0"},
    {"\"stage\": 1, \"phase\": \"B\"", "\"stage\": 1, \"phase\": \"F\"", "this row is given twice or out of order",
     "\"F\", \"median\": 200"},
    {"\"phase\": \"F\"", "\"phase\": \"X\"", "`X` is no phase", "\"X"},
    {"{\"rank\": 1, \"median\": 600, \"spread\": 0, \"count\": 3}", "", "expected an object, got `]`", NULL},
    {"\"source\": 0, \"destination\": 1", "\"source\": 0, \"destination\": 0", "a channel from rank 0 to itself", "0"},
    {"\"source\": 1, \"destination\": 0, \"kind\": \"grad\"", "\"source\": 0, \"destination\": 1, \"kind\": \"act\"",
     "this row is given twice or out of order", NULL},
    {"\"op\": \"opt\"", "\"op\": \"optimise\"", "`optimise` is no op", "\"optimise"},
    {"]\n}\n", "]\n}\n{}", "expected the end of the file, got `{`", "{}"},
    {"\"first\"", "\"fir\\x\"", "unknown escape in a string", "\\x"},
    {"\"first\"", "\"fir\xff\"", "a string that is not UTF-8", "\xff"},
    {"\"first\"", "\"fir\nst\"", "a control character in a string", NULL},
};

static void refuses_damage(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
		const struct damage *damage = &damages[i];
		struct pp_arena *arena = pp_arena_create(NULL);
		const char *at = strstr(whole, damage->from);
		assert_non_null(at);
		char *text =
		    pp_arena_printf(arena, "%.*s%s%s", (int)(at - whole), whole, damage->to, at + strlen(damage->from));
		struct pp_json_reader reader;
		if (read_text(arena, text, strlen(text), &reader))
			fail_msg("accepted with `%s`", damage->to);
		assert_string_equal(reader.wrong, damage->message);
		if (damage->place && strncmp(text + reader.wrong_at, damage->place, strlen(damage->place)) != 0)
			fail_msg("%s: at `%.20s`, wanted `%s`", reader.wrong, text + reader.wrong_at, damage->place);
		pp_arena_destroy(arena);
	}
}

/* Every beginning of the file is refused, at its end or before, and no byte behind it is read. */
static void refuses_beginnings(void **state)
{
	(void)state;
	size_t length = strlen(whole) - 2; /* the end of the line is no part of it */
	for (size_t cut = 0; cut < length; cut++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		char *text = malloc(cut + 1); /* found by the sanitizer if more is read */
		memcpy(text, whole, cut);
		struct pp_json_reader reader;
		assert_null(read_text(arena, text, cut, &reader));
		assert_true(reader.failed && reader.wrong_at <= cut);
		free(text);
		pp_arena_destroy(arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(finds_what_was_simulated), cmocka_unit_test(clocks_apart),
	    cmocka_unit_test(finds_the_same_on_a_grid), cmocka_unit_test(fits_a_link),
	    cmocka_unit_test(reads_what_it_prints),     cmocka_unit_test(refuses_damage),
	    cmocka_unit_test(refuses_beginnings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
