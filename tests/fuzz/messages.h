/* Messages printed and thrown away: printing must not crash, whatever they are about. */
#ifndef PP_FUZZ_MESSAGES_H
#define PP_FUZZ_MESSAGES_H

#include "ir/diag.h"

#include <stdio.h>
#include <stdlib.h>

static inline void print_messages(const struct pp_diag *diag)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	if (!out)
		abort();
	pp_diag_print(diag, out, PP_DIAG_HUMAN, true);
	pp_diag_print(diag, out, PP_DIAG_JSON, false);
	fclose(out);
	free(text);
}

#endif
