/* SVG as text. ensures: well-formed XML whatever the texts hold: markup is escaped, and bytes that XML can't hold
 * become question marks. */
#include "svg.h"

#include "ir/str.h"

#include <math.h>
#include <string.h>

/* Two decimals, without zeros at the end. */
static void coordinate(struct pp_svg *svg, double value)
{
	char text[64];
	int length = snprintf(text, sizeof text, "%.2f", value);
	if (length <= 0 || length >= (int)sizeof text)
		return;
	while (text[length - 1] == '0')
		text[--length] = '\0';
	if (text[length - 1] == '.')
		text[--length] = '\0';
	fputs(strcmp(text, "-0") == 0 ? "0" : text, svg->out);
}

static void attribute(struct pp_svg *svg, const char *name, double value)
{
	fprintf(svg->out, " %s=\"", name);
	coordinate(svg, value);
	fputc('"', svg->out);
}

static void escaped(struct pp_svg *svg, const char *text)
{
	size_t left = strlen(text);
	while (left) {
		size_t length = pp_utf8_length(text, left);
		unsigned char c = (unsigned char)*text;
		if (length == 0 || (c < 0x20 && c != '\n' && c != '\t'))
			fputc('?', svg->out);
		else if (c == '&')
			fputs("&amp;", svg->out);
		else if (c == '<')
			fputs("&lt;", svg->out);
		else if (c == '>')
			fputs("&gt;", svg->out);
		else if (c == '"')
			fputs("&quot;", svg->out);
		else if (length == 3 && memcmp(text, "\xef\xbf", 2) == 0 && ((unsigned char)text[2] & 0xbe) == 0xbe)
			fputc('?', svg->out); /* U+FFFE and U+FFFF are no characters of XML */
		else
			fwrite(text, 1, length, svg->out);
		text += length ? length : 1;
		left -= length ? length : 1;
	}
}

static void indent(struct pp_svg *svg)
{
	fprintf(svg->out, "%*s", (int)svg->depth, "");
}

static void open(struct pp_svg *svg, const char *element, const char *name)
{
	indent(svg);
	fprintf(svg->out, "<%s", element);
	if (name) {
		fputs(" class=\"", svg->out);
		escaped(svg, name);
		fputc('"', svg->out);
	}
}

/* The end of an element, with its hover text inside. */
static void close(struct pp_svg *svg, const char *element, const char *hover)
{
	if (!hover) {
		fputs("/>\n", svg->out);
		return;
	}
	fputs("><title>", svg->out);
	escaped(svg, hover);
	fprintf(svg->out, "</title></%s>\n", element);
}

struct pp_svg pp_svg_begin(FILE *out, double width, double height, const char *title, const char *about,
                           const char *style)
{
	struct pp_svg svg = {.out = out, .depth = 1};
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\"", out);
	attribute(&svg, "width", width);
	attribute(&svg, "height", height);
	fputs(" viewBox=\"0 0 ", out);
	coordinate(&svg, width);
	fputc(' ', out);
	coordinate(&svg, height);
	fputs("\" role=\"img\" aria-labelledby=\"title about\">\n <title id=\"title\">", out);
	escaped(&svg, title);
	fputs("</title>\n <desc id=\"about\">", out);
	escaped(&svg, about);
	fprintf(out, "</desc>\n <style><![CDATA[\n%s ]]></style>\n", style);
	return svg;
}

void pp_svg_end(struct pp_svg *svg)
{
	fputs("</svg>\n", svg->out);
	svg->depth = 0;
}

void pp_svg_group(struct pp_svg *svg, const char *name, const char *hover)
{
	open(svg, "g", name);
	fputc('>', svg->out);
	if (hover) {
		fputs("<title>", svg->out);
		escaped(svg, hover);
		fputs("</title>", svg->out);
	}
	fputc('\n', svg->out);
	svg->depth++;
}

void pp_svg_group_end(struct pp_svg *svg)
{
	svg->depth--;
	indent(svg);
	fputs("</g>\n", svg->out);
}

