/* V11 where bodies post collectives: their communicator is beside that of the stream's posts over tp, as NCCL has it.
 * The program is tests/verify/accepted_tensor.pps with other lines. */
#include "golden.h"

#include "ir/diag.h"
#include "ir/grid.h"
#include "ir/program_text.h"
#include "ir/verify.h"

#include <stdio.h>

#define DEVICE "device 0 capacity 4294967296 arena 8448 static 6912 live 1536 sms 32 "

/* Lines that begin so, and what stands there instead. */
struct change {
	const char *line, *becomes;
};

static const struct change *change_of(const struct change *changes, const char *line)
{
	for (; changes->line; changes++)
		if (strncmp(line, changes->line, strlen(changes->line)) == 0)
			return changes;
	return NULL;
}

static const char *change_lines(struct pp_arena *arena, const struct change *changes)
{
	size_t length;
	const char *line = golden_read(arena, PP_SOURCE_DIR "/tests/verify/accepted_tensor.pps", &length);
	const char *text = "", *end;
	for (; (end = strchr(line, '\n')); line = end + 1) {
		const struct change *change = change_of(changes, line);
		text = change ? pp_arena_printf(arena, "%s%s", text, change->becomes)
		              : pp_arena_printf(arena, "%s%.*s\n", text, (int)(end - line), line);
	}
	return text;
}

/* What V11 says of it; "" where it holds. The group that bodies have their thread blocks from. */
static const char *judge(struct pp_arena *arena, const struct change *changes, uint32_t *of_bodies)
{
	const char *text = change_lines(arena, changes);
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	const struct pp_program *program =
	    pp_program_read(arena, pp_sources_add(sources, "p.pps", text, strlen(text)), diag);
	if (program) {
		*of_bodies = pp_grid_of_bodies(program);
		bool good = pp_verify_residency(program, diag);
		assert_int_equal(good, pp_diag_errors(diag) == 0);
	}
	char *printed = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&printed, &size);
	pp_diag_print(diag, out, PP_DIAG_HUMAN, false);
	fclose(out);
	const char *copy = pp_arena_copy(arena, printed, size);
	free(printed);
	return copy;
}

struct verdict {
	struct change changes[6];
	uint32_t of_bodies;
	const char *said[2]; /* parts of it; NULL: nothing is said */
};

/* A sum over tp outstanding while the forward runs. */
#define ACROSS                                                                                                         \
	{                                                                                                                  \
		"    fwd s0 m0 ", "    coll k4 g0 allreduce norms.23 norms.23 f64*11\n"                                        \
		                  "    fwd s0 m0 - aux.27 - stash.26\n"                                                        \
		                  "    waitc k4\n"                                                                             \
	}
#define WITHOUT_GROUP                                                                                                  \
	{"group ", ""}, {"    coll ", ""},                                                                                 \
	{                                                                                                                  \
		"    waitc ", ""                                                                                               \
	}

static const struct verdict verdicts[] = {
    {{{"device ", DEVICE "post_sms 8\n"}, {"group ", "group g0 tp ctas 4\n"}, ACROSS}, 0, {NULL}},
    {{{"device ", DEVICE "post_sms 7\n"}, {"group ", "group g0 tp ctas 4\n"}, ACROSS},
     0,
     {"`fwd s0 m0` needs 8 thread blocks for posts outstanding together, of 7 that they may take\n",
      "note: by communicator: g0 (tp) 4, bodies 4\n"}},
    /* of several groups along tp the largest */
    {{{"device ", DEVICE "post_sms 7\n"}, {"group ", "group g0 tp ctas 2\ngroup g1 tp ctas 8\ngroup g2 tp ctas 4\n"}},
     1,
     {"`fwd s0 m0` needs 8 thread blocks for posts outstanding together, of 7 that they may take\n",
      "note: by communicator: bodies 8\n"}},
    {{{"device ", DEVICE "post_sms 8\n"}, {"group ", "group g0 tp ctas 2\ngroup g1 tp ctas 8\ngroup g2 tp ctas 4\n"}},
     1,
     {NULL}},
    /* no group that limits them */
    {{{"device ", DEVICE "post_sms 8\n"}, WITHOUT_GROUP},
     PP_NULL,
     {"runs a body with collectives over tp, and no group along tp says `ctas`: they may take any number of thread "
      "blocks\n",
      "help: say `ctas` on a group along tp, or leave out the device's `post_sms`\n"}},
    {{{"device ", DEVICE "post_sms 8\n"}, {"group ", "group g0 tp\n"}}, 0, {"and no group along tp says `ctas`", ""}},
    {{WITHOUT_GROUP}, PP_NULL, {NULL}},
};

static void bodies_have_a_communicator_of_their_own(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		const struct verdict *verdict = &verdicts[i];
		uint32_t of_bodies = 0;
		const char *said = judge(arena, verdict->changes, &of_bodies);
		assert_int_equal(of_bodies, verdict->of_bodies);
		if (!verdict->said[0])
			assert_string_equal(said, "");
		for (unsigned part = 0; part < 2 && verdict->said[0]; part++)
			if (!strstr(said, verdict->said[part]))
				fail_msg("program %zu: want \"%s\" in:\n%s", i, verdict->said[part], said);
		pp_arena_destroy(arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(bodies_have_a_communicator_of_their_own)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
