/* All schedule files of PyTorch: read, checked, with the makespan and the stashes that their table gives, verdicts of
 * those with messages under every layout of queues, and files with planted faults. */
#include "ir/csv_comms.h"
#include "ir/file.h"
#include "ir/order.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define FOLDER PP_TEST_DATA "/torch_csv/"

struct file {
	struct pp_arena *arena;
	struct pp_diag *diag;
	struct pp_csv *csv;
	struct pp_schedule *schedule;
};

static void read_text(struct file *file, const char *name, const char *text, size_t length)
{
	struct pp_sources *sources = pp_sources_create(file->arena);
	file->diag = pp_diag_create(file->arena, sources);
	file->csv = pp_csv_read(file->arena, pp_sources_add(sources, name, text, length), false, file->diag);
	file->schedule = file->csv ? pp_csv_schedule(file->arena, file->csv) : NULL;
}

static char *text_of(struct pp_arena *arena, const char *name, size_t *length)
{
	char *text;
	struct pp_status status;
	assert_true(pp_file_read(arena, pp_arena_printf(arena, FOLDER "%s", name), &text, length, &status));
	return text;
}

static struct file open_file(const char *name)
{
	struct file file = {.arena = pp_arena_create(NULL)};
	size_t length;
	char *text = text_of(file.arena, name, &length);
	read_text(&file, name, text, length);
	return file;
}

static void close_file(struct file *file)
{
	pp_arena_destroy(file->arena);
}

static const char *messages(const struct file *file)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(file->diag, out, PP_DIAG_HUMAN, false);
	fclose(out);
	const char *kept = pp_arena_copy(file->arena, text, length);
	free(text);
	return kept;
}

static void assert_checked(const struct file *file)
{
	assert_non_null(file->csv);
	bool ok = pp_csv_check(file->arena, file->csv, file->schedule, file->diag) &&
	          (!file->csv->comms || pp_csv_check_messages(file->arena, file->csv, file->diag));
	if (!ok)
		print_error("%s", messages(file));
	assert_true(ok);
}

/* ---- tables ---------------------------------------------------------------------------------- */

enum { MOST_FIELDS = 10 };

/* The text up to the next separator, which is overwritten; NULL at the end. */
static char *next_part(char **at, char separator)
{
	char *start = *at, *end = start ? strchr(start, separator) : NULL;
	if (end)
		*end = '\0';
	*at = end ? end + 1 : NULL;
	return start;
}

/* Lines of a table, the first one left out: `visit` gets the fields of each. Returns their number. */
static size_t each_line(const char *name, void (*visit)(char **fields))
{
	struct pp_arena *arena = pp_arena_create(NULL);
	size_t length, count = 0;
	const char *text = text_of(arena, name, &length);
	char *at = pp_arena_copy(arena, text, length);
	for (char *line = next_part(&at, '\n'); (line = next_part(&at, '\n')) && *line; count++) {
		char *fields[MOST_FIELDS] = {0};
		for (size_t i = 0; i < MOST_FIELDS && line; i++)
			fields[i] = next_part(&line, '\t');
		visit(fields);
	}
	pp_arena_destroy(arena);
	return count;
}

static struct pp_order_times run(const struct file *file, uint64_t early)
{
	const struct pp_schedule *schedule = file->schedule;
	struct pp_order_stage *stages = PP_NEW_ARRAY(file->arena, struct pp_order_stage, schedule->stages);
	uint64_t *room = PP_NEW_ARRAY(file->arena, uint64_t, schedule->ranks);
	for (uint32_t s = 0; s < schedule->stages; s++)
		stages[s] =
		    (struct pp_order_stage){.rank = schedule->stage_rank[s], .ticks = {1, 2, 1, 1}, .held = 1, .early = early};
	for (uint32_t r = 0; r < schedule->ranks; r++)
		room[r] = PP_ROOM_UNLIMITED;
	struct pp_order_problem problem = {
	    schedule->ranks, schedule->stages, schedule->microbatches, stages, room, 1000, false, NULL};
	struct pp_order_times times;
	assert_true(pp_order_run(file->arena, &problem, schedule->rows, false, &times));
	return times;
}

static const char *peaks(const struct file *file, uint64_t early)
{
	struct pp_order_times times = run(file, early);
	const char *text = "";
	for (uint32_t r = 0; r < file->schedule->ranks; r++)
		text = pp_arena_printf(file->arena, "%s%s%llu", text, r ? "/" : "", (unsigned long long)times.rank[r].peak);
	return text;
}

