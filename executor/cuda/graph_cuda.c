/* Bodies as graphs: one start instead of one for each kernel. At create every call that the rank's streams make, with
 * its slots bound, is captured once; a stretch of kernels between two collectives of the tensor-parallel group is a
 * graph, collectives stay outside.
 *
 * Ensures: a graph holds the launches that an eager run makes, so the bits are the same; nothing is allocated later. */
#include "device_parts.h"

#include "executor/device_share.h"
#include "ir/lifetime.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the addresses in a graph depend on. */
struct key {
	uint32_t body, first, in, aux, out, stash, extra, dout, din;
};

struct entry {
	struct key key;
	struct pp_call call;
	uint32_t stretch; /* first of its graphs */
};

struct pp_cuda_graphs {
	struct entry *entries; /* by key */
	uint32_t count;
	cudaGraphExec_t *stretches; /* NULL: an exchange */
	uint32_t stretch_count;
};

/* ---- running ---------------------------------------------------------------------------------- */

static struct key key_of(const struct pp_device *device, const struct pp_call *call)
{
	return (struct key){(uint32_t)(call->body - device->program->bodies),
	                    call->first,
	                    call->in,
	                    call->aux,
	                    call->out,
	                    call->stash,
	                    call->extra,
	                    call->dout,
	                    call->din};
}

static int by_key(const void *left, const void *right)
{
	return memcmp(left, right, sizeof(struct key)); /* the key comes first in an entry */
}

static const struct entry *find(const struct pp_device *device, const struct pp_call *call)
{
	const struct pp_cuda_graphs *graphs = device->graphs;
	if (!graphs || device->capturing)
		return NULL;
	const struct key key = key_of(device, call);
	return bsearch(&key, graphs->entries, graphs->count, sizeof *graphs->entries, by_key);
}

static void bind(const struct pp_device *device, const struct pp_call *call, struct pp_bound_call *bound)
{
	*bound = (struct pp_bound_call){.body = call->body,
	                                .first = call->first,
	                                .arena = pp_cuda_arena(device),
	                                .slots = device->rank->slots,
	                                .tp = device->tp,
	                                .tp_coord = device->coord.tp,
	                                .tickets = device->tickets};
	bind_slots(bound, call);
	bound->base[PP_BASE_WORK] = pp_cuda_slot(device, device->work);
	bound->base[PP_BASE_LOSS] = (unsigned char *)device->memory.loss;
}

static void check_body(struct pp_device *device, const struct pp_body *body, cudaError_t error)
{
	const char *gemm = pp_gemm_failure(device->body.gemm);
	char what[80];
	if (error == cudaSuccess && !gemm)
		return;
	snprintf(what, sizeof what, "starting body s%" PRIu32 ".%s", body->stage, pp_phase_name[body->phase]);
	if (error != cudaSuccess)
		pp_cuda_note(device, error, what);
	else if (device->failed.code == PP_EXIT_OK)
		pp_fail(&device->failed, PP_EXIT_RUN, "%s failed: %s", what, gemm);
}

/* A body writes its losses to one place; from there they go to those of the microbatch, so that a graph serves all. */
static void store_loss(struct pp_device *device, const struct pp_call *call)
{
	enum { LOSS = 2 * sizeof(double) };
	if (!device->makes_loss[call->body - device->program->bodies])
		return;
	pp_cuda_note(device,
	             cudaMemcpyAsync(pp_cuda_slot(device, device->losses) + (uint64_t)call->mb * LOSS, device->memory.loss,
	                             LOSS, cudaMemcpyDeviceToDevice, device->cuda.compute),
	             "storing a loss");
}

