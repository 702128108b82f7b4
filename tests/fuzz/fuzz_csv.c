/* Fuzz target of schedule files: any bytes, with today's letters and with the old ones. What is accepted must print to
 * a file that is accepted and prints the same, and its messages get a verdict in every layout of queues. */
#include "messages.h"
#include "round_trip.h"

#include "ir/csv_comms.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

/* The printed compute, or NULL when there were errors. */
static char *print_letters(struct pp_arena *arena, const char *text, size_t length, bool legacy, size_t *printed_length)
{
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	struct pp_csv *csv = pp_csv_read(arena, pp_sources_add(sources, "fuzz.csv", text, length), legacy, diag);
	struct pp_schedule *schedule = csv ? pp_csv_schedule(arena, csv) : NULL;
	bool good = csv && pp_csv_check(arena, csv, schedule, diag);
	if (good && csv->comms)
		good = pp_csv_check_messages(arena, csv, diag);
	if (good != pp_diag_ok(diag))
		abort();
	print_messages(diag);
	for (int layout = PP_LAYOUT_CHANNEL; good && csv->comms && layout < PP_LAYOUT_BLOCKING; layout++) {
		diag = pp_diag_create(arena, sources);
		if ((pp_csv_run(arena, csv, (enum pp_layout)layout, diag) == PP_CSV_OK) != pp_diag_ok(diag))
			abort();
		print_messages(diag);
	}
	if (!good)
		return NULL;
	pp_csv_aligned(arena, csv);
	char *printed = NULL;
	FILE *out = open_print(&printed, printed_length);
	pp_schedule_print(schedule, out);
	fclose(out);
	return printed;
}

static char *print_today(struct pp_arena *arena, const char *text, size_t length, size_t *printed_length)
{
	return print_letters(arena, text, length, false, printed_length);
}

static char *print_legacy(struct pp_arena *arena, const char *text, size_t length, size_t *printed_length)
{
	return print_letters(arena, text, length, true, printed_length);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	for (int legacy = 0; legacy < 2; legacy++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		const char *text = pp_arena_copy(arena, (const char *)bytes, length);
		pp_csv_looks_like(text, length);
		must_print_alike(arena, legacy ? print_legacy : print_today, print_today, text, length);
		pp_arena_destroy(arena);
	}
	return 0;
}
