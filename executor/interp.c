/* Fetch and dispatch over one stream.
 *
 * Requires: a verified program whose slots are placed, a device and a bound endpoint of the same rank.
 * Ensures: instructions run in order; a rank goes on after a wait only when the post has completed, or the step fails
 * with a status. */
#include "interp.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef bool handler(struct pp_interp *interp, const struct pp_instr *instr);

/* ---- waiting --------------------------------------------------------------------------------- */

static bool gave_up(struct pp_interp *interp)
{
	return pp_fail(interp->status, PP_EXIT_RUN, "%s", interp->transport->failure(interp->endpoint));
}

static bool expired(struct pp_interp *interp)
{
	return pp_fail(interp->status, PP_EXIT_RUN, "waited longer than %.0f s", (double)interp->watch->timeout * 1e-9);
}

/* Handlers are named after the enumerators in ops.def. */

static bool run_WAIT(struct pp_interp *interp, const struct pp_instr *instr)
{
	struct pp_pause pause = {0};
	for (;;) {
		enum pp_progress progress = interp->transport->test(interp->endpoint, instr->a[0], instr->a[1]);
		if (progress == PP_DONE) {
			pp_pause_end(&pause, interp->watch);
			return true;
		}
		if (progress == PP_FAILED)
			return gave_up(interp);
		if (!pp_pause(&pause, interp->watch))
			return expired(interp);
	}
}

static bool run_WAITC(struct pp_interp *interp, const struct pp_instr *instr)
{
	struct pp_pause pause = {0};
	for (;;) {
		enum pp_progress progress = interp->transport->test_coll(interp->endpoint, instr->a[0]);
		if (progress == PP_DONE) {
			pp_pause_end(&pause, interp->watch);
			return true;
		}
		if (progress == PP_FAILED)
			return gave_up(interp);
		if (!pp_pause(&pause, interp->watch))
			return expired(interp);
	}
}

/* ---- posts ----------------------------------------------------------------------------------- */

/* Up to 255 us, from an xorshift sequence of the seed: results must not depend on it. */
static void delay(struct pp_interp *interp)
{
	if (!interp->jitter)
		return;
	interp->jitter ^= interp->jitter << 13;
	interp->jitter ^= interp->jitter >> 7;
	interp->jitter ^= interp->jitter << 17;
	nanosleep(&(struct timespec){0, (long)(interp->jitter >> 56) * 1000}, NULL);
}

static bool run_SEND(struct pp_interp *interp, const struct pp_instr *instr)
{
	delay(interp);
	interp->transport->post_send(interp->endpoint, instr, interp->slots[instr->a[2]]);
	pp_watch_posted(interp->watch);
	return true;
}

static bool run_RECV(struct pp_interp *interp, const struct pp_instr *instr)
{
	delay(interp);
	interp->transport->post_recv(interp->endpoint, instr, interp->slots[instr->a[2]]);
	pp_watch_posted(interp->watch);
	return true;
}

/* Once losses are summed over replicas, nobody can tell where one came from. */
static void keep_bad_loss(struct pp_interp *interp)
{
	const double *losses = interp->slots[interp->losses];
	uint32_t microbatches = interp->program->microbatches, mb = 0;
	while (mb < microbatches && isfinite(losses[2 * mb]))
		mb++;
	interp->bad_loss = mb < microbatches ? mb : PP_NULL;
	interp->summed = true;
}

static bool run_COLL(struct pp_interp *interp, const struct pp_instr *instr)
{
	if (instr->a[2] == interp->losses && !interp->summed)
		keep_bad_loss(interp);
	uint64_t shard = instr->flags & PP_SHARD ? interp->coord.dp * pp_payload_bytes(instr) : 0;
	delay(interp);
	interp->transport->post_coll(interp->endpoint, instr, (unsigned char *)interp->slots[instr->a[2]] + shard,
	                             (unsigned char *)interp->slots[instr->a[3]] + shard);
	pp_watch_posted(interp->watch);
	return true;
}

/* ---- bodies' way to the transport ------------------------------------------------------------ */

static void poll_for_body(void *context)
{
	const struct pp_interp *interp = context;
	pp_watch_worked(interp->watch);
	interp->transport->poll(interp->endpoint);
}

