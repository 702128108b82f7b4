/* The terms of a prediction. requires: a unit that was compiled up to `simulate`. ensures: the values are those of the
 * simulator and of the plan, which pipedump shows too; closed forms stand beside them where they hold. */
#include "predict.h"

#include "shortage.h"

#include "ir/figures.h"
#include "ir/grid.h"
#include "ir/lifetime.h"
#include "ir/outside.h"

#include <inttypes.h>
#include <string.h>

/* What all terms are made from. */
struct predicting {
	const struct pp_unit *unit;
	const struct pp_program *program;
	const struct pp_named_program *train;
	const struct pp_sim *sim;
	struct pp_arena *arena;
	struct pp_terms terms;
	bool threads;              /* ranks are threads of one process */
	uint32_t busiest, fullest; /* ranks */
};

static void add(struct predicting *p, struct pp_term term)
{
	*PP_PUSH(p->arena, &p->terms.items, &p->terms.count, &p->terms.capacity, struct pp_term) = term;
}

static const char *time_text(const struct predicting *p, uint64_t ns)
{
	struct pp_time_unit unit = pp_time_unit_for(p->sim->makespan + p->sim->tail);
	return pp_show_time(p->arena, ns, unit);
}

static const char simulated[] = "simulated", counted[] = "counted", planned[] = "planned";
static const char narayanan[] = "Narayanan et al. 2021";

/* ---- time ------------------------------------------------------------------------------------ */

/* F + B or I + W of one microbatch on a rank. */
static uint64_t rank_load(const struct predicting *p, uint32_t rank)
{
	uint64_t load = 0;
	const struct pp_stream *stream = &p->train->streams[rank];
	for (uint32_t i = 0; i < stream->count; i++)
		if (pp_is_compute(&stream->items[i]) && stream->items[i].mb == 0)
			load += p->program->stages[stream->items[i].stage].ticks[pp_phase_of(&stream->items[i])];
	return load;
}

/* What is computed again fills waits: closed forms do not know that. */
static bool recomputes(const struct predicting *p)
{
	for (uint32_t s = 0; s < p->program->stage_count; s++)
		if (p->program->stages[s].recomputes)
			return true;
	return false;
}

/* Schedules whose makespan has a closed form where stages are equal: fused backwards in the order of 1f1b or gpipe, or
 * interleaved. */
static bool has_closed_form(const struct predicting *p)
{
	const char *name = p->program->schedule_name ? p->program->schedule_name : "";
	uint32_t ranks = p->program->ranks, stages = p->program->stage_count;
	bool single = strcmp(name, "1f1b") == 0 || strcmp(name, "gpipe") == 0;
	return !recomputes(p) && (single ? stages == ranks : strcmp(name, "interleaved") == 0 && stages % ranks == 0);
}

/* "p = 4, m = 8", with the stages of a rank where there are several. */
static const char *sizes_text(const struct predicting *p)
{
	uint32_t ranks = p->program->ranks, chunks = p->program->stage_count / ranks, m = p->program->microbatches;
	return chunks > 1 ? pp_arena_printf(p->arena, "p = %u, v = %u, m = %u", ranks, chunks, m)
	                  : pp_arena_printf(p->arena, "p = %u, m = %u", ranks, m);
}

static void add_ideal(struct predicting *p)
{
	uint64_t busy = p->sim->rank[p->busiest].busy;
	add(p, (struct pp_term){.group = "time",
	                        .name = "mean work of a rank",
	                        .value = p->sim->work,
	                        .formula = "sum of all bodies / pp",
	                        .inputs = pp_arena_printf(p->arena, "pp = %u", p->program->ranks),
	                        .source = p->unit->profile ? "measured" : counted});
	add(p, (struct pp_term){.group = "time",
	                        .name = "work of the busiest rank",
	                        .value = (double)busy,
	                        .formula = "m x (its bodies for one microbatch)",
	                        .inputs = pp_arena_printf(p->arena, "rank %u: m = %u, %s", p->busiest,
	                                                  p->program->microbatches, time_text(p, rank_load(p, p->busiest))),
	                        .source = narayanan});
}

/* As many microbatches through equal stages of the same work: the pipeline fills, runs and drains. Transfers are free
 * in it. With unequal stages no such form holds: which of their times are hidden depends on the order. */
