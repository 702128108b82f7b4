/* Wall-clock limits of what searches. */
#ifndef PP_DEADLINE_H
#define PP_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

/* Monotonic ns. */
uint64_t pp_now(void);

/* Whether a deadline in monotonic ns has passed; 0: there is none. */
bool pp_is_late(uint64_t deadline);

#endif
