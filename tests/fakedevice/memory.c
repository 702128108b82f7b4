/* Allocations (memory.h) and the calls that make and free them. Fresh and freed memory is all ones, which are NaNs in
 * every floating type: what reads it shows. */
#include "memory.h"
#include "capture.h"
#include "host.h"
#include "runtime.h"
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xff, ALIGNMENT = 256, DEVICES_MOST = 64 };

static struct {
	struct pp_fake_allocation **sorted; /* by start; none overlap */
	uint32_t count, capacity;
	uint64_t used[DEVICES_MOST];
} memory;

/* How many allocations start at or before that address. */
static uint32_t allocations_up_to(uintptr_t start)
{
	uint32_t low = 0, high = memory.count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (memory.sorted[middle]->start <= start)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct pp_fake_allocation *pp_fake_allocation_at(const void *start)
{
	uint32_t place = allocations_up_to((uintptr_t)start);
	if (place == 0)
		return NULL;
	struct pp_fake_allocation *allocation = memory.sorted[place - 1];
	return (uintptr_t)start - allocation->start < allocation->bytes ? allocation : NULL;
}

enum pp_fake_memory_kind pp_fake_memory_kind(const void *start)
{
	const struct pp_fake_allocation *allocation = pp_fake_allocation_at(start);
	return allocation ? allocation->kind : PP_FAKE_PAGEABLE;
}

const char *pp_fake_memory_text(const void *start, uint64_t bytes, char *text, uint64_t size)
{
	const struct pp_fake_allocation *allocation = pp_fake_allocation_at(start);
	if (!allocation)
		snprintf(text, size, "%llu bytes at %p", (unsigned long long)bytes, start);
	else if (allocation->kind == PP_FAKE_PINNED)
		snprintf(text, size, "%llu bytes at +%llu of pinned memory %p", (unsigned long long)bytes,
		         (unsigned long long)((uintptr_t)start - allocation->start), (void *)allocation->start);
	else
		snprintf(text, size, "%llu bytes at +%llu of memory %p of device %d", (unsigned long long)bytes,
		         (unsigned long long)((uintptr_t)start - allocation->start), (void *)allocation->start,
		         allocation->device);
	return text;
}

bool pp_fake_memory_check(int device, const void *start, uint64_t bytes, bool writes, const char *name)
{
	if (bytes == 0)
		return true;
	char text[96];
	const struct pp_fake_allocation *allocation = pp_fake_allocation_at(start);
	const char *verb = writes ? "writes" : "reads";
	pp_fake_memory_text(start, bytes, text, sizeof text);
	if (!allocation)
		pp_fake_fault("%s %s %s, which is no device or pinned memory (freed, or never allocated)", name, verb, text);
	else if (bytes > allocation->bytes - ((uintptr_t)start - allocation->start))
		pp_fake_fault("%s %s %s, which has only %llu bytes", name, verb, text, (unsigned long long)allocation->bytes);
	else if (allocation->kind == PP_FAKE_DEVICE && allocation->device != device &&
	         !pp_fake_peers(device, allocation->device))
		pp_fake_fault("%s on device %d %s %s: no peer access was enabled", name, device, verb, text);
	else
		return true;
	return false;
}

static void add(struct pp_fake_allocation *allocation)
{
	if (memory.count == memory.capacity) {
		memory.capacity = memory.capacity ? 2 * memory.capacity : 64;
		memory.sorted = pp_fake_grow(memory.sorted, memory.capacity * sizeof(struct pp_fake_allocation *));
	}
	uint32_t place = allocations_up_to(allocation->start);
	memmove(memory.sorted + place + 1, memory.sorted + place,
	        (memory.count - place) * sizeof(struct pp_fake_allocation *));
	memory.sorted[place] = allocation;
	memory.count++;
}

static void take_out(struct pp_fake_allocation *allocation)
{
	uint32_t place = allocations_up_to(allocation->start) - 1;
	memory.count--;
	memmove(memory.sorted + place, memory.sorted + place + 1,
	        (memory.count - place) * sizeof(struct pp_fake_allocation *));
	free(allocation->history.accesses);
	free(allocation);
}

static cudaError_t allocate(struct pp_fake_host *host, void **start, size_t bytes, enum pp_fake_memory_kind kind)
{
	cudaError_t unsafe = pp_fake_capture_forbids(host, "allocating memory");
	if (unsafe != cudaSuccess)
		return unsafe;
	pp_fake_frozen("memory was allocated");
	*start = NULL;
	if (bytes == 0)
		return cudaSuccess;
	uint64_t limit = pp_fake_settings()->memory;
	if (kind == PP_FAKE_DEVICE && (bytes > limit || memory.used[host->device] > limit - bytes))
		return cudaErrorMemoryAllocation;
	size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	void *room = aligned_alloc(ALIGNMENT, whole);
	if (!room)
		return cudaErrorMemoryAllocation;
	memset(room, POISON, whole);
	struct pp_fake_allocation *allocation = pp_fake_new(sizeof *allocation);
	*allocation =
	    (struct pp_fake_allocation){.start = (uintptr_t)room, .bytes = bytes, .kind = kind, .device = host->device};
	add(allocation);
	if (kind == PP_FAKE_DEVICE)
		memory.used[host->device] += bytes;
	*start = room;
	return cudaSuccess;
}

/* Freeing waits for the device, as it does on a real one. */
static cudaError_t release(struct pp_fake_host *host, void *start, enum pp_fake_memory_kind kind, bool registered)
{
	cudaError_t unsafe = pp_fake_capture_forbids(host, "freeing memory");
	if (unsafe != cudaSuccess)
		return unsafe;
	if (!start)
		return cudaSuccess;
	pp_fake_frozen("memory was freed");
	struct pp_fake_allocation *allocation = pp_fake_allocation_at(start);
	if (!allocation || allocation->start != (uintptr_t)start || allocation->kind != kind ||
	    allocation->registered != registered) {
		pp_fake_fault("%p was freed but is no such allocation (freed before, or made by another call)", start);
		return cudaErrorInvalidValue;
	}
	pp_fake_streams_await(host, allocation->device, "freeing memory");
	if (kind == PP_FAKE_DEVICE)
		memory.used[allocation->device] -= allocation->bytes;
	if (!registered) {
		memset(start, POISON, allocation->bytes);
		free(start);
	}
	take_out(allocation);
	return cudaSuccess;
}

cudaError_t cudaMalloc(void **start, size_t bytes)
{
	struct pp_fake_host *host = pp_fake_enter("cudaMalloc");
	return pp_fake_leave(host, allocate(host, start, bytes, PP_FAKE_DEVICE));
}

cudaError_t cudaFree(void *start)
{
	struct pp_fake_host *host = pp_fake_enter("cudaFree");
	return pp_fake_leave(host, release(host, start, PP_FAKE_DEVICE, false));
}

cudaError_t cudaMallocHost(void **start, size_t bytes)
{
	struct pp_fake_host *host = pp_fake_enter("cudaMallocHost");
	return pp_fake_leave(host, allocate(host, start, bytes, PP_FAKE_PINNED));
}

cudaError_t cudaHostAlloc(void **start, size_t bytes, unsigned int flags)
{
	(void)flags;
	struct pp_fake_host *host = pp_fake_enter("cudaHostAlloc");
	return pp_fake_leave(host, allocate(host, start, bytes, PP_FAKE_PINNED));
}

cudaError_t cudaFreeHost(void *start)
{
	struct pp_fake_host *host = pp_fake_enter("cudaFreeHost");
	return pp_fake_leave(host, release(host, start, PP_FAKE_PINNED, false));
}

cudaError_t cudaHostRegister(void *start, size_t bytes, unsigned int flags)
{
	(void)flags;
	struct pp_fake_host *host = pp_fake_enter("cudaHostRegister");
	if (!start || bytes == 0)
		return pp_fake_leave(host, cudaErrorInvalidValue);
	if (pp_fake_allocation_at(start))
		return pp_fake_leave(host, cudaErrorHostMemoryAlreadyRegistered);
	pp_fake_frozen("host memory was registered");
	struct pp_fake_allocation *allocation = pp_fake_new(sizeof *allocation);
	*allocation = (struct pp_fake_allocation){
	    .start = (uintptr_t)start, .bytes = bytes, .kind = PP_FAKE_PINNED, .device = host->device, .registered = true};
	add(allocation);
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaHostUnregister(void *start)
{
	struct pp_fake_host *host = pp_fake_enter("cudaHostUnregister");
	return pp_fake_leave(host, release(host, start, PP_FAKE_PINNED, true));
}

cudaError_t cudaHostGetDevicePointer(void **device, void *start, unsigned int flags)
{
	(void)flags;
	struct pp_fake_host *host = pp_fake_enter("cudaHostGetDevicePointer");
	bool pinned = pp_fake_memory_kind(start) == PP_FAKE_PINNED;
	*device = pinned ? start : NULL;
	return pp_fake_leave(host, pinned ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
	struct pp_fake_host *host = pp_fake_enter("cudaMemGetInfo");
	*total = pp_fake_settings()->memory;
	*available = *total - memory.used[host->device];
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *start)
{
	struct pp_fake_host *host = pp_fake_enter("cudaPointerGetAttributes");
	const struct pp_fake_allocation *allocation = pp_fake_allocation_at(start);
	memset(attributes, 0, sizeof *attributes);
	attributes->device = allocation ? allocation->device : -2; /* cudaInvalidDeviceId */
	attributes->type = cudaMemoryTypeUnregistered;
	if (allocation) {
		attributes->type = allocation->kind == PP_FAKE_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
		memcpy(&attributes->devicePointer, &start, sizeof start);
		if (allocation->kind == PP_FAKE_PINNED)
			memcpy(&attributes->hostPointer, &start, sizeof start);
	}
	return pp_fake_leave(host, cudaSuccess);
}
