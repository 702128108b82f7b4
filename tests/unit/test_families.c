/* The families of the row library: makespan, span and activations in flight are those of their closed forms over many
 * ranks, microbatches and chunks, with and without transfers and with unequal F, I and W; where no form holds
 * (m < p) they can still be executed. Sources: the table in docs/schedules.md.
 *
 * With the argument `all` every p and m up to the largest is tried, else a part of them of each kind. */
#include "families_fixture.h"

/* Forwards in flight on each rank are at most, and with enough microbatches exactly, what `flight` says. */
typedef uint32_t (*flight_form)(uint32_t p, uint32_t v, uint32_t m, uint32_t r);
typedef uint64_t (*time_form)(uint32_t p, uint32_t v, uint32_t m, struct even_costs c);

struct family {
	const char *name;
	enum pp_place place;
	uint32_t first_v, last_v;
	bool (*holds)(uint32_t p, uint32_t v, uint32_t m); /* the forms below; elsewhere only valid */
	time_form makespan;
	flight_form flight;
	struct even_costs costs; /* of a chunk */
	bool at_most;            /* `flight` is only a limit */
	time_form span;          /* longest from first to last action of a rank; NULL: no form */
};

static bool always(uint32_t p, uint32_t v, uint32_t m)
{
	(void)p, (void)v, (void)m;
	return true;
}

static bool enough(uint32_t p, uint32_t v, uint32_t m)
{
	(void)v;
	return m >= p;
}

static bool whole_groups(uint32_t p, uint32_t v, uint32_t m)
{
	(void)v;
	return m % p == 0;
}

/* m >= 1.5 p: below, the first microbatches are back before the last ones are on their way. */
static bool half_as_many_again(uint32_t p, uint32_t v, uint32_t m)
{
	(void)v;
	return 2 * m >= 3 * p;
}

static bool two_rounds(uint32_t p, uint32_t v, uint32_t m)
{
	(void)v;
	return m >= 2 * p;
}

static bool half_groups(uint32_t p, uint32_t v, uint32_t m)
{
	(void)v;
	return m % ((p + 1) / 2) == 0 && m >= p;
}

static bool twice(uint32_t p, uint32_t v, uint32_t m)
{
	(void)v;
	return m + 1 >= 2 * p;
}

/* Largest of n = max(1, m div p) groups. */
static uint32_t group_of(uint32_t m, uint32_t p)
{
	uint32_t n = most(1, m / p);
	return (m + n - 1) / n;
}

/* ---- forms, costs are those of a chunk -------------------------------------------------------- */

/* (m+p-1)(F+B) of whole ranks: fused, all filled and drained once. */
static uint64_t fused_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return (uint64_t)(m * v + p - 1) * (c.forward + c.input + c.weight);
}

/* eager: hops are hidden behind the extra forwards, only the fill and the drain see them. */
static uint64_t eager_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return fused_time(p, v, m, c) + 2 * (uint64_t)(p - 1) * c.hop;
}

/* ZB-H1: (p-1)(F+I-W) of bubble, (p-1)F to begin with and (p-1)(I-W) later. */
static uint64_t h1_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return (uint64_t)m * v * (c.forward + c.input + c.weight) + (uint64_t)(p - 1) * (c.forward + c.input - c.weight);
}

/* ZB-H2: m(F+I+W) + (p-1)F. */
static uint64_t h2_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	(void)v;
	return (uint64_t)m * (c.forward + c.input + c.weight) + (uint64_t)(p - 1) * c.forward;
}

/* GIS: (p-1)(F+I)/v of bubble. */
static uint64_t gis_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return (uint64_t)m * v * (c.forward + c.input + c.weight) + (uint64_t)(p - 1) * (c.forward + c.input);
}

/* GIS-H: (p-g)(v-1) more slots of F+I-W. */
static uint64_t gis_h_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	uint32_t g = (p + 1) / 2;
	return gis_time(p, v, m, c) + (uint64_t)(p - g) * (v - 1) * (c.forward + c.input - c.weight);
}

