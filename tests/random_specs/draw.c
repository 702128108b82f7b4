/* Drawing random specs: draw.h. */
#include "draw.h"

#include "ir/program.h"

#include <inttypes.h>
#include <string.h>

/* 0 .. below - 1. */
static uint32_t pick(struct draw *draw, uint32_t below)
{
	return random_below(&draw->random, below);
}

/* From 1 to 10^digits, each digit as likely as the next. */
static uint64_t scaled(struct draw *draw, uint32_t digits)
{
	uint64_t scale = 1;
	for (uint32_t i = pick(draw, digits); i > 0; i--)
		scale *= 10;
	return scale * (1 + pick(draw, 10));
}

static const struct pp_policy *policy_of(uint64_t seed)
{
	size_t now = 0;
	for (size_t i = 0; i < pp_policy_count; i++)
		now += pp_policies[i].status == PP_NOW;
	size_t wanted = seed % now;
	for (size_t i = 0;; i++)
		if (pp_policies[i].status == PP_NOW && wanted-- == 0)
			return &pp_policies[i];
}

struct draw draw_begin(uint64_t seed, bool trains)
{
	struct draw draw = {.policy = policy_of(seed), .random = seed};
	draw.p = 1 + pick(&draw, 8);
	draw.m = pick(&draw, 3) ? 1 + pick(&draw, 3 * draw.p) : 1 + pick(&draw, draw.p);
	draw.v = draw.policy->place == PP_PLACE_LOOP ? 2 + pick(&draw, 2) : pick(&draw, 5) ? 0 : 1 + pick(&draw, 3);
	draw.trains = trains || pick(&draw, 8) == 0;
	draw.wants_bound = pick(&draw, 2);
	draw.bound_share = 500 + pick(&draw, 550);
	draw.bound_by_device = pick(&draw, 3) == 0;
	draw.lowering = (uint8_t)(PP_LOWERED_GIVEN + pick(&draw, PP_LOWERED_COUNT));
	return draw;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void print_time(struct draw *draw, const char *phase, uint64_t mean, uint32_t spread, FILE *out)
{
	uint64_t time = spread == 0 ? mean : spread == 1 ? mean / 2 + pick(draw, (uint32_t)mean + 1) : scaled(draw, 6);
	fprintf(out, "  time_%s = %" PRIu64 "ns", phase, time);
}

/* Layers of given costs, alike, similar, or of any size. */
static void print_costs(struct draw *draw, uint32_t stages, FILE *out)
{
	uint32_t layers = stages + pick(draw, 2 * stages), spread = pick(draw, 3);
	uint64_t mean = 100 * scaled(draw, 3), bytes = scaled(draw, 5);
	fputs("model costs {\n", out);
	for (uint32_t i = 0; i < layers; i++) {
		fprintf(out, "  layer l%" PRIu32 " : custom {", i);
		print_time(draw, "f", mean, spread, out);
		print_time(draw, "i", mean, spread, out);
		print_time(draw, "w", pick(draw, 20) ? mean : 0, spread, out);
		fprintf(out, "  activation = %" PRIu64 "B", spread ? scaled(draw, 5) : bytes);
		if (i + 1 < layers)
			fprintf(out, "  output = %" PRIu64 "B", 4 * (spread ? scaled(draw, 4) : bytes));
		fprintf(out, "  params = %" PRIu64 " }\n", spread ? scaled(draw, 4) : bytes / 4);
	}
	fputs("}\n", out);
}

static void print_transformer(struct draw *draw, uint32_t stages, FILE *out)
{
	fprintf(out, "model gpt { hidden = 16  heads = 2  layers = %" PRIu32 "  vocab = 40  seq = %" PRIu32 "%s }\n",
	        stages + pick(draw, 5), 4 + 4 * pick(draw, 2), pick(draw, 3) ? "" : "  tie_embeddings = true");
}

static void print_link(struct draw *draw, const char *name, FILE *out)
{
	static const char *const bandwidths[] = {"inf", "10GB/s", "1GB/s", "50MB/s"};
	uint64_t latency = pick(draw, 3) ? scaled(draw, 4) : 0;
	fprintf(out, "  link %s { bandwidth = %s  latency = %" PRIu64 "ns }\n", name, bandwidths[pick(draw, 4)], latency);
}

static void print_cluster(struct draw *draw, uint64_t bound, FILE *out)
{
	bool spread = pick(draw, 3) == 0;
	fprintf(out, "cluster c {\n  nodes = %" PRIu32 "  gpus = %" PRIu32 "\n", spread ? draw->p : 1,
	        spread ? 1 : draw->p);
	if (bound && draw->bound_by_device)
		fprintf(out, "  gpu { memory = %" PRIu64 "B }\n", bound);
	print_link(draw, "intra", out);
	print_link(draw, "inter", out);
	fputs("}\n", out);
}

static void print_stages(struct draw *draw, FILE *out)
{
	static const char *const balances[] = {"time", "time",   "time",   "time",   "time",
	                                       "time", "layers", "memory", "params", "even"};
	static const char *const places[] = {"loop", "v", "linear"};
	fprintf(out, "stages { balance = %s", balances[pick(draw, draw->trains ? 9 : 10)]);
	bool free = draw->policy->place == PP_PLACE_LIST;
	if (pick(draw, free ? 2 : 25) == 0)
		fprintf(out, "  place = %s", places[pick(draw, 3)]);
	fputs(" }\n", out);
}

/* Rules; some get stuck. */
static void print_rules(struct draw *draw, FILE *out)
{
	uint32_t more = pick(draw, 4);
	fputs("schedule own { policy {\n", out);
	switch (pick(draw, 5)) {
	case 0:
		fprintf(out, "  limit F - B <= (p - r) * v + %" PRIu32 "  prefer B > F\n", more);
		break;
	case 1:
		fprintf(out, "  limit F - I <= p * v - r + %" PRIu32 "  limit F - W <= (p + %" PRIu32 ") * v\n", more,
		        pick(draw, 3));
		fputs("  prefer I > F > W\n", out);
		break;
	case 2:
		fprintf(out, "  let owed = I - W\n  limit F.0 - W.0 <= p + %" PRIu32 "\n", more);
		fputs("  prefer F.(v - 1) > F > I when owed <= r and I < m * v  prefer W > I > F\n", out);
		break;
	case 3:
		fprintf(out, "  prefer F when F < %" PRIu32 "  prefer W > I > F when F %% 3 == 1  prefer B > W > F\n", more);
		break;
	default:
		fputs("  prefer W > I > F\n", out);
		break;
	}
	fputs("  }", out);
}

/* The policy by its name, or one of the file that extends it; or rules. */
static void print_schedule(struct draw *draw, uint64_t bound, FILE *out)
{
	const char *name = draw->policy->name;
	if (strcmp(name, "gpipe") == 0 && pick(draw, 4)) {
		print_rules(draw, out);
		if (bound && !draw->bound_by_device)
			fprintf(out, "  memory <= %" PRIu64 "B", bound);
		fputs(" }\n", out);
		return;
	}
	bool grouped = strcmp(name, "interleaved") == 0 || strncmp(name, "gis", 3) == 0;
	if (pick(draw, 2))
		fprintf(out, "schedule %s {", name);
	else
		fprintf(out, "schedule own extends %s {", name);
	if (grouped && pick(draw, 4) == 0)
		fprintf(out, "  group = %" PRIu32, 1 + pick(draw, 2 * draw->p));
	if (strcmp(name, "dualpipe_v") == 0 && pick(draw, 2))
		fprintf(out, "  overlap F&B = 0.%" PRIu32, 5 + pick(draw, 5));
	if (bound && !draw->bound_by_device)
		fprintf(out, "  memory <= %" PRIu64 "B", bound);
	fputs(" }\n", out);
}

void draw_print(struct draw draw, uint64_t bound, FILE *out)
{
	uint32_t v = draw.v ? draw.v : draw.policy->vpp ? draw.policy->vpp : 1;
	if (draw.trains)
		print_transformer(&draw, draw.p * v, out);
	else
		print_costs(&draw, draw.p * v, out);
	print_cluster(&draw, bound, out);
	fprintf(out, "parallel { pp = %" PRIu32, draw.p);
	if (draw.v)
		fprintf(out, "  vpp = %" PRIu32, draw.v);
	fputs(" }\n", out);
	print_stages(&draw, out);
	print_schedule(&draw, bound, out);
	static const char *const again[] = {"full", "[norm, act]", "selective"};
	fprintf(out, "train { microbatch = 1  microbatches = %" PRIu32, draw.m);
	if (draw.trains && pick(&draw, 4) == 0)
		fprintf(out, "  recompute = %s", again[pick(&draw, 3)]);
	fputs(" }\n", out);
	if (draw.trains)
		fprintf(out, "run { data = synthetic(seed = %" PRIu32 ")  steps = 3  lr = 1e-2  clip = 0.1 }\n",
		        1 + pick(&draw, 9));
}
