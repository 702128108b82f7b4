/* Every named schedule written as PyTorch's schedule file, both ways: the rules of PyTorch's loader take it, read back
 * it is the same schedule, action by action on the same placement, and its messages end in every layout of queues. And
 * PyTorch's files printed as rows of the language compile to what they say. */
#include "codegen/emit/emit.h"
#include "compiler/exchange.h"
#include "compiler/library.h"
#include "compiler/pass.h"
#include "compiler/policy.h"
#include "ir/csv_comms.h"
#include "ir/file.h"
#include "torch_rules.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const char spec[] = "param ranks : int = 4\nparam batches : int = 8\n"
                           "model { layer a : custom * (4 * ranks) { time_f = 3us  time_i = 3us  time_w = 3us\n"
                           "        activation = 1KiB  output = 256B } }\n"
                           "cluster { gpus = ranks }\n"
                           "parallel { pp = ranks }\n"
                           "train { microbatches = batches }\n"
                           "schedule lists { order {\n"
                           "  0F0 1F0 0F1 1F1 4F0 4B0 4F1 1B0 4B1 0B0 1B1 0B1 | 2F0 3F0 2F1 3F1 3B0 2B0 3B1 2B1 } }\n"
                           "schedule pairs { order for r in 0..p-2 { F*m B*m }\n"
                           "  order for r in p-1..p-1 { F[0] for i in 1..m-1 { F[i]&B[i-1] } B[m-1] } }\n";

struct compiled {
	struct pp_arena *arena;
	struct pp_unit unit;
	struct pp_dump dump;
	bool ok;
};

static struct compiled compile(const char *schedule, uint32_t ranks, uint32_t chunks, uint32_t batches,
                               const char *place)
{
	struct compiled c = {.arena = pp_arena_create(NULL)};
	const char **defines = PP_NEW_ARRAY(c.arena, const char *, 2), **sets = PP_NEW_ARRAY(c.arena, const char *, 2);
	defines[0] = pp_arena_printf(c.arena, "ranks=%u", ranks);
	defines[1] = pp_arena_printf(c.arena, "batches=%u", batches);
	size_t set_count = 0;
	if (chunks)
		sets[set_count++] = pp_arena_printf(c.arena, "parallel.vpp=%u", chunks);
	if (place)
		sets[set_count++] = pp_arena_printf(c.arena, "stages.place=%s", place);
	struct pp_unit *unit = &c.unit;
	*unit = (struct pp_unit){.arena = c.arena,
	                         .strings = pp_strtab_create(c.arena),
	                         .sources = pp_sources_create(c.arena),
	                         .tool_version = "test",
	                         .options = {.schedule = schedule,
	                                     .defines = defines,
	                                     .define_count = 2,
	                                     .sets = sets,
	                                     .set_count = set_count,
	                                     .shipped = pp_library,
	                                     .shipped_count = pp_library_count}};
	unit->diag = pp_diag_create(c.arena, unit->sources);
	unit->source = pp_sources_add(unit->sources, "test.pipe", spec, strlen(spec));
	c.ok = pp_compile(unit, PP_PASS_simulate, NULL, NULL);
	if (!c.ok)
		return c;
	bool *chosen = PP_NEW_ARRAY(c.arena, bool, unit->program->ranks);
	memset(chosen, true, unit->program->ranks);
	c.dump = (struct pp_dump){.arena = c.arena,
	                          .program = unit->program,
	                          .named = pp_program_find(unit->program, "train"),
	                          .sim = &unit->sim,
	                          .chosen = chosen};
	return c;
}

static const char *written(struct compiled *c, void (*emit)(const struct pp_dump *))
{
	char *text = NULL;
	size_t length = 0;
	c->dump.out = open_memstream(&text, &length);
	emit(&c->dump);
	fclose(c->dump.out);
	const char *kept = pp_arena_copy(c->arena, text, length);
	free(text);
	return kept;
}

static void assert_taken(const char *missed, const char *text)
{
	if (missed)
		fail_msg("PyTorch wants: %s\n%s", missed, text);
}

static void assert_same_schedule(const struct pp_schedule *a, const struct pp_schedule *b, bool pairs)
{
	assert_int_equal(a->ranks, b->ranks);
	assert_int_equal(a->stages, b->stages);
	assert_int_equal(a->microbatches, b->microbatches);
	assert_memory_equal(a->stage_rank, b->stage_rank, a->stages * sizeof *a->stage_rank);
	for (uint32_t r = 0; r < a->ranks; r++) {
		assert_int_equal(a->rows[r].count, b->rows[r].count);
		for (uint32_t i = 0; i < a->rows[r].count; i++) {
			const struct pp_action *x = &a->rows[r].actions[i], *y = &b->rows[r].actions[i];
			assert_true(x->stage == y->stage && x->mb == y->mb && x->kind == y->kind);
			assert_true(!pairs || x->paired == y->paired);
		}
	}
}

