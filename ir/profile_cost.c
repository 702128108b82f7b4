/* From measured times to the figures that the simulator prices with. ensures: IEEE sums, products and quotients only,
 * so the same numbers on every machine. */
#include "profile.h"

#include "simulate.h"

#include <stdlib.h>

static int ascending(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return a < b ? -1 : a > b;
}

/* Of equal messages on other channels of the same sort. UINT64_MAX: there are none. */
static uint64_t usual_time(const struct pp_profile *profile, const struct pp_profile_channel *wanted)
{
	uint64_t *times = malloc((profile->channel_count + 1) * sizeof *times), median = UINT64_MAX;
	size_t count = 0;
	for (size_t i = 0; times && i < profile->channel_count; i++) {
		const struct pp_profile_channel *row = &profile->channels[i];
		if (row->between_nodes == wanted->between_nodes && row->bytes == wanted->bytes)
			times[count++] = row->time.median;
	}
	if (count) {
		qsort(times, count, sizeof *times, ascending);
		median = times[(count - 1) / 2];
	}
	free(times);
	return median;
}

bool pp_profile_transfer(const struct pp_profile *profile, const struct pp_profile_channel *wanted, uint64_t *latency,
                         uint64_t *bandwidth)
{
	uint64_t time = UINT64_MAX;
	for (size_t i = 0; i < profile->channel_count; i++) {
		const struct pp_profile_channel *row = &profile->channels[i];
		if (row->source == wanted->source && row->destination == wanted->destination && row->kind == wanted->kind &&
		    row->bytes == wanted->bytes)
			time = row->time.median;
	}
	if (time == UINT64_MAX)
		time = usual_time(profile, wanted);
	const struct pp_profile_link *link = &profile->link[wanted->between_nodes];
	if (time == UINT64_MAX && !link->given)
		return false;
	*latency = time == UINT64_MAX ? link->latency : time;
	*bandwidth = time == UINT64_MAX ? link->bandwidth : 0;
	return true;
}

bool pp_profile_ring(const struct pp_profile *profile, enum pp_axis axis, uint32_t members, uint64_t *latency,
                     uint64_t *bandwidth)
{
	double count = 0, bytes = 0, time = 0, square = 0, product = 0;
	for (size_t i = 0; i < profile->joint_count; i++) {
		const struct pp_profile_joint *row = &profile->joints[i];
		if (row->axis != axis || row->members != members)
			continue;
		enum pp_collective kind = (enum pp_collective)row->sub;
		double x = (double)pp_ring_part(kind, row->bytes, members);
		double y = (double)row->time.median / (double)pp_ring_steps(kind, members);
		count++;
		bytes += x;
		time += y;
		square += x * x;
		product += x * y;
	}
	if (count <= 0)
		return false;
	double spread = count * square - bytes * bytes, slope = spread > 0 ? (count * product - bytes * time) / spread : 0;
	if (slope < 1e-9)
		slope = 0;
	double rest = (time - slope * bytes) / count;
	*latency = rest > 0 ? (uint64_t)(rest + 0.5) : 0;
	*bandwidth = slope > 0 ? (uint64_t)(1e9 / slope + 0.5) : 0;
	return true;
}

uint64_t pp_profile_bandwidth(const struct pp_profile *profile)
{
	double bytes = 0, time = 0;
	for (size_t i = 0; i < profile->tail_count; i++)
		if (profile->tails[i].bytes) {
			bytes += (double)profile->tails[i].bytes;
			time += (double)profile->tails[i].time.median;
		}
	double rate = time > 0 ? bytes * 1e9 / time : 0;
	return rate < 1 ? 0 : rate < 1e18 ? (uint64_t)rate : UINT64_C(1000000000000000000);
}
