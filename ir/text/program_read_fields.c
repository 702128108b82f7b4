/* Values of table lines. requires: a scanner within a line. ensures: a field is stored only after its syntax and range
 * were checked; a message points at the word that is wrong. */
#include "program_reader.h"

#include "ir/str.h"

void *pp_list_push(struct pp_arena *arena, struct pp_list *list, size_t size)
{
	return pp_arena_push(arena, &list->items, &list->count, &list->capacity, size);
}

struct pp_message *pp_expected(struct pp_reader *reader, struct pp_word found, const char *expected)
{
	return pp_error(reader->diag, "E1003", pp_scan_span(&reader->scan, found), "expected %s, found %s", expected,
	                pp_word_show(reader->arena, found));
}

bool pp_reader_repeats(struct pp_reader *reader, struct pp_span span, const char *cause)
{
	for (size_t i = 0; i < reader->cause_count; i++) {
		struct pp_cause *known = &reader->causes[i];
		if (strcmp(known->text, cause) != 0)
			continue;
		if (known->more < PP_READER_LINES)
			known->lines[known->more] = pp_source_position(reader->scan.source, span.start).line;
		known->more++;
		return true;
	}
	return false;
}

void pp_reader_note_repeats(struct pp_reader *reader)
{
	for (size_t i = 0; i < reader->cause_count; i++) {
		const struct pp_cause *cause = &reader->causes[i];
		const char *lines = "";
		for (uint64_t k = 0; k < cause->more && k < PP_READER_LINES; k++)
			lines = pp_arena_printf(reader->arena, "%s%s%u", lines, k ? ", " : "", cause->lines[k]);
		if (cause->more)
			pp_note(cause->message, "%llu more line%s %s: %s%s", (unsigned long long)cause->more,
			        cause->more == 1 ? " names" : "s name", cause->text, lines,
			        cause->more > PP_READER_LINES ? ", ..." : "");
	}
}

void pp_reader_remember(struct pp_reader *reader, const char *cause, struct pp_message *message)
{
	if (reader->cause_count < PP_READER_MOST_ERRORS)
		reader->causes[reader->cause_count++] =
		    (struct pp_cause){.text = pp_arena_copy(reader->arena, cause, strlen(cause)), .message = message};
}

void pp_reader_fault(struct pp_reader *reader, struct pp_span span, const struct pp_fault *fault)
{
	if (fault->cause[0] && pp_reader_repeats(reader, span, fault->cause))
		return;
	struct pp_message *message = pp_error(reader->diag, fault->code, span, "%s", fault->text);
	if (fault->help[0])
		pp_help(message, "%s", fault->help);
	if (fault->cause[0])
		pp_reader_remember(reader, fault->cause, message);
}

void pp_unknown_word(struct pp_reader *reader, struct pp_word word, const char *what, const char *const *known,
                     uint32_t count)
{
	struct pp_message *message = pp_error(reader->diag, "E1002", pp_scan_span(&reader->scan, word), "unknown %s %s",
	                                      what, pp_word_show(reader->arena, word));
	const char *nearest =
	    word.length < 64 ? pp_nearest(pp_arena_copy(reader->arena, word.text, word.length), known, count) : NULL;
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
}

bool pp_read_line_end(struct pp_reader *reader)
{
	struct pp_word word = pp_scan_word(&reader->scan);
	if (word.length == 0)
		return true;
	pp_expected(reader, word, "the end of the line");
	return false;
}

bool pp_read_number_word(struct pp_reader *reader, struct pp_word word, char letter, const char *expected,
                         uint32_t *value)
{
	uint32_t skip = letter && word.length && word.text[0] == letter;
	uint64_t number;
	if (!pp_word_uint(word.text + skip, word.length - skip, &number)) {
		pp_expected(reader, word, expected);
		return false;
	}
	if (number >= PP_NULL) {
		pp_error(reader->diag, "E1004", pp_scan_span(&reader->scan, word), "%s is too large: at most %u",
		         pp_word_show(reader->arena, word), PP_NULL - 1);
		return false;
	}
	*value = (uint32_t)number;
	return true;
}

int pp_read_name_word(struct pp_reader *reader, struct pp_word word, const char *const *names, uint32_t count,
                      const char *expected)
{
	for (uint32_t i = 0; i < count; i++)
		if (pp_word_is(word, names[i]))
			return (int)i;
	struct pp_message *message = pp_expected(reader, word, expected);
	const char *nearest =
	    word.length < 64 ? pp_nearest(pp_arena_copy(reader->arena, word.text, word.length), names, count) : NULL;
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	return -1;
}

