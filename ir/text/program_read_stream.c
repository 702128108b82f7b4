/* Streams: one instruction per line, by the signatures of ops.def. requires: the line after `rank N {`. */
#include "program_reader.h"

#include "ir/operands.h"

static enum pp_op find_op(struct pp_word word)
{
	for (unsigned op = 0; op < PP_OP_COUNT; op++) {
		const char *mnemonic = pp_op_table[op].mnemonic;
		if (mnemonic[0] == word.text[0] && pp_word_is(word, mnemonic))
			return (enum pp_op)op;
	}
	return PP_OP_COUNT;
}

/* "bwdw s0 m0 SLOT SLOT [SLOT]": what an op wants, for messages. */
static const char *usage(struct pp_arena *arena, enum pp_op op)
{
	char *text = pp_arena_printf(arena, "%s", pp_op_table[op].mnemonic);
	for (const char *letter = pp_op_table[op].signature; *letter; letter++) {
		const struct pp_operand *operand = pp_operand_of(*letter);
		switch (operand->kind) {
		case PP_OPERAND_NAME:
			text = pp_arena_printf(arena, "%s %s", text, operand->names[0]);
			break;
		case PP_OPERAND_INDEX:
			text = pp_arena_printf(arena, "%s %c0", text, operand->prefix);
			break;
		case PP_OPERAND_SLOT:
			text = pp_arena_printf(arena, operand->trailing ? "%s [SLOT]" : "%s SLOT", text);
			break;
		case PP_OPERAND_PAYLOAD:
			text = pp_arena_printf(arena, "%s f32*64", text);
			break;
		case PP_OPERAND_TEXT:
			text = pp_arena_printf(arena, "%s \"text\"", text);
			break;
		case PP_OPERAND_NONE:
			break;
		}
	}
	return text;
}

static bool read_text_operand(struct pp_reader *reader, struct pp_word word, const struct pp_operand *operand,
                              uint32_t *value)
{
	const char *text = pp_word_string(reader->arena, word);
	if (!text) {
		pp_expected(reader, word, operand->what);
		return false;
	}
	for (size_t i = reader->texts.count;
	     i-- > 0 && i + 64 > reader->texts.count;) /* a few recent ones: labels repeat */
		if (strcmp(((const char **)reader->texts.items)[i], text) == 0) {
			*value = (uint32_t)i;
			return true;
		}
	*value = (uint32_t)reader->texts.count;
	*(const char **)pp_list_push(reader->arena, &reader->texts, sizeof(const char *)) = text;
	reader->program->texts = reader->texts.items;
	reader->program->text_count = (uint32_t)reader->texts.count;
	return true;
}

static bool read_operand(struct pp_reader *reader, uint32_t rank, const struct pp_operand *operand, struct pp_word word,
                         struct pp_instr *instr)
{
	uint32_t *value = pp_member_u32(instr, operand->offset);
	int found;
	uint64_t number;
	switch (operand->kind) {
	case PP_OPERAND_NAME:
		found = pp_read_name_word(reader, word, operand->names, operand->name_count, operand->what);
		instr->sub = (uint8_t)(found < 0 ? 0 : found);
		return found >= 0;
	case PP_OPERAND_INDEX:
		if (word.length && word.text[0] == operand->prefix && pp_word_uint(word.text + 1, word.length - 1, &number) &&
		    number < PP_NULL) {
			*value = (uint32_t)number;
			return true;
		}
		if (word.length && word.text[0] == operand->prefix)
			return pp_read_number_word(reader, word, operand->prefix, operand->what, value);
		pp_expected(reader, word, operand->what);
		return false;
	case PP_OPERAND_SLOT:
		return pp_read_slot_word(reader, rank, word, value);
	case PP_OPERAND_PAYLOAD:
		return pp_read_payload_word(reader, word, &instr->dtype, value);
	case PP_OPERAND_TEXT:
		return read_text_operand(reader, word, operand, value);
	case PP_OPERAND_NONE:
		break;
	}
	return false;
}

static unsigned find_flag(struct pp_word word)
{
	for (unsigned flag = 0; flag < PP_FLAG_COUNT; flag++)
		if (pp_word_is(word, pp_flag_name[flag]))
			return 1u << flag;
	return 0;
}

static bool is_suffix(struct pp_word word)
{
	return word.length == 0 || word.text[0] == '@' || find_flag(word);
}