bool pp_cuda_run_call(struct pp_device *device, const struct pp_call *call, const struct pp_body_link *link)
{
	struct pp_bound_call bound;
	const struct pp_body *body = call->body;
	const struct entry *entry = find(device, call);
	uint32_t stretch = entry ? entry->stretch : 0;
	cudaError_t error = cudaSuccess;
	bind(device, call, &bound);
	bound.link = link;
	device->open = true;
	for (uint32_t at = 0; at < body->count; stretch++) {
		uint32_t end = pp_cuda_stretch_end(body, at, device->tp);
		cudaGraphExec_t graph = entry ? device->graphs->stretches[stretch] : NULL;
		if (graph)
			error = cudaGraphLaunch(graph, device->cuda.compute);
		else if (!pp_cuda_run_body(&device->body, &bound, at, end))
			return false;
		check_body(device, body, error != cudaSuccess ? error : cudaGetLastError());
		if (link && link->poll)
			link->poll(link->context);
		at = end;
	}
	store_loss(device, call);
	return true;
}

/* ---- making ----------------------------------------------------------------------------------- */

static bool no_memory(struct pp_status *status)
{
	return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for graphs of bodies");
}

/* All calls of the rank's streams, each once, sorted. */
static bool gather(const struct pp_device *device, struct pp_cuda_graphs *graphs, struct pp_status *status)
{
	const struct pp_program *program = device->program;
	uint64_t most = 0;
	for (uint32_t p = 0; p < program->program_count; p++)
		most += program->programs[p].streams[device->coord.pp].count;
	graphs->entries = calloc(most + 1, sizeof *graphs->entries);
	if (!graphs->entries)
		return no_memory(status);
	uint32_t count = 0;
	for (uint32_t p = 0; p < program->program_count; p++) {
		const struct pp_stream *stream = &program->programs[p].streams[device->coord.pp];
		for (uint32_t i = 0; i < stream->count; i++)
			if (pp_is_compute(&stream->items[i])) {
				struct pp_call call = pp_call_of(program, &stream->items[i]);
				graphs->entries[count++] = (struct entry){.key = key_of(device, &call), .call = call};
			}
	}
	qsort(graphs->entries, count, sizeof *graphs->entries, by_key);
	for (uint32_t i = 0; i < count; i++)
		if (i == 0 || by_key(&graphs->entries[i], &graphs->entries[graphs->count - 1]) != 0)
			graphs->entries[graphs->count++] = graphs->entries[i];
	return true;
}

/* Ids and labels are used as indices, and bodies that were tried before have left numbers of theirs in slots that share
 * the place. */
static void clear_indices(struct pp_device *device, const struct pp_bound_call *bound)
{
	for (uint32_t i = 0; i < bound->body->reg_count; i++) {
		const struct pp_reg *reg = &bound->body->regs[i];
		if (reg->dtype == PP_I32)
			pp_cuda_zero(device->cuda.compute, (size_t)reg->rows * reg->columns * sizeof(int32_t),
			             bound->base[reg->base] + reg->offset);
	}
}

/* The kernels of a call, without its exchanges. */
static void run_kernels(struct pp_device *device, const struct pp_call *call)
{
	struct pp_bound_call bound;
	bind(device, call, &bound);
	clear_indices(device, &bound);
	for (uint32_t at = 0, end; at < call->body->count; at = end) {
		end = pp_cuda_stretch_end(call->body, at, device->tp);
		if (!pp_cuda_is_exchange(&call->body->items[at], device->tp))
			pp_cuda_run_body(&device->body, &bound, at, end);
	}
	check_body(device, call->body, cudaGetLastError());
}

/* Is the entry's call another than the one before it, but for slots? Those lie alike, and have one size. */
static bool runs_other_kernels(const struct pp_cuda_graphs *graphs, uint32_t i)
{
	const struct key *key = &graphs->entries[i].key, *before = i ? &graphs->entries[i - 1].key : NULL;
	return !before || key->body != before->body || key->first != before->first;
}

/* Kernels are loaded when they first run, which must not happen in a capture, nor while others are in flight. Libraries
 * may have one for products that write and one for those that add. */
static bool try_bodies(struct pp_device *device, const struct pp_cuda_graphs *graphs, struct pp_status *status)
{
	for (uint32_t i = 0; i < graphs->count; i++)
		if (runs_other_kernels(graphs, i))
			run_kernels(device, &graphs->entries[i].call);
	pp_cuda_tail_warm(device);
	if (device->failed.code != PP_EXIT_OK) {
		*status = device->failed;
		return false;
	}
	return pp_cuda_wait(device->cuda.compute, "trying the kernels", status);
}

