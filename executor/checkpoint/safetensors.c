/* Writing and reading files of tensors. What is read is believed in nothing: sizes, offsets and names are checked
 * before any of them is used.
 *
 * Ensures: a file that was written is on disk; a file that is wrong gives one message. */
#include "safetensors.h"

#include "ir/image_format.h"
#include "ir/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8, CHUNK = 1 << 20, LARGEST_HEADER = 16 << 20 };

/* ---- checksum -------------------------------------------------------------------------------- */

/* Over chunks of the file, each by the image's hash. */
static void sum_chunk(struct pp_file_sum *sum, const unsigned char *bytes, size_t length)
{
	uint64_t chunk = pp_image_mix(bytes, length);
	sum->hash = (sum->hash ^ chunk) * UINT64_C(0x9e3779b97f4a7c15);
	sum->hash ^= sum->hash >> 29;
	sum->bytes += length;
}

static bool cannot_read(const char *path, struct pp_status *status)
{
	return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot read %s: %s", path, strerror(errno));
}

/* Exactly these bytes; false at the end of the file or an error. */
static bool read_at(int fd, const char *path, uint64_t offset, void *to, size_t length, struct pp_status *status)
{
	unsigned char *at = to;
	while (length) {
		ssize_t got = pread(fd, at, length, (off_t)offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return cannot_read(path, status);
		if (got == 0)
			return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is cut off at byte %" PRIu64, path, offset);
		at += got;
		offset += (uint64_t)got;
		length -= (size_t)got;
	}
	return true;
}

static int open_regular(const char *path, uint64_t *bytes, struct pp_status *status)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat info;
	if (fd < 0 || fstat(fd, &info) != 0) {
		cannot_read(path, status);
	} else if (!S_ISREG(info.st_mode)) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is not a regular file", path);
	} else {
		*bytes = (uint64_t)info.st_size;
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

static bool sum_file(int fd, const char *path, uint64_t bytes, struct pp_file_sum *sum, struct pp_status *status)
{
	unsigned char *chunk = malloc(CHUNK);
	bool ok = chunk || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for reading %s", path);
	*sum = (struct pp_file_sum){0};
	while (ok && sum->bytes < bytes) {
		size_t length = bytes - sum->bytes < CHUNK ? (size_t)(bytes - sum->bytes) : CHUNK;
		ok = read_at(fd, path, sum->bytes, chunk, length, status);
		if (ok)
			sum_chunk(sum, chunk, length);
	}
	free(chunk);
	return ok;
}

bool pp_file_check(const char *path, const struct pp_file_sum *wanted, struct pp_status *status)
{
	uint64_t bytes;
	struct pp_file_sum sum;
	int fd = open_regular(path, &bytes, status);
	if (fd < 0)
		return false;
	bool ok = bytes == wanted->bytes ||
	          pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is damaged: it has %" PRIu64 " bytes, %" PRIu64 " were written",
	                  path, bytes, wanted->bytes);
	ok = ok && sum_file(fd, path, bytes, &sum, status);
	if (ok && sum.hash != wanted->hash)
		ok = pp_fail(status, PP_EXIT_ENVIRONMENT,
		             "%s is damaged: its checksum is %016" PRIx64 ", that of what was written %016" PRIx64, path,
		             sum.hash, wanted->hash);
	close(fd);
	return ok;
}

/* ---- writing --------------------------------------------------------------------------------- */

struct output {
	const char *path;
	int fd;
	unsigned char *buffer; /* a chunk */
	size_t used, written;  /* of the buffer */
	struct pp_file_sum *sum;
};

static bool cannot_write(const char *path, int reason, struct pp_status *status)
{
	return pp_fail(status, PP_EXIT_RUN, "cannot write %s: %s", path, strerror(reason));
}

static bool write_out(struct output *output, struct pp_status *status)
{
	while (output->written < output->used) {
		ssize_t done = write(output->fd, output->buffer + output->written, output->used - output->written);
		if (done < 0 && errno != EINTR)
			return cannot_write(output->path, errno, status);
		output->written += done > 0 ? (size_t)done : 0;
	}
	return true;
}

static bool end_chunk(struct output *output, struct pp_status *status)
{
	if (!write_out(output, status))
		return false;
	sum_chunk(output->sum, output->buffer, output->used);
	output->used = output->written = 0;
	return true;
}

/* `length` bytes, by `read` where `bytes` is NULL. */
static bool put_from(struct output *output, const struct pp_named_tensor *tensor, const void *bytes, uint64_t length,
                     struct pp_status *status)
{
	for (uint64_t at = 0; at < length;) {
		size_t part = CHUNK - output->used < length - at ? CHUNK - output->used : (size_t)(length - at);
		unsigned char *to = output->buffer + output->used;
		if (bytes)
			memcpy(to, (const unsigned char *)bytes + at, part);
		else if (!tensor->read(tensor->owner, at, part, to, status))
			return false;
		output->used += part;
		at += part;
		if (output->used == CHUNK && !end_chunk(output, status))
			return false;
	}
	return true;
}