/* Words after the operands: flags, @N. */
static bool read_suffix(struct pp_reader *reader, struct pp_word word, struct pp_instr *instr, uint32_t *order)
{
	unsigned flag = find_flag(word);
	if (flag && !(instr->flags & flag)) {
		instr->flags |= (uint8_t)flag;
		return true;
	}
	uint64_t number;
	if (word.text[0] == '@' && pp_op_is_post((enum pp_op)instr->op) && *order == PP_NULL &&
	    pp_word_uint(word.text + 1, word.length - 1, &number) && number < PP_NULL) {
		*order = (uint32_t)number;
		return true;
	}
	if (word.text[0] == '@' && !pp_op_is_post((enum pp_op)instr->op))
		pp_error(reader->diag, "E1003", pp_scan_span(&reader->scan, word),
		         "only posts (send, recv, coll) stand in the global order: `%s` takes no `@N`",
		         pp_op_table[instr->op].mnemonic);
	else
		pp_help(pp_expected(reader, word, "the end of the instruction"), "operands are: %s",
		        usage(reader->arena, (enum pp_op)instr->op));
	return false;
}

/* Find the word of operand `wanted` of the current line again: for a message. */
static struct pp_span operand_span(struct pp_reader *reader, unsigned wanted)
{
	struct pp_span whole = pp_scan_line_span(&reader->scan);
	if (wanted == PP_NULL)
		return whole;
	struct pp_scan again = reader->scan;
	again.at = again.line;
	pp_scan_word(&again);
	struct pp_word word = pp_scan_word(&again);
	for (unsigned i = 0; i < wanted; i++)
		word = pp_scan_word(&again);
	return pp_scan_span(&again, word);
}

/* One instruction; false after a message. */
static bool read_instr(struct pp_reader *reader, uint32_t rank, struct pp_word mnemonic, struct pp_instr *instr,
                       uint32_t *order)
{
	enum pp_op op = find_op(mnemonic);
	if (op == PP_OP_COUNT) {
		const char *known[PP_OP_COUNT];
		for (unsigned i = 0; i < PP_OP_COUNT; i++)
			known[i] = pp_op_table[i].mnemonic;
		pp_unknown_word(reader, mnemonic, "instruction", known, PP_OP_COUNT);
		return false;
	}
	*instr = pp_instr_blank(op);
	for (const char *letter = pp_op_table[op].signature; *letter; letter++) {
		const struct pp_operand *operand = pp_operand_of(*letter);
		struct pp_scan ahead = reader->scan;
		struct pp_word word = pp_scan_word(&ahead);
		if (operand->trailing && is_suffix(word))
			break;
		reader->scan = ahead;
		if (!read_operand(reader, rank, operand, word, instr))
			return false;
	}
	for (struct pp_word word = pp_scan_word(&reader->scan); word.length; word = pp_scan_word(&reader->scan))
		if (!read_suffix(reader, word, instr, order))
			return false;
	struct pp_fault fault;
	if (pp_check_instr(reader->program, rank, instr, &fault))
		return true;
	pp_reader_fault(reader, operand_span(reader, fault.operand), &fault);
	return false;
}

/* Make room for one more in the three parallel arrays; `order` exists once a post carried @N. */
static void reserve(struct pp_reader *reader, struct pp_stream *stream, size_t *capacity)
{
	if (stream->count < *capacity)
		return;
	size_t wanted = *capacity ? *capacity * 2 : 64;
	stream->items = pp_arena_grow(reader->arena, stream->items, *capacity, wanted, sizeof *stream->items);
	stream->spans = pp_arena_grow(reader->arena, stream->spans, *capacity, wanted, sizeof *stream->spans);
	if (stream->order)
		stream->order = pp_arena_grow(reader->arena, stream->order, *capacity, wanted, sizeof *stream->order);
	*capacity = wanted;
}

static void set_order(struct pp_reader *reader, struct pp_stream *stream, size_t capacity, uint32_t order)
{
	if (!stream->order && order != PP_NULL) {
		stream->order = PP_NEW_ARRAY(reader->arena, uint32_t, capacity);
		for (uint32_t i = 0; i < stream->count; i++)
			stream->order[i] = PP_NULL;
	}
	if (stream->order)
		stream->order[stream->count] = order;
}

void pp_read_stream_block(struct pp_reader *reader, uint32_t rank, struct pp_stream *stream, struct pp_span opened)
{
	size_t capacity = 0;
	while (!pp_reader_full(reader) && pp_scan_line(&reader->scan)) {
		struct pp_word word = pp_scan_word(&reader->scan);
		if (word.text[0] == '}') {
			pp_read_line_end(reader);
			return;
		}
		uint32_t order = PP_NULL;
		reserve(reader, stream, &capacity);
		if (!read_instr(reader, rank, word, &stream->items[stream->count], &order))
			continue;
		set_order(reader, stream, capacity, order);
		stream->spans[stream->count++] = pp_scan_line_span(&reader->scan);
	}
	if (!pp_reader_full(reader))
		pp_error(reader->diag, "E1008", opened, "rank %u is never closed: `}` is missing", rank);
}
