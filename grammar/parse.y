/* Tokens to tree: the grammar of the language. Actions only build nodes; nothing is looked up or computed. Ensures
 * that lists are left-recursive (a long flat text needs no stack), that one mistake gives one message, and that reading
 * goes on after it. */
%require "3.8"
%expect 0
%locations
%define api.pure full
%define api.prefix {pp_yy}
%define api.token.prefix {T_}
%define api.value.type union
%define api.location.type {struct pp_span}
%define parse.error custom
%define parse.lac full
%param {struct pp_parse *parse}

%code requires {
#include "build.h"
}

%code {
#include <string.h>

#define YYLLOC_DEFAULT(current, right, count) ((current) = span_of(right, count))

static struct pp_span span_of(const struct pp_span *right, int count)
{
	if (count)
		return (struct pp_span){right[1].start, right[count].end};
	return (struct pp_span){right[0].end, right[0].end};
}

/* bison calls this for one thing only: its stack is full. */
static void pp_yyerror(const struct pp_span *span, struct pp_parse *parse, const char *text)
{
	(void)text;
	pp_report_nesting(parse, *span);
}

static struct pp_name name_at(const char *text, struct pp_span span)
{
	return (struct pp_name){text, span};
}

/* A statement of a kind whose fields the action fills in. */
static struct pp_stmt *stmt(struct pp_parse *parse, enum pp_stmt_kind kind, struct pp_span span)
{
	return pp_build_stmt(parse, kind, span);
}
}

%initial-action { @$ = (struct pp_span){parse->at, parse->at}; }

%token YYEOF 0 "end of the text"
%token <const char *> NAME "name" STRING "string" INT "integer" REAL "number"
%token <struct pp_quantity> QUANTITY "quantity"
%token <struct pp_cell> CELL "cell"
%token AND "`and`" APART "`apart`" AS "`as`" ASSERT "`assert`" EXTENDS "`extends`" FALSE "`false`"
%token FOR "`for`" FROM "`from`" IMPORT "`import`" IN "`in`" LAYER "`layer`" LET "`let`" LIMIT "`limit`" NOT "`not`" OR "`or`" ORDER "`order`"
%token OVERLAP "`overlap`" PAIR "`pair`" PARAM "`param`" PIN "`pin`" PREFER "`prefer`" RANK "`rank`" REPEAT "`repeat`"
%token SPLIT "`split`" TO "`to`" TRUE "`true`" WEAVE "`weave`" WHEN "`when`" WITH "`with`"
%token RANGE "`..`" DOT "`.`" EQ "`==`" NE "`!=`" LE "`<=`" GE "`>=`" LT "`<`" GT "`>`" ASSIGN "`=`"
%token PLUS "`+`" MINUS "`-`" TIMES "`*`" OVER "`/`" MOD "`%`" QUESTION "`?`" COLON "`:`"
%token COMMA "`,`" BAR "`|`" AMP "`&`"
%token LPAREN "`(`" RPAREN "`)`" LBRACKET "`[`" RBRACKET "`]`" LBRACE "`{`" RBRACE "`}`"

%right QUESTION COLON
%left OR
%left AND
%precedence NOT
%left PLUS MINUS
%left TIMES OVER MOD
%precedence NEGATE

%type <struct pp_stmt *> item import param let assert block stmt attribute overlap nested layer loop placing rule
%type <struct pp_stmt_list> stmts body
%type <struct pp_head> head open_head
%type <struct pp_name> name doc message type layer_name
%type <struct pp_expr *> expr sum value path range list element argument count default_value allowed index chunk repeat
%type <struct pp_expr *> condition
%type <struct pp_expr_list> elements arguments
%type <enum pp_operator> comparison
%type <struct pp_pattern_list> pattern sequence braced
%type <struct pp_pattern *> part
%type <struct pp_action_list> paired preferred
%type <struct pp_action_ast *> action
%type <struct pp_ref> ref

%%

file:
	%empty
|	file item
	{
		struct pp_stmt_list all = pp_append_stmt((struct pp_stmt_list){parse->first, parse->last}, $item);
		parse->first = all.first;
		parse->last = all.last;
	}
;

item:
	import | param | let | assert | block
