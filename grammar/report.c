/* Messages for tokens that the grammar does not allow. Knows tokens by the names that parse.y gives them. Frequent
 * mistakes get a message of their own; the rest names what was found and, folded into a few words, what was expected.
 */
#include "parse_state.h"

#include "build.h"
#include "parser.h"
#include "scan.h"

#include <ctype.h>
#include <string.h>

const char *pp_parse_text(const struct pp_parse *parse, struct pp_span span)
{
	return pp_arena_copy(parse->arena, parse->source->text + (span.start - parse->source->base), span.end - span.start);
}

const char *pp_parse_place(const struct pp_parse *parse, uint32_t offset)
{
	struct pp_position at = pp_source_position(parse->source, offset);
	return pp_arena_printf(parse->arena, "%u:%u", at.line, at.column);
}

void pp_report_nesting(struct pp_parse *parse, struct pp_span span)
{
	if (parse->stopped)
		return;
	parse->stopped = true;
	struct pp_message *message =
	    pp_error(parse->diag, "E0008", span, "nesting limit: brackets, blocks and operators may be nested %d deep",
	             PP_NESTING_LIMIT);
	pp_help(message, "split the expression with `let`; a chain of operators may have %d terms", PP_HEIGHT_LIMIT);
}

bool pp_recovered(struct pp_parse *parse, uint32_t at)
{
	if (at <= parse->wrong.start)
		return false; /* the wrong token itself, not yet passed: trusting it would report it for ever */
	if (parse->sure)
		return true;
	uint32_t base = parse->source->base;
	for (; parse->searched < at; parse->searched++) {
		char byte = parse->source->text[parse->searched - base];
		if (byte == '\n' || byte == '\r')
			return true;
	}
	return false;
}

/* ---- what was found, what was expected ------------------------------------------------------- */

struct set {
	const char *names[128];
	int count;
};

static int find(const struct set *set, const char *name)
{
	for (int i = 0; i < set->count; i++) {
		if (strcmp(set->names[i], name) == 0)
			return i;
	}
	return -1;
}

static bool has(const struct set *set, const char *name)
{
	return find(set, name) >= 0;
}

static void drop(struct set *set, const char *name)
{
	int at = find(set, name);
	if (at < 0)
		return;
	set->count--;
	for (int i = at; i < set->count; i++)
		set->names[i] = set->names[i + 1];
}

/* A group of tokens that people know under one name. It is folded when both signs are there. */
struct category {
	const char *title, *signs[2];
	const char *members[20];
};

static const struct category categories[] = {
    {"`=`", {"`=`", "`<=`"}, {"`=`", "`<=`", "`>=`", "name", "string", "`extends`", "`from`", "`.`", "`(`"}},
    {"a block", {"`import`", "`param`"}, {"`import`", "`param`", "`let`", "`assert`", "name", "end of the text"}},
    {"an attribute",
     {"`layer`", "`split`"},
     {"name", "`apart`", "`assert`", "`for`", "`layer`", "`let`", "`limit`", "`order`", "`overlap`", "`pair`", "`pin`",
      "`prefer`", "`repeat`", "`split`"}},
    {"an action", {"cell", "`weave`"}, {"cell", "name", "`weave`", "`for`", "`(`", "`|`"}},
    {"a value",
     {"integer", "quantity"},
     {"integer", "number", "quantity", "string", "name", "`true`", "`false`", "`not`", "`-`", "`(`", "`[`"}},
    {"a count", {"integer", "name"}, {"integer", "name", "`(`"}},
    {"an operator",
     {"`+`", "`*`"},
     {"`+`", "`-`", "`*`", "`/`", "`%`", "`==`", "`!=`", "`<`", "`>`", "`<=`", "`>=`", "`and`", "`or`", "`?`", "`..`",
      "`.`", "`(`"}},
};

enum { MOST_PHRASES = 5 };

