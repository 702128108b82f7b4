/* How fast ranks reach each other: the placement of world ranks on nodes decides. lower_link.c. */
#ifndef PP_LINK_H
#define PP_LINK_H

#include "ir/program.h"
#include "ir/spec.h"

/* The slowest link between coordinates `from` and `to` of an axis. Of the program its grid is read. */
struct pp_link pp_link_between(const struct pp_program *program, const struct pp_cluster *cluster, enum pp_axis axis,
                               uint32_t from, uint32_t to);

/* The link of a channel between pipeline ranks that carries messages of so many bytes: as measured, where the spec's
 * profile says so. */
struct pp_link pp_link_channel(const struct pp_program *program, const struct pp_spec *spec, uint32_t source,
                               uint32_t destination, enum pp_value kind, uint64_t bytes);

#endif