/* The header with its length before it, filled up with blanks so that the data are aligned. */
static bool make_header(const struct pp_named_tensor *tensors, uint32_t count, char **header, size_t *length)
{
	FILE *out = open_memstream(header, length);
	if (!out)
		return false;
	uint64_t offset = 0;
	struct pp_json json = pp_json_begin(out);
	fwrite("\0\0\0\0\0\0\0", 1, LENGTH_BYTES, out);
	pp_json_open_object(&json, NULL);
	for (uint32_t i = 0; i < count; i++) {
		pp_json_open_object(&json, tensors[i].name);
		pp_json_string(&json, "dtype", "F32");
		pp_json_open_array(&json, "shape");
		for (unsigned d = 0; d < tensors[i].dims; d++)
			pp_json_uint(&json, NULL, tensors[i].shape[d]);
		pp_json_close(&json);
		pp_json_open_array(&json, "data_offsets");
		pp_json_uint(&json, NULL, offset);
		pp_json_uint(&json, NULL, offset += tensors[i].bytes);
		pp_json_close(&json);
		pp_json_close(&json);
	}
	pp_json_close(&json);
	fflush(out);
	for (size_t rest = *length % LENGTH_BYTES; rest && rest < LENGTH_BYTES; rest++)
		fputc(' ', out);
	if (fclose(out) != 0)
		return false;
	pp_store64((unsigned char *)*header, *length - LENGTH_BYTES);
	return true;
}

static bool put_all(struct output *output, const struct pp_named_tensor *tensors, uint32_t count,
                    void (*between)(void *), void *context, struct pp_status *status)
{
	char *header = NULL;
	size_t length = 0;
	if (!make_header(tensors, count, &header, &length)) {
		free(header);
		return pp_fail(status, PP_EXIT_RUN, "out of memory for the header of %s", output->path);
	}
	bool ok = put_from(output, NULL, header, length, status);
	free(header);
	for (uint32_t i = 0; ok && i < count; i++) {
		if (between && i == count / 2) {
			ok = write_out(output, status);
			between(context);
		}
		ok = ok && put_from(output, &tensors[i], tensors[i].data, tensors[i].bytes, status);
	}
	return ok && (output->used == 0 || end_chunk(output, status));
}

bool pp_safetensors_write(const char *path, const struct pp_named_tensor *tensors, uint32_t count,
                          struct pp_file_sum *sum, void (*between)(void *), void *context, struct pp_status *status)
{
	struct output output = {.path = path, .sum = sum};
	*sum = (struct pp_file_sum){0};
	output.buffer = malloc(CHUNK);
	if (!output.buffer)
		return pp_fail(status, PP_EXIT_RUN, "out of memory for writing %s", path);
	output.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	bool ok = output.fd >= 0 || cannot_write(path, errno, status);
	ok = ok && put_all(&output, tensors, count, between, context, status);
	if (ok && fsync(output.fd) != 0)
		ok = cannot_write(path, errno, status);
	if (output.fd >= 0 && close(output.fd) != 0 && ok)
		ok = cannot_write(path, errno, status);
	free(output.buffer);
	return ok;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct entry {
	const char *name; /* in the JSON tree */
	uint64_t begin, end;
};

struct pp_safetensors {
	char *path;
	int fd;
	uint64_t data, bytes; /* where the data start, length of the file */
	json_t *header;
	struct entry *entries; /* by name */
	size_t count;
};

static bool wrong(const struct pp_safetensors *file, const char *name, const char *why, struct pp_status *status)
{
	return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s: tensor `%.80s` %s", file->path, name, why);
}

static bool whole(const json_t *value, uint64_t *to)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*to = (uint64_t)json_integer_value(value);
	return true;
}

static bool read_shape(const json_t *shape, uint64_t *bytes)
{
	if (!json_is_array(shape) || json_array_size(shape) > PP_TENSOR_DIMS_MAX)
		return false;
	*bytes = sizeof(float);
	for (size_t d = 0; d < json_array_size(shape); d++) {
		uint64_t extent;
		if (!whole(json_array_get(shape, d), &extent) || __builtin_mul_overflow(*bytes, extent, bytes))
			return false;
	}
	return true;
}

