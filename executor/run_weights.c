/* Hashes of the final weights. Every rank hashes what it holds; copies are compared by hash. Of tensors that are
 * sharded over tp, the shards of one owner each travel to all, a piece at a time, in row-major order of the whole.
 *
 * Requires: all ranks call the same functions in the same order. */
#include "run_weights.h"

#include "ir/hash.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PIECES = 4 << 20, PIECE = 1 << 20 }; /* bytes that all ranks give at once, that one rank reads at once */

struct weights {
	const struct pp_report_link *link;
	const struct pp_program *program;
	struct pp_coord coord;
	uint32_t world;
	uint64_t *mine, *all; /* [tensors], [world][tensors]: hashes; 0: not here */
};

/* Never 0, which stands for a tensor that is not here. */
static uint64_t nonzero(uint64_t hash)
{
	return hash ? hash : 1;
}

/* The use whose weight this rank holds, or NULL. */
static const struct pp_use *use_here(const struct weights *w, uint32_t tensor)
{
	for (uint32_t i = 0; i < w->program->use_count; i++) {
		const struct pp_use *use = &w->program->uses[i];
		if (use->tensor == tensor && w->program->stages[use->stage].rank == w->coord.pp)
			return use;
	}
	return NULL;
}

static bool is_sharded(const struct weights *w, uint32_t tensor)
{
	return w->program->tensors[tensor].tp_grad == PP_TP_SHARDED && pp_grid_extent(w->program, PP_AXIS_TP) > 1;
}

/* The lowest world rank that holds the same elements of a tensor, PP_NULL: none does. */
static uint32_t owner_of(const struct weights *w, uint32_t tensor, uint32_t tp)
{
	for (uint32_t i = 0; i < w->world; i++)
		if (w->all[(uint64_t)i * w->program->tensor_count + tensor] &&
		    (!is_sharded(w, tensor) || pp_grid_coord(w->program, i).tp == tp))
			return i;
	return PP_NULL;
}

static bool copies_agree(const struct weights *w, struct pp_status *status)
{
	for (uint32_t t = 0; t < w->program->tensor_count; t++)
		for (uint32_t i = 0; i < w->world; i++) {
			uint64_t hash = w->all[(uint64_t)i * w->program->tensor_count + t];
			uint32_t owner = owner_of(w, t, pp_grid_coord(w->program, i).tp);
			char names[2][PP_GRID_NAME];
			if (!hash || hash == w->all[(uint64_t)owner * w->program->tensor_count + t])
				continue;
			return pp_fail(status, PP_EXIT_RUN, "copies of tensor `%s` differ between %s and %s after the last step",
			               w->program->tensors[t].name, pp_grid_name(w->program, owner, names[0]),
			               pp_grid_name(w->program, i, names[1]));
		}
	return true;
}

/* ---- sharded tensors ------------------------------------------------------------------------- */

/* A tensor on its way: pieces of whole local rows, or of less if one is longer than a piece. */
struct gather {
	const struct weights *w;
	uint32_t tensor;
	struct pp_box box; /* of tp coordinate 0; all have the same extent */
	unsigned char *piece, *pieces;
	uint64_t piece_bytes;
	uint64_t hash;
};

/* Bytes from `at` on of the local shards; only those of owners count. */
static bool exchange(struct gather *gather, uint64_t at, uint64_t bytes, struct pp_status *status)
{
	const struct pp_report_link *link = gather->w->link;
	const struct pp_use *use = use_here(gather->w, gather->tensor);
	if (use && !pp_interp_read(link->interp, use->weight, at, bytes, gather->piece, status))
		return false;
	return pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering weights", gather->piece,
	                             gather->pieces, bytes, status);
}

static void take(struct gather *gather, uint32_t tp, uint64_t bytes, uint64_t first, uint64_t count)
{
	uint32_t owner = owner_of(gather->w, gather->tensor, tp);
	gather->hash = pp_hash_more(gather->hash, gather->pieces + owner * bytes + first, count);
}

/* Shards are whole rows: one after the other. */
static bool gather_rows(struct gather *gather, struct pp_status *status)
{
	uint64_t all = (uint64_t)gather->box.rows * gather->box.columns * sizeof(float);
	for (uint32_t tp = 0; tp < pp_grid_extent(gather->w->program, PP_AXIS_TP); tp++)
		for (uint64_t at = 0; at < all; at += gather->piece_bytes) {
			uint64_t bytes = all - at < gather->piece_bytes ? all - at : gather->piece_bytes;
			if (!exchange(gather, at, bytes, status))
				return false;
			take(gather, tp, bytes, 0, bytes);
		}
	return true;
}

