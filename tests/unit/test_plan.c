/* pipec plan from inside: the front against its definition, the order, multiples of memory, forms that parse. */
#include "compiler/library.h"
#include "compiler/plan.h"
#include "ir/json_read.h"
#include "support/xml_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char spec[] = "model { hidden = 64  heads = 4  layers = 16  vocab = 256  seq = 32 }\n"
                           "cluster { gpus = 4 }\n"
                           "parallel { pp = 4 }\n"
                           "train { microbatch = 1  microbatches = 8 }\n"
                           "schedule own { order for r { F*m B*m } }\n"
                           "run { data = synthetic(seed = 1)  steps = 1  lr = 1e-3 }\n";

static struct pp_arena *arena;

static struct pp_plan_input input_of(const char *text)
{
	return (struct pp_plan_input){.spec = {"test.pipe", text, strlen(text)},
	                              .options = {.shipped = pp_library, .shipped_count = pp_library_count},
	                              .tool_version = "test"};
}

static struct pp_plan make(const char *text, const char **vary_texts, size_t count)
{
	struct pp_option_list texts = {.items = vary_texts, .count = count};
	struct pp_plan_vary *vary = PP_NEW(arena, struct pp_plan_vary);
	struct pp_status status = {0};
	struct pp_plan_input input = input_of(text);
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	struct pp_plan plan;
	assert_true(pp_plan_vary_read(arena, &texts, vary, &status));
	assert_true(pp_plan_prepare(arena, &input, vary, diag, sources));
	assert_true(pp_plan_vary_count(vary) <= PP_PLAN_MOST);
	pp_plan_make(arena, &input, vary, &plan);
	return plan;
}

/* By its definition: nothing is as good in both and better in one. */
static bool beaten(const struct pp_plan *plan, const struct pp_plan_row *row)
{
	for (size_t i = 0; i < plan->ranked; i++) {
		const struct pp_plan_row *other = &plan->rows[i];
		double a = pp_plan_pace(other), b = pp_plan_pace(row);
		if (a <= b && other->peak <= row->peak && (a < b || other->peak < row->peak))
			return true;
	}
	return false;
}

static void rows_are_ranked_and_the_front_marked(void **state)
{
	(void)state;
	const char *texts[] = {"schedule=1f1b,gpipe,zb_h1,interleaved,zb_v,own", "vpp,microbatches=2,8"};
	struct pp_plan plan = make(spec, texts, 2);
	assert_true(plan.ranked >= 8);
	assert_false(plan.same_batch);
	size_t fronts = 0;
	bool own = false;
	for (size_t i = 0; i < plan.ranked; i++) {
		const struct pp_plan_row *row = &plan.rows[i];
		assert_false(row->refused);
		assert_int_equal(row->front, !beaten(&plan, row));
		fronts += row->front;
		assert_true(i == 0 || pp_plan_pace(&plan.rows[i - 1]) <= pp_plan_pace(row));
		assert_true(row->bound > 0 && row->bound <= row->makespan && row->span <= row->makespan);
		own |= strcmp(row->schedule, "own") == 0;
	}
	assert_true(fronts >= 1 && fronts < plan.ranked);
	assert_true(own);
	for (size_t i = plan.ranked; i < plan.count; i++)
		assert_true(plan.rows[i].refused && *plan.rows[i].reason);
}

/* What the file writes is tried beside the library, and a schedule of the library that it names is no other one. */
static void schedules_are_those_of_library_and_file(void **state)
{
	(void)state;
	struct pp_option_list none = {0};
	struct pp_plan_vary vary;
	struct pp_status status = {0};
	struct pp_plan_input input = input_of("schedule own { order for r { F*m B*m } }\nschedule 1f1b\nschedule gpipe\n");
	struct pp_sources *sources = pp_sources_create(arena);
	assert_true(pp_plan_vary_read(arena, &none, &vary, &status));
	assert_true(pp_plan_prepare(arena, &input, &vary, pp_diag_create(arena, sources), sources));
	assert_int_equal(vary.count, 2);
	assert_string_equal(vary.axes[0].name, "schedule");
	assert_string_equal(vary.axes[1].name, "vpp");
	size_t own = 0, named = 0;
	for (size_t i = 0; i < vary.axes[0].count; i++) {
		own += strcmp(vary.axes[0].values[i], "own") == 0;
		named += strcmp(vary.axes[0].values[i], "1f1b") == 0;
	}
	assert_int_equal(own, 1);
	assert_int_equal(named, 1);
	assert_true(vary.axes[0].count > 10);
}

static void gpipe_and_rows_written_alike_come_out_alike(void **state)
{
	(void)state;
	const char *texts[] = {"schedule=gpipe,own"};
	struct pp_plan plan = make(spec, texts, 1);
	assert_int_equal(plan.ranked, 2);
	assert_true(plan.same_batch);
	assert_string_equal(plan.rows[0].schedule, "gpipe"); /* ties: as listed */
	assert_string_equal(plan.rows[1].schedule, "own");
	assert_int_equal(plan.rows[0].makespan, plan.rows[1].makespan);
	assert_int_equal(plan.rows[0].peak, plan.rows[1].peak);
	assert_int_equal(plan.rows[0].messages, 48); /* 3 links, there and back, 8 microbatches */
	assert_int_equal(plan.rows[0].in_flight, 8);
	assert_true(plan.rows[0].front && plan.rows[1].front);
}

