/* Reading manifest.json. What is read is believed in nothing.
 *
 * Ensures: a manifest that was read is whole, and of this format. */
#include "manifest.h"

#include "folder.h"

#include "ir/image_format.h"
#include "ir/token_table.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHECKSUM_TAIL = sizeof pp_manifest_checksum - 1 + 16 + 3 }; /* key, digits, quote, brace, line end */

static const uint64_t largest_number = UINT64_C(1) << 53, largest_manifest = UINT64_C(256) << 20;

/* ---- reading --------------------------------------------------------------------------------- */

struct pp_manifest {
	char *path; /* of the file */
	json_t *root;
	struct pp_training_point point;
};

static bool wrong(const struct pp_manifest *manifest, const char *what, struct pp_status *status)
{
	return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is no manifest of a checkpoint: %s", manifest->path, what);
}

static bool get_number(const json_t *object, const char *key, uint64_t *to)
{
	const json_t *value = json_object_get(object, key);
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    (uint64_t)json_integer_value(value) > largest_number)
		return false;
	*to = (uint64_t)json_integer_value(value);
	return true;
}

/* A whole number in a string, base 10 or 16: exactly as we write it. */
static bool get_text_number(const json_t *object, const char *key, int base, uint64_t *to)
{
	const char *text = json_string_value(json_object_get(object, key));
	char again[24];
	if (!text)
		return false;
	*to = strtoull(text, NULL, base);
	snprintf(again, sizeof again, base == 16 ? "%016" PRIx64 : "%" PRIu64, *to);
	return strcmp(text, again) == 0;
}

static bool is_whole(const char *text, size_t length)
{
	char expected[CHECKSUM_TAIL + 1];
	if (length < CHECKSUM_TAIL)
		return false;
	uint64_t hash = pp_image_mix((const unsigned char *)text, length - CHECKSUM_TAIL);
	snprintf(expected, sizeof expected, "%s%016" PRIx64 "\"}\n", pp_manifest_checksum, hash);
	return memcmp(text + length - CHECKSUM_TAIL, expected, CHECKSUM_TAIL) == 0;
}

static bool parse(struct pp_manifest *manifest, const char *text, size_t length, struct pp_status *status)
{
	json_error_t error = {.text = ""};
	manifest->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
	const char *found = json_string_value(json_object_get(manifest->root, "schema"));
	if (manifest->root && found && strcmp(found, pp_manifest_schema) != 0)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is of format `%.60s`, this piperun reads `%s`", manifest->path,
		               found, pp_manifest_schema);
	if (!is_whole(text, length))
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is damaged: its checksum is wrong", manifest->path);
	if (!manifest->root || !found)
		return wrong(manifest, manifest->root ? "it has no schema" : error.text, status);
	if (!get_number(manifest->root, "step", &manifest->point.step) ||
	    !get_number(manifest->root, "next_sample", &manifest->point.next_sample))
		return wrong(manifest, "step or next_sample is missing", status);
	if (!json_is_object(json_object_get(manifest->root, "tensors")) ||
	    !json_is_object(json_object_get(manifest->root, "files")))
		return wrong(manifest, "tensors or files are missing", status);
	return true;
}

static bool read_text(struct pp_manifest *manifest, struct pp_status *status)
{
	FILE *file = fopen(manifest->path, "r");
	struct stat info;
	if (!file || fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode)) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot read %s: %s", manifest->path,
		        file ? "not a regular file" : strerror(errno));
		if (file)
			fclose(file);
		return false;
	}
	uint64_t length = (uint64_t)info.st_size;
	char *text = length <= largest_manifest ? malloc((size_t)length + 1) : NULL;
	bool ok = text || pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is too large for a manifest", manifest->path);
	if (ok && fread(text, 1, (size_t)length, file) != length)
		ok = pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot read %s whole", manifest->path);
	ok = ok && parse(manifest, text, (size_t)length, status);
	free(text);
	fclose(file);
	return ok;
}

struct pp_manifest *pp_manifest_read(const char *folder, struct pp_status *status)
{
	struct pp_manifest *manifest = calloc(1, sizeof *manifest);
	size_t size = strlen(folder) + sizeof "/manifest.json";
	if (manifest)
		manifest->path = malloc(size);
	if (!manifest || !manifest->path) {
		free(manifest);
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for a manifest");
		return NULL;
	}
	snprintf(manifest->path, size, "%s/manifest.json", folder);
	if (read_text(manifest, status))
		return manifest;
	pp_manifest_free(manifest);
	return NULL;
}

void pp_manifest_free(struct pp_manifest *manifest)
{
	if (!manifest)
		return;
	json_decref(manifest->root);
	free(manifest->path);
	free(manifest);
}

struct pp_training_point pp_manifest_point(const struct pp_manifest *manifest)
{
	return manifest->point;
}

/* ---- comparing ------------------------------------------------------------------------------- */

struct shape {
	unsigned dims;
	uint64_t extent[2];
};

