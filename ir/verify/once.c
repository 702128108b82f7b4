/* V1: nothing is missing. That nothing runs twice is seen where it runs: flow.c. */
#include "state.h"

#include <inttypes.h>

/* The smallest microbatch that is not among `count` forwards of a stage: below count + 1. */
static uint32_t missing_forward(const struct pp_proof *proof, uint32_t s, uint32_t count)
{
	const struct pp_stream *stream = &proof->named->streams[proof->program->stages[s].rank];
	bool *seen = PP_NEW_ARRAY(proof->arena, bool, (size_t)count + 1);
	for (uint32_t i = 0; i < stream->count; i++)
		if (stream->items[i].op == PP_OP_FWD && stream->items[i].stage == s && stream->items[i].mb <= count)
			seen[stream->items[i].mb] = true;
	uint32_t mb = 0;
	while (mb < count && seen[mb])
		mb++;
	return mb;
}

/* Before anything is sized by stages * microbatches, there must be as many forwards. */
bool pp_prove_forwards(struct pp_proof *proof)
{
	const struct pp_program *program = proof->program;
	uint32_t *count = PP_NEW_ARRAY(proof->arena, uint32_t, program->stage_count);
	for (uint32_t r = 0; r < program->ranks; r++) {
		const struct pp_stream *stream = &proof->named->streams[r];
		for (uint32_t i = 0; i < stream->count; i++)
			if (stream->items[i].op == PP_OP_FWD && stream->items[i].stage < program->stage_count &&
			    program->stages[stream->items[i].stage].rank == r)
				count[stream->items[i].stage]++;
	}
	for (uint32_t s = 0; s < program->stage_count; s++) {
		if (count[s] >= program->microbatches)
			continue;
		pp_error(proof->diag, "V1", PP_NO_SPAN,
		         "rank %" PRIu32 " never runs `fwd s%" PRIu32 " m%" PRIu32 "`: %" PRIu32 " of %" PRIu32
		         " microbatches pass stage %" PRIu32,
		         program->stages[s].rank, s, missing_forward(proof, s, count[s]), count[s], program->microbatches, s);
		return false;
	}
	return true;
}

bool pp_prove_backwards(struct pp_proof *proof, uint32_t rank, const uint8_t *progress)
{
	const struct pp_program *program = proof->program;
	for (uint32_t s = 0; s < program->stage_count && !proof->forward_only; s++) {
		if (rank != PP_NULL && program->stages[s].rank != rank)
			continue;
		const uint8_t *row = &progress[(size_t)s * program->microbatches];
		for (uint32_t m = 0; m < program->microbatches; m++) {
			if (row[m] == RAN_ALL)
				continue;
			pp_error(proof->diag, "V1", PP_NO_SPAN, "rank %" PRIu32 " never runs `%s s%" PRIu32 " m%" PRIu32 "`",
			         program->stages[s].rank, row[m] == RAN_INPUT_GRAD ? "bwdw" : "bwd", s, m);
			return false;
		}
	}
	return true;
}
