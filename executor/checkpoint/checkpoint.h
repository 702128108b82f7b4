/* Saving and loading the state of a run, over all ranks. Every function is called by all ranks together.
 *
 * A checkpoint is written beside, brought to disk and then given its name by rank 0, so what has the name is whole: a
 * crash at any moment leaves the newest complete checkpoint usable. All ranks write to one folder. */
#ifndef PP_CHECKPOINT_H
#define PP_CHECKPOINT_H

#include "folder.h"
#include "manifest.h"
#include "executor/run_agree.h"
#include "executor/run_report.h"
#include "state.h"

struct pp_checkpoints {
	struct pp_report_link link;
	struct pp_state state;
	const char *folder;   /* NULL: nothing is saved */
	uint64_t every, keep; /* steps between checkpoints, 0: only at the end; how many stay, 0: all */
	struct pp_fault fault;
	uint32_t points;      /* of the planted fault, passed so far */
	uint64_t saved_bytes; /* of the last checkpoint, all ranks; rank 0 */
};

/* Find what this rank saves and loads, what the options and the program say. */
bool pp_checkpoints_open(struct pp_checkpoints *checkpoints, const struct pp_report_link *link,
                         const struct pp_run_options *options, struct pp_status *status);
void pp_checkpoints_close(struct pp_checkpoints *checkpoints);

/* Load what the options ask for and prepare the folder. *point: where training goes on; 0, 0 without --resume. `from`
 * gets the path of the checkpoint that was loaded, "" if none. All ranks fail together. */
bool pp_checkpoints_start(struct pp_checkpoints *checkpoints, const struct pp_run_options *options,
                          struct pp_training_point *point, char from[PP_PATH_MAX], struct pp_status *status);

/* Save, then remove checkpoints beyond `keep`. */
enum pp_agreed pp_checkpoints_save(struct pp_checkpoints *checkpoints, const struct pp_training_point *point,
                                   struct pp_status *status);

/* Load this rank's share of the weights, with `moments` of the optimizer's state too, from one checkpoint. */
bool pp_checkpoint_load(const struct pp_state *state, const struct pp_program *program, const char *path, bool moments,
                        struct pp_training_point *point, struct pp_status *status);

#endif