/* file kind pp v m n_compute makespan peaks(B or W) peaks(B or I) */
static void visit_grid(char **fields)
{
	struct file file = open_file(fields[0]);
	assert_checked(&file);
	uint64_t actions = 0;
	for (uint32_t r = 0; r < file.schedule->ranks; r++)
		actions += file.schedule->rows[r].count;
	assert_int_equal(file.csv->ranks, atoi(fields[2]));
	assert_int_equal(file.csv->stages, atoi(fields[2]) * atoi(fields[3]));
	assert_int_equal(file.csv->microbatches, atoi(fields[4]));
	assert_int_equal(actions, atoi(fields[5]));
	assert_int_equal(run(&file, 0).makespan, atoi(fields[6]));
	assert_string_equal(peaks(&file, 0), fields[7]);
	assert_string_equal(peaks(&file, 1), fields[8]);
	close_file(&file);
}

static void every_grid_has_its_makespan_and_stashes(void **state)
{
	(void)state;
	assert_int_equal(each_line("MANIFEST.tsv", visit_grid), 145);
}

/* ---- messages -------------------------------------------------------------------------------- */

static const char *verdict(const struct file *file, enum pp_layout layout)
{
	return pp_csv_verdict_name[pp_csv_run(file->arena, file->csv, layout, file->diag)];
}

/* file rank pair dir edge */
static void visit_deferred(char **fields)
{
	struct file file = open_file(fields[0]);
	assert_checked(&file);
	assert_string_equal(verdict(&file, PP_LAYOUT_RANK), fields[1]);
	assert_string_equal(verdict(&file, PP_LAYOUT_PAIR), fields[2]);
	assert_string_equal(verdict(&file, PP_LAYOUT_DIRECTION), fields[3]);
	assert_string_equal(verdict(&file, PP_LAYOUT_EDGE), fields[4]);
	assert_string_equal(verdict(&file, PP_LAYOUT_CHANNEL), "ok");
	/* Each deadlock names its cycle. */
	const char *text = messages(&file);
	for (const char *at = text; (at = strstr(at, "error[V4]")); at++) {
		const char *next = strstr(at + 1, "error["), *cycle = strstr(at, " <- ");
		assert_non_null(cycle);
		assert_true(!next || cycle < next);
	}
	close_file(&file);
}

static void deferred_files_get_their_verdicts(void **state)
{
	(void)state;
	assert_int_equal(each_line("DEFER_EXPECT.tsv", visit_deferred), 11);
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), tail = strlen(end);
	return length >= tail && strcmp(text + length - tail, end) == 0;
}

static size_t each_file(const char *end, void (*visit)(const char *name))
{
	DIR *folder = opendir(FOLDER);
	size_t count = 0;
	assert_non_null(folder);
	for (struct dirent *entry; (entry = readdir(folder));) {
		if (!ends_with(entry->d_name, end))
			continue;
		visit(entry->d_name);
		count++;
	}
	closedir(folder);
	return count;
}

static void visit_messages(const char *name)
{
	struct file file = open_file(name);
	assert_checked(&file);
	for (int layout = PP_LAYOUT_CHANNEL; layout < PP_LAYOUT_BLOCKING; layout++)
		assert_int_equal(pp_csv_run(file.arena, file.csv, (enum pp_layout)layout, file.diag), PP_CSV_OK);
	close_file(&file);
}

static void other_files_end_in_every_layout(void **state)
{
	(void)state;
	assert_int_equal(each_file(".comms.csv", visit_messages), 112);
	assert_int_equal(each_file(".sendrecv.csv", visit_messages), 112);
}

static void visit_upstream(const char *name)
{
	struct file file = open_file(name);
	assert_non_null(file.csv);
	assert_false(pp_csv_check(file.arena, file.csv, file.schedule, file.diag));
	const char *text = messages(&file);
	assert_non_null(strstr(text, "error[E0652]"));
	assert_non_null(strstr(text, "PyTorch's Schedule1F1B numbers the forwards of its last rank one too high"));
	close_file(&file);
}

static void numbers_from_one_are_refused(void **state)
{
	(void)state;
	assert_int_equal(each_file(".upstream_raw.csv", visit_upstream), 2);
}

/* ---- planted faults -------------------------------------------------------------------------- */