static void add_closed_form(struct predicting *p)
{
	double chunks = p->program->stage_count / p->program->ranks, m = p->program->microbatches, work = p->sim->work / m;
	add(p, (struct pp_term){.group = "time",
	                        .name = "with equal stages, transfers free",
	                        .value = work * (m + (p->program->ranks - 1) / chunks),
	                        .formula = chunks > 1 ? "(m + (p - 1) / v) (F + B)" : "(m + p - 1) (F + B)",
	                        .inputs = pp_arena_printf(p->arena, "%s, F + B %s in the mean", sizes_text(p),
	                                                  time_text(p, (uint64_t)(work + 0.5))),
	                        .source = narayanan});
}

static void add_bound(struct predicting *p, const char *of, uint64_t value, uint64_t bound, const char *term)
{
	add(p, (struct pp_term){.group = "time",
	                        .name = pp_arena_printf(p->arena, "lower bound of the %s", of),
	                        .value = (double)bound,
	                        .formula = term,
	                        .inputs = "ticks of bodies, links, room of the ranks",
	                        .source = "docs/prediction.md"});
	add(p, (struct pp_term){.group = "time",
	                        .name = pp_arena_printf(p->arena, "gap of the %s", of),
	                        .unit = PP_TERM_SHARE,
	                        .value = pp_bound_gap(value, bound),
	                        .formula = pp_arena_printf(p->arena, "%s / lower bound - 1", of),
	                        .inputs = pp_arena_printf(p->arena, "%s / %s", time_text(p, value), time_text(p, bound)),
	                        .source = simulated});
}

static void add_other_split(struct predicting *p, const char *name, uint64_t makespan, const char *formula)
{
	const struct pp_joint_report *joint = p->unit->stages.joint;
	add(p, (struct pp_term){.group = "time",
	                        .name = name,
	                        .value = (double)makespan,
	                        .formula = formula,
	                        .inputs = pp_arena_printf(p->arena, "the best of %u runs, data moving on its own%s: %s",
	                                                  joint->runs, joint->quick ? ", orders made quickly" : "",
	                                                  time_text(p, joint->chosen)),
	                        .source = simulated});
}

/* What the splits would take that only look at the slowest rank, or at the number of blocks. */
static void add_split(struct predicting *p)
{
	const struct pp_joint_report *joint = p->unit->stages.joint;
	if (!joint)
		return;
	if (joint->moved && joint->balanced != UINT64_MAX)
		add_other_split(p, "split with the fastest slowest rank", joint->balanced, "makespan, slowest rank least");
	if (joint->even != UINT64_MAX && joint->even != joint->chosen)
		add_other_split(p, "split in equal blocks", joint->even, "makespan, as many blocks in each stage");
}

static void add_step(struct predicting *p)
{
	const struct pp_sim *sim = p->sim;
	add(p, (struct pp_term){.group = "time",
	                        .name = "makespan",
	                        .value = (double)sim->makespan,
	                        .formula = "end of the last body",
	                        .inputs = "streams, ticks of bodies, links",
	                        .source = simulated});
	add_split(p);
	add(p, (struct pp_term){.group = "time",
	                        .name = "tail",
	                        .value = (double)sim->tail,
	                        .formula = "rings of 2 (n - 1) steps, bytes / bandwidth",
	                        .inputs = pp_arena_printf(p->arena, "memory at %s",
	                                                  pp_show_rate(p->arena, p->program->cost.memory_bandwidth, "B/s")),
	                        .source = simulated});
	add(p, (struct pp_term){
	           .group = "time",
	           .name = "step",
	           .value = (double)(sim->makespan + sim->tail),
	           .formula = "makespan + tail",
	           .inputs = pp_arena_printf(p->arena, "%s + %s", time_text(p, sim->makespan), time_text(p, sim->tail)),
	           .source = simulated});
	add_bound(p, "makespan", sim->makespan, sim->bound.makespan, sim->bound.makespan_term);
	add(p, (struct pp_term){.group = "time",
	                        .name = "longest rank span",
	                        .value = (double)sim->longest_span,
	                        .formula = "last end - first start of a rank",
	                        .inputs = "streams, ticks of bodies, links",
	                        .source = simulated});
	add_bound(p, "longest rank span", sim->longest_span, sim->bound.span, sim->bound.span_term);
}

