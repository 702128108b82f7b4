/* Communicators by ncclCommSplit: one call of all ranks for each round of the plan, in which disjoint sets of ranks get
 * theirs at once. Blocking ones: until all have come nothing goes on, and the star's thread keeps the time.
 *
 * Requires: all ranks make the same calls in the same order. */
#include "comms.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { OWN_CTAS = 2 }; /* where the image says nothing */

/* Control data, waited for. The keeper ends a start that takes too long. */
static bool exchange(const struct pp_transport_ops *below, struct pp_endpoint *endpoint, const void *mine, void *all,
                     size_t bytes, struct pp_status *status)
{
	enum { YIELDS = 1000, SLEEP_NS = 50000 };
	enum pp_progress progress;
	below->exchange(endpoint, mine, all, bytes);
	for (unsigned looks = 0; (progress = below->test_exchange(endpoint)) == PP_PENDING; looks++) {
		if (looks < YIELDS)
			sched_yield();
		else
			nanosleep(&(struct timespec){0, SLEEP_NS}, NULL);
	}
	return progress == PP_DONE || pp_fail(status, PP_EXIT_RUN, "%s", below->failure(endpoint));
}

/* NCCL of another version may hang or say `invalid usage`, at best in a log of its own. */
static bool same_version(int first, int other, uint32_t rank, struct pp_status *status)
{
	return first == other ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "rank %" PRIu32 " has NCCL %d.%d.%d, rank 0 has %d.%d.%d: let all load the same libnccl.so.2 "
	               "(LD_LIBRARY_PATH)",
	               rank, other / 10000, other % 10000 / 100, other % 100, first / 10000, first % 10000 / 100,
	               first % 100);
}

/* The id that rank 0 got, told to all, or what failed on the first rank that is not fine. */
static bool share_id(const struct pp_nccl_world *world, const struct pp_transport_ops *below,
                     struct pp_endpoint *endpoint, bool fine, ncclUniqueId *id, struct pp_status *status)
{
	enum { OFFER_TEXT = 400 };
	struct offer {
		ncclUniqueId id;
		int code, version;
		char text[OFFER_TEXT];
	} mine = {.code = PP_EXIT_OK}, *all = calloc(world->ranks, sizeof *all);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	ncclGetVersion(&mine.version);
	if (fine && world->rank == 0)
		fine = pp_nccl_ok(ncclGetUniqueId(&mine.id), NULL, "getting an id", status);
	if (!fine) {
		mine.code = (int)status->code;
		snprintf(mine.text, sizeof mine.text, "%.*s", OFFER_TEXT - 1, status->text);
	}
	bool ok = exchange(below, endpoint, &mine, all, sizeof mine, status);
	for (uint32_t i = 0; ok && i < world->ranks; i++)
		if (all[i].code != PP_EXIT_OK)
			ok = pp_fail(status, (enum pp_exit)all[i].code, "%s", all[i].text);
	for (uint32_t i = 1; ok && i < world->ranks; i++)
		ok = same_version(all[0].version, all[i].version, i, status);
	*id = all[0].id;
	free(all);
	return ok;
}

static ncclConfig_t config_for(uint32_t ctas)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	config.blocking = 1;
	config.splitShare = 0; /* else communicators would wait for each other */
	config.maxCTAs = (int)(ctas ? ctas : OWN_CTAS);
	return config;
}

static bool split(const struct pp_nccl_world *world, uint32_t index, struct pp_nccl_line *lines,
                  struct pp_status *status)
{
	if (index == PP_NULL)
		return pp_nccl_ok(ncclCommSplit(world->comm, NCCL_SPLIT_NOCOLOR, 0, &(ncclComm_t){NULL}, NULL), world->comm,
		                  "splitting the communicator of the world", status);
	struct pp_nccl_line *line = &lines[index];
	ncclConfig_t config = config_for(pp_nccl_plan_ctas(world->program, index));
	char name[PP_NCCL_NAME], what[PP_NCCL_NAME + 32];
	snprintf(what, sizeof what, "making a communicator for %s", pp_nccl_plan_name(world->program, index, name));
	return pp_nccl_ok(ncclCommSplit(world->comm, (int)line->seat.first, (int)line->seat.position, &line->comm, &config),
	                  world->comm, what, status);
}

bool pp_nccl_world_make(struct pp_nccl_world *world, const struct pp_nccl_plan *plan, struct pp_nccl_line *lines,
                        const struct pp_transport_ops *below, struct pp_endpoint *endpoint, bool fine,
                        struct pp_status *status)
{
	ncclUniqueId id;
	ncclConfig_t config = config_for(OWN_CTAS);
	struct pp_coord coord = pp_grid_coord(world->program, world->rank);
	if (!share_id(world, below, endpoint, fine, &id, status))
		return false;
	if (plan->rounds == 0)
		return true; /* nobody talks */
	if (!pp_nccl_ok(ncclCommInitRankConfig(&world->comm, (int)world->ranks, id, (int)world->rank, &config), NULL,
	                "making the communicator of the world", status))
		return false;
	for (uint32_t round = 0; round < plan->rounds; round++)
		if (!split(world, pp_nccl_plan_at(plan, round, coord), lines, status))
			return false;
	return true;
}

/* Breaking off waits for what is under way, which may be one graph with posts on several communicators: in a group all
 * of them are told before the first wait. */
void pp_nccl_world_end(struct pp_nccl_world *world, struct pp_nccl_line *lines, uint32_t count, bool lost)
{
	if (lost)
		ncclGroupStart();
	for (uint32_t i = 0; i <= count; i++) {
		ncclComm_t *comm = i < count ? &lines[i].comm : &world->comm;
		if (*comm && lost)
			ncclCommAbort(*comm);
		else if (*comm)
			ncclCommDestroy(*comm);
		*comm = NULL;
	}
	if (lost)
		ncclGroupEnd();
}
