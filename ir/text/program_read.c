/* Reading `.pps`: the lines outside blocks. requires: a registered source. ensures: a program whose indices are all in
 * range (program_check.h), or NULL after messages; an error costs its line, reading goes on at the next; memory is
 * taken for what the text holds, never for a number that it names (65,536 ranks are the most, checked). */
#include "program_reader.h"

#include "ir/program_text.h"
#include "ir/str.h"

/* ---- single lines ---------------------------------------------------------------------------- */

static void read_single(struct pp_reader *reader, enum pp_record_kind kind, void *record, bool *seen)
{
	if (*seen) {
		pp_error(reader->diag, "E1007", pp_scan_line_span(&reader->scan), "there is a second `%s` line",
		         pp_record_table[kind].word);
		return;
	}
	*seen = true;
	pp_read_fields(reader, kind, record, 0, false);
}

static void read_grid(struct pp_reader *reader)
{
	struct pp_program *program = reader->program;
	if (reader->grid_seen) {
		pp_error(reader->diag, "E1007", pp_scan_line_span(&reader->scan), "there is a second `grid` line");
		return;
	}
	if (!pp_read_fields(reader, PP_RECORD_GRID, program, 0, false))
		return;
	reader->grid_seen = true;
	program->rank = PP_NEW_ARRAY(reader->arena, struct pp_rank, program->ranks);
	reader->slots = PP_NEW_ARRAY(reader->arena, struct pp_list, program->ranks);
	reader->device_seen = PP_NEW_ARRAY(reader->arena, bool, program->ranks);
}

/* ---- numbered tables ------------------------------------------------------------------------- */

/* The number at the head of a table line must be the next one. */
static bool read_head(struct pp_reader *reader, enum pp_record_kind kind, size_t next)
{
	const struct pp_record *shape = &pp_record_table[kind];
	struct pp_word word = pp_scan_word(&reader->scan);
	uint32_t number;
	const char *expected =
	    pp_arena_printf(reader->arena, "the number of this %s: %c%zu", shape->word, shape->letter, next);
	if (!pp_read_number_word(reader, word, shape->letter, expected, &number))
		return false;
	if (number == next || reader->misnumbered[kind])
		return true;
	reader->misnumbered[kind] = true;
	pp_error(reader->diag, "E1007", pp_scan_span(&reader->scan, word),
	         "%s lines are numbered in order: expected %c%zu, found %s", shape->word, shape->letter, next,
	         pp_word_show(reader->arena, word));
	return false;
}

/* Read one record of a numbered table. The record stays in the table after an error, so that what refers to it does
 * not fail too. NULL: the head was wrong. */
static void *read_record(struct pp_reader *reader, enum pp_record_kind kind, struct pp_list *list, bool block, bool *ok)
{
	*ok = read_head(reader, kind, list->count);
	void *record = pp_list_push(reader->arena, list, pp_record_table[kind].size);
	pp_record_reset(kind, record);
	*ok = pp_read_fields(reader, kind, record, 0, block) && *ok;
	return record;
}

static void read_hyper(struct pp_reader *reader)
{
	bool ok;
	read_record(reader, PP_RECORD_HYPER, &reader->hypers, false, &ok);
	reader->program->train.hypers = reader->hypers.items;
	reader->program->train.hyper_count = (uint32_t)reader->hypers.count;
}

static void read_stage(struct pp_reader *reader)
{
	bool ok;
	struct pp_stage *stage = read_record(reader, PP_RECORD_STAGE, &reader->stages, false, &ok);
	if (!ok)
		stage->rank = 0;
	reader->program->stages = reader->stages.items;
	reader->program->stage_count = (uint32_t)reader->stages.count;
}

static void read_tensor(struct pp_reader *reader)
{
	bool ok;
	struct pp_tensor *tensor = read_record(reader, PP_RECORD_TENSOR, &reader->tensors, false, &ok);
	if (!tensor->name)
		tensor->name = "";
	*(struct pp_span *)pp_list_push(reader->arena, &reader->tensor_spans, sizeof(struct pp_span)) =
	    pp_scan_line_span(&reader->scan);
	reader->program->tensors = reader->tensors.items;
	reader->program->tensor_count = (uint32_t)reader->tensors.count;
}

