/* Memory that the runtime gave out: device memory and pinned host memory; all other host memory is pageable. Lock held.
 */
#ifndef PP_FAKE_MEMORY_H
#define PP_FAKE_MEMORY_H

#include "races.h"

#include <stdbool.h>
#include <stdint.h>

enum pp_fake_memory_kind { PP_FAKE_PAGEABLE, PP_FAKE_DEVICE, PP_FAKE_PINNED };

struct pp_fake_allocation {
	uintptr_t start;
	uint64_t bytes;
	enum pp_fake_memory_kind kind;
	int device;
	bool registered; /* by cudaHostRegister: the memory isn't ours */
	struct pp_fake_history history;
};

/* The allocation that `start` lies in, or NULL: then it is pageable. */
struct pp_fake_allocation *pp_fake_allocation_at(const void *start);
enum pp_fake_memory_kind pp_fake_memory_kind(const void *start);
/* "device 0's [0x…, +4096)", for reports. */
const char *pp_fake_memory_text(const void *start, uint64_t bytes, char *text, uint64_t size);

/* Are all bytes in one allocation that work on `device` may touch? If not it is reported. */
bool pp_fake_memory_check(int device, const void *start, uint64_t bytes, bool writes, const char *name);

#endif
