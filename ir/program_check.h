/* Range checks shared by the text and the image reader: after them every index, enum and size of a program may be
 * used without looking. What the program means is the verifier's business (verify.h). */
#ifndef PP_PROGRAM_CHECK_H
#define PP_PROGRAM_CHECK_H

#include "program_fields.h"

/* The first thing that is wrong, in words. */
struct pp_fault {
	const char *code; /* "E1005" */
	unsigned operand; /* instructions: position in the signature, PP_NULL: the whole */
	char text[256];
	char help[256]; /* may be empty */
	char cause[64]; /* what many lines may name alike: "a rank that is not there"; else empty */
};

enum { PP_MOST_PROGRAMS = 16, PP_MOST_MEMBERS = 1 << 22 };

/* One field. `rank` is whose slots PP_FIELD_SLOT and PP_FIELD_BASE mean. */
bool pp_check_field(const struct pp_program *program, uint32_t rank, const struct pp_field *field, const void *record,
                    struct pp_fault *fault);

/* What the fields of one record say together, each being in range. */
bool pp_check_record(const struct pp_program *program, enum pp_record_kind kind, const void *record,
                     struct pp_fault *fault);

/* Operands, slot classes and flags of a stream instruction. */
bool pp_check_instr(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr,
                    struct pp_fault *fault);

/* Registers of a body instruction. */
bool pp_check_body_instr(const struct pp_body *body, const struct pp_body_instr *instr, struct pp_fault *fault);

/* The tables together: limits, stages and bodies point at each other, names are unique. `tensor` and `body`: number of
 * the culprit where there is one, else PP_NULL. */
bool pp_check_tables(struct pp_arena *arena, const struct pp_program *program, uint32_t *tensor, uint32_t *body,
                     struct pp_fault *fault);

/* The rank whose slots a use names: that of its stage. */
uint32_t pp_use_rank(const struct pp_program *program, const struct pp_use *use);

#endif
