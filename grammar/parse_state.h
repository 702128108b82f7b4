/* What scanner, parser and error reporter share while one text is parsed. Private to grammar/. */
#ifndef PP_PARSE_STATE_H
#define PP_PARSE_STATE_H

#include "ast.h"

/* After so many errors reading stops: messages take memory, and only the first 20 are shown. */
enum { PP_MISTAKES_LIMIT = 1000 };

/* An open ( [ or {. */
struct pp_bracket {
	struct pp_span span;
	char kind;        /* '(', '[' or '{' */
	const char *name; /* of the block that { opens, or NULL */
};

struct pp_token_place {
	int kind; /* token of parse.y, 0 at the start and at the end of the text */
	struct pp_span span;
};

struct pp_parse {
	struct pp_arena *arena;
	struct pp_strtab *strings;
	const struct pp_source *source;
	struct pp_diag *diag;
	void *scanner;
	struct pp_stmt *first, *last; /* top-level statements read so far */
	uint32_t at;                  /* absolute offset of the next byte to scan */
	struct pp_bracket brackets[PP_NESTING_LIMIT];
	uint32_t bracket_count;
	struct pp_bracket innermost;     /* bracket around the current token before it opened or closed one; kind 0: none */
	const char *head;                /* name of the block statement being read */
	struct pp_token_place tokens[4]; /* the current token and the three before it */
	uint32_t wrong_quantity;         /* end of a quantity whose unit was reported: that is the whole mistake */
	struct pp_span wrong;            /* the last token that was reported */
	uint32_t searched;               /* no line ends between it and this offset */
	bool sure;                       /* its mistake was recognised: what follows can be trusted */
	bool stopped;                    /* a limit was hit: the scanner says end of text, nothing more is reported */
	bool brackets_reported;          /* one message about brackets is enough: the next would follow from it */
	bool separator_reported;         /* the same for , and ; between attributes */
};

union PP_YYSTYPE;

/* One token from the scanner, with brackets and history kept. What bison calls yylex. */
int pp_yylex(union PP_YYSTYPE *value, struct pp_span *span, struct pp_parse *parse);

/* Give the open brace at `span` the name of the statement that owns it. */
void pp_name_brace(struct pp_parse *parse, struct pp_span span);

/* Report a token that the grammar does not allow here. `expected`: names of the tokens that it allows. */
void pp_report_unexpected(struct pp_parse *parse, struct pp_span span, const char *found, const char *const *expected,
                          int expected_count);

/* Reading goes on at a token that starts at `at`: is it certain enough to report the next error at once? */
bool pp_recovered(struct pp_parse *parse, uint32_t at);

/* Report E0008 and stop reading. */
void pp_report_nesting(struct pp_parse *parse, struct pp_span span);

/* Text of a span of the source. */
const char *pp_parse_text(const struct pp_parse *parse, struct pp_span span);

/* "3:14", in the arena. */
const char *pp_parse_place(const struct pp_parse *parse, uint32_t offset);

#endif