void pp_no_rank(struct pp_reader *reader, struct pp_word word, uint64_t rank)
{
	static const char cause[] = "a rank that is not there"; /* as program_check.c puts it */
	struct pp_span span = pp_scan_span(&reader->scan, word);
	if (pp_reader_repeats(reader, span, cause))
		return;
	pp_reader_remember(reader, cause,
	                   pp_error(reader->diag, "E1005", span, "there is no rank %llu: `grid` says %u, so 0..%u",
	                            (unsigned long long)rank, reader->program->ranks, reader->program->ranks - 1));
}

/* ---- slots, payloads, shapes ----------------------------------------------------------------- */

static bool slot_class_mismatch(struct pp_reader *reader, uint32_t rank, struct pp_word word, uint32_t slot)
{
	struct pp_span span = pp_scan_span(&reader->scan, word);
	const struct pp_rank *owner = &reader->program->rank[rank];
	char cause[64];
	if (slot >= owner->slot_count)
		snprintf(cause, sizeof cause, "a slot that rank %u does not have", rank);
	else
		snprintf(cause, sizeof cause, "slot %u of rank %u as another class", slot, rank);
	if (pp_reader_repeats(reader, span, cause))
		return false;
	if (slot >= owner->slot_count) {
		struct pp_message *message =
		    pp_error(reader->diag, "E1005", span, "rank %u has no slot %s", rank, pp_word_show(reader->arena, word));
		pp_reader_remember(reader, cause, message);
		if (owner->slot_count)
			pp_help(message, "its slots are 0..%u; declare more with `slot %u CLASS.NUMBER bytes N`",
			        owner->slot_count - 1, rank);
		else
			pp_help(message, "declare it before the program: `slot %u %.*s bytes N`", rank, (int)word.length,
			        word.text);
		return false;
	}
	struct pp_message *message =
	    pp_error(reader->diag, "E1006", span, "slot %u of rank %u is of class %s, not %s", slot, rank,
	             pp_slot_class_name[owner->slots[slot].class], pp_word_show(reader->arena, word));
	pp_reader_remember(reader, cause, message);
	pp_help(message, "write `%s.%u`, or name another slot", pp_slot_class_name[owner->slots[slot].class], slot);
	return false;
}

bool pp_read_slot_word(struct pp_reader *reader, uint32_t rank, struct pp_word word, uint32_t *slot)
{
	if (word.length == 1 && word.text[0] == '-') {
		*slot = PP_NULL;
		return true;
	}
	const char *dot = memchr(word.text, '.', word.length);
	uint64_t number;
	if (!dot || !pp_word_uint(dot + 1, (uint32_t)(word.text + word.length - dot - 1), &number)) {
		pp_expected(reader, word, "a slot such as stash.7, or `-` for none");
		return false;
	}
	const struct pp_rank *owner = &reader->program->rank[rank];
	struct pp_word class = {word.text, (uint32_t)(dot - word.text)};
	if (number < owner->slot_count && pp_word_is(class, pp_slot_class_name[owner->slots[number].class])) {
		*slot = (uint32_t)number;
		return true;
	}
	if (pp_read_name_word(reader, class, pp_slot_class_name, PP_SLOT_CLASS_COUNT,
	                      "a slot class: recv, out, stash, aux, weight, grad, …") < 0)
		return false;
	return slot_class_mismatch(reader, rank, word, number < PP_NULL ? (uint32_t)number : PP_NULL);
}

/* Splits dtype*rest. */
static bool split_dtype(struct pp_reader *reader, struct pp_word word, const char *expected, uint8_t *dtype,
                        struct pp_word *rest)
{
	const char *star = memchr(word.text, '*', word.length);
	if (!star) {
		pp_expected(reader, word, expected);
		return false;
	}
	struct pp_word name = {word.text, (uint32_t)(star - word.text)};
	int found = pp_read_name_word(reader, name, pp_dtype_name, PP_DTYPE_COUNT, "a dtype: f32, bf16, f64 or i32");
	if (found < 0)
		return false;
	*dtype = (uint8_t)found;
	*rest = (struct pp_word){star + 1, word.length - name.length - 1};
	return true;
}

static bool read_extent(struct pp_reader *reader, struct pp_word whole, struct pp_word digits, const char *expected,
                        uint32_t *value)
{
	uint64_t number;
	if (!pp_word_uint(digits.text, digits.length, &number)) {
		pp_expected(reader, whole, expected);
		return false;
	}
	*value = (uint32_t)number;
	if (number <= UINT32_MAX)
		return true;
	pp_error(reader->diag, "E1004", pp_scan_span(&reader->scan, whole), "%s is too large: at most 4294967295 elements",
	         pp_word_show(reader->arena, whole));
	return false;
}

