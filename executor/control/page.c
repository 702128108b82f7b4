/* POSIX shared memory. */
#include "page.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page_bytes(uint32_t world)
{
	return sizeof(struct pp_page) + (size_t)world * sizeof(struct pp_page_rank);
}

static struct pp_page *map(const char *name, uint32_t world, int flags, struct pp_status *status)
{
	int file = shm_open(name, O_RDWR | flags, 0600);
	size_t bytes = page_bytes(world);
	void *memory = MAP_FAILED;
	/* Room is taken at once: a full /dev/shm must not end ranks by SIGBUS later. */
	int error = file < 0 ? errno : flags ? posix_fallocate(file, 0, (off_t)bytes) : 0;
	if (file >= 0 && error == 0) {
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		error = errno;
	}
	if (file >= 0)
		close(file);
	if (memory != MAP_FAILED)
		return memory;
	if (file >= 0 && flags)
		shm_unlink(name);
	pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot share %zu bytes of memory (%s in /dev/shm): %s", bytes, name,
	        strerror(error));
	return NULL;
}

struct pp_page *pp_page_make(const char *name, uint32_t world, struct pp_status *status)
{
	return map(name, world, O_CREAT | O_EXCL, status);
}

struct pp_page *pp_page_open(const char *name, uint32_t world, struct pp_status *status)
{
	return map(name, world, 0, status);
}

void pp_page_forget(const char *name)
{
	shm_unlink(name);
}

void pp_page_close(struct pp_page *page, uint32_t world)
{
	if (page)
		munmap(page, page_bytes(world));
}

bool pp_process_is_stopped(int pid)
{
	char path[64], line[512];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *file = pid > 0 ? fopen(path, "r") : NULL;
	if (!file)
		return false;
	const char *name_end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
	fclose(file);
	return name_end && name_end[1] == ' ' && (name_end[2] == 'T' || name_end[2] == 't');
}

void pp_page_resume(struct pp_page *page, uint32_t world)
{
	for (uint32_t i = 0; i < world; i++) {
		int pid = atomic_load(&page->ranks[i].pid);
		if (pid > 0 && pid != (int)getpid() && pp_process_is_stopped(pid))
			kill(pid, SIGCONT);
	}
}
