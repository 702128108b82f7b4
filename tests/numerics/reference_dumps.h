/* The dumps of known gradients: every program that compares with them runs one test for each. */
#ifndef PP_TEST_REFERENCE_DUMPS_H
#define PP_TEST_REFERENCE_DUMPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct reference_dump {
	const char *name, *path;
};

/* The file of the test that runs, from the state that it is given. */
static inline const char *reference_path(void **state)
{
	const struct reference_dump *dump = *state;
	return dump->path;
}

static inline int reference_run_all(const char *group, CMUnitTestFunction test)
{
	struct reference_dump dumps[] = {
	    {"tied, tanh", PP_TEST_DATA "/gpt2_tied.grads"},
	    {"untied, erf, window", PP_TEST_DATA "/gpt2_untied.grads"},
	    {"llama", PP_TEST_DATA "/llama.grads"},
	    {"llama, qk norm, biases", PP_TEST_DATA "/llama_qk_norm.grads"},
	    {"llama, biases of heads", PP_TEST_DATA "/llama_qkv_bias.grads"},
	};
	struct CMUnitTest tests[sizeof dumps / sizeof *dumps];
	for (size_t i = 0; i < sizeof dumps / sizeof *dumps; i++)
		tests[i] = (struct CMUnitTest){.name = dumps[i].name, .test_func = test, .initial_state = &dumps[i]};
	return cmocka_run_group_tests_name(group, tests, NULL, NULL);
}

#endif
