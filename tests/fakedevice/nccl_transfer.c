/* Send and receive: strict rendezvous, byte by byte through a ring. Nothing of a message moves before both ends are
 * posted, unless it is short enough to be buffered (PP_FAKE_BUFFERED), and a send is done only when it has been taken.
 */
#include "nccl_communicator.h"
#include "runtime.h"

#include <string.h>

static void disagree(const struct ncclComm *communicator, const struct pp_fake_task *task,
                     const struct pp_fake_post *send, const struct pp_fake_post *receive)
{
	uint32_t sender = task->kind == PP_FAKE_SEND ? communicator->rank : task->peer;
	uint32_t receiver = task->kind == PP_FAKE_SEND ? task->peer : communicator->rank;
	pp_fake_lock();
	pp_fake_die(
	    "ends of a transfer disagree on communicator %s: #%llu from rank %u is a send of %llu %s, rank %u receives "
	    "%llu %s%s",
	    communicator->label, (unsigned long long)task->sequence, sender, (unsigned long long)send->count,
	    pp_fake_nccl_type(send->type), receiver, (unsigned long long)receive->count, pp_fake_nccl_type(receive->type),
	    pp_fake_captures_text(send->captured, receive->captured));
}

/* Are both ends posted? Compares them the first time. */
static bool meet(const struct ncclComm *communicator, struct pp_fake_task *task, const struct pp_fake_pipe *pipe)
{
	if (task->met)
		return true;
	bool sending = task->kind == PP_FAKE_SEND;
	if (atomic_load(sending ? &pipe->receives : &pipe->sends) < task->sequence)
		return false;
	const struct pp_fake_post *send = &pipe->send_posts[task->sequence % PP_FAKE_POST_ROOM];
	const struct pp_fake_post *receive = &pipe->receive_posts[task->sequence % PP_FAKE_POST_ROOM];
	if (send->count != receive->count || send->type != receive->type || send->captured != receive->captured)
		disagree(communicator, task, send, receive);
	task->met = true;
	return true;
}

/* False: too many buffered sends are ahead of their receives. */
static bool begin(struct ncclComm *communicator, struct pp_fake_task *task, struct pp_fake_pipe *pipe)
{
	bool sending = task->kind == PP_FAKE_SEND;
	uint64_t sequence = 1 + (sending ? communicator->sends[task->peer] : communicator->receives[task->peer]);
	if (sending && sequence - atomic_load(&pipe->receives) >= PP_FAKE_POST_ROOM)
		return false;
	task->begun = true;
	task->sequence = sequence;
	struct pp_fake_post post = {.count = task->count, .type = (int32_t)task->type, .captured = task->captured};
	if (sending) {
		communicator->sends[task->peer] = sequence;
		pipe->send_posts[sequence % PP_FAKE_POST_ROOM] = post;
	} else {
		communicator->receives[task->peer] = sequence;
		pipe->receive_posts[sequence % PP_FAKE_POST_ROOM] = post;
	}
	atomic_store(sending ? &pipe->sends : &pipe->receives, sequence);
	return true;
}

/* Copies between memory and the ring, which begins anew at its end. */
static void copy_in(struct pp_fake_pipe *pipe, uint64_t position, const unsigned char *from, uint64_t bytes)
{
	uint64_t place = position % PP_FAKE_RING_BYTES, first = PP_FAKE_RING_BYTES - place;
	first = first < bytes ? first : bytes;
	memcpy(pipe->ring + place, from, first);
	memcpy(pipe->ring, from + first, bytes - first);
}

static void copy_out(const struct pp_fake_pipe *pipe, uint64_t position, unsigned char *to, uint64_t bytes)
{
	uint64_t place = position % PP_FAKE_RING_BYTES, first = PP_FAKE_RING_BYTES - place;
	first = first < bytes ? first : bytes;
	memcpy(to, pipe->ring + place, first);
	memcpy(to + first, pipe->ring, bytes - first);
}

static bool step_send(struct ncclComm *communicator, struct pp_fake_task *task, struct pp_fake_pipe *pipe)
{
	uint64_t bytes = task->count * pp_fake_nccl_bytes(task->type), buffered = pp_fake_settings()->buffered;
	bool early = bytes <= buffered && bytes <= PP_FAKE_RING_BYTES;
	bool met = meet(communicator, task, pipe);
	if (!met && !early)
		return false;
	uint64_t written = atomic_load(&pipe->written), read = atomic_load(&pipe->read);
	uint64_t room = PP_FAKE_RING_BYTES - (written - read), rest = bytes - task->bytes_done;
	if (early && rest > room)
		return false;
	uint64_t part = rest < room ? rest : room;
	copy_in(pipe, written, task->from + task->bytes_done, part);
	task->bytes_done += part;
	atomic_store(&pipe->written, written + part);
	bool done = task->bytes_done == bytes && (early || (met && atomic_load(&pipe->read) == written + part));
	task->done = done;
	return part > 0 || done;
}

static bool step_receive(struct ncclComm *communicator, struct pp_fake_task *task, struct pp_fake_pipe *pipe)
{
	if (!meet(communicator, task, pipe))
		return false;
	uint64_t bytes = task->count * pp_fake_nccl_bytes(task->type);
	uint64_t read = atomic_load(&pipe->read), there = atomic_load(&pipe->written) - read;
	uint64_t rest = bytes - task->bytes_done, part = rest < there ? rest : there;
	copy_out(pipe, read, task->to + task->bytes_done, part);
	task->bytes_done += part;
	atomic_store(&pipe->read, read + part);
	task->done = task->bytes_done == bytes;
	return part > 0 || task->done;
}

bool pp_fake_transfer_step(struct ncclComm *communicator, struct pp_fake_task *task)
{
	uint32_t rank = communicator->rank, ranks = communicator->ranks;
	bool sending = task->kind == PP_FAKE_SEND, first = !task->begun;
	struct pp_fake_pipe *pipe = sending ? pp_fake_segment_pipe(communicator->segment, ranks, rank, task->peer)
	                                    : pp_fake_segment_pipe(communicator->segment, ranks, task->peer, rank);
	if (first && !begin(communicator, task, pipe))
		return false;
	bool moved = sending ? step_send(communicator, task, pipe) : step_receive(communicator, task, pipe);
	return moved || first;
}
