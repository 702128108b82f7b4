/* Measured costs: measured.h. */
#include "measured.h"

#include "ir/capped.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const struct pp_profile *pp_measured_read(struct pp_arena *arena, const struct pp_source *source, struct pp_diag *diag)
{
	struct pp_json_reader reader = pp_json_read_begin(source->text, source->length);
	const struct pp_profile *profile = pp_profile_read(arena, &reader);
	if (profile)
		return profile;
	uint32_t at = source->base + (uint32_t)reader.wrong_at;
	struct pp_message *message = pp_error(diag, "E0511", (struct pp_span){at, at + 1}, "%s", reader.wrong);
	pp_help(message, "`piperun --profile=FILE` writes profiles; they are not made to be edited");
	return NULL;
}

/* ---- the same model? ------------------------------------------------------------------------- */

static bool differs(struct pp_diag *diag, struct pp_span span, const char *what, uint64_t profile, uint64_t spec)
{
	if (profile == spec)
		return false;
	struct pp_message *message =
	    pp_error(diag, "E0512", span, "the profile is of a run with %s %" PRIu64 ", this spec has %" PRIu64, what,
	             profile, spec);
	pp_help(message, "measure this spec: build it without --profile and run it with `piperun --profile=FILE`");
	return true;
}

static uint64_t stage_flops(const struct pp_stages *stages, const struct pp_profile_stage *stage, unsigned phase)
{
	uint64_t flops = 0;
	for (uint32_t i = stage->first_layer; i < stage->first_layer + stage->layer_count; i++)
		flops = pp_plus(flops, pp_layer_flops(&stages->layers[i], phase));
	return flops;
}

/* The layers of a measured stage by name and work: tells models apart whose sizes differ. What is computed again is a
 * setting, not the model. */
static bool stage_differs(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages,
                          uint32_t at, struct pp_diag *diag)
{
	const struct pp_profile_stage *stage = &spec->profile->stages[at];
	const char *title = pp_layers_title(arena, spec->model.layers + stage->first_layer, stage->layer_count);
	struct pp_message *message = NULL;
	if (strcmp(title, stage->title) != 0)
		message = pp_error(diag, "E0512", spec->model_span,
		                   "stage %u of the profile is `%s`, but these layers are `%s` in this spec", at, stage->title,
		                   title);
	for (unsigned phase = 0; phase < PP_PHASE_COUNT && !message; phase++)
		if (phase != PP_PHASE_R && stage->time[phase].count && stage->flops[phase] != stage_flops(stages, stage, phase))
			message = pp_error(
			    diag, "E0512", spec->model_span,
			    "stage %u of the profile (%s) does %" PRIu64 " flop in %s, its layers do %" PRIu64 " in this spec", at,
			    stage->title, stage->flops[phase], pp_phase_name[phase], stage_flops(stages, stage, phase));
	if (message)
		pp_help(message, "the profile is of another model: measure this one with `piperun --profile=FILE`");
	return message != NULL;
}

static bool has_forward(const struct pp_profile_stage *stage)
{
	const struct pp_profile_time *time = stage->time;
	return time[PP_PHASE_F].count && (time[PP_PHASE_B].count || (time[PP_PHASE_I].count && time[PP_PHASE_W].count));
}

