/* What a run is asked to do beside its program. */
#ifndef PP_RUN_OPTIONS_H
#define PP_RUN_OPTIONS_H

#include "device.h"
#include "fault.h"
#include "memory_use.h"

#include "ir/simulate.h"

/* What the command line asks for, the same on all ranks. */
struct pp_run_options {
	uint64_t steps;           /* 0: as the program says */
	const char *data_path;    /* instead of the program's, or NULL */
	const char *metrics_path; /* JSON lines, or NULL */
	const char *trace_path;   /* Chrome trace, or NULL */
	const char *profile_path; /* measured costs, or NULL */
	const char *save_path;    /* folder of checkpoints, or NULL */
	const char *resume_path;  /* go on from the newest checkpoint in this folder, or NULL */
	const char *init_path;    /* weights to start from, or NULL */
	bool canary;              /* watch what is written where: canary.h */
	bool weights_hash;        /* print a hash of every tensor at the end */
	bool quiet;               /* no log lines */
	uint64_t jitter;
	struct pp_fault fault;
	struct pp_device_options device; /* which GPUs and graphs; the rest is each rank's */
	uint32_t here;                   /* ranks on this machine */
	bool apart, mpi;                 /* each rank is a process; by MPI */
	const struct pp_sim *predicted;  /* or NULL; with intervals where instructions are timed */
	bool memory;                     /* print what lies outside the arena, predicted and measured */
	struct pp_memory_marks marks;
	const struct pp_arena *arena; /* of the launch: scratch arenas are made like it */
};

#endif
