/* Fuzz target of the profile reader: any bytes. What is accepted must print to text that is accepted and prints the
 * same. */
#include "round_trip.h"

#include "ir/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static char *print_profile(struct pp_arena *arena, const char *text, size_t length, size_t *printed_length)
{
	struct pp_json_reader reader = pp_json_read_begin(text, length);
	const struct pp_profile *profile = pp_profile_read(arena, &reader);
	if (!profile != reader.failed || (reader.failed && (reader.wrong_at > length || !reader.wrong[0])))
		abort();
	if (!profile)
		return NULL;
	char *printed = NULL;
	FILE *out = open_print(&printed, printed_length);
	pp_profile_print(profile, out);
	fclose(out);
	return printed;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	must_print_alike(arena, print_profile, print_profile, (const char *)bytes, length);
	pp_arena_destroy(arena);
	/* Any JSON at all can be skipped. */
	struct pp_json_reader reader = pp_json_read_begin((const char *)bytes, length);
	if (pp_json_skip(&reader) && pp_json_read_end(&reader) && (reader.failed || reader.depth))
		abort();
	return 0;
}
