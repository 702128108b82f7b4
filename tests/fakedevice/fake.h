/* A CUDA runtime, cuBLASLt and NCCL on CPU threads: what tests ask it, beyond the calls of the real headers. Everything
 * is a process's own; environment variables set it up (docs/fake-device.md).
 *
 * What it finds wrong it says on stderr at once, and the process ends with PP_FAKE_EXIT at its exit; a deadlock, or two
 * ranks that disagree about an operation, ends the process at once. */
#ifndef PP_FAKE_H
#define PP_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PP_FAKE_EXIT = 86 };

/* Races reported so far; all reports so far, races included. */
uint64_t pp_fake_races(void);
uint64_t pp_fake_reports(void);
/* The text of the last report, "" if there was none. Valid until the next one. */
const char *pp_fake_report(void);
/* Forget the reports: the process may end well. For tests that plant a fault and have seen it caught. */
void pp_fake_forgive(void);

/* From now on it is reported if this thread allocates, frees, makes streams or events, copies without a stream,
 * launches a kernel that the process has not launched yet, or uses an NCCL peer or collective for the first time:
 * within a step nothing of the sort may happen. */
void pp_fake_freeze(void);
void pp_fake_thaw(void);

/* The calling thread reads host memory that copies write: looked at like the touch of a launch. */
void pp_fake_host_reads(const void *start, uint64_t bytes, const char *name);

#ifdef __cplusplus
}
#endif

#endif