static bool capture(struct pp_device *device, const struct pp_bound_call *bound, uint32_t first, uint32_t end,
                    cudaGraphExec_t *exec, struct pp_status *status)
{
	cudaGraph_t graph = NULL;
	cudaStream_t stream = device->cuda.compute;
	if (!pp_cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a body", status))
		return false;
	pp_cuda_run_body(&device->body, bound, first, end);
	cudaError_t launched = cudaGetLastError(), ended = cudaStreamEndCapture(stream, &graph);
	bool ok = pp_cuda_ok(launched, "capturing a kernel", status) && pp_cuda_ok(ended, "capturing a body", status) &&
	          pp_cuda_ok(cudaGraphInstantiate(exec, graph, 0), "making a graph of a body", status) &&
	          pp_cuda_ok(cudaGraphUpload(*exec, stream), "uploading a graph of a body", status);
	if (graph)
		cudaGraphDestroy(graph);
	return ok;
}

static uint32_t stretches_of(const struct pp_body *body, uint32_t tp)
{
	uint32_t count = 0;
	for (uint32_t at = 0; at < body->count; at = pp_cuda_stretch_end(body, at, tp))
		count++;
	return count;
}

static bool capture_all(struct pp_device *device, struct pp_cuda_graphs *graphs, struct pp_status *status)
{
	for (uint32_t i = 0; i < graphs->count; i++) {
		graphs->entries[i].stretch = graphs->stretch_count;
		graphs->stretch_count += stretches_of(graphs->entries[i].call.body, device->tp);
	}
	graphs->stretches = calloc((size_t)graphs->stretch_count + 1, sizeof *graphs->stretches);
	if (!graphs->stretches)
		return no_memory(status);
	for (uint32_t i = 0; i < graphs->count; i++) {
		const struct pp_body *body = graphs->entries[i].call.body;
		struct pp_bound_call bound;
		uint32_t stretch = graphs->entries[i].stretch;
		bind(device, &graphs->entries[i].call, &bound);
		for (uint32_t at = 0, end; at < body->count; at = end, stretch++) {
			end = pp_cuda_stretch_end(body, at, device->tp);
			if (!pp_cuda_is_exchange(&body->items[at], device->tp) &&
			    !capture(device, &bound, at, end, &graphs->stretches[stretch], status))
				return false;
		}
	}
	return pp_cuda_wait(device->cuda.compute, "making graphs", status);
}

static void free_graphs(struct pp_cuda_graphs *graphs)
{
	for (uint32_t i = 0; i < graphs->stretch_count && graphs->stretches; i++)
		if (graphs->stretches[i])
			cudaGraphExecDestroy(graphs->stretches[i]);
	free(graphs->stretches);
	free(graphs->entries);
	free(graphs);
}

bool pp_cuda_bodies_make(struct pp_device *device, bool as_graphs, struct pp_status *status)
{
	struct pp_cuda_graphs *graphs = calloc(1, sizeof *graphs);
	if (!graphs)
		return no_memory(status);
	bool ok = gather(device, graphs, status) && try_bodies(device, graphs, status);
	device->memory.free_kernels = pp_cuda_free_memory();
	ok = ok && (!as_graphs || capture_all(device, graphs, status));
	device->memory.free_graphs = pp_cuda_free_memory();
	if (ok && as_graphs)
		device->graphs = graphs;
	else
		free_graphs(graphs);
	return ok;
}

void pp_cuda_bodies_count(const struct pp_device *device, uint64_t *graphs, uint64_t *launches)
{
	const struct pp_cuda_graphs *made = device->graphs;
	*graphs = *launches = 0;
	for (uint32_t i = 0; made && i < made->stretch_count; i++)
		*graphs += made->stretches[i] != NULL;
	for (uint32_t i = 0; made && i < made->count; i++)
		*launches += made->entries[i].call.body->count;
}

void pp_cuda_bodies_free(struct pp_device *device)
{
	if (device->graphs)
		free_graphs(device->graphs);
}
