/* The verifier: proves a program correct from its final streams alone, however it was made.
 *
 *   V1  exactly once: each (stage, mb) one F and either one B or one I + one W, on its rank, F before I before W
 *   V2  data flow: F(s,m) reads the output of F(s-1,m), I/B(s,m) that of I/B(s+1,m)
 *   V3  channel identity: the k-th send and the k-th recv carry the same (stage, mb, kind, bytes, dtype)
 *   V4  no deadlock under rendezvous, per queue layout
 *   V5  byte ranges: no read before write, no overwrite of live data or data in flight, stash states legal, nothing
 *       left live at the end, no two live ranges overlap; slots that live for the whole run are as long as what they
 *       hold, loads fill aux, and what an op reads that may overlap the next one stays until that is done
 *   V6  every post waited exactly once before its slot is reused and before the step ends
 *   V7  collectives congruent per group (sequence, bytes, dtype) and against p2p
 *   V8  gradient algebra: each update sees every microbatch and every use once, over tp where coordinates see
 *       parts and over dp; scaled once, norm after all reductions and before every update; copies are updated alike,
 *       bit for bit; all ranks learn whether a step counts. A sharded optimizer scatters each gradient, reads and
 *       updates own shards only, and gathers the weights before the step ends
 *   V9  planned peak within capacity - reserve, and no more than the slots need; scratch as long as kernels need it
 *   V10 bodies: operand ranges, dtypes, shapes and R/P/S types, within a stage, across boundaries and against `train`;
 *       what runs has a body, parameters are read, gradients written; what is recomputed is made as the forward made
 *       it. Each value has one name and one maker, and none is made that nobody reads: an instruction that is left
 *       out or run twice is found, another order is refused or computes the same. Not that a backward is the
 *       derivative of its forward: tests/numerics holds the builder to that
 *   V11 co-residency: on a GPU the thread blocks of posts that are outstanding together fit the multiprocessors that
 *       the rank has for them, each communicator with as many as the program says
 *
 * One pass, O(instructions), plus one run per further layout only when the blocking proof fails. */
#ifndef PP_VERIFY_H
#define PP_VERIFY_H

#include "diag.h"
#include "program.h"

/* Verify every named program. On failure diagnostics with codes "V1" … "V11" name the instructions (position in
 * the source when read from text, else rank, index and text). `program` may come from anywhere as long as its
 * indices are in range (the readers guarantee that). The result goes to *stamp. */
bool pp_verify(const struct pp_program *program, struct pp_stamp *stamp, struct pp_diag *diag);

/* Parts, for tests and for the passes that own them. */
bool pp_verify_bodies(const struct pp_program *program, struct pp_diag *diag);    /* V10 */
bool pp_verify_memory(const struct pp_program *program, struct pp_diag *diag);    /* V9 and static placement */
bool pp_verify_residency(const struct pp_program *program, struct pp_diag *diag); /* V11, of streams that keep V6 */

/* V3, V4, V6 and V7 alone, V4 under one queue layout: does it finish under rendezvous? */
bool pp_verify_layout(const struct pp_program *program, const struct pp_named_program *named, enum pp_layout layout,
                      struct pp_diag *diag);

#endif