bool pp_read_payload_word(struct pp_reader *reader, struct pp_word word, uint8_t *dtype, uint32_t *count)
{
	static const char expected[] = "a payload such as f32*4096";
	struct pp_word rest;
	return split_dtype(reader, word, expected, dtype, &rest) && read_extent(reader, word, rest, expected, count);
}

static bool read_shape(struct pp_reader *reader, const struct pp_field *field, void *record, struct pp_word word)
{
	static const char expected[] = "a shape such as f32*64 or f32*64x16";
	struct pp_word rest;
	uint32_t *shape = pp_member_u32(record, field->offset);
	if (!split_dtype(reader, word, expected, pp_member_u8(record, field->second), &rest))
		return false;
	const char *cross = memchr(rest.text, 'x', rest.length);
	struct pp_word rows = {rest.text, cross ? (uint32_t)(cross - rest.text) : rest.length};
	shape[1] = 1;
	if (field->third)
		*pp_member_u8(record, field->third) = cross ? 2 : 1;
	if (!read_extent(reader, word, rows, expected, &shape[0]))
		return false;
	return !cross ||
	       read_extent(reader, word, (struct pp_word){cross + 1, rest.length - rows.length - 1}, expected, &shape[1]);
}

static bool read_base(struct pp_reader *reader, const struct pp_field *field, void *record, uint32_t rank,
                      struct pp_word word)
{
	static const char expected[] = "a base: in, aux, out, stash, dout, din, work, loss, weight.N or grad.N";
	const char *dot = memchr(word.text, '.', word.length);
	struct pp_word name = {word.text, dot ? (uint32_t)(dot - word.text) : word.length};
	int base = pp_read_name_word(reader, name, pp_base_name, PP_BASE_COUNT, expected);
	if (base < 0)
		return false;
	*pp_member_u8(record, field->offset) = (uint8_t)base;
	bool slotted = base == PP_BASE_WEIGHT || base == PP_BASE_GRAD;
	if (slotted != (dot != NULL)) {
		pp_expected(reader, word, expected);
		return false;
	}
	return !slotted || pp_read_slot_word(reader, rank, word, pp_member_u32(record, field->second));
}

/* 0,3-5 */
static bool read_ranks(struct pp_reader *reader, const struct pp_field *field, void *record, struct pp_word word)
{
	struct pp_list list = {0};
	const char *at = word.text, *end = word.text + word.length;
	while (at < end) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		const char *stop = comma ? comma : end;
		const char *dash = memchr(at, '-', (size_t)(stop - at));
		uint64_t first, last;
		bool ok = pp_word_uint(at, (uint32_t)((dash ? dash : stop) - at), &first);
		last = first;
		if (ok && dash)
			ok = pp_word_uint(dash + 1, (uint32_t)(stop - dash - 1), &last);
		if (!ok || last < first || (comma && comma + 1 == end)) {
			pp_expected(reader, word, "ranks such as 0,3-5");
			return false;
		}
		if (last >= reader->program->ranks) {
			pp_no_rank(reader, word, last);
			return false;
		}
		if ((reader->members += last - first + 1) > PP_MOST_MEMBERS) {
			pp_error(reader->diag, "E1004", pp_scan_span(&reader->scan, word), "groups list over %d ranks altogether",
			         PP_MOST_MEMBERS);
			return false;
		}
		for (uint64_t rank = first; rank <= last; rank++)
			*(uint32_t *)pp_list_push(reader->arena, &list, sizeof(uint32_t)) = (uint32_t)rank;
		at = comma ? comma + 1 : end;
	}
	*pp_member_ranks(record, field->offset) = list.items;
	*pp_member_u32(record, field->second) = (uint32_t)list.count;
	return true;
}

/* ---- one value ------------------------------------------------------------------------------- */

static bool all_digits(struct pp_word word)
{
	for (uint32_t i = 0; i < word.length; i++)
		if (word.text[i] < '0' || word.text[i] > '9')
			return false;
	return word.length > 0;
}

static bool read_whole(struct pp_reader *reader, struct pp_word word, uint64_t most, uint64_t *value)
{
	if (!all_digits(word)) {
		pp_expected(reader, word, "a whole number");
		return false;
	}
	if (pp_word_uint(word.text, word.length, value) && *value <= most)
		return true;
	pp_error(reader->diag, "E1004", pp_scan_span(&reader->scan, word), "%s is too large: at most %llu",
	         pp_word_show(reader->arena, word), (unsigned long long)most);
	return false;
}