|	error       { $$ = stmt(parse, PP_STMT_ERROR, @$); if (pp_recovered(parse, yylloc.start)) yyerrok; }
|	error body  { $$ = stmt(parse, PP_STMT_ERROR, @$); }
;

/* ---- top level ------------------------------------------------------------------------------- */

import:
	IMPORT STRING
	{ $$ = stmt(parse, PP_STMT_IMPORT, @$); $$->value = pp_build_string(parse, @STRING, $STRING); }
|	IMPORT STRING AS name
	{ $$ = stmt(parse, PP_STMT_IMPORT, @$); $$->value = pp_build_string(parse, @STRING, $STRING); $$->name = $name; }
;

param:
	PARAM name type default_value allowed doc
	{
		$$ = stmt(parse, PP_STMT_PARAM, @$);
		$$->name = $name;
		$$->type = $type;
		$$->value = $default_value;
		$$->range = $allowed;
		$$->text = $doc;
	}
;

type:          %empty { $$ = name_at(NULL, @$); } | COLON name { $$ = $name; } ;
default_value: %empty { $$ = NULL; } | ASSIGN expr { $$ = $expr; } ;
allowed:       %empty { $$ = NULL; } | IN range { $$ = $range; } | IN list { $$ = $list; } ;
doc:           %empty { $$ = name_at(NULL, @$); } | STRING { $$ = name_at($STRING, @STRING); } ;

let:
	LET name ASSIGN expr
	{ $$ = stmt(parse, PP_STMT_LET, @$); $$->name = $name; $$->value = $expr; }
;

assert:
	ASSERT expr message
	{ $$ = stmt(parse, PP_STMT_ASSERT, @$); $$->value = $expr; $$->text = $message; }
;

message: %empty { $$ = name_at(NULL, @$); } | COMMA STRING { $$ = name_at($STRING, @STRING); } ;

block:
	head            { $$ = pp_build_block(parse, @$, &$head, NULL); }
|	head body       { $$ = pp_build_block(parse, @$, &$head, &$body); }
|	open_head body  { $$ = pp_build_block(parse, @$, &$open_head, &$body); }
;

/* A head that can stand alone: something follows the name. */
head:
	NAME NAME[label]
	{ $$ = (struct pp_head){.name = name_at($1, @1), .label = name_at($label, @label)}; parse->head = $1; }
|	NAME STRING
	{
		$$ = (struct pp_head){.name = name_at($1, @1), .label = name_at($2, @2), .label_is_string = true};
		parse->head = $1;
	}
|	NAME EXTENDS path
	{ $$ = (struct pp_head){.name = name_at($1, @1), .extends = pp_build_path_end(parse, $path)}; parse->head = $1; }
|	NAME NAME[label] EXTENDS path
	{
		$$ = (struct pp_head){.name = name_at($1, @1), .label = name_at($label, @label),
		                      .extends = pp_build_path_end(parse, $path)};
		parse->head = $1;
	}
|	NAME STRING EXTENDS path
	{
		$$ = (struct pp_head){.name = name_at($1, @1), .label = name_at($2, @2), .label_is_string = true,
		                      .extends = pp_build_path_end(parse, $path)};
		parse->head = $1;
	}
|	NAME FROM name STRING[text]
	{
		$$ = (struct pp_head){.name = name_at($1, @1), .from = $name, .from_text = name_at($text, @text)};
		parse->head = $1;
	}
|	NAME NAME[label] FROM name STRING[text]
	{
		$$ = (struct pp_head){.name = name_at($1, @1), .label = name_at($label, @label), .from = $name,
		                      .from_text = name_at($text, @text)};
		parse->head = $1;
	}
|	NAME STRING FROM name STRING[text]
	{
		$$ = (struct pp_head){.name = name_at($1, @1), .label = name_at($2, @2), .label_is_string = true, .from = $name,
		                      .from_text = name_at($text, @text)};
		parse->head = $1;
	}
;

open_head:
	NAME  { $$ = (struct pp_head){.name = name_at($1, @1)}; parse->head = $1; }
;

name: NAME { $$ = name_at($1, @1); } ;

/* ---- bodies ---------------------------------------------------------------------------------- */

open: LBRACE { pp_name_brace(parse, @1); } ;

