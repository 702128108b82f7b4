/* What the kernels of a GPU cannot compute, said when the device is made: shapes come from what the user wrote, and no
 * later pass knows the limits of kernels. Requires a verified program. Reads no memory of the GPU. */
#include "device_parts.h"

#include "executor/body_frame.h"

#include <inttypes.h>

/* CUDA C++ Programming Guide, "Technical specifications per compute capability": most blocks of a grid in y and z. */
enum { GRID_SIDE = 65535 };

/* Attention has a block per head, tile of rows and sample. Tensor cores have heads in x and tiles, of 64 rows at least,
 * in y; the plain kernels have them the other way round. */
enum { TILE_ROWS = 64, SEQ_MOST = GRID_SIDE * TILE_ROWS };

static bool attention_fits(const struct pp_body *body, const struct pp_attention *shape, struct pp_status *status)
{
	uint64_t samples = shape->tokens / shape->seq;
	if (shape->head_columns > PP_CUDA_ATTENTION_COLUMNS)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "attention of stage %" PRIu32
		               " has heads %zu wide, the cuda device takes at most %d: build with "
		               "more heads, or run with --device=cpu",
		               body->stage, shape->head_columns, PP_CUDA_ATTENTION_COLUMNS);
	if (shape->heads > GRID_SIDE)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "attention of stage %" PRIu32
		               " has %zu heads, the cuda device takes at most %d: build with fewer "
		               "heads or more tensor parallelism, or run with --device=cpu",
		               body->stage, shape->heads, GRID_SIDE);
	if (shape->seq > SEQ_MOST)
		return pp_fail(
		    status, PP_EXIT_ENVIRONMENT,
		    "attention of stage %" PRIu32
		    " has samples of %zu tokens, the cuda device takes at most %d: build with shorter samples, or run "
		    "with --device=cpu",
		    body->stage, shape->seq, SEQ_MOST);
	return samples <= GRID_SIDE ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "attention of stage %" PRIu32 " has %" PRIu64 " samples in a microbatch, the cuda device takes at "
	               "most %d: build with smaller microbatches, or run with --device=cpu",
	               body->stage, samples, GRID_SIDE);
}

bool pp_cuda_shapes_fit(const struct pp_program *program, uint32_t rank, struct pp_status *status)
{
	enum { Q, DX_Q };
	for (uint32_t b = 0; b < program->body_count; b++) {
		const struct pp_body *body = &program->bodies[b];
		const struct pp_bound_call call = {.body = body};
		for (uint32_t i = 0; program->stages[body->stage].rank == rank && i < body->count; i++) {
			const struct frame frame = {.call = &call, .instr = &body->items[i]};
			if (frame.instr->op != PP_BODY_ATTN && frame.instr->op != PP_BODY_ATTN_DX)
				continue;
			struct pp_attention shape = attention_shape(&frame, frame.instr->op == PP_BODY_ATTN ? Q : DX_Q);
			if (!attention_fits(body, &shape, status))
				return false;
		}
	}
	return true;
}
