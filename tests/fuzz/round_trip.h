/* What is accepted prints to a text that is accepted and prints the same. */
#ifndef PP_FUZZ_ROUND_TRIP_H
#define PP_FUZZ_ROUND_TRIP_H

#include "ir/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The printed form of a text, to be freed, or NULL where there were errors. */
typedef char *read_and_print(struct pp_arena *arena, const char *text, size_t length, size_t *printed_length);

static inline FILE *open_print(char **text, size_t *length)
{
	FILE *out = open_memstream(text, length);
	if (!out)
		abort();
	return out;
}

static inline void must_print_alike(struct pp_arena *arena, read_and_print *first, read_and_print *again,
                                    const char *text, size_t length)
{
	size_t once_length = 0, twice_length = 0;
	char *once = first(arena, text, length, &once_length);
	if (once) {
		char *twice = again(arena, once, once_length, &twice_length);
		if (!twice || twice_length != once_length || memcmp(once, twice, once_length) != 0)
			abort();
		free(twice);
	}
	free(once);
}

#endif