static bool read_text(struct pp_reader *reader, struct pp_word word, const char **text)
{
	if (word.length == 0 || word.text[0] != '"') {
		pp_expected(reader, word, "a text in double quotes");
		return false;
	}
	*text = pp_word_string(reader->arena, word);
	if (*text)
		return true;
	struct pp_message *message = pp_error(reader->diag, "E1009", pp_scan_span(&reader->scan, word),
	                                      "text is not closed, or holds an unknown escape");
	pp_help(message, "close it with `\"`; escapes are \\\" \\\\ \\n \\t \\xHH");
	return false;
}

/* F, B, I, W, and R where it is given. */
static bool read_phases(struct pp_reader *reader, const struct pp_field *field, void *record, struct pp_word word)
{
	uint64_t *values = pp_member_u64(record, field->offset);
	for (unsigned phase = 0; phase < PP_PHASE_R; phase++) {
		if (phase)
			word = pp_scan_word(&reader->scan);
		if (!read_whole(reader, word, UINT64_MAX, &values[phase]))
			return false;
	}
	struct pp_scan ahead = reader->scan;
	values[PP_PHASE_R] = 0;
	word = pp_scan_word(&ahead);
	if (!all_digits(word))
		return true;
	reader->scan = ahead;
	return read_whole(reader, word, UINT64_MAX, &values[PP_PHASE_R]);
}

static bool read_index(struct pp_reader *reader, const struct pp_field *field, void *record, struct pp_word word)
{
	if (field->nullable && pp_word_is(word, "-")) {
		*pp_member_u32(record, field->offset) = PP_NULL;
		return true;
	}
	const char *name = pp_bound_name[field->bound];
	const char *expected = field->letter ? pp_arena_printf(reader->arena, "a %s such as %c0", name, field->letter)
	                                     : pp_arena_printf(reader->arena, "the number of a %s", name);
	return pp_read_number_word(reader, word, field->letter, expected, pp_member_u32(record, field->offset));
}

static bool read_enum(struct pp_reader *reader, const struct pp_field *field, void *record, struct pp_word word)
{
	char *expected = pp_arena_printf(reader->arena, "%s", field->names[0]);
	for (uint32_t i = 1; i < field->name_count; i++)
		expected = pp_arena_printf(reader->arena, "%s%s%s", expected, i + 1 < field->name_count ? ", " : " or ",
		                           field->names[i]);
	int found = pp_read_name_word(reader, word, field->names, field->name_count, expected);
	if (found >= 0)
		*pp_member_u8(record, field->offset) = (uint8_t)found;
	return found >= 0;
}

static bool read_number(struct pp_reader *reader, struct pp_word word, double *value)
{
	if (pp_word_number(word, value))
		return true;
	pp_expected(reader, word, "a number");
	return false;
}

static bool read_value(struct pp_reader *reader, const struct pp_field *field, void *record, uint32_t rank,
                       struct pp_word word)
{
	uint64_t whole = 0;
	switch (field->kind) {
	case PP_FIELD_U8:
		if (!read_whole(reader, word, UINT8_MAX, &whole))
			return false;
		*pp_member_u8(record, field->offset) = (uint8_t)whole;
		return true;
	case PP_FIELD_U32:
		if (!read_whole(reader, word, UINT32_MAX, &whole))
			return false;
		*pp_member_u32(record, field->offset) = (uint32_t)whole;
		return true;
	case PP_FIELD_PLACE:
		*pp_member_flag(record, field->second) = true;
		return read_whole(reader, word, UINT64_MAX, pp_member_u64(record, field->offset));
	case PP_FIELD_U64:
		return read_whole(reader, word, UINT64_MAX, pp_member_u64(record, field->offset));
	case PP_FIELD_NUMBER:
		return read_number(reader, word, pp_member_number(record, field->offset));
	case PP_FIELD_NAME:
		return read_enum(reader, field, record, word);
	case PP_FIELD_INDEX:
		return read_index(reader, field, record, word);
	case PP_FIELD_TEXT:
		return read_text(reader, word, pp_member_text(record, field->offset));
	case PP_FIELD_WORD:
		*pp_member_text(record, field->offset) = pp_arena_copy(reader->arena, word.text, word.length);
		return true;
	case PP_FIELD_PAYLOAD:
		return pp_read_payload_word(reader, word, pp_member_u8(record, field->second),
		                            pp_member_u32(record, field->offset));
	case PP_FIELD_SHAPE:
		return read_shape(reader, field, record, word);
	case PP_FIELD_PHASES:
		return read_phases(reader, field, record, word);
	case PP_FIELD_RANKS:
		return read_ranks(reader, field, record, word);
	case PP_FIELD_SLOT:
		return pp_read_slot_word(reader, rank, word, pp_member_u32(record, field->offset));
	case PP_FIELD_BASE:
		return read_base(reader, field, record, rank, word);
	case PP_FIELD_FLAG:
		*pp_member_flag(record, field->offset) = true;
		return true;
	}
	return false;
}

