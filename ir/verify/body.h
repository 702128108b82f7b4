/* Between the files of V10. */
#ifndef PP_VERIFY_BODY_H
#define PP_VERIFY_BODY_H

#include "ir/diag.h"
#include "ir/program.h"

/* One body under check. */
struct pp_body_check {
	const struct pp_program *program;
	const struct pp_body *body;
	struct pp_diag *diag;
	uint32_t at; /* instruction */
};

/* Report against the body. */
void pp_body_complain_whole(const struct pp_body_check *check, const char *format, ...) PP_PRINTF(2, 3);

/* Report against the instruction at hand: its body and number, the text, and the instruction itself as a note. */
struct pp_message *pp_body_complain(const struct pp_body_check *check, const char *format, ...) PP_PRINTF(2, 3);

/* The word of an operand in ops.def, without its `?`: "dgamma". Points to a buffer of the caller. */
const char *pp_body_operand_name(enum pp_body_op op, unsigned operand, char name[32]);

/* "f32[4,8]" */
const char *pp_reg_shape_text(const struct pp_reg *reg, char text[64]);

/* Operands there or absent, bases, dtypes, shapes, R/P/S types and immediates of one instruction. */
bool pp_body_instr_check(const struct pp_body_check *check);

/* Whether the op lets output `output` lie exactly on input `input`. */
bool pp_body_may_alias(enum pp_body_op op, unsigned input, unsigned output);

/* Per slot of the rank at hand: the use of this stage that names it. Entries of other stages are stale. */
struct pp_slot_use {
	uint32_t stage;        /* + 1 */
	uint32_t use, written; /* written: body + 1 */
	uint32_t read;         /* of a weight: body + 1 */
};

/* What a body leaves in `out` or `din`, ascending by offset. */
struct pp_body_results {
	const struct pp_reg **regs;
	uint32_t count;
};

/* Of a body. */
struct pp_makers {
	uint32_t *writer; /* per register: instruction + 1 that makes it */
	bool *used;       /* per instruction: something that it makes is of use. NULL: the body has not been looked at */
};

struct pp_body_verifier {
	const struct pp_program *program;
	struct pp_arena *arena;
	struct pp_diag *diag;
	struct pp_slot_use *weights, *grads;    /* [slot_most] */
	uint32_t slot_most;                     /* slots of the rank that has most */
	uint32_t *stage_uses, *stage_use_start; /* uses by stage */
	uint64_t *work_bytes;                   /* per rank: of its workspace slot */
	bool *has_losses;                       /* per rank */
	struct pp_body_results *results;        /* per body */
	struct pp_makers *makers;               /* per body */
};

/* Bytes that the stage sends on. */
uint64_t pp_stage_out_bytes(const struct pp_program *program, uint32_t stage);

/* One past the last byte of a register; false when it does not fit 64 bits. */
bool pp_reg_end(const struct pp_reg *reg, uint64_t *end);
bool pp_regs_overlap(const struct pp_reg *a, const struct pp_reg *b);

/* Whether a register lies inside what it names, with the dtype, shape and type of that. */
bool pp_body_reg_check(const struct pp_body_verifier *v, const struct pp_body_check *check, const struct pp_reg *reg);

/* ---- values (body_values.c) ------------------------------------------------------------------ */

struct pp_value_key {
	uint8_t base;
	uint64_t offset;
};

/* The values that are defined at one moment. */
struct pp_values {
	const struct pp_value_key *keys; /* sorted, distinct; shared by copies */
	uint32_t count;
	const struct pp_reg **written; /* [count]: the register whose write made the value, or NULL */
	uint64_t *bits, *summary;
};

/* No value yet; keys for all registers of the stage's bodies. */
struct pp_values pp_values_make(struct pp_arena *arena, const struct pp_program *program, const struct pp_stage *stage);
/* The values of stash and extra alone. */
struct pp_values pp_values_kept(struct pp_arena *arena, const struct pp_values *from);
/* The register's bytes hold its value from now on; values that it overlaps are gone. */
void pp_value_write(struct pp_values *values, const struct pp_reg *reg);
/* The register that wrote the value at the beginning of `reg`, or NULL. */
const struct pp_reg *pp_value_at(const struct pp_values *values, const struct pp_reg *reg);

/* ---- who makes a value, and for whom (body_makers.c) ----------------------------------------- */

void pp_makers_begin(struct pp_body_verifier *v, const struct pp_body *body);
/* The value that this register of a body of the stage was given is read, or a result. */
void pp_makers_read(struct pp_body_verifier *v, uint32_t stage, const struct pp_reg *written);
/* The instruction at hand writes the register: no other has. */
bool pp_makers_write(struct pp_body_verifier *v, const struct pp_body_check *check, uint32_t reg);
/* Whether each instruction of the body makes something that is read or a result, and each register is named; all bodies
 * of the stage are known. */
bool pp_makers_used(struct pp_body_verifier *v, const struct pp_body *body);

/* ---- collectives in flight (body_flight.c) --------------------------------------------------- */

enum { PP_FLIGHTS_MAX = 8 };
struct pp_flight {
	uint32_t from, to; /* registers */
	uint32_t post;     /* instruction */
};
struct pp_flights {
	struct pp_flight items[PP_FLIGHTS_MAX];
	uint32_t count;
};

/* Whether the instruction may read or write the register while those are in flight. */
bool pp_flights_allow(const struct pp_body_check *check, const struct pp_flights *flights, const struct pp_reg *reg,
                      bool writes);
/* Take off or land, where the instruction is a post or an await. */
bool pp_flights_step(const struct pp_body_check *check, struct pp_flights *flights);
/* Whether none is left at the end of the body. */
bool pp_flights_landed(const struct pp_body_check *check, const struct pp_flights *flights);

/* ---- recompute (body_remat.c) ----------------------------------------------------------------- */

/* Body R of a stage makes its values as body F did. */
bool pp_body_remat_check(const struct pp_body_verifier *v, const struct pp_body *remat, const struct pp_body *forward);

/* ---- between stages (body_boundary.c) -------------------------------------------------------- */

/* Remember what the body leaves for the neighbour stage. */
void pp_body_results_note(struct pp_body_verifier *v, const struct pp_body *body, const struct pp_values *values);
/* What the body reads of its neighbours' results it reads as they left it. */
bool pp_body_boundary_check(const struct pp_body_verifier *v, const struct pp_body *body);

#endif
