/* Resolving: whole specs against goldens, what is refused, origins, metric asserts, options, ranges, hostile texts. */
#include "resolve_fixture.h"

#include <glob.h>
#include <unistd.h>

/* A spec that compiles, with room for more attributes; later lines win nothing, each name stands once. */
#define MODEL "model g { hidden = 64  heads = 4  layers = 8  vocab = 256  seq = 32 }\n"
#define REST "cluster c { gpus = 4 }\nparallel { pp = 4 }\nschedule 1f1b\ntrain { microbatches = 8 }\n"

static const char *file_text(struct pp_arena *arena, const char *path)
{
	size_t length = 0;
	return golden_read(arena, pp_arena_printf(arena, "%s/%s", PP_SOURCE_DIR, path), &length);
}

static void assert_spec(const char *path, const char *options, const char *golden)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct resolved r = resolve_named(path, pp_arena_printf(arena, "%s%s", options, file_text(arena, path)));
	if (!r.ok)
		fail_msg("%s: %s", path, messages_text(&r.parsed, PP_DIAG_HUMAN));
	golden_check(arena, pp_arena_printf(arena, "%s/tests/golden/spec/%s.spec", PP_SOURCE_DIR, golden), spec_text(&r));
	resolved_free(&r);
	pp_arena_destroy(arena);
}

static void specs_that_compile(void **state)
{
	(void)state;
	assert_spec("tests/data/specs/1_minimal.pipe", "", "1_minimal");
	assert_spec("tests/data/specs/4_explicit.pipe", "", "4_explicit");
	assert_spec("tests/data/specs/5_zero_bubble.pipe", "# options: --schedule h1_rows -D pp=8\n", "5_zero_bubble");
	assert_spec("samples/custom_costs.pipe", "", "custom_costs");
	assert_spec("samples/gpt2_small.pipe", "", "gpt2_small");
	assert_spec("samples/tied.pipe", "", "tied");
	assert_spec("samples/llama.pipe", "", "llama");
	assert_spec("samples/llama_tp.pipe", "# options: -D tp=4\n", "llama_tp");
	assert_spec("samples/llama.pipe",
	            "# options: --set model.kind=gpt2 --set model.pos=rope --set model.qk_norm=true\n", "llama_as_gpt2");
	assert_spec("tests/data/specs/llama_mixed.pipe", "", "llama_mixed");
	assert_spec("samples/demo.pipe", "", "demo");
	assert_spec("samples/minimal.pipe",
	            "# options: --set run.eval_data=\"held.bin\" --set run.eval_every=5 --set run.eval_steps=7\n",
	            "evaluation");
}

/* One clear message for each feature, and nothing else. */
static void specs_that_wait(void **state)
{
	(void)state;
	static const char *const names[] = {"2_gpt2_hf", "3_interleaved", "6_hetero_search", "7_gpt3_175b",
	                                    "8_deepseek_v3"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		const char *path = pp_arena_printf(arena, "tests/data/specs/%s.pipe", names[i]);
		struct resolved r = resolve_named(path, file_text(arena, path));
		assert_false(r.ok);
		golden_check(arena, pp_arena_printf(arena, "%s/tests/golden/spec/%s.messages", PP_SOURCE_DIR, names[i]),
		             messages_text(&r.parsed, PP_DIAG_SHORT));
		resolved_free(&r);
		pp_arena_destroy(arena);
	}
}

/* tests/diag/NAME.pipe against NAME.expected, for all but the messages of the grammar. */
static void messages(void **state)
{
	(void)state;
	glob_t files;
	assert_int_equal(glob(PP_SOURCE_DIR "/tests/diag/[EW]0*.pipe", 0, NULL, &files), 0);
	assert_true(files.gl_pathc >= 40);
	for (size_t i = 0; i < files.gl_pathc; i++) {
		const char *slash = strrchr(files.gl_pathv[i], '/');
		if (strncmp(slash, "/E000", 5) == 0)
			continue;
		struct pp_arena *arena = pp_arena_create(NULL);
		size_t length = 0;
		const char *text = golden_read(arena, files.gl_pathv[i], &length);
		struct resolved r = resolve_named(slash + 1, text);
		const char *stem = pp_arena_copy(arena, files.gl_pathv[i], strlen(files.gl_pathv[i]) - strlen(".pipe"));
		golden_check(arena, pp_arena_printf(arena, "%s.expected", stem), messages_text(&r.parsed, PP_DIAG_HUMAN));
		resolved_free(&r);
		pp_arena_destroy(arena);
	}
	globfree(&files);
}

