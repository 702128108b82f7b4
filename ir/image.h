/* The `.ppx` binary image: header (magic, version, byte order, sizes, checksum, hash), sections found by offset, arrays
 * of fixed-size records, little-endian. The same program gives the same bytes. */
#ifndef PP_IMAGE_H
#define PP_IMAGE_H

#include "program.h"
#include "status.h"

/* Serialise into memory of program->arena. */
void pp_image_write(const struct pp_program *program, unsigned char **bytes, size_t *length);

/* Load an image; every offset, count, index and enum is checked before use, and the same guarantees hold as for
 * pp_program_read. A truncated or hostile file gives one clear message (code PP_EXIT_ENVIRONMENT), never a crash. */
struct pp_program *pp_image_read(struct pp_arena *arena, const char *name, const unsigned char *bytes, size_t length,
                                 struct pp_status *status);

/* True if the bytes begin like an image (else it may be text). */
bool pp_image_magic(const unsigned char *bytes, size_t length);

/* The hash stored in the header: identity of the program, compared over ranks at start. */
uint64_t pp_image_hash(const unsigned char *bytes, size_t length);

#endif
