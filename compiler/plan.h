/* `pipec plan`: one spec compiled under every combination of some of its values, and what came out side by side.
 * Nothing is written; each combination is a compilation of its own, whose memory is freed before the next. */
#ifndef PP_PLAN_H
#define PP_PLAN_H

#include "resolve.h"

#include "ir/options.h"
#include "ir/program.h"
#include "ir/status.h"

#include <stdio.h>

enum { PP_PLAN_MOST = 1000 /* combinations */ };

/* One attribute of the spec that varies. */
struct pp_plan_axis {
	const char *name;      /* as --vary calls it */
	const char *attribute; /* "parallel.vpp", or NULL: --schedule */
	const char **values;   /* as --set or --schedule take them; memory: also "none" and multiples, "0.5x" */
	size_t count;
	bool given; /* the user wrote the values; else they are tried where they fit */
};

/* What varies, slowest first: as listed by the user, but schedule, vpp, place and memory come last, in this order. */
struct pp_plan_vary {
	struct pp_plan_axis *axes;
	size_t count;
};

/* Read --vary texts: "schedule,vpp" varies both over values of ours, "vpp=1,2,4" over these. None at all: schedule and
 * vpp. The schedules of ours are not filled in yet. False: a usage message that names what can vary. */
bool pp_plan_vary_read(struct pp_arena *arena, const struct pp_option_list *texts, struct pp_plan_vary *vary,
                       struct pp_status *status);

/* Combinations, or UINT64_MAX if they overflow. */
uint64_t pp_plan_vary_count(const struct pp_plan_vary *vary);

/* A text that stays where it is during the plan. */
struct pp_plan_text {
	const char *name, *text;
	size_t length;
};

struct pp_plan_input {
	struct pp_plan_text spec, profile; /* profile.text NULL: costs of the model */
	struct pp_resolve_options options; /* what holds for all combinations */
	const char *tool_version;
	enum pp_lowered lowering;
	void (*out_of_memory)(size_t wanted);
	void (*progress)(void *context, size_t done, size_t count); /* or NULL */
	void *context;
};

struct pp_plan_row {
	const char **values; /* [axes] */
	const char *schedule, *place;
	uint32_t vpp, stages;
	uint64_t cap; /* of --vary memory in bytes, 0: none */
	bool unbound; /* --vary memory=none took a bound of the schedule away */

	bool refused;
	const char *code, *reason, *help; /* of the first error; code and help may be "" */

	bool front; /* none is faster with no more memory, nor smaller and no slower */
	uint64_t makespan, tail, span, bound, span_bound;
	double bubble, span_bubble;
	uint64_t peak, messages, samples; /* bytes of the fullest rank; messages and samples per step */
	uint32_t peak_rank, in_flight;    /* forwards that wait for their backward, most on one rank */
};

struct pp_plan {
	const struct pp_plan_vary *vary;
	struct pp_plan_row *rows; /* the ranked ones, fastest first, then the refused ones in the order of vary */
	size_t count, ranked;
	size_t lacking;       /* of the library, which lack what a schedule file of the spec says */
	const char *lack;     /* what they say */
	size_t left_out;      /* combinations of values of ours that their schedule does not take */
	bool same_batch;      /* all ranked rows train equally many samples per step */
	bool multiples;       /* caps were given as multiples of 1f1b's memory: */
	uint64_t unit, fixed; /* 1x and 0x of the last one, bytes */
};

/* Read the spec as such and fill in the schedules of `vary`. False: the text of the spec or of the profile is no use
 * for any combination, and the messages say why. */
bool pp_plan_prepare(struct pp_arena *arena, const struct pp_plan_input *input, struct pp_plan_vary *vary,
                     struct pp_diag *diag, struct pp_sources *sources);

/* requires: pp_plan_prepare, and at most PP_PLAN_MOST combinations. */
void pp_plan_make(struct pp_arena *arena, const struct pp_plan_input *input, const struct pp_plan_vary *vary,
                  struct pp_plan *plan);

/* Whether every combination is refused for the same reason: then it is the spec that is wrong. */
bool pp_plan_all_alike(const struct pp_plan *plan);

/* Print what the compiler says to a row: all its messages, with their places. */
void pp_plan_explain(const struct pp_plan_input *input, const struct pp_plan *plan, const struct pp_plan_row *row,
                     enum pp_diag_format format, bool color, FILE *out);

/* ns per sample, by which rows are ranked. */
double pp_plan_pace(const struct pp_plan_row *row);

/* "--schedule=zb_v --set parallel.vpp=2": what makes `pipec build` build a row. */
const char *pp_plan_arguments(struct pp_arena *arena, const struct pp_plan *plan, const struct pp_plan_row *row);

enum pp_plan_format { PP_PLAN_TEXT, PP_PLAN_JSON, PP_PLAN_CSV };

/* JSON has "schema": "pipec.plan/1". */
void pp_plan_print(struct pp_arena *arena, const struct pp_plan *plan, const char *file, enum pp_plan_format format,
                   FILE *out);

/* Time against memory as a standalone SVG. */
void pp_plan_svg(struct pp_arena *arena, const struct pp_plan *plan, const char *file, FILE *out);

/* The command, but for its command line: `path` "-" is standard input. Returns the exit code. */
struct pp_plan_command {
	struct pp_plan_input input; /* without texts */
	struct pp_option_list vary;
	const char *profile, *svg; /* paths, or NULL */
	enum pp_plan_format format;
	unsigned diagnostics; /* enum pp_diag_format */
	bool color;
};
int pp_plan_command(struct pp_arena *arena, struct pp_plan_command *command, const char *path);

#endif
