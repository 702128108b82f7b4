/* A profile: what a run of a program measured, as `piperun --profile` writes it and `pipec --profile` reads it. A JSON
 * file of schema "piperun.profile/1", one row per line, so that two profiles can be compared line by line.
 *
 * All times are ns. A time is the median over the counted steps (those after the first, which warms caches up) and over
 * all coordinates of the tp and dp axes; its spread is the distance between the quartiles. */
#ifndef PP_PROFILE_H
#define PP_PROFILE_H

#include "arena.h"
#include "json_read.h"
#include "program.h"

#include <stdio.h>

struct pp_profile_time {
	uint64_t median, spread;
	uint64_t count; /* of samples; 0: not measured, the others mean nothing */
};

/* One stage of the program that was run. */
struct pp_profile_stage {
	uint32_t rank, first_layer, layer_count;
	const char *title;
	uint64_t flops[PP_PHASE_COUNT];
	struct pp_profile_time time[PP_PHASE_COUNT];
};

/* Messages of one size on a channel: from both ends posted to received. */
struct pp_profile_channel {
	uint32_t source, destination;
	uint8_t kind;       /* enum pp_value */
	bool between_nodes; /* as the image places the ranks */
	uint64_t bytes;
	struct pp_profile_time time;
};

/* Latency and bandwidth of all channels on a node, or between nodes: least squares over messages of different sizes. */
struct pp_profile_link {
	bool given;
	uint64_t latency;   /* ns */
	uint64_t bandwidth; /* bytes per second */
};

/* A collective: from its last post, or the end of the one before it on its group, to its completion. */
struct pp_profile_joint {
	uint8_t axis, sub; /* enum pp_axis, enum pp_collective */
	uint32_t members;
	uint64_t bytes;
	struct pp_profile_time time;
};

/* All instructions of one kind in a rank's step tail. */
struct pp_profile_tail {
	uint32_t rank;
	uint8_t op;     /* enum pp_op */
	uint64_t bytes; /* memory traffic that the simulator counts for them */
	struct pp_profile_time time;
};

struct pp_profile_rank {
	struct pp_profile_time busy; /* in bodies, per step */
};

struct pp_profile {
	const char *tool, *transport, *device, *schedule;
	uint32_t pp, vpp, tp, dp;
	uint32_t stage_count, layer_count, microbatches, microbatch, seq, vocab;
	uint8_t dtype;                         /* of activations and weights */
	uint64_t steps;                        /* counted */
	struct pp_profile_time step, makespan; /* a step; from its begin to the end of its last compute */
	struct pp_profile_stage *stages;       /* [stage_count] */
	struct pp_profile_rank *ranks;         /* [pp] */
	struct pp_profile_channel *channels;
	size_t channel_count, channel_capacity;
	struct pp_profile_link link[2]; /* on a node, between nodes */
	struct pp_profile_joint *joints;
	size_t joint_count, joint_capacity;
	struct pp_profile_tail *tails;
	size_t tail_count, tail_capacity;
};

/* The file's text. */
void pp_profile_print(const struct pp_profile *profile, FILE *out);

/* Read it. Refused, with the place and the reason in *reader: anything that is no complete profile, unknown or missing
 * keys, rows that contradict the head (a stage, rank or layer that is not there, rows given twice), times that cannot
 * be. What is accepted prints the same text again. NULL: refused. */
struct pp_profile *pp_profile_read(struct pp_arena *arena, struct pp_json_reader *reader);

/* What the profile says of other messages, as the latency and bandwidth of a link; false: nothing. In this order: the
 * channel itself at this size; channels of the same sort (on a node, or between nodes) at this size, the median of
 * their medians; the line through different sizes. The first two take all of the time as latency. */
bool pp_profile_transfer(const struct pp_profile *profile, const struct pp_profile_channel *wanted, uint64_t *latency,
                         uint64_t *bandwidth);

/* Latency and bandwidth of one step of the ring by which the simulator prices collectives of so many members on this
 * axis; false: none were measured. */
bool pp_profile_ring(const struct pp_profile *profile, enum pp_axis axis, uint32_t members, uint64_t *latency,
                     uint64_t *bandwidth);

/* Bytes per second of the step tail's memory traffic; 0: not measured. */
uint64_t pp_profile_bandwidth(const struct pp_profile *profile);

#endif
