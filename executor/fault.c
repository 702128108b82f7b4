/* Reading planted faults, and those that strike the process. */
#include "fault.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct timespec moment = {1, 0}; /* enough for others to get on, also on a loaded machine */

static bool parse_kind(const char *kind, struct pp_fault *fault)
{
	static const char *const kinds[] = {"", "exit", "fail", "sleep", "kill", "stop", "skip", "cut", "nan"};
	for (unsigned i = 1; i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(kind, kinds[i]) == 0)
			fault->kind = (enum pp_fault_kind)i;
	return fault->kind != PP_FAULT_NONE;
}

bool pp_fault_parse(const char *text, struct pp_fault *fault, struct pp_status *status)
{
	static const char *const saving[] = {"", "kill", "slow"};
	char kind[8];
	char extra;
	*fault = (struct pp_fault){.step = 1};
	if (sscanf(text, "%9" SCNu32 ":%9" SCNu32 ":%7[a-z]%c", &fault->rank, &fault->index, kind, &extra) == 3 &&
	    parse_kind(kind, fault))
		return true;
	if (sscanf(text, "%9" SCNu32 ":%9" SCNu32 "@%18" SCNu64 ":%7[a-z]%c", &fault->rank, &fault->index, &fault->step,
	           kind, &extra) == 4 &&
	    parse_kind(kind, fault))
		return true;
	if (sscanf(text, "%9" SCNu32 ":save:%9" SCNu32 ":%7[a-z]%c", &fault->rank, &fault->index, kind, &extra) == 3)
		for (unsigned i = 1; i < sizeof saving / sizeof *saving; i++)
			if (strcmp(kind, saving[i]) == 0) {
				fault->saving = (enum pp_fault_saving)i;
				return true;
			}
	return pp_fail(status, PP_EXIT_USAGE,
	               "PP_FAULT=%s: want RANK:INSTRUCTION[@STEP]:exit|fail|sleep|kill|stop|skip|cut|nan, such as 2:3:exit",
	               text);
}

uint32_t pp_fault_index(const struct pp_fault *fault, uint32_t world, uint64_t step)
{
	if (fault->kind == PP_FAULT_NONE || fault->rank != world)
		return UINT32_MAX;
	uint64_t strikes = fault->step ? fault->step : 1;
	bool now = step == strikes || (fault->kind == PP_FAULT_NAN && step > strikes);
	return now ? fault->index : UINT32_MAX;
}

enum pp_fault_kind pp_fault_meet(enum pp_fault_kind kind)
{
	switch (kind) {
	case PP_FAULT_NONE:
	case PP_FAULT_SKIP:
	case PP_FAULT_CUT:
	case PP_FAULT_NAN:
		break;
	case PP_FAULT_EXIT:
	case PP_FAULT_FAIL:
		nanosleep(&moment, NULL);
		break;
	case PP_FAULT_SLEEP:
		for (;;)
			pause();
	case PP_FAULT_KILL:
	case PP_FAULT_STOP:
		nanosleep(&moment, NULL);
		raise(kind == PP_FAULT_KILL ? SIGKILL : SIGSTOP);
		break;
	}
	return kind;
}
