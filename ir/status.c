/* Status of environment failures. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

bool pp_fail(struct pp_status *status, enum pp_exit code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	status->code = code;
	vsnprintf(status->text, sizeof status->text, format, args);
	va_end(args);
	return false;
}