static void read_channel(struct pp_reader *reader)
{
	bool ok;
	read_record(reader, PP_RECORD_CHANNEL, &reader->channels, false, &ok);
	reader->program->channels = reader->channels.items;
	reader->program->channel_count = (uint32_t)reader->channels.count;
}

static void read_group(struct pp_reader *reader)
{
	bool ok;
	read_record(reader, PP_RECORD_GROUP, &reader->groups, false, &ok);
	reader->program->groups = reader->groups.items;
	reader->program->group_count = (uint32_t)reader->groups.count;
}

static void read_use(struct pp_reader *reader)
{
	struct pp_use *use = pp_list_push(reader->arena, &reader->uses, sizeof(struct pp_use));
	pp_record_reset(PP_RECORD_USE, use);
	pp_read_fields(reader, PP_RECORD_USE, use, 0, false);
	reader->program->uses = reader->uses.items;
	reader->program->use_count = (uint32_t)reader->uses.count;
}

static bool read_rank_number(struct pp_reader *reader, uint32_t *rank)
{
	struct pp_word word = pp_scan_word(&reader->scan);
	if (!pp_read_number_word(reader, word, 0, "the number of a rank", rank))
		return false;
	if (*rank < reader->program->ranks)
		return true;
	pp_no_rank(reader, word, *rank);
	return false;
}

static void read_device(struct pp_reader *reader)
{
	uint32_t rank;
	if (!read_rank_number(reader, &rank))
		return;
	if (reader->device_seen[rank])
		pp_error(reader->diag, "E1007", pp_scan_line_span(&reader->scan), "there is a second `device` line for rank %u",
		         rank);
	else if (pp_read_fields(reader, PP_RECORD_DEVICE, &reader->program->rank[rank], 0, false))
		reader->device_seen[rank] = true;
}

/* ---- slots ----------------------------------------------------------------------------------- */

enum { MOST_RANGE = 256 }; /* slots of one line: memory stays in proportion to the text */

/* class.N or class.N..M, N being the next number of this rank. */
static bool read_slot_range(struct pp_reader *reader, uint32_t rank, uint8_t *class, uint32_t *count)
{
	static const char expected[] = "class.number or class.first..last, such as stash.4..7";
	struct pp_word word = pp_scan_word(&reader->scan);
	const char *end = word.text + word.length, *dot = memchr(word.text, '.', word.length);
	if (!dot) {
		pp_expected(reader, word, expected);
		return false;
	}
	struct pp_word name = {word.text, (uint32_t)(dot - word.text)};
	int found = pp_read_name_word(reader, name, pp_slot_class_name, PP_SLOT_CLASS_COUNT,
	                              "a slot class: recv, out, stash, aux, weight, grad, …");
	if (found < 0)
		return false;
	*class = (uint8_t)found;
	const char *stop = dot + 1;
	while (stop < end && *stop != '.')
		stop++;
	uint64_t first, last, next = reader->slots[rank].count;
	bool ok = pp_word_uint(dot + 1, (uint32_t)(stop - dot - 1), &first);
	last = first;
	if (ok && stop < end)
		ok = end - stop > 2 && stop[1] == '.' && pp_word_uint(stop + 2, (uint32_t)(end - stop - 2), &last) &&
		     last >= first;
	if (!ok) {
		pp_expected(reader, word, expected);
		return false;
	}
	if (first == next && last - first < MOST_RANGE) {
		*count = (uint32_t)(last - first + 1);
		return true;
	}
	struct pp_span span = pp_scan_span(&reader->scan, word);
	if (first == next) {
		pp_error(reader->diag, "E1004", span, "a slot line makes at most 256 slots (rank %u, from %llu)", rank,
		         (unsigned long long)next);
		return false;
	}
	const char *cause = pp_arena_printf(reader->arena, "slots of rank %u out of order", rank);
	if (!pp_reader_repeats(reader, span, cause))
		pp_reader_remember(reader, cause,
		                   pp_error(reader->diag, "E1007", span,
		                            "slots of rank %u are numbered in order: expected number %llu", rank,
		                            (unsigned long long)next));
	return false;
}

static void push_slots(struct pp_reader *reader, uint32_t rank, const struct pp_slot *slot, uint32_t count)
{
	struct pp_list *list = &reader->slots[rank];
	for (uint32_t i = 0; i < count; i++)
		*(struct pp_slot *)pp_list_push(reader->arena, list, sizeof *slot) = *slot;
	reader->program->rank[rank].slots = list->items;
	reader->program->rank[rank].slot_count = (uint32_t)list->count;
}

