/* Random specs over every policy: each is built into a proven program that keeps its bounds and takes the time of its
 * order, or refused with a message about the spec.
 *
 *     random_specs [--from=N] [--count=N]     seeds N, N + 1, …; what went wrong, and sums
 *     random_specs --list …                   besides, what became of each
 *     random_specs --quick …                  few of the searches, which take longest
 *     random_specs --advice …                 bounds on memory, smaller and larger: what a refusal says to be enough
 * is, and what fits in little memory fits in more random_specs --print=SEED [--train]     the text of one; --train: of
 * one that can be trained */
#include "draw.h"

#include "compiler/library.h"
#include "compiler/pass.h"
#include "ir/order_program.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CODES_MAX = 32 };

struct tally {
	bool list;
	uint64_t specs, built, bounded, kept, exact, failures;
	uint64_t advised;             /* refusals that named what is enough */
	const char *codes[CODES_MAX]; /* of refusals */
	uint64_t refusals[CODES_MAX];
	struct {
		uint64_t specs, built;
	} policy[64];
};

static volatile sig_atomic_t current;

/* A crash says which spec it was. */
static void crashed(int signal_number)
{
	char text[64] = "random_specs: crash at seed ";
	size_t length = strlen(text);
	char digits[24];
	size_t count = 0;
	for (uint32_t seed = (uint32_t)current; count == 0 || seed; seed /= 10)
		digits[count++] = (char)('0' + seed % 10);
	while (count)
		text[length++] = digits[--count];
	text[length++] = '\n';
	ssize_t written = write(STDERR_FILENO, text, length);
	(void)written;
	signal(signal_number, SIG_DFL);
	raise(signal_number);
}

static const char *text_of(struct pp_arena *arena, const struct draw *draw, uint64_t bound)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	draw_print(*draw, bound, out);
	fclose(out);
	const char *copy = pp_arena_copy(arena, text, length);
	free(text);
	return copy;
}

static bool compile(struct pp_arena *arena, const struct draw *draw, uint64_t bound, struct pp_unit *unit)
{
	const char *text = text_of(arena, draw, bound);
	*unit = (struct pp_unit){.arena = arena,
	                         .strings = pp_strtab_create(arena),
	                         .sources = pp_sources_create(arena),
	                         .tool_version = "test",
	                         .lowering = (enum pp_lowered)draw->lowering};
	unit->diag = pp_diag_create(arena, unit->sources);
	unit->options.shipped = pp_library;
	unit->options.shipped_count = pp_library_count;
	unit->source = pp_sources_add(unit->sources, "x.pipe", text, strlen(text));
	return pp_compile(unit, PP_PASS_asserts, NULL, NULL);
}

/* ---- what a built program must hold ---------------------------------------------------------- */

static bool same_order(struct pp_arena *arena, const struct pp_unit *unit)
{
	const struct pp_row *rows = pp_order_rows_of(arena, unit->program, pp_program_find(unit->program, "train"));
	for (uint32_t r = 0; r < unit->program->ranks; r++) {
		const struct pp_row *wanted = &unit->schedule.rows[r];
		if (rows[r].count != wanted->count)
			return false;
		for (uint32_t i = 0; i < wanted->count; i++) {
			const struct pp_action *a = &wanted->actions[i], *b = &rows[r].actions[i];
			if (a->stage != b->stage || a->mb != b->mb || a->kind != b->kind || a->paired != b->paired)
				return false;
		}
	}
	return true;
}

/* Does every message start on its way when its value is made? What the first of a pair makes is there when the second
 * ends. */
