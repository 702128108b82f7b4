/* The pass pipeline: one table (passes.def), one unit of compilation that the passes fill in, one driver. */
#ifndef PP_PASS_H
#define PP_PASS_H

#include "resolve.h"

#include "grammar/ast.h"
#include "ir/diag.h"
#include "ir/order.h"
#include "ir/program.h"
#include "ir/schedule.h"
#include "ir/simulate.h"
#include "ir/stages.h"

#include <stdbool.h>
#include <stdio.h>

#define PP_MEMORY_UNBOUND UINT64_MAX

/* One compilation. The caller sets the first group; each pass fills in what its line in passes.def says. */
struct pp_unit {
	struct pp_arena *arena;
	struct pp_strtab *strings;
	struct pp_sources *sources;
	struct pp_diag *diag;
	const struct pp_source *source; /* the .pipe text */
	struct pp_resolve_options options;
	const char *tool_version;
	enum pp_lowered lowering;         /* PP_LOWERED_GIVEN: the default */
	const struct pp_profile *profile; /* measured costs, or NULL */

	struct pp_ast *ast;
	struct pp_resolved resolved;
	struct pp_schedule draft; /* of a policy that looks at costs: one microbatch, what any order holds */
	struct pp_stages stages;
	struct pp_schedule schedule;
	/* [ranks]: bytes that the last plan took beside the layers as the split counted them, and beside what the order
	 * holds; NULL: not planned yet */
	uint64_t *headroom, *order_headroom;
	unsigned replans;
	uint64_t deadline; /* monotonic ns: where the timeout of `schedule search` ends all its searches; 0: not begun */
	/* A split and an order that were found to be the best (split_contest.h), or NULL. `instead`: a named schedule in
	 * place of that of the spec. `contestant`: compiled only to be compared. */
	const uint32_t *first; /* [stages + 1] */
	const struct pp_schedule *given;
	const char *instead;
	struct pp_lean *lean; /* the build that needs least memory (lean.h); NULL: not asked for yet */
	/* What the schedule may take in place of its `memory <=`, to try less; 0: that. PP_MEMORY_UNBOUND: as if the spec
	 * did not have it, or its GPUs had more than any where it has none. */
	uint64_t memory;
	bool rooms_tried;   /* orders for less memory have competed */
	bool named_tried;   /* named schedules have, on this split */
	bool unbound_tried; /* the order without a bound on memory has */
	bool leanest;       /* the order is that of `lean` */
	bool contestant;
	uint64_t
	    to_beat; /* what the objective is elsewhere, or for `given`: what is not less need not be tried; 0: nothing */
	double deviation; /* of the profile's stages from times of layers, as a share */
	struct pp_program *program;
	struct pp_sim sim;
};

enum pp_pass {
#define PP_PASS(name, level, print, summary) PP_PASS_##name,
#include "passes.def"
#undef PP_PASS
	PP_PASS_COUNT
};

struct pp_pass_info {
	const char *name, *level, *summary;
	bool (*run)(struct pp_unit *unit);                    /* false: errors are in unit->diag */
	void (*print)(const struct pp_unit *unit, FILE *out); /* the state after the pass as text */
};

extern const struct pp_pass_info pp_passes[PP_PASS_COUNT];

/* Run passes up to and including `last`. After each pass `after` (may be NULL) is called, for --dump-after. False as
 * soon as a pass reports errors. */
bool pp_compile(struct pp_unit *unit, enum pp_pass last, void (*after)(const struct pp_unit *, enum pp_pass, void *),
                void *context);

/* A program of the unit's grid, devices and training settings, in this arena; its tables come from later passes.
 * requires: stages. */
struct pp_program *pp_unit_frame(const struct pp_unit *unit, struct pp_arena *arena);

/* The order problem of the unit's stages, with the room of this round; what is called impossible goes by what any
 * program of them needs. requires: stages. */
const struct pp_order_problem *pp_unit_problem(const struct pp_unit *unit);

/* The pass that makes a level of --emit, or PP_PASS_COUNT. */
enum pp_pass pp_pass_of_level(const char *level);

#endif
