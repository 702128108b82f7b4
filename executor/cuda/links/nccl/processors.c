/* The processors that this process may use, as its launcher has bound it. Linux, hence a file of its own. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "processors.h"

#include <sched.h>

int pp_nccl_processors(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}
