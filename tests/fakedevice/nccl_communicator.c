/* Communicators: made by unique id or split, all ranks together; finalised, destroyed, aborted. Non-blocking ones
 * (config.blocking = 0) are made by a thread of their own while ncclCommGetAsyncError says ncclInProgress. */
#include "nccl_communicator.h"
#include "board.h"
#include "capture.h"
#include "fake.h"
#include "memory.h"
#include "plant.h"
#include "runtime.h"
#include "watchdog.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t pp_fake_nccl_bytes(ncclDataType_t type)
{
	static const uint8_t bytes[ncclNumTypes] = {
	    [ncclInt8] = 1,   [ncclUint8] = 1,   [ncclInt32] = 4,   [ncclUint32] = 4,  [ncclInt64] = 8,
	    [ncclUint64] = 8, [ncclFloat16] = 2, [ncclFloat32] = 4, [ncclFloat64] = 8, [ncclBfloat16] = 2};
	return (unsigned)type < ncclNumTypes ? bytes[type] : 0;
}

const char *pp_fake_nccl_type(int32_t type)
{
	static const char *const names[ncclNumTypes] = {
	    [ncclInt8] = "i8",     [ncclUint8] = "u8",     [ncclInt32] = "i32",   [ncclUint32] = "u32",
	    [ncclInt64] = "i64",   [ncclUint64] = "u64",   [ncclFloat16] = "f16", [ncclFloat32] = "f32",
	    [ncclFloat64] = "f64", [ncclBfloat16] = "bf16"};
	return type >= 0 && type < ncclNumTypes && names[type] ? names[type] : "of no type";
}

const char *pp_fake_captures_text(uint32_t one, uint32_t other)
{
	if (one == other)
		return "";
	return one && other ? ": graphs that were not captured together" : ": one is in a graph, the other is not";
}

ncclResult_t ncclGetVersion(int *version)
{
	uint64_t first = 0;
	struct pp_fake_host *host = pp_fake_enter("ncclGetVersion");
	*version = NCCL_VERSION_CODE - pp_fake_planted(PP_FAKE_OLD_NCCL, &first, (uint32_t)host->device);
	pp_fake_leave(host, cudaSuccess);
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	static const char *const texts[ncclNumResults] = {"no error",
	                                                  "unhandled cuda error",
	                                                  "unhandled system error",
	                                                  "internal error",
	                                                  "invalid argument",
	                                                  "invalid usage",
	                                                  "remote process exited or there was a network error",
	                                                  "NCCL operation in progress"};
	return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t communicator)
{
	(void)communicator;
	return pp_fake_report();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	static _Atomic uint32_t made;
	memset(id, 0, sizeof *id);
	snprintf(id->internal, sizeof id->internal, "/pp-fake-nccl-%ld-%u-%llx", (long)getpid(), atomic_fetch_add(&made, 1),
	         (unsigned long long)pp_fake_now());
	return ncclSuccess;
}

