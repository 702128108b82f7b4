/* Kernels that try the emulation, sound ones and faulty ones (emulation_trial.cu). All work on host memory and run at
 * once, without a stream. */
#ifndef PP_EMULATION_TRIAL_H
#define PP_EMULATION_TRIAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One block of `threads` threads, a multiple of 32; results per thread. */
enum trial {
	TRIAL_BLOCK_SUM,       /* sum of all thread numbers + 1, by shuffles and shared memory */
	TRIAL_SHUFFLES,        /* xor 1, up 1, down 1, lane 3 of 8: four digits of 100 */
	TRIAL_VOTES,           /* lanes with an odd number, as a mask */
	TRIAL_HALF_WARPS,      /* sums over halves of a warp, by two masks */
	TRIAL_SHARED_IS_NAN,   /* 1: dynamic shared memory that nobody wrote is NaN */
	TRIAL_EARLY_END,       /* odd warps end at once, the others meet */
	TRIAL_MISSING_BARRIER, /* faulty: reads what the next thread writes */
	TRIAL_DIVERGENT,       /* faulty: half of each warp at the block's barrier, half at the warp's */
	TRIAL_WRONG_MASK,      /* faulty: a mask that lacks the own lane */
	TRIAL_ENDED_LANE,      /* faulty: a full mask after lane 5 has ended */
	TRIAL_DEEP_STACK,      /* faulty: more stack than there is */
	TRIAL_COUNT
};

/* result[block * threads + thread]. */
void trial_run(enum trial trial, uint32_t blocks, uint32_t threads, double *result);
/* Faulty: a barrier in a kernel that was launched as one without. */
void trial_run_plain(double *result);
/* Faulty: a launch with so many bytes of shared memory that nobody asked for. */
void trial_run_shared(uint64_t bytes, double *result);

#ifdef __cplusplus
}
#endif

#endif
