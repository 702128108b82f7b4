/* First contact: NCCL makes its connections at the first use of a peer, and of a collective, and the host waits for the
 * other sides in it. The order of waiting is that of NCCL's transport set-up: for each distance the rank receives from
 * the one that far before it and sends to the one that far behind it; where both are the same rank, one message stands
 * for both directions, so that what the first groups of the two hold must be alike (NCCL 2.28, transport.cc,
 * ncclTransportP2pSetup). */
#include "nccl_communicator.h"
#include "runtime.h"

#include <stdio.h>
#include <string.h>

enum { SENDS = 1, RECEIVES = 2 };

static bool lost(const struct ncclComm *communicator)
{
	return atomic_load(&communicator->aborted);
}

static void write_mail(struct ncclComm *communicator, uint32_t peer, uint32_t kind, int32_t value)
{
	struct pp_fake_mail *mail =
	    pp_fake_segment_mail(communicator->segment, communicator->ranks, communicator->rank, peer, kind);
	uint64_t sent = atomic_load(&mail->sent);
	atomic_store(&mail->values[sent % PP_FAKE_MAIL_ROOM], value);
	atomic_store(&mail->sent, sent + 1);
}

/* Waits for the peer's next mail; 0: aborted. */
static int32_t read_mail(struct pp_fake_host *host, struct ncclComm *communicator, uint32_t peer, uint32_t kind)
{
	struct pp_fake_mail *mail =
	    pp_fake_segment_mail(communicator->segment, communicator->ranks, peer, communicator->rank, kind);
	uint64_t *read = &communicator->mails_read[peer][kind];
	pp_fake_host_blocked(host, "the first contact of rank %u with rank %u on communicator %s", communicator->rank, peer,
	                     communicator->label);
	host->awaits = &mail->sent;
	host->until = *read + 1;
	while (atomic_load(&mail->sent) <= *read && !lost(communicator))
		pp_fake_host_pause();
	pp_fake_host_freed(host);
	return lost(communicator) ? 0 : atomic_load(&mail->values[(*read)++ % PP_FAKE_MAIL_ROOM]);
}

static void swap_with(struct pp_fake_host *host, struct ncclComm *communicator, uint32_t peer, int32_t wants)
{
	write_mail(communicator, peer, 0, wants);
	int32_t theirs = read_mail(host, communicator, peer, 0);
	int32_t mirrored = (theirs & SENDS ? RECEIVES : 0) | (theirs & RECEIVES ? SENDS : 0);
	if (!lost(communicator) && mirrored != wants)
		pp_fake_die(
		    "first contact on communicator %s: rank %u's group has %s%s with rank %u, which has %s%s; NCCL makes one "
		    "connection of both, so the first groups must be alike",
		    communicator->label, communicator->rank, wants & SENDS ? "a send" : "",
		    wants & RECEIVES ? (wants & SENDS ? " and a receive" : "a receive") : "", peer,
		    theirs & SENDS ? "a send" : "", theirs & RECEIVES ? (theirs & SENDS ? " and a receive" : "a receive") : "");
}

static void contact(struct pp_fake_host *host, struct ncclComm *communicator, const int32_t *wants)
{
	uint32_t ranks = communicator->ranks, rank = communicator->rank;
	for (uint32_t distance = 1; distance < ranks && !lost(communicator); distance++) {
		uint32_t source = (rank + ranks - distance) % ranks, target = (rank + distance) % ranks;
		bool receives = wants[source] & RECEIVES, sends = wants[target] & SENDS;
		if (source == target) {
			if (wants[target])
				swap_with(host, communicator, target, wants[target]);
			continue;
		}
		if (receives)
			write_mail(communicator, source, 1, RECEIVES);
		if (sends)
			write_mail(communicator, target, 0, SENDS);
		if (sends)
			read_mail(host, communicator, target, 1);
		if (receives)
			read_mail(host, communicator, source, 0);
	}
}

static bool same(const struct pp_fake_post *a, const struct pp_fake_post *b)
{
	return a->count == b->count && a->type == b->type && a->kind == b->kind && a->operation == b->operation;
}

/* Which algorithm a collective runs by depends on all of this, and a new one connects anew. */
static struct pp_fake_post use_of(const struct pp_fake_task *task)
{
	return (struct pp_fake_post){.count = task->count,
	                             .type = (int32_t)task->type,
	                             .kind = (int32_t)task->kind,
	                             .operation = (int32_t)task->reduction};
}

bool pp_fake_nccl_is_known(const struct ncclComm *communicator, const struct pp_fake_task *task)
{
	struct pp_fake_post post = use_of(task);
	for (uint32_t i = 0; i < communicator->known_count; i++)
		if (same(&communicator->known[i].post, &post))
			return true;
	return false;
}

static bool first_use(struct ncclComm *communicator, const struct pp_fake_task *task)
{
	if (pp_fake_nccl_is_known(communicator, task))
		return false;
	communicator->known =
	    pp_fake_grow(communicator->known, (communicator->known_count + 1) * sizeof *communicator->known);
	communicator->known[communicator->known_count++].post = use_of(task);
	return true;
}

bool pp_fake_nccl_connect(struct pp_fake_host *host, struct ncclComm *communicator, const struct pp_fake_task *tasks,
                          uint32_t count)
{
	int32_t wants[PP_FAKE_RANKS_MOST] = {0};
	bool new_peers = false;
	for (uint32_t i = 0; i < count; i++) {
		const struct pp_fake_task *task = &tasks[i];
		if (task->kind > PP_FAKE_RECEIVE) {
			if (communicator->ranks > 1 && first_use(communicator, task)) {
				char what[96];
				snprintf(what, sizeof what, "the first %s of %llu %s", pp_fake_task_names[task->kind],
				         (unsigned long long)task->count, pp_fake_nccl_type((int32_t)task->type));
				pp_fake_frozen("a collective was used for the first time");
				pp_fake_nccl_barrier(host, communicator, what);
			}
			continue;
		}
		bool sending = task->kind == PP_FAKE_SEND;
		bool *connected = sending ? communicator->connected_to : communicator->connected_from;
		if (task->peer == communicator->rank || connected[task->peer])
			continue;
		connected[task->peer] = true;
		wants[task->peer] |= sending ? SENDS : RECEIVES;
		new_peers = true;
	}
	if (new_peers) {
		pp_fake_frozen("a peer was used for the first time");
		contact(host, communicator, wants);
	}
	return !lost(communicator);
}
