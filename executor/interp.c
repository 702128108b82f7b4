/* Fetch and dispatch over one stream.
 *
 * Requires: a verified program whose slots are placed, a device and a bound endpoint of the same rank.
 * Ensures: instructions run in order; a rank goes on after a wait only when the post has completed, or the step fails
 * with a status. */
#include "interp.h"

#include "device_share.h"
#include "interp_fault.h"

#include "ir/lifetime.h"

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

static bool run_COLL(struct pp_interp *interp, const struct pp_instr *instr)
{
	/* Once losses are summed over replicas, nobody can tell where one came from. */
	if (instr->a[2] == interp->losses && !interp->summed) {
		interp->device_ops->keep(interp->device, interp->losses);
		interp->summed = true;
	}
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

static bool call(struct pp_interp *interp, const struct pp_instr *instr)
{
	const struct pp_call operands = pp_call_of(interp->program, instr);
	delay(interp);
	if (interp->device_ops->mark) /* its times come from the device */
		return interp->device_ops->call(interp->device, &operands, &interp->link);
	uint64_t start = pp_clock();
	bool went = interp->device_ops->call(interp->device, &operands, &interp->link);
	interp->last_compute_end = pp_clock();
	interp->computed += interp->last_compute_end - start;
	return went;
}

static bool run_FWD(struct pp_interp *interp, const struct pp_instr *instr)
{
	return call(interp, instr);
}

static bool run_BWD(struct pp_interp *interp, const struct pp_instr *instr)
{
	return call(interp, instr);
}

static bool run_BWDI(struct pp_interp *interp, const struct pp_instr *instr)
{
	return call(interp, instr);
}

static bool run_BWDW(struct pp_interp *interp, const struct pp_instr *instr)
{
	return call(interp, instr);
}

static bool run_REMAT(struct pp_interp *interp, const struct pp_instr *instr)
{
	return call(interp, instr);
}

static bool run_LOAD(struct pp_interp *interp, const struct pp_instr *instr)
{
	uint64_t step = interp->batch ? interp->batch : interp->step;
	void *to = interp->device_ops->load_begin(interp->device, instr);
	if (!pp_data_fill(interp->data, step - 1, instr->mb, (enum pp_load)instr->sub, to, interp->status))
		return false;
	interp->device_ops->load_end(interp->device, instr);
	return true;
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

static bool run_OPT(struct pp_interp *interp, const struct pp_instr *instr)
{
	const struct pp_update update = {.rule = (enum pp_optimizer)instr->sub,
	                                 .hyper = &interp->program->train.hypers[instr->mb],
	                                 .lr = interp->lr,
	                                 .step = interp->step,
	                                 .weight = instr->a[0],
	                                 .grad = instr->a[1],
	                                 .moment1 = instr->a[2],
	                                 .moment2 = instr->a[3],
	                                 .master = instr->extra,
	                                 .scale = interp->scale,
	                                 .shard = instr->flags & PP_SHARD};
	interp->device_ops->opt(interp->device, &update);
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

/* From a post on that is never made: its channel or group stays mute, and who waits for what was not posted waits for
 * ever. */
static bool run_mute(struct pp_interp *interp, const struct pp_stream *stream, uint32_t from)
{
	const struct pp_instr *skipped = NULL;
	uint32_t skips = 0;
	for (uint32_t i = from; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		pp_watch_at(interp->watch, i);
		if (!skipped && pp_interp_posts(instr))
			skipped = instr;
		bool mute = skipped && pp_interp_is_mute(stream, instr, skipped);
		bool early = instr->op == PP_OP_WAIT && mute && instr->a[1] < skipped->a[1]; /* posted before */
		struct pp_pause pause = {0};
		while (mute && !pp_interp_posts(instr) && !early)
			if (!pp_pause(&pause, interp->watch))
				return expired(interp);
		if (mute && pp_interp_posts(instr))
			skips++;
		else if (!handlers[instr->op](interp, instr))
			return false;
	}
	return skips > 0 ||
	       pp_fail(interp->status, PP_EXIT_RUN, "planted fault: no post comes after instruction %" PRIu32, from);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Of a step that is not traced, enough to tell how long bodies took and where the device is. */
static bool marks_start(const struct pp_interp *interp, const struct pp_instr *instr)
{
	return interp->times || pp_is_compute(instr) || instr->op == PP_OP_WAIT || instr->op == PP_OP_WAITC;
}

static bool marks_end(const struct pp_interp *interp, const struct pp_instr *instr)
{
	return interp->times || pp_is_compute(instr);
}

static bool run_instruction(struct pp_interp *interp, const struct pp_instr *instr, uint32_t index)
{
	const struct pp_device_ops *ops = interp->device_ops;
	if (ops->flush && instr->op != PP_OP_SQNORM && instr->op != PP_OP_OPT)
		ops->flush(interp->device);
	if (ops->mark) {
		if (marks_start(interp, instr))
			ops->mark(interp->device, 2 * index);
		bool went = handlers[instr->op](interp, instr);
		if (marks_end(interp, instr))
			ops->mark(interp->device, 2 * index + 1);
		return went;
	}
	if (interp->times)
		interp->times[2 * index] = pp_clock();
	bool went = handlers[instr->op](interp, instr);
	if (interp->times)
		interp->times[2 * index + 1] = pp_clock();
	return went;
}

static bool run_stream(struct pp_interp *interp, const struct pp_stream *stream)
{
	uint32_t fault = interp->batch ? PP_NULL : pp_fault_index(&interp->fault, interp->world, interp->step);
	for (uint32_t i = 0; i < stream->count; i++) {
		pp_watch_at(interp->watch, i);
		if (i == fault && !pp_interp_meet_fault(interp, &stream->items[i], i))
			return false;
		if (i == fault && interp->fault.kind == PP_FAULT_SKIP)
			return run_mute(interp, stream, i);
		if (!run_instruction(interp, &stream->items[i], i))
			return false;
	}
	return true;
}

/* A step that the device knows by heart needs its data only. It keeps the losses by itself, and has all posts. */
static bool run_loads(struct pp_interp *interp, const struct pp_stream *stream)
{
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op == PP_OP_LOAD && !run_LOAD(interp, instr))
			return false;
		if (pp_interp_posts(instr))
			pp_watch_posted(interp->watch);
		interp->summed = interp->summed || (instr->op == PP_OP_COLL && instr->a[2] == interp->losses);
	}
	return true;
}

/* Wait until the device has run all of it. Meanwhile this rank is where its device is. */
static bool settle(struct pp_interp *interp)
{
	const struct pp_device_ops *ops = interp->device_ops;
	struct pp_pause pause = {0};
	uint32_t at = PP_NULL;
	for (;;) {
		enum pp_progress progress = ops->settle(interp->device);
		if (progress == PP_DONE) {
			pp_pause_end(&pause, interp->watch);
			return true;
		}
		if (progress == PP_FAILED)
			return pp_fail(interp->status, PP_EXIT_RUN, "%s", ops->failure(interp->device));
		interp->transport->poll(interp->endpoint);
		if (interp->transport->broken && interp->transport->broken(interp->endpoint))
			return gave_up(interp);
		uint32_t passed = ops->passed ? ops->passed(interp->device) : PP_NULL;
		if (passed != at) {
			pp_watch_at(interp->watch, (passed + 1) / 2);
			pause = (struct pp_pause){0};
			at = passed;
		}
		if (!pp_pause(&pause, interp->watch))
			return expired(interp);
	}
}

/* Reading a device's clock takes a microsecond or two for each mark, while nothing else runs. */
static bool reads_clock(const struct pp_interp *interp)
{
	enum { FIRST_STEPS = 64, THEN_EACH = 16 };
	return interp->times || interp->step <= FIRST_STEPS || interp->step % THEN_EACH == 0;
}

/* What the device's clock says of a step that has settled. */
static void read_clock(struct pp_interp *interp, const struct pp_stream *stream)
{
	const struct pp_device_ops *ops = interp->device_ops;
	interp->timed = reads_clock(interp);
	for (uint32_t i = 0; interp->timed && i < stream->count; i++) {
		bool compute = pp_is_compute(&stream->items[i]);
		if (!compute && !interp->times)
			continue;
		uint64_t start = ops->marked(interp->device, 2 * i), end = ops->marked(interp->device, 2 * i + 1);
		if (interp->times) {
			interp->times[2 * i] = start;
			interp->times[2 * i + 1] = end;
		}
		if (compute) {
			interp->computed += end - start;
			interp->last_compute_end = end;
		}
	}
}

static void find_bad_loss(struct pp_interp *interp)
{
	const double *losses = interp->device_ops->kept(interp->device);
	uint32_t microbatches = interp->program->microbatches, mb = 0;
	while (mb < microbatches && isfinite(losses[2 * mb]))
		mb++;
	interp->bad_loss = mb < microbatches ? mb : PP_NULL;
}

bool pp_interp_step(struct pp_interp *interp, const struct pp_stream *stream, struct pp_status *status)
{
	const struct pp_device_ops *ops = interp->device_ops;
	interp->status = status;
	interp->computed = 0;
	interp->bad_loss = PP_NULL;
	interp->summed = false;
	interp->timed = true;
	pp_watch_enter(interp->watch, stream, interp->step, interp->batch);
	interp->began = interp->last_compute_end = pp_clock();
	bool by_heart = ops->begin && ops->begin(interp->device, stream, interp->step, interp->lr);
	if (!(by_heart ? run_loads(interp, stream) : run_stream(interp, stream)))
		return false;
	if (ops->end)
		ops->end(interp->device);
	if (!settle(interp))
		return false;
	interp->ended = pp_clock();
	if (ops->mark)
		read_clock(interp, stream);
	if (interp->summed)
		find_bad_loss(interp);
	pp_watch_at(interp->watch, stream->count);
	return true;
}

/* ---- life ------------------------------------------------------------------------------------ */

uint32_t pp_interp_marks(const struct pp_program *program)
{
	uint64_t longest = 0;
	for (uint32_t p = 0; p < program->program_count; p++)
		for (uint32_t r = 0; r < program->ranks; r++)
			if (program->programs[p].streams[r].count > longest)
				longest = program->programs[p].streams[r].count;
	return longest < UINT32_MAX / 2 ? (uint32_t)(2 * longest) : UINT32_MAX - 1;
}

bool pp_interp_read(const struct pp_interp *interp, uint32_t slot, uint64_t offset, uint64_t bytes, void *to,
                    struct pp_status *status)
{
	return interp->device_ops->read(interp->device, slot, offset, bytes, to, status);
}

bool pp_interp_write(const struct pp_interp *interp, uint32_t slot, uint64_t offset, uint64_t bytes, const void *from,
                     struct pp_status *status)
{
	return interp->device_ops->write(interp->device, slot, offset, bytes, from, status);
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
	interp->scale = pp_only_slot(rank, PP_SLOT_SCALE);
	interp->losses = pp_only_slot(rank, PP_SLOT_LOSSES);
	if (interp->jitter)
		interp->jitter ^= (uint64_t)(interp->world + 1) * UINT64_C(0x9e3779b97f4a7c15);
	return true;
}

void pp_interp_close(struct pp_interp *interp)
{
	free(interp->slots);
	interp->slots = NULL;
}
