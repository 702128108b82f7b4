/* Writing manifest.json. A checksum over everything before it stands last, so no byte can change unseen.
 *
 * Whole numbers that may pass 2^53, seeds and checksums, are strings: other readers of JSON would round them. */
#include "manifest.h"

#include "folder.h"

#include "ir/image_format.h"
#include "ir/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const char pp_manifest_schema[] = "piperun.checkpoint/2";
const char pp_manifest_checksum[16] = ", \"checksum\": \"";

static void put_hash(struct pp_json *json, const char *key, uint64_t hash)
{
	char text[20];
	snprintf(text, sizeof text, "%016" PRIx64, hash);
	pp_json_string(json, key, text);
}

static void put_seed(struct pp_json *json, const char *key, uint64_t seed)
{
	char text[24];
	snprintf(text, sizeof text, "%" PRIu64, seed);
	pp_json_string(json, key, text);
}

/* Ranks that store nothing have no file. */
static void put_files(struct pp_json *json, const struct pp_program *program, const struct pp_file_sum *files)
{
	char name[32];
	pp_json_open_object(json, "files");
	for (uint32_t rank = 0; rank < pp_grid_world(program); rank++) {
		if (files[rank].bytes == 0)
			continue;
		pp_checkpoint_file(name, rank);
		pp_json_open_object(json, name);
		pp_json_uint(json, "bytes", files[rank].bytes);
		put_hash(json, "checksum", files[rank].hash);
		pp_json_close(json);
	}
	pp_json_close(json);
}

static void put_grid(struct pp_json *json, const struct pp_program *program)
{
	pp_json_open_object(json, "grid");
	pp_json_uint(json, "pp", program->ranks);
	pp_json_uint(json, "tp", pp_grid_extent(program, PP_AXIS_TP));
	pp_json_uint(json, "dp", pp_grid_extent(program, PP_AXIS_DP));
	pp_json_uint(json, "zero", program->zero);
	pp_json_string(json, "rank_order", pp_rank_order_name[program->rank_order]);
	pp_json_close(json);
}

/* [begin, end), unless that is all of it. */
static void put_range(struct pp_json *json, const char *key, uint64_t begin, uint64_t count, uint64_t all)
{
	if (count == all)
		return;
	pp_json_open_array(json, key);
	pp_json_uint(json, NULL, begin);
	pp_json_uint(json, NULL, begin + count);
	pp_json_close(json);
}

/* Who stores what of a tensor. */
static void put_parts(struct pp_json *json, const struct pp_program *program, const uint32_t *owners, uint32_t tensor,
                      enum pp_state_kind kind)
{
	const struct pp_tensor *whole = &program->tensors[tensor];
	char name[32];
	pp_json_open_array(json, pp_state_is_moment((uint8_t)kind) ? "moments" : "weight");
	for (uint32_t tp = 0; tp < pp_grid_extent(program, PP_AXIS_TP); tp++)
		for (uint32_t dp = 0; dp < pp_grid_extent(program, PP_AXIS_DP); dp++) {
			struct pp_coord coord = {.pp = owners[tensor], .tp = tp, .dp = dp};
			if (!pp_state_stores(program, owners, tensor, kind, coord))
				continue;
			struct pp_extent extent = pp_state_extent(program, tensor, kind, coord);
			pp_checkpoint_file(name, pp_grid_rank(program, coord));
			pp_json_open_object(json, NULL);
			pp_json_string(json, "file", name);
			put_range(json, "rows", extent.box.row, extent.box.rows, whole->rows);
			put_range(json, "columns", extent.box.column, extent.box.columns, whole->columns);
			put_range(json, "elements", extent.first, extent.count, (uint64_t)extent.box.rows * extent.box.columns);
			pp_json_close(json);
		}
	pp_json_close(json);
}

/* Tensors in the program's order. */
static void put_tensors(struct pp_json *json, const struct pp_program *program, const uint32_t *owners)
{
	pp_json_open_object(json, "tensors");
	for (uint32_t t = 0; t < program->tensor_count; t++) {
		const struct pp_tensor *tensor = &program->tensors[t];
		if (owners[t] == PP_NULL)
			continue;
		pp_json_open_object(json, tensor->name);
		pp_json_string(json, "dtype", pp_dtype_name[tensor->dtype]);
		pp_json_open_array(json, "shape");
		pp_json_uint(json, NULL, tensor->rows);
		if (tensor->dims > 1)
			pp_json_uint(json, NULL, tensor->columns);
		pp_json_close(json);
		put_parts(json, program, owners, t, PP_STATE_WEIGHT);
		if (program->train.optimizer == PP_ADAMW)
			put_parts(json, program, owners, t, PP_STATE_MOMENT1);
		pp_json_close(json);
	}
	pp_json_close(json);
}

static void put_all(FILE *out, const struct pp_program *program, const struct pp_training_point *point,
                    const struct pp_file_sum *files, const uint32_t *owners)
{
	const struct pp_train *train = &program->train;
	struct pp_json json = pp_json_begin(out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", pp_manifest_schema);
	pp_json_string(&json, "tool", "piperun " PP_VERSION);
	pp_json_uint(&json, "step", point->step);
	pp_json_uint(&json, "next_sample", point->next_sample);
	put_seed(&json, "seed", train->seed);
	put_seed(&json, "data_seed", train->data_seed);
	pp_json_string(&json, "optimizer", pp_optimizer_name[train->optimizer]);
	pp_json_uint(&json, "vocab", train->vocab);
	put_hash(&json, "model", pp_state_identity(program, NULL));
	put_grid(&json, program);
	put_files(&json, program, files);
	put_tensors(&json, program, owners);
}

bool pp_manifest_make(const struct pp_program *program, const struct pp_training_point *point,
                      const struct pp_file_sum *files, char **text, size_t *length, struct pp_status *status)
{
	*text = NULL;
	uint32_t *owners = malloc(((size_t)program->tensor_count + 1) * sizeof *owners);
	FILE *out = owners ? open_memstream(text, length) : NULL;
	bool ok = out != NULL;
	if (ok) {
		pp_state_owners(program, owners);
		put_all(out, program, point, files, owners);
		ok = fflush(out) == 0;
		uint64_t hash = ok ? pp_image_mix((const unsigned char *)*text, *length) : 0;
		fprintf(out, "%s%016" PRIx64 "\"}\n", pp_manifest_checksum, hash);
		ok = fclose(out) == 0 && ok;
	}
	free(owners);
	if (ok)
		return true;
	free(*text);
	*text = NULL;
	return pp_fail(status, PP_EXIT_RUN, "out of memory for the manifest of a checkpoint");
}