/* Shards are parts of every row: as many rows at once as fit. */
static bool gather_columns(struct gather *gather, struct pp_status *status)
{
	uint64_t row = (uint64_t)gather->box.columns * sizeof(float), rows = gather->piece_bytes / row;
	for (uint64_t at = 0; at < gather->box.rows; at += rows) {
		uint64_t count = gather->box.rows - at < rows ? gather->box.rows - at : rows;
		if (!exchange(gather, at * row, count * row, status))
			return false;
		for (uint64_t i = 0; i < count; i++)
			for (uint32_t tp = 0; tp < pp_grid_extent(gather->w->program, PP_AXIS_TP); tp++)
				take(gather, tp, count * row, i * row, row);
	}
	return true;
}

static bool gather_tensor(const struct weights *w, uint32_t tensor, uint64_t *hash, struct pp_status *status)
{
	struct gather gather = {
	    .w = w, .tensor = tensor, .box = pp_tensor_box(w->program, tensor, 0), .hash = PP_HASH_EMPTY};
	bool by_columns = w->program->tensors[tensor].shard == 1;
	uint64_t least = by_columns ? (uint64_t)gather.box.columns * sizeof(float) : 4096, fit = PIECES / w->world;
	gather.piece_bytes = fit > least ? fit : least;
	gather.piece = calloc(1, gather.piece_bytes);
	gather.pieces = calloc(w->world, gather.piece_bytes);
	bool ok = gather.piece && gather.pieces;
	if (!ok)
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for hashes of weights");
	ok = ok && (by_columns ? gather_columns(&gather, status) : gather_rows(&gather, status));
	*hash = gather.hash;
	free(gather.piece);
	free(gather.pieces);
	return ok;
}

/* ---- all ------------------------------------------------------------------------------------- */

static bool hash_slot(const struct weights *w, uint32_t slot, uint64_t bytes, unsigned char *piece, uint64_t *hash,
                      struct pp_status *status)
{
	*hash = PP_HASH_EMPTY;
	for (uint64_t at = 0; at < bytes; at += PIECE) {
		uint64_t part = bytes - at < PIECE ? bytes - at : PIECE;
		if (!pp_interp_read(w->link->interp, slot, at, part, piece, status))
			return false;
		*hash = pp_hash_more(*hash, piece, part);
	}
	*hash = nonzero(*hash);
	return true;
}

static bool hash_here(struct weights *w, struct pp_status *status)
{
	unsigned char *piece = malloc(PIECE);
	bool ok = piece || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for hashes of weights");
	for (uint32_t t = 0; ok && t < w->program->tensor_count; t++) {
		const struct pp_use *use = use_here(w, t);
		ok = !use ||
		     hash_slot(w, use->weight, pp_local_elements(w->program, t) * sizeof(float), piece, &w->mine[t], status);
	}
	free(piece);
	return ok;
}

static bool print(const struct weights *w, FILE *out, struct pp_status *status)
{
	for (uint32_t t = 0; t < w->program->tensor_count; t++) {
		uint32_t owner = owner_of(w, t, 0);
		if (owner == PP_NULL)
			continue;
		uint64_t hash = w->all[(uint64_t)owner * w->program->tensor_count + t];
		if (is_sharded(w, t) && !gather_tensor(w, t, &hash, status))
			return false;
		if (out)
			fprintf(out, "weights %s %016" PRIx64 "\n", w->program->tensors[t].name, nonzero(hash));
	}
	return true;
}

bool pp_run_weights(const struct pp_report_link *link, FILE *out, struct pp_status *status)
{
	const struct pp_program *program = link->interp->program;
	struct weights w = {
	    .link = link, .program = program, .coord = link->interp->coord, .world = (uint32_t)pp_grid_world(program)};
	w.mine = calloc((size_t)program->tensor_count + 1, sizeof *w.mine);
	w.all = calloc((size_t)program->tensor_count * w.world + 1, sizeof *w.all);
	bool ok = w.mine && w.all;
	if (!ok)
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for hashes of weights");
	ok = ok && hash_here(&w, status) &&
	     pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering hashes of weights", w.mine,
	                           w.all, program->tensor_count * sizeof *w.mine, status) &&
	     copies_agree(&w, status) && print(&w, out, status);
	free(w.mine);
	free(w.all);
	return ok;
}
