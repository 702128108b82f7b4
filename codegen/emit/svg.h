/* Writing SVG 1.1: one standalone file without scripts, fonts or links. Coordinates are in pixels and printed with two
 * decimals, so that the same picture is the same bytes. */
#ifndef PP_SVG_H
#define PP_SVG_H

#include <stdio.h>

enum pp_svg_anchor { PP_SVG_START, PP_SVG_MIDDLE, PP_SVG_END };

struct pp_svg {
	FILE *out;
	unsigned depth; /* open elements */
};

/* `title` and `about` are what a screen reader says; `style` is CSS for the classes below, plain ASCII without `]]>`.
 */
struct pp_svg pp_svg_begin(FILE *out, double width, double height, const char *title, const char *about,
                           const char *style);
void pp_svg_end(struct pp_svg *svg);

/* Elements may have a class and a text that shows when the pointer is over them; either may be NULL. */
void pp_svg_group(struct pp_svg *svg, const char *name, const char *hover);
void pp_svg_group_end(struct pp_svg *svg);
void pp_svg_rect(struct pp_svg *svg, double x, double y, double width, double height, const char *name,
                 const char *hover);
void pp_svg_line(struct pp_svg *svg, double x1, double y1, double x2, double y2, const char *name);
void pp_svg_circle(struct pp_svg *svg, double x, double y, double radius, const char *name, const char *hover);
void pp_svg_text(struct pp_svg *svg, double x, double y, enum pp_svg_anchor anchor, const char *name, const char *text);

/* A path of straight pieces: begin, points, end. */
void pp_svg_path(struct pp_svg *svg, const char *name);
void pp_svg_point(struct pp_svg *svg, double x, double y, int first);
void pp_svg_path_end(struct pp_svg *svg);

/* A pattern for fills, `url(#id)` in the style: stripes `distance` apart, in `degrees`, over a colour. */
void pp_svg_stripes(struct pp_svg *svg, const char *id, const char *under, const char *stripe, double distance,
                    double degrees);

/* About how wide a text is at this size in a sans-serif font. */
double pp_svg_text_width(const char *text, double size);

/* The smallest of 1, 2, 5 times a power of ten that is at least `least`: steps of an axis. */
double pp_svg_step(double least);

/* A number with as many decimals as its step needs. `text` has room for PP_SVG_NUMBER. */
enum { PP_SVG_NUMBER = 40 };
void pp_svg_number(char *text, double value, double step);

#endif
