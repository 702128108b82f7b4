/* What this process really holds, at the points of a start where it grows: beside ir/outside.h, which predicts it. */
#ifndef PP_MEMORY_USE_H
#define PP_MEMORY_USE_H

#include <stdint.h>

/* Resident bytes of this process now, 0: the system does not say. */
uint64_t pp_resident_bytes(void);

/* Resident bytes after each part of a start. */
struct pp_memory_marks {
	uint64_t begin;     /* the program has started */
	uint64_t messaging; /* so has the library that ranks talk by */
	uint64_t program;   /* loaded, proven, simulated */
	uint64_t transport; /* channels are open */
};

#endif
