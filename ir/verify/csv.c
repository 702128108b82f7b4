/* A schedule file with messages under a layout of queues: the file as streams of posts and waits, run by the model of
 * queues.c, and who meets whom.
 *
 * requires: pp_csv_check_messages.
 * ensures:  csv_comms.h. O(messages) for each layout. */
#include "state.h"

#include "ir/csv_comms.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const pp_csv_verdict_name[PP_CSV_VERDICTS] = {"ok", "deadlock", "mismatch"};

enum { MISPAIRED_SHOWN = 3 };

/* What the streams were made of. */
struct posts {
	struct pp_arena *arena;
	const struct pp_csv *csv;
	bool by_kind; /* activations and gradients go over communicators of their own */
	struct pp_program program;
	struct pp_named_program named;
	uint32_t **cell;     /* [ranks][instructions]: index in the row */
	uint32_t *channel;   /* [2 * stages]: of the activation out of a stage, of the gradient out of it; PP_NULL: none */
	uint32_t *posted[2]; /* per end: [channels]: posts so far */
	uint32_t *received;  /* [2 * stages * microbatches]: number of the RECV on its channel that brought a value */
};

static bool is_message(uint8_t kind)
{
	return kind >= PP_CSV_SEND_F && kind <= PP_CSV_RECV_B;
}

static bool is_send(uint8_t kind)
{
	return kind == PP_CSV_SEND_F || kind == PP_CSV_SEND_B;
}

static bool is_forward(uint8_t kind)
{
	return kind == PP_CSV_SEND_F || kind == PP_CSV_RECV_F || kind == PP_F;
}

/* The stage that made the value of a message. */
static uint32_t maker(const struct pp_csv_cell *cell)
{
	if (is_send(cell->kind))
		return cell->stage;
	return cell->kind == PP_CSV_RECV_F ? cell->stage - 1 : cell->stage + 1;
}

/* ---- channels -------------------------------------------------------------------------------- */

struct edge {
	uint64_t key; /* source, destination, kind */
	uint32_t value;
};

static int by_key(const void *left, const void *right)
{
	const struct edge *a = left, *b = right;
	return a->key < b->key ? -1 : a->key > b->key;
}

/* One channel for each pair of ranks between which values go, and for each kind where those are apart. */
static void make_channels(struct posts *posts)
{
	const struct pp_csv *csv = posts->csv;
	struct pp_program *program = &posts->program;
	struct edge *edges = PP_NEW_ARRAY(posts->arena, struct edge, 2 * (size_t)csv->stages);
	uint32_t count = 0;
	posts->channel = PP_NEW_ARRAY(posts->arena, uint32_t, 2 * (size_t)csv->stages);
	memset(posts->channel, 0xff, 2 * (size_t)csv->stages * sizeof(uint32_t));
	for (uint32_t stage = 0; stage + 1 < csv->stages; stage++) {
		uint64_t low = csv->stage_rank[stage], high = csv->stage_rank[stage + 1];
		if (low == high)
			continue;
		edges[count++] = (struct edge){(low << 32 | high) << 1, 2 * stage};
		edges[count++] = (struct edge){(high << 32 | low) << 1 | posts->by_kind, 2 * (stage + 1) + 1};
	}
	if (count)
		qsort(edges, count, sizeof *edges, by_key);
	program->channels = PP_NEW_ARRAY(posts->arena, struct pp_channel, count);
	for (uint32_t i = 0; i < count; i++) {
		if (i == 0 || edges[i].key != edges[i - 1].key)
			program->channels[program->channel_count++] =
			    (struct pp_channel){.source = (uint32_t)(edges[i].key >> 33),
			                        .destination = (uint32_t)(edges[i].key >> 1 & UINT32_MAX),
			                        .kind = edges[i].key & 1 ? PP_GRAD : PP_ACT,
			                        .depth = UINT32_MAX};
		posts->channel[edges[i].value] = program->channel_count - 1;
	}
	for (int end = 0; end < 2; end++)
		posts->posted[end] = PP_NEW_ARRAY(posts->arena, uint32_t, program->channel_count);
}

/* ---- streams --------------------------------------------------------------------------------- */

static uint32_t *received_at(const struct posts *posts, bool forward, uint32_t stage, uint32_t mb)
{
	return &posts->received[((size_t)stage * 2 + forward) * posts->csv->microbatches + mb];
}