/* FNV-1a of NCCL_HOSTID, or of nothing: ranks with equal values are on one machine. */
static uint64_t machine_hash(void)
{
	const char *name = getenv("NCCL_HOSTID");
	uint64_t hash = 0xcbf29ce484222325;
	for (const char *at = name ? name : ""; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 0x100000001b3;
	return hash;
}

static struct ncclComm *make(struct pp_fake_host *host, uint32_t ranks, uint32_t rank, const char *name,
                             const char *label, const ncclConfig_t *config)
{
	struct ncclComm *communicator = pp_fake_new(sizeof *communicator);
	communicator->ranks = ranks;
	communicator->rank = rank;
	communicator->device = host->device;
	communicator->blocking = !config || config->blocking != 0;
	snprintf(communicator->name, sizeof communicator->name, "%s", name);
	communicator->label = config && config->commName ? pp_fake_text("%s", config->commName) : pp_fake_text("%s", label);
	return communicator;
}

bool pp_fake_nccl_barrier(struct pp_fake_host *host, struct ncclComm *communicator, const char *what)
{
	struct pp_fake_member *members = communicator->segment->members;
	uint64_t barrier = ++communicator->barriers;
	atomic_store(&members[communicator->rank].arrived, barrier);
	for (uint32_t i = 0; i < communicator->ranks; i++) {
		pp_fake_host_blocked(host, "%s on communicator %s, rank %u, for rank %u", what, communicator->label,
		                     communicator->rank, i);
		host->awaits = &members[i].arrived;
		host->until = barrier;
		while (atomic_load(&members[i].arrived) < barrier && !atomic_load(&communicator->aborted))
			pp_fake_host_pause();
	}
	pp_fake_host_freed(host);
	return !atomic_load(&communicator->aborted);
}

/* Two ranks on one GPU are refused by all. */
static bool duplicate_gpu(const struct ncclComm *communicator)
{
	const struct pp_fake_member *members = communicator->segment->members;
	for (uint32_t i = 0; i < communicator->ranks; i++)
		for (uint32_t k = 0; k < i; k++)
			if (members[i].machine == members[k].machine && members[i].device == members[k].device) {
				fprintf(stderr, "fake cuda: duplicate GPU detected: ranks %u and %u both on device %d\n", k, i,
				        (int)members[i].device);
				return true;
			}
	return false;
}

/* Waits for all ranks; with the lock. */
static ncclResult_t join(struct pp_fake_host *host, struct ncclComm *communicator)
{
	struct pp_fake_segment *segment = pp_fake_segment_open(communicator->name, communicator->ranks);
	if (!segment)
		return ncclSystemError;
	communicator->segment = segment;
	uint32_t expected = 0;
	if (!atomic_compare_exchange_strong(&segment->ranks, &expected, communicator->ranks) &&
	    expected != communicator->ranks)
		pp_fake_die("communicator %s: rank %u says it has %u ranks, another %u", communicator->label,
		            communicator->rank, communicator->ranks, expected);
	atomic_store(&segment->members[communicator->rank].machine, machine_hash());
	atomic_store(&segment->members[communicator->rank].device,
	             (int32_t)pp_fake_settings()->first + communicator->device);
	if (atomic_fetch_add(&segment->joined, 1) + 1 == communicator->ranks)
		pp_fake_segment_remove(communicator->name); /* all have it */
	bool all = pp_fake_nccl_barrier(host, communicator, "the making");
	if (!all)
		return ncclInternalError;
	return duplicate_gpu(communicator) ? ncclInvalidUsage : ncclSuccess;
}

/* A communicator to be made by a thread of its own. */
struct making {
	struct pp_fake_host *host;
	struct ncclComm *communicator;
};

static void *make_in_background(void *given)
{
	struct making *making = given;
	pp_fake_lock();
	ncclResult_t result = join(making->host, making->communicator);
	atomic_store(&making->communicator->state, result);
	pp_fake_unlock();
	free(making);
	return NULL;
}

static ncclResult_t start(struct pp_fake_host *host, struct ncclComm *communicator)
{
	pp_fake_watchdog_start();
	pp_fake_board_join(communicator->name, communicator->rank, communicator->ranks);
	if (communicator->blocking) {
		ncclResult_t result = join(host, communicator);
		atomic_store(&communicator->state, result);
		return result;
	}
	struct making *making = pp_fake_new(sizeof *making);
	*making = (struct making){.host = host, .communicator = communicator};
	atomic_store(&communicator->state, ncclInProgress);
	pthread_t thread;
	if (pthread_create(&thread, NULL, make_in_background, making) != 0)
		pp_fake_die("no thread to make a communicator");
	pthread_detach(thread);
	return ncclInProgress;
}

static void forget(struct ncclComm *communicator)
{
	if (communicator->segment)
		pp_fake_segment_close(communicator->segment, communicator->ranks);
	pp_fake_record_drop(communicator->last);
	free(communicator->known);
	free(communicator);
}

static ncclResult_t make_new(ncclComm_t *made, int ranks, const ncclUniqueId *id, int rank, const ncclConfig_t *config)
{
	*made = NULL;
	if (ranks < 1 || ranks > PP_FAKE_RANKS_MOST || rank < 0 || rank >= ranks)
		return ncclInvalidArgument;
	struct pp_fake_host *host = pp_fake_enter("ncclCommInitRank");
	pp_fake_frozen("a communicator was made");
	if (pp_fake_capture_forbids(host, "ncclCommInitRank") != cudaSuccess) {
		pp_fake_unlock();
		return ncclUnhandledCudaError;
	}
	struct ncclComm *communicator = make(host, (uint32_t)ranks, (uint32_t)rank, id->internal, "world", config);
	ncclResult_t result = start(host, communicator);
	/* It tries what the machine can do; nobody promises that errors of what it cannot are cleared away. */
	host->last_error = cudaErrorPeerAccessAlreadyEnabled;
	if (result == ncclSuccess || result == ncclInProgress)
		*made = communicator;
	else
		forget(communicator);
	pp_fake_unlock();
	return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *made, int ranks, ncclUniqueId id, int rank)
{
	return make_new(made, ranks, &id, rank, NULL);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	return make_new(made, ranks, &id, rank, config);
}

/* Ranks of the new communicator: those of one colour, by key, then by rank. */
static uint32_t place_in_split(const struct ncclComm *parent, int color, int key, uint32_t *ranks)
{
	uint32_t place = 0;
	*ranks = 0;
	for (uint32_t i = 0; i < parent->ranks; i++) {
		if (atomic_load(&parent->segment->members[i].color) != color)
			continue;
		int other = atomic_load(&parent->segment->members[i].key);
		*ranks += 1;
		place += other < key || (other == key && i < parent->rank);
	}
	return place;
}

static ncclResult_t split(struct pp_fake_host *host, struct ncclComm *parent, int color, int key, ncclComm_t *made,
                          const ncclConfig_t *config)
{
	struct pp_fake_member *self = &parent->segment->members[parent->rank];
	atomic_store(&self->color, color);
	atomic_store(&self->key, key);
	if (!pp_fake_nccl_barrier(host, parent, "a split"))
		return ncclInternalError;
	uint32_t ranks, rank = place_in_split(parent, color, key, &ranks);
	if (!pp_fake_nccl_barrier(host, parent, "a split"))
		return ncclInternalError;
	uint64_t number = parent->splits++;
	if (color == NCCL_SPLIT_NOCOLOR)
		return ncclSuccess;
	char name[PP_FAKE_NAME_BYTES];
	int length = snprintf(name, sizeof name, "%s.%llu.%d", parent->name, (unsigned long long)number, color);
	if (length < 0 || (size_t)length >= sizeof name)
		return ncclInternalError;
	const char *label = pp_fake_text("%s/%llu.%d", parent->label, (unsigned long long)number, color);
	ncclConfig_t inherited = NCCL_CONFIG_INITIALIZER;
	inherited.blocking = parent->blocking;
	struct ncclComm *communicator = make(host, ranks, rank, name, label, config ? config : &inherited);
	ncclResult_t result = start(host, communicator);
	if (result == ncclSuccess || result == ncclInProgress)
		*made = communicator;
	else
		forget(communicator);
	return result;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *made, ncclConfig_t *config)
{
	*made = NULL;
	if (!parent || atomic_load(&parent->state) != ncclSuccess || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
		return ncclInvalidArgument;
	struct pp_fake_host *host = pp_fake_enter("ncclCommSplit");
	pp_fake_frozen("a communicator was split");
	bool forbidden = pp_fake_capture_forbids(host, "ncclCommSplit") != cudaSuccess;
	ncclResult_t result = forbidden ? ncclUnhandledCudaError : split(host, parent, color, key, made, config);
	pp_fake_unlock();
	return result;
}

ncclResult_t ncclCommCount(const ncclComm_t communicator, int *ranks)
{
	*ranks = (int)communicator->ranks;
	return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int *rank)
{
	*rank = (int)communicator->rank;
	return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t communicator, int *device)
{
	*device = communicator->device;
	return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *state)
{
	*state = (ncclResult_t)atomic_load(&communicator->state);
	return ncclSuccess;
}

/* Until the last operation has run, and every graph that holds one is gone (NCCL 2.28, init.cc, commDestroySync). */
static void drain(struct pp_fake_host *host, struct ncclComm *communicator, const char *call)
{
	struct pp_fake_record *last = pp_fake_record_keep(communicator->last);
	pp_fake_host_blocked(host, "%s of communicator %s, rank %u", call, communicator->label, communicator->rank);
	while (last && !last->done)
		pp_fake_wait(0);
	if (communicator->in_graphs > 0)
		pp_fake_host_blocked(host, "%s of communicator %s, rank %u, for graphs that hold its operations", call,
		                     communicator->label, communicator->rank);
	while (communicator->in_graphs > 0)
		pp_fake_wait(0);
	pp_fake_host_freed(host);
	pp_fake_record_drop(last);
}

/* Operations that hang would have the freeing wait for them, and what NCCL knows of the memory would be wrong. */
static void check_memory(const struct ncclComm *communicator)
{
	if (communicator->moved && pp_fake_memory_kind(communicator->moved) == PP_FAKE_PAGEABLE)
		pp_fake_fault("communicator %s of rank %u is ended after memory that it moves was freed", communicator->label,
		              communicator->rank);
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator)
{
	struct pp_fake_host *host = pp_fake_enter("ncclCommFinalize");
	drain(host, communicator, "ncclCommFinalize");
	pp_fake_unlock();
	return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator)
{
	struct pp_fake_host *host = pp_fake_enter("ncclCommDestroy");
	drain(host, communicator, "ncclCommDestroy");
	check_memory(communicator);
	forget(communicator);
	pp_fake_unlock();
	return ncclSuccess;
}

void pp_fake_nccl_reclaim(struct pp_fake_host *host, struct ncclComm *communicator)
{
	while (atomic_load(&communicator->state) == ncclInProgress) /* it is still being made */
		pp_fake_host_pause();
	drain(host, communicator, "ncclCommAbort");
	forget(communicator);
}

/* Operations of this rank end where they are; other ranks learn nothing of it. */
ncclResult_t ncclCommAbort(ncclComm_t communicator)
{
	struct pp_fake_host *host = pp_fake_enter("ncclCommAbort");
	check_memory(communicator);
	atomic_store(&communicator->aborted, true);
	pp_fake_progressed();
	if (!pp_fake_nccl_abort_later(communicator))
		pp_fake_nccl_reclaim(host, communicator);
	pp_fake_unlock();
	return ncclSuccess;
}