static void add_bubble(struct predicting *p)
{
	const struct pp_program *program = p->program;
	uint32_t ranks = program->ranks, m = program->microbatches, chunks = program->stage_count / ranks;
	add(p, (struct pp_term){.group = "bubble",
	                        .name = "bubble",
	                        .unit = PP_TERM_SHARE,
	                        .value = p->sim->bubble,
	                        .formula = "1 - mean work / makespan",
	                        .inputs = pp_arena_printf(p->arena, "%s / %s", time_text(p, (uint64_t)(p->sim->work + 0.5)),
	                                                  time_text(p, p->sim->makespan)),
	                        .source = simulated});
	if (has_closed_form(p))
		add(p, (struct pp_term){.group = "bubble",
		                        .name = "with equal stages",
		                        .unit = PP_TERM_SHARE,
		                        .value = (double)(ranks - 1) / ((double)chunks * m + ranks - 1.0),
		                        .formula = chunks > 1 ? "(p - 1) / (v m + p - 1)" : "(p - 1) / (m + p - 1)",
		                        .inputs = sizes_text(p),
		                        .source = narayanan});
	for (unsigned cause = 0; cause < PP_IDLE_COUNT; cause++) {
		double idle = 0;
		for (uint32_t r = 0; r < ranks; r++)
			idle += (double)p->sim->rank[r].idle[cause];
		if (idle > 0)
			add(p, (struct pp_term){.group = "bubble",
			                        .name = pp_arena_printf(p->arena, "of it %s", pp_idle_name[cause]),
			                        .unit = PP_TERM_SHARE,
			                        .value = idle / ranks / (double)p->sim->makespan,
			                        .formula = "idle time by cause / (pp x makespan)",
			                        .inputs = "",
			                        .source = simulated});
	}
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t bytes_of(const struct pp_rank *rank, enum pp_slot_class class)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < rank->slot_count; i++)
		if (rank->slots[i].class == class)
			bytes += rank->slots[i].bytes;
	return bytes;
}

static void add_bytes(struct predicting *p, const char *name, uint64_t bytes, const char *formula, const char *inputs,
                      const char *source)
{
	if (bytes)
		add(p, (struct pp_term){.group = "memory",
		                        .name = name,
		                        .unit = PP_TERM_BYTES,
		                        .value = (double)bytes,
		                        .formula = formula,
		                        .inputs = inputs,
		                        .source = source});
}

/* At most: a graph for each compute of the step, with a launch for each instruction of its body. */
static uint64_t graph_bytes(const struct pp_program *program, const struct pp_stream *stream)
{
	uint64_t graphs = 0, launches = 0;
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		uint32_t body = pp_is_compute(instr) ? program->stages[instr->stage].body[pp_phase_of(instr)] : PP_NULL;
		graphs += body != PP_NULL;
		launches += body != PP_NULL ? program->bodies[body].count : 0;
	}
	return (graphs * PP_GPU_GRAPH_KIB + launches * PP_GPU_LAUNCH_KIB) * 1024;
}

static void add_part(struct predicting *p, const char *name, uint64_t bytes, const char *formula, const char *source)
{
	add_bytes(p, pp_arena_printf(p->arena, "of it %s", name), bytes, formula, "", source);
}

/* What a GPU holds beside the arena of a rank, where one runs it: executor/piperun's --device=auto. */
static void add_outside_gpu(struct predicting *p)
{
	const uint64_t mebibyte = 1 << 20;
	uint64_t context = PP_GPU_CONTEXT_MIB * mebibyte, kernels = PP_GPU_KERNELS_MIB * mebibyte;
	uint64_t graphs = graph_bytes(p->program, &p->train->streams[p->fullest]);
	add_bytes(p, "outside the arena, GPU", context + kernels + graphs, "see piperun --memory",
	          "NCCL's communicators come on top", "docs/cuda.md");
	add_part(p, "context", context, "CUDA, started", "docs/cuda.md");
	add_part(p, "kernels", kernels, "code of kernels and libraries", "docs/cuda.md");
	add_part(p, "graphs", graphs, "at most, by computes and their launches", "docs/cuda.md");
}

enum { LEAST_NAMED = 100 << 10 }; /* bytes of a part that is worth a line */

