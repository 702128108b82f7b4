/* Fuzz target of the `.ppx` reader. Bytes that begin like an image get a header that fits them, so that what lies
 * behind the checksum is reached; what is accepted must be written to an image that reads back and writes the same
 * bytes. Bytes that begin like program text go through the text reader first. */
#include "ir/image.h"
#include "ir/image_format.h"
#include "ir/program_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static void seal(unsigned char *bytes, size_t length)
{
	memcpy(bytes, pp_image_magic_bytes, sizeof pp_image_magic_bytes);
	pp_store32(bytes + PP_IMAGE_AT_VERSION, PP_IMAGE_VERSION);
	pp_store32(bytes + PP_IMAGE_AT_ORDER, PP_IMAGE_ORDER);
	pp_store64(bytes + PP_IMAGE_AT_SIZE, length);
	pp_store64(bytes + PP_IMAGE_AT_TABLES, pp_image_tables());
	pp_store64(bytes + PP_IMAGE_AT_CHECKSUM, pp_image_mix(bytes + PP_IMAGE_HEADER, length - PP_IMAGE_HEADER));
	pp_store64(bytes + PP_IMAGE_AT_HASH, pp_image_mix(bytes, PP_IMAGE_AT_HASH));
}

static struct pp_program *program_of(struct pp_arena *arena, const uint8_t *bytes, size_t length)
{
	char *copy = pp_arena_copy(arena, (const char *)bytes, length);
	if (length > 3 && memcmp(bytes, "pps", 3) == 0) {
		struct pp_sources *sources = pp_sources_create(arena);
		return pp_program_read(arena, pp_sources_add(sources, "fuzz.pps", copy, length),
		                       pp_diag_create(arena, sources));
	}
	struct pp_status status = {0};
	if (length >= PP_IMAGE_TABLE && pp_image_magic(bytes, length))
		seal((unsigned char *)copy, length);
	struct pp_program *program = pp_image_read(arena, "fuzz.ppx", (unsigned char *)copy, length, &status);
	if (!program && (status.code != PP_EXIT_ENVIRONMENT || !*status.text))
		abort();
	return program;
}

static void must_read_back(const struct pp_program *program)
{
	unsigned char *once, *twice;
	size_t once_length, twice_length;
	struct pp_status status = {0};
	pp_image_write(program, &once, &once_length);
	struct pp_program *again = pp_image_read(program->arena, "again.ppx", once, once_length, &status);
	if (!again)
		abort();
	pp_image_write(again, &twice, &twice_length);
	if (twice_length != once_length || memcmp(once, twice, once_length) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = program_of(arena, bytes, length);
	if (program)
		must_read_back(program);
	pp_arena_destroy(arena);
	return 0;
}
