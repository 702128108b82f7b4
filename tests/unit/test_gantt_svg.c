/* The Gantt chart as a picture: well-formed, the same twice, every action once, and never more than pixels can show. */
#include "codegen/emit/emit.h"
#include "compiler/library.h"
#include "compiler/pass.h"
#include "support/xml_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char spec[] = "param ranks : int = 4\nparam chunks : int = 1\nparam batches : int = 8\n"
                           "model { hidden = 64  heads = 4  layers = 4 * ranks * chunks  vocab = 256  seq = 32 }\n"
                           "cluster { gpus = ranks }\n"
                           "parallel { pp = ranks  vpp = chunks }\n"
                           "train { microbatch = 1  microbatches = batches }\n"
                           "schedule overlapping { order for r in 0..p-2 { F*m B*m }\n"
                           "  order for r in p-1..p-1 { F[0] for i in 1..m-1 { F[i]&B[i-1] } B[m-1] } }\n"
                           "run { data = synthetic(seed = 1)  steps = 1  lr = 1e-3 }\n";

struct picture {
	struct pp_arena *arena;
	struct pp_unit unit;
	struct pp_dump dump;
	char *text;
	size_t length, computes, pairs;
};

static void compile(struct picture *picture, const char *schedule, const char *const *defines, size_t count)
{
	struct pp_unit *unit = &picture->unit;
	picture->arena = pp_arena_create(NULL);
	*unit = (struct pp_unit){.arena = picture->arena,
	                         .strings = pp_strtab_create(picture->arena),
	                         .sources = pp_sources_create(picture->arena),
	                         .tool_version = "test",
	                         .options = {.schedule = schedule,
	                                     .defines = defines,
	                                     .define_count = count,
	                                     .shipped = pp_library,
	                                     .shipped_count = pp_library_count}};
	unit->diag = pp_diag_create(picture->arena, unit->sources);
	unit->source = pp_sources_add(unit->sources, "test.pipe", spec, strlen(spec));
	if (!pp_compile(unit, PP_PASS_simulate, NULL, NULL)) {
		pp_diag_print(unit->diag, stderr, PP_DIAG_HUMAN, false);
		fail();
	}
}

static void choose(struct picture *picture)
{
	const struct pp_program *program = picture->unit.program;
	struct pp_sim *sim = PP_NEW(picture->arena, struct pp_sim);
	bool *chosen = PP_NEW_ARRAY(picture->arena, bool, program->ranks);
	uint32_t *chunk = PP_NEW_ARRAY(picture->arena, uint32_t, program->stage_count);
	const struct pp_named_program *train = pp_program_find(program, "train");
	assert_true(pp_simulate(picture->arena, program, train, PP_LAYOUT_CHANNEL, true, sim));
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		chosen[rank] = true;
	for (uint32_t s = 0; s < program->stage_count; s++)
		chunk[s] = s / program->ranks;
	picture->dump = (struct pp_dump){.arena = picture->arena,
	                                 .file = "test.ppx",
	                                 .program = program,
	                                 .named = train,
	                                 .sim = sim,
	                                 .chosen = chosen,
	                                 .chunk = chunk,
	                                 .unit = pp_time_unit_for(sim->makespan),
	                                 .to = UINT64_MAX,
	                                 .transport = "none"};
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		for (uint32_t i = 0; i < train->streams[rank].count; i++) {
			picture->computes += pp_compute_letter(&train->streams[rank].items[i]) != '\0';
			picture->pairs +=
			    (train->streams[rank].items[i].flags & PP_PAIR) && pp_compute_letter(&train->streams[rank].items[i]);
		}
}

static void draw(struct picture *picture)
{
	picture->dump.out = open_memstream(&picture->text, &picture->length);
	pp_emit_gantt_svg(&picture->dump);
	fclose(picture->dump.out);
	size_t at;
	const char *wrong = pp_xml_check(picture->text, picture->length, &at, NULL);
	if (wrong)
		fail_msg("%s at byte %zu", wrong, at);
}

