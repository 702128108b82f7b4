/* Collectives that an endpoint has posted and that nobody has waited for yet, by their id: what a link needs to find
 * the post behind a `waitc`. */
#ifndef PP_PENDING_COLLS_H
#define PP_PENDING_COLLS_H

#include <stdbool.h>
#include <stdint.h>

struct pp_pending_coll {
	uint32_t id, line; /* line: what the endpoint posted it on */
	uint64_t number;   /* of the post on that */
};

struct pp_pending_colls {
	struct pp_pending_coll *items;
	uint32_t count;
};

/* Room for as many as a step posts. False: out of memory. */
bool pp_pending_colls_make(struct pp_pending_colls *colls, uint32_t most);
void pp_pending_colls_free(struct pp_pending_colls *colls);

void pp_pending_colls_add(struct pp_pending_colls *colls, struct pp_pending_coll coll);
/* NULL: it is over, and has been taken. Valid until the next one is added or taken. */
const struct pp_pending_coll *pp_pending_colls_find(const struct pp_pending_colls *colls, uint32_t id);
/* It is over. */
void pp_pending_colls_take(struct pp_pending_colls *colls, const struct pp_pending_coll *coll);

#endif