void pp_svg_rect(struct pp_svg *svg, double x, double y, double width, double height, const char *name,
                 const char *hover)
{
	open(svg, "rect", name);
	attribute(svg, "x", x);
	attribute(svg, "y", y);
	attribute(svg, "width", width);
	attribute(svg, "height", height);
	close(svg, "rect", hover);
}

void pp_svg_line(struct pp_svg *svg, double x1, double y1, double x2, double y2, const char *name)
{
	open(svg, "line", name);
	attribute(svg, "x1", x1);
	attribute(svg, "y1", y1);
	attribute(svg, "x2", x2);
	attribute(svg, "y2", y2);
	close(svg, "line", NULL);
}

void pp_svg_circle(struct pp_svg *svg, double x, double y, double radius, const char *name, const char *hover)
{
	open(svg, "circle", name);
	attribute(svg, "cx", x);
	attribute(svg, "cy", y);
	attribute(svg, "r", radius);
	close(svg, "circle", hover);
}

void pp_svg_text(struct pp_svg *svg, double x, double y, enum pp_svg_anchor anchor, const char *name, const char *text)
{
	static const char *const anchors[] = {[PP_SVG_START] = "start", [PP_SVG_MIDDLE] = "middle", [PP_SVG_END] = "end"};
	open(svg, "text", name);
	attribute(svg, "x", x);
	attribute(svg, "y", y);
	if (anchor != PP_SVG_START)
		fprintf(svg->out, " text-anchor=\"%s\"", anchors[anchor]);
	fputc('>', svg->out);
	escaped(svg, text);
	fputs("</text>\n", svg->out);
}

void pp_svg_path(struct pp_svg *svg, const char *name)
{
	open(svg, "path", name);
	fputs(" d=\"", svg->out);
}

void pp_svg_point(struct pp_svg *svg, double x, double y, int first)
{
	fputs(first ? "M" : " L", svg->out);
	coordinate(svg, x);
	fputc(' ', svg->out);
	coordinate(svg, y);
}

void pp_svg_path_end(struct pp_svg *svg)
{
	fputs("\"/>\n", svg->out);
}

void pp_svg_stripes(struct pp_svg *svg, const char *id, const char *under, const char *stripe, double distance,
                    double degrees)
{
	indent(svg);
	fprintf(svg->out, "<pattern id=\"%s\" patternUnits=\"userSpaceOnUse\"", id);
	attribute(svg, "width", distance);
	attribute(svg, "height", distance);
	fputs(" patternTransform=\"rotate(", svg->out);
	coordinate(svg, degrees);
	fprintf(svg->out, ")\"><rect width=\"100%%\" height=\"100%%\" fill=\"%s\"/><rect", under);
	attribute(svg, "width", distance / 4);
	fprintf(svg->out, " height=\"100%%\" fill=\"%s\"/></pattern>\n", stripe);
}

double pp_svg_text_width(const char *text, double size)
{
	double width = 0;
	for (; *text; text++)
		if (((unsigned char)*text & 0xc0) != 0x80)
			width += strchr(".,:;'|ijlI ", *text) ? 0.3 : strchr("MWmw@%", *text) ? 0.9 : 0.58;
	return width * size;
}

double pp_svg_step(double least)
{
	if (!(least > 0) || !isfinite(least))
		return 1;
	double power = pow(10, floor(log10(least)));
	static const double steps[] = {1, 2, 5};
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
		if (steps[i] * power >= least * (1 - 1e-9))
			return steps[i] * power;
	return 10 * power;
}

void pp_svg_number(char *text, double value, double step)
{
	double zero = step * 1e-6;
	int decimals = 0;
	for (; decimals < 6 && step < 0.999; decimals++)
		step *= 10;
	snprintf(text, PP_SVG_NUMBER, "%.*f", decimals, fabs(value) < zero ? 0 : value); /* never -0 */
}
