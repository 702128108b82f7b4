/* Which tensors are tables of tokens: looked up by ids, or multiplied with to give the logits of a loss. Their rows at
 * and beyond the vocabulary pad the matrix (to a multiple of tp, for one): they are 0 and stay 0, for their gradients
 * are. */
#ifndef PP_TOKEN_TABLE_H
#define PP_TOKEN_TABLE_H

#include "program.h"

bool pp_is_token_table(const struct pp_program *program, uint32_t tensor);

/* Rows of a tensor that hold something: all, or the vocabulary. */
uint32_t pp_tensor_rows(const struct pp_program *program, uint32_t tensor);

#endif
