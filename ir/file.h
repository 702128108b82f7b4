/* Whole files in and out. */
#ifndef PP_FILE_H
#define PP_FILE_H

#include "arena.h"
#include "status.h"

/* Read a file ("-" is standard input) into the arena, NUL-terminated. Refuses 2 GiB and more, folders and
 * other things that are not readable as a file. */
bool pp_file_read(struct pp_arena *arena, const char *path, char **text, size_t *length, struct pp_status *status);

/* Replace `path` ("-" is standard output) by these bytes: written to a temporary file beside it, flushed to
 * disk, then renamed, so that a reader sees the old or the new file and never a part. A special file such as
 * /dev/null is written in place. */
bool pp_file_write(const char *path, const void *bytes, size_t length, struct pp_status *status);

/* Whether pp_file_write could make this file now: a file beside it is made and taken away again. For a path whose
 * contents come late. */
bool pp_file_can_write(const char *path, struct pp_status *status);

/* At the end of a tool: what is still buffered for standard output goes out. If it, or anything before it, could not
 * be written (a full disk), a message of the tool and PP_EXIT_ENVIRONMENT in place of `code` 0. */
int pp_finish_output(const char *tool, int code);

#endif