body: open stmts RBRACE { $$ = $stmts; } ;

stmts:
	%empty      { $$ = (struct pp_stmt_list){NULL, NULL}; }
|	stmts stmt  { $$ = pp_append_stmt($1, $stmt); }
;

stmt:
	attribute | assert | let | overlap | nested | layer | loop | placing | rule
|	error       { $$ = stmt(parse, PP_STMT_ERROR, @$); if (pp_recovered(parse, yylloc.start)) yyerrok; }
|	error body  { $$ = stmt(parse, PP_STMT_ERROR, @$); }
;

attribute:
	NAME ASSIGN value
	{ $$ = stmt(parse, PP_STMT_ATTRIBUTE, @$); $$->name = name_at($1, @1); $$->value = $value; }
|	NAME LE expr
	{ $$ = stmt(parse, PP_STMT_BOUND, @$); $$->name = name_at($1, @1); $$->op = PP_LE; $$->value = $expr; }
|	NAME GE expr
	{ $$ = stmt(parse, PP_STMT_BOUND, @$); $$->name = name_at($1, @1); $$->op = PP_GE; $$->value = $expr; }
;

value: expr | range ;

overlap:
	OVERLAP action[first] AMP action[second] ASSIGN sum
	{
		$$ = stmt(parse, PP_STMT_OVERLAP, @$);
		$$->action = $first;
		$first->next = $second;
		$$->value = $sum;
	}
;

nested:
	head body       { $$ = pp_build_block(parse, @$, &$head, &$body); }
|	open_head body  { $$ = pp_build_block(parse, @$, &$open_head, &$body); }
;

layer:
	LAYER layer_name repeat
	{ $$ = stmt(parse, PP_STMT_LAYER, @$); $$->name = $layer_name; $$->count = $repeat; }
|	LAYER layer_name repeat body
	{
		$$ = stmt(parse, PP_STMT_LAYER, @$);
		$$->name = $layer_name;
		$$->count = $repeat;
		$$->has_body = true;
		$$->body = $body.first;
	}
|	LAYER layer_name[label] COLON name repeat
	{ $$ = stmt(parse, PP_STMT_LAYER, @$); $$->label = $label; $$->name = $name; $$->count = $repeat; }
|	LAYER layer_name[label] COLON name repeat body
	{
		$$ = stmt(parse, PP_STMT_LAYER, @$);
		$$->label = $label;
		$$->name = $name;
		$$->count = $repeat;
		$$->has_body = true;
		$$->body = $body.first;
	}
;

layer_name: NAME { $$ = name_at($1, @1); parse->head = "layer"; } ;
repeat:     %empty { $$ = NULL; } | TIMES count { $$ = $count; } ;

loop:
	FOR name IN range body
	{
		$$ = stmt(parse, PP_STMT_FOR, @$);
		$$->name = $name;
		$$->range = $range;
		$$->has_body = true;
		$$->body = $body.first;
	}
|	REPEAT count body
	{ $$ = stmt(parse, PP_STMT_REPEAT, @$); $$->count = $count; $$->has_body = true; $$->body = $body.first; }
;

placing:
	PIN ref TO sum
	{ $$ = stmt(parse, PP_STMT_PIN, @$); $$->ref = $ref; $$->value = $sum; }
|	PIN ref TO RANK sum
	{ $$ = stmt(parse, PP_STMT_PIN, @$); $$->ref = $ref; $$->value = $sum; $$->to_rank = true; }
|	PAIR ref[first] WITH ref[second]
	{ $$ = stmt(parse, PP_STMT_PAIR, @$); $$->ref = $first; $$->other = $second; }
|	APART ref[first] WITH ref[second]
	{ $$ = stmt(parse, PP_STMT_APART, @$); $$->ref = $first; $$->other = $second; }
|	SPLIT braced
	{ $$ = stmt(parse, PP_STMT_SPLIT, @$); $$->pattern = $braced.first; }
;

ref:
	NAME index  { $$ = (struct pp_ref){.name = name_at($1, @1), .index = $index, .span = @$}; }
;

index:
	%empty                    { $$ = NULL; }
|	LBRACKET value RBRACKET   { $$ = $value; }
;

