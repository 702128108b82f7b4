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

/* Where a post stands. */
enum pp_mpi_phase {
	PP_MPI_OVER,
	PP_MPI_CLAIM,   /* members compare what they post */
	PP_MPI_SCATTER, /* every member gets the others' elements of what it sums */
	PP_MPI_GATHER,  /* every member gets what the others summed or give */
};

/* A post under way. */
struct pp_mpi_flight {
	enum pp_mpi_phase phase;
	uint64_t round;
	MPI_Request *requests; /* [2 * members]: receives, then sends */
	MPI_Status *statuses;
	int *wanted; /* bytes of each receive */
	int request_count, receive_count;
	unsigned char *buffer; /* [members][short_share] */
};

/* Short posts that may be under way at once: their messages cross the link one behind the other. */
enum { PP_MPI_FLIGHTS = 8 };

/* The collectives of one group at one member, in the order in which they were posted. */
struct pp_mpi_line {
	int tag;
	uint32_t members, position; /* members 0: the rank is none */
	int *ranks;                 /* [members]: world ranks */
	struct pp_part *posts;      /* ring */
	uint32_t capacity;
	uint64_t posted, begun, done;
	struct pp_mpi_flight flights[PP_MPI_FLIGHTS]; /* of post n: n mod PP_MPI_FLIGHTS */
	struct pp_mpi_claim *claims;                  /* [members] */
	unsigned char *buffer;                        /* [members][share]: of a long one, what others send to be summed */
	uint64_t share, short_share;                  /* bytes of one message */
};

/* Room for the posts of a group. False: out of memory; release with pp_mpi_line_free either way. */
bool pp_mpi_line_bind(struct pp_endpoint *endpoint, struct pp_mpi_line *line, const struct pp_group *group, int tag,
                      const struct pp_post_count *count);
void pp_mpi_line_free(struct pp_mpi_line *line);

/* Post, and move as far as it goes now. Returns the number of the post: it is over once `done` is larger. */
uint64_t pp_mpi_line_post(struct pp_endpoint *endpoint, struct pp_mpi_line *line, const struct pp_part *part);

void pp_mpi_line_move(struct pp_endpoint *endpoint, struct pp_mpi_line *line);

#endif
