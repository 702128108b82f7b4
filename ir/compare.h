/* Predicted against measured: tables for people and JSON. `piperun --trace` and `pipedump --diff` print them. */
#ifndef PP_COMPARE_H
#define PP_COMPARE_H

#include "json.h"
#include "measure.h"

struct pp_compare {
	struct pp_arena *arena;
	const struct pp_program *program;
	const struct pp_named_program *named;
	const struct pp_sim *sim; /* with intervals */
	const struct pp_profile *profile;
	struct pp_measure *measure; /* NULL: a profile alone, which has no times of classes */
};

/* Per class of instructions: how many in a step, their predicted and measured time on all ranks together, the ratio. */
void pp_compare_classes(const struct pp_compare *compare, FILE *out);

/* Per (stage, phase), channel, and rank (idle share of the makespan). */
void pp_compare_bodies(const struct pp_compare *compare, FILE *out);
void pp_compare_channels(const struct pp_compare *compare, FILE *out);
void pp_compare_ranks(const struct pp_compare *compare, FILE *out);

/* All of them as members of the open object. */
void pp_compare_json(const struct pp_compare *compare, struct pp_json *json);

#endif
