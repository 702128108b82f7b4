/* What the parts of resolve share. Private to compiler/resolve*.c.
 *
 * A module is one file: its params, lets, aliases and blocks by name. A section is one block with a field for each of
 * its attributes in the schema; fields are read on demand (so that any attribute may use any other) and remember their
 * value, their failure, or that they are being read (a cycle). */
#ifndef PP_RESOLVER_H
#define PP_RESOLVER_H

#include "compiler/resolve.h"
#include "compiler/schema.h"

enum pp_state { PP_UNREAD, PP_READING, PP_READY, PP_ABSENT, PP_FAILED };

struct pp_module;

/* A name of a file. Params, lets and aliases share one space of names; blocks are kept under "kind label". */
struct pp_symbol {
	const char *key;            /* interned */
	const struct pp_stmt *stmt; /* PARAM, LET, IMPORT or BLOCK */
	struct pp_module *target;   /* of an alias */
	uint8_t state;              /* enum pp_state, PARAM and LET */
	uint8_t origin;             /* enum pp_origin, PARAM */
	bool used;                  /* PARAM: mentioned; BLOCK: another block of the file extends it */
	struct pp_datum value;
	const struct pp_expr *given; /* PARAM: the value of -D, or NULL */
	const char *given_text;      /* PARAM: the literal of -D */
};

struct pp_module {
	struct pp_resolver *resolver;
	const struct pp_ast *ast;
	const char *path;
	struct pp_symbol *symbols;
	size_t count, capacity;
	uint32_t *table; /* open addressing by pointer: index + 1 */
	size_t table_size;
	struct pp_module **open; /* imported without an alias */
	size_t open_count, open_capacity;
	struct pp_module *importer; /* while its imports are loaded */
	bool loading;
	struct pp_scope scope;
};

struct pp_field {
	const struct pp_expr *expr; /* NULL: not given */
	struct pp_span name_span;
	struct pp_module *module; /* whose names the expression reads */
	uint8_t state, origin;
	struct pp_datum value;
};

struct pp_section {
	enum pp_block block;
	const char *title;          /* "model", "cluster.gpu" */
	const struct pp_stmt *stmt; /* NULL: not written */
	struct pp_module *module;
	struct pp_span span; /* its name, or where it is missed */
	bool partial;        /* what it takes its attributes from was refused or not found: none is missed */
	enum pp_attribute first;
	size_t count;
	struct pp_field *fields;
};

/* A value being read, for the chain in E0107. */
struct pp_progress {
	const char *title;
	const void *what;
	const struct pp_progress *below;
};

enum pp_section_id {
	PP_SECTION_MODEL,
	PP_SECTION_CLUSTER,
	PP_SECTION_GPU,
	PP_SECTION_FLOPS,
	PP_SECTION_INTRA,
	PP_SECTION_INTER,
	PP_SECTION_PARALLEL,
	PP_SECTION_STAGES,
	PP_SECTION_SCHEDULE,
	PP_SECTION_TRAIN,
	PP_SECTION_RUN,
	PP_SECTION_COUNT
};

/* The schedule file of `from csv`. */
struct pp_imported {
	const struct pp_csv *csv;
	const char *place; /* loop, v, linear, or NULL: a list */
	uint32_t most;     /* stages of a rank */
};

struct pp_resolver {
	struct pp_arena *arena;
	struct pp_strtab *strings;
	struct pp_sources *sources;
	struct pp_diag *diag;
	const struct pp_resolve_options *options;
	struct pp_eval eval; /* depth is shared by everything that is read on demand */
	struct pp_module *main;
	struct pp_module **modules;
	size_t module_count, module_capacity;
	struct pp_section *sections[PP_SECTION_COUNT];
	const struct pp_progress *progress;
	struct pp_assertion *asserts; /* all, in order */
	size_t assert_count, assert_capacity;
	const struct pp_imported *imported; /* with out->imported: the active schedule is one; or NULL */
	bool custom_only;                   /* the model has only custom layers: no data, no loss */
	/* Of the active schedule: it counts instead of that in `stages`. */
	const struct pp_stmt *schedule_split;
	struct pp_module *schedule_split_module;
	const char **refused; /* features that were refused already: one message each */
	size_t refused_count, refused_capacity;
	struct pp_resolved *out;
};

/* modules.c */
bool pp_modules_load(struct pp_resolver *resolver, const struct pp_ast *ast);
struct pp_symbol *pp_module_find(struct pp_module *module, const char *key);
/* Also in files imported without an alias; *owner: where it was found. */
struct pp_symbol *pp_module_find_open(struct pp_module *module, const char *key, struct pp_module **owner);
/* The block `kind label` that a path such as `lib.dgx` or `h100` means, or NULL. */
const struct pp_stmt *pp_module_block(struct pp_module *module, const char *kind, const struct pp_expr *path,
                                      struct pp_module **owner);
/* Does another block of the file extend this one? */
bool pp_module_is_base(struct pp_module *module, const struct pp_stmt *block);
/* What a block is: its name, or the block whose name it nearly is (which was reported). */
const char *pp_block_kind(const struct pp_stmt *stmt);
struct pp_span pp_module_end(const struct pp_module *module);

/* params.c */
void pp_params_define(struct pp_resolver *resolver);
void pp_params_read_all(struct pp_resolver *resolver);
void pp_params_report_unused(struct pp_resolver *resolver);
/* The scope of a module: params, lets, aliases, then block.attribute. */
void pp_module_scope(struct pp_module *module);
/* E0107 for something that is already being read. */
void pp_report_cycle(struct pp_resolver *resolver, struct pp_span span, const void *what, const char *title);

