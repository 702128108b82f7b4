/* Program files: an image or a program text, told apart by content, never by name. */
#ifndef PP_PROGRAM_FILE_H
#define PP_PROGRAM_FILE_H

#include "diag.h"
#include "program.h"
#include "status.h"

enum pp_content { PP_CONTENT_IMAGE, PP_CONTENT_PROGRAM_TEXT, PP_CONTENT_OTHER };

/* What a file's bytes are. `text` is NUL-terminated after `length` bytes. */
enum pp_content pp_content_of(const char *text, size_t length);

struct pp_loaded {
	struct pp_program *program;
	uint64_t hash; /* equal on all ranks if they loaded the same bytes */
	struct pp_diag *diag;
	bool costless; /* an order alone (codegen/schedule_file.h): times are units, values have no bytes */
};

/* Read a file ("-": standard input) into the arena. False: *status says why, or what the file seems to be instead. If
 * the text of *status is empty then the reasons are in loaded->diag, which is never NULL. */
bool pp_program_load(struct pp_arena *arena, const char *path, struct pp_loaded *loaded, struct pp_status *status);

/* The same for a file that was read already, by pp_file_read. */
bool pp_program_load_text(struct pp_arena *arena, const char *path, const char *text, size_t length,
                          struct pp_loaded *loaded, struct pp_status *status);

#endif
