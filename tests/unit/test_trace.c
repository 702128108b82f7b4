/* Chrome trace: the whole text of a small trace. */
#include "ir/program.h"
#include "ir/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void events(void **state)
{
	(void)state;
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	struct pp_trace trace;
	pp_trace_begin(&trace, out, 0, NULL, NULL);
	pp_trace_slice(&trace, &(struct pp_trace_slice){.rank = 1,
	                                                .track = PP_TRACE_COMPUTE,
	                                                .name = "F2.5",
	                                                .category = "F",
	                                                .start = 1500,
	                                                .end = 2007,
	                                                .stage = 2,
	                                                .mb = 5});
	pp_trace_slice(&trace, &(struct pp_trace_slice){.rank = 0,
	                                                .track = PP_TRACE_COLLECTIVE,
	                                                .name = "allreduce",
	                                                .category = "coll",
	                                                .start = 0,
	                                                .end = 1000000,
	                                                .stage = PP_NULL,
	                                                .mb = PP_NULL,
	                                                .bytes = 64});
	pp_trace_flow_start(&trace, 7, 1, PP_TRACE_SEND, 10);
	pp_trace_flow_end(&trace, 7, 2, PP_TRACE_RECV, 20);
	pp_trace_counter(&trace, 3, "memory (bytes)", 1, 12345678901);
	pp_trace_end(&trace);
	fclose(out);
	assert_string_equal(
	    text, "{\"displayTimeUnit\": \"ns\", \"otherData\": {\"schema\": \"pipec.trace/1\"}, \"traceEvents\": [\n"
	          "{\"ph\": \"X\", \"pid\": 1, \"tid\": 0, \"name\": \"F2.5\", \"cat\": \"F\", \"ts\": 1.500, \"dur\": "
	          "0.507, \"args\": {\"stage\": 2, \"microbatch\": 5}},\n"
	          "{\"ph\": \"X\", \"pid\": 0, \"tid\": 4, \"name\": \"allreduce\", \"cat\": \"coll\", \"ts\": 0.000, "
	          "\"dur\": 1000.000, \"args\": {\"bytes\": 64}},\n"
	          "{\"ph\": \"s\", \"pid\": 1, \"tid\": 2, \"name\": \"message\", \"cat\": \"message\", \"id\": 7, \"ts\": "
	          "0.010},\n"
	          "{\"ph\": \"f\", \"pid\": 2, \"tid\": 3, \"name\": \"message\", \"cat\": \"message\", \"id\": 7, \"ts\": "
	          "0.020, \"bp\": \"e\"},\n"
	          "{\"ph\": \"C\", \"pid\": 3, \"tid\": 0, \"name\": \"memory (bytes)\", \"ts\": 0.001, \"args\": "
	          "{\"value\": 12345678901}}\n"
	          "]}\n");
	free(text);
}

static void names_are_padded(void **state)
{
	(void)state;
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	struct pp_trace trace;
	pp_trace_begin(&trace, out, 12, NULL, "mpi");
	pp_trace_end(&trace);
	fclose(out);
	assert_non_null(strstr(text, "\"otherData\": {\"schema\": \"pipec.trace/1\", \"transport\": \"mpi\"}, "));
	assert_non_null(strstr(text, "{\"name\": \"rank 00\"}"));
	assert_non_null(strstr(text, "{\"name\": \"rank 07\"}"));
	assert_non_null(strstr(text, "{\"name\": \"rank 11\"}"));
	free(text);
	out = open_memstream(&text, &length);
	pp_trace_begin(&trace, out, 12, &(const struct pp_program){.ranks = 3, .tp = 2, .dp = 2}, NULL);
	pp_trace_end(&trace);
	fclose(out);
	assert_non_null(strstr(text, "{\"name\": \"rank 07 pp 1 tp 1 dp 1\"}"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(events), cmocka_unit_test(names_are_padded)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