/* "`=`, `{` or a value". */
static const char *phrase(struct pp_parse *parse, const struct set *expected)
{
	struct set rest = *expected, phrases = {.count = 0};
	for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++) {
		const struct category *category = &categories[i];
		if (!has(&rest, category->signs[0]) || !has(&rest, category->signs[1]))
			continue;
		phrases.names[phrases.count++] = category->title;
		for (int m = 0; m < 20 && category->members[m]; m++)
			drop(&rest, category->members[m]);
	}
	for (int i = 0; i < rest.count && phrases.count < MOST_PHRASES; i++)
		phrases.names[phrases.count++] = strcmp(rest.names[i], "name") == 0     ? "a name"
		                                 : strcmp(rest.names[i], "string") == 0 ? "a string"
		                                                                        : rest.names[i];
	const char *text = phrases.count ? phrases.names[0] : "nothing more";
	for (int i = 1; i < phrases.count; i++)
		text = pp_arena_printf(parse->arena, "%s%s%s", text, i + 1 == phrases.count ? " or " : ", ", phrases.names[i]);
	return text;
}

static bool is_word(const char *name)
{
	return name[0] == '`' && name[1] >= 'a' && name[1] <= 'z';
}

static const char *found_phrase(struct pp_parse *parse, struct pp_span span, const char *found)
{
	if (is_word(found))
		return pp_arena_printf(parse->arena, "reserved word %s", found);
	if (found[0] == '`' || strcmp(found, "string") == 0 || strcmp(found, "end of the text") == 0)
		return found;
	const char *text = pp_parse_text(parse, span);
	return strlen(text) <= 40 ? pp_arena_printf(parse->arena, "%s `%s`", found, text)
	                          : pp_arena_printf(parse->arena, "%s `%.32s...`", found, text);
}

/* ---- brackets -------------------------------------------------------------------------------- */

static const char *bracket_title(struct pp_parse *parse, const struct pp_bracket *bracket)
{
	if (bracket->kind == '{' && bracket->name)
		return pp_arena_printf(parse->arena, "block `%.40s`", bracket->name);
	return pp_arena_printf(parse->arena, "`%c`", bracket->kind);
}

static void report_open(struct pp_parse *parse, const struct pp_bracket *bracket, struct pp_span found, const char *how)
{
	struct pp_message *message =
	    pp_error(parse->diag, "E0006", bracket->span, "%s opened at %s is %s", bracket_title(parse, bracket),
	             pp_parse_place(parse, bracket->span.start), how);
	if (parse->tokens[0].kind != T_YYEOF)
		pp_label(message, found, "still open here");
	char closer = bracket->kind == '(' ? ')' : bracket->kind == '[' ? ']' : '}';
	pp_help(message, "add `%c`", closer);
	parse->brackets_reported = true;
}

static bool is_closer(int token)
{
	return token == T_RPAREN || token == T_RBRACKET || token == T_RBRACE;
}

static bool matches(char opener, int closer)
{
	return (opener == '(' && closer == T_RPAREN) || (opener == '[' && closer == T_RBRACKET) ||
	       (opener == '{' && closer == T_RBRACE);
}

/* A wrong ) or ] closes nothing, so the brackets are still those before it; a } closes what is in its way. */
static bool opened_somewhere(const struct pp_parse *parse, int closer)
{
	for (uint32_t i = 0; i < parse->bracket_count; i++) {
		if (matches(parse->brackets[i].kind, closer))
			return true;
	}
	return closer == T_RBRACE;
}

/* Mistakes of opening and closing. `before`: the token reported last. True: this token is explained. */
static bool brackets_explain(struct pp_parse *parse, struct pp_span span, const char *found, struct pp_span before)
{
	int token = parse->tokens[0].kind;
	const struct pp_bracket *around = &parse->innermost;
	bool at_end = token == T_YYEOF, closer = is_closer(token);
	if ((at_end || closer) && parse->brackets_reported)
		return true;
	if (at_end && around->kind) {
		report_open(parse, around, span, "never closed");
		return true;
	}
	if (closer && around->kind && around->span.start == before.start)
		return true; /* it closes what was reported */
	if (closer && around->kind && !matches(around->kind, token) && opened_somewhere(parse, token)) {
		report_open(parse, around, span, pp_arena_printf(parse->arena, "not closed before %s", found));
		return true;
	}
	if (closer && !matches(around->kind, token)) {
		struct pp_message *message =
		    pp_error(parse->diag, "E0001", span, "unexpected %s; nothing that it could close is open", found);
		pp_help(message, "remove it, or look for the bracket that closed too early");
		parse->brackets_reported = true;
		return true;
	}
	if ((token == T_PARAM || token == T_IMPORT) && around->kind == '{') {
		report_open(parse, around, span, pp_arena_printf(parse->arena, "not closed before %s", found));
		return true;
	}
	return false;
}

