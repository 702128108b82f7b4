/* Collectives: every member publishes its data piece by piece, takes those of all when all have published, and compares
 * what they posted. Sums go in rank order, (s0 + s1) + s2 …, rounded to the type each time: all members get the same
 * bits, those of the host transports. */
#include "multiply.h"
#include "nccl_communicator.h"
#include "runtime.h"

#include <string.h>

static struct pp_fake_post post_of(const struct pp_fake_task *task)
{
	return (struct pp_fake_post){.count = task->count,
	                             .type = (int32_t)task->type,
	                             .kind = (int32_t)task->kind,
	                             .operation = (int32_t)task->reduction,
	                             .root = (int32_t)task->peer,
	                             .captured = task->captured};
}

static void disagree(const struct ncclComm *communicator, uint32_t other)
{
	const struct pp_fake_member *members = communicator->segment->members;
	const struct pp_fake_post *mine = &members[communicator->rank].share.post, *theirs = &members[other].share.post;
	pp_fake_lock();
	pp_fake_die(
	    "members of a collective disagree on communicator %s: rank %u posts %s #%llu of %llu %s (operation %d, root "
	    "%d), rank %u posts %s #%llu of %llu %s (operation %d, root %d)%s",
	    communicator->label, communicator->rank, pp_fake_task_names[mine->kind],
	    (unsigned long long)members[communicator->rank].share.sequence, (unsigned long long)mine->count,
	    pp_fake_nccl_type(mine->type), mine->operation, mine->root, other, pp_fake_task_names[theirs->kind],
	    (unsigned long long)members[other].share.sequence, (unsigned long long)theirs->count,
	    pp_fake_nccl_type(theirs->type), theirs->operation, theirs->root,
	    pp_fake_captures_text(mine->captured, theirs->captured));
}

/* Elements that a member has to publish. */
static uint64_t given_elements(const struct ncclComm *communicator, const struct pp_fake_task *task)
{
	return task->kind == PP_FAKE_REDUCE_SCATTER ? task->count * communicator->ranks : task->count;
}

/* What the members have published, in rank order, element by element. */
static void reduce_floats(const struct ncclComm *communicator, float *sums, uint64_t count, bool largest)
{
	const struct pp_fake_member *members = communicator->segment->members;
	memcpy(sums, members[0].share.bytes, count * sizeof *sums);
	for (uint32_t k = 1; k < communicator->ranks; k++)
		for (uint64_t i = 0; i < count; i++) {
			float other;
			memcpy(&other, members[k].share.bytes + i * sizeof other, sizeof other);
			sums[i] = largest ? (other > sums[i] ? other : sums[i]) : sums[i] + other;
		}
}

static void reduce_doubles(const struct ncclComm *communicator, double *sums, uint64_t count, bool largest)
{
	const struct pp_fake_member *members = communicator->segment->members;
	memcpy(sums, members[0].share.bytes, count * sizeof *sums);
	for (uint32_t k = 1; k < communicator->ranks; k++)
		for (uint64_t i = 0; i < count; i++) {
			double other;
			memcpy(&other, members[k].share.bytes + i * sizeof other, sizeof other);
			sums[i] = largest ? (other > sums[i] ? other : sums[i]) : sums[i] + other;
		}
}

static void reduce_integers(const struct ncclComm *communicator, int32_t *sums, uint64_t count, bool largest)
{
	const struct pp_fake_member *members = communicator->segment->members;
	memcpy(sums, members[0].share.bytes, count * sizeof *sums);
	for (uint32_t k = 1; k < communicator->ranks; k++)
		for (uint64_t i = 0; i < count; i++) {
			int32_t other;
			memcpy(&other, members[k].share.bytes + i * sizeof other, sizeof other);
			sums[i] = largest ? (other > sums[i] ? other : sums[i]) : sums[i] + other;
		}
}

/* In f32, rounded once. */
static void reduce_bf16(const struct ncclComm *communicator, uint16_t *sums, uint64_t count, bool largest)
{
	const struct pp_fake_member *members = communicator->segment->members;
	for (uint64_t i = 0; i < count; i++) {
		float sum = 0;
		for (uint32_t k = 0; k < communicator->ranks; k++) {
			uint16_t bits;
			memcpy(&bits, members[k].share.bytes + i * sizeof bits, sizeof bits);
			float other = pp_fake_from_bf16(bits);
			sum = k == 0 ? other : largest ? (other > sum ? other : sum) : sum + other;
		}
		sums[i] = pp_fake_to_bf16(sum);
	}
}

