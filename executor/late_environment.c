/* Late variables: late_environment.h. POSIX: what putenv was given is the environment, and altering it alters that.
 *
 * Ensures: readers at any time find the variable with its whole value, or not at all. */
#define _XOPEN_SOURCE 700 /* putenv */
#include "late_environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pp_late_variable pp_late_variable_take(const char *name, size_t room)
{
	size_t length = strlen(name);
	struct pp_late_variable variable = {.place = calloc(length + 1 + room, 1), .room = room, .first = name[0]};
	if (!variable.place)
		return variable;
	memcpy(variable.place, name, length);
	variable.place[0] = '_';
	variable.place[length] = '=';
	if (putenv(variable.place) != 0) {
		free(variable.place);
		variable.place = NULL;
	}
	return variable;
}

void pp_late_variable_set(const struct pp_late_variable *variable, const char *value)
{
	if (!variable->place)
		return;
	snprintf(strchr(variable->place, '=') + 1, variable->room, "%s", value);
	__atomic_store_n(variable->place, variable->first, __ATOMIC_RELEASE);
}
