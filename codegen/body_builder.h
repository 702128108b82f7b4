/* Writes one body: registers, instructions, and at the end the workspace. Used by bodies.c (whole stages) and by the
 * layer kinds (one layer at a time, through struct pp_layer_build). */
#ifndef PP_BODY_BUILDER_H
#define PP_BODY_BUILDER_H

#include "layer_kind.h"

/* Beside each register. */
struct pp_body_value {
	uint32_t writer;   /* instruction + 1 that wrote it last; 0: none */
	uint32_t versions; /* earlier ones */
	uint32_t place;    /* the register whose bytes it shares: itself, or the last version */
};

struct pp_body_builder {
	struct pp_arena *arena;
	uint32_t stage;
	enum pp_phase phase;
	struct pp_reg *regs;
	size_t reg_count, reg_capacity;
	struct pp_body_value *values;
	size_t value_count, value_capacity;
	struct pp_body_instr *items;
	size_t count, capacity;
};

/* A new register; `reg.name` must be unique in the body. */
uint32_t pp_body_reg(struct pp_body_builder *body, struct pp_reg reg);

/* Append an instruction; operands that the op does not have need not be set. In the body each value has a name of its
 * own: where an instruction writes over a register, what that held so far becomes `NAME.1`, `NAME.2` … on the same
 * bytes, and the register is the last version. */
void pp_body_emit(struct pp_body_builder *body, struct pp_body_instr instr);

/* In a body of phase R drop the instructions whose results are kept already or that nothing in extra needs. Drop
 * registers that no instruction names, give those in workspace their bytes by lifetime, and leave the result in
 * *out. */
void pp_body_finish(struct pp_body_builder *body, struct pp_body *out);

/* What a layer kind sees while it writes its instructions. */
struct pp_layer_build {
	struct pp_body_builder *body;
	const struct pp_layer *layer;
	struct pp_shape shape;
	const char *prefix;                    /* of names: block.3 */
	struct pp_part_layout layout;          /* of the stage's stash form */
	uint64_t area_offset[PP_AREA_COUNT];   /* of the layer's shares of stash and extra */
	struct pp_param params[PP_PARAMS_MAX]; /* the rank's share of each */
	uint32_t weight_slot[PP_PARAMS_MAX], grad_slot[PP_PARAMS_MAX];
	uint32_t part_reg[PP_PARTS_MAX], weight_reg[PP_PARAMS_MAX], grad_reg[PP_PARAMS_MAX]; /* made on demand */
	uint32_t input, output; /* F: values; output PP_NULL: the kind has none */
	uint32_t dy, dx;        /* backward: gradients of output and input; dx PP_NULL: not wanted */
	uint32_t ids, labels, loss;
	const uint64_t *ticks; /* per phase, for custom layers */
	bool mb_mean;
};

/* The register of a part (PP_NULL when the layer has none): in the stash or in extra, or in workspace for a weight-pass
 * part of the fused form and for what F does not keep. */
uint32_t pp_part(struct pp_layer_build *build, unsigned part);
/* A weight, and its gradient for this use; PP_NULL when the layer has none. */
uint32_t pp_weight(struct pp_layer_build *build, unsigned param);
uint32_t pp_grad(struct pp_layer_build *build, unsigned param);
/* A register in workspace in the dtype of activations: tokens x columns, of which `columns` and, where rows are spread,
 * a part of the tokens are here. */
uint32_t pp_temporary(struct pp_layer_build *build, const char *name, enum pp_spread spread, uint64_t columns);
/* The tensor-parallel type of a register. */
void pp_reg_spread(struct pp_reg *reg, enum pp_spread spread, const struct pp_shape *shape);

/* Instructions of the input gradient (kept in B and I) and of the weight gradient (kept in B and W). */
void pp_emit_dx(struct pp_layer_build *build, struct pp_body_instr instr);
void pp_emit_dw(struct pp_layer_build *build, struct pp_body_instr instr);

/* Linear layers: weight `param`, bias `param + 1`. `pp_linear_sums` leaves the bias out: row-parallel. */
void pp_linear(struct pp_layer_build *build, unsigned param, uint32_t x, uint32_t y);
void pp_linear_sums(struct pp_layer_build *build, unsigned param, uint32_t x, uint32_t sums);
void pp_linear_dx(struct pp_layer_build *build, unsigned param, uint32_t dy, uint32_t dx);
void pp_linear_dw(struct pp_layer_build *build, unsigned param, uint32_t dy, uint32_t x);

/* Norms: gamma `param`, beta `param + 1`; statistics in parts `mean` and `mean + 1`. */
void pp_norm(struct pp_layer_build *build, unsigned param, unsigned mean, uint32_t x, uint32_t y);
void pp_norm_dx(struct pp_layer_build *build, unsigned param, unsigned mean, uint32_t dy, uint32_t x, uint32_t dx);
void pp_norm_dw(struct pp_layer_build *build, unsigned param, unsigned mean, uint32_t dy, uint32_t x);

/* ---- tensor parallelism (body_collectives.c): tp > 1 ------------------------------------------ */

/* Post the reduction of partial sums [tokens, columns] to a value spread as the hidden state; pp_await it. */
void pp_reduce(struct pp_layer_build *build, uint32_t sums, uint32_t value);
/* The whole of a value that is spread as the hidden state: itself, or with sequence parallelism a register in workspace
 * to which its gathering is posted; pp_await_whole it. */
uint32_t pp_gather(struct pp_layer_build *build, const char *name, uint32_t value);
void pp_await(struct pp_layer_build *build, uint32_t value);
void pp_await_whole(struct pp_layer_build *build, uint32_t whole, uint32_t value);
/* y := a + b + bias, or a + b where the layer has no bias. */
void pp_add_bias(struct pp_layer_build *build, unsigned bias, uint32_t a, uint32_t b, uint32_t y);

#endif
