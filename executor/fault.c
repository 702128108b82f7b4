/* Reading planted faults. */
#include "fault.h"

#include <stdio.h>
#include <string.h>

bool pp_fault_parse(const char *text, struct pp_fault *fault, struct pp_status *status)
{
	static const char *const kinds[] = {"", "exit", "fail", "sleep"};
	static const char *const saving[] = {"", "kill", "slow"};
	unsigned rank, index;
	char kind[8];
	char extra;
	if (sscanf(text, "%9u:%9u:%7[a-z]%c", &rank, &index, kind, &extra) == 3)
		for (unsigned i = 1; i < sizeof kinds / sizeof *kinds; i++)
			if (strcmp(kind, kinds[i]) == 0) {
				*fault = (struct pp_fault){.kind = (enum pp_fault_kind)i, .rank = rank, .index = index};
				return true;
			}
	if (sscanf(text, "%9u:save:%9u:%7[a-z]%c", &rank, &index, kind, &extra) == 3)
		for (unsigned i = 1; i < sizeof saving / sizeof *saving; i++)
			if (strcmp(kind, saving[i]) == 0) {
				*fault = (struct pp_fault){.saving = (enum pp_fault_saving)i, .rank = rank, .index = index};
				return true;
			}
	return pp_fail(status, PP_EXIT_USAGE, "PP_FAULT=%s: want RANK:INSTRUCTION:exit|fail|sleep, such as 2:3:exit", text);
}
