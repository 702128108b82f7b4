/* Fuzz target of the profile reader: any bytes. What is accepted must print to text that is accepted and prints the
 * same. */
#include "ir/profile.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static char *read_and_print(struct pp_arena *arena, const char *text, size_t length, size_t *printed_length)
{
	struct pp_json_reader reader = pp_json_read_begin(text, length);
	const struct pp_profile *profile = pp_profile_read(arena, &reader);
	if (!profile != reader.failed || (reader.failed && (reader.wrong_at > length || !reader.wrong[0])))
		abort();
	if (!profile)
		return NULL;
	char *printed = NULL;
	FILE *out = open_memstream(&printed, printed_length);
	if (!out)
		abort();
	pp_profile_print(profile, out);
	fclose(out);
	return printed;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	size_t once_length = 0, twice_length = 0;
	char *once = read_and_print(arena, (const char *)bytes, length, &once_length);
	if (once) {
		char *twice = read_and_print(arena, once, once_length, &twice_length);
		if (!twice || twice_length != once_length || memcmp(once, twice, once_length) != 0)
			abort();
		free(twice);
	}
	free(once);
	pp_arena_destroy(arena);
	/* Any JSON at all can be skipped. */
	struct pp_json_reader reader = pp_json_read_begin((const char *)bytes, length);
	if (pp_json_skip(&reader) && pp_json_read_end(&reader) && (reader.failed || reader.depth))
		abort();
	return 0;
}