static void multiples_count_from_what_1f1b_holds(void **state)
{
	(void)state;
	const char *texts[] = {"schedule=1f1b,gpipe", "memory=none,1x,0.5x,3x"};
	struct pp_plan plan = make(spec, texts, 2);
	assert_true(plan.multiples && plan.fixed < plan.unit);
	uint64_t held = plan.unit - plan.fixed;
	for (size_t i = 0; i < plan.count; i++) {
		const struct pp_plan_row *row = &plan.rows[i];
		const char *memory = row->values[1];
		bool f1b = strcmp(row->schedule, "1f1b") == 0;
		if (strcmp(memory, "none") == 0)
			assert_true(!row->refused && row->cap == 0);
		else if (strcmp(memory, "1x") == 0)
			assert_true(row->cap == plan.unit && row->refused == !f1b);
		else if (strcmp(memory, "3x") == 0)
			assert_true(row->cap == plan.fixed + 3 * held && !row->refused);
		else
			assert_true(row->refused);
		if (!row->refused && row->cap)
			assert_true(row->peak <= row->cap);
		if (f1b && !row->refused)
			assert_int_equal(row->peak, plan.unit);
	}
}

static char *print(const struct pp_plan *plan, enum pp_plan_format format, size_t *length)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, length);
	pp_plan_print(arena, plan, "a \"b\" <c>.pipe", format, out);
	fclose(out);
	return text;
}

static void json_parses_and_has_every_row(void **state)
{
	(void)state;
	const char *texts[] = {"schedule=1f1b,gpipe,interleaved,own", "vpp=1,2", "memory"};
	struct pp_plan plan = make(spec, texts, 3);
	size_t length, rows = 0;
	char *text = print(&plan, PP_PLAN_JSON, &length), key[40];
	struct pp_json_reader reader = pp_json_read_begin(text, length);
	assert_true(pp_json_enter_object(&reader));
	while (pp_json_next_key(&reader, key, sizeof key)) {
		if (strcmp(key, "rows") != 0) {
			pp_json_skip(&reader);
			continue;
		}
		for (pp_json_enter_array(&reader); pp_json_next_item(&reader); rows++)
			pp_json_skip(&reader);
	}
	assert_true(pp_json_read_end(&reader));
	assert_int_equal(rows, plan.count);
	free(text);
}

static void csv_has_as_many_fields_in_every_line(void **state)
{
	(void)state;
	const char *texts[] = {"schedule=1f1b,none_such,gpipe", "vpp=1,2", "recompute=[norm, act],none"};
	struct pp_plan plan = make(spec, texts, 3);
	size_t length, lines = 0, fields = 0, wanted = 0;
	char *text = print(&plan, PP_PLAN_CSV, &length);
	bool quoted = false;
	for (const char *at = text; *at; at++) {
		quoted ^= *at == '"';
		fields += !quoted && *at == ',';
		if (quoted || *at != '\n')
			continue;
		wanted = lines++ ? wanted : fields;
		assert_int_equal(fields, wanted);
		fields = 0;
	}
	assert_int_equal(lines, plan.count + 1);
	free(text);
}

static void the_picture_is_well_formed_and_has_every_point(void **state)
{
	(void)state;
	const char *texts[] = {"schedule=1f1b,gpipe,own", "microbatches=2,4,8"};
	struct pp_plan plan = make(spec, texts, 2), none = {.vary = plan.vary};
	for (int empty = 0; empty < 2; empty++) {
		char *text = NULL;
		size_t length, at;
		FILE *out = open_memstream(&text, &length);
		pp_plan_svg(arena, empty ? &none : &plan, "<&>", out);
		fclose(out);
		assert_null(pp_xml_check(text, length, &at, NULL));
		size_t points = 0;
		for (const char *found = text; (found = strstr(found, "r=\"9\"")); found++)
			points++;
		assert_int_equal(points, empty ? 0 : plan.ranked);
		free(text);
	}
}

static int set_up(void **state)
{
	(void)state;
	arena = pp_arena_create(NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pp_arena_destroy(arena);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rows_are_ranked_and_the_front_marked),
	    cmocka_unit_test(schedules_are_those_of_library_and_file),
	    cmocka_unit_test(gpipe_and_rows_written_alike_come_out_alike),
	    cmocka_unit_test(multiples_count_from_what_1f1b_holds),
	    cmocka_unit_test(json_parses_and_has_every_row),
	    cmocka_unit_test(csv_has_as_many_fields_in_every_line),
	    cmocka_unit_test(the_picture_is_well_formed_and_has_every_point),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
