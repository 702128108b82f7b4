/* The entrance: one text to one tree. */
#include "ast.h"

#include "build.h"
#include "parse_state.h"
#include "scan.h"

#include "parser.h"

#include <string.h>

/* Of the scanner; its own header is not used, since it would bring flex's macros along. */
typedef struct yy_buffer_state *YY_BUFFER_STATE;
int pp_yylex_init_extra(struct pp_parse *extra, void **scanner);
YY_BUFFER_STATE pp_yy_scan_bytes(const char *bytes, int length, void *scanner);
int pp_yylex_destroy(void *scanner);

static uint32_t mark_length(const struct pp_source *source)
{
	return source->length >= 3 && memcmp(source->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

struct pp_ast *pp_parse(struct pp_arena *arena, struct pp_strtab *strings, const struct pp_source *source,
                        struct pp_diag *diag)
{
	struct pp_ast *ast = PP_NEW(arena, struct pp_ast);
	ast->source = source;
	struct pp_parse *parse = PP_NEW(arena, struct pp_parse);
	*parse = (struct pp_parse){.arena = arena, .strings = strings, .source = source, .diag = diag};
	if (!pp_scan_encoding(parse))
		return ast;
	uint32_t mark = mark_length(source);
	parse->at = source->base + mark;
	if (pp_yylex_init_extra(parse, &parse->scanner) != 0)
		return ast;
	pp_yy_scan_bytes(source->text + mark, (int)(source->length - mark), parse->scanner);
	pp_yyparse(parse);
	pp_yylex_destroy(parse->scanner);
	ast->first = parse->first;
	return ast;
}