/* ---- frequent mistakes ----------------------------------------------------------------------- */

static bool is_literal(int token)
{
	return token == T_INT || token == T_REAL || token == T_QUANTITY || token == T_STRING || token == T_TRUE ||
	       token == T_FALSE;
}

/* Text of the token `back` places before the current one. */
static const char *token_text(const struct pp_parse *parse, int back)
{
	return pp_parse_text(parse, parse->tokens[back].span);
}

/* `pp 16`, `pp: 16`, `pp == 16`: an attribute without its sign. */
static bool attribute_sign(struct pp_parse *parse, struct pp_span span, const char *found, const struct set *expected)
{
	int token = parse->tokens[0].kind;
	if (!has(expected, "`=`") || parse->tokens[1].kind != T_NAME)
		return false;
	if (is_literal(token)) {
		parse->sure = true;
		struct pp_message *message =
		    pp_error(parse->diag, "E0001", span, "unexpected %s; expected `=`", found_phrase(parse, span, found));
		pp_help(message, "write `%.40s = %.40s`", token_text(parse, 1), token_text(parse, 0));
		return true;
	}
	bool memory = strcmp(token_text(parse, 1), "memory") == 0 && has(expected, "`<=`");
	if (memory && (token == T_LT || token == T_GT)) {
		parse->sure = true;
		pp_help(pp_error(parse->diag, "E0001", span, "unexpected %s; `memory` of a schedule takes `<=`", found),
		        "write `memory <= ...`");
		return true;
	}
	if (token != T_COLON && token != T_EQ)
		return false;
	parse->sure = true;
	struct pp_message *message = pp_error(parse->diag, "E0001", span, "unexpected %s; expected `=`", found);
	pp_help(message, "write `%.40s = ...`", token_text(parse, 1));
	return true;
}

static bool is_number(int token)
{
	return token == T_INT || token == T_REAL;
}

/* `memory = 4 GiB`: a unit apart from its number. The token at `back` is the unit, the one before it the number. */
static bool unit_apart(struct pp_parse *parse, int back, const struct set *expected)
{
	const char *unit = parse->tokens[back].kind == T_NAME ? token_text(parse, back) : "";
	if (!has(expected, "`{`") || !is_number(parse->tokens[back + 1].kind) || !pp_scan_is_unit(unit))
		return false;
	const char *rest = parse->source->text + (parse->tokens[back].span.end - parse->source->base);
	const char *rate = strncmp(rest, "/s", 2) == 0 ? "/s" : "";
	struct pp_message *message = pp_error(parse->diag, "E0003", parse->tokens[back].span,
	                                      "unit `%s%s` stands apart from its number", unit, rate);
	pp_help(message, "write `%.40s%s%s`", token_text(parse, back + 1), unit, rate);
	return true;
}

/* `bubble <= 40 %`. */
static bool percent(struct pp_parse *parse, const struct set *expected)
{
	if (parse->tokens[1].kind != T_MOD || !is_number(parse->tokens[2].kind) || !has(expected, "quantity"))
		return false;
	struct pp_message *message =
	    pp_error(parse->diag, "E0001", parse->tokens[1].span, "`%%` is the remainder of a division, not percent");
	pp_help(message, "write `%.40s/100`", token_text(parse, 2));
	return true;
}

