/* A checker of well-formedness (XML 1.0, fifth edition, 2.1), without DTDs. */
#include "support/xml_check.h"

#include "ir/str.h"

#include <stdbool.h>
#include <string.h>

enum { DEEPEST = 64, MOST_ATTRIBUTES = 32 };

struct name {
	const char *text;
	size_t length;
};

struct checker {
	const char *text;
	size_t length, at, elements;
	struct name open[DEEPEST];
	size_t depth;
	const char *wrong;
};

static bool wrong(struct checker *checker, const char *what)
{
	if (!checker->wrong)
		checker->wrong = what;
	return false;
}

static bool next_is(const struct checker *checker, const char *text)
{
	size_t length = strlen(text);
	return checker->length - checker->at >= length && memcmp(checker->text + checker->at, text, length) == 0;
}

static bool skip_past(struct checker *checker, const char *end)
{
	while (checker->at < checker->length && !next_is(checker, end))
		checker->at++;
	if (checker->at == checker->length)
		return wrong(checker, "something is not closed");
	checker->at += strlen(end);
	return true;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool skip_blanks(struct checker *checker)
{
	size_t from = checker->at;
	while (checker->at < checker->length && blank(checker->text[checker->at]))
		checker->at++;
	return checker->at > from;
}

static struct name read_name(struct checker *checker)
{
	struct name name = {checker->text + checker->at, 0};
	while (checker->at < checker->length) {
		char c = checker->text[checker->at];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
		if (!letter && (name.length == 0 || !((c >= '0' && c <= '9') || c == '-' || c == '.' || c == ':')))
			break;
		name.length++;
		checker->at++;
	}
	if (name.length == 0)
		wrong(checker, "a name is missing");
	return name;
}

static bool same(struct name a, struct name b)
{
	return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

static bool skip_reference(struct checker *checker)
{
	static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (next_is(checker, known[i])) {
			checker->at += strlen(known[i]);
			return true;
		}
	return wrong(checker, "a bare `&`");
}

static bool skip_character(struct checker *checker)
{
	unsigned char c = (unsigned char)checker->text[checker->at];
	if (c == '&')
		return skip_reference(checker);
	if (c < 0x20 && !blank((char)c))
		return wrong(checker, "a control character");
	size_t length = pp_utf8_length(checker->text + checker->at, checker->length - checker->at);
	if (length == 0)
		return wrong(checker, "bytes that are not UTF-8");
	checker->at += length;
	return true;
}

static bool skip_value(struct checker *checker)
{
	if (checker->at == checker->length || checker->text[checker->at] != '"')
		return wrong(checker, "a value without quotes");
	checker->at++;
	while (checker->at < checker->length && checker->text[checker->at] != '"')
		if (checker->text[checker->at] == '<')
			return wrong(checker, "a bare `<` in a value");
		else if (!skip_character(checker))
			return false;
	return checker->at++ < checker->length || wrong(checker, "a value is not closed");
}

static bool skip_attributes(struct checker *checker)
{
	struct name seen[MOST_ATTRIBUTES];
	size_t count = 0;
	while (skip_blanks(checker) && !next_is(checker, ">") && !next_is(checker, "/>") && !next_is(checker, "?>")) {
		struct name name = read_name(checker);
		if (checker->wrong)
			return false;
		for (size_t i = 0; i < count; i++)
			if (same(seen[i], name))
				return wrong(checker, "an attribute is given twice");
		if (count == MOST_ATTRIBUTES)
			return wrong(checker, "too many attributes");
		seen[count++] = name;
		if (!next_is(checker, "="))
			return wrong(checker, "an attribute without a value");
		checker->at++;
		if (!skip_value(checker))
			return false;
	}
	return true;
}

static bool open_element(struct checker *checker)
{
	checker->at++;
	struct name name = read_name(checker);
	if (checker->wrong || !skip_attributes(checker))
		return false;
	if (checker->depth == 0 && checker->elements)
		return wrong(checker, "a second root");
	checker->elements++;
	if (next_is(checker, "/>")) {
		checker->at += 2;
		return true;
	}
	if (!next_is(checker, ">"))
		return wrong(checker, "a tag is not closed");
	checker->at++;
	if (checker->depth == DEEPEST)
		return wrong(checker, "too deep");
	checker->open[checker->depth++] = name;
	return true;
}

static bool close_element(struct checker *checker)
{
	checker->at += 2;
	struct name name = read_name(checker);
	if (checker->depth == 0 || !same(checker->open[checker->depth - 1], name))
		return wrong(checker, "an end tag of another element");
	checker->depth--;
	if (!next_is(checker, ">"))
		return wrong(checker, "an end tag is not closed");
	checker->at++;
	return true;
}

static bool skip_item(struct checker *checker)
{
	if (next_is(checker, "<![CDATA["))
		return checker->depth ? skip_past(checker, "]]>") : wrong(checker, "text outside the root");
	if (next_is(checker, "<!--"))
		return skip_past(checker, "-->");
	if (next_is(checker, "<?"))
		return checker->at == 0 ? skip_past(checker, "?>") : wrong(checker, "a declaration that is not at the start");
	if (next_is(checker, "</"))
		return close_element(checker);
	if (next_is(checker, "<"))
		return open_element(checker);
	if (checker->depth == 0 && !blank(checker->text[checker->at]))
		return wrong(checker, "text outside the root");
	return skip_character(checker);
}

const char *pp_xml_check(const char *text, size_t length, size_t *at, size_t *elements)
{
	struct checker checker = {.text = text, .length = length};
	while (checker.at < checker.length && skip_item(&checker))
		;
	if (!checker.wrong && (checker.depth || checker.elements == 0))
		wrong(&checker, "the root is not closed");
	*at = checker.at;
	if (elements)
		*elements = checker.elements;
	return checker.wrong;
}