rule:
	ORDER braced
	{ $$ = stmt(parse, PP_STMT_ORDER, @$); $$->pattern = $braced.first; }
|	ORDER FOR name braced
	{ $$ = stmt(parse, PP_STMT_ORDER, @$); $$->name = $name; $$->pattern = $braced.first; }
|	ORDER FOR name IN range braced
	{ $$ = stmt(parse, PP_STMT_ORDER, @$); $$->name = $name; $$->range = $range; $$->pattern = $braced.first; }
|	LIMIT expr condition
	{ $$ = stmt(parse, PP_STMT_LIMIT, @$); $$->value = $expr; $$->condition = $condition; }
|	PREFER preferred condition
	{ $$ = stmt(parse, PP_STMT_PREFER, @$); $$->action = $preferred.first; $$->condition = $condition; }
;

condition: %empty { $$ = NULL; } | WHEN expr { $$ = $expr; } ;

preferred:
	action               { $$ = pp_append_action((struct pp_action_list){NULL, NULL}, $action); }
|	preferred GT action  { $$ = pp_append_action($1, $action); }
;

/* ---- patterns -------------------------------------------------------------------------------- */

braced: open pattern RBRACE { $$ = $pattern; } ;

/* Errors are caught here and not in ( ), so that a missing ) cannot swallow the }. */
pattern:
	%empty         { $$ = (struct pp_pattern_list){NULL, NULL}; }
|	pattern part   { $$ = pp_append_pattern($1, $part); }
|	pattern error  { $$ = $1; if (pp_recovered(parse, yylloc.start)) yyerrok; }
;

sequence:
	%empty         { $$ = (struct pp_pattern_list){NULL, NULL}; }
|	sequence part  { $$ = pp_append_pattern($1, $part); }
;

part:
	BAR
	{ $$ = pp_build_pattern(parse, PP_PATTERN_BAR, @$); }
|	paired repeat
	{ $$ = pp_build_pattern(parse, PP_PATTERN_ITEM, @$); $$->action = $paired.first; $$->repeat = $repeat; }
|	LPAREN sequence RPAREN repeat
	{ $$ = pp_build_pattern(parse, PP_PATTERN_GROUP, @$); $$->body = $sequence.first; $$->repeat = $repeat; }
|	FOR name IN range braced
	{
		$$ = pp_build_pattern(parse, PP_PATTERN_FOR, @$);
		$$->variable = $name;
		$$->range = $range;
		$$->body = $braced.first;
	}
|	WEAVE count braced[body] braced[other]
	{
		$$ = pp_build_pattern(parse, PP_PATTERN_WEAVE, @$);
		$$->count = $count;
		$$->body = $body.first;
		$$->other = $other.first;
	}
;

paired:
	action             { $$ = pp_append_action((struct pp_action_list){NULL, NULL}, $action); }
|	paired AMP action  { $$ = pp_append_action($1, $action); }
;

action:
	CELL
	{
		$$ = pp_build_action(parse, @$, $CELL.letter);
		$$->cell = true;
		$$->stage = $CELL.stage;
		$$->number = $CELL.number;
	}
|	NAME index chunk
	{ $$ = pp_build_action(parse, @$, $NAME); $$->index = $index; $$->chunk = $chunk; }
;

chunk: %empty { $$ = NULL; } | DOT count { $$ = $count; } ;

count:
	INT                   { $$ = pp_build_number(parse, PP_EXPR_INT, @$, $INT); }
|	NAME                  { $$ = pp_build_path_end(parse, pp_build_path(parse, NULL, @$, $NAME)); }
|	LPAREN expr RPAREN    { $$ = $expr; $$->span = @$; $$->parenthesized = false; }
;

/* ---- expressions ----------------------------------------------------------------------------- */

range: sum[first] RANGE sum[last] { $$ = pp_build_range(parse, $first, $last); } ;

expr:
	expr[a] QUESTION expr[b] COLON expr[c]  { $$ = pp_build_choice(parse, $a, $b, $c); }
