/* The NCCL transport: one GPU per rank, which talk by themselves. Posts go to NCCL on streams of their own, behind an
 * event of the compute stream; a wait has the compute stream wait for another event. The host never waits within a
 * step. A transport on host memory below carries control data. docs/nccl.md. */
#ifndef PP_NCCL_H
#define PP_NCCL_H

#include "executor/link.h"

extern const struct pp_link pp_link_nccl;

#endif
