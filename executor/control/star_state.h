/* What the files of the control star share. */
#ifndef PP_STAR_STATE_H
#define PP_STAR_STATE_H

#include "frame.h"
#include "page.h"
#include "star.h"

#include <poll.h>
#include <pthread.h>

enum pp_star_mode { PP_STAR_ALONE, PP_STAR_HUB, PP_STAR_SPOKE };

enum { PP_STRANGERS = 16 };

/* A connection that has not said the token yet. */
struct pp_stranger {
	struct pp_wire wire;
	uint64_t since;
};

/* Rank 0's end of a connection. */
struct pp_peer {
	struct pp_wire wire;
	uint64_t heard;                             /* pp_clock() */
	bool connected, ready, has_begun, answered; /* answered: the last question */
	uint64_t begun;
};

enum { PP_STOP_BYTES = 32 };

struct pp_star {
	_Atomic(const struct pp_limits *) limits;
	struct pp_keeper_files files;
	struct pp_watch *watch;
	pthread_t thread;
	int wake[2]; /* a pipe: the thread looks at what is asked of it */
	uint64_t started, beat, next_beat;
	atomic_int mode;

	/* Asked for by other threads of the process; the texts are written first. */
	atomic_bool failed, signalled, stop_wanted, leaving, over;
	char failed_text[PP_WHY_BYTES];
	int failed_code;
	char signal_text[PP_WHY_BYTES];
	char stop_text[PP_STOP_BYTES];
	bool told_failed, told_signalled, told_stop; /* the thread has seen to it */

	uint32_t rank, world;
	struct pp_page *page;
	bool page_is_private;

	/* Rank 0. */
	int listener;
	unsigned char token[PP_TOKEN_BYTES];
	struct pp_stranger strangers[PP_STRANGERS];
	struct pp_peer *peers; /* [world] */
	uint32_t connected;
	bool alarmed; /* the standing of a rank has changed for the worse */
	struct pp_stall stall;
	bool stopping, stop_known;
	uint64_t last_turn;   /* pp_clock() */
	bool slept;           /* this process was paused for so long that the others have given it up */
	uint64_t stop_looked; /* pp_clock() of the last look for the stop file */

	/* Others. */
	struct pp_wire hub;
	uint64_t hub_heard;
	bool hub_ended;

	/* A report is due. */
	struct pp_account *accounts;                      /* [world] */
	uint64_t due_since, not_before, not_after, asked; /* pp_clock(); due_since 0: none */
	char occasion[PP_OCCASION_BYTES];
	int code;
};

/* One turn of the thread. */
void pp_hub_turn(struct pp_star *star, uint64_t now);
void pp_spoke_turn(struct pp_star *star, uint64_t now);

/* Leaving in good order. */
void pp_hub_leave(struct pp_star *star);
void pp_spoke_leave(struct pp_star *star);

/* Sockets to wait for: fills `sockets`, which has room for world + PP_STRANGERS + 1. */
size_t pp_hub_sockets(const struct pp_star *star, int *sockets);
/* The same sockets after poll: which ranks have something to say. */
void pp_hub_mark(struct pp_star *star, const struct pollfd *polls, size_t count);

/* star_exit.c: end the process; standard output is written as far as nobody holds it. */
void pp_star_exit(int code);

#endif
