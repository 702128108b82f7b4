/* The processors that this process may use. */
#ifndef PP_NCCL_PROCESSORS_H
#define PP_NCCL_PROCESSORS_H

/* 0: unknown. */
int pp_nccl_processors(void);

#endif