static bool flows(struct pp_arena *arena, const struct pp_program *program, const struct pp_sim *sim)
{
	size_t values = (size_t)program->stage_count * program->microbatches;
	for (uint32_t r = 0; r < program->ranks; r++) {
		const struct pp_stream *stream = &pp_program_find(program, "train")->streams[r];
		uint64_t *made[PP_VALUE_COUNT] = {PP_NEW_ARRAY(arena, uint64_t, values), PP_NEW_ARRAY(arena, uint64_t, values)};
		uint64_t *half = NULL;
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *instr = &stream->items[i];
			size_t value = (size_t)instr->stage * program->microbatches + instr->mb;
			bool makes = instr->op == PP_OP_FWD || instr->op == PP_OP_BWD || instr->op == PP_OP_BWDI;
			uint64_t *at = makes ? &made[instr->op == PP_OP_FWD ? PP_ACT : PP_GRAD][value] : NULL;
			if (at)
				*at = sim->instr[r][i].end;
			if (makes && half)
				*half = *at;
			if (makes || instr->op == PP_OP_BWDW)
				half = instr->flags & PP_PAIR ? at : NULL;
			if (instr->op == PP_OP_SEND && sim->instr[r][i].start != made[program->channels[instr->a[0]].kind][value])
				return false;
		}
	}
	return true;
}

/* NULL: all is well. *exact: the program takes the time of its order to the tick. */
static const char *check_built(struct pp_arena *arena, const struct pp_unit *unit, const struct draw *draw,
                               uint64_t bound, bool *exact)
{
	const struct pp_program *program = unit->program;
	struct pp_sim sim;
	struct pp_order_times times;
	if (!program->stamp.proven || !(program->stamp.layouts & 1u << PP_LAYOUT_CHANNEL))
		return "not proven";
	if (draw->lowering != PP_LOWERED_FREE && program->stamp.layouts != (1u << PP_LAYOUT_COUNT) - 1)
		return "not proven for every queue layout";
	for (uint32_t r = 0; r < program->ranks; r++)
		if (bound && program->rank[r].arena_bytes > bound)
			return "above its bound on memory";
	if (!same_order(arena, unit))
		return "its streams have another order than its schedule";
	if (!pp_simulate(arena, program, pp_program_find(program, "train"), PP_LAYOUT_CHANNEL, true, &sim))
		return "the simulator does not finish";
	const struct pp_order_problem *problem = pp_order_of_program(arena, program);
	if (!pp_order_run(arena, problem, unit->schedule.rows, false, &times))
		return "its order does not finish";
	/* a rank may clear a gradient before anything else */
	uint64_t start = sim.rank[program->stages[0].rank].first;
	*exact = times.makespan == sim.makespan - start && times.longest_span == sim.longest_span;
	if (times.makespan > sim.makespan)
		return "the simulator is faster than the order";
	if (!*exact && draw->lowering != PP_LOWERED_START && flows(arena, program, &sim))
		return "the simulator is slower than the order, and no message waits for its channel";
	return NULL;
}

/* ---- one spec -------------------------------------------------------------------------------- */

/* What a user can mend. E0605 and refusals of the verifier would be ours. */
static bool may_be_refused(const char *code)
{
	static const char *const codes[] = {"E0407", "E0408", "E0501", "E0614", "E0630", "E0640", "E0670", "E0671"};
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		if (strcmp(code, codes[i]) == 0)
			return true;
	return false;
}

static const char *first_error(struct pp_arena *arena, const struct pp_diag *diag)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(diag, out, PP_DIAG_HUMAN, false);
	fclose(out);
	const char *at = strstr(text, "error[");
	const char *code = at ? pp_arena_copy(arena, at + 6, strcspn(at + 6, "]")) : "none";
	free(text);
	return code;
}

static void count_refusal(struct tally *tally, const char *code)
{
	size_t i = 0;
	while (i + 1 < CODES_MAX && tally->codes[i] && strcmp(tally->codes[i], code) != 0)
		i++;
	if (!tally->codes[i])
		tally->codes[i] = strdup(code);
	tally->refusals[i]++;
}

