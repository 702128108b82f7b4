/* The board of a job: what the processes of one NCCL job tell each other's watchdogs. A deadlock of a job is one of all
 * its processes. Lock held. */
#ifndef PP_FAKE_BOARD_H
#define PP_FAKE_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* This process has that rank of a communicator of so many; the first call makes the process part of the job that the
 * communicator's name stands for, by its first rank. Later ones change nothing. */
void pp_fake_board_join(const char *name, uint32_t rank, uint32_t ranks);

/* Puts up what this process is at: how often something moved, for how long (milliseconds) nothing has, whether nothing
 * can, and its table. */
void pp_fake_board_tell(uint64_t progress, uint64_t quiet_ms, bool stuck, const char *table);

/* Is every process of the job alive, and stuck or for a long time without a move (PP_FAKE_STALL_MS), with nothing
 * moving since the last look? A process that has joined no job is a job of itself. `text` gets the tables of all. True
 * for one process only, of those that are stuck: the one that says it. */
bool pp_fake_board_all_stuck(char *text, size_t size);

#endif
