/* What the parts of the mpi transport share: the endpoint and how its calls fail. Used by the *_mpi.c files only. */
#ifndef PP_ENDPOINT_MPI_H
#define PP_ENDPOINT_MPI_H

#include "channel_mpi.h"
#include "collective_mpi.h"

#include "executor/pending_colls.h"

enum { PP_MPI_FAILURE_TEXT = 512 };

struct pp_mpi_note {
	uint32_t rank;
};

struct pp_endpoint {
	MPI_Comm data, sums, control; /* made when MPI starts, in this order on all ranks */
	int rank, ranks;              /* world rank, size of the world */
	const struct pp_program *program;
	struct pp_coord coord;
	struct pp_transport_options options;
	uint64_t piece; /* longest single message, bytes */
	struct pp_mpi_channel *channels;
	uint32_t *mine; /* channels that end here */
	uint32_t mine_count;
	struct pp_mpi_line *lines; /* [group_count], then that of bodies; members: NULL if the rank is none */
	uint32_t line_count;
	struct pp_pending_colls colls; /* line: the group */
	MPI_Request exchange, note_request;
	struct pp_mpi_note note;
	bool failed, told;      /* told: by another rank's note */
	uint32_t first_to_fail; /* lowest rank that sent one, or PP_NULL */
	char failure[PP_MPI_FAILURE_TEXT];
};

/* Only the first failure counts. */
void pp_mpi_fail(struct pp_endpoint *endpoint, const char *text);

/* False, with the failure recorded, unless the call succeeded. */
bool pp_mpi_succeeded(struct pp_endpoint *endpoint, int error, const char *call);

#endif
