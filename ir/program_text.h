/* The `.pps` text form of a program: tables, then streams, one instruction per line, mnemonic first, `;` comments.
 * print(read(print(x))) == print(x). Format version in the first line: `pps 1`. */
#ifndef PP_PROGRAM_TEXT_H
#define PP_PROGRAM_TEXT_H

#include "diag.h"
#include "program.h"

#include <stdio.h>

void pp_program_print(const struct pp_program *program, FILE *out);

/* One instruction as it stands in a stream, without newline: for messages. `rank` gives the slot classes. */
void pp_instr_print(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr, FILE *out);

/* Read a program. NULL after errors in diag ("E1xxx" codes, position and fix). All indices in the result are in range:
 * ranks, stages, microbatches, channels, groups, slots and their classes where the op demands one, tensors, registers,
 * bodies. Slots without an offset are allowed (pipec build plans them; piperun refuses them). */
struct pp_program *pp_program_read(struct pp_arena *arena, const struct pp_source *source, struct pp_diag *diag);

#endif
