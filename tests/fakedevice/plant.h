/* Faults planted from outside, so that tests see them caught in programs that have none of their own:
 * PP_FAKE_PLANT=KIND:NUMBER[:RANK], the NUMBER-th of its kind, from 1, goes wrong. */
#ifndef PP_FAKE_PLANT_H
#define PP_FAKE_PLANT_H

#include <stdbool.h>
#include <stdint.h>

enum pp_fake_plant {
	PP_FAKE_LOST_WAIT,       /* lost-wait: a cudaStreamWaitEvent of every stream does nothing */
	PP_FAKE_LOST_RECORD,     /* lost-record: a cudaEventRecord of every stream does nothing */
	PP_FAKE_HASTY_QUERY,     /* hasty-query: from that one on, queries of every host thread say that all is done */
	PP_FAKE_SHORT_SEND,      /* short-send: an ncclSend of the rank is one element shorter */
	PP_FAKE_LOST_SEND,       /* lost-send: an ncclSend of the rank is not posted */
	PP_FAKE_NO_STREAM,       /* no-stream: there is no memory for a stream; RANK: number of the GPU */
	PP_FAKE_LOST_COLLECTIVE, /* lost-collective: a collective of the rank is not posted */
	PP_FAKE_OLD_NCCL,        /* old-nccl: NCCL says that it is a version older; RANK: number of the GPU */
};

/* Does this one go wrong? `counter` counts those of its kind that the caller looks at apart; `rank` matters to the
 * kinds of a rank. */
bool pp_fake_planted(enum pp_fake_plant kind, uint64_t *counter, uint32_t rank);

#endif
