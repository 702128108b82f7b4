/* V11: thread blocks of posts that are outstanding together.
 *
 * On a GPU a post becomes a kernel that stays on its multiprocessors until the other end has come. Posts of one
 * communicator run one after the other; those of different ones run side by side, with each other and with the compute.
 * A rank whose kernels did not all find room could wait for one that has none, so what is outstanding at any
 * instruction must fit the multiprocessors that the rank has for posts.
 *
 * requires: pp_prove_posts.
 * ensures:  on ranks with `post_sms`, the sum of `ctas` over the communicators (channels, groups) on which posts are
 *           outstanding is never larger; a body's collectives are one more communicator while it runs, also where the
 *           stream posts on a group of the same members. Linear. */
#include "state.h"

#include "ir/grid.h"
#include "ir/lifetime.h"
#include "ir/verify.h"

#include <inttypes.h>

/* One rank. */
struct walk {
	struct pp_proof *proof;
	uint32_t rank;
	uint32_t *posts;        /* outstanding by communicator: channels, then groups */
	uint64_t ctas;          /* of all that have some */
	uint32_t tensor;        /* the group that says `ctas` for collectives in bodies, PP_NULL: none */
	const bool *collective; /* [bodies]: it posts such */
};

static uint32_t ctas_of(const struct walk *w, uint32_t communicator)
{
	const struct pp_program *program = w->proof->program;
	return communicator < program->channel_count ? program->channels[communicator].ctas
	                                             : program->groups[communicator - program->channel_count].ctas;
}

static uint32_t communicator_of(const struct walk *w, const struct pp_comm_event *event)
{
	const struct pp_proof *proof = w->proof;
	if (event->element < proof->message_count)
		return proof->message_channel[event->element];
	return proof->program->channel_count + proof->joints[event->element - proof->message_count].group;
}

/* Bodies that post collectives. */
static const bool *find_collective(struct pp_proof *proof)
{
	const struct pp_program *program = proof->program;
	bool *found = PP_NEW_ARRAY(proof->arena, bool, program->body_count);
	for (uint32_t b = 0; b < program->body_count; b++)
		for (uint32_t i = 0; i < program->bodies[b].count && !found[b]; i++) {
			uint8_t op = program->bodies[b].items[i].op;
			found[b] = op == PP_BODY_ALLREDUCE || op == PP_BODY_ALLGATHER || op == PP_BODY_REDUCESCATTER;
		}
	return found;
}

static bool body_posts(const struct walk *w, const struct pp_instr *instr)
{
	static const uint8_t phase_of[PP_OP_COUNT] = {[PP_OP_FWD] = PP_PHASE_F,
	                                              [PP_OP_REMAT] = PP_PHASE_R,
	                                              [PP_OP_BWD] = PP_PHASE_B,
	                                              [PP_OP_BWDI] = PP_PHASE_I,
	                                              [PP_OP_BWDW] = PP_PHASE_W};
	const struct pp_program *program = w->proof->program;
	if (program->tp < 2 || !pp_is_compute(instr)) /* a group of one posts nothing */
		return false;
	uint32_t body = program->stages[instr->stage].body[phase_of[instr->op]];
	return body != PP_NULL && w->collective[body];
}

static uint64_t ctas_of_bodies(const struct walk *w)
{
	return w->tensor == PP_NULL ? 0 : w->proof->program->groups[w->tensor].ctas;
}

/* "c0 4, c2 4, g1 (tp) 16, bodies 16" */
static const char *list(const struct walk *w, bool in_body)
{
	enum { MOST = 12 };
	const struct pp_program *program = w->proof->program;
	const char *text = "";
	uint32_t shown = 0;
	for (uint32_t k = 0; k < program->channel_count + program->group_count; k++) {
		if (!w->posts[k])
			continue;
		if (++shown > MOST)
			return pp_arena_printf(w->proof->arena, "%s, …", text);
		const char *before = *text ? ", " : "";
		if (k < program->channel_count)
			text = pp_arena_printf(w->proof->arena, "%s%sc%" PRIu32 " %" PRIu32, text, before, k, ctas_of(w, k));
		else
			text = pp_arena_printf(w->proof->arena, "%s%sg%" PRIu32 " (%s) %" PRIu32, text, before,
			                       k - program->channel_count,
			                       pp_axis_name[program->groups[k - program->channel_count].axis], ctas_of(w, k));
	}
	if (in_body)
		text = pp_arena_printf(w->proof->arena, "%s%sbodies %" PRIu64, text, *text ? ", " : "", ctas_of_bodies(w));
	return text;
}

