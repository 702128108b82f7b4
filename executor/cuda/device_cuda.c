/* The CUDA device: everything that it is given runs on one stream, in order; the host goes on at once.
 *
 * Requires a program that was verified. Ensures that nothing is allocated after create (of steps as graphs: after their
 * second run), that the device never has the host wait for the GPU within a step (links may: staging does at every
 * wait), and that devices of several threads share a GPU without touching each other's memory. */
#include "device_cuda.h"

#include "device_parts.h"
#include "gpu.h"
#include "links/loop_cuda.h"
#include "links/staged.h"
#ifdef PP_HAVE_NCCL
#include "links/nccl/nccl.h"
#endif

#include "executor/device_share.h"

#include <stdlib.h>
#include <string.h>

struct pp_cuda *pp_cuda_of(struct pp_device *device)
{
	return &device->cuda;
}

void pp_cuda_note(struct pp_device *device, cudaError_t error, const char *what)
{
	if (error != cudaSuccess && device->failed.code == PP_EXIT_OK)
		pp_fail(&device->failed, PP_EXIT_RUN, "GPU %d: %s failed: %s (CUDA error %d)", device->cuda.ordinal, what,
		        cudaGetErrorString(error), (int)error);
}

static bool present(bool apart)
{
	struct pp_status status;
	return apart ? pp_gpu_is_here() : pp_gpu_count(&status) > 0;
}

static bool supports(enum pp_body_op op)
{
	return pp_cuda_has_op(op);
}

static void *slot_address(struct pp_device *device, uint32_t slot)
{
	return pp_cuda_slot(device, slot);
}

static bool call_body(struct pp_device *device, const struct pp_call *call, const struct pp_body_link *link)
{
	pp_cuda_flush(device);
	return pp_cuda_run_call(device, call, link);
}

/* ---- settling --------------------------------------------------------------------------------- */

static enum pp_progress settle(struct pp_device *device)
{
	if (device->open) {
		pp_cuda_flush(device);
		pp_cuda_note(device, cudaEventRecord(device->done, device->cuda.compute), "marking the end of a step");
		device->open = false;
	}
	if (device->failed.code != PP_EXIT_OK)
		return PP_FAILED;
	cudaError_t error = cudaEventQuery(device->done);
	if (error == cudaErrorNotReady)
		return PP_PENDING;
	pp_cuda_note(device, error, "running a step");
	pp_cuda_step_over(device);
	return error == cudaSuccess ? PP_DONE : PP_FAILED;
}

static const char *failure(const struct pp_device *device)
{
	return device->failed.text;
}

/* ---- life ------------------------------------------------------------------------------------- */

static void destroy(struct pp_device *device)
{
	struct pp_status status;
	if (!device)
		return;
	if (device->done)
		pp_cuda_enter(device->cuda.ordinal,
		              &status); /* may be a thread that made none: the first GPU would start for it */
	pp_cuda_steps_free(device);
	pp_cuda_bodies_free(device);
	pp_gemm_destroy(device->body.gemm);
	pp_cuda_marks_free(device);
	pp_cuda_tail_free(device);
	if (device->done)
		cudaEventDestroy(device->done);
	pp_cuda_memory_free(device);
	if (device->cuda.compute)
		cudaStreamDestroy(device->cuda.compute);
	free(device->tickets);
	free(device->makes_loss);
	free(device);
}

static struct pp_device *make_tables(const struct pp_program *program, struct pp_coord coord)
{
	struct pp_device *device = calloc(1, sizeof *device);
	if (!device)
		return NULL;
	device->program = program;
	device->coord = coord;
	device->rank = &program->rank[coord.pp];
	device->tp = pp_grid_extent(program, PP_AXIS_TP);
	device->losses = pp_only_slot(device->rank, PP_SLOT_LOSSES);
	device->work = pp_only_slot(device->rank, PP_SLOT_WORK);
	device->tickets = calloc(pp_most_registers(program), sizeof *device->tickets);
	device->makes_loss = calloc((size_t)program->body_count + 1, sizeof *device->makes_loss);
	if (!device->tickets || !device->makes_loss) {
		destroy(device);
		return NULL;
	}
	for (uint32_t b = 0; b < program->body_count; b++)
		for (uint32_t r = 0; r < program->bodies[b].reg_count; r++)
			device->makes_loss[b] = device->makes_loss[b] || program->bodies[b].regs[r].base == PP_BASE_LOSS;
	return device;
}

