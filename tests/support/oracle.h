/* An executor that computes with hashes instead of numbers: what a program's result depends on, judged independently of
 * the verifier. Values are 64-bit provenance hashes; sums commute, everything else mixes.
 *
 * Two steps (of each named program in turn) run one after the other from garbage in every slot. Ranks and transfers
 * advance in a random interleaving under strict rendezvous, one FIFO per channel and group. A receive lands only at its
 * wait, a send reads its slot at its post, when it is carried, and at its wait; any difference poisons the result, and
 * so does a post nobody waits for. A slot that is written destroys every slot with which it shares bytes; consumed
 * values turn to garbage.
 *
 * All coordinates of the grid run, each on data of its dp coordinate. The bodies of the tp coordinates run as one;
 * their results are the same but for stashes and for gradients of tensors that are sharded or seen in parts. */
#ifndef PP_TEST_ORACLE_H
#define PP_TEST_ORACLE_H

#include "ir/program.h"

/* False: some rank is stuck for ever. *result: hash of all weights after both steps, of losses and scales, and of what
 * every weight gradient was made of. */
bool oracle_run(const struct pp_program *program, uint64_t seed, uint64_t *result);

#endif
