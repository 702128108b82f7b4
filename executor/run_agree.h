/* Ranks agree on whether all is well, so that they go on or stop together. */
#ifndef PP_RUN_AGREE_H
#define PP_RUN_AGREE_H

#include "transport.h"
#include "watch.h"

enum pp_agreed {
	PP_ALL_FINE,
	PP_ONE_FAILED, /* all ranks know that one of them did */
	PP_NO_ANSWER,  /* a rank is lost */
};

/* Every rank says whether it is fine; if not, its *status says why. Unless all are, *status becomes that of the
 * first rank that isn't. `what` names the occasion in reports, a literal. */
enum pp_agreed pp_run_ask(const struct pp_transport_ops *transport, struct pp_endpoint *endpoint,
                          struct pp_watch *watch, uint32_t ranks, const char *what, bool fine,
                          struct pp_status *status);

bool pp_run_agree(const struct pp_transport_ops *transport, struct pp_endpoint *endpoint, struct pp_watch *watch,
                  uint32_t ranks, const char *what, bool fine, struct pp_status *status);

#endif