static uint32_t post_for_body(void *context, enum pp_collective kind, enum pp_dtype dtype, const void *from, void *to,
                              uint64_t count)
{
	struct pp_interp *interp = context;
	delay(interp);
	return interp->transport->post_body(interp->endpoint, kind, dtype, from, to, count);
}

static bool await_for_body(void *context, uint32_t ticket)
{
	struct pp_interp *interp = context;
	struct pp_pause pause = {0};
	for (;;) {
		enum pp_progress progress = interp->transport->test_body(interp->endpoint, ticket);
		if (progress == PP_DONE) {
			pp_pause_end(&pause, interp->watch);
			return true;
		}
		if (progress == PP_FAILED)
			return gave_up(interp);
		if (!pp_pause(&pause, interp->watch))
			return expired(interp);
	}
}

/* ---- compute --------------------------------------------------------------------------------- */

static bool call(struct pp_interp *interp, const struct pp_instr *instr, enum pp_phase phase, struct pp_call *operands)
{
	uint32_t body = interp->program->stages[instr->stage].body[phase];
	operands->body = &interp->program->bodies[body];
	operands->mb = instr->mb;
	operands->first = (instr->flags & PP_FIRST) != 0;
	delay(interp);
	uint64_t start = pp_clock();
	bool went = interp->device_ops->call(interp->device, operands, &interp->link);
	interp->last_compute_end = pp_clock();
	interp->computed += interp->last_compute_end - start;
	return went;
}

static bool run_FWD(struct pp_interp *interp, const struct pp_instr *instr)
{
	struct pp_call operands = {.in = instr->a[0],
	                           .aux = instr->a[1],
	                           .out = instr->a[2],
	                           .stash = instr->a[3],
	                           .extra = PP_NULL,
	                           .dout = PP_NULL,
	                           .din = PP_NULL};
	return call(interp, instr, PP_PHASE_F, &operands);
}

static bool call_backward(struct pp_interp *interp, const struct pp_instr *instr, enum pp_phase phase)
{
	struct pp_call operands = {.in = PP_NULL,
	                           .aux = instr->a[0],
	                           .out = PP_NULL,
	                           .stash = instr->a[1],
	                           .extra = instr->extra,
	                           .dout = instr->a[2],
	                           .din = instr->a[3]};
	return call(interp, instr, phase, &operands);
}

static bool run_BWD(struct pp_interp *interp, const struct pp_instr *instr)
{
	return call_backward(interp, instr, PP_PHASE_B);
}

static bool run_BWDI(struct pp_interp *interp, const struct pp_instr *instr)
{
	return call_backward(interp, instr, PP_PHASE_I);
}

static bool run_BWDW(struct pp_interp *interp, const struct pp_instr *instr)
{
	struct pp_call operands = {.in = PP_NULL,
	                           .aux = instr->a[0],
	                           .out = PP_NULL,
	                           .stash = instr->a[1],
	                           .extra = instr->extra,
	                           .dout = PP_NULL,
	                           .din = PP_NULL};
	return call(interp, instr, PP_PHASE_W, &operands);
}

static bool run_REMAT(struct pp_interp *interp, const struct pp_instr *instr)
{
	struct pp_call operands = {.in = PP_NULL,
	                           .aux = PP_NULL,
	                           .out = PP_NULL,
	                           .stash = instr->a[0],
	                           .extra = instr->extra,
	                           .dout = PP_NULL,
	                           .din = PP_NULL};
	return call(interp, instr, PP_PHASE_R, &operands);
}

static bool run_LOAD(struct pp_interp *interp, const struct pp_instr *instr)
{
	uint64_t step = interp->batch ? interp->batch : interp->step;
	return pp_data_fill(interp->data, step - 1, instr->mb, (enum pp_load)instr->sub, interp->slots[instr->a[0]],
	                    interp->status);
}

/* ---- step tail ------------------------------------------------------------------------------- */

static bool run_ZERO(struct pp_interp *interp, const struct pp_instr *instr)
{
	interp->device_ops->zero(interp->device, instr->a[0]);
	return true;
}

