/* Hashes of the final weights. Every rank hashes what it holds; copies are compared by hash. Of tensors that are
 * sharded over tp, and of master copies that are over dp, the shards of one owner each travel to all, a piece at a
 * time, in row-major order of the whole.
 *
 * Requires: all ranks call the same functions in the same order. */
#include "run_weights.h"

#include "checkpoint/state.h"
#include "ir/hash.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PIECES = 4 << 20, PIECE = 1 << 20 }; /* bytes that all ranks give at once, that one rank reads at once */

/* What is hashed of a tensor: its weight in f32, that is the master copy where it has one; and then the weight itself.
 */
enum { EXACT, ROUNDED, HASHES };

struct weights {
	const struct pp_report_link *link;
	const struct pp_program *program;
	struct pp_coord coord;
	uint32_t world;
	uint32_t *slots;      /* [tensors * HASHES]: of this rank, PP_NULL: none */
	uint64_t *mine, *all; /* [tensors * HASHES], [world][tensors * HASHES]: hashes; 0: not here */
};

/* Never 0, which stands for a tensor that is not here. */
static uint64_t nonzero(uint64_t hash)
{
	return hash ? hash : 1;
}

static size_t hash_count(const struct weights *w)
{
	return (size_t)w->program->tensor_count * HASHES;
}

static void find_slots(struct weights *w)
{
	bool masters = false;
	for (size_t i = 0; i < hash_count(w); i++)
		w->slots[i] = PP_NULL;
	for (uint32_t i = 0; i < w->program->use_count; i++) {
		const struct pp_use *use = &w->program->uses[i];
		bool rounded = pp_tensor_has_master(&w->program->tensors[use->tensor]);
		if (w->program->stages[use->stage].rank != w->coord.pp)
			continue;
		w->slots[use->tensor * HASHES + (rounded ? ROUNDED : EXACT)] = use->weight;
		masters |= rounded;
	}
	for (uint32_t i = 0; masters && i < w->program->rank[w->coord.pp].slot_count; i++) {
		const struct pp_slot *slot = &w->program->rank[w->coord.pp].slots[i];
		if (slot->class == PP_SLOT_MASTER && slot->tensor < w->program->tensor_count)
			w->slots[slot->tensor * HASHES + EXACT] = i;
	}
}

static bool is_sharded(const struct weights *w, uint32_t tensor)
{
	return w->program->tensors[tensor].tp_grad == PP_TP_SHARDED && pp_grid_extent(w->program, PP_AXIS_TP) > 1;
}

/* Does each dp coordinate have its own shard of the master copy? */
static bool in_shards(const struct weights *w, uint32_t tensor)
{
	return pp_tensor_has_master(&w->program->tensors[tensor]) && w->program->zero &&
	       pp_grid_extent(w->program, PP_AXIS_DP) > 1;
}

/* The lowest world rank that holds the same elements as this coordinate, PP_NULL: none does. */
static uint32_t owner_of(const struct weights *w, uint32_t tensor, unsigned kind, struct pp_coord coord)
{
	for (uint32_t i = 0; i < w->world; i++) {
		struct pp_coord at = pp_grid_coord(w->program, i);
		if (w->all[i * hash_count(w) + tensor * HASHES + kind] && (!is_sharded(w, tensor) || at.tp == coord.tp) &&
		    (kind == ROUNDED || !in_shards(w, tensor) || at.dp == coord.dp))
			return i;
	}
	return PP_NULL;
}