/* The file with `from` replaced by `to`, once each; NULL ends the list. */
static struct file mutated(const char *name, const char *const *changes)
{
	struct file file = {.arena = pp_arena_create(NULL)};
	size_t length;
	char *text = text_of(file.arena, name, &length);
	for (; *changes; changes += 2) {
		char *at = strstr(text, changes[0]);
		assert_non_null(at);
		text = pp_arena_printf(file.arena, "%.*s%s%s", (int)(at - text), text, changes[1], at + strlen(changes[0]));
	}
	read_text(&file, name, text, strlen(text));
	assert_non_null(file.csv);
	assert_true(pp_csv_check(file.arena, file.csv, file.schedule, file.diag));
	return file;
}

static const struct {
	const char *what, *file, *changes[5];
	const char *message;  /* of pp_csv_check_messages, NULL: it finds nothing */
	const char *verdicts; /* channel edge direction pair rank */
} faults[] = {
    {"swapped RECVs",
     "1f1b_p2_m4.sendrecv.csv",
     {"1RECV_F0,1F0,1RECV_F1,1B0", "1RECV_F1,1RECV_F0,1F0,1B0", NULL},
     NULL,
     "mismatch mismatch mismatch mismatch mismatch"},
    {"a RECV too late for the SENDs of the other rank: they cross",
     "1f1b_p2_m2.sendrecv.csv",
     {"1RECV_F1,1B0,1SEND_B0,1F1", "1B0,1SEND_B0,1RECV_F1,1F1", NULL},
     NULL,
     "ok ok ok deadlock deadlock"},
    {"missing RECV",
     "1f1b_p2_m2.sendrecv.csv",
     {"1RECV_F1,", "", NULL},
     "csv row 2, cell 5: `1F1` receives no input",
     NULL},
    {"missing SEND",
     "1f1b_p2_m2.sendrecv.csv",
     {",0SEND_F1", "", NULL},
     "csv row 1, cell 3: `0F1` is never sent on",
     NULL},
    {"RECV after its use",
     "1f1b_p2_m2.sendrecv.csv",
     {"1RECV_F1,1B0,1SEND_B0,1F1", "1B0,1SEND_B0,1F1,1RECV_F1", NULL},
     "csv row 2, cell 6: `1RECV_F1` comes after what needs it, `1F1`",
     NULL},
    {"SEND before what it sends",
     "1f1b_p2_m2.sendrecv.csv",
     {"0F1,0SEND_F1", "0SEND_F1,0F1", NULL},
     "csv row 1, cell 3: `0SEND_F1` comes before what it sends, `0F1`",
     NULL},
    {"received twice",
     "1f1b_p2_m2.sendrecv.csv",
     {"1RECV_F1,", "1RECV_F1,1RECV_F1,", NULL},
     "csv row 2, cell 4: `1RECV_F1` is listed twice",
     NULL},
    {"to no stage",
     "1f1b_p2_m2.sendrecv.csv",
     {"1B1,", "1B1,1SEND_F1,", NULL},
     "csv row 2, cell 8: `1SEND_F1` has no other end",
     NULL},
    {"to the same rank",
     "zbv_p2_m4.sendrecv.csv",
     {"1F0,", "1F0,1SEND_F0,", NULL},
     "csv row 2, cell 3: `1SEND_F0` stays on its rank",
     NULL},
    {"blank cell",
     "1f1b_p2_m2.sendrecv.csv",
     {"1RECV_F1,1B0", "1RECV_F1,,1B0", NULL},
     "csv row 2, cell 4 is blank",
     NULL},
};

static void planted_faults_are_found(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		struct file file = mutated(faults[i].file, faults[i].changes);
		bool ok = pp_csv_check_messages(file.arena, file.csv, file.diag);
		const char *text = messages(&file);
		if (ok != !faults[i].message || (faults[i].message && !strstr(text, faults[i].message)))
			fail_msg("%s: expected %s, got %s", faults[i].what, faults[i].message ? faults[i].message : "none", text);
		const char *verdicts = "";
		for (int layout = PP_LAYOUT_CHANNEL; ok && layout < PP_LAYOUT_BLOCKING; layout++)
			verdicts = pp_arena_printf(file.arena, "%s%s%s", verdicts, layout ? " " : "",
			                           verdict(&file, (enum pp_layout)layout));
		if (ok)
			assert_string_equal(verdicts, faults[i].verdicts);
		close_file(&file);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_grid_has_its_makespan_and_stashes),
	    cmocka_unit_test(deferred_files_get_their_verdicts),
	    cmocka_unit_test(other_files_end_in_every_layout),
	    cmocka_unit_test(numbers_from_one_are_refused),
	    cmocka_unit_test(planted_faults_are_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
