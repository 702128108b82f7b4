/* Exact fractions. Overflow is found by division before the product is made: the compiler builtin for 128-bit
 * products needs a runtime library that not every tool chain links. */
#include "rational.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef unsigned __int128 unsigned_wide;

static const pp_wide widest = (pp_wide)(~(unsigned_wide)0 >> 1);

static pp_wide magnitude(pp_wide a)
{
	return a < 0 ? -a : a;
}

/* The most negative integer is never a result, so that negation always fits. */
static bool add(pp_wide a, pp_wide b, pp_wide *out)
{
	if ((b > 0 && a > widest - b) || (b < 0 && a < -widest - b))
		return false;
	*out = a + b;
	return true;
}

static bool multiply(pp_wide a, pp_wide b, pp_wide *out)
{
	if (a != 0 && magnitude(b) > widest / magnitude(a))
		return false;
	*out = a * b;
	return true;
}

static pp_wide common_divisor(pp_wide a, pp_wide b)
{
	while (b != 0) {
		pp_wide rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

bool pp_rational_make(pp_wide top, pp_wide bottom, struct pp_rational *out)
{
	if (bottom == 0 || top < -widest || bottom < -widest)
		return false;
	if (bottom != 1) {
		pp_wide divisor = common_divisor(magnitude(top), magnitude(bottom));
		if (bottom < 0)
			divisor = -divisor;
		top /= divisor;
		bottom /= divisor;
	}
	*out = (struct pp_rational){top, bottom};
	return true;
}

bool pp_rational_add(struct pp_rational a, struct pp_rational b, struct pp_rational *out)
{
	pp_wide divisor = common_divisor(a.bottom, b.bottom);
	pp_wide left, right, top, bottom;
	return multiply(a.top, b.bottom / divisor, &left) && multiply(b.top, a.bottom / divisor, &right) &&
	       add(left, right, &top) && multiply(a.bottom, b.bottom / divisor, &bottom) &&
	       pp_rational_make(top, bottom, out);
}

bool pp_rational_subtract(struct pp_rational a, struct pp_rational b, struct pp_rational *out)
{
	b.top = -b.top;
	return pp_rational_add(a, b, out);
}

bool pp_rational_multiply(struct pp_rational a, struct pp_rational b, struct pp_rational *out)
{
	/* Crosswise reduction first keeps every intermediate no larger than the result. */
	struct pp_rational left, right;
	pp_wide top, bottom;
	return pp_rational_make(a.top, b.bottom, &left) && pp_rational_make(b.top, a.bottom, &right) &&
	       multiply(left.top, right.top, &top) && multiply(left.bottom, right.bottom, &bottom) &&
	       pp_rational_make(top, bottom, out);
}

bool pp_rational_divide(struct pp_rational a, struct pp_rational b, struct pp_rational *out)
{
	struct pp_rational inverse;
	return pp_rational_make(b.bottom, b.top, &inverse) && pp_rational_multiply(a, inverse, out);
}

bool pp_rational_modulo(struct pp_rational a, struct pp_rational b, struct pp_rational *out)
{
	struct pp_rational quotient, whole;
	return pp_rational_divide(a, b, &quotient) && pp_rational_multiply(b, pp_rational_floor(quotient), &whole) &&
	       pp_rational_subtract(a, whole, out);
}

struct pp_rational pp_rational_floor(struct pp_rational a)
{
	pp_wide quotient = a.top / a.bottom;
	if (a.top % a.bottom < 0)
		quotient--;
	return (struct pp_rational){quotient, 1};
}

/* Whole parts decide, else the remainders upside down: the steps of Euclid, with no product that could overflow. */
int pp_rational_compare(struct pp_rational a, struct pp_rational b)
{
	int sign = 1;
	for (;;) {
		pp_wide x = pp_rational_floor(a).top, y = pp_rational_floor(b).top;
		if (x != y)
			return x < y ? -sign : sign;
		struct pp_rational rest_a = {a.bottom, a.top - x * a.bottom}, rest_b = {b.bottom, b.top - y * b.bottom};
		if (rest_a.bottom == 0 || rest_b.bottom == 0)
			return rest_a.bottom == rest_b.bottom ? 0 : rest_a.bottom == 0 ? -sign : sign;
		a = rest_a;
		b = rest_b;
		sign = -sign;
	}
}

/* Correctly rounded: 64 bits of the quotient, the last one sticky, are rounded once by the conversion. */
double pp_rational_real(struct pp_rational a)
{
	unsigned_wide top = a.top < 0 ? -(unsigned_wide)a.top : (unsigned_wide)a.top, bottom = (unsigned_wide)a.bottom;
	unsigned_wide quotient = top / bottom, rest = top % bottom;
	int exponent = 0;
	bool sticky = false;
	while (quotient && quotient >> 64) {
		sticky |= quotient & 1;
		quotient >>= 1;
		exponent++;
	}
	while (top && !(quotient >> 63)) {
		rest *= 2;
		quotient = quotient * 2 + (rest >= bottom);
		rest -= rest >= bottom ? bottom : 0;
		exponent--;
	}
	double magnitude = ldexp((double)((uint64_t)quotient | (sticky || rest)), exponent);
	return a.top < 0 ? -magnitude : magnitude;
}

bool pp_rational_int64(struct pp_rational a, int64_t *out)
{
	if (a.bottom != 1 || a.top < INT64_MIN || a.top > INT64_MAX)
		return false;
	*out = (int64_t)a.top;
	return true;
}

static bool push_digit(pp_wide *value, char digit)
{
	return multiply(*value, 10, value) && add(*value, digit - '0', value);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits with at most one point; *scale counts the digits after it. */
static const char *read_mantissa(const char *text, pp_wide *value, int *scale)
{
	const char *start = text;
	bool point = false;
	for (; is_digit(*text) || (*text == '.' && !point); text++) {
		if (*text == '.') {
			point = true;
			continue;
		}
		if (!push_digit(value, *text))
			return NULL;
		*scale += point;
	}
	return text == start || (point && text == start + 1) ? NULL : text;
}

static const char *read_exponent(const char *text, int *exponent)
{
	if (*text != 'e' && *text != 'E')
		return text;
	text++;
	bool negative = *text == '-';
	if (*text == '-' || *text == '+')
		text++;
	if (!is_digit(*text))
		return NULL;
	int value = 0;
	for (; is_digit(*text); text++)
		value = value < 1000 ? value * 10 + (*text - '0') : value;
	*exponent = negative ? -value : value;
	return text;
}

bool pp_rational_read(const char *text, struct pp_rational *out)
{
	pp_wide value = 0, power = 1;
	int scale = 0, exponent = 0;
	text = read_mantissa(text, &value, &scale);
	if (text)
		text = read_exponent(text, &exponent);
	if (!text || *text)
		return false;
	exponent -= scale;
	for (int i = exponent < 0 ? -exponent : exponent; i > 0 && value != 0; i--)
		if (!multiply(power, 10, &power))
			return false;
	if (exponent < 0)
		return pp_rational_make(value, power, out);
	return multiply(value, power, &value) && pp_rational_make(value, 1, out);
}

char *pp_wide_text(pp_wide value, char *text)
{
	char digits[48];
	size_t count = 0;
	unsigned_wide rest = value < 0 ? (unsigned_wide)0 - (unsigned_wide)value : (unsigned_wide)value;
	do {
		digits[count++] = (char)('0' + (int)(rest % 10));
		rest /= 10;
	} while (rest != 0);
	char *end = text;
	if (value < 0)
		*end++ = '-';
	while (count > 0)
		*end++ = digits[--count];
	*end = '\0';
	return text;
}
