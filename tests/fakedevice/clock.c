/* Vector clocks (clock.h). */
#include "clock.h"
#include "runtime.h"

static struct {
	bool taken[PP_FAKE_AGENTS];
	uint32_t last_epoch[PP_FAKE_AGENTS];
	uint32_t used; /* agents from here on were never taken */
} agents;

uint32_t pp_fake_agent_take(struct pp_fake_clock *clock)
{
	uint32_t agent = 0;
	while (agent < PP_FAKE_AGENTS && agents.taken[agent])
		agent++;
	if (agent == PP_FAKE_AGENTS)
		pp_fake_die("more than %d streams and host threads", PP_FAKE_AGENTS);
	agents.taken[agent] = true;
	if (agents.used <= agent)
		agents.used = agent + 1;
	clock->epochs[agent] = agents.last_epoch[agent];
	return agent;
}

void pp_fake_agent_give(uint32_t agent, const struct pp_fake_clock *clock)
{
	agents.taken[agent] = false;
	agents.last_epoch[agent] = clock->epochs[agent];
}

void pp_fake_clock_tick(struct pp_fake_clock *clock, uint32_t agent)
{
	clock->epochs[agent]++;
}

void pp_fake_clock_join(struct pp_fake_clock *clock, const struct pp_fake_clock *other)
{
	for (uint32_t i = 0; i < agents.used; i++)
		if (clock->epochs[i] < other->epochs[i])
			clock->epochs[i] = other->epochs[i];
}

bool pp_fake_clock_passed(const struct pp_fake_clock *clock, uint32_t agent, uint32_t epoch)
{
	return epoch <= clock->epochs[agent];
}