static const struct pp_setting *find_setting(const struct resolved *r, const char *block, const char *attribute)
{
	for (size_t i = 0; i < r->out.setting_count; i++)
		if (strcmp(r->out.settings[i].block, block) == 0 && strcmp(r->out.settings[i].attribute, attribute) == 0)
			return &r->out.settings[i];
	fail_msg("no setting %s.%s", block, attribute);
	return NULL;
}

static void assert_setting(struct resolved *r, const char *block, const char *attribute, enum pp_origin origin,
                           const char *value)
{
	const struct pp_setting *setting = find_setting(r, block, attribute);
	assert_int_equal(setting->origin, origin);
	assert_string_equal(pp_datum_text(r->parsed.arena, &setting->value), value);
}

static void origins(void **state)
{
	(void)state;
	struct resolved r =
	    resolve_text("# options: -D n=8 --set train.microbatch=2\nparam n : int = 4\n" MODEL "cluster c { gpus = n }\n"
	                 "parallel { pp = cluster.gpus }\nschedule 1f1b\ntrain { microbatches = 2 * parallel.pp }\n");
	assert_true(r.ok);
	assert_setting(&r, "param", "n", PP_ORIGIN_DEFINE, "8");
	assert_setting(&r, "train", "microbatch", PP_ORIGIN_SET, "2");
	assert_setting(&r, "train", "microbatches", PP_ORIGIN_FILE, "16");
	assert_setting(&r, "cluster.gpu", "memory", PP_ORIGIN_DEFAULT, "4GiB");
	assert_setting(&r, "model", "ffn", PP_ORIGIN_DERIVED, "256");
	assert_int_equal(r.out.spec.train.microbatch, 2);
	assert_int_equal(r.out.spec.parallel.pp, 8);
	resolved_free(&r);
}