/* Both files of a program, through PyTorch's rules and through ours. */
static void exchange(struct compiled *c)
{
	static struct torch_file file;
	const struct pp_schedule *made = &c->unit.schedule;
	int ranks = (int)made->ranks, microbatches = (int)made->microbatches;
	const char *grid = written(c, pp_emit_csv), *comms = written(c, pp_emit_csv_comms);
	assert_taken(torch_read(grid, &file), grid);
	assert_taken(torch_validate(&file, ranks, microbatches, true), grid);
	assert_taken(torch_columns(&file), grid);
	assert_taken(torch_read(comms, &file), comms);
	assert_taken(torch_validate(&file, ranks, microbatches, false), comms);
	assert_taken(torch_messages(&file), comms);
	const char *const texts[] = {grid, comms};
	for (int i = 0; i < 2; i++) {
		const struct pp_source *source = pp_sources_add(c->unit.sources, "x.csv", texts[i], strlen(texts[i]));
		struct pp_csv *csv = pp_csv_read(c->arena, source, false, c->unit.diag);
		assert_non_null(csv);
		struct pp_schedule *read = pp_csv_schedule(c->arena, csv);
		assert_true(pp_csv_check(c->arena, csv, read, c->unit.diag));
		assert_same_schedule(read, made, i == 0);
		assert_int_equal(pp_csv_aligned(c->arena, csv), i == 0 || ranks == 1);
		assert_true(i == 0 || pp_csv_check_messages(c->arena, csv, c->unit.diag));
		for (int layout = PP_LAYOUT_CHANNEL; i == 1 && layout < PP_LAYOUT_BLOCKING; layout++)
			assert_int_equal(pp_csv_run(c->arena, csv, (enum pp_layout)layout, c->unit.diag), PP_CSV_OK);
	}
}

static void every_schedule_comes_back(void **state)
{
	(void)state;
	/* The first ones for policies that look at costs too: some of them search. */
	enum { FEW = 3 };
	static const uint32_t sizes[][2] = {{1, 3}, {2, 2}, {2, 4}, {3, 3}, {3, 7}, {4, 8}, {4, 12}};
	for (size_t p = 0; p < pp_policy_count; p++) {
		const struct pp_policy *policy = &pp_policies[p];
		unsigned count = 0;
		if (policy->status != PP_NOW)
			continue;
		for (size_t i = 0; i < (policy->aware ? FEW : sizeof sizes / sizeof *sizes); i++)
			for (uint32_t chunks = policy->vpp ? 0 : 1; chunks <= (policy->vpp ? 0 : 2); chunks++) {
				struct compiled c = compile(policy->name, sizes[i][0], chunks, sizes[i][1], NULL);
				if (c.ok)
					exchange(&c);
				count += c.ok;
				pp_arena_destroy(c.arena);
			}
		if (count < 3)
			fail_msg("%s was made only %u times", policy->name, count);
	}
}

static void pairs_come_back(void **state)
{
	(void)state;
	struct compiled c = compile("pairs", 3, 0, 6, NULL);
	assert_true(c.ok);
	exchange(&c);
	assert_non_null(strstr(written(&c, pp_emit_csv), "(2F1;2B0)OVERLAP_F_B"));
	pp_arena_destroy(c.arena);
}

