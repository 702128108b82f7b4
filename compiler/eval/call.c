/* The built-in functions: floor ceil min max abs log2 sqrt len sum. */
#include "eval.h"

#include <math.h>
#include <string.h>

enum { MOST_ARGUMENTS = 64 };

struct function {
	const char *name;
	uint32_t least, most; /* arguments */
	bool numbers;         /* all arguments are numbers of one dimension; a single list stands for its items */
	bool (*apply)(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
	              struct pp_datum *out);
};

static bool too_large(struct pp_eval *eval, const struct pp_expr *call)
{
	pp_error(eval->diag, "E0204", call->span, "the value of `%s` is too large", pp_eval_quote(eval, call->span));
	return false;
}

/* A double that is whole becomes exact again, so that floor(log2(x)) can be counted with. */
static bool round_to(struct pp_eval *eval, const struct pp_expr *call, double value, struct pp_dimension dimension,
                     struct pp_datum *out)
{
	if (!(fabs(value) <= 9007199254740992.0))
		return too_large(eval, call);
	*out = pp_datum_number(pp_rational_whole((int64_t)value), dimension);
	return true;
}

static bool apply_floor(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
                        struct pp_datum *out)
{
	(void)count;
	if (!args->exact)
		return round_to(eval, call, floor(args->real), args->dimension, out);
	*out = pp_datum_number(pp_rational_floor(args->number), args->dimension);
	return true;
}

static bool apply_ceil(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
                       struct pp_datum *out)
{
	(void)count;
	if (!args->exact)
		return round_to(eval, call, ceil(args->real), args->dimension, out);
	struct pp_rational negative = {-args->number.top, args->number.bottom};
	struct pp_rational down = pp_rational_floor(negative);
	*out = pp_datum_number((struct pp_rational){-down.top, 1}, args->dimension);
	return true;
}

static bool apply_abs(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
                      struct pp_datum *out)
{
	(void)eval;
	(void)call;
	(void)count;
	*out = *args;
	out->real = fabs(out->real);
	if (out->number.top < 0)
		out->number.top = -out->number.top;
	return true;
}

static bool pick(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
                 int sign, struct pp_datum *out)
{
	if (count == 0) {
		pp_error(eval->diag, "E0206", call->span, "`%s` of nothing has no value", call->a->text);
		return false;
	}
	*out = args[0];
	for (uint32_t i = 1; i < count; i++)
		if (pp_datum_compare(&args[i], out) * sign > 0)
			*out = args[i];
	return true;
}

static bool apply_min(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
                      struct pp_datum *out)
{
	return pick(eval, call, args, count, -1, out);
}

static bool apply_max(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
                      struct pp_datum *out)
{
	return pick(eval, call, args, count, 1, out);
}

static bool apply_sum(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
                      struct pp_datum *out)
{
	*out = pp_datum_number(pp_rational_whole(0), count > 0 ? args[0].dimension : PP_PURE);
	for (uint32_t i = 0; i < count; i++) {
		if (!out->exact || !args[i].exact)
			*out = pp_datum_real(pp_datum_to_real(out) + pp_datum_to_real(&args[i]), out->dimension);
		else if (!pp_rational_add(out->number, args[i].number, &out->number))
			return too_large(eval, call);
	}
	return out->exact || isfinite(out->real) || too_large(eval, call);
}

static bool check_pure(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *arg, bool positive)
{
	const char *what = pp_arena_printf(eval->arena, "`%s`", call->a->text);
	double value = pp_datum_to_real(arg);
	if (!pp_dimension_equal(arg->dimension, PP_PURE)) {
		pp_eval_mismatch(eval, call->b, what, "a pure number", arg);
		return false;
	}
	if (value < 0.0 || (positive && value == 0.0)) {
		pp_error(eval->diag, "E0206", call->b->span, "%s wants a %s number, got %s", what,
		         positive ? "positive" : "non-negative", pp_datum_text(eval->arena, arg));
		return false;
	}
	return true;
}

/* Exact where the result is: log2(8) is 3. */
static bool apply_log2(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
                       struct pp_datum *out)
{
	(void)count;
	if (!check_pure(eval, call, args, true))
		return false;
	double value = log2(pp_datum_to_real(args));
	*out = value == floor(value) ? pp_datum_whole((int64_t)value) : pp_datum_real(value, PP_PURE);
	return true;
}

static bool apply_sqrt(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
                       struct pp_datum *out)
{
	(void)count;
	if (!check_pure(eval, call, args, false))
		return false;
	double value = sqrt(pp_datum_to_real(args));
	bool whole = value == floor(value) && value < 4294967296.0 && args->exact && pp_rational_is_whole(args->number) &&
	             (pp_wide)(int64_t)value * (int64_t)value == args->number.top;
	*out = whole ? pp_datum_whole((int64_t)value) : pp_datum_real(value, PP_PURE);
	return true;
}