/* `gpu = NAME` gives what the cluster's own block does not say; --set may choose another. */
static void named_gpus(void **state)
{
	(void)state;
	static const char gpus[] = "gpu small { memory = 1GiB  bandwidth = 1GB/s  flops { fp32 = 1TFLOPS } }\n"
	                           "gpu large { memory = 8GiB  bandwidth = 8GB/s  flops { fp32 = 8TFLOPS } }\n" MODEL
	                           "cluster c { gpus = 4  gpu = small  gpu { memory = 2GiB  flops { bf16 = 3TFLOPS } } }\n"
	                           "parallel { pp = 4 }\nschedule 1f1b\ntrain { microbatches = 8 }\n";
	static const struct {
		const char *options, *memory, *bandwidth, *fp32;
	} cases[] = {
	    {"", "2GiB", "1GB/s", "1TFLOPS"},
	    {"# options: --set cluster.gpu=large\n", "2GiB", "8GB/s", "8TFLOPS"},
	    {"# options: --set cluster.gpu.bandwidth=4GB/s --set cluster.gpu=large\n", "2GiB", "4GB/s", "8TFLOPS"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct resolved r = resolve_text(pp_arena_printf(arena, "%s%s", cases[i].options, gpus));
		assert_true(r.ok);
		assert_setting(&r, "cluster.gpu", "memory", PP_ORIGIN_FILE, cases[i].memory);
		assert_setting(&r, "cluster.gpu", "bandwidth", i == 2 ? PP_ORIGIN_SET : PP_ORIGIN_FILE, cases[i].bandwidth);
		assert_setting(&r, "cluster.gpu.flops", "fp32", PP_ORIGIN_FILE, cases[i].fp32);
		assert_setting(&r, "cluster.gpu.flops", "bf16", PP_ORIGIN_FILE, "3TFLOPS");
		resolved_free(&r);
		pp_arena_destroy(arena);
	}
}

static void metric_asserts(void **state)
{
	(void)state;
	struct resolved r =
	    resolve_text(MODEL REST "assert bubble <= 0.30, \"pipeline idles too much\"\nassert peak_memory < 1GiB\n"
	                            "assert time_per_step < 5ms and parallel.pp == 4\n");
	assert_true(r.ok);
	assert_int_equal(r.out.assert_count, 3);
	struct pp_metrics metrics = {.bubble = 1.0 / 3.0, .time_per_step = 0.004, .peak_memory = 5e8};
	assert_false(pp_asserts_check(r.parsed.arena, &r.out, &metrics, r.parsed.diag));
	assert_string_equal(
	    messages_text(&r.parsed, PP_DIAG_SHORT),
	    "x.pipe:6:8: error: assertion failed: bubble = 0.3333, wanted <= 0.30: \"pipeline idles too much\" [E0203]\n");
	resolved_free(&r);
}

static void checkpoints(void **state)
{
	(void)state;
	static const struct {
		const char *value, *line;
	} cases[] = {
	    {"every(50)", "checkpoint every 50 dir \"checkpoints\" keep 2"},
	    {"every(steps = 7, keep = 3, dir = \"a/b\")", "checkpoint every 7 dir \"a/b\" keep 3"},
	    {"every(0)", "`steps` = 0 is outside 1..1000000000000"},
	    {"every(5, keep = 0)", "`keep` = 0 is outside 1..1000000"},
	    {"every(5, dir = \"\")", "`dir` is an empty name [E0207]"},
	    {"every", "`every` needs `steps`"},
	    {"every(5, 6)", "E0201"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[1024];
		snprintf(text, sizeof text, MODEL REST "run { checkpoint = %s }\n", cases[i].value);
		struct resolved r = resolve_text(text);
		const char *said = r.ok ? spec_text(&r) : messages_text(&r.parsed, PP_DIAG_SHORT);
		if (!strstr(said, cases[i].line))
			fail_msg("%s: got %s, want %s", cases[i].value, said, cases[i].line);
		resolved_free(&r);
	}
	struct resolved r = resolve_text("model m { layer a : custom * 4 { flops = 1GFLOP } }\ncluster c { gpus = 4 }\n"
	                                 "parallel { pp = 4 }\nschedule gpipe\ntrain { microbatches = 8 }\n"
	                                 "run { checkpoint = every(5) }\n");
	assert_string_equal(messages_text(&r.parsed, PP_DIAG_SHORT),
	                    "x.pipe:6:7: error: `checkpoint` has no effect: a model of custom layers has no weights "
	                    "[E0114]\n");
	resolved_free(&r);
}

static void batch_arithmetic(void **state)
{
	(void)state;
	struct resolved r = resolve_text(MODEL "cluster c { gpus = 4 }\nparallel { pp = 4 }\nschedule 1f1b\n"
	                                       "train { global_batch = 24  microbatches = 12 }\n");
	assert_true(r.ok);
	assert_int_equal(r.out.spec.train.microbatch, 2);
	assert_int_equal(r.out.spec.microbatches, 12);
	resolved_free(&r);
}

/* What compiler/rows/rows.c does: the scope of the active schedule, with r and v bound around it. */
static void scope_of_rows(void **state)
{
	(void)state;
	struct resolved r = resolve_text(
	    MODEL "cluster c { gpus = 4 }\nparallel { pp = 4 }\nlet extra = 1\n"
	          "schedule mine { group = 3  order for r { F*(m-p+group+extra) } }\ntrain { microbatches = 8 }\n");
	assert_true(r.ok);
	assert_non_null(r.out.schedule);
	assert_null(r.out.policy);
	const struct pp_stmt *order = r.out.schedule->body->next;
	assert_int_equal(order->kind, PP_STMT_ORDER);
	struct pp_eval eval = {
	    .arena = r.parsed.arena, .sources = r.parsed.sources, .diag = r.parsed.diag, .scope = r.out.scope};
	int64_t count;
	assert_true(pp_eval_whole(&eval, order->pattern->repeat, "repeat count", &count));
	assert_int_equal(count, 8);
	resolved_free(&r);
}

static void imported_cluster(void **state)
{
	(void)state;
	struct resolved r = resolve_text(
	    "import \"imports/machines.pipe\" as lib\n" MODEL
	    "cluster c extends lib.lab { nodes = 2  link inter { bandwidth = "
	    "10Gbit/s  latency = 1ms } }\nparallel { pp = lib.per_node * 2 }\nschedule 1f1b\ntrain { microbatches = 8 }\n");
	if (!r.ok)
		fail_msg("%s", messages_text(&r.parsed, PP_DIAG_HUMAN));
	const struct pp_cluster *cluster = &r.out.spec.cluster;
	assert_int_equal(cluster->nodes, 2);
	assert_int_equal(cluster->gpus, 4);
	assert_string_equal(cluster->gpu.name, "small");
	assert_int_equal(cluster->gpu.memory, 8ull << 30);
	assert_int_equal(cluster->gpu.flops[PP_F32], 1000000000000ull);
	assert_int_equal(cluster->gpu.bandwidth, 0);
	assert_int_equal(cluster->intra.latency, 2000);
	assert_int_equal(cluster->inter.bandwidth, 1250000000);
	assert_int_equal(r.out.spec.parallel.pp, 8);
	resolved_free(&r);
}

/* A model may extend another of its file, which is then no candidate; asserts of the active schedule know its names. */
static void bases_and_schedule_asserts(void **state)
{
	(void)state;
	struct resolved r = resolve_text("model base { hidden = 64  heads = 4  layers = 8  vocab = 256  seq = 32 }\nmodel "
	                                 "big extends base { layers = 12 }\n"
	                                 "cluster c { gpus = 4 }\nparallel { pp = 4 }\ntrain { microbatches = 8 }\n"
	                                 "schedule mine { assert m >= 2 * p and v == 1  order for r { F*m B*m } }\n");
	if (!r.ok)
		fail_msg("%s", messages_text(&r.parsed, PP_DIAG_HUMAN));
	assert_string_equal(r.out.spec.model.name, "big");
	assert_int_equal(r.out.spec.model.layer_count, 15);
	resolved_free(&r);
}

/* A schedule may extend one of the library, whether or not the file names that one too. */
static void bases_of_the_library(void **state)
{
	(void)state;
	static const char *const files[] = {
	    "schedule wide extends interleaved { group = 2 }\n",
	    "schedule interleaved { group = 3 }\nschedule wide extends interleaved { group = 2 }\n",
	};
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct resolved r = resolve_text(
		    pp_arena_printf(arena,
		                    "# options: --schedule wide\n%scluster c { gpus = 4 }\nparallel { pp = 4  vpp = 2 }\n"
		                    "train { microbatches = 8 }\n%s",
		                    MODEL, files[i]));
		if (!r.ok)
			fail_msg("%s", messages_text(&r.parsed, PP_DIAG_HUMAN));
		assert_string_equal(r.out.policy, "interleaved");
		assert_int_equal(r.out.spec.group, 2);
		resolved_free(&r);
		pp_arena_destroy(arena);
	}
}

static const struct pp_setting *setting_of(const struct resolved *r, const char *block, const char *attribute)
{
	for (size_t i = 0; i < r->out.setting_count; i++)
		if (strcmp(r->out.settings[i].block, block) == 0 && strcmp(r->out.settings[i].attribute, attribute) == 0)
			return &r->out.settings[i];
	fail_msg("no %s.%s", block, attribute);
	return NULL;
}

/* A V follows from the schedule that needs one; what is written stays. */
static void placement_follows_the_schedule(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint8_t place;
		uint32_t vpp, origin;
	} cases[] = {
	    {"parallel { pp = 4 }\nschedule zb_v\n", PP_PLACE_V, 2, PP_ORIGIN_DERIVED},
	    {"parallel { pp = 4 }\nschedule mine extends zb_v { }\n", PP_PLACE_V, 2, PP_ORIGIN_DERIVED},
	    {"parallel { pp = 4 }\nschedule zb_h1\n", PP_PLACE_LOOP, 1, PP_ORIGIN_DEFAULT},
	    {"parallel { pp = 4  vpp = 3 }\nstages { place = linear }\nschedule zb_v\n", PP_PLACE_LINEAR, 3,
	     PP_ORIGIN_FILE},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct resolved r = resolve_text(
		    pp_arena_printf(arena, "%scluster c { gpus = 4 }\n%strain { microbatches = 8 }\n", MODEL, cases[i].text));
		if (!r.ok)
			fail_msg("%s", messages_text(&r.parsed, PP_DIAG_HUMAN));
		assert_int_equal(r.out.spec.stages.place, cases[i].place);
		assert_int_equal(r.out.spec.parallel.vpp, cases[i].vpp);
		assert_int_equal(r.out.spec.stages.stage_count, 4 * cases[i].vpp);
		assert_int_equal(setting_of(&r, "parallel", "vpp")->origin, cases[i].origin);
		assert_int_equal(setting_of(&r, "stages", "place")->origin, cases[i].origin);
		resolved_free(&r);
		pp_arena_destroy(arena);
	}
}