/* What a process of piperun holds beside arenas: one rank by MPI, or all of them as threads. */
static void add_outside(struct predicting *p)
{
	struct pp_outside_run run = {.apart = !p->threads, .mpi = !p->threads, .pp = p->fullest};
	uint64_t bytes[PP_OUTSIDE_COUNT], total = 0;
	pp_outside_predict(p->program, &run, bytes);
	for (unsigned term = 0; term < PP_OUTSIDE_COUNT; term++)
		total += bytes[term];
	add_bytes(p, p->threads ? "outside all arenas, loop" : "outside the arena, mpi", total, "see piperun --memory", "",
	          "docs/memory.md");
	for (unsigned term = 0; term < PP_OUTSIDE_COUNT; term++)
		if (bytes[term] >= LEAST_NAMED)
			add_part(p, pp_outside_name[term], bytes[term], "", "docs/memory.md");
}

/* The rank whose arena is largest. */
static void add_memory(struct predicting *p)
{
	const struct pp_rank *rank = &p->program->rank[p->fullest];
	const struct pp_spec *spec = &p->unit->resolved.spec;
	uint64_t each = pp_dtype_size[spec->dtype];
	const char *who = pp_arena_printf(p->arena, "rank %u", p->fullest);
	uint64_t weights = bytes_of(rank, PP_SLOT_WEIGHT), gradients = bytes_of(rank, PP_SLOT_GRAD);
	uint64_t moments = bytes_of(rank, PP_SLOT_MOMENT), dynamic = rank->arena_bytes - rank->static_bytes;
	uint64_t masters = bytes_of(rank, PP_SLOT_MASTER);
	uint64_t scratch = bytes_of(rank, PP_SLOT_SCRATCH);
	uint64_t other = rank->static_bytes - weights - gradients - moments - masters - scratch;
	add_bytes(p, "weights", weights, "parameters x bytes of one",
	          pp_arena_printf(p->arena, "%s: %" PRIu64 " x %" PRIu64, who, weights / each, each), counted);
	add_bytes(p, "gradients", gradients, "parameters x 4, one per use", who, counted);
	add_bytes(p, "optimizer state", moments, "parameters x bytes of their moments",
	          pp_arena_printf(p->arena, "%s: %s%s", who, pp_optimizer_name[spec->train.optimizer],
	                          p->program->zero ? ", an own shard of dp" : ""),
	          counted);
	if (masters)
		add_bytes(p, "master weights", masters, "parameters x 4, fp32 beside bf16",
		          pp_arena_printf(p->arena, "%s%s", who, p->program->zero ? ": an own shard of dp" : ""), counted);
	if (scratch)
		add_bytes(p, "scratch of kernels", scratch, "hungriest kernel", who, planned);
	add_bytes(p, "workspace, losses, norms", other, "largest body; 16 m; 8 per tensor", who, planned);
	add_bytes(p, "activations and messages", dynamic, "most that is live at once, as placed",
	          pp_arena_printf(p->arena, "%s: %u stash%s, %s live at once", who, p->sim->rank[p->fullest].peak_stashes,
	                          p->sim->rank[p->fullest].peak_stashes == 1 ? "" : "es",
	                          pp_show_bytes(p->arena, rank->live_bytes)),
	          planned);
	add_bytes(p, "arena", rank->arena_bytes, "static + dynamic",
	          pp_arena_printf(p->arena, "%s + %s", pp_show_bytes(p->arena, rank->static_bytes),
	                          pp_show_bytes(p->arena, dynamic)),
	          planned);
	if (rank->sms > 0 || spec->dtype != PP_F32)
		add_outside_gpu(p);
	else
		add_outside(p);
	add_bytes(p, "reserve", rank->reserve, "gpu.reserve", "what others need beside the arena", "spec");
	bool bounded = pp_shortage_is_bounded(p->unit);
	add_bytes(p, "capacity", rank->capacity, bounded ? "memory <= of the schedule + gpu.reserve" : "gpu.memory", "",
	          "spec");
}

/* ---- traffic --------------------------------------------------------------------------------- */

/* Bytes that a rank sends in a step: messages, and rings of collectives on each axis. */
struct traffic {
	uint64_t messages, message_bytes, rings[PP_AXIS_COUNT];
};

static struct traffic traffic_of(const struct predicting *p, uint32_t rank)
{
	struct traffic traffic = {0};
	const struct pp_stream *stream = &p->train->streams[rank];
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op == PP_OP_SEND) {
			traffic.messages++;
			traffic.message_bytes += pp_payload_bytes(instr);
		} else if (instr->op == PP_OP_COLL) {
			const struct pp_group *group = &p->program->groups[instr->a[1]];
			uint64_t members = pp_grid_members(p->program, group);
			if (members > 1)
				traffic.rings[group->axis] +=
				    pp_ring_steps((enum pp_collective)instr->sub, members) *
				    pp_ring_part((enum pp_collective)instr->sub, pp_payload_bytes(instr), members);
		}
	}
	return traffic;
}