/* sections.c */
struct pp_section *pp_section_make(struct pp_resolver *resolver, enum pp_block block, const char *title);
/* Take the attributes of a block; later calls override earlier ones when `over`. */
void pp_section_fill(struct pp_resolver *resolver, struct pp_section *section, const struct pp_stmt *stmt,
                     struct pp_module *module, bool over);
void pp_section_check_body(struct pp_resolver *resolver, const struct pp_stmt *stmt, struct pp_module *module);
/* E0113 where the block that `stmt` extends is itself, or extends one too. */
bool pp_section_extends_once(struct pp_resolver *resolver, const struct pp_stmt *stmt, const struct pp_stmt *base);
struct pp_section *pp_section_arguments(struct pp_resolver *resolver, const struct pp_field *field);
bool pp_sections_find(struct pp_resolver *resolver);
void pp_sections_set(struct pp_resolver *resolver);
const char *pp_section_label(const struct pp_section *section);

/* fields.c */
/* The field once read, or NULL when it failed (reported). Its state is PP_READY or PP_ABSENT. */
struct pp_field *pp_field_read(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute);
struct pp_field *pp_field_of(const struct pp_section *section, enum pp_attribute attribute);
static inline bool pp_field_given(const struct pp_section *section, enum pp_attribute attribute)
{
	return pp_field_of(section, attribute)->expr != NULL;
}
void pp_section_read_all(struct pp_resolver *resolver, struct pp_section *section);
/* False: failed (reported). Absent fields give 0, "", false. */
bool pp_field_whole(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
                    uint64_t *out);
bool pp_field_real(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute, double *out);
bool pp_field_truth(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute, bool *out);
bool pp_field_name(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
                   const char **out);
/* In units of 1 / scale of the base unit, rounded down: bytes with 1, ns with 1e9. */
bool pp_field_scaled(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
                     int64_t scale, uint64_t *out);
/* Position of a name within the set of the attribute ("layernorm|rmsnorm"). */
bool pp_field_choice(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
                     uint8_t *out);
/* Where the value stands: the expression, or else the name of the block. */
struct pp_span pp_field_span(const struct pp_section *section, enum pp_attribute attribute);
/* Where a grid that does not fit is blamed on: an axis that --set has given, else that attribute. */
struct pp_span pp_grid_span(const struct pp_section *parallel, enum pp_attribute otherwise);
/* E0010. */
struct pp_message *pp_not_yet(struct pp_resolver *resolver, struct pp_span span, const char *what);

/* derive.c */
/* Work out an attribute that is not given. True: *out holds it. False and !*absent: failed (reported). */
bool pp_derive(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
               struct pp_datum *out, bool *absent);
/* Placement and number of stages follow the schedule, where it needs them so. False: they have their default. */
bool pp_derive_from_policy(struct pp_resolver *resolver, enum pp_attribute attribute, struct pp_datum *out);
void pp_report_missing(struct pp_resolver *resolver, const struct pp_section *section, enum pp_attribute attribute,
                       const char *example);

/* names.c */
void pp_names_mark(struct pp_resolver *resolver);
void pp_names_check_schedules(struct pp_resolver *resolver);
bool pp_expr_mentions_metric(const struct pp_expr *expr);
extern const char *const pp_metric_name[];
enum { PP_METRIC_COUNT = 6 };

/* The blocks, one file each: fill in the spec. */
void pp_resolve_model(struct pp_resolver *resolver);
bool pp_model_is_custom(struct pp_resolver *resolver);
void pp_resolve_cluster(struct pp_resolver *resolver);
void pp_resolve_parallel(struct pp_resolver *resolver);
void pp_resolve_tensor(struct pp_resolver *resolver);
void pp_resolve_stages(struct pp_resolver *resolver);
/* The `split` that stands in a block, or NULL; a second one is reported. */
const struct pp_stmt *pp_find_split(struct pp_resolver *resolver, const struct pp_stmt *block);
void pp_resolve_split(struct pp_resolver *resolver, const struct pp_stmt *split, const struct pp_module *module);
void pp_schedule_choose(struct pp_resolver *resolver);

/* imported.c */
/* Read the file of a schedule that is `from csv`. */
void pp_schedule_import(struct pp_resolver *resolver, const struct pp_stmt *stmt, const struct pp_module *module);
/* `legacy` in a schedule that is not. */
void pp_schedule_refuse_legacy(struct pp_resolver *resolver);

/* The schedule of the library that `start` of a search names, or NULL. */
const struct pp_policy *pp_schedule_start(struct pp_resolver *resolver);

/* E0112: the statement defines a name that has a meaning of its own. */
void pp_module_refuse_reserved(struct pp_resolver *resolver, const struct pp_stmt *stmt);
/* What it says of an attribute that is not given: pp, vpp, place, microbatches. False: nothing. */
bool pp_imported_value(struct pp_resolver *resolver, enum pp_attribute attribute, struct pp_datum *out);
void pp_imported_place(struct pp_resolver *resolver, struct pp_stages_spec *stages);
/* At the end: what is given must agree with it. */
void pp_imported_check(struct pp_resolver *resolver);

void pp_resolve_schedule(struct pp_resolver *resolver);
void pp_resolve_train(struct pp_resolver *resolver);
void pp_resolve_recompute(struct pp_resolver *resolver);
void pp_resolve_run(struct pp_resolver *resolver);
void pp_asserts_check_now(struct pp_resolver *resolver);

#endif