/* Items of a list, characters of a string. */
static bool apply_len(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count,
                      struct pp_datum *out)
{
	(void)count;
	if (args->kind == PP_DATUM_LIST) {
		*out = pp_datum_whole(args->count);
		return true;
	}
	if (args->kind != PP_DATUM_STRING) {
		pp_eval_mismatch(eval, call->b, "`len`", "a list or a string", args);
		return false;
	}
	int64_t characters = 0;
	for (const char *at = args->text; *at; at++)
		characters += ((unsigned char)*at & 0xC0) != 0x80;
	*out = pp_datum_whole(characters);
	return true;
}

static const struct function functions[] = {
    {"floor", 1, 1, true, apply_floor},
    {"ceil", 1, 1, true, apply_ceil},
    {"min", 1, MOST_ARGUMENTS, true, apply_min},
    {"max", 1, MOST_ARGUMENTS, true, apply_max},
    {"abs", 1, 1, true, apply_abs},
    {"log2", 1, 1, true, apply_log2},
    {"sqrt", 1, 1, true, apply_sqrt},
    {"len", 1, 1, false, apply_len},
    {"sum", 1, MOST_ARGUMENTS, true, apply_sum},
};

enum { FUNCTION_COUNT = sizeof(functions) / sizeof(functions[0]) };

static const struct function *find_function(const char *name)
{
	for (int i = 0; i < FUNCTION_COUNT; i++)
		if (strcmp(functions[i].name, name) == 0)
			return &functions[i];
	return NULL;
}

bool pp_eval_is_function(const char *name)
{
	return find_function(name) != NULL;
}

static void report_unknown(struct pp_eval *eval, const struct pp_expr *call)
{
	const char *names[FUNCTION_COUNT];
	for (int i = 0; i < FUNCTION_COUNT; i++)
		names[i] = functions[i].name;
	struct pp_message *message =
	    pp_error(eval->diag, "E0110", call->a->span, "unknown function `%.60s`", call->a->text);
	const char *nearest = pp_nearest(call->a->text, names, FUNCTION_COUNT);
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	else
		pp_help(message, "there are floor ceil min max abs log2 sqrt len sum");
}

static bool read_arguments(struct pp_eval *eval, const struct pp_expr *call, const struct function *function,
                           struct pp_datum *args, uint32_t *count)
{
	*count = 0;
	for (const struct pp_expr *arg = call->b; arg; arg = arg->next) {
		if (arg->label.text) {
			pp_error(eval->diag, "E0206", arg->label.span, "`%s` has no argument named `%.40s`", function->name,
			         arg->label.text);
			return false;
		}
		if (*count >= function->most) {
			pp_error(eval->diag, "E0206", arg->span, "`%s` takes at most %u argument%s", function->name, function->most,
			         function->most == 1 ? "" : "s");
			return false;
		}
		if (!pp_eval_expr(eval, arg, &args[*count]))
			return false;
		(*count)++;
	}
	if (*count >= function->least)
		return true;
	pp_error(eval->diag, "E0206", call->span, "`%s` needs at least %u argument%s", function->name, function->least,
	         function->least == 1 ? "" : "s");
	return false;
}

static bool check_numbers(struct pp_eval *eval, const struct pp_expr *call, const struct pp_datum *args, uint32_t count)
{
	const struct pp_expr *at = call->b;
	for (uint32_t i = 0; i < count; i++) {
		const char *what = pp_arena_printf(eval->arena, "`%s`", call->a->text);
		if (args[i].kind != PP_DATUM_NUMBER) {
			pp_eval_mismatch(eval, at, what, "numbers", &args[i]);
			return false;
		}
		if (!pp_dimension_equal(args[i].dimension, args[0].dimension)) {
			pp_eval_mismatch(eval, at, what, pp_arena_printf(eval->arena, "%s like the first", pp_datum_noun(&args[0])),
			                 &args[i]);
			return false;
		}
		if (at->next)
			at = at->next;
	}
	return true;
}

bool pp_eval_call(struct pp_eval *eval, const struct pp_expr *call, struct pp_datum *out)
{
	const struct function *function = find_function(call->a->text);
	if (!function) {
		report_unknown(eval, call);
		return false;
	}
	uint32_t count = 0;
	for (const struct pp_expr *arg = call->b; arg && count < function->most; arg = arg->next)
		count++;
	struct pp_datum *args = PP_NEW_ARRAY(eval->arena, struct pp_datum, count);
	if (!read_arguments(eval, call, function, args, &count))
		return false;
	const struct pp_datum *values = args;
	if (function->numbers && count == 1 && function->most > 1 && args[0].kind == PP_DATUM_LIST) {
		values = args[0].items;
		count = args[0].count;
	}
	return (!function->numbers || check_numbers(eval, call, values, count)) &&
	       function->apply(eval, call, values, count, out);
}