/* Collectives within bodies, per step: as rings over the tensor-parallel group. */
static uint64_t body_traffic(const struct predicting *p, uint32_t rank)
{
	uint64_t bytes = 0, members = pp_grid_extent(p->program, PP_AXIS_TP);
	const struct pp_stream *stream = &p->train->streams[rank];
	for (uint32_t i = 0; members > 1 && i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		uint32_t number = pp_is_compute(instr) ? p->program->stages[instr->stage].body[pp_phase_of(instr)] : PP_NULL;
		if (number == PP_NULL)
			continue;
		const struct pp_body *body = &p->program->bodies[number];
		for (uint32_t k = 0; k < body->count; k++) {
			uint8_t op = body->items[k].op;
			bool scatter = op == PP_BODY_REDUCESCATTER;
			if (op != PP_BODY_ALLREDUCE && op != PP_BODY_ALLGATHER && !scatter)
				continue;
			const struct pp_reg *reg = &body->regs[body->items[k].operand[scatter]]; /* input, or output of a scatter */
			uint64_t payload = (uint64_t)reg->rows * reg->columns * pp_dtype_size[reg->dtype];
			enum pp_collective kind = op == PP_BODY_ALLREDUCE ? PP_ALLREDUCE : PP_ALLGATHER;
			bytes += pp_ring_steps(kind, members) * pp_ring_part(kind, payload, members);
		}
	}
	return bytes;
}

