/* Command lines of the three tools, read from one table per tool. Long options take `--name=value` or
 * `--name value`, short ones `-o value` or `-ovalue`; flags without value may be joined (`-qv`); options and operands
 * mix;
 * `--` ends options; `-` alone is an operand. `-h`, `--help`, `-V` and `--version` are built in. */
#ifndef PP_OPTIONS_H
#define PP_OPTIONS_H

#include "arena.h"
#include "status.h"

#include <stdint.h>
#include <stdio.h>

/* What an option stores at its offset in the tool's own struct. */
enum pp_option_kind {
	PP_OPTION_FLAG,   /* bool := true */
	PP_OPTION_TEXT,   /* const char * */
	PP_OPTION_UINT,   /* uint64_t within least .. most */
	PP_OPTION_NUMBER, /* double, finite, not negative */
	PP_OPTION_CHOICE, /* unsigned: position in `argument`, "stats|gantt|list" */
	PP_OPTION_LIST,   /* struct pp_option_list: may be given several times */
};

struct pp_option {
	const char *name; /* long name without dashes */
	char letter;      /* short name, 0: none */
	enum pp_option_kind kind;
	const char *argument; /* "FILE", "N", "a|b|c"; NULL for flags */
	size_t offset;        /* offsetof the member that it sets */
	const char *help;
	uint64_t least, most; /* PP_OPTION_UINT; most 0: no limit */
	uint32_t commands;    /* mask of the subcommands that know it; 0: all */
};

struct pp_option_list {
	const char **items;
	size_t count, capacity;
};

struct pp_arguments {
	struct pp_option_list operands;
	bool help, version; /* asked for: parsing stopped there */
};

/* Read argv[1 .. argc) into `values` (defaults are what it holds before). `tool` ("pipec build") names the command in
 * messages; `command` is its bit, 0 without subcommands. False with PP_EXIT_USAGE and a message that names the option
 * and what it wants. */
bool pp_options_parse(struct pp_arena *arena, const char *tool, const struct pp_option *table, size_t count,
                      uint32_t command, int argc, char **argv, void *values, struct pp_arguments *arguments,
                      struct pp_status *status);

/* The table as text, one line per option that `command` knows, aligned: print the tool's examples first. */
void pp_options_help(const struct pp_option *table, size_t count, uint32_t command, FILE *out);

/* Position of `word` in "a|b|c", or -1. For operands such as subcommands. */
int pp_choice_find(const char *choices, const char *word);

/* The choice nearest to a misspelt word (in the arena), or NULL. */
const char *pp_choice_nearest(struct pp_arena *arena, const char *choices, const char *word);

/* Ranks such as "0,3-5": sets bits of `chosen` [count]. False with a usage message. */
bool pp_parse_ranks(const char *text, uint32_t count, bool *chosen, struct pp_status *status);

#endif
