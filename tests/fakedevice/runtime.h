/* What all parts of the fake share: the one lock, settings from the environment, reports, random numbers.
 *
 * Everything that the fake knows is guarded by the one lock; what takes time (kernels, copies) runs without it. */
#ifndef PP_FAKE_RUNTIME_H
#define PP_FAKE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pp_fake_settings {
	uint64_t jitter;         /* PP_FAKE_JITTER: seed of delays and of the order of streams; 0: none */
	uint64_t buffered;       /* PP_FAKE_BUFFERED: sends up to this many bytes complete early; 0: strict rendezvous */
	uint64_t memory;         /* PP_FAKE_MEMORY_MIB, of each device, in bytes */
	int shared;              /* PP_FAKE_SHARED_KIB of a multiprocessor, in bytes; a block gets 1 KiB less */
	uint32_t threads;        /* PP_FAKE_THREADS that run the streams */
	uint32_t quiet_ms;       /* PP_FAKE_QUIET_MS: all are blocked and nothing moved for so long: a deadlock */
	uint32_t stall_ms;       /* PP_FAKE_STALL_MS: the same where some host thread is outside of the fake */
	uint32_t resident;       /* PP_FAKE_RESIDENT: NCCL operations that a device has room for; 0: all */
	bool ordered;            /* PP_FAKE_ORDERED: launches of NCCL start in order, whatever its variable says */
	int devices;             /* PP_FAKE_DEVICES; -1: no driver, below: minus that is CUDA's error */
	uint32_t first;          /* PP_FAKE_FIRST_DEVICE: which of the machine's devices this process sees as its first */
	int driver;              /* PP_FAKE_DRIVER: version, 13000 */
	int capability;          /* PP_FAKE_CAPABILITY: compute capability times 10, 90 */
	bool stop;               /* PP_FAKE_STOP: end with the first report */
	bool watchdog;           /* PP_FAKE_WATCHDOG */
	const char *plant;       /* PP_FAKE_PLANT: plant.h, or NULL */
	const char *async_error; /* PP_FAKE_ASYNC_ERROR: RANK:OPERATIONS[:SPLIT], or NULL */
};

const struct pp_fake_settings *pp_fake_settings(void);

void pp_fake_lock(void);
void pp_fake_unlock(void);

/* Lock held, here and below. Something moved: threads that wait look again. */
void pp_fake_progressed(void);
/* How often something moved. */
uint64_t pp_fake_progress(void);
/* Wait, without the lock, until something has moved or `until` (nanoseconds of pp_fake_now; 0: for ever) has come. */
void pp_fake_wait(uint64_t until);
/* The same for the threads that run streams, which pp_fake_hire wakes when a stream got work. */
void pp_fake_rest(uint64_t until);
void pp_fake_hire(void);

uint64_t pp_fake_now(void);
/* From the seed of the jitter; deterministic but for the order of the callers. */
uint64_t pp_fake_random(void);

/* A report; the process will end with PP_FAKE_EXIT. */
void pp_fake_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
void pp_fake_race(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A report after which nothing makes sense any more: ends the process at once. */
_Noreturn void pp_fake_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* pp_fake_freeze: reports that `what` happened in a step. */
void pp_fake_frozen(const char *what);
bool pp_fake_is_frozen(void);

/* Memory of the fake itself; never NULL. */
void *pp_fake_new(size_t bytes);
void *pp_fake_grow(void *old, size_t bytes);
/* The same text for ever, whoever asked first: for names in reports. */
const char *pp_fake_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
