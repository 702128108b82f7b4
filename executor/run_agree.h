/* Ranks agree on whether all is well, so that they go on or stop together. */
#ifndef PP_RUN_AGREE_H
#define PP_RUN_AGREE_H

#include "transport.h"
#include "watch.h"

/* Every rank says whether it is fine; if not, its *status says why. True if all are; else *status becomes that of the
 * first rank that isn't. `what` names the occasion in reports, a literal. */
bool pp_run_agree(const struct pp_transport_ops *transport, struct pp_endpoint *endpoint, struct pp_watch *watch,
                  uint32_t ranks, const char *what, bool fine, struct pp_status *status);

#endif