/* A list of ranks, and neighbours on one rank: taken from the file, but by no schedule class. */
static void placements_are_noted(void **state)
{
	(void)state;
	static const struct {
		const char *schedule, *place;
		uint32_t ranks, chunks, batches;
		const char *note;
	} cases[] = {
	    {"gpipe", "loop", 2, 2, 4, NULL},
	    {"gpipe", "v", 2, 2, 4, NULL},
	    {"gpipe", "linear", 2, 2, 4, "place = linear is neither loop nor v: "},
	    {"lists", "[0, 0, 1, 1, 0]", 2, 0, 2, "place = [0, 0, 1, 1, 0] is neither loop nor v: "},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct compiled c =
		    compile(cases[i].schedule, cases[i].ranks, cases[i].chunks, cases[i].batches, cases[i].place);
		assert_true(c.ok);
		exchange(&c);
		const char *note = pp_csv_note(&c.dump);
		assert_int_equal(note != NULL, cases[i].note != NULL);
		if (note)
			assert_memory_equal(note, cases[i].note, strlen(cases[i].note));
		pp_arena_destroy(c.arena);
	}
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const char around[] = "model { layer a : custom * 64 { time_f = 3us  time_i = 3us  time_w = 3us } }\n";

/* A file as blocks of a spec, compiled: the draft of the unit is its order. */
static void assert_rows_compile(const char *name)
{
	struct compiled c = {.arena = pp_arena_create(NULL)};
	struct pp_unit *unit = &c.unit;
	*unit = (struct pp_unit){.arena = c.arena,
	                         .strings = pp_strtab_create(c.arena),
	                         .sources = pp_sources_create(c.arena),
	                         .tool_version = "test",
	                         .options = {.shipped = pp_library, .shipped_count = pp_library_count}};
	unit->diag = pp_diag_create(c.arena, unit->sources);
	char *text, *blocks = NULL;
	size_t length, printed = 0;
	struct pp_status status;
	assert_true(
	    pp_file_read(c.arena, pp_arena_printf(c.arena, PP_TEST_DATA "/torch_csv/%s", name), &text, &length, &status));
	const struct pp_source *file = pp_sources_add(unit->sources, name, text, length);
	struct pp_schedule *wanted = pp_csv_schedule(c.arena, pp_csv_read(c.arena, file, false, unit->diag));
	FILE *out = open_memstream(&blocks, &printed);
	struct pp_exchange_options options = {.name = "mine"};
	assert_true(pp_exchange_import(c.arena, file, &options, unit->diag, out));
	fprintf(out, "%scluster { gpus = %u }\ntrain { microbatches = %u }\n", around, wanted->ranks, wanted->microbatches);
	fclose(out);
	unit->source = pp_sources_add(unit->sources, "x.pipe", blocks, printed);
	if (!pp_compile(unit, PP_PASS_draft, NULL, NULL)) {
		pp_diag_print(unit->diag, stderr, PP_DIAG_HUMAN, false);
		fail_msg("%s", name);
	}
	assert_same_schedule(&unit->draft, wanted, true);
	free(blocks);
	pp_arena_destroy(c.arena);
}

/* Compute alone: names with one dot. */
static void every_file_becomes_rows(void **state)
{
	(void)state;
	DIR *folder = opendir(PP_TEST_DATA "/torch_csv");
	unsigned count = 0;
	assert_non_null(folder);
	for (struct dirent *entry; (entry = readdir(folder));) {
		const char *dot = strchr(entry->d_name, '.');
		if (!dot || strcmp(dot, ".csv") != 0)
			continue;
		assert_rows_compile(entry->d_name);
		count++;
	}
	closedir(folder);
	assert_int_equal(count, 145);
}

/* The rules themselves can say no. */
static void rules_refuse(void **state)
{
	(void)state;
	static const struct {
		const char *text, *missed;
	} cases[] = {
	    {"0F0,0B0\n", "as many rows as ranks"},
	    {"0F0,0B0\n1F0,1B0,0F1\n", "a stage is on one rank"},
	    {"0F0,0B0\n1B0,1F0\n", "B and I after F"},
	    {"0F0,0I0\n1F0,1B0\n", "per stage m F, as many I as W, m B and I"},
	    {"0F0,0W0,0I0\n1F0,1B0\n", "W after I"},
	    {"0F0,0F0,0B0\n1F0,1B0\n", "each once"},
	    {"0F0,0SEND_F0,0B0\n1F0,1B0\n", "nothing but F B I W"},
	};
	static struct torch_file file;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_null(torch_read(cases[i].text, &file));
		assert_string_equal(torch_validate(&file, 2, 1, true), cases[i].missed);
	}
	assert_null(torch_read("0F0,,0B0\n1F0,1B0\n", &file));
	assert_null(torch_validate(&file, 2, 1, true));
	assert_string_equal(torch_columns(&file), "inputs come from earlier columns");
	assert_string_equal(torch_messages(&file), "no blank cells");
	assert_null(torch_read("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n", &file));
	assert_null(torch_validate(&file, 2, 1, false));
	assert_string_equal(torch_messages(&file), "every action runs");
	assert_non_null(torch_read("0F0 ,0B0\n", &file));
	assert_non_null(torch_read("(0F0;0B0)F\n", &file));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_schedule_comes_back),
	    cmocka_unit_test(pairs_come_back),
	    cmocka_unit_test(placements_are_noted),
	    cmocka_unit_test(every_file_becomes_rows),
	    cmocka_unit_test(rules_refuse),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