bool pp_measured_check(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages,
                       struct pp_diag *diag)
{
	const struct pp_profile *profile = spec->profile;
	if (differs(diag, spec->model_span, "layers =", profile->layer_count, spec->model.layer_count) ||
	    differs(diag, spec->parallel_span, "tp =", profile->tp, spec->parallel.tp))
		return false;
	if (spec->model.trains &&
	    (differs(diag, spec->train_span, "microbatch =", profile->microbatch, spec->train.microbatch) ||
	     differs(diag, spec->train_span, "seq =", profile->seq, spec->train.seq) ||
	     differs(diag, spec->model_span, "vocab =", profile->vocab, spec->train.vocab)))
		return false;
	if (spec->model.trains && profile->dtype != spec->dtype) {
		struct pp_message *message =
		    pp_error(diag, "E0512", spec->train_span, "the profile is of a run in %s, this spec trains in %s",
		             pp_dtype_name[profile->dtype], pp_dtype_name[spec->dtype]);
		pp_help(message, "measure this spec: build it without --profile and run it with `piperun --profile=FILE`");
		return false;
	}
	for (uint32_t s = 0; s < profile->stage_count; s++) {
		if (profile->stages[s].layer_count == 0)
			continue;
		if (stage_differs(arena, spec, stages, s, diag))
			return false;
		if (!has_forward(&profile->stages[s])) {
			struct pp_message *message = pp_error(diag, "E0513", spec->schedule_span,
			                                      "the profile has no times of forward and backward of stage %u (%s)",
			                                      s, profile->stages[s].title);
			pp_help(message, "measure a whole step: `piperun --profile=FILE` with two steps or more");
			return false;
		}
	}
	return true;
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* What a stage takes in every phase: as measured, and for phases that did not run, what those that did say. The fused
 * backward is the sum of its parts; its parts share it, and a forward that runs again its time, as in the model. */
static void fill_phases(const struct pp_profile_stage *stage, const uint64_t *model, uint64_t *ticks)
{
	const struct pp_profile_time *time = stage->time;
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		ticks[phase] = time[phase].count ? time[phase].median : 0;
	bool fused = time[PP_PHASE_B].count, split = time[PP_PHASE_I].count && time[PP_PHASE_W].count;
	if (!fused)
		ticks[PP_PHASE_B] = pp_plus(ticks[PP_PHASE_I], ticks[PP_PHASE_W]);
	if (!split) {
		double parts = (double)model[PP_PHASE_I] + (double)model[PP_PHASE_W];
		double share = parts > 0 ? (double)model[PP_PHASE_I] / parts : 0.5;
		ticks[PP_PHASE_I] = (uint64_t)((double)ticks[PP_PHASE_B] * share + 0.5);
		ticks[PP_PHASE_W] = ticks[PP_PHASE_B] - ticks[PP_PHASE_I];
	}
	if (!time[PP_PHASE_R].count && model[PP_PHASE_F])
		ticks[PP_PHASE_R] =
		    (uint64_t)((double)model[PP_PHASE_R] * (double)ticks[PP_PHASE_F] / (double)model[PP_PHASE_F] + 0.5);
}

static void model_phases(const struct pp_stages *stages, const struct pp_profile_stage *stage, uint64_t *model)
{
	memset(model, 0, PP_PHASE_COUNT * sizeof *model);
	for (uint32_t i = stage->first_layer; i < stage->first_layer + stage->layer_count; i++)
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			model[phase] = pp_plus(model[phase], stages->layer_ticks[i][phase]);
}

/* ---- per layer ------------------------------------------------------------------------------- */

struct solver {
	const struct pp_spec *spec;
	struct pp_stages *stages;
	uint32_t *class;   /* [layers] */
	uint32_t *example; /* [classes]: a layer of it */
	uint32_t class_count;
	uint64_t (*wanted)[PP_PHASE_COUNT]; /* [stages of the profile] */
	double *time, *gain, *weight;       /* [classes] */
};

static bool alike(const struct solver *solver, uint32_t a, uint32_t b)
{
	const struct pp_layer *layers = solver->spec->model.layers;
	return layers[a].kind == layers[b].kind && strcmp(layers[a].name, layers[b].name) == 0 &&
	       memcmp(solver->stages->layer_ticks[a], solver->stages->layer_ticks[b],
	              sizeof solver->stages->layer_ticks[a]) == 0;
}

/* Layers of one kind, name and size form a class. Looks back at a few classes only: too many are no mistake. */
static uint32_t class_of(const struct solver *solver, uint32_t layer)
{
	enum { LOOK_AT = 64 };
	if (layer && alike(solver, layer, layer - 1))
		return solver->class[layer - 1];
	for (uint32_t c = 0; c < solver->class_count && c < LOOK_AT; c++)
		if (alike(solver, layer, solver->example[c]))
			return c;
	return solver->class_count;
}

static void find_classes(struct solver *solver)
{
	for (uint32_t i = 0; i < solver->spec->model.layer_count; i++) {
		solver->class[i] = class_of(solver, i);
		if (solver->class[i] == solver->class_count)
			solver->example[solver->class_count++] = i;
	}
}

static double stage_time(const struct solver *solver, const struct pp_profile_stage *stage)
{
	double time = 0;
	for (uint32_t i = stage->first_layer; i < stage->first_layer + stage->layer_count; i++)
		time += solver->time[solver->class[i]];
	return time;
}

/* One step of expectation maximisation (Shepp and Vardi 1982): each class by the mean ratio of measured to explained
 * time over its layers. Times stay positive, and what the stages cannot tell apart keeps its proportions. Returns the
 * largest change as a share. */
static double improve(struct solver *solver, unsigned phase)
{
	const struct pp_profile *profile = solver->spec->profile;
	double change = 0;
	for (uint32_t c = 0; c < solver->class_count; c++)
		solver->gain[c] = solver->weight[c] = 0;
	for (uint32_t s = 0; s < profile->stage_count; s++) {
		const struct pp_profile_stage *stage = &profile->stages[s];
		double explained = stage_time(solver, stage);
		double ratio = explained > 0 ? (double)solver->wanted[s][phase] / explained : 1;
		for (uint32_t i = stage->first_layer; i < stage->first_layer + stage->layer_count; i++) {
			solver->gain[solver->class[i]] += ratio;
			solver->weight[solver->class[i]]++;
		}
	}
	for (uint32_t c = 0; c < solver->class_count; c++) {
		double ratio = solver->weight[c] > 0 ? solver->gain[c] / solver->weight[c] : 1;
		double distance = ratio > 1 ? ratio - 1 : 1 - ratio;
		solver->time[c] *= ratio;
		change = distance > change ? distance : change;
	}
	return change;
}

/* Standard error of a stage's median as a share: the distance between the quartiles is 1.35 deviations of a normal
 * sample, and the median strays 1.25 times as far as the mean. What did not run is as certain as what it follows from.
 */
static double error_of(const struct pp_profile_stage *stage, unsigned phase)
{
	const struct pp_profile_time *time = &stage->time[phase];
	if (!time->count)
		time = &stage->time[phase == PP_PHASE_R ? PP_PHASE_F : stage->time[PP_PHASE_B].count ? PP_PHASE_B : PP_PHASE_W];
	double samples = time->count > 1 ? sqrt((double)time->count) : 1;
	return time->median ? 0.93 * (double)time->spread / ((double)time->median * samples) : 0;
}

static double deviation_of(const struct solver *solver, uint32_t stage, unsigned phase)
{
	double explained = stage_time(solver, &solver->spec->profile->stages[stage]);
	double wanted = (double)solver->wanted[stage][phase];
	double deviation = explained > wanted ? explained - wanted : wanted - explained;
	return wanted > 0 ? deviation / wanted : 0;
}

/* All stages are explained as well as they are known: more would fit noise. */
static bool explains_all(const struct solver *solver, unsigned phase)
{
	const struct pp_profile *profile = solver->spec->profile;
	for (uint32_t s = 0; s < profile->stage_count; s++)
		if (deviation_of(solver, s, phase) > error_of(&profile->stages[s], phase))
			return false;
	return true;
}

/* Times of the classes in a phase; the largest deviation of a stage. */
static double solve(struct solver *solver, unsigned phase)
{
	enum { MOST_STEPS = 20000, MOST_WORK = 20000000 };
	const struct pp_profile *profile = solver->spec->profile;
	uint32_t layers = solver->spec->model.layer_count, steps = MOST_WORK / (layers + 1);
	if (steps > MOST_STEPS)
		steps = MOST_STEPS;
	for (uint32_t c = 0; c < solver->class_count; c++) {
		uint64_t ticks = solver->stages->layer_ticks[solver->example[c]][phase];
		/* A layer that the model gives no time at all may have taken some; recomputed it is or is not. */
		solver->time[c] = ticks || phase == PP_PHASE_R ? (double)ticks : 1;
	}
	for (uint32_t i = 0; i < steps && !explains_all(solver, phase) && improve(solver, phase) > 1e-7; i++)
		continue;
	double worst = 0;
	for (uint32_t s = 0; s < profile->stage_count; s++) {
		double deviation = deviation_of(solver, s, phase);
		if (profile->stages[s].time[phase].count && deviation > worst)
			worst = deviation;
	}
	return worst;
}

double pp_measured_layers(struct pp_arena *arena, const struct pp_spec *spec, struct pp_stages *stages)
{
	uint32_t layers = spec->model.layer_count;
	const struct pp_profile *profile = spec->profile;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct solver solver = {.spec = spec,
	                        .stages = stages,
	                        .class = PP_NEW_ARRAY(scratch, uint32_t, layers),
	                        .example = PP_NEW_ARRAY(scratch, uint32_t, layers),
	                        .wanted = pp_arena_alloc(scratch, profile->stage_count, sizeof *solver.wanted),
	                        .time = PP_NEW_ARRAY(scratch, double, layers),
	                        .gain = PP_NEW_ARRAY(scratch, double, layers),
	                        .weight = PP_NEW_ARRAY(scratch, double, layers)};
	uint64_t(*found)[PP_PHASE_COUNT] = pp_arena_alloc(scratch, layers, sizeof *found);
	double worst = 0;
	find_classes(&solver);
	for (uint32_t s = 0; s < profile->stage_count; s++) {
		uint64_t model[PP_PHASE_COUNT];
		model_phases(stages, &profile->stages[s], model);
		fill_phases(&profile->stages[s], model, solver.wanted[s]);
	}
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
		double deviation = solve(&solver, phase);
		worst = deviation > worst ? deviation : worst;
		for (uint32_t i = 0; i < layers; i++)
			found[i][phase] = (uint64_t)(solver.time[solver.class[i]] + 0.5);
	}
	memcpy(stages->layer_ticks, found, layers * sizeof *found);
	pp_arena_destroy(scratch);
	return worst;
}