static bool starts_line(const struct pp_parse *parse, struct pp_span span)
{
	uint32_t at = span.start - parse->source->base;
	return at == 0 || parse->source->text[at - 1] == '\n' || parse->source->text[at - 1] == '\r';
}

/* `parallel { pp = 4` and on the next line `schedule 1f1b`: the schedule begins at the margin, so the block before it
 * was meant to be closed. */
static bool block_at_margin(struct pp_parse *parse)
{
	const struct pp_bracket *around = &parse->innermost;
	if (around->kind != '{' || parse->brackets_reported || !starts_line(parse, parse->tokens[2].span) ||
	    strcmp(token_text(parse, 2), "schedule") != 0)
		return false;
	report_open(parse, around, parse->tokens[2].span, "not closed before `schedule`");
	return true;
}

static bool reserved(struct pp_parse *parse, struct pp_span span, const char *found, const struct set *expected)
{
	if (!is_word(found) || !has(expected, "name"))
		return false;
	struct pp_message *message = pp_error(parse->diag, "E0001", span, "unexpected reserved word %s; expected %s", found,
	                                      phrase(parse, expected));
	if (parse->innermost.kind == '(' && strcmp(found, "`layer`") == 0)
		pp_help(message, "did you mean `layers`? %s is a reserved word", found);
	else
		pp_help(message, "%s is a reserved word; choose another name", found);
	return true;
}

/* `dtype fp32 }`, `optimizer adamw(…)`: two names and then something that cannot follow them. */
static bool two_names(struct pp_parse *parse, struct pp_span span, const char *found, const struct set *expected)
{
	if (parse->tokens[1].kind != T_NAME || parse->tokens[2].kind != T_NAME || !has(expected, "`{`") ||
	    !has(expected, "`extends`"))
		return false;
	if (block_at_margin(parse))
		return true;
	if (starts_line(parse, parse->tokens[1].span) && !starts_line(parse, span))
		return reserved(parse, span, found, expected); /* the first name ends what stood before */
	bool inside = parse->innermost.kind == '{';
	struct pp_message *message = pp_error(parse->diag, "E0001", span, "unexpected %s; expected %s",
	                                      found_phrase(parse, span, found), phrase(parse, expected));
	const char *first = token_text(parse, 2), *second = token_text(parse, 1);
	if (inside)
		pp_help(message, "for an attribute write `%.40s = %.40s`, for a block open it with `{`", first, second);
	else
		pp_help(message, "open the block: `%.40s { %.40s ... }`", first, second);
	return true;
}

static bool separator(struct pp_parse *parse, struct pp_span span, const struct set *expected)
{
	bool between =
	    has(expected, "`layer`") || (has(expected, "cell") && has(expected, "`weave`")) || has(expected, "`import`");
	if (parse->tokens[0].kind != T_COMMA || !between)
		return false;
	if (!parse->separator_reported) {
		struct pp_message *message =
		    pp_error(parse->diag, "E0001", span, "unexpected `,`; attributes are separated by spaces or line ends");
		pp_help(message, "remove every `,` between them");
	}
	parse->separator_reported = true;
	parse->sure = true;
	return true;
}

static bool comparison_sign(struct pp_parse *parse, struct pp_span span, const char *found, const struct set *expected)
{
	int token = parse->tokens[0].kind;
	if (token == T_ASSIGN && has(expected, "`==`")) {
		struct pp_message *message = pp_error(parse->diag, "E0001", span, "unexpected `=` in an expression");
		pp_help(message, "to compare write `==`");
		return true;
	}
	bool compares = token == T_EQ || token == T_NE || token == T_LT || token == T_GT || token == T_LE || token == T_GE;
	if (!compares || !has(expected, "`and`"))
		return false;
	struct pp_message *message = pp_error(parse->diag, "E0001", span, "unexpected %s; comparisons do not chain", found);
	pp_help(message, "write `a < b and b < c`");
	return true;
}