static bool copies_agree(const struct weights *w, struct pp_status *status)
{
	for (size_t k = 0; k < hash_count(w); k++)
		for (uint32_t i = 0; i < w->world; i++) {
			uint64_t hash = w->all[i * hash_count(w) + k];
			uint32_t tensor = (uint32_t)(k / HASHES);
			uint32_t owner = owner_of(w, tensor, k % HASHES, pp_grid_coord(w->program, i));
			char names[2][PP_GRID_NAME];
			if (!hash || hash == w->all[owner * hash_count(w) + k])
				continue;
			return pp_fail(status, PP_EXIT_RUN, "copies of tensor `%s`%s differ between %s and %s after the last step",
			               w->program->tensors[tensor].name, k % HASHES == ROUNDED ? ", rounded," : "",
			               pp_grid_name(w->program, owner, names[0]), pp_grid_name(w->program, i, names[1]));
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

/* Bytes. */
struct range {
	uint64_t begin, end;
};

/* What a coordinate holds of [at, at + bytes) of the elements of its tp coordinate. */
static struct range part_of(const struct gather *gather, struct pp_coord coord, uint64_t at, uint64_t bytes)
{
	struct pp_extent extent = pp_state_extent(gather->w->program, gather->tensor, PP_STATE_WEIGHT, coord);
	uint64_t begin = extent.first * sizeof(float), end = begin + extent.count * sizeof(float);
	begin = begin > at ? begin : at;
	end = end < at + bytes ? end : at + bytes;
	return (struct range){begin, end > begin ? end : begin};
}

/* Bytes from `at` on of the local elements; only those of owners count. */
static bool exchange(struct gather *gather, uint64_t at, uint64_t bytes, struct pp_status *status)
{
	const struct weights *w = gather->w;
	uint32_t slot = w->slots[gather->tensor * HASHES + EXACT];
	struct range own = part_of(gather, w->coord, at, bytes);
	uint64_t first =
	    pp_state_extent(w->program, gather->tensor, PP_STATE_WEIGHT, w->coord).first * (uint64_t)sizeof(float);
	if (slot != PP_NULL && own.end > own.begin &&
	    !pp_interp_read(w->link->interp, slot, own.begin - first, own.end - own.begin, gather->piece + (own.begin - at),
	                    status))
		return false;
	return pp_transport_exchange(w->link->transport, w->link->endpoint, w->link->watch, "gathering weights",
	                             gather->piece, gather->pieces, bytes, status);
}

/* `count` bytes from `first` on of the pieces that came from `at` on, each from who holds it. */
static void take(struct gather *gather, uint32_t tp, uint64_t at, uint64_t bytes, uint64_t first, uint64_t count)
{
	const struct weights *w = gather->w;
	uint32_t shards = in_shards(w, gather->tensor) ? pp_grid_extent(w->program, PP_AXIS_DP) : 1;
	for (uint32_t dp = 0; dp < shards; dp++) {
		struct pp_coord coord = {.tp = tp, .dp = dp};
		struct range part = part_of(gather, coord, at + first, count);
		uint32_t owner = owner_of(w, gather->tensor, EXACT, coord);
		if (part.end > part.begin)
			gather->hash =
			    pp_hash_more(gather->hash, gather->pieces + owner * bytes + (part.begin - at), part.end - part.begin);
	}
}

/* Shards are whole rows: one after the other. Where all tp coordinates hold the same, one counts. */
static bool gather_rows(struct gather *gather, struct pp_status *status)
{
	uint64_t all = (uint64_t)gather->box.rows * gather->box.columns * sizeof(float);
	uint32_t shards = is_sharded(gather->w, gather->tensor) ? pp_grid_extent(gather->w->program, PP_AXIS_TP) : 1;
	for (uint32_t tp = 0; tp < shards; tp++)
		for (uint64_t at = 0; at < all; at += gather->piece_bytes) {
			uint64_t bytes = all - at < gather->piece_bytes ? all - at : gather->piece_bytes;
			if (!exchange(gather, at, bytes, status))
				return false;
			take(gather, tp, at, bytes, 0, bytes);
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
				take(gather, tp, at * row, count * row, i * row, row);
	}
	return true;
}

static bool gather_tensor(const struct weights *w, uint32_t tensor, uint64_t *hash, struct pp_status *status)
{
	struct gather gather = {
	    .w = w, .tensor = tensor, .box = pp_tensor_box(w->program, tensor, 0), .hash = PP_HASH_EMPTY};
	bool by_columns = is_sharded(w, tensor) && w->program->tensors[tensor].shard == 1;
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
	for (size_t i = 0; ok && i < hash_count(w); i++) {
		uint32_t tensor = (uint32_t)(i / HASHES);
		enum pp_state_kind kind = i % HASHES == ROUNDED ? PP_STATE_ROUNDED : PP_STATE_WEIGHT;
		uint64_t size = kind == PP_STATE_ROUNDED ? pp_dtype_size[w->program->tensors[tensor].dtype] : sizeof(float);
		uint64_t count = pp_state_extent(w->program, tensor, kind, w->coord).count;
		ok = w->slots[i] == PP_NULL || hash_slot(w, w->slots[i], count * size, piece, &w->mine[i], status);
	}
	free(piece);
	return ok;
}

static bool print(const struct weights *w, FILE *out, struct pp_status *status)
{
	for (uint32_t t = 0; t < w->program->tensor_count; t++) {
		uint32_t owner = owner_of(w, t, EXACT, (struct pp_coord){0});
		if (owner == PP_NULL)
			continue;
		uint64_t hash = w->all[owner * hash_count(w) + t * HASHES + EXACT];
		if ((is_sharded(w, t) || in_shards(w, t)) && !gather_tensor(w, t, &hash, status))
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
	w.slots = calloc(hash_count(&w) + 1, sizeof *w.slots);
	w.mine = calloc(hash_count(&w) + 1, sizeof *w.mine);
	w.all = calloc(hash_count(&w) * w.world + 1, sizeof *w.all);
	bool ok = w.slots && w.mine && w.all;
	if (!ok)
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for hashes of weights");
	else
		find_slots(&w);
	ok = ok && hash_here(&w, status) &&
	     pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering hashes of weights", w.mine,
	                           w.all, hash_count(&w) * sizeof *w.mine, status) &&
	     copies_agree(&w, status) && print(&w, out, status);
	free(w.slots);
	free(w.mine);
	free(w.all);
	return ok;
}
