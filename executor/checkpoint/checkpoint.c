/* Saving over all ranks, and the start of a run that saves or resumes.
 *
 * Requires: all ranks call the same functions in the same order. Ensures: they fail together, or the transport has said
 * that a rank is lost. */
#include "checkpoint.h"

#include "ir/file.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char default_folder[] = "checkpoints"; /* for program texts that name none */

static const struct pp_program *program_of(const struct pp_checkpoints *checkpoints)
{
	return checkpoints->link.interp->program;
}

static uint32_t world_of(const struct pp_checkpoints *checkpoints)
{
	return (uint32_t)pp_grid_world(program_of(checkpoints));
}

static bool is_first(const struct pp_checkpoints *checkpoints)
{
	return checkpoints->link.interp->world == 0;
}

static bool read_slot(void *interp, uint32_t slot, uint64_t offset, uint64_t bytes, void *to, struct pp_status *status)
{
	return pp_interp_read(interp, slot, offset, bytes, to, status);
}

static bool write_slot(void *interp, uint32_t slot, uint64_t offset, uint64_t bytes, const void *from,
                       struct pp_status *status)
{
	return pp_interp_write(interp, slot, offset, bytes, from, status);
}

bool pp_checkpoints_open(struct pp_checkpoints *checkpoints, const struct pp_report_link *link,
                         const struct pp_run_options *options, struct pp_status *status)
{
	const struct pp_program *program = link->interp->program;
	*checkpoints = (struct pp_checkpoints){.link = *link,
	                                       .folder = options->save_path,
	                                       .every = program->train.checkpoint_every,
	                                       .keep = program->train.checkpoint_keep,
	                                       .fault = options->fault};
	if (!checkpoints->folder && checkpoints->every)
		checkpoints->folder = program->train.checkpoint_dir ? program->train.checkpoint_dir : default_folder;
	if (!checkpoints->folder && !options->resume_path && !options->init_path)
		return true;
	if (program->tensor_count == 0)
		return pp_fail(status, PP_EXIT_USAGE, "%s: this program has no weights to save or load",
		               options->save_path     ? "--save"
		               : options->resume_path ? "--resume"
		               : options->init_path   ? "--init"
		                                      : "checkpoint_every");
	const struct pp_state_memory memory = {link->interp, read_slot, write_slot};
	return pp_state_open(program, link->interp->coord, &memory, &checkpoints->state, status);
}

void pp_checkpoints_close(struct pp_checkpoints *checkpoints)
{
	pp_state_close(&checkpoints->state);
}

static enum pp_agreed ask(const struct pp_checkpoints *checkpoints, const char *what, bool fine,
                          struct pp_status *status)
{
	const struct pp_report_link *link = &checkpoints->link;
	return pp_run_ask(link->transport, link->endpoint, link->watch, world_of(checkpoints), what, fine, status);
}

/* A place where being killed can matter. */
static void pass_point(void *context)
{
	struct pp_checkpoints *checkpoints = context;
	const struct pp_fault *fault = &checkpoints->fault;
	pp_watch_worked(checkpoints->link.watch);
	if (fault->saving == PP_SAVING_FINE || fault->rank != checkpoints->link.interp->world)
		return;
	checkpoints->points++;
	if (fault->saving == PP_SAVING_SLOW)
		nanosleep(&(struct timespec){0, 5000000}, NULL);
	else if (checkpoints->points == fault->index)
		raise(SIGKILL);
}

/* ---- start ----------------------------------------------------------------------------------- */

/* What rank 0 found, for all. */
struct choice {
	uint64_t step;
	bool direct; /* the path that was given is a checkpoint itself */
	bool older;  /* there is one before it */
	uint64_t previous;
};

