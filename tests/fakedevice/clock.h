/* Vector clocks: what is ordered before what. Every host thread and every stream is an agent with a count of its own,
 * its epoch; a clock says which epoch of every agent is known to have passed. Lamport, "Time, clocks, and the ordering
 * of events in a distributed system", CACM 21(7), 1978; Mattern, "Virtual time and global states", 1989. Lock held. */
#ifndef PP_FAKE_CLOCK_H
#define PP_FAKE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum { PP_FAKE_AGENTS = 512 };

struct pp_fake_clock {
	uint32_t epochs[PP_FAKE_AGENTS];
};

/* A free agent; `clock` gets its last epoch, so that epochs of an agent only grow. */
uint32_t pp_fake_agent_take(struct pp_fake_clock *clock);
void pp_fake_agent_give(uint32_t agent, const struct pp_fake_clock *clock);

/* The agent goes on to its next epoch. */
void pp_fake_clock_tick(struct pp_fake_clock *clock, uint32_t agent);
void pp_fake_clock_join(struct pp_fake_clock *clock, const struct pp_fake_clock *other);
/* Is that epoch of that agent before this clock's now? */
bool pp_fake_clock_passed(const struct pp_fake_clock *clock, uint32_t agent, uint32_t epoch);

#endif