static bool top_level(struct pp_parse *parse, struct pp_span span, const struct set *expected)
{
	if (parse->tokens[0].kind != T_ASSIGN || parse->tokens[1].kind != T_NAME || parse->innermost.kind ||
	    !has(expected, "`{`"))
		return false;
	const char *name = token_text(parse, 1);
	struct pp_message *message =
	    pp_error(parse->diag, "E0001", span, "unexpected `=`; `%.40s` is not inside a block", name);
	if (parse->tokens[2].kind == T_NAME)
		pp_help(message, "open the block: `%.40s { %.40s = ... }`", token_text(parse, 2), name);
	else
		pp_help(message, "put it into a block such as `train { ... }`, or write `let %.40s = ...`", name);
	return true;
}

/* `F*floor(m/2)`: the count ends with the name, and the bracket was taken for a group of actions. */
static bool called_count(struct pp_parse *parse, struct pp_span span, const char *found, const struct set *expected)
{
	const struct pp_bracket *around = &parse->innermost;
	if (around->kind != '(' || !(has(expected, "action") || has(expected, "cell")))
		return false;
	const char *text = parse->source->text, *line_end = text + parse->source->length;
	uint32_t open = around->span.start - parse->source->base, name = open, end = open;
	int depth = 0;
	while (name > 0 && (isalnum((unsigned char)text[name - 1]) || text[name - 1] == '_'))
		name--;
	uint32_t star = name;
	while (star > 0 && text[star - 1] == ' ')
		star--;
	if (name == open || isdigit((unsigned char)text[name]) || star == 0 || text[star - 1] != '*')
		return false;
	do {
		depth += (text[end] == '(') - (text[end] == ')');
		end++;
	} while (depth > 0 && text + end < line_end && text[end] != '\n' && end - open < 60);
	struct pp_message *message =
	    pp_error(parse->diag, "E0001", span, "unexpected %s; a count that calls a function stands in brackets",
	             found_phrase(parse, span, found));
	pp_help(message, "write `*(%.*s%s)`", (int)((depth ? open : end) - name), text + name, depth ? "(...)" : "");
	return true;
}

/* In an expression `||` arrives as two bars. */
static bool double_bar(struct pp_parse *parse, struct pp_span span, const struct set *expected)
{
	if (parse->tokens[0].kind != T_BAR || !has(expected, "`or`"))
		return false;
	struct pp_message *message = pp_error(parse->diag, "E0001", span, "unexpected `|` in an expression");
	pp_help(message, "write `or`");
	return true;
}

static bool frequent(struct pp_parse *parse, struct pp_span span, const char *found, const struct set *expected)
{
	return called_count(parse, span, found, expected) || unit_apart(parse, 1, expected) ||
	       unit_apart(parse, 2, expected) || percent(parse, expected) || separator(parse, span, expected) ||
	       top_level(parse, span, expected) || attribute_sign(parse, span, found, expected) ||
	       two_names(parse, span, found, expected) || comparison_sign(parse, span, found, expected) ||
	       double_bar(parse, span, expected) || reserved(parse, span, found, expected);
}

static void report_plain(struct pp_parse *parse, struct pp_span span, const char *found, const struct set *expected)
{
	struct pp_message *message = pp_error(parse->diag, "E0001", span, "unexpected %s; expected %s",
	                                      found_phrase(parse, span, found), phrase(parse, expected));
	const struct pp_bracket *around = &parse->innermost;
	if ((around->kind == '(' && has(expected, "`)`")) || (around->kind == '[' && has(expected, "`]`")))
		pp_label(message, around->span, "opened here");
}

void pp_report_unexpected(struct pp_parse *parse, struct pp_span span, const char *found, const char *const *expected,
                          int expected_count)
{
	struct pp_span before = parse->wrong;
	parse->wrong = span;
	parse->searched = span.start;
	parse->sure = false;
	if (parse->stopped || (parse->tokens[0].kind == T_QUANTITY && span.end == parse->wrong_quantity))
		return;
	struct set set = {.count = 0};
	for (int i = 0; i < expected_count && i < 128; i++)
		set.names[set.count++] = expected[i];
	if (!brackets_explain(parse, span, found, before) && !frequent(parse, span, found, &set))
		report_plain(parse, span, found, &set);
}
