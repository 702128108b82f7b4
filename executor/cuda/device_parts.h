/* The CUDA device's own structure, and what its parts do for each other. */
#ifndef PP_DEVICE_PARTS_H
#define PP_DEVICE_PARTS_H

#include "body_cuda.h"
#include "cuda.h"

#include "executor/device.h"

/* Memory of the host that copies go through, pinned and allocated once. */
struct pp_cuda_host {
	unsigned char *memory;
	uint64_t bytes;
	unsigned char *bounce; /* PP_CUDA_BOUNCE bytes, of read and write */
	unsigned char *loads;  /* data of all loads of a step, one after the other */
	uint64_t loads_bytes, loads_used;
	void *load;              /* the present one */
	double *kept;            /* a copy of the losses */
	double *rates;           /* [hypers][PP_CUDA_RATES] */
	volatile uint32_t *mark; /* the last mark of a step that is one graph */
};

enum { PP_CUDA_BOUNCE = 1 << 20 };

/* Memory of the GPU, one allocation. */
struct pp_cuda_memory {
	unsigned char *all;
	unsigned char *guarded; /* guard zone, arena, guard zone */
	uint64_t bytes, guard;
	unsigned char *scratch; /* in the arena, or behind it where the program has none planned */
	uint64_t scratch_bytes;
	double *rates;     /* [hypers][PP_CUDA_RATES] */
	double *loss;      /* of the running body: (sum, count) */
	uint32_t *numbers; /* [marks]: 0, 1, 2 …, or NULL: steps are no graphs */
	uint64_t beside;   /* bytes of all that is neither arena nor guard */
	/* Free on the GPU: before anything was allocated, and after each part of the start. */
	uint64_t free_first, free_kernels, free_graphs, free_ready;
};

/* What came of a step tail so far and is not given to the stream yet. */
struct pp_cuda_tail {
	struct pp_cuda_norm_item *norms;
	struct pp_cuda_update *updates;
	uint32_t norm_count, update_count;
	enum pp_optimizer rule;
	const struct pp_hyper *hyper;
	const double *scale;
};

struct pp_cuda_marks {
	struct pp_cuda_events events; /* timed, by number */
	cudaEvent_t start;            /* timed: of the step */
	uint64_t start_clock;         /* pp_clock() */
	uint32_t *order;              /* numbers as they were marked */
	uint32_t count, passed;       /* marked in this step, and how many of these have come */
};

struct pp_cuda_graphs; /* of bodies: graph_cuda.c */
struct pp_cuda_steps;  /* of whole steps: step_cuda.c */

struct pp_device {
	struct pp_cuda cuda;
	const struct pp_program *program;
	struct pp_coord coord;
	const struct pp_rank *rank;
	uint32_t tp;
	uint32_t losses, work; /* slots, or PP_NULL */
	struct pp_cuda_memory memory;
	struct pp_cuda_host host;
	struct pp_cuda_body body; /* how kernels are called */
	struct pp_cuda_tail tail;
	struct pp_cuda_marks marks;
	struct pp_cuda_graphs *graphs; /* or NULL */
	struct pp_cuda_steps *steps;   /* or NULL */
	bool capturing;                /* what is given becomes part of a step's graph */
	cudaEvent_t done;              /* after all that was given */
	bool open;                     /* something was given since `done` was recorded */
	uint32_t *tickets;             /* [registers of the largest body] */
	bool *makes_loss;              /* [bodies] */
	struct pp_status failed;       /* code PP_EXIT_OK: nothing has failed */
};

static inline unsigned char *pp_cuda_arena(const struct pp_device *device)
{
	return device->memory.guarded + device->memory.guard;
}

static inline unsigned char *pp_cuda_slot(const struct pp_device *device, uint32_t slot)
{
	return slot == PP_NULL ? NULL : pp_cuda_arena(device) + device->rank->slots[slot].offset;
}

/* The first failure stays. `what` says what was tried. */
void pp_cuda_note(struct pp_device *device, cudaError_t error, const char *what);

/* shapes_cuda.c: what the kernels cannot compute, before anything is allocated. */
bool pp_cuda_shapes_fit(const struct pp_program *program, uint32_t rank, struct pp_status *status);

