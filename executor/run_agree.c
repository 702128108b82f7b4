/* Agreement over all ranks: one exchange of verdicts. */
#include "run_agree.h"

#include <stdio.h>
#include <stdlib.h>

enum { VERDICT_TEXT = 900 };

struct verdict {
	int code;
	char text[VERDICT_TEXT];
};

enum pp_agreed pp_run_ask(const struct pp_transport_ops *transport, struct pp_endpoint *endpoint,
                          struct pp_watch *watch, uint32_t ranks, const char *what, bool fine, struct pp_status *status)
{
	struct verdict mine = {.code = fine ? PP_EXIT_OK : (int)status->code};
	if (!fine)
		snprintf(mine.text, sizeof mine.text, "%.*s", VERDICT_TEXT - 1, status->text);
	struct verdict *all = calloc(ranks, sizeof *all);
	if (!all) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
		return PP_NO_ANSWER;
	}
	bool answered = pp_transport_exchange(transport, endpoint, watch, what, &mine, all, sizeof mine, status);
	enum pp_agreed agreed = answered ? PP_ALL_FINE : PP_NO_ANSWER;
	for (uint32_t rank = 0; agreed == PP_ALL_FINE && rank < ranks; rank++)
		if (all[rank].code != PP_EXIT_OK) {
			pp_fail(status, (enum pp_exit)all[rank].code, "%s", all[rank].text);
			agreed = PP_ONE_FAILED;
		}
	free(all);
	return agreed;
}

bool pp_run_agree(const struct pp_transport_ops *transport, struct pp_endpoint *endpoint, struct pp_watch *watch,
                  uint32_t ranks, const char *what, bool fine, struct pp_status *status)
{
	return pp_run_ask(transport, endpoint, watch, ranks, what, fine, status) == PP_ALL_FINE;
}
