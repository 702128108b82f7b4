/* The table of named schedules. */
#include "policy.h"

#include "ir/str.h"
#include "order/v_orders.h"

#include <string.h>

#define PP_ROWS NULL

const struct pp_policy pp_policies[] = {
#define PP_POLICY(name, maker, place, vpp, aware, status, doc) {name, maker, place, vpp, aware, status, doc},
#include "policies.def"
#undef PP_POLICY
};

enum { POLICY_COUNT = sizeof pp_policies / sizeof *pp_policies };
const size_t pp_policy_count = POLICY_COUNT;

const char *const pp_place_name[] = {
    [PP_PLACE_LOOP] = "loop", [PP_PLACE_V] = "v", [PP_PLACE_LINEAR] = "linear", [PP_PLACE_LIST] = "list"};

const struct pp_policy *pp_policy_find(const char *name)
{
	for (size_t i = 0; i < POLICY_COUNT; i++)
		if (strcmp(pp_policies[i].name, name) == 0)
			return &pp_policies[i];
	return NULL;
}

const char *pp_policy_nearest(const char *word)
{
	const char *names[POLICY_COUNT];
	for (size_t i = 0; i < POLICY_COUNT; i++)
		names[i] = pp_policies[i].name;
	return pp_nearest(word, names, POLICY_COUNT);
}

const char *pp_policy_names(struct pp_arena *arena)
{
	const char *text = "";
	size_t left = 0;
	for (size_t i = 0; i < POLICY_COUNT; i++)
		left += pp_policies[i].status == PP_NOW;
	for (size_t i = 0; i < POLICY_COUNT; i++) {
		if (pp_policies[i].status != PP_NOW)
			continue;
		left--;
		text = pp_arena_printf(arena, "%s%s%s", text, !*text ? "" : left ? ", " : " or ", pp_policies[i].name);
	}
	return text;
}
