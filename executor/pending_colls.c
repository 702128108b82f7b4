/* Few are pending at once, so finding one is a look at all.
 *
 * Requires: no more are added than there is room for; each is taken once. Ensures: nothing is allocated after `make`.
 */
#include "pending_colls.h"

#include <stddef.h>
#include <stdlib.h>

bool pp_pending_colls_make(struct pp_pending_colls *colls, uint32_t most)
{
	*colls = (struct pp_pending_colls){.items = calloc((size_t)most + 1, sizeof *colls->items)};
	return colls->items != NULL;
}

void pp_pending_colls_free(struct pp_pending_colls *colls)
{
	free(colls->items);
	*colls = (struct pp_pending_colls){0};
}

void pp_pending_colls_add(struct pp_pending_colls *colls, struct pp_pending_coll coll)
{
	colls->items[colls->count++] = coll;
}

const struct pp_pending_coll *pp_pending_colls_find(const struct pp_pending_colls *colls, uint32_t id)
{
	for (uint32_t i = 0; i < colls->count; i++)
		if (colls->items[i].id == id)
			return &colls->items[i];
	return NULL;
}

void pp_pending_colls_take(struct pp_pending_colls *colls, const struct pp_pending_coll *coll)
{
	colls->items[coll - colls->items] = colls->items[--colls->count];
}
