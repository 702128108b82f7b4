/* A list of layers under construction: layers.c reads the statements, model.c the sizes and what must
 * hold of the whole. Private to the two. */
#ifndef PP_RESOLVE_LAYERS_H
#define PP_RESOLVE_LAYERS_H

#include "resolver.h"

enum { PP_MOST_LAYERS = 65535 };

struct pp_layer_build {
	struct pp_resolver *resolver;
	struct pp_section *model;
	struct pp_layer *layers;
	size_t count, capacity;
	const struct pp_expr **ties; /* by layer: name written after tie =, or NULL */
	size_t tie_count, tie_capacity;
	struct pp_layer block; /* sizes of the model, for layers to copy */
	uint64_t turns;
	bool failed;
};

bool pp_layer_kind_known(const char *name);

/* A whole attribute to 32 bits (its range is checked); false is kept in build->failed, by all of these. */
void pp_layers_whole(struct pp_layer_build *build, struct pp_section *section, enum pp_attribute attribute,
                     uint32_t *out);

/* A layer with the sizes of the model. */
struct pp_layer pp_layers_make(const struct pp_layer_build *build, const char *name, enum pp_layer_kind kind,
                               struct pp_span span);
void pp_layers_push(struct pp_layer_build *build, struct pp_layer layer, uint64_t count, const struct pp_expr *tie,
                    struct pp_span span);

/* Heads against key and value heads; `stmt` NULL: the blocks of the default list. */
void pp_layers_check_block(struct pp_layer_build *build, const struct pp_stmt *stmt, const struct pp_layer *layer);

/* Read layer, for and repeat statements, in the scope of resolver->eval. */
void pp_layers_add(struct pp_layer_build *build, const struct pp_stmt *first);

#endif
