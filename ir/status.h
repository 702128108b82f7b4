/* Failures of the environment (files, MPI, devices, memory): carried up as a status, printed once by a
 * tool's main. What the user wrote wrongly is a diagnostic (diag.h); a bug is an assert. */
#ifndef PP_STATUS_H
#define PP_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/* Exit codes of all three tools. */
enum pp_exit {
	PP_EXIT_OK = 0,
	PP_EXIT_REJECTED = 1,    /* the spec or program was rejected */
	PP_EXIT_USAGE = 2,       /* command line */
	PP_EXIT_ENVIRONMENT = 3, /* file, MPI, CUDA, memory, start checks */
	PP_EXIT_INFEASIBLE = 4,  /* plan or search found nothing */
	PP_EXIT_RUN = 5,         /* a run failed: rank lost or stuck, interrupted, loss not finite */
};

struct pp_status {
	enum pp_exit code;
	char text[1024]; /* what, where, why; lower case, no final period */
};

/* Fill in a status and return false, so that `return pp_fail(status, ...)` reads well. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
bool pp_fail(struct pp_status *status, enum pp_exit code, const char *format, ...);

#endif