static void add_traffic(struct predicting *p)
{
	static const char *const names[PP_AXIS_COUNT] = {[PP_AXIS_PP] = "sums over the pipeline",
	                                                 [PP_AXIS_TP] = "sums over tp",
	                                                 [PP_AXIS_DP] = "gradients and weights over dp"};
	struct traffic most = {0};
	uint32_t sender = 0;
	uint64_t bodies = 0;
	for (uint32_t r = 0; r < p->program->ranks; r++) {
		struct traffic traffic = traffic_of(p, r);
		uint64_t inside = body_traffic(p, r);
		if (traffic.message_bytes > most.message_bytes) {
			most.messages = traffic.messages;
			most.message_bytes = traffic.message_bytes;
			sender = r;
		}
		bodies = inside > bodies ? inside : bodies;
		for (unsigned axis = 0; axis < PP_AXIS_COUNT; axis++)
			most.rings[axis] = traffic.rings[axis] > most.rings[axis] ? traffic.rings[axis] : most.rings[axis];
	}
	if (most.messages)
		add(p, (struct pp_term){.group = "traffic",
		                        .name = "messages to neighbours",
		                        .unit = PP_TERM_BYTES,
		                        .value = (double)most.message_bytes,
		                        .formula = "sum of payloads sent in a step",
		                        .inputs =
		                            pp_arena_printf(p->arena, "rank %u: %" PRIu64 " messages", sender, most.messages),
		                        .source = counted});
	if (bodies)
		add(p, (struct pp_term){.group = "traffic",
		                        .name = "collectives in bodies",
		                        .unit = PP_TERM_BYTES,
		                        .value = (double)bodies,
		                        .formula = "2 (n - 1) / n per allreduce, half of it per half",
		                        .inputs = pp_arena_printf(p->arena, "n = tp = %u", p->program->tp),
		                        .source = "nccl-tests, PERFORMANCE.md"});
	for (unsigned axis = 0; axis < PP_AXIS_COUNT; axis++)
		if (most.rings[axis])
			add(p, (struct pp_term){.group = "traffic",
			                        .name = names[axis],
			                        .unit = PP_TERM_BYTES,
			                        .value = (double)most.rings[axis],
			                        .formula = "2 (n - 1) / n per allreduce, half of it per half",
			                        .inputs = pp_arena_printf(p->arena, "n = %u", pp_grid_extent(p->program, axis)),
			                        .source = "nccl-tests, PERFORMANCE.md"});
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Of the model's own operations, or of those that are done again; of a whole replica. */
static double flops_of_step(const struct predicting *p, bool again)
{
	double flops = 0;
	for (uint32_t r = 0; r < p->program->ranks; r++)
		for (uint32_t i = 0; i < p->train->streams[r].count; i++) {
			const struct pp_instr *instr = &p->train->streams[r].items[i];
			if (pp_is_compute(instr) && (instr->op == PP_OP_REMAT) == again)
				flops += (double)p->program->stages[instr->stage].flops[pp_phase_of(instr)];
		}
	return flops * p->program->tp;
}

/* What is computed again is work of the devices, none of the model's. */
static void add_recomputed(struct predicting *p, double flops, double capacity)
{
	double again = flops_of_step(p, true);
	if (again > 0)
		add(p, (struct pp_term){.group = "work",
		                        .name = "recomputed operations",
		                        .unit = PP_TERM_FLOP,
		                        .value = again,
		                        .formula = "tp x m x sum(R), what is not kept but made again",
		                        .inputs = pp_arena_printf(p->arena, "tp = %u, m = %u; of a replica", p->program->tp,
		                                                  p->program->microbatches),
		                        .source = "docs/memory.md"});
	if (again > 0 && capacity > 0)
		add(p, (struct pp_term){.group = "work",
		                        .name = "hardware flops utilisation",
		                        .unit = PP_TERM_SHARE,
		                        .value = (flops + again) / capacity,
		                        .formula = "both operations / (step x tp x pp x peak)",
		                        .inputs = "",
		                        .source = "Korthikanti et al. 2022"});
}

static void add_work(struct predicting *p)
{
	const struct pp_program *program = p->program;
	double step = (double)(p->sim->makespan + p->sim->tail) * 1e-9, flops = flops_of_step(p, false);
	double peak = (double)program->cost.peak_flops * program->ranks * program->tp;
	double tokens = (double)program->train.microbatch * program->train.seq * program->microbatches *
	                pp_grid_extent(program, PP_AXIS_DP);
	if (flops > 0)
		add(p, (struct pp_term){.group = "work",
		                        .name = "model operations of a step",
		                        .unit = PP_TERM_FLOP,
		                        .value = flops,
		                        .formula = "tp x m x sum(F + B), attention counted in full",
		                        .inputs = pp_arena_printf(p->arena, "tp = %u, m = %u; of a replica", program->tp,
		                                                  program->microbatches),
		                        .source = "Korthikanti et al. 2022"});
	if (flops > 0 && step > 0 && peak > 0)
		add(p, (struct pp_term){.group = "work",
		                        .name = "model flops utilisation",
		                        .unit = PP_TERM_SHARE,
		                        .value = flops / (step * peak),
		                        .formula = "operations / (step x tp x pp x peak)",
		                        .inputs = pp_arena_printf(p->arena, "peak %s",
		                                                  pp_show_rate(p->arena, program->cost.peak_flops, "flop/s")),
		                        .source = "Korthikanti et al. 2022"});
	add_recomputed(p, flops, step * peak);
	if (program->train.vocab && step > 0)
		add(p, (struct pp_term){.group = "work",
		                        .name = "tokens per second",
		                        .unit = PP_TERM_RATE,
		                        .value = tokens / step,
		                        .formula = "microbatch x seq x m x dp / step",
		                        .inputs = pp_arena_printf(p->arena, "%u x %u x %u x %u", program->train.microbatch,
		                                                  program->train.seq, program->microbatches,
		                                                  pp_grid_extent(program, PP_AXIS_DP)),
		                        .source = counted});
}

struct pp_terms pp_predict(const struct pp_unit *unit, const struct pp_sim *sim, const char *transport)
{
	struct predicting p = {.unit = unit,
	                       .program = unit->program,
	                       .train = pp_program_find(unit->program, "train"),
	                       .sim = sim,
	                       .threads = strcmp(transport, "loop") == 0,
	                       .arena = unit->arena};
	for (uint32_t r = 1; r < unit->program->ranks; r++) {
		if (sim->rank[r].busy > sim->rank[p.busiest].busy)
			p.busiest = r;
		if (unit->program->rank[r].arena_bytes > unit->program->rank[p.fullest].arena_bytes)
			p.fullest = r;
	}
	add_ideal(&p);
	if (has_closed_form(&p))
		add_closed_form(&p);
	add_step(&p);
	add_bubble(&p);
	add_memory(&p);
	add_traffic(&p);
	add_work(&p);
	return p.terms;
}
