/* Comparing where ranks are with where they were. */
#include "stall.h"

#include "executor/watch.h"

#include <stdio.h>
#include <stdlib.h>

bool pp_stall_open(struct pp_stall *stall, uint32_t world)
{
	*stall = (struct pp_stall){.last = calloc((size_t)world + 1, sizeof *stall->last), .moved = pp_clock()};
	return stall->last != NULL;
}

void pp_stall_close(struct pp_stall *stall)
{
	free(stall->last);
	stall->last = NULL;
}

static const char *const stretch_name[PP_STRETCH_COUNT] = {
    [PP_STRETCH_START] = "--timeout-init", [PP_STRETCH_FIRST] = "--timeout-first", [PP_STRETCH_STEP] = "--timeout",
    [PP_STRETCH_SAVE] = "--timeout-save",  [PP_STRETCH_EVAL] = "--timeout-eval",
};

bool pp_stall_look(struct pp_stall *stall, const struct pp_scene *scene, const struct pp_limits *limits,
                   char text[PP_OCCASION_BYTES])
{
	uint64_t now = pp_clock();
	uint32_t slowest = PP_STRETCH_COUNT, moved = 0;
	for (uint32_t rank = 0; rank < scene->world; rank++) {
		const struct pp_account *account = &scene->accounts[rank];
		if (account->standing != PP_PRESENT || !account->placed)
			continue;
		uint32_t stretch = account->place.stretch < PP_STRETCH_COUNT ? account->place.stretch : 0;
		if (slowest == PP_STRETCH_COUNT || limits->stretch[stretch] > limits->stretch[slowest])
			slowest = stretch;
		moved += pp_seen_moved(&stall->last[rank], &account->place);
		stall->last[rank] = account->place;
	}
	if (moved || slowest == PP_STRETCH_COUNT)
		stall->moved = now;
	if (now - stall->moved <= limits->stretch[slowest < PP_STRETCH_COUNT ? slowest : 0])
		return false;
	snprintf(text, PP_OCCASION_BYTES, "no rank has moved for %.1f s, the limit is that of %s",
	         (double)(now - stall->moved) * 1e-9, stretch_name[slowest]);
	return true;
}
