/* Buffered text output with its own number formatting: stdio's costs most of the time of printing a program. */
#ifndef PP_TEXT_WRITE_H
#define PP_TEXT_WRITE_H

#include <stdint.h>
#include <stdio.h>

struct pp_writer {
	FILE *out;
	uint32_t used;
	char buffer[8192];
};

void pp_write_begin(struct pp_writer *writer, FILE *out);
void pp_write_flush(struct pp_writer *writer);
void pp_write_char(struct pp_writer *writer, char byte);
void pp_write_text(struct pp_writer *writer, const char *text);
void pp_write_uint(struct pp_writer *writer, uint64_t value);

/* Shortest decimal that reads back as exactly this value. */
void pp_write_number(struct pp_writer *writer, double value);

/* In double quotes, with the escapes that pp_word_string reads. */
void pp_write_string(struct pp_writer *writer, const char *text);

#endif
