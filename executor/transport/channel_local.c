/* Channels through shared memory.
 *
 * Requires: one process per end. Ensures: FIFO; the first byte moves only once both ends have posted; counters are
 * raised after what they count has been written or read. */
#include "channel_local.h"

#include <string.h>

void pp_local_end_post(struct pp_local_end *end, const struct pp_instr *instr, const void *from, void *to)
{
	if (instr->a[1] == 0)
		end->base = end->posted;
	end->posts[end->posted++ % end->capacity] = (struct pp_local_post){instr, from, to};
	if (!end->sends)
		atomic_store_explicit(&end->ring->shared->wanted, end->posted, memory_order_release);
}

/* Bytes that can move now, up to the end of the ring. */
static uint64_t stretch(const struct pp_local_ring *ring, uint64_t at, uint64_t ready, uint64_t left)
{
	uint64_t most = ring->capacity - at % ring->capacity;
	uint64_t bytes = ready < left ? ready : left;
	return bytes < most ? bytes : most;
}

static bool give(struct pp_local_end *end, const struct pp_local_post *post, uint64_t bytes)
{
	struct pp_local_channel *shared = end->ring->shared;
	while (end->moved < bytes) {
		uint64_t given = atomic_load_explicit(&shared->given, memory_order_relaxed);
		uint64_t under_way = given - atomic_load_explicit(&shared->taken, memory_order_acquire);
		uint64_t now = stretch(end->ring, given, end->ring->capacity - under_way, bytes - end->moved);
		if (now == 0)
			return false;
		memcpy(end->ring->bytes + given % end->ring->capacity, post->from + end->moved, now);
		atomic_store_explicit(&shared->given, given + now, memory_order_release);
		end->moved += now;
	}
	return true;
}

static bool take(struct pp_local_end *end, const struct pp_local_post *post, uint64_t bytes)
{
	struct pp_local_channel *shared = end->ring->shared;
	while (end->moved < bytes) {
		uint64_t taken = atomic_load_explicit(&shared->taken, memory_order_relaxed);
		uint64_t ready = atomic_load_explicit(&shared->given, memory_order_acquire) - taken;
		uint64_t now = stretch(end->ring, taken, ready, bytes - end->moved);
		if (now == 0)
			return false;
		memcpy(post->to + end->moved, end->ring->bytes + taken % end->ring->capacity, now);
		atomic_store_explicit(&shared->taken, taken + now, memory_order_release);
		end->moved += now;
	}
	return true;
}

/* Announce the message at the head, once it is wanted and the one before has been looked at. */
static bool announce(const struct pp_local *local, const struct pp_local_end *end, const struct pp_local_post *post)
{
	struct pp_local_channel *shared = end->ring->shared;
	if (atomic_load_explicit(&shared->wanted, memory_order_acquire) <= end->done ||
	    atomic_load_explicit(&shared->accepted, memory_order_acquire) < end->done)
		return false;
	shared->sent = pp_identity_of(local->program, post->instr);
	atomic_store_explicit(&shared->announced, end->done + 1, memory_order_release);
	return true;
}

enum arrival { NOT_YET, ACCEPTED, WRONG };

static enum arrival accept(const struct pp_local *local, const struct pp_local_end *end,
                           const struct pp_local_post *post, char *why, size_t size)
{
	struct pp_local_channel *shared = end->ring->shared;
	if (atomic_load_explicit(&shared->announced, memory_order_acquire) <= end->done)
		return NOT_YET;
	struct pp_identity sent = shared->sent, expected = pp_identity_of(local->program, post->instr);
	bool equal = local->options.check_identity ? pp_identity_equal(&sent, &expected) : sent.bytes == expected.bytes;
	if (!equal) {
		pp_identity_explain(&sent, &expected, why, size);
		return WRONG;
	}
	atomic_store_explicit(&shared->accepted, end->done + 1, memory_order_release);
	return ACCEPTED;
}

bool pp_local_end_move(const struct pp_local *local, struct pp_local_end *end, char *why, size_t size)
{
	while (end->done < end->posted) {
		const struct pp_local_post *post = &end->posts[end->done % end->capacity];
		if (!end->begun && end->sends) {
			end->begun = announce(local, end, post);
		} else if (!end->begun) {
			enum arrival arrival = accept(local, end, post, why, size);
			if (arrival == WRONG)
				return false;
			end->begun = arrival == ACCEPTED;
		}
		uint64_t bytes = pp_payload_bytes(post->instr);
		if (!end->begun || !(end->sends ? give : take)(end, post, bytes))
			return true;
		end->begun = false;
		end->moved = 0;
		end->done++;
	}
	return true;
}
