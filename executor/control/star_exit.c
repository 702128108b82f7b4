/* How a keeper ends its process. */
#include "star_state.h"

#include <stdio.h>
#include <unistd.h>

void pp_star_exit(int code)
{
	if (ftrylockfile(stdout) == 0) {
		fflush(stdout);
		funlockfile(stdout);
	}
	_exit(code);
}
