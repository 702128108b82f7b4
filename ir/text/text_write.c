/* Buffered text output. */
#include "text_write.h"

#include <stdlib.h>
#include <string.h>

void pp_write_begin(struct pp_writer *writer, FILE *out)
{
	writer->out = out;
	writer->used = 0;
}

void pp_write_flush(struct pp_writer *writer)
{
	fwrite(writer->buffer, 1, writer->used, writer->out);
	writer->used = 0;
}

static void put(struct pp_writer *writer, const char *bytes, size_t length)
{
	if (length > sizeof writer->buffer - writer->used)
		pp_write_flush(writer);
	if (length > sizeof writer->buffer) {
		fwrite(bytes, 1, length, writer->out);
		return;
	}
	memcpy(writer->buffer + writer->used, bytes, length);
	writer->used += (uint32_t)length;
}

void pp_write_char(struct pp_writer *writer, char byte)
{
	put(writer, &byte, 1);
}

void pp_write_text(struct pp_writer *writer, const char *text)
{
	put(writer, text, strlen(text));
}

void pp_write_uint(struct pp_writer *writer, uint64_t value)
{
	char digits[20];
	size_t at = sizeof digits;
	do {
		digits[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	put(writer, digits + at, sizeof digits - at);
}

void pp_write_number(struct pp_writer *writer, double value)
{
	char text[32];
	for (int precision = 1; precision <= 17; precision++) {
		snprintf(text, sizeof text, "%.*g", precision, value);
		if (strtod(text, NULL) == value)
			break;
	}
	pp_write_text(writer, text);
}

void pp_write_string(struct pp_writer *writer, const char *text)
{
	static const char hex[] = "0123456789abcdef";
	pp_write_char(writer, '"');
	for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
		if (*at == '"' || *at == '\\') {
			const char pair[2] = {'\\', (char)*at};
			put(writer, pair, 2);
		} else if (*at == '\n')
			put(writer, "\\n", 2);
		else if (*at == '\t')
			put(writer, "\\t", 2);
		else if (*at < ' ' || *at == 0x7f) {
			const char four[4] = {'\\', 'x', hex[*at >> 4], hex[*at & 15]};
			put(writer, four, 4);
		} else
			pp_write_char(writer, (char)*at);
	}
	pp_write_char(writer, '"');
}