static size_t occurrences(const char *text, const char *of)
{
	size_t count = 0;
	for (const char *at = text; (at = strstr(at, of)); at++)
		count++;
	return count;
}

static void done(struct picture *picture)
{
	free(picture->text);
	pp_arena_destroy(picture->arena);
}

static void every_action_is_drawn_once(void **state)
{
	(void)state;
	static const struct {
		const char *schedule;
		const char *defines[3];
		size_t count;
	} cases[] = {
	    {"1f1b", {NULL}, 0},
	    {"gpipe", {"ranks=1", "batches=1"}, 2},
	    {"interleaved", {"chunks=2"}, 1},
	    {"zb_h1", {"ranks=5", "batches=11"}, 2},
	    {"gpipe", {"ranks=24", "batches=3", "chunks=3"}, 3},
	    {"overlapping", {"batches=4"}, 1},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct picture picture = {0};
		compile(&picture, cases[i].schedule, cases[i].defines, cases[i].count);
		choose(&picture);
		draw(&picture);
		uint32_t ranks = picture.unit.program->ranks;
		/* Only ranks and actions have a text for the pointer, besides the title of the whole. */
		assert_int_equal(occurrences(picture.text, "<title"), 1 + ranks + picture.computes);
		/* One outline per pair, and one in the legend if there are any. */
		assert_int_equal(occurrences(picture.text, "class=\"pair\""), picture.pairs + (picture.pairs > 0));
		assert_int_equal(picture.pairs > 0, strcmp(cases[i].schedule, "overlapping") == 0);
		char *first = picture.text;
		draw(&picture);
		assert_string_equal(picture.text, first);
		free(first);
		done(&picture);
	}
}

static void a_window_shows_what_lies_in_it(void **state)
{
	(void)state;
	struct picture picture = {0};
	compile(&picture, "1f1b", NULL, 0);
	choose(&picture);
	picture.dump.from = picture.dump.sim->instr[0][0].start; /* F0 of rank 0 alone */
	for (uint32_t i = 0; i < picture.dump.named->streams[0].count; i++)
		if (pp_compute_letter(&picture.dump.named->streams[0].items[i])) {
			picture.dump.from = picture.dump.sim->instr[0][i].start;
			picture.dump.to = picture.dump.sim->instr[0][i].end;
			break;
		}
	draw(&picture);
	assert_int_equal(occurrences(picture.text, "<title"), 1 + 4 + 1);
	assert_non_null(strstr(picture.text, ">F0</text>"));
	free(picture.text);
	picture.dump.from = picture.dump.to = UINT64_MAX;
	draw(&picture);
	assert_non_null(strstr(picture.text, "nothing takes time here"));
	done(&picture);
}

static void crowds_become_columns_of_pixels(void **state)
{
	(void)state;
	static const char *const defines[] = {"ranks=16", "batches=512"};
	struct picture picture = {0};
	compile(&picture, "zb_h1", defines, 2);
	choose(&picture);
	draw(&picture);
	assert_true(picture.computes > 20000);
	assert_true(occurrences(picture.text, "<rect") < 16 * 1700 + 100);
	assert_int_equal(occurrences(picture.text, "<title"), 1 + 16);
	/* Rank 0 begins with forwards and ends with weight gradients. */
	const char *row = strstr(picture.text, ">r0</text>"), *end = strstr(row, "</g>"), *last = row;
	const char *bar = strstr(row, "class=\"F\"");
	assert_true(bar && bar < end);
	for (const char *at = row; (at = strstr(at, "<rect")) && at < end; at++)
		last = at;
	assert_true(strncmp(last, "<rect class=\"W\"", 15) == 0);
	done(&picture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_action_is_drawn_once),
	    cmocka_unit_test(a_window_shows_what_lies_in_it),
	    cmocka_unit_test(crowds_become_columns_of_pixels),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
