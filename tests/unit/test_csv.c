/* Schedule files that are good: what is read of them, what is printed of them, as CSV and as rows of the language. The
 * messages to damaged ones are whole files in tests/diag/csv. */
#include "lowering_fixture.h"

#include "compiler/exchange.h"
#include "ir/schedule_read.h"

static void form(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 2, NULL, 2, "F0 F1 I0 W0 B1\nF0 B0 F1 B1\n");
	w.schedule.rows[1].actions[1].paired = true;
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_schedule_print(&w.schedule, out);
	fclose(out);
	assert_string_equal(text, "0F0,0F1,0I0,0W0,0B1\n1F0,(1B0;1F1)OVERLAP_F_B,1B1\n");
	free(text);
	end_world(&w);
}

static const struct pp_schedule *read_csv(struct world *w, const char *text)
{
	return pp_schedule_read(w->arena, pp_sources_add(w->sources, "x.csv", text, strlen(text)), w->diag);
}

static void read_as_it_is_printed(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct world w = make_world(seed);
		draw_schedule(&w, 6, 9, 4);
		char *text = NULL, *again = NULL;
		size_t length = 0;
		FILE *out = open_memstream(&text, &length);
		pp_schedule_print(&w.schedule, out);
		fclose(out);
		const struct pp_schedule *read = read_csv(&w, text);
		assert_non_null(read);
		assert_int_equal(read->stages, w.schedule.stages);
		assert_int_equal(read->microbatches, w.schedule.microbatches);
		assert_memory_equal(read->stage_rank, w.schedule.stage_rank, read->stages * sizeof *read->stage_rank);
		assert_true(pp_schedule_check(w.arena, read, w.diag));
		out = open_memstream(&again, &length);
		pp_schedule_print(read, out);
		fclose(out);
		assert_string_equal(text, again);
		free(text);
		free(again);
		end_world(&w);
	}
}

static void cells_of_all_kinds(void **state)
{
	(void)state;
	struct world w = make_world(0);
	const struct pp_schedule *read =
	    read_csv(&w, " 0F0 ,,0F1,(0B0;0F2)OVERLAP_F_B,0B1,0B2\r\n,1F0,1B0,1F1,1B1,1F2,1B2\n\n,,\n");
	assert_non_null(read);
	assert_int_equal(read->ranks, 2);
	assert_int_equal(read->rows[0].count, 6);
	assert_true(read->rows[0].actions[2].paired && !read->rows[0].actions[3].paired);
	assert_true(pp_schedule_check(w.arena, read, w.diag));
	end_world(&w);
}

static const char *import(struct world *w, const char *text, struct pp_exchange_options options)
{
	char *printed = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&printed, &length);
	const struct pp_source *source = pp_sources_add(w->sources, "a/8-gpus.v2.csv", text, strlen(text));
	assert_true(pp_exchange_import(w->arena, source, &options, w->diag, out));
	fclose(out);
	const char *kept = pp_arena_copy(w->arena, printed, length);
	free(printed);
	return kept;
}

static void a_file_becomes_blocks_of_a_spec(void **state)
{
	(void)state;
	struct world w = make_world(0);
	assert_string_equal(
	    import(&w,
	           "0F0,0F1,3F0,(0F2;3B0)OVERLAP_F_B,3F1,3F2,3I1,0B0,3W1,3B2,0B1,0B2\n"
	           "1F0,2F0,1F1,2F1,1F2,2F2,2B0,1B0,2B1,1B1,2B2,1B2\n",
	           (struct pp_exchange_options){.name = "mine"}),
	    "# from a/8-gpus.v2.csv; for a spec with train { microbatches = 3 } and without blocks parallel and stages\n"
	    "parallel { pp = 2  vpp = 2 }\n"
	    "stages { place = v }\n"
	    "schedule mine {\n"
	    "  order {\n"
	    "    F.0*2 F.1 F.0&B.1 F.1*2 I.1 B.0 W.1 B.1 B.0*2\n"
	    "  | (F.0 F.1)*3 (B.1 B.0)*3\n"
	    "  }\n"
	    "}\n");
	end_world(&w);
}

/* Three stages on two ranks, old letters, messages, microbatches backwards. */
static void what_is_left_out_is_said(void **state)
{
	(void)state;
	struct world w = make_world(0);
	assert_string_equal(
	    import(&w,
	           "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0BW1,0RECV_B0,0B0,0W0\n"
	           "1RECV_F0,1F0,2F0,1RECV_F1,1F1,2F1,2BW1,1BW1,1SEND_B1,2BW0,1BW0,1SEND_B0\n",
	           (struct pp_exchange_options){.legacy = true}),
	    "# from a/8-gpus.v2.csv; for a spec with train { microbatches = 2 } and without blocks parallel and stages\n"
	    "# its messages are left out: the compiler makes its own\n"
	    "# weight gradients of stage 0 do not ascend: bits differ from those of other schedules\n"
	    "parallel { pp = 2 }\n"
	    "stages { place = [0, 1, 1] }\n"
	    "schedule s8_gpus {\n"
	    "  order {\n"
	    "    0F0 0F1 0B1 0I0 0W0\n"
	    "  | 1F0 2F0 1F1 2F1 2B1 1B1 2B0 1B0\n"
	    "  }\n"
	    "}\n");
	end_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(form),
	    cmocka_unit_test(read_as_it_is_printed),
	    cmocka_unit_test(cells_of_all_kinds),
	    cmocka_unit_test(a_file_becomes_blocks_of_a_spec),
	    cmocka_unit_test(what_is_left_out_is_said),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
