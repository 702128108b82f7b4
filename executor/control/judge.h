/* Who waits for whom, and who is to blame: from where all ranks are. */
#ifndef PP_JUDGE_H
#define PP_JUDGE_H

#include "whereabouts.h"

#include "ir/grid.h"

enum pp_standing {
	PP_PRESENT,
	PP_ENDED,     /* left in good order */
	PP_GAVE_UP,   /* failed and said why */
	PP_LOST,      /* ended without a word */
	PP_STOPPED,   /* its process is stopped (SIGSTOP) */
	PP_SILENT,    /* nothing was heard of it for too long */
	PP_SIGNALLED, /* was told to end by a signal, perhaps because another rank was lost */
};

enum { PP_HOST_BYTES = 64, PP_WHY_BYTES = 512 };

/* What is known about a rank. */
struct pp_account {
	enum pp_standing standing;
	bool placed; /* `place` was heard */
	struct pp_seen place;
	uint64_t silent;          /* ns since it was last heard, of PP_SILENT and PP_STOPPED */
	char host[PP_HOST_BYTES]; /* "": one process */
	char why[PP_WHY_BYTES];   /* of PP_GAVE_UP and PP_SIGNALLED */
};

/* All ranks of a run; `program` is NULL before it is loaded. */
struct pp_scene {
	const struct pp_program *program;
	const struct pp_account *accounts;
	uint32_t world;
};

enum pp_wait_kind {
	PP_WAITS_NOT,
	PP_WAITS_MESSAGE,    /* the rank's own post of a send or receive */
	PP_WAITS_COLLECTIVE, /* of the stream, or within a body */
	PP_WAITS_ALL,        /* an exchange of all ranks outside of the streams */
};

struct pp_wait {
	enum pp_wait_kind kind;
	const struct pp_instr *instr; /* the post or, of a collective within a body, the compute instruction */
	uint32_t peer;                /* the first rank that is missing; of messages always the other end */
	bool missing;                 /* false: all have come, and still it does not complete */
	uint32_t unposted;            /* instruction of the peer that should have posted by where it is, PP_NULL: none */
};

/* The instruction that a rank is at, or NULL: it is outside of its streams or at the end of one. */
const struct pp_instr *pp_scene_instr(const struct pp_scene *scene, uint32_t rank);

/* The post that a rank waits for if it is at a `wait` or `waitc`, else NULL. */
const struct pp_instr *pp_scene_post(const struct pp_scene *scene, uint32_t rank);

struct pp_wait pp_scene_wait(const struct pp_scene *scene, uint32_t rank);

/* Has every rank that is present come to a wait? */
bool pp_scene_settled(const struct pp_scene *scene);

enum pp_blame {
	PP_BLAME_NONE,     /* nothing speaks against anyone */
	PP_BLAME_STANDING, /* gave up, lost, stopped, silent, signalled */
	PP_BLAME_LATE,     /* others wait for it, it does not wait */
	PP_BLAME_UNPOSTED, /* it is past a post that it never made: instruction `index` */
	PP_BLAME_LINK,     /* `rank` and `other` have both posted, and nothing moves */
	PP_BLAME_CYCLE,    /* ranks wait for each other in a circle: a proven program cannot, so messages were lost */
};

struct pp_verdict {
	enum pp_blame blame;
	uint32_t rank, other, index;
};

/* False: out of memory. */
bool pp_scene_judge(const struct pp_scene *scene, struct pp_verdict *verdict);

#endif