static void read_slot(struct pp_reader *reader)
{
	uint32_t rank, count = 1;
	struct pp_slot slot;
	pp_record_reset(PP_RECORD_SLOT, &slot);
	if (!read_rank_number(reader, &rank) || !read_slot_range(reader, rank, &slot.class, &count))
		return;
	bool ok = pp_read_fields(reader, PP_RECORD_SLOT, &slot, rank, false);
	if (ok && slot.placed && count > 1) {
		pp_error(reader->diag, "E1003", pp_scan_line_span(&reader->scan),
		         "`at` places one slot: write one line for each of these %u", count);
		ok = false;
	}
	if (!ok)
		slot = (struct pp_slot){.class = slot.class, .tensor = PP_NULL};
	push_slots(reader, rank, &slot, count);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Skip the lines of a block whose head was wrong. */
static void skip_block(struct pp_reader *reader)
{
	unsigned depth = 1;
	while (depth && pp_scan_line(&reader->scan))
		for (struct pp_word word = pp_scan_word(&reader->scan); word.length; word = pp_scan_word(&reader->scan))
			depth += pp_word_is(word, "{") ? 1u : pp_word_is(word, "}") ? -1u : 0u;
}

static bool line_opens_block(const struct pp_reader *reader)
{
	struct pp_scan again = reader->scan;
	again.at = again.line;
	bool opens = false;
	for (struct pp_word word = pp_scan_word(&again); word.length; word = pp_scan_word(&again))
		opens = pp_word_is(word, "{");
	return opens;
}

static void read_body(struct pp_reader *reader)
{
	bool ok;
	struct pp_body *body = read_record(reader, PP_RECORD_BODY, &reader->bodies, true, &ok);
	struct pp_program *program = reader->program;
	struct pp_span opened = pp_scan_line_span(&reader->scan);
	*(struct pp_span *)pp_list_push(reader->arena, &reader->body_spans, sizeof opened) = opened;
	program->bodies = reader->bodies.items;
	program->body_count = (uint32_t)reader->bodies.count;
	if (!ok) {
		if (line_opens_block(reader))
			skip_block(reader);
		return;
	}
	uint32_t *owner = &program->stages[body->stage].body[body->phase];
	if (*owner == PP_NULL)
		*owner = program->body_count - 1;
	pp_read_body_block(reader, body, opened);
}

static bool read_brace(struct pp_reader *reader)
{
	struct pp_word word = pp_scan_word(&reader->scan);
	if (pp_word_is(word, "{"))
		return pp_read_line_end(reader);
	pp_expected(reader, word, "`{`");
	return false;
}

static void read_rank_block(struct pp_reader *reader, struct pp_named_program *named, bool *seen)
{
	uint32_t rank;
	if (!read_rank_number(reader, &rank) || !read_brace(reader)) {
		if (line_opens_block(reader))
			skip_block(reader);
		return;
	}
	struct pp_span opened = pp_scan_line_span(&reader->scan);
	if (seen[rank]) {
		pp_error(reader->diag, "E1007", opened, "program %s has a second stream for rank %u", named->name, rank);
		skip_block(reader);
		return;
	}
	seen[rank] = true;
	pp_read_stream_block(reader, rank, &named->streams[rank], opened);
}

static void read_streams(struct pp_reader *reader, struct pp_named_program *named, struct pp_span opened)
{
	static const char *const known[] = {"rank"};
	bool *seen = PP_NEW_ARRAY(reader->arena, bool, reader->program->ranks);
	while (!pp_reader_full(reader) && pp_scan_line(&reader->scan)) {
		struct pp_word word = pp_scan_word(&reader->scan);
		if (pp_word_is(word, "}")) {
			pp_read_line_end(reader);
			return;
		}
		if (pp_word_is(word, "rank"))
			read_rank_block(reader, named, seen);
		else
			pp_unknown_word(reader, word, "word in `program` (expected `rank N {` or `}`):", known, 1);
	}
	if (!pp_reader_full(reader))
		pp_error(reader->diag, "E1008", opened, "program %s is never closed: `}` is missing", named->name);
}

static void read_program(struct pp_reader *reader)
{
	struct pp_program *program = reader->program;
	struct pp_word name = pp_scan_word(&reader->scan);
	if (name.length == 0 || pp_word_is(name, "{") || name.text[0] == '"')
		pp_expected(reader, name, "the name of the program, such as train");
	else if (reader->programs.count >= PP_MOST_PROGRAMS)
		pp_error(reader->diag, "E1004", pp_scan_line_span(&reader->scan), "there are over %d programs",
		         PP_MOST_PROGRAMS);
	else if (read_brace(reader)) {
		struct pp_named_program *named = pp_list_push(reader->arena, &reader->programs, sizeof *named);
		named->name = pp_arena_copy(reader->arena, name.text, name.length);
		named->streams = PP_NEW_ARRAY(reader->arena, struct pp_stream, program->ranks);
		program->programs = reader->programs.items;
		program->program_count = (uint32_t)reader->programs.count;
		read_streams(reader, named, pp_scan_line_span(&reader->scan));
		return;
	}
	if (line_opens_block(reader))
		skip_block(reader);
}

/* ---- source ---------------------------------------------------------------------------------- */

/* `source "gpt.pipe"`, then its lines, each after `| `. */
static void read_source(struct pp_reader *reader)
{
	struct pp_program *program = reader->program;
	struct pp_word word = pp_scan_word(&reader->scan);
	const char *name = pp_word_string(reader->arena, word);
	if (reader->source_seen)
		pp_error(reader->diag, "E1007", pp_scan_line_span(&reader->scan), "there is a second `source` line");
	else if (!name)
		pp_expected(reader, word, "the name of the source file in double quotes");
	reader->source_seen = true;
	pp_read_line_end(reader);
	struct pp_list text = {0};
	for (struct pp_scan before = reader->scan; pp_scan_line(&reader->scan); before = reader->scan) {
		if (*reader->scan.at != '|') {
			reader->scan = before;
			break;
		}
		struct pp_word line = pp_scan_rest(&reader->scan);
		uint32_t skip = line.length > 1 && line.text[1] == ' ' ? 2 : 1;
		for (uint32_t i = skip; i < line.length; i++)
			if (line.text[i])
				*(char *)pp_list_push(reader->arena, &text, 1) = line.text[i];
		*(char *)pp_list_push(reader->arena, &text, 1) = '\n';
	}
	*(char *)pp_list_push(reader->arena, &text, 1) = '\0';
	program->source_name = name;
	program->source_text = text.items;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void read_about(struct pp_reader *reader)
{
	read_single(reader, PP_RECORD_ABOUT, reader->program, &reader->about_seen);
}

static void read_cost(struct pp_reader *reader)
{
	read_single(reader, PP_RECORD_COST, &reader->program->cost, &reader->cost_seen);
}

static void read_train(struct pp_reader *reader)
{
	read_single(reader, PP_RECORD_TRAIN, &reader->program->train, &reader->train_seen);
}

static const struct {
	const char *word;
	void (*read)(struct pp_reader *);
	bool after_grid;
} lines[] = {
    {"about", read_about, false}, {"grid", read_grid, false},      {"device", read_device, true},
    {"cost", read_cost, false},   {"train", read_train, false},    {"hyper", read_hyper, false},
    {"stage", read_stage, true},  {"tensor", read_tensor, false},  {"slot", read_slot, true},
    {"use", read_use, true},      {"channel", read_channel, true}, {"group", read_group, true},
    {"body", read_body, true},    {"source", read_source, false},  {"program", read_program, true},
};
enum { LINE_COUNT = sizeof lines / sizeof lines[0] };

static void unknown_line(struct pp_reader *reader, struct pp_word word)
{
	for (unsigned op = 0; op < PP_OP_COUNT; op++)
		if (pp_word_is(word, pp_op_table[op].mnemonic)) {
			struct pp_message *message =
			    pp_error(reader->diag, "E1010", pp_scan_span(&reader->scan, word),
			             "instruction %s stands outside of a stream", pp_word_show(reader->arena, word));
			pp_help(message, "write it inside `program train {` and `rank N {`");
			return;
		}
	const char *known[LINE_COUNT];
	for (unsigned i = 0; i < LINE_COUNT; i++)
		known[i] = lines[i].word;
	pp_unknown_word(reader, word, "word", known, LINE_COUNT);
	if (line_opens_block(reader))
		skip_block(reader);
}

/* One line; false: nothing after it makes sense. */
static bool read_line(struct pp_reader *reader)
{
	struct pp_word word = pp_scan_word(&reader->scan);
	for (unsigned i = 0; i < LINE_COUNT; i++) {
		if (!pp_word_is(word, lines[i].word))
			continue;
		if (lines[i].after_grid && !reader->grid_seen) {
			struct pp_message *message = pp_error(reader->diag, "E1008", pp_scan_span(&reader->scan, word),
			                                      "`%s` comes before the `grid` line", lines[i].word);
			pp_help(message, "begin with `grid pp 4 microbatches 8`");
			return false;
		}
		lines[i].read(reader);
		return reader->grid_seen || lines[i].read != read_grid;
	}
	unknown_line(reader, word);
	return true;
}

static bool read_version(struct pp_reader *reader)
{
	uint64_t version = 0;
	bool line = pp_scan_line(&reader->scan);
	struct pp_word magic = line ? pp_scan_word(&reader->scan) : (struct pp_word){reader->scan.at, 0};
	struct pp_word number = line ? pp_scan_word(&reader->scan) : magic;
	if (!pp_word_is(magic, "pps") || !pp_word_uint(number.text, number.length, &version)) {
		struct pp_message *message =
		    pp_error(reader->diag, "E1001", pp_scan_span(&reader->scan, magic),
		             "this is no program text: it begins with %s", pp_word_show(reader->arena, magic));
		pp_help(message, "the first line of a .pps file is `pps 1`");
		return false;
	}
	if (version == 1)
		return pp_read_line_end(reader);
	struct pp_message *message =
	    pp_error(reader->diag, "E1001", pp_scan_span(&reader->scan, number), "this is version %s of the program text",
	             pp_word_show(reader->arena, number));
	pp_help(message, "this tool reads version 1");
	return false;
}

/* Messages of a channel that its line leaves out: the sends on it in the first program. */
static void count_messages(struct pp_program *program)
{
	uint32_t *sends = PP_NEW_ARRAY(program->arena, uint32_t, program->channel_count);
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		const struct pp_stream *stream = &program->programs[0].streams[rank];
		for (uint32_t i = 0; i < stream->count; i++)
			if (stream->items[i].op == PP_OP_SEND)
				sends[stream->items[i].a[0]]++;
	}
	for (uint32_t c = 0; c < program->channel_count; c++)
		if (program->channels[c].messages == PP_NULL)
			program->channels[c].messages = sends[c];
}

static bool finish(struct pp_reader *reader)
{
	struct pp_program *program = reader->program;
	struct pp_fault fault;
	uint32_t tensor, body;
	if (!reader->grid_seen && pp_diag_errors(reader->diag) == reader->errors_before)
		pp_help(pp_error(reader->diag, "E1008", PP_NO_SPAN, "%s has no `grid` line", reader->scan.source->name),
		        "write `grid pp 4 microbatches 8`");
	if (pp_diag_errors(reader->diag) != reader->errors_before)
		return false;
	if (!pp_check_tables(reader->arena, program, &tensor, &body, &fault)) {
		struct pp_span span = tensor != PP_NULL ? ((struct pp_span *)reader->tensor_spans.items)[tensor]
		                      : body != PP_NULL ? ((struct pp_span *)reader->body_spans.items)[body]
		                                        : PP_NO_SPAN;
		pp_reader_fault(reader, span, &fault);
		return false;
	}
	count_messages(program);
	return true;
}

struct pp_program *pp_program_read(struct pp_arena *arena, const struct pp_source *source, struct pp_diag *diag)
{
	struct pp_reader reader = {.arena = arena, .diag = diag, .program = PP_NEW(arena, struct pp_program)};
	reader.program->arena = arena;
	reader.errors_before = pp_diag_errors(diag);
	pp_scan_begin(&reader.scan, source);
	pp_record_reset(PP_RECORD_ABOUT, reader.program);
	pp_record_reset(PP_RECORD_GRID, reader.program);
	pp_record_reset(PP_RECORD_COST, &reader.program->cost);
	pp_record_reset(PP_RECORD_TRAIN, &reader.program->train);
	if (!read_version(&reader))
		return NULL;
	bool ok = true;
	while (ok && !pp_reader_full(&reader) && pp_scan_line(&reader.scan))
		ok = read_line(&reader);
	pp_reader_note_repeats(&reader);
	return ok && finish(&reader) ? reader.program : NULL;
}
