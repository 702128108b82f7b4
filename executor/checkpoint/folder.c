/* Names, listing and removal of checkpoints. Touches only names that are its own.
 *
 * Ensures: what carries a checkpoint's name is complete, at every moment and after every crash. */

#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char partial_end[] = ".partial";

enum { NAME_MAX_BYTES = 48 };

static bool too_long(const char *path, struct pp_status *status)
{
	return pp_fail(status, PP_EXIT_ENVIRONMENT, "path of a checkpoint is too long: %.200s…", path);
}

bool pp_checkpoint_path(char path[PP_PATH_MAX], const char *folder, uint64_t step, bool partial, const char *file,
                        struct pp_status *status)
{
	int length = snprintf(path, PP_PATH_MAX, "%s/step-%08" PRIu64 "%s%s%s", folder, step, partial ? partial_end : "",
	                      file ? "/" : "", file ? file : "");
	return (length > 0 && length < PP_PATH_MAX) || too_long(folder, status);
}

void pp_checkpoint_file(char name[32], uint32_t rank)
{
	snprintf(name, 32, "rank-%05" PRIu32 ".safetensors", rank);
}

/* The step in a checkpoint's name; false: not one of ours. */
static bool read_name(const char *name, bool partial, uint64_t *step)
{
	char expected[NAME_MAX_BYTES];
	if (sscanf(name, "step-%19" SCNu64, step) != 1)
		return false;
	snprintf(expected, sizeof expected, "step-%08" PRIu64 "%s", *step, partial ? partial_end : "");
	return strcmp(name, expected) == 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

bool pp_folder_make(const char *path, struct pp_status *status)
{
	char part[PP_PATH_MAX];
	size_t length = strlen(path);
	if (length == 0)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "the folder of checkpoints has an empty name");
	if (length >= sizeof part)
		return too_long(path, status);
	memcpy(part, path, length + 1);
	for (size_t i = 1; i <= length; i++) {
		if (part[i] != '/' && part[i] != '\0')
			continue;
		char kept = part[i];
		part[i] = '\0';
		struct stat info;
		if (mkdir(part, 0777) != 0 && (errno != EEXIST || stat(part, &info) != 0 || !S_ISDIR(info.st_mode)))
			return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot make folder %s: %s", part,
			               strerror(errno == EEXIST ? ENOTDIR : errno));
		part[i] = kept;
	}
	return true;
}

bool pp_folder_sync(const char *path, struct pp_status *status)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* Some file systems cannot do it for folders and say EINVAL. */
	bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
	int reason = errno;
	if (fd >= 0)
		close(fd);
	return ok || pp_fail(status, PP_EXIT_RUN, "cannot write folder %s: %s", path, strerror(reason));
}

/* ---- listing --------------------------------------------------------------------------------- */

static int ascending(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return a < b ? -1 : a > b;
}

static bool list(const char *folder, bool partial, uint64_t **steps, uint32_t *count, struct pp_status *status)
{
	uint32_t capacity = 0;
	*steps = NULL;
	*count = 0;
	DIR *open_folder = opendir(folder);
	if (!open_folder)
		return errno == ENOENT ||
		       pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot read folder %s: %s", folder, strerror(errno));
	const struct dirent *entry;
	uint64_t step;
	while ((entry = readdir(open_folder))) {
		if (!read_name(entry->d_name, partial, &step))
			continue;
		if (*count == capacity) {
			capacity = 2 * capacity + 16;
			uint64_t *more = realloc(*steps, capacity * sizeof **steps);
			if (!more) {
				closedir(open_folder);
				return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for listing %s", folder);
			}
			*steps = more;
		}
		(*steps)[(*count)++] = step;
	}
	closedir(open_folder);
	if (*count)
		qsort(*steps, *count, sizeof **steps, ascending);
	return true;
}

bool pp_checkpoint_list(const char *folder, uint64_t **steps, uint32_t *count, struct pp_status *status)
{
	return list(folder, false, steps, count, status);
}

/* ---- removing -------------------------------------------------------------------------------- */

static bool is_ours(const char *name)
{
	return strncmp(name, "rank-", 5) == 0 || strncmp(name, "manifest.json", 13) == 0;
}

/* Remove our files from a folder and then itself. */
static bool remove_partial(const char *folder, uint64_t step, struct pp_status *status)
{
	char path[PP_PATH_MAX];
	if (!pp_checkpoint_path(path, folder, step, true, NULL, status))
		return false;
	DIR *open_folder = opendir(path);
	if (open_folder) {
		const struct dirent *entry;
		while ((entry = readdir(open_folder)))
			if (is_ours(entry->d_name))
				unlinkat(dirfd(open_folder), entry->d_name, 0); /* what fails shows in rmdir */
		closedir(open_folder);
	}
	return rmdir(path) == 0 || errno == ENOENT ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot remove %s: %s", path, strerror(errno));
}

bool pp_checkpoint_clean(const char *folder, struct pp_status *status)
{
	uint64_t *steps;
	uint32_t count;
	bool ok = list(folder, true, &steps, &count, status);
	for (uint32_t i = 0; ok && i < count; i++)
		ok = remove_partial(folder, steps[i], status);
	free(steps);
	return ok;
}

bool pp_checkpoint_withdraw(const char *folder, uint64_t step, struct pp_status *status)
{
	char path[PP_PATH_MAX], partial[PP_PATH_MAX];
	if (!pp_checkpoint_path(path, folder, step, false, NULL, status) ||
	    !pp_checkpoint_path(partial, folder, step, true, NULL, status))
		return false;
	if (rename(path, partial) != 0)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot remove %s: %s", path, strerror(errno));
	return pp_folder_sync(folder, status);
}
