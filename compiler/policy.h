/* The table of named schedules: policies.def. */
#ifndef PP_POLICY_H
#define PP_POLICY_H

#include "ir/spec.h"
#include "order/order.h"
#include "schema.h"

struct pp_policy {
	const char *name;
	pp_order_maker *make; /* NULL: rows of the library */
	uint8_t place;        /* enum pp_place that it needs; PP_PLACE_LIST: any */
	uint32_t vpp;         /* stages on each rank that it needs; 0: any */
	bool aware;           /* of costs and memory */
	uint8_t status;       /* enum pp_feature */
	const char *doc;
};

extern const struct pp_policy pp_policies[];
extern const size_t pp_policy_count;

/* The policy of this name, also one that is still to come; NULL: none. */
const struct pp_policy *pp_policy_find(const char *name);
const char *pp_policy_nearest(const char *word);

/* "gpipe, 1f1b or interleaved": those that are there. */
const char *pp_policy_names(struct pp_arena *arena);

/* How a spec writes a placement: "loop", "v", "linear"; "list". */
extern const char *const pp_place_name[];

#endif