static bool fits(struct walk *w, uint32_t at, bool in_body)
{
	uint32_t most = w->proof->program->rank[w->rank].post_sms;
	uint64_t ctas = w->ctas + (in_body ? ctas_of_bodies(w) : 0);
	if (ctas <= most)
		return true;
	struct pp_message *message = pp_proof_error(
	    w->proof, "V11", w->rank, at,
	    "needs %" PRIu64 " thread blocks for posts outstanding together, of %" PRIu32 " that they may take", ctas,
	    most);
	pp_note(message, "by communicator: %s", list(w, in_body));
	pp_help(message, "give channels and groups fewer `ctas`, or the device more `post_sms`");
	return false;
}

/* A communicator without a limit takes as many as the library likes. */
static bool limited(struct walk *w, uint32_t at, uint32_t communicator)
{
	uint32_t channels = w->proof->program->channel_count;
	if (ctas_of(w, communicator))
		return true;
	struct pp_message *message = pp_proof_error(
	    w->proof, "V11", w->rank, at,
	    "uses %c%" PRIu32 ", which says no `ctas`: it may take any number of thread blocks",
	    communicator < channels ? 'c' : 'g', communicator < channels ? communicator : communicator - channels);
	pp_help(message, "say `ctas`, or leave out the device's `post_sms`");
	return false;
}

static bool body_limited(struct walk *w, uint32_t at)
{
	if (ctas_of_bodies(w))
		return true;
	struct pp_message *message =
	    pp_proof_error(w->proof, "V11", w->rank, at,
	                   "runs a body with collectives over tp, and no group along tp says `ctas`: they may take any "
	                   "number of thread blocks");
	pp_help(message, "say `ctas` on a group along tp, or leave out the device's `post_sms`");
	return false;
}

/* False: reported. */
static bool step(struct walk *w, uint32_t at, const struct pp_comm_event *event)
{
	if (!event) {
		bool in_body = body_posts(w, pp_proof_instr(w->proof, w->rank, at));
		return !in_body || (body_limited(w, at) && fits(w, at, true));
	}
	uint32_t communicator = communicator_of(w, event);
	if (event->wait) {
		w->ctas -= --w->posts[communicator] == 0 ? ctas_of(w, communicator) : 0;
		return true;
	}
	w->ctas += w->posts[communicator]++ == 0 ? ctas_of(w, communicator) : 0;
	return limited(w, at, communicator) && fits(w, at, false);
}

static bool prove_rank(struct walk *w)
{
	const struct pp_rank_proof *rank = &w->proof->rank[w->rank];
	uint32_t next = 0;
	for (uint32_t at = 0; at < w->proof->named->streams[w->rank].count; at++) {
		bool posts = next < rank->event_count && rank->events[next].instr == at;
		if (!step(w, at, posts ? &rank->events[next] : NULL))
			return false;
		next += posts;
	}
	return true;
}

bool pp_prove_residency(struct pp_proof *proof)
{
	const struct pp_program *program = proof->program;
	uint32_t *posts = NULL;
	const bool *collective = NULL;
	for (uint32_t r = 0; r < program->ranks; r++) {
		if (!program->rank[r].post_sms)
			continue;
		if (!posts) {
			posts = PP_NEW_ARRAY(proof->arena, uint32_t, (size_t)program->channel_count + program->group_count);
			collective = find_collective(proof);
		}
		struct walk w = {
		    .proof = proof, .rank = r, .posts = posts, .tensor = pp_grid_of_bodies(program), .collective = collective};
		if (!prove_rank(&w)) /* all posts of a rank are waited for, so the next one begins with none */
			return false;
	}
	return true;
}
