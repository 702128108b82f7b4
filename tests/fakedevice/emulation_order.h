/* In which order the emulation runs the threads of a block and the blocks of a grid (emulation.h). */
#ifndef PP_EMULATION_ORDER_H
#define PP_EMULATION_ORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pp_emulation_order { PP_EMULATE_UP, PP_EMULATE_DOWN, PP_EMULATE_RANDOM };

/* For launches from now on, by all threads of the process. At the start: the environment variable PP_EMULATE = up, down
 * or a seed; without it up. */
void pp_emulation_set_order(enum pp_emulation_order order, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