static bool choose(const char *path, struct choice *choice, struct pp_status *status)
{
	char manifest[PP_PATH_MAX];
	struct stat info;
	if (!*path)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "the folder of checkpoints has an empty name");
	int length = snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
	choice->direct = length > 0 && (size_t)length < sizeof manifest && stat(manifest, &info) == 0;
	if (choice->direct)
		return true;
	uint64_t *steps;
	uint32_t count;
	bool ok = pp_checkpoint_list(path, &steps, &count, status);
	if (ok && count == 0)
		ok = pp_fail(status, PP_EXIT_ENVIRONMENT, "%s holds no complete checkpoint (no folder step-…)", path);
	if (ok) {
		choice->step = steps[count - 1];
		choice->older = count > 1;
		choice->previous = count > 1 ? steps[count - 2] : 0;
	}
	free(steps);
	return ok;
}

/* All ranks load the checkpoint that rank 0 sees. */
static bool agree_on_choice(struct pp_checkpoints *checkpoints, const char *path, struct choice *choice,
                            struct pp_status *status)
{
	const struct pp_report_link *link = &checkpoints->link;
	bool fine = !is_first(checkpoints) || choose(path, choice, status);
	if (ask(checkpoints, "looking for a checkpoint", fine, status) != PP_ALL_FINE)
		return false;
	struct choice *all = calloc(world_of(checkpoints), sizeof *all);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = pp_transport_exchange(link->transport, link->endpoint, link->watch, "choosing a checkpoint", choice, all,
	                                sizeof *all, status);
	if (ok)
		*choice = all[0];
	free(all);
	return ok;
}

static bool load(struct pp_checkpoints *checkpoints, const char *path, bool moments, struct pp_training_point *point,
                 char from[PP_PATH_MAX], struct pp_status *status)
{
	struct choice choice;
	memset(&choice, 0, sizeof choice);
	if (!agree_on_choice(checkpoints, path, &choice, status))
		return false;
	bool fine;
	if (choice.direct)
		fine = snprintf(from, PP_PATH_MAX, "%s", path) < PP_PATH_MAX;
	else
		fine = pp_checkpoint_path(from, path, choice.step, false, NULL, status);
	fine = fine && pp_checkpoint_load(&checkpoints->state, program_of(checkpoints), from, moments, point, status);
	if (!fine && choice.older) {
		size_t used = strlen(status->text);
		snprintf(status->text + used, sizeof status->text - used, " (the one before it is %s/step-%08" PRIu64 ")", path,
		         choice.previous);
	}
	return ask(checkpoints, "loading a checkpoint", fine, status) == PP_ALL_FINE;
}

/* The newest one is never removed. What cannot be removed does no harm but takes room: say so and go on. */
static void remove_old(struct pp_checkpoints *checkpoints)
{
	struct pp_status status;
	uint64_t *steps;
	uint32_t count;
	bool ok = pp_checkpoint_list(checkpoints->folder, &steps, &count, &status);
	for (uint32_t i = 0; ok && checkpoints->keep && i + checkpoints->keep < count; i++) {
		ok = pp_checkpoint_withdraw(checkpoints->folder, steps[i], &status);
		pass_point(checkpoints);
	}
	ok = ok && pp_checkpoint_clean(checkpoints->folder, &status);
	free(steps);
	pass_point(checkpoints);
	if (!ok)
		fprintf(stderr, "piperun: %s\n", status.text);
}

/* Later checkpoints in the folder would be taken for this run's. */
static bool prepare_folder(struct pp_checkpoints *checkpoints, uint64_t start, struct pp_status *status)
{
	uint64_t *steps = NULL;
	uint32_t count = 0;
	bool ok = pp_folder_make(checkpoints->folder, status) && pp_checkpoint_clean(checkpoints->folder, status) &&
	          pp_checkpoint_list(checkpoints->folder, &steps, &count, status);
	if (ok && count && steps[count - 1] > start)
		ok = pp_fail(status, PP_EXIT_ENVIRONMENT,
		             "%s already holds a checkpoint of step %" PRIu64 ", this run starts at step %" PRIu64
		             "; go on from it with --resume=%s, remove it, or give another folder with --save",
		             checkpoints->folder, steps[count - 1], start, checkpoints->folder);
	free(steps);
	if (ok)
		remove_old(checkpoints); /* the run before may have died before it could */
	return ok;
}