static void fail_at(struct tally *tally, uint64_t seed, const struct draw *draw, const char *what,
                    const struct pp_unit *unit)
{
	printf("seed %" PRIu64 " (%s, p %" PRIu32 ", m %" PRIu32 "): %s\n", seed, draw->policy->name, draw->p, draw->m,
	       what);
	pp_diag_print(unit->diag, stdout, PP_DIAG_HUMAN, false);
	tally->failures++;
}

static uint64_t most_bytes(const struct pp_program *program)
{
	uint64_t most = 0;
	for (uint32_t r = 0; r < program->ranks; r++)
		most = program->rank[r].arena_bytes > most ? program->rank[r].arena_bytes : most;
	return most;
}

static void try_spec(uint64_t seed, struct tally *tally)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct draw draw = draw_begin(seed, false);
	struct pp_unit unit;
	uint64_t bound = 0;
	bool exact = false;
	size_t policy = (size_t)(draw.policy - pp_policies);
	current = (sig_atomic_t)seed;
	bool built = compile(arena, &draw, 0, &unit);
	if (built && draw.wants_bound) {
		const char *wrong = check_built(arena, &unit, &draw, 0, &exact);
		if (wrong)
			fail_at(tally, seed, &draw, wrong, &unit);
		bound = most_bytes(unit.program) / 1000 * draw.bound_share + 1;
		built = compile(arena, &draw, bound, &unit);
		tally->bounded++;
		tally->kept += built;
	}
	tally->specs++;
	tally->policy[policy].specs++;
	if (tally->list)
		printf("seed %" PRIu64 " %s p %" PRIu32 " m %" PRIu32 " bound %" PRIu64 ": %s\n", seed, draw.policy->name,
		       draw.p, draw.m, bound, built ? "built" : first_error(arena, unit.diag));
	if (built) {
		const char *wrong = check_built(arena, &unit, &draw, bound, &exact);
		tally->built++;
		tally->policy[policy].built++;
		tally->exact += exact;
		if (wrong)
			fail_at(tally, seed, &draw, wrong, &unit);
	} else {
		const char *code = first_error(arena, unit.diag);
		count_refusal(tally, code);
		if (!may_be_refused(code))
			fail_at(tally, seed, &draw, "refused as if it were wrong in itself", &unit);
	}
	pp_arena_destroy(arena);
}

/* ---- bounds that are too small --------------------------------------------------------------- */

/* What the first message that says so calls enough; 0: none does. */
static uint64_t advice_of(const struct pp_diag *diag)
{
	static const char *const forms[] = {"`memory <= ", "`gpu { memory = "};
	char *text = NULL;
	size_t length = 0;
	uint64_t bytes = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(diag, out, PP_DIAG_HUMAN, false);
	fclose(out);
	for (size_t i = 0; i < 2 && bytes == 0; i++) {
		const char *at = strstr(text, forms[i]);
		if (at && sscanf(at + strlen(forms[i]), "%" SCNu64 "B", &bytes) != 1)
			bytes = 0;
	}
	free(text);
	return bytes;
}

/* Whether the spec is built under a bound, and then within it. */
static bool builds(uint64_t seed, const struct draw *draw, uint64_t bound, struct tally *tally, uint64_t *advice)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_unit unit;
	bool built = compile(arena, draw, bound, &unit);
	tally->bounded++;
	tally->kept += built;
	*advice = built ? 0 : advice_of(unit.diag);
	if (built && most_bytes(unit.program) > bound)
		fail_at(tally, seed, draw, "above its bound on memory", &unit);
	pp_arena_destroy(arena);
	return built;
}

static void fail_under(struct tally *tally, uint64_t seed, const struct draw *draw, const char *what, uint64_t bound,
                       uint64_t other)
{
	printf("seed %" PRIu64 " (%s, p %" PRIu32 ", m %" PRIu32 "): %s (%" PRIu64 ", %" PRIu64 ")\n", seed,
	       draw->policy->name, draw->p, draw->m, what, bound, other);
	tally->failures++;
}

