/* Whole-file reading and atomic writing. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t largest = 0x7fffffff;

bool pp_file_read(struct pp_arena *arena, const char *path, char **text, size_t *length, struct pp_status *status)
{
	bool standard = strcmp(path, "-") == 0;
	int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot open %s: %s", path, strerror(errno));
	size_t used = 0, capacity = 64 * 1024;
	struct stat info;
	if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (size_t)info.st_size < largest)
		capacity = (size_t)info.st_size + 1;
	char *buffer = pp_arena_alloc(arena, capacity, 1);
	bool ok = true;
	for (;;) {
		if (used + 1 >= capacity) {
			buffer = pp_arena_grow(arena, buffer, capacity, capacity * 2, 1);
			capacity *= 2;
		}
		ssize_t got = read(fd, buffer + used, capacity - used - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			ok = pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot read %s: %s", path, strerror(errno));
		else if ((used += (size_t)got) >= largest)
			ok = pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is too large: 2 GiB or more", path);
		if (!ok || got == 0)
			break;
	}
	if (!standard)
		close(fd);
	buffer[used] = '\0';
	*text = buffer;
	*length = used;
	return ok;
}

static bool write_all(int fd, const char *bytes, size_t length)
{
	while (length) {
		ssize_t put = write(fd, bytes, length);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return false;
		bytes += put;
		length -= (size_t)put;
	}
	return true;
}

static bool write_in_place(const char *path, int fd, const void *bytes, size_t length, struct pp_status *status)
{
	if (fd < 0 || !write_all(fd, bytes, length))
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write %s: %s", path, strerror(errno));
	return true;
}

static bool write_beside(const char *path, char *temporary, const void *bytes, size_t length, struct pp_status *status)
{
	int fd = mkstemp(temporary);
	if (fd < 0)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write beside %s: %s", path, strerror(errno));
	mode_t mask = umask(0);
	umask(mask);
	bool ok = write_all(fd, bytes, length) && fchmod(fd, 0666 & ~mask) == 0 && fsync(fd) == 0;
	int reason = errno;
	if (close(fd) != 0 && ok) {
		ok = false;
		reason = errno;
	}
	if (ok && rename(temporary, path) != 0) {
		ok = false;
		reason = errno;
	}
	if (ok)
		return true;
	unlink(temporary);
	return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write %s: %s", path, strerror(reason));
}

bool pp_file_write(const char *path, const void *bytes, size_t length, struct pp_status *status)
{
	if (strcmp(path, "-") == 0)
		return write_in_place("standard output", STDOUT_FILENO, bytes, length, status);
	struct stat info;
	if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write %s: it is a folder", path);
	if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
		int fd = open(path, O_WRONLY | O_CLOEXEC);
		bool ok = write_in_place(path, fd, bytes, length, status);
		if (fd >= 0)
			close(fd);
		return ok;
	}
	size_t size = strlen(path) + sizeof ".XXXXXX";
	char *temporary = malloc(size);
	if (!temporary)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	snprintf(temporary, size, "%s.XXXXXX", path);
	bool ok = write_beside(path, temporary, bytes, length, status);
	free(temporary);
	return ok;
}

bool pp_file_can_write(const char *path, struct pp_status *status)
{
	struct stat info;
	bool exists = strcmp(path, "-") != 0 && stat(path, &info) == 0;
	if (exists && S_ISDIR(info.st_mode))
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write %s: it is a folder", path);
	if (strcmp(path, "-") == 0 || (exists && !S_ISREG(info.st_mode)))
		return true;
	size_t size = strlen(path) + sizeof ".XXXXXX";
	char *temporary = malloc(size);
	if (!temporary)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	snprintf(temporary, size, "%s.XXXXXX", path);
	int fd = mkstemp(temporary);
	if (fd < 0)
		pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot write beside %s: %s", path, strerror(errno));
	else {
		close(fd);
		unlink(temporary);
	}
	free(temporary);
	return fd >= 0;
}

int pp_finish_output(const char *tool, int code)
{
	errno = 0;
	bool failed = ferror(stdout) != 0;
	if (fflush(stdout) == 0 && !failed)
		return code;
	/* A failed write of earlier has lost its reason: an empty line more will most likely meet it again. */
	if (!errno) {
		clearerr(stdout);
		if (fputc('\n', stdout) != EOF)
			fflush(stdout);
	}
	fprintf(stderr, "%s: cannot write standard output%s%s\n", tool, errno ? ": " : "", errno ? strerror(errno) : "");
	return code ? code : PP_EXIT_ENVIRONMENT;
}
