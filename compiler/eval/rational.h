/* Exact fractions of 128-bit integers: the numbers of the language. Every operation says whether its result fits;
 * nothing wraps and nothing is rounded. A fraction is always reduced and has a positive denominator. */
#ifndef PP_RATIONAL_H
#define PP_RATIONAL_H

#include <stdbool.h>
#include <stdint.h>

__extension__ typedef __int128 pp_wide;

struct pp_rational {
	pp_wide top, bottom;
};

static inline struct pp_rational pp_rational_whole(int64_t value)
{
	return (struct pp_rational){value, 1};
}

static inline bool pp_rational_is_whole(struct pp_rational a)
{
	return a.bottom == 1;
}

/* top / bottom, reduced. False when bottom is 0 or the result does not fit. */
bool pp_rational_make(pp_wide top, pp_wide bottom, struct pp_rational *out);

/* False: the result does not fit (or, for divide and modulo, b is 0). Modulo is a - b * floor(a / b). */
bool pp_rational_add(struct pp_rational a, struct pp_rational b, struct pp_rational *out);
bool pp_rational_subtract(struct pp_rational a, struct pp_rational b, struct pp_rational *out);
bool pp_rational_multiply(struct pp_rational a, struct pp_rational b, struct pp_rational *out);
bool pp_rational_divide(struct pp_rational a, struct pp_rational b, struct pp_rational *out);
bool pp_rational_modulo(struct pp_rational a, struct pp_rational b, struct pp_rational *out);

/* Below, at or above: -1, 0, 1. Always exact. */
int pp_rational_compare(struct pp_rational a, struct pp_rational b);

struct pp_rational pp_rational_floor(struct pp_rational a);
double pp_rational_real(struct pp_rational a);

/* The whole number of a fraction within int64_t, or false. */
bool pp_rational_int64(struct pp_rational a, int64_t *out);

/* A decimal literal such as 12, 1.5, 1e3 or 6e-5, exactly. False when it does not fit or is none. */
bool pp_rational_read(const char *text, struct pp_rational *out);

/* Decimal digits of a wide integer; `text` holds at least 48 bytes. Returns `text`. */
char *pp_wide_text(pp_wide value, char *text);

#endif