/* ---- a line ---------------------------------------------------------------------------------- */

static bool read_and_check(struct pp_reader *reader, enum pp_record_kind kind, const struct pp_field *field,
                           void *record, uint32_t rank, struct pp_word word)
{
	struct pp_fault fault;
	if (kind == PP_RECORD_USE && field->kind == PP_FIELD_SLOT)
		rank = pp_use_rank(reader->program, record);
	if (!read_value(reader, field, record, rank, word))
		return false;
	if (pp_check_field(reader->program, rank, field, record, &fault))
		return true;
	pp_reader_fault(reader, pp_scan_span(&reader->scan, word), &fault);
	return false;
}

static int find_key(const struct pp_record *shape, struct pp_word word)
{
	for (uint32_t i = 0; i < shape->field_count; i++)
		if (shape->fields[i].key && *shape->fields[i].key && pp_word_is(word, shape->fields[i].key))
			return (int)i;
	return -1;
}

static void unknown_key(struct pp_reader *reader, const struct pp_record *shape, struct pp_word word)
{
	const char **keys = PP_NEW_ARRAY(reader->arena, const char *, shape->field_count);
	uint32_t count = 0;
	for (uint32_t i = 0; i < shape->field_count; i++)
		if (shape->fields[i].key && *shape->fields[i].key)
			keys[count++] = shape->fields[i].key;
	pp_unknown_word(reader, word, pp_arena_printf(reader->arena, "word in `%s`:", shape->word), keys, count);
}

static bool read_keyed(struct pp_reader *reader, enum pp_record_kind kind, void *record, uint32_t rank,
                       struct pp_word key, uint32_t *seen)
{
	const struct pp_record *shape = &pp_record_table[kind];
	int found = find_key(shape, key);
	if (found < 0) {
		unknown_key(reader, shape, key);
		return false;
	}
	if (*seen >> found & 1) {
		pp_error(reader->diag, "E1007", pp_scan_span(&reader->scan, key), "%s is given twice in this line",
		         pp_word_show(reader->arena, key));
		return false;
	}
	*seen |= 1u << found;
	const struct pp_field *field = &shape->fields[found];
	struct pp_word value = field->kind == PP_FIELD_FLAG ? key : pp_scan_word(&reader->scan);
	return read_and_check(reader, kind, field, record, rank, value);
}

static bool check_required(struct pp_reader *reader, const struct pp_record *shape, uint32_t seen)
{
	for (uint32_t i = 0; i < shape->field_count; i++) {
		const struct pp_field *field = &shape->fields[i];
		if (!field->required || !*field->key || (seen >> i & 1))
			continue;
		pp_error(reader->diag, "E1008", pp_scan_line_span(&reader->scan), "`%s` wants `%s`", shape->word, field->key);
		return false;
	}
	return true;
}

bool pp_read_fields(struct pp_reader *reader, enum pp_record_kind kind, void *record, uint32_t rank, bool block)
{
	const struct pp_record *shape = &pp_record_table[kind];
	uint32_t seen = 0;
	for (uint32_t i = 0; i < shape->field_count; i++)
		if (shape->fields[i].key && !*shape->fields[i].key &&
		    !read_and_check(reader, kind, &shape->fields[i], record, rank, pp_scan_word(&reader->scan)))
			return false;
	for (;;) {
		struct pp_word key = pp_scan_word(&reader->scan);
		if (block && pp_word_is(key, "{"))
			break;
		if (block && key.length == 0) {
			pp_expected(reader, key, "`{`");
			return false;
		}
		if (key.length == 0)
			break;
		if (!read_keyed(reader, kind, record, rank, key, &seen))
			return false;
	}
	if (!check_required(reader, shape, seen) || (block && !pp_read_line_end(reader)))
		return false;
	struct pp_fault fault;
	if (pp_check_record(reader->program, kind, record, &fault))
		return true;
	pp_reader_fault(reader, pp_scan_line_span(&reader->scan), &fault);
	return false;
}
