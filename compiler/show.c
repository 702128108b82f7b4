/* Printing resolved settings, one per line: name, value, origin; aligned. */
#include "show.h"

#include <string.h>

static const char *name_of(struct pp_arena *arena, const struct pp_setting *setting)
{
	return pp_arena_printf(arena, "%s.%s", setting->block, setting->attribute);
}

/* "cluster" matches cluster.nodes and cluster.gpu.memory. */
static bool matches(const char *name, const char *what)
{
	size_t length = what ? strlen(what) : 0;
	return !what || (strncmp(name, what, length) == 0 && (name[length] == '\0' || name[length] == '.'));
}

static const char *origin_of(struct pp_arena *arena, const struct pp_resolved *resolved,
                             const struct pp_setting *setting)
{
	switch ((enum pp_origin)setting->origin) {
	case PP_ORIGIN_DEFAULT:
		return "default";
	case PP_ORIGIN_DERIVED:
		return "derived";
	case PP_ORIGIN_SET:
		return "--set";
	case PP_ORIGIN_DEFINE:
		return "-D";
	case PP_ORIGIN_FILE:
		break;
	}
	const struct pp_source *source = pp_sources_find(resolved->sources, setting->span.start);
	if (!source)
		return "file";
	struct pp_position at = pp_source_position(source, setting->span.start);
	return pp_arena_printf(arena, "%s:%u:%u", source->name, at.line, at.column);
}

bool pp_settings_print(struct pp_arena *arena, const struct pp_resolved *resolved, const char *what, FILE *out,
                       const char **near)
{
	const char **names = PP_NEW_ARRAY(arena, const char *, resolved->setting_count);
	const char **values = PP_NEW_ARRAY(arena, const char *, resolved->setting_count);
	size_t name_width = 0, value_width = 0, shown = 0;
	for (size_t i = 0; i < resolved->setting_count; i++) {
		names[i] = name_of(arena, &resolved->settings[i]);
		values[i] = pp_datum_text(arena, &resolved->settings[i].value);
		if (!matches(names[i], what))
			continue;
		shown++;
		name_width = strlen(names[i]) > name_width ? strlen(names[i]) : name_width;
		value_width = strlen(values[i]) > value_width ? strlen(values[i]) : value_width;
	}
	for (size_t i = 0; i < resolved->setting_count; i++)
		if (matches(names[i], what))
			fprintf(out, "%-*s = %-*s  %s\n", (int)name_width, names[i], (int)value_width, values[i],
			        origin_of(arena, resolved, &resolved->settings[i]));
	*near = shown ? NULL : pp_nearest(what ? what : "", names, resolved->setting_count);
	return shown > 0;
}
