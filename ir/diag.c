/* Collecting and printing diagnostics. The caret printer expands tabs, skips UTF-8 continuation bytes and
 * replaces control bytes, so that carets stand under what they mean on any terminal. */
#include "diag.h"

#include "json.h"
#include "str.h"

#include <stdarg.h>
#include <string.h>

enum {
	MOST_ERRORS = 20,
	TAB = 4,
	LINE_MOST = 200, /* bytes of a line that are shown; of a longer one a part around the label */
	LEFT_MOST = 80   /* of it before the label */
};

struct label {
	struct pp_span span;
	const char *text; /* may be "" */
	bool primary;
};

struct pp_message {
	struct pp_arena *arena;
	enum pp_severity severity;
	const char *code, *summary;
	struct label *labels; /* labels[0] is the primary one */
	size_t label_count, label_capacity;
	const char **notes;
	size_t note_count, note_capacity;
};

struct pp_diag {
	struct pp_arena *arena;
	const struct pp_sources *sources;
	struct pp_message **items;
	size_t count, capacity;
	size_t errors, warnings, dropped;
	bool warnings_are_errors;
};

struct pp_diag *pp_diag_create(struct pp_arena *arena, const struct pp_sources *sources)
{
	struct pp_diag *diag = PP_NEW(arena, struct pp_diag);
	diag->arena = arena;
	diag->sources = sources;
	return diag;
}

void pp_diag_warnings_are_errors(struct pp_diag *diag)
{
	diag->warnings_are_errors = true;
}

size_t pp_diag_errors(const struct pp_diag *diag)
{
	return diag->errors;
}

bool pp_diag_said(const struct pp_diag *diag, const char *code, struct pp_span span)
{
	for (size_t i = 0; i < diag->count; i++) {
		const struct pp_message *message = diag->items[i];
		if (strcmp(message->code, code) == 0 && message->labels[0].span.start == span.start &&
		    message->labels[0].span.end == span.end)
			return true;
	}
	return false;
}

static const char *format_text(struct pp_arena *arena, const char *format, va_list args)
{
	va_list again;
	va_copy(again, args);
	int length = vsnprintf(NULL, 0, format, args);
	char *text = pp_arena_alloc(arena, (size_t)(length < 0 ? 0 : length) + 1, 1);
	if (length > 0)
		vsnprintf(text, (size_t)length + 1, format, again);
	va_end(again);
	return text;
}

static void push_label(struct pp_message *message, struct label label)
{
	*PP_PUSH(message->arena, &message->labels, &message->label_count, &message->label_capacity, struct label) = label;
}

static struct pp_message *report(struct pp_diag *diag, enum pp_severity severity, const char *code, struct pp_span span,
                                 const char *format, va_list args)
{
	struct pp_message *message = PP_NEW(diag->arena, struct pp_message);
	message->arena = diag->arena;
	message->severity = diag->warnings_are_errors ? PP_ERROR : severity;
	message->code = code;
	message->summary = format_text(diag->arena, format, args);
	push_label(message, (struct label){.span = span, .text = "", .primary = true});
	if (message->severity == PP_WARNING)
		diag->warnings++;
	else if (++diag->errors > MOST_ERRORS) {
		diag->dropped++;
		return message;
	}
	*PP_PUSH(diag->arena, &diag->items, &diag->count, &diag->capacity, struct pp_message *) = message;
	return message;
}

struct pp_message *pp_error(struct pp_diag *diag, const char *code, struct pp_span span, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	struct pp_message *message = report(diag, PP_ERROR, code, span, format, args);
	va_end(args);
	return message;
}

struct pp_message *pp_warning(struct pp_diag *diag, const char *code, struct pp_span span, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	struct pp_message *message = report(diag, PP_WARNING, code, span, format, args);
	va_end(args);
	return message;
}

void pp_label(struct pp_message *message, struct pp_span span, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	push_label(message, (struct label){.span = span, .text = format_text(message->arena, format, args)});
	va_end(args);
}

void pp_caret(struct pp_message *message, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	message->labels[0].text = format_text(message->arena, format, args);
	va_end(args);
}

static void push_note(struct pp_message *message, const char *kind, const char *text)
{
	*PP_PUSH(message->arena, &message->notes, &message->note_count, &message->note_capacity, const char *) =
	    pp_arena_printf(message->arena, "%s: %s", kind, text);
}

void pp_note(struct pp_message *message, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	push_note(message, "note", format_text(message->arena, format, args));
	va_end(args);
}

