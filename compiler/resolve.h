/* From the tree of a `.pipe` text to the spec: imports, params, names, defaults, units, ranges, and everything that
 * follows from one or two attributes. Errors are reported with both values and a fix; resolving goes on after an
 * error to find more, one message per cause. Whatever is written and not supported yet gets E0010 at its position. */
#ifndef PP_RESOLVE_H
#define PP_RESOLVE_H

#include "eval/eval.h"
#include "grammar/ast.h"
#include "ir/csv.h"
#include "ir/diag.h"
#include "ir/spec.h"
#include "ir/str.h"

/* A file that ships inside the compiler: found by `import "lib/clusters.pipe"` after the folders. */
struct pp_library_file {
	const char *path, *text;
};

/* Placement and stages per rank of `schedule search` where the spec leaves them open. */
struct pp_place_hint {
	const char *place; /* "loop" or "v"; NULL: the defaults */
	uint32_t vpp;
	bool trial; /* only to see which placement is best: search for a shorter time */
};

struct pp_resolve_options {
	const char *const *defines; /* -D: "nodes=4" */
	size_t define_count;
	const char *const *sets; /* --set: "train.microbatch=2" */
	size_t set_count;
	const char *const *folders; /* -I */
	size_t folder_count;
	const char *schedule; /* --schedule, or NULL */
	struct pp_place_hint hint;
	bool placed;                           /* search chooses its placement also where resolving is all that is wanted */
	bool all_schedules;                    /* the schedule varies: settings that only others take are no error */
	const struct pp_library_file *shipped; /* library files that come with the compiler */
	size_t shipped_count;
};

enum pp_origin {
	PP_ORIGIN_DEFAULT,
	PP_ORIGIN_FILE,
	PP_ORIGIN_DERIVED,
	PP_ORIGIN_SET /* --set */,
	PP_ORIGIN_DEFINE /* -D */
};

/* One resolved attribute or param, for `pipec show`: block "cluster.gpu", attribute "memory". Params: block "param". */
struct pp_setting {
	const char *block, *attribute;
	struct pp_datum value;
	uint8_t origin; /* enum pp_origin */
	struct pp_span span;
};

/* An assert on metrics, checked after scheduling. */
struct pp_assertion {
	const struct pp_stmt *stmt;
	const struct pp_scope *scope;
};

struct pp_resolved {
	struct pp_spec spec;
	const struct pp_stmt *schedule; /* the active block with its `order`, or NULL: `policy` is a library schedule */
	const char *policy;             /* name of the library schedule, or NULL */
	struct pp_schedule *imported;   /* rows of a schedule file, checked, in the place of both; or NULL */
	/* Names for the rows of the active schedule: p, m, v (the most stages of a rank), params, lets, block.attribute,
	 * and attributes of the schedule (absent ones are 0). Bind r, the rank's own v and loop variables in a scope of
	 * your own with this one as `outer`. Also right for library schedules. */
	const struct pp_scope *scope;
	const struct pp_assertion *asserts;
	size_t assert_count;
	const struct pp_setting *settings; /* in the order of the schema table, params first */
	size_t setting_count;
	struct pp_strtab *strings;
	const struct pp_sources *sources;
};

/* False when an error was reported; `out` is filled in as far as possible and must not be used then. Everything lives
 * in the arena. */
bool pp_resolve(struct pp_arena *arena, struct pp_strtab *strings, struct pp_sources *sources, const struct pp_ast *ast,
                const struct pp_resolve_options *options, struct pp_diag *diag, struct pp_resolved *out);

/* What asserts may name, in base units. */
struct pp_metrics {
	double bubble, span_bubble; /* shares, 0 to 1 */
	double time_per_step;       /* seconds */
	double peak_memory;         /* bytes, of the fullest rank */
	double mfu, imbalance;
};

/* Check the asserts on metrics: E0203 for each that fails. */
bool pp_asserts_check(struct pp_arena *arena, const struct pp_resolved *resolved, const struct pp_metrics *metrics,
                      struct pp_diag *diag);

#endif
