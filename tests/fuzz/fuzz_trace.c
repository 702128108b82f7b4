/* Fuzz target of the trace reader: any bytes beside a program of one rank. Whatever is read must be measured whole. */
#include "codegen/trace_read.h"
#include "ir/program_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static const char text[] = "pps 1\n"
                           "grid pp 1 microbatches 1\n"
                           "device 0\n"
                           "stage s0 rank 0 title \"layers\" layers 1 stash 64\n"
                           "slot 0 stash.0 bytes 64\n"
                           "program train {\n"
                           "  rank 0 {\n"
                           "    fwd s0 m0 - - - stash.0\n"
                           "    bwd s0 m0 - stash.0 - - first\n"
                           "  }\n"
                           "}\n";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	const struct pp_program *program =
	    pp_program_read(arena, pp_sources_add(sources, "fuzz.pps", text, sizeof text - 1), diag);
	if (!program)
		abort();
	struct pp_measure *measure = pp_measure_begin(arena, program, &program->programs[0], NULL);
	struct pp_json_reader reader = pp_json_read_begin((const char *)bytes, length);
	bool ok = pp_trace_read(arena, program, &program->programs[0], &reader, measure);
	if (ok == reader.failed || (reader.failed && (reader.wrong_at > length || !reader.wrong[0])))
		abort();
	if (ok && pp_measure_end(measure)->stages[0].time[PP_PHASE_F].count == 0)
		abort();
	struct pp_json_head head = pp_json_head((const char *)bytes, length);
	if (strlen(head.schema) >= sizeof head.schema || strlen(head.transport) >= sizeof head.transport)
		abort();
	pp_arena_destroy(arena);
	return 0;
}
