/* Between scanner and parser: keeps the open brackets and the last tokens, which the error reporter needs, and stops
 * the text at the nesting limit. */
#include "parse_state.h"

#include "build.h"
#include "parser.h"

int pp_scan_token(PP_YYSTYPE *value, struct pp_span *span, void *scanner);

static char closer_of(char opener)
{
	return opener == '(' ? ')' : opener == '[' ? ']' : '}';
}

static void open_bracket(struct pp_parse *parse, struct pp_span span, char kind)
{
	if (parse->bracket_count == PP_NESTING_LIMIT) {
		pp_report_nesting(parse, span);
		return;
	}
	int before = parse->tokens[1].kind;
	const char *name = kind != '{' ? NULL : before == T_SPLIT ? "split" : before == T_ORDER ? "order" : NULL;
	parse->brackets[parse->bracket_count++] = (struct pp_bracket){span, kind, name};
}

/* A closing brace also ends what was left open inside it. */
static void close_bracket(struct pp_parse *parse, char kind)
{
	uint32_t count = parse->bracket_count;
	while (kind == '}' && count > 0 && parse->brackets[count - 1].kind != '{')
		count--;
	if (count > 0 && closer_of(parse->brackets[count - 1].kind) == kind)
		parse->bracket_count = count - 1;
}

static void keep_brackets(struct pp_parse *parse, int token, struct pp_span span)
{
	parse->innermost =
	    parse->bracket_count ? parse->brackets[parse->bracket_count - 1] : (struct pp_bracket){{0, 0}, 0, NULL};
	switch (token) {
	case T_LPAREN:
	case T_LBRACKET:
	case T_LBRACE:
		open_bracket(parse, span, token == T_LPAREN ? '(' : token == T_LBRACKET ? '[' : '{');
		break;
	case T_RPAREN:
	case T_RBRACKET:
	case T_RBRACE:
		close_bracket(parse, token == T_RPAREN ? ')' : token == T_RBRACKET ? ']' : '}');
		break;
	}
}

int pp_yylex(PP_YYSTYPE *value, struct pp_span *span, struct pp_parse *parse)
{
	int token = parse->stopped ? T_YYEOF : pp_scan_token(value, span, parse->scanner);
	if (token == T_YYEOF)
		*span = (struct pp_span){parse->at, parse->at};
	parse->tokens[3] = parse->tokens[2];
	parse->tokens[2] = parse->tokens[1];
	parse->tokens[1] = parse->tokens[0];
	parse->tokens[0] = (struct pp_token_place){token, *span};
	keep_brackets(parse, token, *span);
	if (pp_diag_errors(parse->diag) >= PP_MISTAKES_LIMIT)
		parse->stopped = true;
	return parse->stopped ? T_YYEOF : token;
}

void pp_name_brace(struct pp_parse *parse, struct pp_span span)
{
	for (uint32_t i = parse->bracket_count; i-- > 0;) {
		struct pp_bracket *bracket = &parse->brackets[i];
		if (bracket->span.start != span.start)
			continue;
		if (!bracket->name)
			bracket->name = parse->head;
		break;
	}
	parse->head = NULL;
}
