/* The folder of a run's checkpoints: step-00000120/ and the like, each complete from the moment it has its name.
 * Folders whose name ends in .partial are being written or removed, or were left behind by a run that died. */
#ifndef PP_FOLDER_H
#define PP_FOLDER_H

#include "ir/status.h"

#include <stdint.h>

enum { PP_PATH_MAX = 4096 };

/* FOLDER/step-00000120, FOLDER/step-00000120.partial and files therein. False: the path is too long. */
bool pp_checkpoint_path(char path[PP_PATH_MAX], const char *folder, uint64_t step, bool partial, const char *file,
                        struct pp_status *status);

/* The name of a rank's file in a checkpoint. */
void pp_checkpoint_file(char name[32], uint32_t rank);

/* Make the folder with those above it. */
bool pp_folder_make(const char *path, struct pp_status *status);

/* Bring the folder's entries to disk. */
bool pp_folder_sync(const char *path, struct pp_status *status);

/* Complete checkpoints of a folder, ascending: malloc, `*count` may be 0. A folder that does not exist has none. */
bool pp_checkpoint_list(const char *folder, uint64_t **steps, uint32_t *count, struct pp_status *status);

/* Take a checkpoint's name away: from here on nobody takes a part of it for a whole one. */
bool pp_checkpoint_withdraw(const char *folder, uint64_t step, struct pp_status *status);

/* Remove all that is partial: withdrawn, or left behind by a run that died. */
bool pp_checkpoint_clean(const char *folder, struct pp_status *status);

#endif