static bool read_entry(const struct pp_safetensors *file, const char *name, const json_t *value, struct entry *entry,
                       struct pp_status *status)
{
	const char *dtype = json_string_value(json_object_get(value, "dtype"));
	const json_t *offsets = json_object_get(value, "data_offsets");
	uint64_t bytes, length = file->bytes - file->data;
	if (!dtype)
		return wrong(file, name, "has no dtype", status);
	if (strcmp(dtype, "F32") != 0)
		return wrong(file, name, "is not of dtype F32", status);
	if (!read_shape(json_object_get(value, "shape"), &bytes))
		return wrong(file, name, "has no shape that can be", status);
	if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !whole(json_array_get(offsets, 0), &entry->begin) ||
	    !whole(json_array_get(offsets, 1), &entry->end))
		return wrong(file, name, "has no data_offsets", status);
	if (entry->begin > entry->end || entry->end > length)
		return wrong(file, name, "lies outside of the data", status);
	if (entry->end - entry->begin != bytes)
		return wrong(file, name, "has data of another length than its shape", status);
	entry->name = name;
	return true;
}

static int by_begin(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return a->end < b->end ? -1 : a->end > b->end;
}

static int by_name(const void *left, const void *right)
{
	return strcmp(((const struct entry *)left)->name, ((const struct entry *)right)->name);
}

/* One after the other, without gap or overlap, to the end of the file. */
static bool covers_data(struct pp_safetensors *file, struct pp_status *status)
{
	uint64_t end = 0;
	qsort(file->entries, file->count, sizeof *file->entries, by_begin);
	for (size_t i = 0; i < file->count; i++) {
		if (file->entries[i].begin != end)
			return wrong(file, file->entries[i].name,
			             file->entries[i].begin < end ? "overlaps another" : "comes after a gap", status);
		end = file->entries[i].end;
	}
	if (end != file->bytes - file->data)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s holds %" PRIu64 " bytes of data, its tensors take %" PRIu64,
		               file->path, file->bytes - file->data, end);
	qsort(file->entries, file->count, sizeof *file->entries, by_name);
	return true;
}

static bool read_entries(struct pp_safetensors *file, struct pp_status *status)
{
	const char *name;
	json_t *value;
	if (!json_is_object(file->header))
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s: its header is no JSON object", file->path);
	file->entries = calloc(json_object_size(file->header) + 1, sizeof *file->entries);
	if (!file->entries)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the header of %s", file->path);
	json_object_foreach(file->header, name, value)
	{
		if (strcmp(name, "__metadata__") == 0)
			continue;
		if (!read_entry(file, name, value, &file->entries[file->count], status))
			return false;
		file->count++;
	}
	return covers_data(file, status);
}

static bool read_header(struct pp_safetensors *file, struct pp_status *status)
{
	unsigned char length_bytes[LENGTH_BYTES];
	if (!read_at(file->fd, file->path, 0, length_bytes, LENGTH_BYTES, status))
		return false;
	uint64_t length = pp_load64(length_bytes);
	if (length > file->bytes - LENGTH_BYTES || length > LARGEST_HEADER)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "%s: its header should take %" PRIu64 " bytes, more than there are or than %d", file->path,
		               length, LARGEST_HEADER);
	file->data = LENGTH_BYTES + length;
	char *text = malloc((size_t)length + 1);
	if (!text)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the header of %s", file->path);
	json_error_t error = {.text = ""};
	bool ok = read_at(file->fd, file->path, LENGTH_BYTES, text, (size_t)length, status);
	if (ok) {
		file->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
		ok = file->header || pp_fail(status, PP_EXIT_ENVIRONMENT, "%s: its header is not JSON: %.160s at byte %d",
		                             file->path, error.text, error.position);
	}
	free(text);
	return ok && read_entries(file, status);
}

struct pp_safetensors *pp_safetensors_open(const char *path, struct pp_status *status)
{
	struct pp_safetensors *file = calloc(1, sizeof *file);
	char *copy = malloc(strlen(path) + 1);
	if (!file || !copy) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for reading %s", path);
		free(file);
		free(copy);
		return NULL;
	}
	file->path = strcpy(copy, path);
	file->fd = open_regular(path, &file->bytes, status);
	if (file->fd >= 0 && read_header(file, status))
		return file;
	pp_safetensors_close(file);
	return NULL;
}

void pp_safetensors_close(struct pp_safetensors *file)
{
	if (!file)
		return;
	if (file->fd >= 0)
		close(file->fd);
	json_decref(file->header);
	free(file->entries);
	free(file->path);
	free(file);
}

bool pp_safetensors_read(struct pp_safetensors *file, const char *name, uint64_t all, uint64_t offset, void *to,
                         uint64_t bytes, struct pp_status *status)
{
	struct entry key = {.name = name};
	const struct entry *entry = bsearch(&key, file->entries, file->count, sizeof key, by_name);
	if (!entry)
		return wrong(file, name, "is missing", status);
	if (entry->end - entry->begin != all || offset > all || bytes > all - offset)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s: tensor `%s` has %" PRIu64 " bytes, want %" PRIu64, file->path,
		               name, entry->end - entry->begin, all);
	return read_at(file->fd, file->path, file->data + entry->begin + offset, to, (size_t)bytes, status);
}
