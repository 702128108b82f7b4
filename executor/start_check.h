/* What a loaded program must pass before a run allocates anything. */
#ifndef PP_START_CHECK_H
#define PP_START_CHECK_H

#include "control/stall.h"
#include "device.h"

#include "ir/program_file.h"
#include "ir/status.h"

/* Prove the program; its stamp is what was proven then, whatever the file says. False: the reasons are in loaded->diag,
 * *status has an empty text; or it is proven, but not for this queue layout (E0906). */
bool pp_check_proof(struct pp_loaded *loaded, enum pp_layout layout, struct pp_status *status);

/* What this piperun and device can run: placed slots, ops, collectives. */
bool pp_check_supported(const struct pp_program *program, const char *path, const struct pp_device_ops *device,
                        struct pp_status *status);

/* E0901: the program's number of ranks against the number started. */
bool pp_check_ranks(const struct pp_program *program, uint64_t started, struct pp_status *status);

/* Arenas of the world ranks for which `here` is set (NULL: all) against the memory that this machine has free. A device
 * with memory of its own checks that itself. */
bool pp_check_memory(const struct pp_program *program, const struct pp_device_ops *device, const bool *here,
                     struct pp_status *status);

/* What the keeper of a run looks for and appends to has a folder. */
bool pp_check_files(const struct pp_keeper_files *files, struct pp_status *status);

/* What ranks compare at start. */
struct pp_card {
	uint64_t hash;
	char host[64];
	char core[16]; /* of BLAS */
	char device[8];
	enum pp_graph graph; /* as wanted: graph_choice.h */
};

struct pp_card pp_card_make(const struct pp_loaded *loaded, const struct pp_device_ops *device);

/* E0902: all ranks loaded the same program. E0907: they run it on the same kind of device. */
bool pp_check_cards(const struct pp_card *cards, uint32_t ranks, struct pp_status *status);

/* W0906: machines multiply with different cores of BLAS: right, but the bits are those of this mixture. False:
 * *warning says which; the run goes on. */
bool pp_check_cores(const struct pp_card *cards, uint32_t ranks, struct pp_status *warning);

/* E0903: tensor-parallel groups that the program plans within a node must be on one machine. */
bool pp_check_nodes(const struct pp_program *program, const struct pp_card *cards, struct pp_status *status);

#endif