/* ZB-V: m(F+I+W) of a whole rank + (p-1)F of a chunk; at F = I = W no rank idles once it has begun. */
static uint64_t zb_v_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return (uint64_t)m * v * (c.forward + c.input + c.weight) + (uint64_t)(p - 1) * c.forward;
}

/* DualPipe-V: pairs tie what they join together, which costs (p-1)I; 2m-p-1 of them in a row gain what each gains. */
static uint64_t dualpipe_v_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	uint64_t pair = c.forward + c.input + c.weight, gain = pair - pair * c.pair_permille / 1000;
	return zb_v_time(p, v, m, c) + (uint64_t)(p - 1) * c.input - (2 * (uint64_t)m - p - 1) * gain;
}

/* What transfers add, in hops: where the filling is ahead by enough they show at the ends only, otherwise each turn of
 * a rank that waits for an answer shows them once more. */
static uint64_t one_in_turn_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return fused_time(p, v, m, c) + (p > 1 ? (4 * p - 6 + 2 * (p - 1) * (m - p) / p) * c.hop : 0);
}

static uint64_t h1_hop_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return h1_time(p, v, m, c) + 4 * (uint64_t)(p - 1) * c.hop;
}

static uint64_t h2_hop_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return h2_time(p, v, m, c) + (uint64_t)(p - 1) * c.hop;
}

static uint64_t interleaved_hop_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return fused_time(p, v, m, c) + (p > 1 ? (4 * (uint64_t)p - 2) * c.hop : 0);
}

static uint64_t gis_hop_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return gis_time(p, v, m, c) + (p > 1 ? (3 * (uint64_t)p - 2) * c.hop : 0);
}

static uint64_t zb_v_hop_time(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return zb_v_time(p, v, m, c) + (p > 1 ? (5 * (uint64_t)p - 7) * c.hop : 0);
}

/* ZB-H2: (p-1)(F+I-2W) of bubble and both hops of the filling. */
static uint64_t h2_span(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	(void)v;
	return (uint64_t)m * (c.forward + c.input + c.weight) + (uint64_t)(p - 1) * (c.forward + c.input - 2 * c.weight) +
	       2 * (uint64_t)(p - 1) * c.hop;
}

static uint64_t zb_v_span(uint32_t p, uint32_t v, uint32_t m, struct even_costs c)
{
	return (uint64_t)m * v * (c.forward + c.input + c.weight) + (p > 1 ? (6 * (uint64_t)p - 8) * c.hop : 0);
}

static uint32_t interleaved_flight(uint32_t p, uint32_t v, uint32_t m, uint32_t r)
{
	return least(m * v, (v - 1) * group_of(m, p) + 2 * (p - 1 - r) + 1);
}

static uint32_t one_in_turn_flight(uint32_t p, uint32_t v, uint32_t m, uint32_t r)
{
	(void)v;
	return least(m, p - r);
}

static uint32_t all_flight(uint32_t p, uint32_t v, uint32_t m, uint32_t r)
{
	(void)p, (void)r;
	return m * v;
}

static uint32_t eager_flight(uint32_t p, uint32_t v, uint32_t m, uint32_t r)
{
	(void)v;
	return least(m, 2 * (p - r) - 1);
}

static uint32_t h1_flight(uint32_t p, uint32_t v, uint32_t m, uint32_t r)
{
	(void)r;
	return least(m * v, (v - 1) * group_of(m, p) + p);
}

static uint32_t h2_flight(uint32_t p, uint32_t v, uint32_t m, uint32_t r)
{
	(void)v, (void)r;
	return least(m, 2 * p - 1);
}

static uint32_t gis_flight(uint32_t p, uint32_t v, uint32_t m, uint32_t r)
{
	uint32_t n = (m + p - 1) / p, w = (m + n - 1) / n;
	return least(m * v, (v - 1) * w + p - r);
}

