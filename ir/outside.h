/* Memory of a process of piperun beside the arenas of its ranks: by formula, for a CPU. `gpu.reserve` of a spec is what
 * is kept free for it. */
#ifndef PP_OUTSIDE_H
#define PP_OUTSIDE_H

#include "program.h"

enum pp_outside {
	PP_OUTSIDE_PROCESS, /* code and libraries as they are loaded */
	PP_OUTSIDE_LIBRARY, /* what ranks talk by, once started */
	PP_OUTSIDE_PROGRAM, /* the file, its tables, what proof and simulation leave in the heap (about twice the tables) */
	PP_OUTSIDE_TRANSPORT, /* queues of posts, buffers of sums */
	PP_OUTSIDE_RANKS,     /* threads' stacks and heaps; what MPI allocates at the first message of a channel */
	PP_OUTSIDE_BLAS,      /* packed operands of matrix products */
	PP_OUTSIDE_DATA,      /* the file that is read, mapped */
	PP_OUTSIDE_RECORDS,   /* times of instructions for --trace and --profile, bits of --canary */
	PP_OUTSIDE_SAVING,    /* pieces of a checkpoint on their way to the file */
	PP_OUTSIDE_COUNT
};
extern const char *const pp_outside_name[PP_OUTSIDE_COUNT];
extern const char *const pp_outside_formula[PP_OUTSIDE_COUNT];

/* What a GPU holds beside the arena: estimates on the safe side (docs/cuda.md, Memory beside the arena). */
enum { PP_GPU_CONTEXT_MIB = 640, PP_GPU_KERNELS_MIB = 96, PP_GPU_GRAPH_KIB = 16, PP_GPU_LAUNCH_KIB = 1 };

/* What of a run matters. */
struct pp_outside_run {
	bool apart;          /* a process per rank; else all ranks are threads of one */
	bool mpi;            /* started by MPI */
	uint32_t pp;         /* pipeline rank of the process (apart) */
	uint64_t data_bytes; /* of the file that is trained on */
	uint64_t kept_steps; /* steps whose times are kept */
	bool canary, saves;
};

/* Bytes of each term. */
void pp_outside_predict(const struct pp_program *program, const struct pp_outside_run *run,
                        uint64_t bytes[PP_OUTSIDE_COUNT]);

/* Bytes of a program's tables as they lie in memory. */
uint64_t pp_program_bytes(const struct pp_program *program);

#endif
