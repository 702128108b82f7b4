/* --vary: which values of the spec vary, and over what. */
#include "plan.h"

#include "ir/capped.h"

#include <string.h>

/* What can vary. The values are ours for axes that are named without any; NULL: the user must give them. */
struct variable {
	const char *name, *attribute, *values, *example;
};

/* In the order of the combinations: the last one varies fastest. */
static const struct variable variables[] = {
    {"tp", "parallel.tp", NULL, "1,2"},
    {"pp", "parallel.pp", NULL, "4,8"},
    {"dp", "parallel.dp", NULL, "1,2"},
    {"zero", "parallel.zero", "0,1", NULL},
    {"microbatch", "train.microbatch", NULL, "1,2"},
    {"microbatches", "train.microbatches", NULL, "16,32"},
    {"recompute", "train.recompute", "none,selective,full", NULL},
    {"schedule", NULL, "", NULL}, /* those of the library and of the file */
    {"vpp", "parallel.vpp", "1,2,4", NULL},
    {"place", "stages.place", "loop,v,linear", NULL},
    {"memory", "schedule.memory", "none,1x,0.75x,0.5x", NULL},
};
enum { VARIABLES = sizeof variables / sizeof *variables };

static const char names[] = "tp|pp|dp|zero|microbatch|microbatches|recompute|schedule|vpp|place|memory";

/* Split at commas outside brackets. False: an empty value. */
static bool split(struct pp_arena *arena, const char *text, struct pp_plan_axis *axis)
{
	size_t capacity = 0;
	unsigned depth = 0;
	for (const char *begin = text, *at = text;; at++) {
		depth += *at == '[' || *at == '(';
		depth -= depth && (*at == ']' || *at == ')');
		if (*at && (*at != ',' || depth))
			continue;
		while (*begin == ' ')
			begin++;
		const char *end = at;
		while (end > begin && end[-1] == ' ')
			end--;
		if (end == begin)
			return false;
		*PP_PUSH(arena, &axis->values, &axis->count, &capacity, const char *) =
		    pp_arena_copy(arena, begin, (size_t)(end - begin));
		if (!*at)
			return true;
		begin = at + 1;
	}
}

struct reading {
	struct pp_arena *arena;
	struct pp_plan_axis axes[VARIABLES];
	bool used[VARIABLES];
	struct pp_status *status;
};

/* The axis of a name. NULL: reported. */
static struct pp_plan_axis *axis_of(struct reading *reading, const char *name)
{
	int which = pp_choice_find(names, name);
	if (which < 0 || !*name) {
		const char *near = pp_choice_nearest(reading->arena, names, name);
		pp_fail(reading->status, PP_EXIT_USAGE,
		        "--vary: `%.60s` can't vary%s%s%s; it knows schedule, vpp, memory, place, microbatches, microbatch, "
		        "recompute, tp, pp, dp, zero",
		        name, near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
		return NULL;
	}
	if (reading->used[which]) {
		pp_fail(reading->status, PP_EXIT_USAGE, "--vary %s is given twice; list all its values in one", name);
		return NULL;
	}
	reading->used[which] = true;
	reading->axes[which] =
	    (struct pp_plan_axis){.name = variables[which].name, .attribute = variables[which].attribute};
	return &reading->axes[which];
}

static bool use_ours(struct reading *reading, const char *name)
{
	struct pp_plan_axis *axis = axis_of(reading, name);
	if (!axis)
		return false;
	const struct variable *variable = &variables[axis - reading->axes];
	if (!variable->values)
		return pp_fail(reading->status, PP_EXIT_USAGE, "--vary %s wants values, such as --vary %s=%s", name, name,
		               variable->example);
	return !*variable->values || split(reading->arena, variable->values, axis);
}

static bool repeats(const struct pp_plan_axis *axis, const char **twice)
{
	for (size_t i = 0; i < axis->count; i++)
		for (size_t j = 0; j < i; j++)
			if (strcmp(axis->values[i], axis->values[j]) == 0) {
				*twice = axis->values[i];
				return true;
			}
	return false;
}

static bool use_given(struct reading *reading, const char *name, const char *values)
{
	struct pp_plan_axis *axis = axis_of(reading, name);
	const char *twice;
	if (!axis)
		return false;
	const char *inner = strchr(values, '=');
	if (inner)
		return pp_fail(reading->status, PP_EXIT_USAGE,
		               "--vary %s=%.80s: `=` in a value; give every list a --vary of its own", name, values);
	if (!split(reading->arena, values, axis))
		return pp_fail(reading->status, PP_EXIT_USAGE,
		               "--vary %s=%.80s: an empty value; write the values with one comma between them", name, values);
	if (axis->count > PP_PLAN_MOST)
		return pp_fail(reading->status, PP_EXIT_USAGE, "--vary %s: %zu values; at most %d combinations are tried", name,
		               axis->count, PP_PLAN_MOST);
	if (repeats(axis, &twice))
		return pp_fail(reading->status, PP_EXIT_USAGE, "--vary %s=%.80s: `%.60s` is listed twice", name, values, twice);
	axis->given = true;
	return true;
}

/* "schedule,vpp=2,4": names up to the first `=`; the last of them has the values. */
static bool read_text(struct reading *reading, const char *text)
{
	const char *equals = strchr(text, '=');
	size_t length = equals ? (size_t)(equals - text) : strlen(text);
	for (const char *at = text;;) {
		size_t size = strcspn(at, ",=");
		const char *name = pp_arena_copy(reading->arena, at, size);
		bool last = at + size == text + length;
		if (last && equals)
			return use_given(reading, name, equals + 1);
		if (!use_ours(reading, name))
			return false;
		if (last)
			return true;
		at += size + 1;
	}
}

bool pp_plan_vary_read(struct pp_arena *arena, const struct pp_option_list *texts, struct pp_plan_vary *vary,
                       struct pp_status *status)
{
	struct reading reading = {.arena = arena, .status = status};
	for (size_t i = 0; i < texts->count; i++)
		if (!read_text(&reading, texts->items[i]))
			return false;
	if (texts->count == 0 && !read_text(&reading, "schedule,vpp"))
		return false;
	vary->axes = PP_NEW_ARRAY(arena, struct pp_plan_axis, VARIABLES);
	vary->count = 0;
	for (size_t i = 0; i < VARIABLES; i++)
		if (reading.used[i])
			vary->axes[vary->count++] = reading.axes[i];
	return true;
}

uint64_t pp_plan_vary_count(const struct pp_plan_vary *vary)
{
	uint64_t count = 1;
	for (size_t i = 0; i < vary->count; i++)
		count = pp_times(count, vary->axes[i].count);
	return count;
}
