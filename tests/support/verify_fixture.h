/* For tests of the verifier: a program, a collector, and what it printed. */
#ifndef PP_VERIFY_FIXTURE_H
#define PP_VERIFY_FIXTURE_H

#include "build_program.h"
#include "ir/diag.h"
#include "ir/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct bench {
	struct pp_arena *arena;
	struct pp_diag *diag;
	struct pp_stamp stamp;
	char *text; /* diagnostics so far; freed by bench_end */
};

static inline struct bench bench_begin(void)
{
	struct bench b = {.arena = pp_arena_create(NULL)};
	b.diag = pp_diag_create(b.arena, pp_sources_create(b.arena));
	return b;
}

static inline const char *bench_text(struct bench *b)
{
	size_t length;
	free(b->text);
	b->text = NULL;
	FILE *out = open_memstream(&b->text, &length);
	pp_diag_print(b->diag, out, PP_DIAG_HUMAN, false);
	fclose(out);
	return b->text;
}

static inline void bench_end(struct bench *b)
{
	free(b->text);
	pp_arena_destroy(b->arena);
}

/* Verified, with nothing to say. */
static inline void assert_accepted(struct bench *b, const struct pp_program *program)
{
	bool good = pp_verify(program, &b->stamp, b->diag);
	if (!good)
		fail_msg("rejected:\n%s", bench_text(b));
	assert_string_equal(bench_text(b), "");
}

/* Rejected with exactly this text. */
static inline void assert_rejected(struct bench *b, const struct pp_program *program, const char *expected)
{
	assert_false(pp_verify(program, &b->stamp, b->diag));
	assert_false(b->stamp.proven);
	assert_string_equal(bench_text(b), expected);
}

#endif
