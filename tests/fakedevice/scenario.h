/* Small programs of several ranks, run apart from the test: in a child of threads, or in one child per rank. */
#ifndef PP_SCENARIO_H
#define PP_SCENARIO_H

#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

/* What a rank of a scenario has. The streams and memory belong to a device of its own. */
struct scenario_rank {
	uint32_t rank, ranks;
	bool faulty;             /* commit the fault */
	ncclComm_t communicator; /* NULL unless asked for */
	cudaStream_t streams[3];
	cudaEvent_t events[4];
	float *memory[4], *host; /* of scenario_count elements, pinned */
};

enum { scenario_count = 5000 };

struct scenario {
	const char *name;
	void (*run)(struct scenario_rank *rank);
	uint32_t ranks;
	bool communicates; /* has a communicator, connected to everybody and used for everything below */
	bool cold;         /* not connected */
};

struct scenario_outcome {
	int status;       /* that of the child, or of the first that ended badly */
	char text[65536]; /* what they wrote to stderr */
};

/* Runs it; `processes`: each rank is a process, else they are threads of one. Options are "NAME=VALUE" for the
 * environment, ended by NULL. */
void scenario_run(const struct scenario *scenario, bool faulty, bool processes, const char *const *options,
                  struct scenario_outcome *outcome);

/* Ends the rank's process badly if the call failed. */
void scenario_good(unsigned error, const char *what);

#endif
