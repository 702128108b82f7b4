/* Worlds of threads. */
#include "world.h"

#include "executor/transport/transport_local.h"
#include "executor/transport/transport_loop.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

/* ---- kinds ----------------------------------------------------------------------------------- */

static void *open_loop(const struct pp_program *program, const struct pp_transport_options *options)
{
	struct pp_status status;
	struct pp_loop *loop = pp_loop_create(program, options, &status);
	assert(loop);
	return loop;
}

static void close_loop(void *world)
{
	pp_loop_destroy(world);
}

static void enter_loop(void *world, uint32_t rank, struct pp_test_seat *seat)
{
	seat->endpoint = pp_loop_endpoint(world, rank);
}

const struct pp_test_world pp_test_world_loop = {
    .name = "loop", .ops = &pp_transport_loop, .open = open_loop, .close = close_loop, .enter = enter_loop};

static void *open_local(const struct pp_program *program, const struct pp_transport_options *options)
{
	struct pp_status status;
	struct pp_local *local = pp_local_create(program, options, &status);
	assert(local);
	return local;
}

static void close_local(void *world)
{
	pp_local_destroy(world);
}

static void enter_local(void *world, uint32_t rank, struct pp_test_seat *seat)
{
	struct pp_status status;
	seat->endpoint = pp_local_open(world, rank, &status);
	assert(seat->endpoint);
}

static void leave_local(struct pp_test_seat *seat)
{
	pp_local_close(seat->endpoint);
}

const struct pp_test_world pp_test_world_local = {.name = "local",
                                                  .ops = &pp_transport_local,
                                                  .open = open_local,
                                                  .close = close_local,
                                                  .enter = enter_local,
                                                  .leave = leave_local};

/* ---- threads --------------------------------------------------------------------------------- */

struct hall {
	const struct pp_test_world *kind;
	void *world;
	bool (*run)(void *context, const struct pp_test_seat *seat);
	void *context;
	pthread_barrier_t barrier;
};

struct guest {
	struct hall *hall;
	struct pp_test_seat seat;
	bool fine;
	pthread_t thread;
};

static void *run_guest(void *argument)
{
	struct guest *guest = argument;
	struct hall *hall = guest->hall;
	hall->kind->enter(hall->world, guest->seat.rank, &guest->seat);
	pthread_barrier_wait(&hall->barrier);
	guest->fine = hall->run(hall->context, &guest->seat);
	pthread_barrier_wait(&hall->barrier);
	if (hall->kind->leave)
		hall->kind->leave(&guest->seat);
	return NULL;
}

bool pp_test_threads(const struct pp_test_world *world, const struct pp_program *program,
                     const struct pp_transport_options *options,
                     bool (*run)(void *context, const struct pp_test_seat *), void *context)
{
	uint32_t ranks = (uint32_t)pp_grid_world(program);
	struct hall hall = {.kind = world, .world = world->open(program, options), .run = run, .context = context};
	struct guest *guests = calloc(ranks, sizeof *guests);
	int error = pthread_barrier_init(&hall.barrier, NULL, ranks);
	assert(guests && error == 0);
	for (uint32_t i = 0; i < ranks; i++) {
		guests[i] = (struct guest){.hall = &hall, .seat = {.rank = i, .ops = world->ops, .world = hall.world}};
		error = pthread_create(&guests[i].thread, NULL, run_guest, &guests[i]);
		assert(error == 0);
	}
	(void)error;
	bool fine = true;
	for (uint32_t i = 0; i < ranks; i++) {
		pthread_join(guests[i].thread, NULL);
		fine = fine && guests[i].fine;
	}
	pthread_barrier_destroy(&hall.barrier);
	world->close(hall.world);
	free(guests);
	return fine;
}