static void push(struct posts *posts, uint32_t rank, uint32_t cell, struct pp_instr instr)
{
	struct pp_stream *stream = &posts->named.streams[rank];
	posts->cell[rank][stream->count] = cell;
	stream->spans[stream->count] = posts->csv->rows[rank].cells[cell].span;
	stream->items[stream->count++] = instr;
}

static struct pp_instr wait_for(uint32_t channel, uint32_t sequence)
{
	return (struct pp_instr){.op = PP_OP_WAIT, .a = {channel, sequence, PP_NULL, PP_NULL}};
}

static void post_message(struct posts *posts, uint32_t rank, uint32_t at)
{
	const struct pp_csv_cell *cell = &posts->csv->rows[rank].cells[at];
	bool send = is_send(cell->kind), forward = is_forward(cell->kind);
	uint32_t channel = posts->channel[2 * (size_t)maker(cell) + !forward];
	uint32_t sequence = posts->posted[!send][channel]++;
	if (!send)
		*received_at(posts, forward, cell->stage, cell->mb) = sequence;
	push(posts, rank, at,
	     (struct pp_instr){.op = send ? PP_OP_SEND : PP_OP_RECV,
	                       .stage = maker(cell),
	                       .mb = cell->mb,
	                       .a = {channel, sequence, PP_NULL, PP_NULL}});
}

/* Before an action its input is waited for, if that came from another rank. */
static void await_input(struct posts *posts, uint32_t rank, uint32_t at)
{
	const struct pp_csv *csv = posts->csv;
	const struct pp_csv_cell *cell = &csv->rows[rank].cells[at];
	bool forward = cell->kind == PP_F;
	if (cell->kind == PP_W || (forward ? cell->stage == 0 : cell->stage + 1 == csv->stages))
		return;
	uint32_t from = forward ? cell->stage - 1 : cell->stage + 1;
	if (csv->stage_rank[from] == rank)
		return;
	push(posts, rank, at,
	     wait_for(posts->channel[2 * (size_t)from + !forward], *received_at(posts, forward, cell->stage, cell->mb)));
}

static void make_stream(struct posts *posts, uint32_t rank)
{
	const struct pp_csv_row *row = &posts->csv->rows[rank];
	struct pp_stream *stream = &posts->named.streams[rank];
	size_t most = 2 * (size_t)row->count;
	stream->items = PP_NEW_ARRAY(posts->arena, struct pp_instr, most);
	stream->spans = PP_NEW_ARRAY(posts->arena, struct pp_span, most);
	posts->cell[rank] = PP_NEW_ARRAY(posts->arena, uint32_t, most);
	for (uint32_t at = 0; at < row->count; at++) {
		if (is_message(row->cells[at].kind))
			post_message(posts, rank, at);
		else if (row->cells[at].kind < PP_ACTION_KINDS)
			await_input(posts, rank, at);
	}
	uint32_t posted = stream->count;
	for (uint32_t i = 0; i < posted; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op == PP_OP_SEND)
			push(posts, rank, posts->cell[rank][i], wait_for(instr->a[0], instr->a[1]));
	}
}

static void make_streams(struct posts *posts)
{
	const struct pp_csv *csv = posts->csv;
	struct pp_program *program = &posts->program;
	posts->received = PP_NEW_ARRAY(posts->arena, uint32_t, 2 * (size_t)csv->stages * csv->microbatches);
	posts->named =
	    (struct pp_named_program){.name = "train", .streams = PP_NEW_ARRAY(posts->arena, struct pp_stream, csv->ranks)};
	posts->cell = PP_NEW_ARRAY(posts->arena, uint32_t *, csv->ranks);
	for (uint32_t rank = 0; rank < csv->ranks; rank++)
		make_stream(posts, rank);
	*program = (struct pp_program){.arena = posts->arena,
	                               .ranks = csv->ranks,
	                               .tp = 1,
	                               .dp = 1,
	                               .stage_count = csv->stages,
	                               .microbatches = csv->microbatches,
	                               .channels = program->channels,
	                               .channel_count = program->channel_count,
	                               .programs = &posts->named,
	                               .program_count = 1};
}

/* ---- names ----------------------------------------------------------------------------------- */

static const struct pp_csv_cell *cell_of(const struct posts *posts, uint32_t rank, uint32_t index)
{
	return &posts->csv->rows[rank].cells[posts->cell[rank][index]];
}