static uint32_t gis_h_flight(uint32_t p, uint32_t v, uint32_t m, uint32_t r)
{
	uint32_t w = group_of(m, (p + 1) / 2);
	return least(m * v, (v - 1) * w + p - r);
}

static uint32_t zb_v_flight(uint32_t p, uint32_t v, uint32_t m, uint32_t r)
{
	(void)v, (void)r;
	return least(2 * m, 2 * p);
}

static uint32_t dualpipe_v_flight(uint32_t p, uint32_t v, uint32_t m, uint32_t r)
{
	(void)v, (void)r;
	return least(2 * m, 2 * p + 1);
}

static const struct family families[] = {
    {"loopedbfs", PP_PLACE_LOOP, 1, 4, enough, fused_time, all_flight, {1, 1, 1, 0, 0}, false, NULL},
    {"loopedbfs", PP_PLACE_LOOP, 1, 3, enough, fused_time, all_flight, {5, 6, 4, 0, 0}, false, NULL},
    {"gpipe", PP_PLACE_LOOP, 1, 1, always, eager_time, all_flight, {10, 11, 7, 3, 0}, false, NULL},
    {"1f1b", PP_PLACE_LOOP, 1, 1, whole_groups, one_in_turn_time, one_in_turn_flight, {10, 10, 10, 1, 0}, false, NULL},
    {"eager_1f1b", PP_PLACE_LOOP, 1, 1, always, fused_time, eager_flight, {1, 1, 1, 0, 0}, false, NULL},
    {"eager_1f1b", PP_PLACE_LOOP, 1, 1, always, eager_time, eager_flight, {10, 10, 10, 3, 0}, false, NULL},
    {"eager_1f1b", PP_PLACE_LOOP, 1, 1, always, eager_time, eager_flight, {10, 11, 7, 1, 0}, false, NULL},
    {"zb_h1", PP_PLACE_LOOP, 1, 4, enough, h1_time, h1_flight, {1, 1, 1, 0, 0}, false, NULL},
    {"zb_h1", PP_PLACE_LOOP, 1, 1, enough, h1_time, h1_flight, {10, 11, 7, 0, 0}, false, NULL},
    {"zb_h2", PP_PLACE_LOOP, 1, 1, twice, h2_time, h2_flight, {1, 1, 1, 0, 0}, false, h2_span},
    {"zb_h2", PP_PLACE_LOOP, 1, 1, two_rounds, h2_hop_time, h2_flight, {10, 10, 10, 1, 0}, false, h2_span},
    {"zb_h1", PP_PLACE_LOOP, 1, 1, two_rounds, h1_hop_time, h1_flight, {10, 10, 10, 1, 0}, false, NULL},
    {"zb_h1", PP_PLACE_LOOP, 1, 1, two_rounds, h1_hop_time, h1_flight, {10, 11, 7, 1, 0}, false, NULL},
    {"loopedbfs", PP_PLACE_LOOP, 2, 2, two_rounds, eager_time, all_flight, {10, 10, 10, 1, 0}, false, NULL},
    {"interleaved",
     PP_PLACE_LOOP,
     2,
     2,
     whole_groups,
     interleaved_hop_time,
     interleaved_flight,
     {10, 10, 10, 1, 0},
     false,
     NULL},
    {"gis", PP_PLACE_LOOP, 2, 2, whole_groups, gis_hop_time, gis_flight, {10, 10, 10, 1, 0}, false, NULL},
    {"zb_v", PP_PLACE_V, 2, 2, two_rounds, zb_v_hop_time, zb_v_flight, {10, 10, 10, 1, 0}, false, zb_v_span},
    {"gis", PP_PLACE_LOOP, 2, 4, whole_groups, gis_time, gis_flight, {1, 1, 1, 0, 0}, false, NULL},
    {"gis", PP_PLACE_LOOP, 2, 4, whole_groups, gis_time, gis_flight, {10, 11, 7, 0, 0}, false, NULL},
    {"gis_h", PP_PLACE_LOOP, 2, 4, half_groups, gis_h_time, gis_h_flight, {1, 1, 1, 0, 0}, false, NULL},
    {"zb_v", PP_PLACE_V, 2, 2, half_as_many_again, zb_v_time, zb_v_flight, {1, 1, 1, 0, 0}, true, NULL},
    {"zb_v", PP_PLACE_V, 2, 2, twice, zb_v_time, zb_v_flight, {1, 1, 1, 0, 0}, false, NULL},
    {"dualpipe_v", PP_PLACE_V, 2, 2, two_rounds, dualpipe_v_time, dualpipe_v_flight, {1, 1, 1, 0, 1000}, false, NULL},
    {"dualpipe_v", PP_PLACE_V, 2, 2, two_rounds, dualpipe_v_time, dualpipe_v_flight, {10, 10, 10, 0, 800}, false, NULL},
    {"dualpipe_v", PP_PLACE_V, 2, 2, two_rounds, dualpipe_v_time, dualpipe_v_flight, {10, 10, 10, 0, 700}, false, NULL},
    {"dualpipe_v", PP_PLACE_V, 2, 2, two_rounds, zb_v_time, dualpipe_v_flight, {1, 1, 1, 0, 0}, false, NULL},
};

