/* Messages of the control star over TCP: sockets that never block, frames that arrive in pieces. */
#ifndef PP_FRAME_H
#define PP_FRAME_H

#include "judge.h"

#include "ir/status.h"

enum pp_word {
	PP_WORD_HELLO,   /* to rank 0: the token, and whose connection this is */
	PP_WORD_WELCOME, /* from rank 0: the same token */
	PP_WORD_PLACE,   /* a heartbeat: where `rank` is; number 1: its process is stopped */
	PP_WORD_ASK,     /* from rank 0: where are you, and the others on your machine */
	PP_WORD_FAILED,  /* `rank` gave up: text; number: exit code */
	PP_WORD_SIGNAL,  /* … was told to end by a signal: text */
	PP_WORD_ENDED,   /* it leaves in good order */
	PP_WORD_STOP,    /* a stop is asked for: text */
	PP_WORD_HOLD,    /* from rank 0: close the gate */
	PP_WORD_BEGUN,   /* the last step that has begun: number */
	PP_WORD_LAST,    /* from rank 0: stop after step `number`; text as of STOP */
	PP_WORD_END,     /* from rank 0, after its report: end with code `number` */
	PP_WORD_COUNT
};

enum { PP_TOKEN_BYTES = 16, PP_FRAME_DATA = PP_WHY_BYTES };

struct pp_frame {
	uint32_t word, rank;
	uint64_t number;
	uint32_t bytes; /* of the data that follow */
	uint32_t magic;
	union {
		unsigned char token[PP_TOKEN_BYTES];
		struct pp_seen place;
		char text[PP_FRAME_DATA];
	} data;
};

/* A connection and what has arrived of its next frame. */
struct pp_wire {
	int socket; /* -1: closed */
	uint32_t filled;
	union {
		struct pp_frame frame;
		unsigned char bytes[sizeof(struct pp_frame)];
	} in;
};

void pp_wire_close(struct pp_wire *wire);

/* False: closed, or the other side does not read. */
bool pp_wire_send(struct pp_wire *wire, enum pp_word word, uint32_t rank, uint64_t number, const void *data,
                  size_t bytes);

enum pp_arrival { PP_NOTHING, PP_FRAME, PP_CLOSED };

/* The next frame, checked, in wire->in.frame until the next call; texts are terminated. A connection that says
 * something else is closed. */
enum pp_arrival pp_wire_receive(struct pp_wire *wire);

/* ---- sockets --------------------------------------------------------------------------------- */

enum { PP_ADDRESSES = 8, PP_ADDRESS_BYTES = 64 };

/* Where rank 0 listens. */
struct pp_star_address {
	unsigned char token[PP_TOKEN_BYTES];
	uint32_t port, count;
	char addresses[PP_ADDRESSES][PP_ADDRESS_BYTES]; /* numeric */
};

/* Listen; `alone`: ranks are on this machine only. PP_CONTROL_ADDRESS names another address to tell. -1: *status says
 * why. */
int pp_star_listen(struct pp_star_address *address, bool alone, struct pp_status *status);

/* The socket of an arrival, or -1: none now. */
int pp_star_accept(int listener);

/* Connect, say hello, be welcomed; tries each address for up to `patience` ns. */
bool pp_star_connect(const struct pp_star_address *address, uint32_t rank, uint64_t patience, struct pp_wire *wire,
                     struct pp_status *status);

#endif
