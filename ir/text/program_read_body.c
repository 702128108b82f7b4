/* Bodies: registers, then instructions `op inputs -> outputs name=number`. requires: the line after `body … {`. */
#include "program_reader.h"

#include "ir/hash.h"

/* ---- register names -------------------------------------------------------------------------- */

static struct pp_name_slot *find_name(const struct pp_names *names, struct pp_word word)
{
	uint32_t at = (uint32_t)pp_hash_bytes(word.text, word.length) & (names->capacity - 1);
	while (names->slots[at].name && !pp_word_is(word, names->slots[at].name))
		at = (at + 1) & (names->capacity - 1);
	return &names->slots[at];
}

static void grow_names(struct pp_reader *reader, struct pp_names *names)
{
	struct pp_names larger = {.capacity = names->capacity ? names->capacity * 2 : 64, .count = names->count};
	larger.slots = PP_NEW_ARRAY(reader->arena, struct pp_name_slot, larger.capacity);
	for (uint32_t i = 0; i < names->capacity; i++) {
		const char *name = names->slots[i].name;
		if (name)
			*find_name(&larger, (struct pp_word){name, (uint32_t)strlen(name)}) = names->slots[i];
	}
	*names = larger;
}

static bool add_name(struct pp_reader *reader, struct pp_names *names, const char *name, uint32_t index)
{
	if (names->count * 2 >= names->capacity)
		grow_names(reader, names);
	struct pp_name_slot *slot = find_name(names, (struct pp_word){name, (uint32_t)strlen(name)});
	if (slot->name) {
		pp_error(reader->diag, "E1007", pp_scan_line_span(&reader->scan), "this body has two registers named %.60s",
		         name);
		return false;
	}
	*slot = (struct pp_name_slot){name, index};
	names->count++;
	return true;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void read_reg(struct pp_reader *reader, struct pp_body *body, struct pp_list *regs, struct pp_names *names,
                     uint32_t rank)
{
	struct pp_reg *reg = pp_list_push(reader->arena, regs, sizeof(struct pp_reg));
	pp_record_reset(PP_RECORD_REG, reg);
	reg->name = "-";
	body->regs = regs->items;
	body->reg_count = (uint32_t)regs->count;
	if (pp_read_fields(reader, PP_RECORD_REG, reg, rank, false))
		add_name(reader, names, reg->name, body->reg_count - 1);
}

static bool read_operands(struct pp_reader *reader, const struct pp_names *names, uint32_t *operands, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct pp_word word = pp_scan_word(&reader->scan);
		if (pp_word_is(word, "-"))
			continue;
		const struct pp_name_slot *slot = word.length && names->capacity ? find_name(names, word) : NULL;
		if (slot && slot->name) {
			operands[i] = slot->index;
			continue;
		}
		if (word.length == 0 || pp_word_is(word, "->"))
			pp_expected(reader, word, "a register, or `-` for none");
		else
			pp_help(pp_error(reader->diag, "E1005", pp_scan_span(&reader->scan, word), "this body has no register %s",
			                 pp_word_show(reader->arena, word)),
			        "declare it above: `reg NAME BASE SHAPE`");
		return false;
	}
	return true;
}

static bool read_immediates(struct pp_reader *reader, const struct pp_body_op_info *info, uint64_t *imm)
{
	const char *name = info->immediates;
	for (unsigned i = 0; i < info->immediate_count; i++) {
		uint32_t length = (uint32_t)strcspn(name, " ");
		struct pp_word word = pp_scan_word(&reader->scan);
		if (word.length <= length + 1 || memcmp(word.text, name, length) != 0 || word.text[length] != '=' ||
		    !pp_word_uint(word.text + length + 1, word.length - length - 1, &imm[i])) {
			pp_expected(reader, word, pp_arena_printf(reader->arena, "`%.*s=` and a whole number", (int)length, name));
			return false;
		}
		name += length + (name[length] == ' ');
	}
	return true;
}

static enum pp_body_op find_op(struct pp_reader *reader, struct pp_word word)
{
	enum pp_body_op op = pp_body_op_find(word.length < 64 ? pp_arena_copy(reader->arena, word.text, word.length) : "");
	if (op != PP_BODY_OP_COUNT)
		return op;
	const char *known[PP_BODY_OP_COUNT + 1] = {"reg"};
	for (unsigned i = 0; i < PP_BODY_OP_COUNT; i++)
		known[i + 1] = pp_body_op_info((enum pp_body_op)i).mnemonic;
	pp_unknown_word(reader, word, "body instruction", known, PP_BODY_OP_COUNT + 1);
	return op;
}

static void read_instr(struct pp_reader *reader, struct pp_body *body, struct pp_list *items,
                       const struct pp_names *names, struct pp_word mnemonic)
{
	struct pp_body_instr instr = {0};
	memset(instr.operand, 0xff, sizeof instr.operand);
	enum pp_body_op op = find_op(reader, mnemonic);
	if (op == PP_BODY_OP_COUNT)
		return;
	instr.op = (uint8_t)op;
	struct pp_body_op_info info = pp_body_op_info(op);
	if (!read_operands(reader, names, instr.operand, info.input_count))
		return;
	if (info.output_count) {
		struct pp_word arrow = pp_scan_word(&reader->scan);
		if (!pp_word_is(arrow, "->")) {
			pp_expected(reader, arrow,
			            pp_arena_printf(reader->arena, "`->` and the outputs: %s %s -> %s", info.mnemonic, info.inputs,
			                            info.outputs));
			return;
		}
	}
	if (!read_operands(reader, names, instr.operand + info.input_count, info.output_count) ||
	    !read_immediates(reader, &info, instr.imm) || !pp_read_line_end(reader))
		return;
	struct pp_fault fault;
	if (!pp_check_body_instr(body, &instr, &fault)) {
		pp_reader_fault(reader, pp_scan_line_span(&reader->scan), &fault);
		return;
	}
	*(struct pp_body_instr *)pp_list_push(reader->arena, items, sizeof instr) = instr;
	body->items = items->items;
	body->count = (uint32_t)items->count;
}

void pp_read_body_block(struct pp_reader *reader, struct pp_body *body, struct pp_span opened)
{
	struct pp_list regs = {0}, items = {0};
	struct pp_names names = {0};
	uint32_t rank = reader->program->stages[body->stage].rank;
	while (!pp_reader_full(reader) && pp_scan_line(&reader->scan)) {
		struct pp_word word = pp_scan_word(&reader->scan);
		if (pp_word_is(word, "}")) {
			pp_read_line_end(reader);
			return;
		}
		if (pp_word_is(word, "reg"))
			read_reg(reader, body, &regs, &names, rank);
		else
			read_instr(reader, body, &items, &names, word);
	}
	if (!pp_reader_full(reader))
		pp_error(reader->diag, "E1008", opened, "this body is never closed: `}` is missing");
}
