/* The clock of waits, limits and measured times. */
#ifndef PP_CLOCK_H
#define PP_CLOCK_H

#include <stdint.h>

/* Monotonic ns. */
uint64_t pp_clock(void);

#endif
