/* Whether a text is well-formed XML, as far as our own writers go: one root, elements that close in order, attributes
 * quoted and not repeated, references only to the five named characters, no bare `<` or `&`, valid UTF-8. */
#ifndef PP_TEST_XML_CHECK_H
#define PP_TEST_XML_CHECK_H

#include <stddef.h>

/* NULL, or what is wrong; *at: its offset. `elements`, unless NULL: how many elements there are. */
const char *pp_xml_check(const char *text, size_t length, size_t *at, size_t *elements);

#endif