static bool get_shape(const json_t *tensor, struct shape *shape)
{
	const json_t *array = json_object_get(tensor, "shape");
	*shape = (struct shape){.dims = (unsigned)json_array_size(array)};
	if (shape->dims < 1 || shape->dims > 2)
		return false;
	for (unsigned d = 0; d < shape->dims; d++) {
		const json_t *extent = json_array_get(array, d);
		if (!json_is_integer(extent) || json_integer_value(extent) < 0)
			return false;
		shape->extent[d] = (uint64_t)json_integer_value(extent);
	}
	return true;
}

static const char *shape_text(const struct shape *shape, char text[48])
{
	if (shape->dims == 1)
		snprintf(text, 48, "%" PRIu64, shape->extent[0]);
	else
		snprintf(text, 48, "%" PRIu64 "x%" PRIu64, shape->extent[0], shape->extent[1]);
	return text;
}

/* Equal, but for the padding of a table of tokens. */
static bool is_same_shape(const struct pp_program *program, uint32_t tensor, const struct shape *there)
{
	const struct pp_tensor *here = &program->tensors[tensor];
	bool columns = there->dims == here->dims && (there->dims == 1 || there->extent[1] == here->columns);
	uint32_t vocab = program->train.vocab;
	return columns && (there->extent[0] == here->rows ||
	                   (there->extent[0] >= vocab && here->rows >= vocab && pp_is_token_table(program, tensor)));
}

/* The format of a tensor of the run that saved. What a file holds is f32 in any case: the weights of an fp32 run, the
 * master copies of those of a bf16 run; either run takes them. */
static bool get_dtype(const json_t *tensor, uint8_t *dtype)
{
	const char *name = json_string_value(json_object_get(tensor, "dtype"));
	for (uint8_t i = PP_F32; name && i <= PP_BF16; i++)
		if (strcmp(name, pp_dtype_name[i]) == 0) {
			*dtype = i;
			return true;
		}
	return false;
}

static bool check_tensor(const struct pp_manifest *manifest, const struct pp_program *program, uint32_t number,
                         uint8_t *dtype, struct pp_status *status)
{
	const struct pp_tensor *tensor = &program->tensors[number];
	const json_t *saved = json_object_get(json_object_get(manifest->root, "tensors"), tensor->name);
	struct shape there, here = {.dims = tensor->dims, .extent = {tensor->rows, tensor->columns}};
	char text[2][48];
	if (!saved)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "%s is of another model: it lacks tensor `%s` (%s), which the program has", manifest->path,
		               tensor->name, shape_text(&here, text[0]));
	const char *format = json_string_value(json_object_get(saved, "dtype"));
	if (!format || !get_shape(saved, &there))
		return wrong(manifest, "a tensor has no dtype or shape", status);
	if (!is_same_shape(program, number, &there))
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "%s is of another model: tensor `%s` is %s there and %s in the program", manifest->path,
		               tensor->name, shape_text(&there, text[0]), shape_text(&here, text[1]));
	return get_dtype(saved, dtype) ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT, "%s: tensor `%s` is %.8s there, a run is of f32 or bf16",
	               manifest->path, tensor->name, format);
}

static bool check_vocab(const struct pp_manifest *manifest, const struct pp_program *program, struct pp_status *status)
{
	uint64_t vocab;
	if (!get_number(manifest->root, "vocab", &vocab))
		return wrong(manifest, "vocab is missing", status);
	return vocab == program->train.vocab ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "%s is of another model: its vocabulary is %" PRIu64 ", that of the program %" PRIu32,
	               manifest->path, vocab, program->train.vocab);
}

/* Are they the program's tensors, one by one, and in its order? With the same vocabulary: `model` counts rows without
 * padding. */
static bool check_tensors(const struct pp_manifest *manifest, const struct pp_program *program,
                          struct pp_status *status)
{
	uint8_t *dtypes = malloc(program->tensor_count + (size_t)1);
	bool ok = dtypes || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for %s", manifest->path);
	uint64_t model;
	for (uint32_t t = 0; ok && t < program->tensor_count; t++)
		ok = check_tensor(manifest, program, t, &dtypes[t], status);
	ok = ok && check_vocab(manifest, program, status);
	if (ok && json_object_size(json_object_get(manifest->root, "tensors")) == program->tensor_count)
		ok = (get_text_number(manifest->root, "model", 16, &model) && model == pp_state_identity(program, dtypes)) ||
		     pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is of another model: it has the same tensors in another order",
		             manifest->path);
	free(dtypes);
	return ok;
}

/* Tensors that the program lacks: the first of them is named. */
static bool check_others(const struct pp_manifest *manifest, const struct pp_program *program, struct pp_status *status)
{
	const json_t *tensors = json_object_get(manifest->root, "tensors");
	const char *name;
	json_t *value;
	if (json_object_size(tensors) == program->tensor_count)
		return true;
	json_object_foreach((json_t *)(uintptr_t)tensors, name, value)
	{
		bool known = false;
		for (uint32_t t = 0; t < program->tensor_count && !known; t++)
			known = strcmp(program->tensors[t].name, name) == 0;
		struct shape shape;
		char text[48];
		if (!known && get_shape(value, &shape))
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "%s is of another model: it has tensor `%.80s` (%s), which the program lacks",
			               manifest->path, name, shape_text(&shape, text));
	}
	return wrong(manifest, "tensors without a shape", status);
}

