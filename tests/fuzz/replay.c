/* Runs a fuzz target over files, so that a fixed corpus is part of the normal tests with any compiler. */
#include "ir/file.h"

#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int main(int count, char **paths)
{
	for (int i = 1; i < count; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct pp_status status = {0};
		char *text = NULL;
		size_t length = 0;
		if (!pp_file_read(arena, paths[i], &text, &length, &status)) {
			fprintf(stderr, "%s\n", status.text);
			pp_arena_destroy(arena);
			return 1;
		}
		LLVMFuzzerTestOneInput((const uint8_t *)text, length);
		pp_arena_destroy(arena);
	}
	printf("%d files\n", count - 1);
	return count > 1 ? 0 : 1;
}