static bool run_ADD(struct pp_interp *interp, const struct pp_instr *instr)
{
	interp->device_ops->add(interp->device, instr->a[0], instr->a[1], instr->flags & PP_SHARD);
	return true;
}

static bool run_SQNORM(struct pp_interp *interp, const struct pp_instr *instr)
{
	interp->device_ops->sqnorm(interp->device, instr->a[0], instr->a[1], instr->mb, instr->flags & PP_SHARD);
	return true;
}

static bool run_CLIP(struct pp_interp *interp, const struct pp_instr *instr)
{
	const struct pp_hyper *hyper = &interp->program->train.hypers[instr->mb];
	interp->device_ops->clip(interp->device, hyper, (enum pp_mean)instr->sub, instr->a[0], instr->a[1], instr->a[2]);
	return true;
}

/* The rank's slot of a class of which there is at most one. */
static uint32_t only_slot(const struct pp_rank *rank, enum pp_slot_class class)
{
	for (uint32_t i = 0; i < rank->slot_count; i++)
		if (rank->slots[i].class == class)
			return i;
	return PP_NULL;
}

static bool run_OPT(struct pp_interp *interp, const struct pp_instr *instr)
{
	const struct pp_hyper *hyper = &interp->program->train.hypers[instr->mb];
	interp->device_ops->opt(interp->device, (enum pp_optimizer)instr->sub, hyper, interp->lr, interp->step, instr->a[0],
	                        instr->a[1], instr->a[2], instr->a[3], interp->scale, instr->flags & PP_SHARD);
	return true;
}