void pp_help(struct pp_message *message, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	push_note(message, "help", format_text(message->arena, format, args));
	va_end(args);
}

void pp_detail(struct pp_message *message, const char *heading, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	push_note(message, heading, format_text(message->arena, format, args));
	va_end(args);
}

/* ---- human form ------------------------------------------------------------------------------ */

struct paint {
	const char *error, *warning, *primary, *secondary, *gutter, *bold, *reset;
};

static const struct paint plain = {"", "", "", "", "", "", ""};
static const struct paint colors = {"\033[1;31m", "\033[1;33m", "\033[1;31m", "\033[1;34m",
                                    "\033[1;34m", "\033[1m",    "\033[0m"};

static uint32_t line_start(const struct pp_source *source, uint32_t line)
{
	return source->lines[line - 1];
}

static uint32_t line_end(const struct pp_source *source, uint32_t line)
{
	uint32_t end = line < source->line_count ? source->lines[line] : source->length;
	uint32_t start = line_start(source, line);
	while (end > start && (source->text[end - 1] == '\n' || source->text[end - 1] == '\r'))
		end--;
	return end;
}

/* The part of a line that is shown: all of it unless it is very long. */
struct window {
	uint32_t from, to; /* byte offsets within the text */
};

static uint32_t character_at(const struct pp_source *source, uint32_t at)
{
	size_t length = pp_utf8_length(source->text + at, source->length - at);
	return length ? (uint32_t)length : 1;
}

/* What is shown of a line for a label at `at`. */
static struct window window_at(const struct pp_source *source, uint32_t line, uint32_t at)
{
	struct window window = {line_start(source, line), line_end(source, line)};
	if (window.to - window.from <= LINE_MOST)
		return window;
	uint32_t from = at - window.from > LEFT_MOST ? at - LEFT_MOST : window.from;
	while (window.from < from) /* never within a character */
		window.from += character_at(source, window.from);
	for (from = window.from; from < window.to && from - window.from < LINE_MOST;)
		from += character_at(source, from);
	window.to = from < window.to ? from : window.to;
	return window;
}

static const char *more_before(const struct pp_source *source, uint32_t line, const struct window *window)
{
	return window->from > line_start(source, line) ? "..." : "";
}

/* Display width of the bytes [from, to) of a line that starts at display column `column`. */
static uint32_t width(const struct pp_source *source, uint32_t from, uint32_t to, uint32_t column)
{
	uint32_t start = column;
	for (; from < to; from += character_at(source, from))
		column += source->text[from] == '\t' ? TAB - column % TAB : 1;
	return column - start;
}

static void print_line_text(FILE *out, const struct pp_source *source, uint32_t line, const struct window *window)
{
	const char *before = more_before(source, line, window);
	uint32_t column = (uint32_t)strlen(before), length;
	fputs(before, out);
	for (uint32_t i = window->from; i < window->to; i += length) {
		unsigned char byte = (unsigned char)source->text[i];
		length = character_at(source, i);
		if (byte == '\t') {
			do
				fputc(' ', out);
			while (++column % TAB);
			continue;
		}
		if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && length == 1))
			fputc('?', out);
		else
			fwrite(source->text + i, 1, length, out);
		column++;
	}
	if (window->to < line_end(source, line))
		fputs("...", out);
}

struct place {
	const struct pp_source *source;
	uint32_t line, from, to; /* byte offsets within the text; from <= to, on this line */
	const struct label *label;
};

static struct place place_of(const struct pp_diag *diag, const struct label *label)
{
	struct place place = {.source = pp_sources_find(diag->sources, label->span.start), .label = label};
	if (!place.source)
		return place;
	place.line = pp_source_position(place.source, label->span.start).line;
	place.from = label->span.start - place.source->base;
	place.to = label->span.end > label->span.start ? label->span.end - place.source->base : place.from + 1;
	uint32_t end = line_end(place.source, place.line);
	if (place.to > end)
		place.to = end > place.from ? end : place.from + 1;
	return place;
}

static void print_marks(FILE *out, const struct place *place, const struct window *window, int gutter,
                        const struct paint *paint)
{
	uint32_t begin = (uint32_t)strlen(more_before(place->source, place->line, window));
	uint32_t indent = begin + width(place->source, window->from, place->from, begin);
	uint32_t to = place->to > window->to && window->to > place->from ? window->to : place->to;
	uint32_t marks = to > place->source->length ? 1 : width(place->source, place->from, to, indent);
	fprintf(out, " %s%*s |%s %*s%s", paint->gutter, gutter, "", paint->reset, (int)indent, "",
	        place->label->primary ? paint->primary : paint->secondary);
	for (uint32_t i = 0; i < (marks ? marks : 1); i++)
		fputc(place->label->primary ? '^' : '-', out);
	if (*place->label->text)
		fprintf(out, " %s", place->label->text);
	fprintf(out, "%s\n", paint->reset);
}

