/* What the files of the oracle share. */
#ifndef PP_TEST_ORACLE_STATE_H
#define PP_TEST_ORACLE_STATE_H

#include "ir/program.h"

struct message {
	uint32_t posted[2]; /* index + 1 of the post */
	uint64_t at_post, carried;
	uint64_t token; /* garbage in the receive slot until its wait */
	bool over, waited[2];
};

struct joint {
	uint32_t *posted; /* by member: number + 1 of its flight */
	uint32_t arrived;
	bool over;
};

struct flight {
	uint32_t id, group, number, instr;
	uint64_t before[2], *copy; /* of source and target slot at the post */
	bool waited;
};

/* A coordinate of the grid. */
struct rank {
	uint32_t pp, tp, dp;
	const struct pp_rank *memory;
	const struct pp_stream *stream; /* of the program that runs */
	uint64_t **value; /* per slot: one word, or a vector: losses, norms, shards of weights and gradients */
	uint32_t *length;
	uint32_t at; /* next instruction */
	struct flight *flights;
	uint32_t flight_count;
	uint32_t *group_posts;
};

/* Coordinate (pp, tp, dp) is number pp + ranks * (tp + tp_size * dp). */
struct oracle {
	struct pp_arena *arena;
	const struct pp_program *program;
	uint32_t tp, dp, replicas, world;
	struct rank *ranks;           /* [world] */
	struct message **messages;    /* [channels * replicas] */
	uint32_t *posts[2], *carried; /* [channels * replicas] */
	struct joint ***joints;       /* [groups][world]: by the first member; NULL elsewhere */
	uint32_t *group_most;         /* [groups]: collectives that a member posts at most */
	uint64_t seed, garbage, *made_of, poison;
	uint32_t most;
};

uint64_t oracle_mix(uint64_t a, uint64_t b);
uint64_t oracle_mix_all(uint64_t kind, const uint64_t *values, size_t count);
uint64_t oracle_garbage(struct oracle *o);
uint64_t oracle_read(const struct oracle *o, uint32_t w, uint32_t slot);
void oracle_write(struct oracle *o, uint32_t w, uint32_t slot, uint64_t value);
void oracle_destroy(struct oracle *o, uint32_t w, uint32_t slot);
void oracle_destroy_others(struct oracle *o, uint32_t w, uint32_t slot);
uint32_t oracle_slot_of(const struct oracle *o, uint32_t w, enum pp_slot_class class);

static inline bool oracle_shards(const struct oracle *o)
{
	return o->program->zero && o->dp > 1;
}

/* oracle_tail.c */
void oracle_make_joints(struct oracle *o);
void oracle_end_joints(struct oracle *o);
void oracle_post(struct oracle *o, uint32_t w, const struct pp_instr *instr);
bool oracle_wait(struct oracle *o, uint32_t w, const struct pp_instr *instr); /* true: the rank goes on */
void oracle_tail(struct oracle *o, uint32_t w, const struct pp_instr *instr);

#endif