static bool start(struct pp_checkpoints *checkpoints, const struct pp_run_options *options,
                  struct pp_training_point *point, char from[PP_PATH_MAX], struct pp_status *status)
{
	if (options->resume_path && !load(checkpoints, options->resume_path, true, point, from, status))
		return false;
	if (options->init_path && !load(checkpoints, options->init_path, false, point, from, status))
		return false;
	if (!checkpoints->folder)
		return true;
	bool fine = !is_first(checkpoints) || prepare_folder(checkpoints, point->step, status);
	return ask(checkpoints, "preparing the folder of checkpoints", fine, status) == PP_ALL_FINE;
}

bool pp_checkpoints_start(struct pp_checkpoints *checkpoints, const struct pp_run_options *options,
                          struct pp_training_point *point, char from[PP_PATH_MAX], struct pp_status *status)
{
	*point = (struct pp_training_point){0};
	from[0] = '\0';
	enum pp_stretch before = pp_watch_stretch(checkpoints->link.watch, PP_STRETCH_SAVE);
	bool ok = start(checkpoints, options, point, from, status);
	pp_watch_stretch(checkpoints->link.watch, before);
	return ok;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static bool make_partial(const struct pp_checkpoints *checkpoints, uint64_t step, struct pp_status *status)
{
	char path[PP_PATH_MAX];
	if (!pp_checkpoint_path(path, checkpoints->folder, step, true, NULL, status))
		return false;
	if (mkdir(path, 0777) == 0)
		return true;
	return pp_fail(status, PP_EXIT_RUN, "cannot make folder %s: %s", path, strerror(errno));
}

/* A rank that stores nothing has no file. */
static bool write_mine(struct pp_checkpoints *checkpoints, uint64_t step, struct pp_file_sum *sum,
                       struct pp_status *status)
{
	const struct pp_state *state = &checkpoints->state;
	char name[32], path[PP_PATH_MAX];
	pp_checkpoint_file(name, checkpoints->link.interp->world);
	if (!pp_checkpoint_path(path, checkpoints->folder, step, true, name, status))
		return false;
	struct pp_named_tensor *tensors = calloc((size_t)state->count + 1, sizeof *tensors);
	if (!tensors)
		return pp_fail(status, PP_EXIT_RUN, "out of memory for saving");
	uint32_t count = 0;
	for (uint32_t i = 0; i < state->count; i++) {
		const struct pp_state_item *item = &state->items[i];
		if (item->stored)
			tensors[count++] = pp_state_describe(item, program_of(checkpoints));
	}
	bool ok = count == 0 || pp_safetensors_write(path, tensors, count, sum, pass_point, checkpoints, status);
	free(tensors);
	return ok;
}

/* Rank 0 has made the folder. */
static bool sees_folder(const struct pp_checkpoints *checkpoints, uint64_t step, struct pp_status *status)
{
	char path[PP_PATH_MAX];
	struct stat info;
	if (!pp_checkpoint_path(path, checkpoints->folder, step, true, NULL, status))
		return false;
	return stat(path, &info) == 0 ||
	       pp_fail(status, PP_EXIT_RUN,
	               "rank %" PRIu32 " does not see %s, which rank 0 made: all ranks must save to one shared folder",
	               checkpoints->link.interp->world, path);
}

/* Every file as long as its rank says: else the ranks do not share the folder. */
static bool sees_all(const struct pp_checkpoints *checkpoints, uint64_t step, const struct pp_file_sum *files,
                     struct pp_status *status)
{
	for (uint32_t rank = 0; rank < world_of(checkpoints); rank++) {
		char name[32], path[PP_PATH_MAX];
		struct stat info;
		if (files[rank].bytes == 0)
			continue;
		pp_checkpoint_file(name, rank);
		if (!pp_checkpoint_path(path, checkpoints->folder, step, true, name, status))
			return false;
		if (stat(path, &info) != 0 || (uint64_t)info.st_size != files[rank].bytes)
			return pp_fail(status, PP_EXIT_RUN,
			               "rank 0 does not see %s as rank %" PRIu32
			               " wrote it: all ranks must save to one shared folder",
			               path, rank);
	}
	return true;
}

static bool publish(struct pp_checkpoints *checkpoints, const struct pp_training_point *point,
                    const struct pp_file_sum *files, struct pp_status *status)
{
	const char *folder = checkpoints->folder;
	char partial[PP_PATH_MAX], path[PP_PATH_MAX], manifest[PP_PATH_MAX], *text;
	size_t length;
	if (!pp_checkpoint_path(partial, folder, point->step, true, NULL, status) ||
	    !pp_checkpoint_path(path, folder, point->step, false, NULL, status) ||
	    !pp_checkpoint_path(manifest, folder, point->step, true, "manifest.json", status) ||
	    !sees_all(checkpoints, point->step, files, status) ||
	    !pp_manifest_make(program_of(checkpoints), point, files, &text, &length, status))
		return false;
	bool ok = pp_file_write(manifest, text, length, status);
	free(text);
	pass_point(checkpoints);
	if (!ok || !pp_folder_sync(partial, status))
		return false;
	if (rename(partial, path) != 0)
		return pp_fail(status, PP_EXIT_RUN, "cannot rename %s to %s: %s", partial, path, strerror(errno));
	pass_point(checkpoints);
	return pp_folder_sync(folder, status);
}

static enum pp_agreed save(struct pp_checkpoints *checkpoints, const struct pp_training_point *point,
                           struct pp_file_sum *files, struct pp_status *status)
{
	const struct pp_report_link *link = &checkpoints->link;
	struct pp_file_sum mine = {0};
	bool fine = !is_first(checkpoints) || make_partial(checkpoints, point->step, status);
	enum pp_agreed agreed = ask(checkpoints, "beginning a checkpoint", fine, status);
	if (agreed != PP_ALL_FINE)
		return agreed;
	pass_point(checkpoints);
	fine = sees_folder(checkpoints, point->step, status) && write_mine(checkpoints, point->step, &mine, status);
	pass_point(checkpoints);
	agreed = ask(checkpoints, "writing a checkpoint", fine, status);
	if (agreed != PP_ALL_FINE)
		return agreed;
	if (!pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering checksums of a checkpoint",
	                           &mine, files, sizeof mine, status))
		return PP_NO_ANSWER;
	fine = !is_first(checkpoints) || publish(checkpoints, point, files, status);
	return ask(checkpoints, "finishing a checkpoint", fine, status);
}

enum pp_agreed pp_checkpoints_save(struct pp_checkpoints *checkpoints, const struct pp_training_point *point,
                                   struct pp_status *status)
{
	uint32_t ranks = world_of(checkpoints);
	struct pp_file_sum *files = calloc(ranks, sizeof *files);
	if (!files) {
		pp_fail(status, PP_EXIT_RUN, "out of memory for saving");
		return PP_NO_ANSWER;
	}
	enum pp_stretch before = pp_watch_stretch(checkpoints->link.watch, PP_STRETCH_SAVE);
	enum pp_agreed agreed = save(checkpoints, point, files, status);
	pp_watch_stretch(checkpoints->link.watch, before);
	checkpoints->saved_bytes = 0;
	for (uint32_t rank = 0; rank < ranks; rank++)
		checkpoints->saved_bytes += files[rank].bytes;
	free(files);
	if (agreed == PP_ALL_FINE && is_first(checkpoints))
		remove_old(checkpoints);
	struct pp_status ignored; /* what is left of a failure is cleaned at the next start, at the latest */
	if (agreed == PP_ONE_FAILED && is_first(checkpoints))
		pp_checkpoint_clean(checkpoints->folder, &ignored);
	return agreed;
}
