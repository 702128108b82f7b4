/* Following who waits for whom to the rank that waits for nobody.
 *
 * Requires: a verified program: ranks and channels in range. Places come from other processes and may be anything.
 * Ensures: ends after at most one look at each rank. */
#include "judge.h"

#include <stdlib.h>
#include <string.h>

static const struct pp_stream *stream_of(const struct pp_scene *scene, uint32_t rank)
{
	const struct pp_account *account = &scene->accounts[rank];
	if (!scene->program || !account->placed || account->place.program >= scene->program->program_count)
		return NULL;
	return &scene->program->programs[account->place.program].streams[pp_grid_coord(scene->program, rank).pp];
}

const struct pp_instr *pp_scene_instr(const struct pp_scene *scene, uint32_t rank)
{
	const struct pp_stream *stream = stream_of(scene, rank);
	const struct pp_seen *place = &scene->accounts[rank].place;
	if (!stream || place->doing[0] || place->index >= stream->count)
		return NULL;
	return &stream->items[place->index];
}

/* The post that a `wait` or `waitc` waits for: the nearest one before it; PP_NULL: none. */
static uint32_t post_of(const struct pp_stream *stream, uint32_t index)
{
	const struct pp_instr *wait = &stream->items[index];
	for (uint32_t i = index; i-- > 0;) {
		const struct pp_instr *post = &stream->items[i];
		bool p2p = post->op == PP_OP_SEND || post->op == PP_OP_RECV;
		if (wait->op == PP_OP_WAIT && p2p && post->a[0] == wait->a[0] && post->a[1] == wait->a[1])
			return i;
		if (wait->op == PP_OP_WAITC && post->op == PP_OP_COLL && post->a[0] == wait->a[0])
			return i;
	}
	return PP_NULL;
}

const struct pp_instr *pp_scene_post(const struct pp_scene *scene, uint32_t rank)
{
	const struct pp_instr *instr = pp_scene_instr(scene, rank);
	if (!instr || (instr->op != PP_OP_WAIT && instr->op != PP_OP_WAITC))
		return NULL;
	const struct pp_stream *stream = stream_of(scene, rank);
	uint32_t post = post_of(stream, scene->accounts[rank].place.index);
	return post == PP_NULL ? NULL : &stream->items[post];
}

static bool is_post(const struct pp_instr *instr)
{
	return instr->op == PP_OP_SEND || instr->op == PP_OP_RECV || instr->op == PP_OP_COLL;
}

static bool is_compute(const struct pp_instr *instr)
{
	return instr->op == PP_OP_FWD || instr->op == PP_OP_BWD || instr->op == PP_OP_BWDI || instr->op == PP_OP_BWDW ||
	       instr->op == PP_OP_REMAT;
}

/* The same post as seen by the peer: the other end of a message, or the same collective. */
static uint32_t twin_of(const struct pp_stream *stream, const struct pp_instr *post)
{
	uint8_t op = post->op == PP_OP_SEND ? PP_OP_RECV : post->op == PP_OP_RECV ? PP_OP_SEND : post->op;
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *twin = &stream->items[i];
		if (twin->op == op && twin->a[0] == post->a[0] && (op == PP_OP_COLL || twin->a[1] == post->a[1]))
			return i;
	}
	return PP_NULL;
}

/* Is `rank` past instruction `index` of this stream, in the step that `place` is in? */
static bool is_past(const struct pp_seen *rank, const struct pp_seen *place, uint32_t index)
{
	if (rank->step != place->step)
		return rank->step > place->step;
	if (rank->batch != place->batch)
		return rank->batch > place->batch;
	return rank->doing[0] || rank->index > index;
}

/* Has a rank made all posts before the instruction that it is at? */
static bool has_posted(const struct pp_scene *scene, uint32_t rank, const struct pp_stream *stream)
{
	const struct pp_seen *place = &scene->accounts[rank].place;
	uint32_t posts = 0;
	for (uint32_t i = 0; i < place->index && i < stream->count; i++)
		posts += is_post(&stream->items[i]);
	return place->posts >= posts;
}

