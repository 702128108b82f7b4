/* Host threads, as the fake sees them: a thread joins with its first call. Lock held, unless said otherwise. */
#ifndef PP_FAKE_HOST_H
#define PP_FAKE_HOST_H

#include "clock.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

enum pp_fake_host_state {
	PP_FAKE_HOST_ELSEWHERE, /* in code that is not ours */
	PP_FAKE_HOST_POLLING,   /* its last calls asked for something that isn't there yet */
	PP_FAKE_HOST_BLOCKED,   /* waits in a call */
};

struct pp_fake_host {
	struct pp_fake_host *next;
	uint32_t number; /* in the order of first calls */
	uint32_t agent, streams_made;
	struct pp_fake_clock clock;
	enum pp_fake_host_state state;
	char what[160]; /* what it polls for or waits in */
	/* Waits until this is at least that much; NULL: for streams. It may have come before the thread looks again. */
	const _Atomic uint64_t *awaits;
	uint64_t until;
	uint32_t polls;
	uint64_t polling_since, last_call;             /* pp_fake_progress; pp_fake_now */
	uint64_t queries, sends, collectives, streams; /* for planted faults */
	int device;
	cudaError_t last_error;
	enum cudaStreamCaptureMode capture_mode; /* of cudaThreadExchangeStreamCaptureMode */
};

/* A call begins: takes the lock. `call` is its name; calls from within a host function are reported. */
struct pp_fake_host *pp_fake_enter(const char *call);
/* A call ends: releases the lock and remembers an error for cudaGetLastError. */
cudaError_t pp_fake_leave(struct pp_fake_host *host, cudaError_t error);

/* All host threads, by `next`. */
struct pp_fake_host *pp_fake_hosts(void);

/* The call gave the device work. */
void pp_fake_host_worked(struct pp_fake_host *host);
/* The call asked for something that isn't there yet. */
void pp_fake_host_polled(struct pp_fake_host *host, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Wait in a call until pp_fake_host_freed; between them pp_fake_wait or pp_fake_host_pause. */
void pp_fake_host_blocked(struct pp_fake_host *host, const char *format, ...) __attribute__((format(printf, 2, 3)));
void pp_fake_host_freed(struct pp_fake_host *host);
/* Does it wait in a call for what hasn't come? */
bool pp_fake_host_waits(const struct pp_fake_host *host);
/* Sleeps a little without the lock; what is waited for may come from another process. */
void pp_fake_host_pause(void);

/* Marks the calling thread as one that runs host functions (no lock). */
void pp_fake_host_function(bool runs);

#endif
