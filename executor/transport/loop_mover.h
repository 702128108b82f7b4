/* What moves data between ranks of one process where memcpy cannot: on a device's streams. The loop transport keeps the
 * posts, matches them and checks who means what; a mover is told once all ends have posted.
 *
 * A lane is where the transfers of one channel, or the collectives of one group, queue. Entry k of a lane is reused for
 * entry k + capacity, which begins only after all ends have followed entry k. */
#ifndef PP_LOOP_MOVER_H
#define PP_LOOP_MOVER_H

#include "collective.h"

struct pp_device;
struct pp_lane; /* implementer's context */

struct pp_loop_mover {
	/* A lane of `ends` ranks, each with at most `capacity` entries under way; made by one of them, on its device. NULL
	 * on failure. */
	struct pp_lane *(*open)(struct pp_device *device, uint32_t ends, uint32_t capacity, struct pp_status *status);
	void (*close)(struct pp_lane *lane);
	/* The rank at an end posts its entry: all that its device has been given comes before the transfer. */
	bool (*mark)(struct pp_lane *lane, struct pp_device *device, uint32_t end, uint64_t entry,
	             struct pp_status *status);
	/* All ends have marked the entry: move. One thread at a time. */
	bool (*copy)(struct pp_lane *lane, uint64_t entry, void *to, const void *from, uint64_t bytes,
	             struct pp_status *status);
	bool (*collect)(struct pp_lane *lane, uint64_t entry, const struct pp_part *const *parts, uint32_t members,
	                struct pp_status *status);
	/* All that the device is given from here on comes after the transfer. */
	bool (*follow)(struct pp_lane *lane, struct pp_device *device, uint64_t entry, struct pp_status *status);
};

#endif