static void place_list(void **state)
{
	(void)state;
	struct resolved r =
	    resolve_text(MODEL "cluster c { gpus = 4 }\nparallel { pp = 4 }\nstages { place = [0..p-1, 3..0, 0] }\n"
	                       "schedule gpipe\ntrain { microbatches = 8 }\n");
	assert_true(r.ok);
	static const uint32_t ranks[] = {0, 1, 2, 3, 3, 2, 1, 0, 0};
	assert_int_equal(r.out.spec.stages.stage_count, 9);
	assert_memory_equal(r.out.spec.stages.place_list, ranks, sizeof(ranks));
	assert_int_equal(r.out.spec.parallel.vpp, 3);
	resolved_free(&r);
}

/* Field case B48: each count refuses what is no count, at the count. */
static void ranges_of_counts(void **state)
{
	(void)state;
	static const char *const values[] = {
	    "0", "-1", "2147483648", "4294967300", "9223372036854775808", "99999999999999999999", "1.5", "1/3"};
	static const char *const attributes[] = {"model.layers", "model.vocab",  "parallel.pp",      "parallel.tp",
	                                         "parallel.dp",  "parallel.vpp", "train.microbatch", "train.microbatches",
	                                         "cluster.gpus", "cluster.nodes"};
	for (size_t a = 0; a < sizeof(attributes) / sizeof(attributes[0]); a++) {
		for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
			struct pp_arena *arena = pp_arena_create(NULL);
			const char *options = pp_arena_printf(arena, "# options: --set %s=%s\n", attributes[a], values[v]);
			struct resolved r = resolve_text(pp_arena_printf(arena, "%s%s%s", options, MODEL, REST));
			const char *text = messages_text(&r.parsed, PP_DIAG_SHORT), *name = strchr(attributes[a], '.') + 1;
			if (r.ok || !strstr(text, pp_arena_printf(arena, "`%s`", name)) ||
			    !(strstr(text, "[E0106]") || strstr(text, "[E0202]")))
				fail_msg("%s = %s: %s", attributes[a], values[v], text);
			resolved_free(&r);
			pp_arena_destroy(arena);
		}
	}
	struct resolved r = resolve_text(
	    "# options: --set model.layers=1e1 --set train.microbatches=4.0 --set parallel.vpp=01\n" MODEL REST);
	assert_true(r.ok);
	assert_int_equal(r.out.spec.model.layer_count, 13);
	assert_int_equal(r.out.spec.microbatches, 4);
	resolved_free(&r);
	r = resolve_text("# options: --set parallel.pp=65536 --set parallel.tp=65536\n" MODEL REST);
	assert_false(r.ok);
	assert_non_null(
	    strstr(messages_text(&r.parsed, PP_DIAG_SHORT), "tp·pp = 65536·65536 = 4294967296 but the cluster has 4 GPUs"));
	resolved_free(&r);
}

