/* deadline.h */
#include "deadline.h"

#include <time.h>

uint64_t pp_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

bool pp_is_late(uint64_t deadline)
{
	return deadline && pp_now() >= deadline;
}
