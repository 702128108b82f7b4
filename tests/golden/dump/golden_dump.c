/* pipedump as a user runs it: arguments, then the whole output, messages and exit code, compared with NAME.txt beside
 * this file. PP_UPDATE=1 writes them anew. */
#include "unit/golden.h"

#include <stdio.h>
#include <sys/wait.h>

static const struct {
	const char *name, *arguments;
} cases[] = {
    {"default", "1f1b_4x8.pps --width=104"},
    {"gantt_compact", "1f1b_4x8.pps --view=gantt"},
    {"gantt_scaled", "interleaved_2x2x4.pps --view=gantt --width=80"},
    {"gantt_narrow", "1f1b_4x8.pps --view=gantt --width=40 --rank=0,2-3"},
    {"gantt_window", "split_4x8.pps --view=gantt --from=3 --to=12ns"},
    {"gantt_color", "split_4x8.pps --view=gantt --to=8 --rank=1 --color=always"},
    {"gantt_json", "1f1b_4x8.pps --view=gantt --format=json --rank=3"},
    {"stats_interleaved", "interleaved_2x2x4.pps --view=stats"},
    {"stats_json", "interleaved_2x2x4.pps --format=json"},
    {"list", "1f1b_4x8.pps --view=list --rank=1"},
    {"list_unproven", "two_ranks.pps --view=list"},
    {"list_json", "two_ranks.pps --view=list --format=json --rank=1"},
    {"memory", "split_4x8.pps --view=memory"},
    {"memory_bytes", "split_4x8.pps --view=memory --unit=bytes --width=80"},
    {"memory_json", "1f1b_4x8.pps --view=memory --format=json --rank=3"},
    {"map", "interleaved_2x2x4.pps --view=map"},
    {"map_json", "interleaved_2x2x4.pps --view=map --format=json"},
    {"tables", "two_ranks.pps --view=tables"},
    {"tables_json", "two_ranks.pps --view=tables --format=json"},
    {"source", "two_ranks.pps --view=source"},
    {"source_missing", "1f1b_4x8.pps --view=source"},
    {"csv", "split_4x8.pps --format=csv"},
    {"csv_comms", "interleaved_2x2x4.pps --format=csv-comms"},
    {"recompute", "recompute_2x4.pps --width=100"},
    {"recompute_list", "recompute_2x4.pps --view=list --rank=0"},
    {"recompute_map", "recompute_2x4.pps --view=map"},
    {"recompute_memory", "recompute_2x4.pps --view=memory --unit=bytes --width=80"},
    {"recompute_csv", "recompute_2x4.pps --format=csv"},
    {"schedule_file", "../torch_csv/zbv_p4_m8.csv --width=104"},
    {"schedule_file_diff", "../torch_csv/zbv_p4_m8.csv --diff=../torch_csv/1f1b_p4_m8.csv"},
    {"schedule_file_diff_json", "../torch_csv/zbv_p4_m8.csv --diff=../torch_csv/1f1b_p4_m8.csv --format=json --rank=0"},
    {"schedule_file_units", "split_4x8.pps --diff=../torch_csv/1f1b_p4_m8.csv 2>&1"},
    {"schedule_file_units_first", "../torch_csv/1f1b_p4_m8.csv --diff=split_4x8.pps 2>&1"},
    {"schedule_file_bytes", "../torch_csv/1f1b_p4_m8.csv --view=memory --unit=bytes 2>&1"},
    {"schedule_file_rows", "../torch_csv/dualpipev_p4_m8.comms.csv --format=rows"},
    {"schedule_file_damaged", "../../diag/csv/cycle.csv 2>&1"},
    {"schedule_file_json", "../torch_csv/1f1b_p4_m8.csv --view=stats --format=json --rank=0"},
    {"schedule_file_map", "../torch_csv/1f1b_p4_m8.csv --view=map"},
    {"schedule_file_map_json", "../torch_csv/1f1b_p4_m8.csv --view=map --format=json --rank=0"},
    {"schedule_file_tables", "../torch_csv/1f1b_p4_m8.csv --view=tables"},
    {"schedule_file_tables_json", "../torch_csv/1f1b_p4_m8.csv --view=tables --format=json --rank=0"},
    {"schedule_file_list", "../torch_csv/1f1b_p4_m8.csv --view=list --rank=3"},
    {"schedule_file_memory_json", "../torch_csv/1f1b_p4_m8.csv --view=memory --format=json --rank=3"},
    {"schedule_file_time", "../torch_csv/1f1b_p4_m8.csv --view=gantt --to=3us 2>&1"},
    {"schedule_file_legacy", "../../diag/csv/good_legacy.csv --legacy --view=gantt"},
    {"trace", "1f1b_4x8.pps --format=trace --rank=3"},
    {"rows", "split_4x8.pps --format=rows"},
    {"rows_name", "split_4x8.pps --format=rows --name=frozen_2"},
    {"rows_no_name", "split_4x8.pps --format=rows --name=2nd 2>&1"},
    {"name_alone", "split_4x8.pps --name=frozen 2>&1"},
    {"rows_chunks", "interleaved_2x2x4.pps --format=rows"},
    {"rows_eval", "../../verify/accepted_eval_losses.pps --program=eval --format=rows"},
    {"svg", "split_4x8.pps --format=svg"},
    {"svg_chunks", "interleaved_2x2x4.pps --format=svg --rank=1 --from=4 --width=400"},
    {"svg_recompute", "recompute_2x4.pps --format=svg"},
    {"svg_of_memory", "1f1b_4x8.pps --view=memory --format=svg"},
    {"over_nccl", "interleaved_2x2x4.pps --view=stats --transport=nccl"},
    {"diff", "1f1b_4x8.pps --diff=1f1b_4x8.profile.json"},
    {"diff_json", "1f1b_4x8.pps --diff=1f1b_4x8.profile.json --format=json"},
    {"diff_other", "interleaved_2x2x4.pps --diff=1f1b_4x8.profile.json"},
    {"diff_tp", "1f1b_4x8.pps --diff=../../golden/dump/other_tp.json"},
    {"diff_batch", "1f1b_4x8.pps --diff=../../golden/dump/other_batch.json"},
    {"diff_work", "1f1b_4x8.pps --diff=../../golden/dump/other_work.json"},
    {"diff_programs", "1f1b_4x8.pps --diff=split_4x8.pps"},
    {"diff_programs_json", "1f1b_4x8.pps --diff=split_4x8.pps --format=json --rank=3"},
    {"diff_same", "1f1b_4x8.pps --diff=1f1b_4x8.pps --rank=1-2"},
    {"diff_fewer_ranks", "split_4x8.pps --diff=recompute_2x4.pps"},
    {"diff_unproven", "1f1b_4x8.pps --diff=two_ranks.pps 2>&1"},
    {"diff_program_missing", "1f1b_4x8.pps --program=train --diff=../../verify/accepted_eval_losses.pps"},
    {"diff_as_csv", "1f1b_4x8.pps --diff=split_4x8.pps --format=csv"},
    {"diff_stdin", "1f1b_4x8.pps --diff=-"},
    {"diff_no_file", "1f1b_4x8.pps --diff=none.json"},
    {"pps", "two_ranks.pps --format=pps --program=eval"},
    {"eval", "../../verify/accepted_eval_losses.pps --program=eval --width=80"},
    {"eval_list", "../../verify/accepted_eval_losses.pps --program=eval --view=list"},
    {"eval_memory", "../../verify/accepted_eval_losses.pps --program=eval --view=memory --unit=bytes --width=80"},
    {"unproven", "two_ranks.pps 2>&1 >/dev/null | tail -n 1"}, /* the verifier's own words are its tests' business */
    {"unproven_exit", "two_ranks.pps >/dev/null"},
    {"no_program", "../../CMakeLists.txt"},
    {"spec_instead", "../../../tests/data/specs/1_minimal.pipe"},
    {"no_file", "missing.ppx"},
    {"no_such_view", "1f1b_4x8.pps --view=gannt"},
    {"no_such_rank", "1f1b_4x8.pps --rank=2,4"},
    {"no_such_program", "1f1b_4x8.pps --program=eval"},
    {"empty_window", "1f1b_4x8.pps --from=40"},
    {"no_operand", ""},
    {"help", "--help"},
};

/* Output and errors of a command, then its exit code. */
static char *output_of(struct pp_arena *arena, const char *command)
{
	char buffer[4096], *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length), *pipe = popen(command, "r");
	assert_non_null(pipe);
	for (size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
		fwrite(buffer, 1, got, out);
	int status = pclose(pipe);
	fprintf(out, "exit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	fclose(out);
	char *copy = pp_arena_copy(arena, text, length);
	free(text);
	return copy;
}

static void every_case(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const char *command = pp_arena_printf(arena, "cd '%s' && env -u COLUMNS -u NO_COLOR LC_ALL=C '%s' %s 2>&1",
		                                      PP_PROGRAMS, PP_PIPEDUMP, cases[i].arguments);
		const char *path = pp_arena_printf(arena, "%s/%s.txt", PP_GOLDEN, cases[i].name);
		golden_check(arena, path, output_of(arena, command));
	}
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
