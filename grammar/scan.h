/* Helpers of the scanner that are plain C: numbers, strings, wrong characters. Each reports what is wrong and still
 * gives a value, so that one wrong token does not hide the errors after it. Private to grammar/. */
#ifndef PP_SCAN_H
#define PP_SCAN_H

#include "build.h"

#include <stddef.h>

/* Digits as they are kept: without underscores and leading zeros. Interned. */
const char *pp_scan_digits(struct pp_parse *parse, const char *text, size_t length);

/* Is it a unit of the language? */
bool pp_scan_is_unit(const char *name);

/* How many bytes of "64GB/s" or "8GB/sum" belong to the quantity: a unit may hold "/s" and no other slash. */
size_t pp_scan_quantity_length(const char *text, size_t length);

/* A number glued to a unit; reports E0003 and E0004. */
struct pp_quantity pp_scan_quantity(struct pp_parse *parse, struct pp_span span, const char *text, size_t length);

/* 2F0. */
struct pp_cell pp_scan_cell(struct pp_parse *parse, struct pp_span span, const char *text, size_t length);

/* The value of what stands between the quotes; reports E0007. */
const char *pp_scan_string(struct pp_parse *parse, uint32_t start, const char *text, size_t length);

/* How many of these bytes, which cannot begin a token, are reported together. */
size_t pp_scan_wrong_length(const char *text, size_t length);

/* Report bytes that cannot begin a token (E0007). */
void pp_scan_wrong_bytes(struct pp_parse *parse, struct pp_span span, const char *text, size_t length);

/* Report an operator of another language: `wrong` where we write `right`. */
void pp_scan_wrong_operator(struct pp_parse *parse, struct pp_span span, const char *wrong, const char *right);

/* Report a wrong way to begin a comment (E0002), and a string that is not closed (E0005). */
void pp_scan_wrong_comment(struct pp_parse *parse, struct pp_span span, bool block);
void pp_scan_open_string(struct pp_parse *parse, struct pp_span span);

/* Report a `;`, once per text. */
void pp_scan_semicolon(struct pp_parse *parse, struct pp_span span);

/* Is this a text in UTF-16 or another encoding with NUL bytes? Reports E0007 once. */
bool pp_scan_encoding(struct pp_parse *parse);

#endif