bool pp_manifest_check_model(const struct pp_manifest *manifest, const struct pp_program *program,
                             struct pp_status *status)
{
	return check_tensors(manifest, program, status) && check_others(manifest, program, status);
}

static bool check_seed(const struct pp_manifest *manifest, const char *key, uint64_t here, struct pp_status *status)
{
	uint64_t there;
	if (!get_text_number(manifest->root, key, 10, &there))
		return wrong(manifest, "a seed is missing", status);
	return there == here || pp_fail(status, PP_EXIT_ENVIRONMENT,
	                                "%s was made with %s %" PRIu64 ", the program has %" PRIu64
	                                ": other data would follow; use the same, or --init to take the weights alone",
	                                manifest->path, key, there, here);
}

bool pp_manifest_check_training(const struct pp_manifest *manifest, const struct pp_program *program,
                                struct pp_status *status)
{
	const struct pp_train *train = &program->train;
	const char *optimizer = json_string_value(json_object_get(manifest->root, "optimizer"));
	if (!optimizer)
		return wrong(manifest, "optimizer is missing", status);
	if (strcmp(optimizer, pp_optimizer_name[train->optimizer]) != 0)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "%s holds the state of optimizer %.20s, the program uses %s; --init takes the weights alone",
		               manifest->path, optimizer, pp_optimizer_name[train->optimizer]);
	return check_seed(manifest, "seed", train->seed, status) &&
	       (train->data != PP_DATA_SYNTHETIC || check_seed(manifest, "data_seed", train->data_seed, status));
}

/* ---- parts ----------------------------------------------------------------------------------- */

static bool get_file(const struct pp_manifest *manifest, const json_t *object, struct pp_manifest_part *part)
{
	const char *file = json_string_value(json_object_get(object, "file"));
	char name[32];
	if (!file || sscanf(file, "rank-%9" SCNu32, &part->rank) != 1)
		return false;
	pp_checkpoint_file(name, part->rank);
	const json_t *row = json_object_get(json_object_get(manifest->root, "files"), file);
	return strcmp(file, name) == 0 && get_number(row, "bytes", &part->sum.bytes) &&
	       get_text_number(row, "checksum", 16, &part->sum.hash);
}

/* [begin, end) within 0 .. all; all of it where it is left out. */
static bool get_range(const json_t *object, const char *key, uint64_t all, uint64_t *begin, uint64_t *count)
{
	const json_t *range = json_object_get(object, key);
	const json_t *first = json_array_get(range, 0), *end = json_array_get(range, 1);
	*begin = 0;
	*count = all;
	if (!range)
		return true;
	if (json_array_size(range) != 2 || !json_is_integer(first) || !json_is_integer(end))
		return false;
	json_int_t from = json_integer_value(first), to = json_integer_value(end);
	if (from < 0 || to <= from || (uint64_t)to > all)
		return false;
	*begin = (uint64_t)from;
	*count = (uint64_t)(to - from);
	return true;
}

static bool get_part(const struct pp_manifest *manifest, const json_t *object, const struct shape *shape,
                     struct pp_manifest_part *part)
{
	uint64_t row, rows, column, columns;
	*part = (struct pp_manifest_part){0};
	if (!get_file(manifest, object, part) || shape->extent[0] > UINT32_MAX || shape->extent[1] > UINT32_MAX ||
	    !get_range(object, "rows", shape->extent[0], &row, &rows) ||
	    !get_range(object, "columns", shape->extent[1], &column, &columns))
		return false;
	part->extent.box = (struct pp_box){(uint32_t)row, (uint32_t)rows, (uint32_t)column, (uint32_t)columns};
	return get_range(object, "elements", rows * columns, &part->extent.first, &part->extent.count);
}

bool pp_manifest_parts(const struct pp_manifest *manifest, const char *tensor, bool moments,
                       struct pp_manifest_part **parts, uint32_t *count, struct pp_status *status)
{
	const json_t *entry = json_object_get(json_object_get(manifest->root, "tensors"), tensor);
	const json_t *array = json_object_get(entry, moments ? "moments" : "weight");
	struct shape shape;
	*parts = NULL;
	*count = 0;
	if (!get_shape(entry, &shape) || !json_is_array(array))
		return wrong(manifest, "a tensor names no files", status);
	if (shape.dims == 1)
		shape.extent[1] = 1;
	*parts = calloc(json_array_size(array) + 1, sizeof **parts);
	if (!*parts)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for %s", manifest->path);
	for (size_t i = 0; i < json_array_size(array); i++)
		if (!get_part(manifest, json_array_get(array, i), &shape, &(*parts)[(*count)++])) {
			free(*parts);
			*parts = NULL;
			return wrong(manifest, "a part of a tensor has no file or no place", status);
		}
	return true;
}

uint64_t pp_manifest_rows(const struct pp_manifest *manifest, const char *tensor)
{
	struct shape shape;
	const json_t *entry = json_object_get(json_object_get(manifest->root, "tensors"), tensor);
	return get_shape(entry, &shape) ? shape.extent[0] : 0;
}