/* What `rank` waits for of `peer`; true: the peer is what is missing. */
static bool misses(const struct pp_scene *scene, uint32_t rank, const struct pp_instr *post, uint32_t peer,
                   struct pp_wait *wait)
{
	const struct pp_account *account = &scene->accounts[peer];
	const struct pp_seen *place = &scene->accounts[rank].place;
	const struct pp_stream *stream = NULL;
	if (account->placed)
		stream = &scene->program->programs[place->program].streams[pp_grid_coord(scene->program, peer).pp];
	uint32_t twin = stream ? twin_of(stream, post) : PP_NULL;
	wait->peer = peer;
	if (twin == PP_NULL || !is_past(&account->place, place, twin))
		return true;
	bool same_step = account->place.step == place->step && account->place.batch == place->batch;
	if (!same_step || account->place.doing[0] || has_posted(scene, peer, stream))
		return false;
	wait->unposted = twin;
	return true;
}

static void wait_for_message(const struct pp_scene *scene, uint32_t rank, struct pp_wait *wait)
{
	const struct pp_channel *channel = &scene->program->channels[wait->instr->a[0]];
	struct pp_coord coord = pp_grid_coord(scene->program, rank);
	coord.pp = wait->instr->op == PP_OP_RECV ? channel->source : channel->destination;
	wait->kind = PP_WAITS_MESSAGE;
	wait->missing = misses(scene, rank, wait->instr, pp_grid_rank(scene->program, coord), wait);
}

static void wait_for_group(const struct pp_scene *scene, uint32_t rank, struct pp_wait *wait)
{
	const struct pp_group *group = &scene->program->groups[wait->instr->a[1]];
	struct pp_coord coord = pp_grid_coord(scene->program, rank);
	uint32_t members = pp_grid_members(scene->program, group);
	wait->kind = PP_WAITS_COLLECTIVE;
	for (uint32_t i = 0; i < members && !wait->missing; i++) {
		uint32_t peer = pp_grid_member(scene->program, group, coord, i);
		wait->missing = peer != rank && misses(scene, rank, wait->instr, peer, wait);
	}
}

/* Within a body: those of the tp axis that are not waiting in the same instruction, nor past it. */
static void wait_in_body(const struct pp_scene *scene, uint32_t rank, struct pp_wait *wait)
{
	const struct pp_seen *place = &scene->accounts[rank].place;
	struct pp_coord coord = pp_grid_coord(scene->program, rank);
	uint32_t size = pp_grid_extent(scene->program, PP_AXIS_TP);
	wait->kind = PP_WAITS_COLLECTIVE;
	for (coord.tp = 0; coord.tp < size && !wait->missing; coord.tp++) {
		wait->peer = pp_grid_rank(scene->program, coord);
		const struct pp_account *peer = &scene->accounts[wait->peer];
		bool here = peer->placed && peer->place.step == place->step && peer->place.batch == place->batch &&
		            !peer->place.doing[0] && peer->place.index == place->index && peer->place.waited;
		wait->missing = wait->peer != rank && !here && !(peer->placed && is_past(&peer->place, place, place->index));
	}
}

/* Outside of the streams: those that are not waiting at the same occasion. */
static void wait_for_all(const struct pp_scene *scene, uint32_t rank, struct pp_wait *wait)
{
	const struct pp_seen *place = &scene->accounts[rank].place;
	wait->kind = PP_WAITS_ALL;
	for (uint32_t i = 0; i < scene->world && !wait->missing; i++) {
		const struct pp_account *peer = &scene->accounts[i];
		if (i == rank)
			continue;
		wait->peer = i;
		wait->missing = !peer->placed || !peer->place.waited || strcmp(peer->place.doing, place->doing) != 0;
	}
}

