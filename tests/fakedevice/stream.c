/* Streams (stream.h): their calls, and giving them work. */
#include "stream.h"
#include "capture.h"
#include "memory.h"
#include "plant.h"
#include "runtime.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static struct CUstream_st *streams;

struct CUstream_st *pp_fake_streams(void)
{
	return streams;
}

struct CUstream_st *pp_fake_stream(cudaStream_t handle, const char *call)
{
	for (struct CUstream_st *stream = streams; stream; stream = stream->next)
		if (stream == handle && !stream->destroyed)
			return stream;
	if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
		pp_fake_fault("%s on the NULL stream, which waits for all others: use a stream of your own", call);
	else
		pp_fake_fault("%s on %p, which is no stream (or was destroyed)", call, (void *)handle);
	return NULL;
}

struct pp_fake_record *pp_fake_record_make(void)
{
	struct pp_fake_record *record = pp_fake_new(sizeof *record);
	record->references = 1;
	return record;
}

struct pp_fake_record *pp_fake_record_keep(struct pp_fake_record *record)
{
	if (record)
		record->references++;
	return record;
}

void pp_fake_record_drop(struct pp_fake_record *record)
{
	if (record && --record->references == 0)
		free(record);
}

static void release_nothing(struct pp_fake_operation *operation)
{
	free(operation);
}

const struct pp_fake_operation_kind pp_fake_nothing = {.release = release_nothing};

void *pp_fake_operation_make(const struct pp_fake_operation_kind *kind, size_t bytes, const char *name)
{
	struct pp_fake_operation *operation = pp_fake_new(bytes);
	operation->kind = kind;
	operation->name = name;
	return operation;
}

void pp_fake_operation_touches(struct pp_fake_operation *operation, const void *start, uint64_t bytes, bool writes)
{
	if (bytes == 0)
		return;
	operation->touches = pp_fake_grow(operation->touches, (operation->touch_count + 1) * sizeof *operation->touches);
	operation->touches[operation->touch_count++] =
	    (struct pp_fake_touch){.start = (uintptr_t)start, .bytes = bytes, .writes = writes};
}

void pp_fake_operation_chain(struct pp_fake_operation *operation, struct pp_fake_record **chain)
{
	assert(!operation->awaits);
	operation->awaits = *chain;
	if (!operation->records)
		operation->records = pp_fake_record_make();
	*chain = pp_fake_record_keep(operation->records);
}

void pp_fake_operation_free(struct pp_fake_operation *operation)
{
	pp_fake_record_drop(operation->awaits);
	pp_fake_record_drop(operation->records);
	pp_fake_record_drop(operation->starts);
	free(operation->touches);
	operation->kind->release(operation);
}

void pp_fake_operation_text(const struct pp_fake_operation *operation, char *text, size_t size)
{
	if (operation->awaits && !operation->awaits->done)
		snprintf(text, size, "%s waits for an event of %s", operation->name, operation->awaits->where);
	else if (operation->kind->describe)
		operation->kind->describe(operation, text, size);
	else
		snprintf(text, size, "%s", operation->name);
}

enum { GREATEST_PRIORITY = -5 };

static cudaError_t make_stream(struct pp_fake_host *host, cudaStream_t *made, unsigned int flags, int priority)
{
	if (flags != cudaStreamNonBlocking) {
		pp_fake_fault("a stream without cudaStreamNonBlocking waits for the NULL stream: give the flag");
		return cudaErrorInvalidValue;
	}
	pp_fake_frozen("a stream was made");
	if (pp_fake_planted(PP_FAKE_NO_STREAM, &host->streams, (uint32_t)host->device))
		return cudaErrorMemoryAllocation;
	struct CUstream_st *stream = pp_fake_new(sizeof *stream);
	stream->agent = pp_fake_agent_take(&stream->clock);
	stream->device = host->device;
	stream->priority = priority > 0 ? 0 : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
	stream->where = pp_fake_text("stream %u of host %u", host->streams_made++, host->number);
	pp_fake_tsan_make(&stream->fiber, stream->where);
	struct CUstream_st **end = &streams;
	while (*end)
		end = &(*end)->next;
	*end = stream;
	*made = stream;
	return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *made)
{
	struct pp_fake_host *host = pp_fake_enter("cudaStreamCreate");
	return pp_fake_leave(host, make_stream(host, made, cudaStreamDefault, 0));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *made, unsigned int flags)
{
	struct pp_fake_host *host = pp_fake_enter("cudaStreamCreateWithFlags");
	return pp_fake_leave(host, make_stream(host, made, flags, 0));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *made, unsigned int flags, int priority)
{
	struct pp_fake_host *host = pp_fake_enter("cudaStreamCreateWithPriority");
	return pp_fake_leave(host, make_stream(host, made, flags, priority));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	struct pp_fake_host *host = pp_fake_enter("cudaDeviceGetStreamPriorityRange");
	*least = 0;
	*greatest = GREATEST_PRIORITY;
	return pp_fake_leave(host, cudaSuccess);
}