static bool before(const struct place *a, const struct place *b)
{
	if (a->line != b->line)
		return a->line < b->line;
	return a->from < b->from;
}

static int digits(uint32_t number)
{
	int count = 1;
	while (number >= 10) {
		number /= 10;
		count++;
	}
	return count;
}

/* The labels that lie in `source`, sorted by position. */
static size_t places_in(const struct pp_diag *diag, const struct pp_message *message, const struct pp_source *source,
                        struct place *places)
{
	size_t count = 0;
	for (size_t i = 0; i < message->label_count; i++) {
		struct place place = place_of(diag, &message->labels[i]);
		if (place.source != source)
			continue;
		size_t at = count++;
		for (; at > 0 && before(&place, &places[at - 1]); at--)
			places[at] = places[at - 1];
		places[at] = place;
	}
	return count;
}

static void print_places(FILE *out, const struct place *places, size_t count, int gutter, const struct paint *paint)
{
	uint32_t shown = 0;
	struct window window = {0};
	for (size_t i = 0; i < count; i++) {
		if (places[i].line != shown || places[i].from > window.to) {
			window = window_at(places[i].source, places[i].line, places[i].from);
			if (shown && places[i].line > shown + 1)
				fprintf(out, " %s%*s :%s\n", paint->gutter, gutter, "", paint->reset);
			shown = places[i].line;
			fprintf(out, " %s%*u |%s ", paint->gutter, gutter, shown, paint->reset);
			print_line_text(out, places[i].source, shown, &window);
			fputc('\n', out);
		}
		print_marks(out, &places[i], &window, gutter, paint);
	}
}

static void print_arrow(FILE *out, const struct pp_source *source, uint32_t offset, int gutter,
                        const struct paint *paint)
{
	struct pp_position at = pp_source_position(source, offset);
	fprintf(out, " %*s%s-->%s %s:%u:%u\n", gutter, "", paint->gutter, paint->reset, source->name, at.line, at.column);
}

static void print_snippets(FILE *out, const struct pp_diag *diag, const struct pp_message *message,
                           const struct paint *paint)
{
	struct place *places = PP_NEW_ARRAY(diag->arena, struct place, message->label_count);
	int gutter = 1;
	for (size_t i = 0; i < message->label_count; i++) {
		struct place place = place_of(diag, &message->labels[i]);
		if (place.source && digits(place.line) > gutter)
			gutter = digits(place.line);
	}
	const struct pp_source *main = place_of(diag, &message->labels[0]).source;
	if (main) {
		print_arrow(out, main, message->labels[0].span.start, gutter, paint);
		print_places(out, places, places_in(diag, message, main, places), gutter, paint);
	}
	for (size_t i = 1; i < message->label_count; i++) {
		const struct pp_source *other = place_of(diag, &message->labels[i]).source;
		bool printed = !other || other == main;
		for (size_t j = 1; j < i && !printed; j++)
			printed = place_of(diag, &message->labels[j]).source == other;
		if (printed)
			continue;
		print_arrow(out, other, message->labels[i].span.start, gutter, paint);
		print_places(out, places, places_in(diag, message, other, places), gutter, paint);
	}
	for (size_t i = 0; i < message->note_count; i++)
		fprintf(out, " %*s %s=%s %s\n", gutter, "", paint->gutter, paint->reset, message->notes[i]);
}

static void print_human(const struct pp_diag *diag, const struct pp_message *message, FILE *out,
                        const struct paint *paint)
{
	bool error = message->severity == PP_ERROR;
	fprintf(out, "%s%s[%s]%s: %s%s%s\n", error ? paint->error : paint->warning, error ? "error" : "warning",
	        message->code, paint->reset, paint->bold, message->summary, paint->reset);
	print_snippets(out, diag, message, paint);
}

/* ---- short and JSON forms -------------------------------------------------------------------- */

static void print_short(const struct pp_diag *diag, const struct pp_message *message, FILE *out)
{
	struct pp_span span = message->labels[0].span;
	const struct pp_source *source = pp_sources_find(diag->sources, span.start);
	if (source) {
		struct pp_position at = pp_source_position(source, span.start);
		fprintf(out, "%s:%u:%u: ", source->name, at.line, at.column);
	}
	fprintf(out, "%s: %s [%s]\n", message->severity == PP_ERROR ? "error" : "warning", message->summary, message->code);
}

