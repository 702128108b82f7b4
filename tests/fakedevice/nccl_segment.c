/* Shared memory of a communicator (nccl_segment.h). Fresh shared memory is zero, which is where every counter begins.
 */
#include "nccl_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t pipes_offset(uint32_t ranks)
{
	return sizeof(struct pp_fake_segment) + ranks * sizeof(struct pp_fake_member);
}

static uint64_t mails_offset(uint32_t ranks)
{
	return pipes_offset(ranks) + (uint64_t)ranks * ranks * sizeof(struct pp_fake_pipe);
}

uint64_t pp_fake_segment_bytes(uint32_t ranks)
{
	return mails_offset(ranks) + 2 * (uint64_t)ranks * ranks * sizeof(struct pp_fake_mail);
}

struct pp_fake_segment *pp_fake_segment_open(const char *name, uint32_t ranks)
{
	int file = shm_open(name, O_CREAT | O_RDWR, 0600);
	if (file < 0)
		return NULL;
	uint64_t bytes = pp_fake_segment_bytes(ranks);
	void *memory = MAP_FAILED;
	if (ftruncate(file, (off_t)bytes) == 0)
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	return memory == MAP_FAILED ? NULL : memory;
}

void pp_fake_segment_close(struct pp_fake_segment *segment, uint32_t ranks)
{
	munmap(segment, pp_fake_segment_bytes(ranks));
}

void pp_fake_segment_remove(const char *name)
{
	shm_unlink(name);
}

struct pp_fake_pipe *pp_fake_segment_pipe(struct pp_fake_segment *segment, uint32_t ranks, uint32_t from, uint32_t to)
{
	unsigned char *start = (unsigned char *)segment + pipes_offset(ranks);
	return (struct pp_fake_pipe *)(void *)start + (uint64_t)from * ranks + to;
}

struct pp_fake_mail *pp_fake_segment_mail(struct pp_fake_segment *segment, uint32_t ranks, uint32_t from, uint32_t to,
                                          uint32_t kind)
{
	unsigned char *start = (unsigned char *)segment + mails_offset(ranks);
	return (struct pp_fake_mail *)(void *)start + 2 * ((uint64_t)from * ranks + to) + kind;
}
