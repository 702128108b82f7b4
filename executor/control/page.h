/* A page of memory that all ranks of a machine share: where each of them is can be read even when it is dead. */
#ifndef PP_PAGE_H
#define PP_PAGE_H

#include "whereabouts.h"

#include "ir/status.h"

struct pp_page_rank {
	struct pp_whereabouts position;
	atomic_int pid;             /* 0: not on this machine */
	atomic_uint_least64_t beat; /* pp_clock() of its keeper's last look around */
	char padding[48];
};

struct pp_page {
	atomic_uint_least32_t reported; /* ranks that took it on themselves to report */
	char padding[60];
	struct pp_page_rank ranks[]; /* of the world */
};

/* The page of this machine. One process makes it; the others open it afterwards. NULL with a status. */
struct pp_page *pp_page_make(const char *name, uint32_t world, struct pp_status *status);
struct pp_page *pp_page_open(const char *name, uint32_t world, struct pp_status *status);
/* Once all have it open, the name goes away: nothing is left behind whatever happens. */
void pp_page_forget(const char *name);
void pp_page_close(struct pp_page *page, uint32_t world);

/* Is this process stopped? */
bool pp_process_is_stopped(int pid);

/* Wake the stopped processes of this machine but the own one: the run is over and they are to learn it. */
void pp_page_resume(struct pp_page *page, uint32_t world);

#endif