static const char *text_of(const struct pp_proof *proof, uint32_t rank, uint32_t index)
{
	const struct posts *posts = proof->words->context;
	return pp_csv_text(proof->arena, cell_of(posts, rank, index));
}

/* "csv row 2, cell 9 `1F3`" */
static const char *place_of(const struct pp_proof *proof, uint32_t rank, uint32_t index)
{
	const struct posts *posts = proof->words->context;
	const struct pp_csv_cell *cell = cell_of(posts, rank, index);
	return pp_arena_printf(proof->arena, "%s `%s`", pp_csv_place(proof->arena, rank, cell),
	                       pp_csv_text(proof->arena, cell));
}

/* ---- who meets whom -------------------------------------------------------------------------- */

static bool same_value(const struct posts *posts, const struct pp_instr *send, uint32_t source, uint32_t sent,
                       const struct pp_instr *recv, uint32_t destination, uint32_t received)
{
	bool sent_forward = is_forward(cell_of(posts, source, sent)->kind);
	bool wanted_forward = is_forward(cell_of(posts, destination, received)->kind);
	return sent_forward == wanted_forward && send->stage == recv->stage && send->mb == recv->mb;
}

/* False: some RECV gets what it does not name; reported. */
static bool messages_meet(struct pp_proof *proof, const struct posts *posts, const char *queue)
{
	struct pp_message *message = NULL;
	uint32_t mispaired = 0;
	for (uint32_t t = 0; t < proof->message_count; t++) {
		const struct pp_channel *channel = &posts->program.channels[proof->message_channel[t]];
		uint32_t sent = proof->posts[PP_SEND_END][t], received = proof->posts[PP_RECV_END][t];
		const struct pp_instr *send = pp_proof_instr(proof, channel->source, sent);
		const struct pp_instr *recv = pp_proof_instr(proof, channel->destination, received);
		if (same_value(posts, send, channel->source, sent, recv, channel->destination, received))
			continue;
		if (mispaired++ == 0)
			message = pp_error(proof->diag, "E0655", cell_of(posts, channel->destination, received)->span,
			                   "%s gets %s (one queue per %s)", place_of(proof, channel->destination, received),
			                   place_of(proof, channel->source, sent), queue);
		if (mispaired == 1)
			pp_label(message, cell_of(posts, channel->source, sent)->span, "SEND %" PRIu32 " from row %u to row %u",
			         send->a[1] + 1, channel->source + 1, channel->destination + 1);
		else if (mispaired <= MISPAIRED_SHOWN)
			pp_note(message, "%s gets %s", place_of(proof, channel->destination, received),
			        place_of(proof, channel->source, sent));
	}
	if (mispaired > MISPAIRED_SHOWN)
		pp_note(message, "%" PRIu32 " of %" PRIu32 " messages are taken for another", mispaired, proof->message_count);
	if (message)
		pp_help(message,
		        "a queue has no tags: order the RECVs of a rank like the SENDs of its peer, or give activations "
		        "and gradients queues of their own");
	return mispaired == 0;
}

/* ---- the verdict ----------------------------------------------------------------------------- */

enum pp_csv_verdict pp_csv_run(struct pp_arena *arena, const struct pp_csv *csv, enum pp_layout layout,
                               struct pp_diag *diag)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct posts posts = {
	    .arena = scratch, .csv = csv, .by_kind = layout == PP_LAYOUT_CHANNEL || layout == PP_LAYOUT_DIRECTION};
	make_channels(&posts);
	make_streams(&posts);
	struct pp_proof_words words = {
	    .context = &posts,
	    .text = text_of,
	    .place = place_of,
	    .unstick =
	        "give each direction between two ranks a queue of its own, or put each RECV where its SEND can start: "
	        "in an order common to both ranks",
	};
	struct pp_proof proof = {
	    .program = &posts.program, .named = &posts.named, .diag = diag, .arena = scratch, .words = &words};
	bool numbered = pp_prove_posts(&proof);
	assert(numbered);
	(void)numbered;
	enum pp_csv_verdict verdict = PP_CSV_OK;
	if (!pp_prove_layout(&proof, layout))
		verdict = PP_CSV_DEADLOCK;
	else if (!messages_meet(&proof, &posts, pp_layout_queue[layout]))
		verdict = PP_CSV_MISMATCH;
	pp_arena_destroy(scratch);
	return verdict;
}