/* Work that the stream still has runs on, as on a device. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
	struct pp_fake_host *host = pp_fake_enter("cudaStreamDestroy");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaStreamDestroy");
	if (!stream)
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	cudaError_t error = pp_fake_capture_forbids_stream(stream, "cudaStreamDestroy");
	if (error != cudaSuccess)
		return pp_fake_leave(host, error);
	stream->destroyed = true;
	pp_fake_stream_reap(stream);
	return pp_fake_leave(host, cudaSuccess);
}

void pp_fake_stream_reap(struct CUstream_st *stream)
{
	if (!stream->destroyed || stream->head || stream->running)
		return;
	struct CUstream_st **link = &streams;
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	pp_fake_agent_give(stream->agent, &stream->clock);
	free(stream->capture_after);
	free(stream);
}

static bool check_touches(const struct CUstream_st *stream, const struct pp_fake_operation *operation)
{
	bool good = true;
	for (uint32_t i = 0; i < operation->touch_count; i++) {
		const struct pp_fake_touch *touch = &operation->touches[i];
		good &= pp_fake_memory_check(stream->device, (const void *)touch->start, touch->bytes, touch->writes,
		                             operation->name);
	}
	return good;
}

static void mark(struct pp_fake_record *record, const struct CUstream_st *stream)
{
	if (!record)
		return;
	record->clock = stream->clock;
	record->where = stream->where;
}

/* The operation runs after all that its stream and its host thread have done so far. */
static void look_for_races(struct pp_fake_host *host, struct CUstream_st *stream,
                           const struct pp_fake_operation *operation)
{
	pp_fake_clock_join(&stream->clock, &host->clock);
	if (operation->awaits)
		pp_fake_clock_join(&stream->clock, &operation->awaits->clock);
	mark(operation->starts, stream); /* what comes after its start doesn't come after its end */
	pp_fake_clock_tick(&stream->clock, stream->agent);
	struct pp_fake_toucher by = {
	    .agent = stream->agent, .clock = &stream->clock, .name = operation->name, .where = stream->where};
	for (uint32_t i = 0; i < operation->touch_count; i++)
		pp_fake_races_touch(&by, &operation->touches[i]);
}

cudaError_t pp_fake_submit(struct pp_fake_host *host, struct CUstream_st *stream, struct pp_fake_operation *operation)
{
	if (!check_touches(stream, operation)) {
		pp_fake_operation_free(operation);
		return cudaErrorInvalidValue;
	}
	pp_fake_host_worked(host);
	if (stream->capture)
		return pp_fake_capture_add(stream, operation);
	if (operation->chain)
		pp_fake_operation_chain(operation, operation->chain);
	look_for_races(host, stream, operation);
	mark(operation->records, stream);
	pp_fake_tsan_release(&operation->token);
	if (stream->tail)
		stream->tail->next = operation;
	else
		stream->head = operation;
	stream->tail = operation;
	stream->given++;
	pp_fake_pool_start();
	pp_fake_hire();
	return cudaSuccess;
}

void pp_fake_stream_await(struct pp_fake_host *host, struct CUstream_st *stream, const char *call)
{
	uint64_t given = stream->given;
	struct pp_fake_clock clock = stream->clock;
	pp_fake_host_blocked(host, "%s, for %s", call, stream->where);
	while (stream->finished < given)
		pp_fake_wait(0);
	pp_fake_host_freed(host);
	pp_fake_clock_join(&host->clock, &clock);
	pp_fake_tsan_acquire(&stream->fiber.token);
}

void pp_fake_streams_await(struct pp_fake_host *host, int device, const char *call)
{
	struct CUstream_st *stream = streams;
	while (stream) {
		bool busy = stream->device == device && stream->finished < stream->given;
		if (busy) {
			pp_fake_host_blocked(host, "%s, for %s", call, stream->where);
			pp_fake_wait(0);
		}
		stream = busy ? streams : stream->next; /* streams may have come and gone meanwhile */
	}
	for (stream = streams; stream; stream = stream->next) {
		if (stream->device != device)
			continue;
		pp_fake_clock_join(&host->clock, &stream->clock);
		pp_fake_tsan_acquire(&stream->fiber.token);
	}
	pp_fake_host_freed(host);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
	struct pp_fake_host *host = pp_fake_enter("cudaStreamSynchronize");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaStreamSynchronize");
	if (!stream)
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	cudaError_t error = pp_fake_capture_forbids_stream(stream, "cudaStreamSynchronize");
	if (error == cudaSuccess)
		error = pp_fake_capture_forbids(host, "cudaStreamSynchronize");
	if (error == cudaSuccess)
		pp_fake_stream_await(host, stream, "cudaStreamSynchronize");
	return pp_fake_leave(host, error);
}

cudaError_t cudaDeviceSynchronize(void)
{
	struct pp_fake_host *host = pp_fake_enter("cudaDeviceSynchronize");
	cudaError_t error = pp_fake_capture_forbids(host, "cudaDeviceSynchronize");
	if (error == cudaSuccess)
		pp_fake_streams_await(host, host->device, "cudaDeviceSynchronize");
	return pp_fake_leave(host, error);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
	struct pp_fake_host *host = pp_fake_enter("cudaStreamQuery");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaStreamQuery");
	if (!stream)
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	cudaError_t error = pp_fake_capture_forbids_stream(stream, "cudaStreamQuery");
	if (error == cudaSuccess)
		error = pp_fake_capture_forbids(host, "cudaStreamQuery");
	if (error != cudaSuccess)
		return pp_fake_leave(host, error);
	if (pp_fake_planted(PP_FAKE_HASTY_QUERY, &host->queries, 0))
		return pp_fake_leave(host, cudaSuccess);
	if (stream->finished < stream->given) {
		pp_fake_host_polled(host, "cudaStreamQuery of %s", stream->where);
		pp_fake_leave(host, cudaErrorNotReady);
		sched_yield();
		return cudaErrorNotReady;
	}
	pp_fake_clock_join(&host->clock, &stream->clock);
	pp_fake_tsan_acquire(&stream->fiber.token);
	return pp_fake_leave(host, cudaSuccess);
}