static void try_bounds(uint64_t seed, struct tally *tally)
{
	static const uint64_t permille[] = {300, 500, 700, 850, 950, 1000, 1010, 1070};
	struct draw draw = draw_begin(seed, false);
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_unit unit;
	current = (sig_atomic_t)seed;
	uint64_t full = compile(arena, &draw, 0, &unit) ? most_bytes(unit.program) : 0, least = 0, advice, again;
	pp_arena_destroy(arena);
	tally->specs++;
	tally->built += full > 0;
	for (size_t i = 0; full && i < sizeof permille / sizeof *permille; i++) {
		uint64_t bound = full / 1000 * permille[i] + 1;
		if (builds(seed, &draw, bound, tally, &advice)) {
			least = least && least < bound ? least : bound;
			continue;
		}
		if (least && least < bound)
			fail_under(tally, seed, &draw, "refused though less memory was enough", bound, least);
		if (advice == 0)
			fail_under(tally, seed, &draw, "refused without saying what is enough", bound, 0);
		if (advice == 0)
			continue;
		tally->advised++;
		if (!builds(seed, &draw, advice, tally, &again))
			fail_under(tally, seed, &draw, "what was called enough is not", bound, advice);
		least = least && least < advice ? least : advice;
		full = advice > full ? advice : full;
	}
}

static void print_tally(const struct tally *tally)
{
	for (size_t i = 0; i < pp_policy_count; i++)
		if (tally->policy[i].specs)
			printf("%-12s %5" PRIu64 " specs, %5" PRIu64 " built\n", pp_policies[i].name, tally->policy[i].specs,
			       tally->policy[i].built);
	printf("%" PRIu64 " specs: %" PRIu64 " built and proven, %" PRIu64
	       " of them in exactly the time of their order; %" PRIu64 " bounds on memory, %" PRIu64 " met; refused:",
	       tally->specs, tally->built, tally->exact, tally->bounded, tally->kept);
	for (size_t i = 0; i < CODES_MAX && tally->codes[i]; i++)
		printf(" %s %" PRIu64, tally->codes[i], tally->refusals[i]);
	if (tally->advised)
		printf("; %" PRIu64 " told what is enough", tally->advised);
	printf("; %" PRIu64 " failures\n", tally->failures);
}

int main(int argc, char **argv)
{
	uint64_t from = 1, count = 100, seed = 0;
	bool print = false, trains = false, list = false, quick = false, advice = false;
	for (int i = 1; i < argc; i++) {
		if (sscanf(argv[i], "--from=%" SCNu64, &from) == 1 || sscanf(argv[i], "--count=%" SCNu64, &count) == 1)
			continue;
		if (sscanf(argv[i], "--print=%" SCNu64, &seed) == 1)
			print = true;
		else if (strcmp(argv[i], "--train") == 0)
			trains = true;
		else if (strcmp(argv[i], "--list") == 0)
			list = true;
		else if (strcmp(argv[i], "--quick") == 0)
			quick = true;
		else if (strcmp(argv[i], "--advice") == 0)
			advice = true;
		else
			return fprintf(stderr, "random_specs: unknown option %s\n", argv[i]), 2;
	}
	static struct tally tally;
	tally.list = list;
	if (print) {
		draw_print(draw_begin(seed, trains), 0, stdout);
		return 0;
	}
	signal(SIGABRT, crashed);
	signal(SIGSEGV, crashed);
	for (uint64_t i = 0; i < count; i++)
		if (!quick || (from + i) % 64 == 0 || strcmp(draw_begin(from + i, false).policy->name, "search") != 0)
			(advice ? try_bounds : try_spec)(from + i, &tally);
	print_tally(&tally);
	for (size_t i = 0; i < CODES_MAX; i++)
		free((char *)(uintptr_t)tally.codes[i]);
	return tally.failures != 0;
}
