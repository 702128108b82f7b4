/* Loading one rank's share of a checkpoint, however it was cut when it was saved.
 *
 * Requires: state of a verified program. Ensures: every file that is read is whole, and of the same model. */
#include "checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* An item and the file that holds it. */
struct source {
	const struct pp_state_item *item;
	uint32_t rank;
	struct pp_file_sum sum;
};

static int by_file(const void *left, const void *right)
{
	const struct source *a = left, *b = right;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return a->item < b->item ? -1 : a->item > b->item;
}

/* The items from `first` on that lie in one file; *next: the first that does not. */
static bool load_file(const struct source *sources, uint32_t count, uint32_t first, uint32_t *next, const char *path,
                      struct pp_status *status)
{
	char name[32], file_path[PP_PATH_MAX];
	uint32_t rank = sources[first].rank;
	pp_checkpoint_file(name, rank);
	int length = snprintf(file_path, sizeof file_path, "%s/%s", path, name);
	if (length < 0 || (size_t)length >= sizeof file_path)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "path of a checkpoint is too long: %.200s", path);
	if (!pp_file_check(file_path, &sources[first].sum, status))
		return false;
	struct pp_safetensors *file = pp_safetensors_open(file_path, status);
	bool ok = file != NULL;
	uint32_t i = first;
	for (; i < count && sources[i].rank == rank; i++)
		ok =
		    ok && pp_safetensors_read(file, sources[i].item->name, sources[i].item->at, sources[i].item->bytes, status);
	pp_safetensors_close(file);
	*next = i;
	return ok;
}

static bool load_items(const struct pp_state *state, const struct pp_program *program,
                       const struct pp_manifest *manifest, const char *path, bool moments, struct pp_status *status)
{
	struct source *sources = calloc((size_t)state->count + 1, sizeof *sources);
	if (!sources)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for loading a checkpoint");
	uint32_t count = 0;
	bool ok = true;
	for (uint32_t i = 0; ok && i < state->count; i++) {
		const struct pp_state_item *item = &state->items[i];
		if (item->part != PP_PART_WEIGHT && !moments)
			continue;
		struct source *source = &sources[count++];
		source->item = item;
		ok = pp_manifest_file(manifest, program->tensors[item->tensor].name, &source->rank, &source->sum, status);
	}
	qsort(sources, count, sizeof *sources, by_file);
	for (uint32_t i = 0; ok && i < count;)
		ok = load_file(sources, count, i, &i, path, status);
	free(sources);
	return ok;
}

bool pp_checkpoint_load(const struct pp_state *state, const struct pp_program *program, const char *path, bool moments,
                        struct pp_training_point *point, struct pp_status *status)
{
	struct pp_manifest *manifest = pp_manifest_read(path, status);
	if (!manifest)
		return false;
	*point = moments ? pp_manifest_point(manifest) : (struct pp_training_point){0};
	bool ok = pp_manifest_check_model(manifest, program, status) &&
	          (!moments || pp_manifest_check_training(manifest, program, status)) &&
	          load_items(state, program, manifest, path, moments, status);
	pp_manifest_free(manifest);
	return ok;
}