static void json_place(struct pp_json *json, const struct pp_diag *diag, const struct label *label)
{
	const struct pp_source *source = pp_sources_find(diag->sources, label->span.start);
	if (!source)
		return;
	struct pp_position at = pp_source_position(source, label->span.start);
	pp_json_string(json, "file", source->name);
	pp_json_uint(json, "line", at.line);
	pp_json_uint(json, "column", at.column);
	pp_json_uint(json, "offset", label->span.start - source->base);
	pp_json_uint(json, "length", label->span.end - label->span.start);
}

static void print_json(const struct pp_diag *diag, const struct pp_message *message, FILE *out)
{
	struct pp_json json = pp_json_begin(out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.diagnostic/1");
	pp_json_string(&json, "severity", message->severity == PP_ERROR ? "error" : "warning");
	pp_json_string(&json, "code", message->code);
	pp_json_string(&json, "message", message->summary);
	json_place(&json, diag, &message->labels[0]);
	pp_json_open_array(&json, "labels");
	for (size_t i = 0; i < message->label_count; i++) {
		const struct label *label = &message->labels[i];
		if (!*label->text && !pp_sources_find(diag->sources, label->span.start))
			continue; /* a message without a position */
		pp_json_open_object(&json, NULL);
		json_place(&json, diag, label);
		pp_json_string(&json, "text", label->text);
		pp_json_close(&json);
	}
	pp_json_close(&json);
	pp_json_open_array(&json, "notes");
	for (size_t i = 0; i < message->note_count; i++)
		pp_json_string(&json, NULL, message->notes[i]);
	pp_json_close(&json);
	pp_json_close(&json);
	fputc('\n', out);
}

struct pp_first_error pp_diag_first_error(const struct pp_diag *diag)
{
	static const char help[] = "help: ", memory[] = "help: `memory <= ";
	struct pp_first_error first = {"", "", "", ""};
	for (size_t i = 0; i < diag->count; i++) {
		const struct pp_message *message = diag->items[i];
		if (message->severity != PP_ERROR)
			continue;
		first.code = message->code;
		first.summary = message->summary;
		for (size_t n = message->note_count; n-- > 0;) {
			if (strncmp(message->notes[n], help, sizeof help - 1) == 0)
				first.help = message->notes[n] + sizeof help - 1;
			if (strncmp(message->notes[n], memory, sizeof memory - 1) == 0)
				first.enough = message->notes[n] + sizeof help - 1;
		}
		break;
	}
	return first;
}

struct pp_message *pp_diag_first_message(const struct pp_diag *diag)
{
	for (size_t i = 0; i < diag->count; i++)
		if (diag->items[i]->severity == PP_ERROR)
			return diag->items[i];
	return NULL;
}

struct pp_diag *pp_diag_apart(const struct pp_diag *diag)
{
	struct pp_diag *apart = pp_diag_create(diag->arena, diag->sources);
	apart->warnings_are_errors = diag->warnings_are_errors;
	return apart;
}

void pp_diag_take(struct pp_diag *diag, struct pp_diag *apart)
{
	for (size_t i = 0; i < apart->count; i++) {
		struct pp_message *message = apart->items[i];
		bool warning = message->severity == PP_WARNING;
		if (warning && pp_diag_said(diag, message->code, message->labels[0].span))
			continue;
		if (warning)
			diag->warnings++;
		else if (++diag->errors > MOST_ERRORS) {
			diag->dropped++;
			continue;
		}
		*PP_PUSH(diag->arena, &diag->items, &diag->count, &diag->capacity, struct pp_message *) = message;
	}
	diag->errors += apart->dropped;
	diag->dropped += apart->dropped;
	apart->count = 0;
}

void pp_diag_print(const struct pp_diag *diag, FILE *out, enum pp_diag_format format, bool color)
{
	for (size_t i = 0; i < diag->count; i++) {
		switch (format) {
		case PP_DIAG_HUMAN:
			print_human(diag, diag->items[i], out, color ? &colors : &plain);
			break;
		case PP_DIAG_SHORT:
			print_short(diag, diag->items[i], out);
			break;
		case PP_DIAG_JSON:
			print_json(diag, diag->items[i], out);
			break;
		}
	}
	if (diag->dropped && format != PP_DIAG_JSON)
		fprintf(out, "%zu more errors are not shown\n", diag->dropped);
}
