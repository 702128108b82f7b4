/* The posts of one channel's end or of one group at a rank, on their way through pinned memory. Used by staged.c. */
#ifndef PP_STAGED_LINE_H
#define PP_STAGED_LINE_H

#include "executor/cuda/cuda.h"
#include "executor/transport/collective.h"

enum pp_staged_kind { PP_STAGED_NONE, PP_STAGED_SEND, PP_STAGED_RECV, PP_STAGED_COLL, PP_STAGED_BODY };

/* Posts of a line are over in order, so two buffers let one be copied while the other travels. */
enum { PP_STAGED_BUFFERS = 2 };

struct pp_staged_post {
	const struct pp_instr *instr; /* NULL: of a body */
	struct pp_part part;          /* addresses on the device */
	uint32_t ticket;              /* of a body, from the transport below */
};

/* Post n lies at n mod capacity, its buffers at n mod PP_STAGED_BUFFERS. */
struct pp_staged_line {
	enum pp_staged_kind kind;
	bool direct;                /* the transport below takes the device's addresses */
	uint32_t position, members; /* of a group */
	cudaStream_t stream;
	struct pp_cuda_events events;                                  /* [capacity][3]: enum pp_staged_event */
	unsigned char *in[PP_STAGED_BUFFERS], *out[PP_STAGED_BUFFERS]; /* pinned */
	struct pp_staged_post *posts;
	uint32_t capacity;
	uint64_t posted, base, started, issued, done; /* base: posts before the present step */
	uint64_t marked;                              /* of them the compute stream's place is known: at least `posted` */
};

/* Where posts of a line go. */
struct pp_staged_below {
	const struct pp_transport_ops *ops;
	struct pp_endpoint *endpoint;
};

/* Room for posts, two buffers of these sizes. False: *status; pp_staged_line_close either way. */
bool pp_staged_line_open(struct pp_staged_line *line, uint32_t posts, uint64_t in_bytes, uint64_t out_bytes,
                         struct pp_status *status);
void pp_staged_line_close(struct pp_staged_line *line);

/* The first post that is not marked, perhaps still to come, is behind all that the compute stream has been given. */
bool pp_staged_line_mark(struct pp_staged_line *line, const struct pp_cuda *cuda, struct pp_status *status);

/* A post behind its mark, else behind all that the compute stream has been given. Returns its number. */
bool pp_staged_line_post(struct pp_staged_line *line, const struct pp_cuda *cuda, const struct pp_staged_post *post,
                         uint64_t *number, struct pp_status *status);

/* Move what can move. False: *status, or the transport below failed, then its text is empty. */
bool pp_staged_line_move(struct pp_staged_line *line, const struct pp_staged_below *below, struct pp_status *status);

/* Post `number` is done: what the compute stream is given from here on comes after it. */
bool pp_staged_line_follow(const struct pp_staged_line *line, const struct pp_cuda *cuda, uint64_t number,
                           struct pp_status *status);

#endif
