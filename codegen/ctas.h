/* Thread blocks of communicators on GPUs. */
#ifndef PP_CTAS_H
#define PP_CTAS_H

#include "ir/program.h"
#include "ir/spec.h"

/* Where devices are GPUs, give every channel and group the thread blocks of its communicator.
 *
 * requires: streams in their final order.
 * ensures:  as many as are of use, or fewer where posts outstanding together would not fit the multiprocessors for them
 *           (V11); at least one each, which may still be too many: the verifier says so. */
void pp_give_ctas(struct pp_program *program, const struct pp_spec *spec);

#endif
