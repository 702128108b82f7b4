/* Run under mpirun: the mpi transport before the judge of transports. */
#include "support/conformance.h"

#include "executor/transport/transport_mpi.h"

#include <mpi.h>

#include <stdio.h>

/* Communicators made so far; MPI lets its calls be wrapped. */
static int communicators;

int MPI_Comm_dup(MPI_Comm from, MPI_Comm *to)
{
	communicators++;
	return PMPI_Comm_dup(from, to);
}

int MPI_Comm_split(MPI_Comm from, int color, int key, MPI_Comm *to)
{
	communicators++;
	return PMPI_Comm_split(from, color, key, to);
}

int MPI_Comm_create(MPI_Comm from, MPI_Group group, MPI_Comm *to)
{
	communicators++;
	return PMPI_Comm_create(from, group, to);
}

static struct pp_endpoint *bind(void *endpoint, const struct pp_program *program,
                                const struct pp_transport_options *options, struct pp_status *status)
{
	return pp_mpi_bind(endpoint, program, options, status) ? endpoint : NULL;
}

int main(void)
{
	struct pp_status status;
	struct pp_endpoint *endpoint = pp_mpi_open(&status);
	if (!endpoint) {
		fprintf(stderr, "%s\n", status.text);
		return 3;
	}
	/* All are made at the start, in one order; programs are bound and run without further ones. */
	struct pp_conformance_rank rank = {.ops = &pp_transport_mpi,
	                                   .rank = pp_mpi_rank(endpoint),
	                                   .ranks = pp_mpi_ranks(endpoint),
	                                   .bind = bind,
	                                   .context = endpoint};
	int made = communicators, differences = pp_conformance_run(&rank);
	if (made != 3 || communicators != made) {
		fprintf(stderr, "%d communicators made at the start, %d later\n", made, communicators - made);
		differences++;
	}
	pp_mpi_close(endpoint);
	return differences != 0;
}