|	expr[a] OR expr[b]          { $$ = pp_build_binary(parse, PP_OR, @OR, $a, $b); }
|	expr[a] AND expr[b]         { $$ = pp_build_binary(parse, PP_AND, @AND, $a, $b); }
|	NOT expr[a]                 { $$ = pp_build_unary(parse, @$, PP_NOT, @NOT, $a); }
|	sum[a] comparison sum[b]    { $$ = pp_build_binary(parse, $comparison, @comparison, $a, $b); }
|	sum
;

comparison:
	EQ { $$ = PP_EQ; }
|	NE { $$ = PP_NE; }
|	LT { $$ = PP_LT; }
|	GT { $$ = PP_GT; }
|	LE { $$ = PP_LE; }
|	GE { $$ = PP_GE; }
;

sum:
	sum[a] PLUS sum[b]          { $$ = pp_build_binary(parse, PP_ADD, @PLUS, $a, $b); }
|	sum[a] MINUS sum[b]         { $$ = pp_build_binary(parse, PP_SUB, @MINUS, $a, $b); }
|	sum[a] TIMES sum[b]         { $$ = pp_build_binary(parse, PP_MUL, @TIMES, $a, $b); }
|	sum[a] OVER sum[b]          { $$ = pp_build_binary(parse, PP_DIV, @OVER, $a, $b); }
|	sum[a] MOD sum[b]           { $$ = pp_build_binary(parse, PP_MOD, @MOD, $a, $b); }
|	MINUS sum[a] %prec NEGATE   { $$ = pp_build_unary(parse, @$, PP_NEG, @MINUS, $a); }
|	INT                         { $$ = pp_build_number(parse, PP_EXPR_INT, @$, $INT); }
|	REAL                        { $$ = pp_build_number(parse, PP_EXPR_REAL, @$, $REAL); }
|	QUANTITY                    { $$ = pp_build_quantity(parse, @$, $QUANTITY); }
|	STRING                      { $$ = pp_build_string(parse, @$, $STRING); }
|	TRUE                        { $$ = pp_build_bool(parse, @$, true); }
|	FALSE                       { $$ = pp_build_bool(parse, @$, false); }
|	list
|	path                        { $$ = pp_build_path_end(parse, $path); }
|	path LPAREN RPAREN          { $$ = pp_build_call(parse, @$, pp_build_path_end(parse, $path), NULL); }
|	path LPAREN arguments RPAREN
	{ $$ = pp_build_call(parse, @$, pp_build_path_end(parse, $path), $arguments.first); }
|	LPAREN expr RPAREN          { $$ = $expr; $$->span = @$; $$->parenthesized = $$->kind == PP_EXPR_PATH; }
;

path:
	NAME             { $$ = pp_build_path(parse, NULL, @$, $NAME); }
|	path DOT NAME    { $$ = pp_build_path(parse, $1, @NAME, $NAME); }
|	path DOT INT     { $$ = pp_build_path(parse, $1, @INT, $INT); }
;

list:
	LBRACKET RBRACKET                 { $$ = pp_build_list(parse, @$, NULL); }
|	LBRACKET elements RBRACKET        { $$ = pp_build_list(parse, @$, $elements.first); }
|	LBRACKET elements COMMA RBRACKET  { $$ = pp_build_list(parse, @$, $elements.first); }
;

elements:
	element                 { $$ = pp_append_expr((struct pp_expr_list){NULL, NULL}, $element); }
|	elements COMMA element  { $$ = pp_append_expr($1, $element); }
;

element: value ;

arguments:
	argument                  { $$ = pp_append_expr((struct pp_expr_list){NULL, NULL}, $argument); }
|	arguments COMMA argument  { $$ = pp_append_expr($1, $argument); }
;

argument:
	value
|	NAME ASSIGN value  { $$ = $value; $$->label = name_at($NAME, @NAME); }
;

%%

/* The message itself is written in report.c, which knows tokens by their names only. */
static int yyreport_syntax_error(const yypcontext_t *context, struct pp_parse *parse)
{
	yysymbol_kind_t expected[YYNTOKENS];
	const char *names[YYNTOKENS];
	int count = yypcontext_expected_tokens(context, expected, YYNTOKENS);
	for (int i = 0; i < count; i++)
		names[i] = yysymbol_name(expected[i]);
	pp_report_unexpected(parse, *yypcontext_location(context), yysymbol_name(yypcontext_token(context)), names, count);
	return 0;
}