static void one_shape(const struct family *f, uint32_t p, uint32_t v, uint32_t m)
{
	struct expanded x = expand_family(
	    f->name,
	    (struct shape){.p = p, .v = v, .m = m, .place = f->place, .pair_cost = f->costs.pair_permille / 1000.0});
	struct pp_order_times times = even_times(&x, f->costs);
	for (uint32_t r = 0; r < p; r++)
		assert_int_equal(times.rank[r].peak_stashes, in_flight_of(&x, r));
	bool exact = f->holds(p, v, m);
	if (exact && times.makespan != f->makespan(p, v, m, f->costs))
		fail_msg("%s p=%u v=%u m=%u: makespan %llu, not %llu", f->name, p, v, m, (unsigned long long)times.makespan,
		         (unsigned long long)f->makespan(p, v, m, f->costs));
	if (exact && f->span && times.longest_span != f->span(p, v, m, f->costs))
		fail_msg("%s p=%u v=%u m=%u: span %llu, not %llu", f->name, p, v, m, (unsigned long long)times.longest_span,
		         (unsigned long long)f->span(p, v, m, f->costs));
	for (uint32_t r = 0; r < p; r++) {
		uint32_t got = times.rank[r].peak_stashes, wanted = f->flight(p, v, m, r);
		if (exact && !f->at_most ? got != wanted : got > wanted)
			fail_msg("%s p=%u v=%u m=%u: %u in flight on rank %u, not %u", f->name, p, v, m, got, r, wanted);
	}
	expanded_free(&x);
}

/* Few and many, even and odd, prime and not; whole groups, halves of them, and remainders. */
static bool in_part(uint32_t p, uint32_t m)
{
	return p <= 4 ? m <= 6 || m == 8 || m == 9 || m == 13 : p == 7 && (m == 6 || m == 8 || m % 7 == 0);
}

static void closed_forms(void **state)
{
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		for (uint32_t p = 1; p <= 7; p++)
			for (uint32_t v = families[i].first_v; v <= families[i].last_v; v++)
				for (uint32_t m = 1; m <= 22; m++)
					if (*(const bool *)*state || in_part(p, m))
						one_shape(&families[i], p, v, m);
}

/* `group = N`: whenever no group is smaller than half the ranks the order finishes, and holds no more than its groups
 * say; with smaller ones it may not, which is a cycle with a name. */
