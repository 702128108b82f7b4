/* Polling waits with back-off, positions, the gate of steps, the report of one rank.
 *
 * Ensures: a wait ends by success or after its timeout. */
#include "watch.h"

#include "control/report.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BARE_POLLS = 100, YIELDS = 100, SLEEP_NS = 50000 };

void pp_watch_init(struct pp_watch *watch, const struct pp_program *program, uint32_t world, uint64_t timeout)
{
	memset(watch, 0, sizeof *watch);
	atomic_store(&watch->program, program);
	watch->world = world;
	watch->timeout = timeout;
	watch->at = &watch->own;
	atomic_store(&watch->gate.last, UINT64_MAX);
	pp_watch_doing(watch, "starting");
}

void pp_watch_doing(struct pp_watch *watch, const char *what)
{
	pp_whereabouts_doing(watch->at, what);
}

enum pp_stretch pp_watch_stretch(struct pp_watch *watch, enum pp_stretch stretch)
{
	return (enum pp_stretch)atomic_exchange(&watch->at->stretch, (uint32_t)stretch);
}

void pp_watch_enter(struct pp_watch *watch, const struct pp_stream *stream, uint64_t step, uint64_t batch)
{
	const struct pp_program *program = atomic_load(&watch->program);
	uint32_t rank = pp_grid_coord(program, watch->world).pp, named = 0;
	while (named + 1 < program->program_count && &program->programs[named].streams[rank] != stream)
		named++;
	atomic_store(&watch->at->program, named);
	atomic_store(&watch->at->index, 0);
	atomic_store(&watch->at->posts, 0);
	atomic_store(&watch->at->step, step);
	atomic_store(&watch->at->batch, batch);
	pp_whereabouts_doing(watch->at, "");
}

bool pp_pause(struct pp_pause *pause, struct pp_watch *watch)
{
	if (++pause->polls <= BARE_POLLS)
		return true;
	uint64_t now = pp_clock();
	if (!pause->start) {
		pause->start = now;
		atomic_store_explicit(&watch->at->waiting, now, memory_order_relaxed);
	}
	if (now - pause->start > watch->timeout)
		return false;
	if (pause->polls <= BARE_POLLS + YIELDS)
		sched_yield();
	else
		nanosleep(&(struct timespec){0, SLEEP_NS}, NULL);
	return true;
}

/* The step is said to have begun before the gate is looked at, and the keeper closes the gate before it asks which
 * steps have begun: one of the two sees the other. */
bool pp_watch_pass(struct pp_watch *watch, uint64_t step)
{
	struct pp_gate *gate = &watch->gate;
	atomic_store(&gate->begun, step);
	if (!atomic_load(&gate->held))
		return true;
	pp_watch_doing(watch, "waiting for all ranks to stop together");
	struct pp_pause pause = {0};
	while (atomic_load(&gate->last) == UINT64_MAX)
		if (!pp_pause(&pause, watch))
			return false;
	pp_pause_end(&pause, watch);
	return step <= atomic_load(&gate->last);
}

bool pp_watch_report(struct pp_watch *watch, const char *why, FILE *out)
{
	if (atomic_exchange(&watch->reported, true))
		return false;
	struct pp_scene scene = {.program = atomic_load(&watch->program)};
	scene.world = scene.program ? (uint32_t)pp_grid_world(scene.program) : watch->world + 1;
	struct pp_account *accounts = calloc((size_t)scene.world + 1, sizeof *accounts);
	char *line = NULL;
	size_t length = 0;
	FILE *text = accounts ? open_memstream(&line, &length) : NULL;
	if (!text) {
		free(accounts);
		return false;
	}
	scene.accounts = accounts;
	accounts[watch->world].placed = true;
	accounts[watch->world].place = pp_whereabouts_read(watch->at);
	fputs("piperun: ", text);
	pp_report_rank(&scene, watch->world, text);
	if (why)
		fprintf(text, "; %s", why);
	fputc('\n', text);
	fclose(text);
	fwrite(line, 1, length, out);
	fflush(out);
	free(line);
	free(accounts);
	return true;
}