static void hostile(void **state)
{
	(void)state;
	static const char *const texts[] = {
	    "",
	    "# only a comment\n",
	    "model {}",
	    "model g extends g {}",
	    "schedule a extends a",
	    "let a = a",
	    "param a : int = b\nlet b = a",
	    "import \"x.pipe\"",
	    "import \"/\"",
	    "parallel { pp = parallel.pp }",
	    "model g { hidden = model.heads  heads = model.hidden }",
	    "let a = [0..999999999999]",
	    "model g { repeat 999999999999 { } }",
	    "model g { for i in 0..999999999999 { } }",
	    "model g { repeat 1000000 { repeat 1000000 { layer x : custom { flops = 1GFLOP } } } }",
	    "let a = 99999999999999999999999999999999999999 * 99999999999999999999999999999999999999",
	    "let a = 1 / 0",
	    "let a = 2 % 0",
	    "let a = sqrt(-1)",
	    "let a = log2(0)",
	    "let a = 1e999",
	    "let a = 1e-999",
	    "let a = max()",
	    "let a = min([])",
	    "stages { split { (|)*1000000000 } }",
	    "stages { split { ()*1000000000000 } }",
	    "model g { layer a : block * 99999999999 }",
	    "gpu x { flops { } }\ncluster c { gpu = x  gpu { } }",
	    "cluster c { gpus = 1 link { } link x { } }",
	    "train { optimizer = adamw(1, 2, 3, 4, 5, 6) lr = cosine() }",
	    "run { lr = cosine(peak = 1, peak = 2) data = synthetic(seed = synthetic) }",
	    "schedule { }",
	    "assert 1",
	    "assert bubble",
	    "assert \"a\" < 1",
	    "let p = 1",
	    "let bubble = 1",
	    "model 1f1b { }",
	    "parallel x { }",
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct resolved r = resolve_text(texts[i]);
		assert_false(r.ok);
		assert_true(pp_diag_errors(r.parsed.diag) > 0);
		resolved_free(&r);
	}
}