/* memory_cuda.c: allocations, and what the device holds when it begins. */
bool pp_cuda_memory_make(struct pp_device *device, const struct pp_device_options *options, struct pp_status *status);
void pp_cuda_memory_free(struct pp_device *device);
bool pp_cuda_zero_all(struct pp_device *device, struct pp_status *status);
uint64_t pp_cuda_free_memory(void); /* of the GPU; 0: unknown */
void pp_cuda_holding(struct pp_device *device, struct pp_device_holding *holding);
bool pp_cuda_init(struct pp_device *device, uint64_t seed, struct pp_status *status);

/* host_cuda.c: what the host sees of the device's memory, and brings to it. */
bool pp_cuda_read(struct pp_device *device, uint32_t slot, uint64_t offset, uint64_t bytes, void *to,
                  struct pp_status *status);
bool pp_cuda_write(struct pp_device *device, uint32_t slot, uint64_t offset, uint64_t bytes, const void *from,
                   struct pp_status *status);
/* The same to any address of the device's memory. */
bool pp_cuda_write_to(struct pp_device *device, void *to, uint64_t bytes, const void *from, struct pp_status *status);
void *pp_cuda_load_begin(struct pp_device *device, const struct pp_instr *instr);
void pp_cuda_load_end(struct pp_device *device, const struct pp_instr *instr);
void pp_cuda_keep(struct pp_device *device, uint32_t slot);
const void *pp_cuda_kept(struct pp_device *device);

/* tail_cuda.c: the step tail. */
bool pp_cuda_tail_make(struct pp_device *device, struct pp_status *status);
void pp_cuda_tail_free(struct pp_device *device);
void pp_cuda_tail_rates(struct pp_device *device, uint64_t step, double lr); /* of all hyper rows, in stream order */
void pp_cuda_tail_warm(struct pp_device *device);
void pp_cuda_flush(struct pp_device *device);
void pp_cuda_zero_slot(struct pp_device *device, uint32_t slot);
void pp_cuda_add_slots(struct pp_device *device, uint32_t destination, uint32_t source, bool shard);
void pp_cuda_sqnorm(struct pp_device *device, uint32_t grad, uint32_t norms, uint32_t tensor, bool shard);
void pp_cuda_clip_norm(struct pp_device *device, const struct pp_hyper *hyper, enum pp_mean mean, uint32_t losses,
                       uint32_t norms, uint32_t scale);
void pp_cuda_opt(struct pp_device *device, const struct pp_update *update);

/* marks_cuda.c: the device's clock. */
bool pp_cuda_marks_make(struct pp_device *device, uint32_t count, struct pp_status *status);
void pp_cuda_marks_free(struct pp_device *device);
void pp_cuda_marks_start(struct pp_device *device); /* of a step: nothing is marked yet */
void pp_cuda_mark(struct pp_device *device, uint32_t number);
uint64_t pp_cuda_marked(const struct pp_device *device, uint32_t number);
uint32_t pp_cuda_passed(struct pp_device *device);

/* graph_cuda.c: calls of bodies, as graphs where they were made so. `make` also runs every kernel once. */
bool pp_cuda_bodies_make(struct pp_device *device, bool as_graphs, struct pp_status *status);
void pp_cuda_bodies_free(struct pp_device *device);
/* Graphs, and launches in them. */
void pp_cuda_bodies_count(const struct pp_device *device, uint64_t *graphs, uint64_t *launches);
/* False: an await failed. */
bool pp_cuda_run_call(struct pp_device *device, const struct pp_call *call, const struct pp_body_link *link);

/* step_cuda.c: the beginning and end of a step, whole steps as graphs. */
bool pp_cuda_steps_make(struct pp_device *device, struct pp_status *status);
void pp_cuda_steps_free(struct pp_device *device);
void pp_cuda_steps_forget(struct pp_device *device); /* no graph is left, also none that is being captured */
/* Graphs, and what they hold. */
void pp_cuda_steps_count(const struct pp_device *device, uint64_t *graphs, uint64_t *nodes);
bool pp_cuda_begin(struct pp_device *device, const struct pp_stream *stream, uint64_t step, double lr);
void pp_cuda_end(struct pp_device *device);
void pp_cuda_step_over(struct pp_device *device); /* it has settled */
/* Is this step one that the device knows by heart? */
bool pp_cuda_replays(const struct pp_device *device);

#endif
