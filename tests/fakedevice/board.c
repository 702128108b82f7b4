/* The board of a job (board.h), in shared memory named after the job's first communicator. A process that has ended
 * well, or whose threads hold all ranks, needs nobody; one that is gone or stopped (it doesn't tell any more) makes the
 * watchdogs silent: what to do about it is for the program under test to find out. */
#include "board.h"
#include "nccl_segment.h"
#include "runtime.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { TABLE_BYTES = 4096, FRESH_MS = 300 };

struct entry {
	_Atomic uint32_t present; /* 1: at work, 2: has left */
	_Atomic bool stuck;
	_Atomic uint64_t progress, quiet_ms, told_at; /* by the machine's clock, which all share */
	char table[TABLE_BYTES];
};

struct board {
	_Atomic uint32_t covered;                 /* ranks of all processes that have joined */
	struct entry entries[PP_FAKE_RANKS_MOST]; /* by the first rank of each process */
};

static struct {
	struct board *board;        /* NULL: of no job */
	uint32_t entry, ranks, own; /* ranks of the job; how many of them are here */
	char name[PP_FAKE_NAME_BYTES + 8];
	char job[PP_FAKE_NAME_BYTES];
	uint64_t sum; /* of progress, at the last look */
} job;

static void leave(void)
{
	atomic_store(&job.board->entries[job.entry].present, 2);
}

static struct board *open_board(const char *name)
{
	int file = shm_open(name, O_CREAT | O_RDWR, 0600);
	if (file < 0)
		return NULL;
	void *memory = MAP_FAILED;
	if (ftruncate(file, sizeof(struct board)) == 0)
		memory = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	return memory == MAP_FAILED ? NULL : memory;
}

/* Once all ranks have the board, its name is for nobody any more. */
static void cover(void)
{
	if (atomic_fetch_add(&job.board->covered, 1) + 1 == job.ranks)
		shm_unlink(job.name);
}

void pp_fake_board_join(const char *name, uint32_t rank, uint32_t ranks)
{
	if (job.board && strcmp(job.job, name) == 0) { /* another thread of this process, another rank */
		job.own++;
		cover();
		return;
	}
	if (job.board || ranks == 1)
		return;
	snprintf(job.job, sizeof job.job, "%s", name);
	snprintf(job.name, sizeof job.name, "%s.board", name);
	job.board = open_board(job.name);
	if (!job.board)
		return;
	job.entry = rank;
	job.ranks = ranks;
	job.own = 1;
	atomic_store(&job.board->entries[rank].told_at, pp_fake_now());
	atomic_store(&job.board->entries[rank].present, 1);
	cover();
	atexit(leave);
}

void pp_fake_board_tell(uint64_t progress, uint64_t quiet_ms, bool stuck, const char *table)
{
	if (!job.board)
		return;
	struct entry *entry = &job.board->entries[job.entry];
	if (table[0])
		snprintf(entry->table, sizeof entry->table, "%s", table);
	atomic_store(&entry->progress, progress);
	atomic_store(&entry->quiet_ms, quiet_ms);
	atomic_store(&entry->stuck, stuck);
	atomic_store(&entry->told_at, pp_fake_now());
}

bool pp_fake_board_all_stuck(char *text, size_t size)
{
	if (!job.board || job.own == job.ranks)
		return true;
	uint64_t now = pp_fake_now(), sum = 0;
	bool all = atomic_load(&job.board->covered) >= job.ranks, first = true;
	size_t length = 0;
	for (uint32_t i = 0; i < job.ranks; i++) {
		struct entry *entry = &job.board->entries[i];
		uint32_t present = atomic_load(&entry->present);
		if (present != 1)
			continue;
		bool stuck = atomic_load(&entry->stuck);
		first &= i >= job.entry || !stuck;
		uint64_t told = atomic_load(&entry->told_at);
		bool fresh = told > now || now - told < FRESH_MS * 1000000ull;
		all &= fresh && (stuck || atomic_load(&entry->quiet_ms) >= pp_fake_settings()->stall_ms);
		sum += atomic_load(&entry->progress);
		if (length < size)
			length += (size_t)snprintf(text + length, size - length, " process of rank %u\n%s", i, entry->table);
	}
	bool still = sum == job.sum;
	job.sum = sum;
	return all && still && first;
}