/* Long chains of names end in an answer or a message, not in an exhausted stack. */
static void long_chains(void **state)
{
	(void)state;
	enum { LETS = 20000 };
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	fputs(MODEL REST, out);
	for (int i = 0; i < LETS; i++)
		fprintf(out, "let a%d = a%d + 1\n", i, i + 1);
	fprintf(out, "let a%d = 0\nassert a0 == %d\n", LETS, LETS);
	fclose(out);
	struct resolved r = resolve_text(text);
	assert_false(r.ok);
	assert_non_null(strstr(messages_text(&r.parsed, PP_DIAG_SHORT), "levels deep [E0204]"));
	resolved_free(&r);
	free(text);
}

int main(void)
{
	if (chdir(PP_SOURCE_DIR "/tests/diag") != 0) /* imports are relative */
		return 1;
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(specs_that_compile),
	    cmocka_unit_test(specs_that_wait),
	    cmocka_unit_test(messages),
	    cmocka_unit_test(origins),
	    cmocka_unit_test(named_gpus),
	    cmocka_unit_test(metric_asserts),
	    cmocka_unit_test(checkpoints),
	    cmocka_unit_test(batch_arithmetic),
	    cmocka_unit_test(scope_of_rows),
	    cmocka_unit_test(imported_cluster),
	    cmocka_unit_test(bases_and_schedule_asserts),
	    cmocka_unit_test(bases_of_the_library),
	    cmocka_unit_test(placement_follows_the_schedule),
	    cmocka_unit_test(place_list),
	    cmocka_unit_test(ranges_of_counts),
	    cmocka_unit_test(hostile),
	    cmocka_unit_test(long_chains),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
