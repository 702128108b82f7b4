/* A link: how posts on a device's own memory travel between processes. It is a stream-ordered transport above one that
 * works on host memory, which carries control data and, where devices cannot talk themselves, the payload. */
#ifndef PP_LINK_H
#define PP_LINK_H

#include "late_environment.h"
#include "transport.h"

/* Tells a device from all others, on whatever machine. */
enum { PP_DEVICE_ID = 16 };

/* What NCCL reads of the environment and a link may set when threads run. */
struct pp_link_environment {
	struct pp_late_variable host, order; /* NCCL_HOSTID, NCCL_LAUNCH_ORDER_IMPLICIT */
};

static inline struct pp_link_environment pp_link_environment_take(void)
{
	return (struct pp_link_environment){.host = pp_late_variable_take("NCCL_HOSTID", 32),
	                                    .order = pp_late_variable_take("NCCL_LAUNCH_ORDER_IMPLICIT", 2)};
}

struct pp_link_start {
	const struct pp_program *program;
	uint32_t world; /* world rank */
	bool shared;    /* some ranks of the run have the same device */
	const struct pp_transport_ops *below;
	struct pp_endpoint *endpoint; /* bound, of `below` */
	struct pp_transport_options options;
	enum pp_layout queues;
	bool through_host; /* never give addresses of the device to `below` */
	const struct pp_link_environment *environment;
	bool quiet; /* say nothing of choices that the link makes */
};

struct pp_link {
	const char *name; /* "staged", "nccl" */
	const struct pp_transport_ops *ops;
	bool has_queues; /* its posts stand in the queues of the layout; else executor/transport/queued.h has to do it */
	/* The device that the `local`-th rank of this machine is going to have, `gpus` as in pp_device_options. A direct
	 * link is for ranks of which no two have the same. False: there is none. NULL: it does not matter. */
	bool (*identify)(const char *gpus, uint32_t local, uint8_t id[PP_DEVICE_ID], struct pp_status *status);
	/* NULL on failure. Once the device is made, ops->bind makes the link; all ranks do so together. */
	struct pp_endpoint *(*open)(const struct pp_link_start *start, struct pp_status *status);
	void (*close)(struct pp_endpoint *endpoint);
};

/* Which one a run uses. */
enum pp_link_choice { PP_LINK_AUTO, PP_LINK_STAGED, PP_LINK_DIRECT };

#endif
