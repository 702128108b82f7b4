/* Variables of the environment whose values are known only when threads run: setenv may then move what another thread
 * reads. A place is taken before there are threads, under a name that nobody asks for; setting it writes there. */
#ifndef PP_LATE_ENVIRONMENT_H
#define PP_LATE_ENVIRONMENT_H

#include <stddef.h>

struct pp_late_variable {
	char *place; /* "_AME=…" until it is set, "NAME=value" then; NULL: none was taken, and nothing is set */
	size_t room; /* for the value with its end */
	char first;  /* character of the name */
};

/* Before there are threads. `room`: bytes of the longest value with its end. The memory is the environment's from then
 * on, up to the end of the process. */
struct pp_late_variable pp_late_variable_take(const char *name, size_t room);

/* At most once. A value that is too long is cut. */
void pp_late_variable_set(const struct pp_late_variable *variable, const char *value);

#endif
