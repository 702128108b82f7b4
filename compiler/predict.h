/* What a build predicts, term by term: each number with the formula that it comes from, what went into it, and whose
 * formula it is, so that it can be checked by hand. */
#ifndef PP_PREDICT_H
#define PP_PREDICT_H

#include "pass.h"

enum pp_term_unit { PP_TERM_NS, PP_TERM_BYTES, PP_TERM_SHARE, PP_TERM_FLOP, PP_TERM_RATE };

struct pp_term {
	const char *group; /* time, bubble, memory, traffic, work */
	const char *name;
	uint8_t unit; /* enum pp_term_unit */
	double value;
	const char *formula, *inputs, *source;
};

struct pp_terms {
	struct pp_term *items;
	size_t count, capacity;
};

/* requires: a unit that was compiled up to `simulate`; `sim`: its simulation over `transport`. */
struct pp_terms pp_predict(const struct pp_unit *unit, const struct pp_sim *sim, const char *transport);

/* JSON has "schema": "pipec.predict/1". */
void pp_predict_print(const struct pp_unit *unit, const struct pp_sim *sim, const char *transport, bool json,
                      FILE *out);

#endif
