/* Schedule files of torch.distributed.pipelining (ir/csv.h): `pipec verify f.csv` and `pipec import csv f.csv`. */
#ifndef PP_EXCHANGE_H
#define PP_EXCHANGE_H

#include "ir/csv.h"
#include "ir/program.h"

struct pp_exchange_options {
	bool legacy;     /* letters B and BW of old files */
	bool one_layout; /* messages under `layout` alone, else under all */
	enum pp_layout layout;
	const char *name; /* import: of the schedule (pp_exchange_can_name), NULL: made from the file's name */
};

/* Check a file: its compute, and its messages under every layout of queues. Prints one line when the compute is right,
 * with a verdict per layout where there are messages. False: something was reported. */
bool pp_exchange_verify(struct pp_arena *arena, const struct pp_source *source,
                        const struct pp_exchange_options *options, struct pp_diag *diag, FILE *out);

/* Whether a schedule with rows can be called so: an identifier that is no word of the language and no schedule of the
 * library. */
bool pp_exchange_can_name(struct pp_arena *arena, const char *name);

/* Print the file as the blocks of a spec: schedule, stages, parallel. False: something was reported, nothing printed.
 */
bool pp_exchange_import(struct pp_arena *arena, const struct pp_source *source,
                        const struct pp_exchange_options *options, struct pp_diag *diag, FILE *out);

/* The stage whose weight gradients are not added in ascending order of microbatches, or UINT32_MAX: then bits depend on
 * the schedule. */
uint32_t pp_exchange_unordered(struct pp_arena *arena, const struct pp_schedule *schedule);

#endif