/* ---- per stage ------------------------------------------------------------------------------- */

bool pp_measured_split(const struct pp_profile *profile, const struct pp_stages *stages)
{
	if (profile->stage_count != stages->count)
		return false;
	for (uint32_t s = 0; s < stages->count; s++)
		if (profile->stages[s].first_layer != stages->items[s].first_layer ||
		    profile->stages[s].layer_count != stages->items[s].layer_count)
			return false;
	return true;
}

void pp_measured_stages(const struct pp_spec *spec, struct pp_stages *stages)
{
	const struct pp_profile *profile = spec->profile;
	if (!pp_measured_split(profile, stages))
		return;
	for (uint32_t s = 0; s < stages->count; s++) {
		struct pp_stage_plan *stage = &stages->items[s];
		uint64_t layers[PP_PHASE_COUNT];
		memcpy(layers, stage->ticks, sizeof layers);
		if (stage->layer_count)
			fill_phases(&profile->stages[s], layers, stage->ticks);
	}
}

void pp_measured_warn(const struct pp_spec *spec, const struct pp_stages *stages, double deviation,
                      struct pp_diag *diag)
{
	if (deviation <= 0.1 || pp_measured_split(spec->profile, stages))
		return;
	struct pp_message *message =
	    pp_warning(diag, "W0514", spec->schedule_span,
	               "times of layers explain the profile's stages within %.0f %% only", 100 * deviation);
	pp_note(message, "these stages are not those of the profile, so their times are sums over kinds of layers");
	pp_help(message, "measure again on a quiet machine, or measure this split");
}
