/* Faults planted from outside (plant.h). */
#include "plant.h"
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {[PP_FAKE_LOST_WAIT] = "lost-wait",
                                    [PP_FAKE_LOST_RECORD] = "lost-record",
                                    [PP_FAKE_HASTY_QUERY] = "hasty-query",
                                    [PP_FAKE_SHORT_SEND] = "short-send",
                                    [PP_FAKE_NO_STREAM] = "no-stream",
                                    [PP_FAKE_LOST_SEND] = "lost-send",
                                    [PP_FAKE_LOST_COLLECTIVE] = "lost-collective",
                                    [PP_FAKE_OLD_NCCL] = "old-nccl"};

bool pp_fake_planted(enum pp_fake_plant kind, uint64_t *counter, uint32_t rank)
{
	const char *plant = pp_fake_settings()->plant;
	size_t length = strlen(names[kind]);
	if (!plant || strncmp(plant, names[kind], length) != 0 || plant[length] != ':')
		return false;
	char *end;
	uint64_t number = strtoull(plant + length + 1, &end, 10);
	if (*end == ':' && strtoull(end + 1, NULL, 10) != rank)
		return false;
	++*counter;
	return kind == PP_FAKE_HASTY_QUERY ? *counter >= number : *counter == number;
}
