/* Layer kind `custom`: given sizes and times, no mathematics. It sleeps for its time; the hidden state of trained
 * layers around it passes through; where only custom layers meet, the boundary message is as long as it says. */
#include "body_builder.h"

enum { KEPT };

/* Its parameters are planned and priced, not trained: no tensor stands for them (tensors.c makes their slots). */
static void params(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_param *list)
{
	(void)shape;
	(void)layer;
	(void)list;
}

static void parts(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_part *list)
{
	(void)shape;
	list[KEPT] = (struct pp_part){.name = "kept",
	                              .rows = pp_plus(layer->custom.activation, 3) / 4,
	                              .columns = 1,
	                              .dtype = PP_F32,
	                              .over = PP_NO_PART};
}

/* F, I and W cost `flops` each, unless the time of the phase is given (language 4, Layers). */
static void count(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	(void)shape;
	const struct pp_custom *custom = &layer->custom;
	const uint64_t times[PP_PHASE_COUNT] = {
	    [PP_PHASE_F] = custom->time_f, [PP_PHASE_I] = custom->time_i, [PP_PHASE_W] = custom->time_w};
	static const enum pp_phase phases[] = {PP_PHASE_F, PP_PHASE_I, PP_PHASE_W};
	for (unsigned i = 0; i < 3; i++) {
		enum pp_phase phase = phases[i];
		counts->matmul_flops[phase] = times[phase] == PP_TIME_UNSET ? custom->flops : 0;
		counts->fixed_ns[phase] = times[phase] == PP_TIME_UNSET ? 0 : times[phase];
	}
	counts->output_bytes = custom->output;
}

static void sleep_for(struct pp_layer_build *build)
{
	uint64_t nanoseconds = build->ticks[build->body->phase];
	if (nanoseconds)
		pp_body_emit(build->body, (struct pp_body_instr){.op = PP_BODY_SLEEP, .imm = {nanoseconds}});
}

const struct pp_kind pp_kind_custom = {
    .name = "custom",
    .gradient_part = PP_NO_PART,
    .params = params,
    .parts = parts,
    .count = count,
    .forward = sleep_for,
    .backward = sleep_for,
};
