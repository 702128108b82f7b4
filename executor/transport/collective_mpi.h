/* Collectives over MPI point-to-point: one line of posts per group that the rank belongs to. */
#ifndef PP_COLLECTIVE_MPI_H
#define PP_COLLECTIVE_MPI_H

#include "collective.h"

#include <mpi.h>

/* What --check-identity compares over the members. */
struct pp_mpi_claim {
	uint64_t number, count;
	uint32_t kind, dtype;
};

/* Where the post at the head of the line stands. */
enum pp_mpi_phase {
	PP_MPI_IDLE,
	PP_MPI_CLAIM,   /* members compare what they post */
	PP_MPI_SCATTER, /* every member gets the others' elements of what it sums */
	PP_MPI_GATHER,  /* every member gets what the others summed or give */
};

/* The collectives of one group at one member, in the order in which they were posted. */
struct pp_mpi_line {
	int tag;
	uint32_t members, position; /* members 0: the rank is none */
	int *ranks;                 /* [members]: world ranks */
	struct pp_part *posts;      /* ring */
	uint32_t capacity;
	uint64_t posted, done;
	/* The post at the head: */
	enum pp_mpi_phase phase;
	uint64_t round;
	MPI_Request *requests; /* [2 * members]: receives, then sends */
	MPI_Status *statuses;
	int *wanted; /* bytes of each receive */
	int request_count, receive_count;
	struct pp_mpi_claim *claims; /* [members] */
	unsigned char *buffer;       /* [members][share]: what others send to be summed here */
	uint64_t share;              /* bytes of one message of a scatter */
};

/* Room for the posts of a group. False: out of memory; release with pp_mpi_line_free either way. */
bool pp_mpi_line_bind(struct pp_endpoint *endpoint, struct pp_mpi_line *line, const struct pp_group *group, int tag,
                      const struct pp_post_count *count);
void pp_mpi_line_free(struct pp_mpi_line *line);

/* Post, and move as far as it goes now. Returns the number of the post: it is over once `done` is larger. */
uint64_t pp_mpi_line_post(struct pp_endpoint *endpoint, struct pp_mpi_line *line, const struct pp_part *part);

void pp_mpi_line_move(struct pp_endpoint *endpoint, struct pp_mpi_line *line);

#endif
