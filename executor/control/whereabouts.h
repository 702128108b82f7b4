/* Where a rank is, kept where other threads, and with control/page.h other processes, can read it. */
#ifndef PP_WHEREABOUTS_H
#define PP_WHEREABOUTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What a rank is busy with: each has its own limit of time without progress. */
enum pp_stretch {
	PP_STRETCH_START, /* before the first step and after the last */
	PP_STRETCH_FIRST, /* the first step: memory is touched, connections are made */
	PP_STRETCH_STEP,
	PP_STRETCH_SAVE, /* checkpoints are written or read */
	PP_STRETCH_EVAL,
	PP_STRETCH_COUNT
};

enum { PP_DOING_BYTES = 64, PP_DOING_WORDS = PP_DOING_BYTES / 8 };

/* Its owner writes, anyone may read. The first line of a cache is what changes on the path of a step. */
struct pp_whereabouts {
	atomic_uint_least32_t index;   /* of the instruction */
	atomic_uint_least32_t posts;   /* sends, receives and collectives posted in this step */
	atomic_uint_least64_t waiting; /* pp_clock() when the present wait got slow, 0: it did not */
	atomic_uint_least64_t step;    /* from 1; 0: none yet */
	atomic_uint_least64_t batch;   /* of an evaluation after that step, from 1; 0: none */
	atomic_uint_least32_t program; /* of the image's named programs */
	atomic_uint_least32_t stretch; /* enum pp_stretch */
	atomic_uint_least32_t changes; /* of `doing`; odd while it is being written */
	atomic_uint_least32_t work;    /* counts what else is progress: operations of bodies, pieces of files */
	atomic_uint_least64_t doing[PP_DOING_WORDS]; /* text, outside of streams; empty: at instruction `index` */
};

/* A copy of it, for judging, sending and printing. */
struct pp_seen {
	uint64_t step;
	uint64_t batch;
	uint64_t waited; /* ns of a wait that got slow, 0: none */
	uint32_t index, posts, program, stretch, changes, work;
	char doing[PP_DOING_BYTES];
};

void pp_whereabouts_doing(struct pp_whereabouts *whereabouts, const char *text);

struct pp_seen pp_whereabouts_read(const struct pp_whereabouts *whereabouts);

/* Is this rank elsewhere now? Waiting longer is no progress. */
bool pp_seen_moved(const struct pp_seen *before, const struct pp_seen *now);

#endif