static void groups_of_ones_own(void **state)
{
	const bool all = *(const bool *)*state;
	static const char *const names[] = {"zb_h1", "gis", "gis_h"};
	for (uint32_t p = 2; p <= 8; p++)
		for (uint32_t n = (p + 1) / 2; n <= p; n++)
			for (uint32_t m = n; m <= 4 * n; m++) {
				bool in_part = p <= 5 && (m <= 2 * n || m == 4 * n);
				if ((m % n && m % n < (p + 1) / 2) || (!all && !in_part))
					continue;
				for (unsigned i = 0; i < 3; i++) {
					struct expanded x = expand_family(names[i], (struct shape){.p = p, .v = 2, .m = m, .group = n});
					struct pp_order_times times = even_times(&x, unit_costs);
					for (uint32_t r = 0; r < p; r++)
						assert_true(times.rank[r].peak_stashes <= n + p - (i ? r : 0));
					expanded_free(&x);
				}
			}
	struct expanded x = expand_named("gis_h", (struct shape){.p = 8, .v = 2, .m = 12, .group = 3});
	assert_false(x.ok);
	assert_non_null(strstr(expanded_messages(&x, PP_DIAG_SHORT), "[E0605]"));
	expanded_free(&x);
}

/* What a schedule cannot be used for is said with what to use instead. */
static void what_they_need(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		uint32_t v;
		const char *message, *help; /* NULL: none */
	} cases[] = {
	    {"eager_1f1b", 2, "`eager_1f1b` needs one stage per rank", "with several use interleaved"},
	    {"zb_h2", 2, "`zb_h2` needs one stage per rank", "with several use zb_h1, with two on a V zb_v"},
	    {"gis", 1, "`gis` needs vpp >= 2", "with one chunk it would be 1f1b in more pieces: use zb_h1"},
	    {"gis_h", 1, "`gis_h` needs vpp >= 2", "with one chunk it would be 1f1b in more pieces: use zb_h1"},
	    {"zb_v", 3, "`zb_v` needs two stages per rank", NULL},
	    {"dualpipe_v", 1, "`dualpipe_v` needs two stages per rank", NULL},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct expanded x = expand_named(cases[i].name, (struct shape){.p = 4, .v = cases[i].v, .m = 8});
		const char *help = cases[i].help ? pp_arena_printf(x.arena, "   = help: %s\n", cases[i].help) : "";
		const char *expected = pp_arena_printf(x.arena, "error[E0614]: %s\n%s", cases[i].message, help);
		assert_false(x.ok);
		assert_string_equal(expanded_messages(&x, PP_DIAG_HUMAN), expected);
		expanded_free(&x);
	}
}

/* W of a stage ascend in the microbatch, as its backwards do: the bits of a sum do not depend on the schedule. */
static void ascending_sums(void **state)
{
	const bool all = *(const bool *)*state;
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		for (uint32_t p = all ? 1 : 3; p <= (all ? 5 : 4); p++)
			for (uint32_t m = all ? 1 : 2; m <= 11; m += all ? 1 : 3) {
				const struct family *f = &families[i];
				struct expanded x =
				    expand_family(f->name, (struct shape){.p = p, .v = f->last_v, .m = m, .place = f->place});
				uint32_t *next = PP_NEW_ARRAY(x.arena, uint32_t, x.schedule.stages);
				for (uint32_t r = 0; r < p; r++)
					for (uint32_t a = 0; a < x.schedule.rows[r].count; a++) {
						const struct pp_action *action = &x.schedule.rows[r].actions[a];
						if (action->kind == PP_B || action->kind == PP_W)
							assert_int_equal(action->mb, next[action->stage]++);
					}
				expanded_free(&x);
			}
}

int main(int argc, char **argv)
{
	bool all = argc > 1 && strcmp(argv[1], "all") == 0;
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_prestate(closed_forms, &all),
	    cmocka_unit_test_prestate(groups_of_ones_own, &all),
	    cmocka_unit_test(what_they_need),
	    cmocka_unit_test_prestate(ascending_sums, &all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
