/* The emulation of kernels: barriers, shuffles and votes give what a GPU gives, in every order of threads and blocks; a
 * kernel that depends on the order shows it; one that could not go on ends the process and says why. */
#include "emulation_order.h"
#include "emulation_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { BLOCKS = 3, THREADS = 96, ORDERS = 3 };

static void set_order(int order)
{
	pp_emulation_set_order((enum pp_emulation_order)order, 7);
}

static double expected(enum trial trial, uint32_t thread)
{
	uint32_t lane = thread % 32;
	switch (trial) {
	case TRIAL_BLOCK_SUM:
		return THREADS * (THREADS + 1) / 2;
	case TRIAL_SHUFFLES:
		return (((double)(lane ^ 1) * 100 + (lane ? lane - 1 : 0)) * 100 + (lane < 31 ? lane + 1 : 31)) * 100 +
		       lane / 8 * 8 + 3;
	case TRIAL_VOTES:
		return 0xaaaaaaaau;
	case TRIAL_HALF_WARPS:
		return thread / 16 * 16 * 16 + 120;
	case TRIAL_SHARED_IS_NAN:
		return 1;
	case TRIAL_EARLY_END:
		return thread / 32 == 1 ? 1 : 2;
	case TRIAL_MISSING_BARRIER:
	case TRIAL_DIVERGENT:
	case TRIAL_WRONG_MASK:
	case TRIAL_ENDED_LANE:
	case TRIAL_DEEP_STACK:
	case TRIAL_COUNT:
		break;
	}
	return -1;
}

static void test_sound_kernels(void **state)
{
	(void)state;
	for (int order = 0; order < ORDERS; order++) {
		set_order(order);
		for (int trial = 0; trial < TRIAL_MISSING_BARRIER; trial++) {
			double result[BLOCKS * THREADS] = {0};
			trial_run((enum trial)trial, BLOCKS, THREADS, result);
			for (uint32_t i = 0; i < BLOCKS * THREADS; i++)
				if (result[i] != expected((enum trial)trial, i % THREADS))
					fail_msg("trial %d, order %d: thread %u of block %u gives %.0f, expected %.0f", trial, order,
					         i % THREADS, i / THREADS, result[i], expected((enum trial)trial, i % THREADS));
		}
	}
}

/* Ascending, the next thread has not written yet; descending, it has. */
static void test_a_missing_barrier_shows(void **state)
{
	(void)state;
	double result[ORDERS][THREADS];
	for (int order = 0; order < ORDERS; order++) {
		set_order(order);
		trial_run(TRIAL_MISSING_BARRIER, 1, THREADS, result[order]);
	}
	assert_int_equal((int)result[PP_EMULATE_UP][0], 255);
	assert_int_equal((int)result[PP_EMULATE_DOWN][0], 2);
	assert_memory_not_equal(result[PP_EMULATE_RANDOM], result[PP_EMULATE_UP], sizeof *result);
	assert_memory_not_equal(result[PP_EMULATE_RANDOM], result[PP_EMULATE_DOWN], sizeof *result);
}

/* What the child said on stderr before it ended by abort. */
static void assert_aborts(void (*run)(void), const char *said)
{
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		run();
		_exit(0);
	}
	close(ends[1]);
	char text[4096] = {0};
	size_t length = 0;
	for (ssize_t more; (more = read(ends[0], text + length, sizeof text - 1 - length)) > 0;)
		length += (size_t)more;
	close(ends[0]);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_non_null(strstr(text, said));
}

static double child_result[THREADS];

static void run_divergent(void)
{
	trial_run(TRIAL_DIVERGENT, 1, THREADS, child_result);
}

static void run_wrong_mask(void)
{
	trial_run(TRIAL_WRONG_MASK, 1, THREADS, child_result);
}

static void run_part_of_a_warp(void)
{
	trial_run(TRIAL_SHUFFLES, 1, THREADS - 16, child_result);
}

static void run_ended_lane(void)
{
	trial_run(TRIAL_ENDED_LANE, 1, THREADS, child_result);
}

static void run_plain(void)
{
	trial_run_plain(child_result);
}

static void run_shared(void)
{
	trial_run_shared(50000, child_result);
}

static void test_faulty_kernels_end_the_process(void **state)
{
	(void)state;
	assert_aborts(run_divergent, "kernel trial: no thread of the block can go on\n"
	                             "  from thread 0 on: waits at __syncthreads\n"
	                             "  from thread 16 on: waits in its warp, mask ffffffff\n");
	assert_aborts(run_wrong_mask,
	              "kernel trial: a thread shuffles or synchronises with a mask that lacks its own lane");
	assert_aborts(run_part_of_a_warp, "kernel trial: a mask names lanes that the block does not have");
	assert_aborts(run_ended_lane, "kernel trial: a mask names a lane whose thread has ended");
	assert_aborts(run_plain, "in a kernel launched with PP_LAUNCH_FREE: use PP_LAUNCH");
	assert_aborts(run_shared, "kernel trial: more than 48 KiB of shared memory have to be asked for");
}

#if !defined(__SANITIZE_ADDRESS__) /* which finds that itself */
static void run_deep_stack(void)
{
	trial_run(TRIAL_DEEP_STACK, 1, THREADS, child_result);
}

static void test_a_stack_that_is_too_small_shows(void **state)
{
	(void)state;
	assert_aborts(run_deep_stack, "kernel trial: a thread needed more stack than the emulation gives it");
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sound_kernels),
		cmocka_unit_test(test_a_missing_barrier_shows),
		cmocka_unit_test(test_faulty_kernels_end_the_process),
#if !defined(__SANITIZE_ADDRESS__)
		cmocka_unit_test(test_a_stack_that_is_too_small_shows),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