static void reduce(const struct ncclComm *communicator, const struct pp_fake_task *task, void *sums, uint64_t count)
{
	bool largest = task->reduction == ncclMax;
	if (task->type == ncclFloat32)
		reduce_floats(communicator, sums, count, largest);
	else if (task->type == ncclFloat64)
		reduce_doubles(communicator, sums, count, largest);
	else if (task->type == ncclBfloat16)
		reduce_bf16(communicator, sums, count, largest);
	else
		reduce_integers(communicator, sums, count, largest);
}

/* Elements [first, first + count) of what all have published, into the result. */
static void take(const struct ncclComm *communicator, const struct pp_fake_task *task, uint64_t first, uint64_t count)
{
	const struct pp_fake_member *members = communicator->segment->members;
	uint64_t size = pp_fake_nccl_bytes(task->type);
	if (task->kind == PP_FAKE_BROADCAST) {
		memcpy(task->to + first * size, members[task->peer].share.bytes, count * size);
		return;
	}
	if (task->kind == PP_FAKE_ALL_GATHER) {
		for (uint32_t i = 0; i < communicator->ranks; i++)
			memcpy(task->to + (i * task->count + first) * size, members[i].share.bytes, count * size);
		return;
	}
	_Alignas(8) unsigned char sums[PP_FAKE_CHUNK_BYTES];
	reduce(communicator, task, sums, count);
	uint64_t begin = task->kind == PP_FAKE_REDUCE_SCATTER ? communicator->rank * task->count : 0;
	uint64_t end = begin + task->count, from = first > begin ? first : begin;
	uint64_t to = first + count < end ? first + count : end;
	if (from < to)
		memcpy(task->to + (from - begin) * size, sums + (from - first) * size, (to - from) * size);
}

static bool all_consumed(const struct ncclComm *communicator, uint64_t pieces)
{
	for (uint32_t i = 0; i < communicator->ranks; i++)
		if (atomic_load(&communicator->segment->members[i].share.consumed) < pieces)
			return false;
	return true;
}

static bool all_published(const struct ncclComm *communicator, uint64_t pieces)
{
	for (uint32_t i = 0; i < communicator->ranks; i++)
		if (atomic_load(&communicator->segment->members[i].share.published) < pieces)
			return false;
	return true;
}

static void publish(struct ncclComm *communicator, struct pp_fake_task *task, uint64_t first, uint64_t count)
{
	struct pp_fake_share *share = &communicator->segment->members[communicator->rank].share;
	uint64_t size = pp_fake_nccl_bytes(task->type);
	share->post = post_of(task);
	share->sequence = task->sequence;
	if (task->kind != PP_FAKE_BROADCAST || task->peer == communicator->rank)
		memcpy(share->bytes, task->from + first * size, count * size);
	task->published = true;
	atomic_store(&share->published, communicator->pieces + 1);
}

static void compare(const struct ncclComm *communicator)
{
	const struct pp_fake_member *members = communicator->segment->members;
	const struct pp_fake_share *mine = &members[communicator->rank].share;
	for (uint32_t i = 0; i < communicator->ranks; i++) {
		const struct pp_fake_post *a = &mine->post, *b = &members[i].share.post;
		if (a->count != b->count || a->type != b->type || a->kind != b->kind || a->operation != b->operation ||
		    a->root != b->root || a->captured != b->captured || mine->sequence != members[i].share.sequence)
			disagree(communicator, i);
	}
}

bool pp_fake_collective_step(struct ncclComm *communicator, struct pp_fake_task *task)
{
	if (!task->begun)
		task->sequence = ++communicator->collectives;
	bool moved = !task->begun;
	task->begun = true;
	uint64_t size = pp_fake_nccl_bytes(task->type), total = given_elements(communicator, task);
	for (;;) {
		uint64_t first = task->bytes_done / size, most = PP_FAKE_CHUNK_BYTES / size;
		uint64_t count = total - first < most ? total - first : most;
		if (!task->published) {
			if (!all_consumed(communicator, communicator->pieces))
				return moved;
			publish(communicator, task, first, count);
			moved = true;
		}
		if (!all_published(communicator, communicator->pieces + 1))
			return moved;
		compare(communicator);
		take(communicator, task, first, count);
		task->published = false;
		task->bytes_done += count * size;
		communicator->pieces++;
		atomic_store(&communicator->segment->members[communicator->rank].share.consumed, communicator->pieces);
		if (task->bytes_done == total * size) {
			task->done = true;
			return true;
		}
		moved = true;
	}
}