static bool make_streams(struct pp_device *device, struct pp_status *status)
{
	return pp_cuda_ok(cudaStreamCreateWithFlags(&device->cuda.compute, cudaStreamNonBlocking), "making a stream",
	                  status) &&
	       pp_cuda_ok(cudaEventCreateWithFlags(&device->done, cudaEventDisableTiming), "making an event", status);
}

static bool make_kernels(struct pp_device *device, struct pp_status *status)
{
	device->body = (struct pp_cuda_body){.stream = device->cuda.compute,
	                                     .gemm = pp_gemm_create(device->memory.scratch_bytes, status),
	                                     .scratch = device->memory.scratch};
	return device->body.gemm && pp_gemm_plan_rank(device->body.gemm, device->program, device->coord.pp, status);
}

static bool make(struct pp_device *device, const struct pp_device_options *options, struct pp_status *status)
{
	if (!pp_gpu_choose(options->gpus, options->local, &device->cuda.ordinal, status) ||
	    !pp_cuda_enter(device->cuda.ordinal, status) || !pp_gpu_fits(device->cuda.ordinal, status) ||
	    !make_streams(device, status) || !pp_cuda_memory_make(device, options, status) ||
	    !pp_cuda_zero_all(device, status) || !pp_cuda_tail_make(device, status) ||
	    !pp_cuda_marks_make(device, options->marks, status) || !make_kernels(device, status) ||
	    !pp_cuda_bodies_make(device, options->graph == PP_GRAPH_BODY, status))
		return false;
	/* Trying the kernels has left its marks. */
	bool ok =
	    pp_cuda_zero_all(device, status) && (options->graph != PP_GRAPH_STEP || pp_cuda_steps_make(device, status));
	device->memory.free_ready = pp_cuda_free_memory();
	return ok;
}

static struct pp_device *create(const struct pp_program *program, struct pp_coord coord,
                                const struct pp_device_options *options, struct pp_status *status)
{
	static const struct pp_device_options plain = {0};
	if (!pp_device_slots_fit(program, coord.pp, status) || !pp_cuda_shapes_fit(program, coord.pp, status))
		return NULL;
	struct pp_device *device = make_tables(program, coord);
	if (!device) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the cuda device");
		return NULL;
	}
	if (make(device, options ? options : &plain, status))
		return device;
	destroy(device);
	return NULL;
}

const struct pp_device_ops pp_device_cuda = {
    .name = "cuda",
    .mover = &pp_loop_mover_cuda,
    .staged = &pp_link_staged,
#ifdef PP_HAVE_NCCL
    .direct = &pp_link_nccl,
#endif
    .has_guards = true,
    .own_memory = true,
    .present = present,
    .supports = supports,
    .half = true,
    .create = create,
    .destroy = destroy,
    .slot = slot_address,
    .read = pp_cuda_read,
    .write = pp_cuda_write,
    .begin = pp_cuda_begin,
    .end = pp_cuda_end,
    .forget = pp_cuda_steps_forget,
    .call = call_body,
    .load_begin = pp_cuda_load_begin,
    .load_end = pp_cuda_load_end,
    .zero = pp_cuda_zero_slot,
    .add = pp_cuda_add_slots,
    .sqnorm = pp_cuda_sqnorm,
    .clip = pp_cuda_clip_norm,
    .opt = pp_cuda_opt,
    .flush = pp_cuda_flush,
    .keep = pp_cuda_keep,
    .kept = pp_cuda_kept,
    .settle = settle,
    .failure = failure,
    .mark = pp_cuda_mark,
    .marked = pp_cuda_marked,
    .passed = pp_cuda_passed,
    .holding = pp_cuda_holding,
    .init = pp_cuda_init,
};