static bool run_MARK(struct pp_interp *interp, const struct pp_instr *instr)
{
	(void)interp;
	(void)instr;
	return true;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static handler *const handlers[PP_OP_COUNT] = {
#define PP_OP(NAME, mnemonic, signature, meaning) [PP_OP_##NAME] = run_##NAME,
#include "ir/ops.def"
};

/* The slot that an instruction reads numbers from, PP_NULL: none. */
static uint32_t read_slot(const struct pp_instr *instr)
{
	switch ((enum pp_op)instr->op) {
	case PP_OP_SEND:
	case PP_OP_COLL:
		return instr->a[2];
	case PP_OP_FWD:
		return instr->a[0];
	case PP_OP_BWD:
	case PP_OP_BWDI:
		return instr->a[2] != PP_NULL ? instr->a[2] : instr->a[1];
	case PP_OP_BWDW:
	case PP_OP_ADD:
	case PP_OP_OPT:
		return instr->a[1];
	case PP_OP_SQNORM:
		return instr->a[0];
	case PP_OP_LOAD:
	case PP_OP_RECV:
	case PP_OP_WAIT:
	case PP_OP_WAITC:
	case PP_OP_ZERO:
	case PP_OP_CLIP:
	case PP_OP_MARK:
	case PP_OP_REMAT:
	case PP_OP_COUNT:
		break;
	}
	return PP_NULL;
}

static bool meet_fault(struct pp_interp *interp, const struct pp_stream *stream, uint32_t index)
{
	const struct pp_instr *instr = &stream->items[index];
	switch (pp_fault_meet(interp->fault.kind)) {
	case PP_FAULT_NONE:
	case PP_FAULT_KILL:
	case PP_FAULT_STOP:
	case PP_FAULT_SLEEP:
	case PP_FAULT_SKIP:
		break;
	case PP_FAULT_EXIT:
		interp->lost = true;
		return pp_fail(interp->status, PP_EXIT_RUN, "planted fault: exit at instruction %" PRIu32, index);
	case PP_FAULT_FAIL:
		return pp_fail(interp->status, PP_EXIT_RUN, "planted fault: failure at instruction %" PRIu32, index);
	case PP_FAULT_CUT:
		atomic_store(&interp->watch->cut, true);
		break;
	case PP_FAULT_NAN:
		if (read_slot(instr) == PP_NULL)
			return pp_fail(interp->status, PP_EXIT_RUN,
			               "planted fault: instruction %" PRIu32 " reads no numbers that could be spoilt", index);
		*(float *)interp->slots[read_slot(instr)] = NAN;
		break;
	}
	return true;
}

static bool is_post(const struct pp_instr *instr)
{
	return instr->op == PP_OP_SEND || instr->op == PP_OP_RECV || instr->op == PP_OP_COLL;
}

/* Is this a post on the channel or group of `skipped`, or a wait for one? */
static bool is_mute(const struct pp_stream *stream, const struct pp_instr *instr, const struct pp_instr *skipped)
{
	if (skipped->op != PP_OP_COLL)
		return (instr->op == PP_OP_WAIT || instr->op == skipped->op) && instr->a[0] == skipped->a[0];
	if (instr->op == PP_OP_COLL)
		return instr->a[1] == skipped->a[1];
	for (uint32_t i = 0; instr->op == PP_OP_WAITC && i < stream->count; i++)
		if (stream->items[i].op == PP_OP_COLL && stream->items[i].a[0] == instr->a[0])
			return stream->items[i].a[1] == skipped->a[1];
	return false;
}

/* From a post on that is never made: its channel or group stays mute, and who waits for what was not posted waits for
 * ever. */
static bool run_mute(struct pp_interp *interp, const struct pp_stream *stream, uint32_t from)
{
	const struct pp_instr *skipped = NULL;
	uint32_t skips = 0;
	for (uint32_t i = from; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		pp_watch_at(interp->watch, i);
		if (!skipped && is_post(instr))
			skipped = instr;
		bool mute = skipped && is_mute(stream, instr, skipped);
		bool early = instr->op == PP_OP_WAIT && mute && instr->a[1] < skipped->a[1]; /* posted before */
		struct pp_pause pause = {0};
		while (mute && !is_post(instr) && !early)
			if (!pp_pause(&pause, interp->watch))
				return expired(interp);
		if (mute && is_post(instr))
			skips++;
		else if (!handlers[instr->op](interp, instr))
			return false;
	}
	return skips > 0 ||
	       pp_fail(interp->status, PP_EXIT_RUN, "planted fault: no post comes after instruction %" PRIu32, from);
}

bool pp_interp_step(struct pp_interp *interp, const struct pp_stream *stream, struct pp_status *status)
{
	interp->status = status;
	interp->computed = 0;
	interp->bad_loss = PP_NULL;
	interp->summed = false;
	uint32_t fault = interp->batch ? PP_NULL : pp_fault_index(&interp->fault, interp->world, interp->step);
	pp_watch_enter(interp->watch, stream, interp->step, interp->batch);
	interp->began = interp->last_compute_end = pp_clock();
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		pp_watch_at(interp->watch, i);
		if (i == fault && !meet_fault(interp, stream, i))
			return false;
		if (i == fault && interp->fault.kind == PP_FAULT_SKIP)
			return run_mute(interp, stream, i);
		if (interp->times)
			interp->times[2 * i] = pp_clock();
		if (!handlers[instr->op](interp, instr))
			return false;
		if (interp->times)
			interp->times[2 * i + 1] = pp_clock();
	}
	interp->ended = pp_clock();
	pp_watch_at(interp->watch, stream->count);
	return true;
}

bool pp_interp_open(struct pp_interp *interp, struct pp_status *status)
{
	interp->coord = pp_grid_coord(interp->program, interp->world);
	interp->link = (struct pp_body_link){interp, poll_for_body, post_for_body, await_for_body};
	const struct pp_rank *rank = &interp->program->rank[interp->coord.pp];
	interp->slots = calloc((size_t)rank->slot_count + 1, sizeof *interp->slots);
	if (!interp->slots)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the slots of rank %" PRIu32, interp->world);
	for (uint32_t i = 0; i < rank->slot_count; i++)
		interp->slots[i] = interp->device_ops->slot(interp->device, i);
	interp->scale = only_slot(rank, PP_SLOT_SCALE);
	interp->losses = only_slot(rank, PP_SLOT_LOSSES);
	if (interp->jitter)
		interp->jitter ^= (uint64_t)(interp->world + 1) * UINT64_C(0x9e3779b97f4a7c15);
	return true;
}

void pp_interp_close(struct pp_interp *interp)
{
	free(interp->slots);
	interp->slots = NULL;
}