struct pp_wait pp_scene_wait(const struct pp_scene *scene, uint32_t rank)
{
	struct pp_wait wait = {.kind = PP_WAITS_NOT, .peer = PP_NULL, .unposted = PP_NULL};
	const struct pp_account *account = &scene->accounts[rank];
	if (!account->placed || (account->standing != PP_PRESENT && account->standing != PP_SIGNALLED))
		return wait;
	if (account->place.doing[0]) {
		if (account->place.waited)
			wait_for_all(scene, rank, &wait);
		return wait;
	}
	const struct pp_instr *instr = pp_scene_instr(scene, rank);
	if (!instr)
		return wait;
	/* One that has nobody to exchange with does not get on with its work, though its host waits for its device. */
	bool exchanges = pp_grid_extent(scene->program, PP_AXIS_TP) > 1;
	if (is_compute(instr) && account->place.waited && exchanges) {
		wait.instr = instr;
		wait_in_body(scene, rank, &wait);
	} else if (account->place.waited && (instr->op == PP_OP_WAIT || instr->op == PP_OP_WAITC)) {
		const struct pp_stream *stream = stream_of(scene, rank);
		wait.instr = pp_scene_post(scene, rank);
		if (!wait.instr)
			return wait;
		if (instr->op == PP_OP_WAIT)
			wait_for_message(scene, rank, &wait);
		else
			wait_for_group(scene, rank, &wait);
		if (!wait.missing && !has_posted(scene, rank, stream)) { /* its own post is what is missing */
			wait.peer = rank;
			wait.missing = true;
			wait.unposted = (uint32_t)(wait.instr - stream->items);
		}
	}
	return wait;
}

bool pp_scene_settled(const struct pp_scene *scene)
{
	for (uint32_t rank = 0; rank < scene->world; rank++) {
		const struct pp_account *account = &scene->accounts[rank];
		if (account->standing == PP_PRESENT && (!account->placed || pp_scene_wait(scene, rank).kind == PP_WAITS_NOT))
			return false;
	}
	return true;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* From a waiting rank along what it misses. */
static void follow(const struct pp_scene *scene, uint32_t rank, bool *seen, struct pp_verdict *verdict)
{
	for (;;) {
		struct pp_wait wait = pp_scene_wait(scene, rank);
		if (wait.kind == PP_WAITS_NOT)
			*verdict = (struct pp_verdict){.blame = PP_BLAME_LATE, .rank = rank};
		else if (!wait.missing)
			*verdict = (struct pp_verdict){.blame = PP_BLAME_LINK, .rank = rank, .other = wait.peer};
		else if (wait.unposted != PP_NULL)
			*verdict = (struct pp_verdict){.blame = PP_BLAME_UNPOSTED, .rank = wait.peer, .index = wait.unposted};
		else if (seen[rank])
			*verdict = (struct pp_verdict){.blame = PP_BLAME_CYCLE, .rank = rank, .other = wait.peer};
		if (verdict->blame != PP_BLAME_NONE)
			return;
		seen[rank] = true;
		rank = wait.peer;
	}
}

/* The worst standing speaks first; of equal ones the lowest rank. */
static bool judge_standing(const struct pp_scene *scene, struct pp_verdict *verdict)
{
	static const enum pp_standing worst_first[] = {PP_GAVE_UP, PP_LOST, PP_STOPPED, PP_SILENT, PP_SIGNALLED};
	for (size_t i = 0; i < sizeof worst_first / sizeof *worst_first; i++)
		for (uint32_t rank = 0; rank < scene->world; rank++)
			if (scene->accounts[rank].standing == worst_first[i]) {
				*verdict = (struct pp_verdict){.blame = PP_BLAME_STANDING, .rank = rank};
				return true;
			}
	return false;
}

bool pp_scene_judge(const struct pp_scene *scene, struct pp_verdict *verdict)
{
	*verdict = (struct pp_verdict){.blame = PP_BLAME_NONE};
	if (judge_standing(scene, verdict))
		return true;
	bool *seen = calloc((size_t)scene->world + 1, sizeof *seen);
	if (!seen)
		return false;
	for (uint32_t rank = 0; rank < scene->world && verdict->blame == PP_BLAME_NONE; rank++)
		if (pp_scene_wait(scene, rank).kind != PP_WAITS_NOT)
			follow(scene, rank, seen, verdict);
	for (uint32_t rank = 0; rank < scene->world && verdict->blame == PP_BLAME_NONE; rank++)
		if (scene->accounts[rank].standing == PP_PRESENT) /* nobody waits: nobody moves either */
			*verdict = (struct pp_verdict){.blame = PP_BLAME_LATE, .rank = rank};
	free(seen);
	return true;
}
