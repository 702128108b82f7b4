/* Training data. Requires a checked program; ensures that what a microbatch holds depends on (data, seed, step, mb)
 * alone. Files are mapped, so a rank reads only the pages that it needs. */
#include "data.h"

#include "draw.h"
#include "permutation.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct pp_data_source {
	enum pp_data kind;
	enum pp_tokens width;
	char *path;
	void *map; /* the whole file, or NULL */
	size_t map_bytes;
	const uint8_t *tokens; /* the first token, in the map */
	uint64_t starts;       /* start positions to train on */
	bool held_out;         /* else to train on */
	uint64_t first;        /* position of the held-out tokens */
	uint64_t samples;      /* held-out ones, one after the other */
	uint64_t eval_steps;
	uint64_t key; /* of all draws */
	uint32_t seq, vocab, microbatch;
	uint32_t dp, dp_coord;
	uint64_t global_batch;
	uint64_t base; /* added to all sample ids, modulo 2^64 */
};

static const uint8_t token_bytes[PP_TOKENS_COUNT] = {[PP_TOKENS_BYTE] = 1, [PP_TOKENS_U16] = 2, [PP_TOKENS_U32] = 4};

/* The header of llm.c's token files: 256 little-endian i32, of them magic, version and number of tokens. */
enum { HEADER_BYTES = 1024 };

struct header {
	int32_t magic, version;
	uint32_t tokens;
};

static const struct header known_header[PP_TOKENS_COUNT] = {
    [PP_TOKENS_U16] = {.magic = 20240520, .version = 1},
    [PP_TOKENS_U32] = {.magic = 20240801, .version = 7},
};

/* Synthetic data repeats its map, but one token in NOISE_PERIOD is drawn uniformly instead. */
enum { NOISE_PERIOD = 8 };

static bool map_file(struct pp_data_source *data, struct pp_status *status)
{
	int file = open(data->path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot open data file %s: %s", data->path, strerror(errno));
	struct stat info;
	bool ok = fstat(file, &info) == 0;
	if (!ok)
		pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot read data file %s: %s", data->path, strerror(errno));
	else if (!S_ISREG(info.st_mode))
		ok = pp_fail(status, PP_EXIT_ENVIRONMENT, "data file %s is not a regular file", data->path);
	if (ok && info.st_size > 0) {
		data->map_bytes = (size_t)info.st_size;
		data->map = mmap(NULL, data->map_bytes, PROT_READ, MAP_PRIVATE, file, 0);
		if (data->map == MAP_FAILED) {
			data->map = NULL;
			ok = pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot map data file %s: %s", data->path, strerror(errno));
		}
	}
	close(file);
	return ok;
}

/* Find where tokens start and how many there are: after a known header, else the whole file. */
static bool find_tokens(struct pp_data_source *data, uint64_t *count, struct pp_status *status)
{
	uint64_t bytes = data->map_bytes;
	data->tokens = data->map;
	uint32_t promised = 0;
	struct header header;
	if (data->width != PP_TOKENS_BYTE && bytes >= HEADER_BYTES) {
		memcpy(&header, data->map, sizeof header);
		for (unsigned width = 0; width < PP_TOKENS_COUNT; width++) {
			const struct header *known = &known_header[width];
			if (known->magic == 0 || header.magic != known->magic || header.version != known->version)
				continue;
			if (width != data->width)
				return pp_fail(status, PP_EXIT_ENVIRONMENT,
				               "data file %s holds %s tokens by its header, the spec says tokens = %s", data->path,
				               pp_tokens_name[width], pp_tokens_name[data->width]);
			data->tokens += HEADER_BYTES;
			bytes -= HEADER_BYTES;
			promised = header.tokens;
		}
	}
	*count = bytes / token_bytes[data->width];
	if (bytes % token_bytes[data->width])
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "data file %s ends within a token: %" PRIu64 " bytes are no multiple of %u", data->path, bytes,
		               token_bytes[data->width]);
	if (promised > *count)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "data file %s is cut off: its header promises %" PRIu32 " tokens, it holds %" PRIu64, data->path,
		               promised, *count);
	if (promised)
		*count = promised;
	return true;
}

/* All of a file, or the tail that is not trained on. */
static bool hold_out(struct pp_data_source *data, uint64_t count, uint64_t trained, struct pp_status *status)
{
	bool whole = trained == 0;
	uint64_t kept = count - trained;
	data->first = trained;
	data->samples = data->seq && kept > data->seq ? (kept - 1) / data->seq : 0;
	if (data->samples)
		return true;
	return pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "data file %s is too short to evaluate on: %s%" PRIu64 " tokens, one sample takes seq + 1 = %" PRIu32
	               "; %s",
	               data->path, whole ? "" : "its tail has ", kept, data->seq + 1,
	               whole ? "use a longer file" : "use a larger tail, or a file for `eval_data`");
}

/* `own_file`: all of it is held out. */
static bool open_file(struct pp_data_source *data, bool own_file, double eval_tail, struct pp_status *status)
{
	uint64_t count = 0;
	if (!map_file(data, status) || !find_tokens(data, &count, status))
		return false;
	uint64_t usable = count - (uint64_t)((double)count * eval_tail);
	if (data->held_out)
		return hold_out(data, count, own_file ? 0 : usable, status);
	if (usable <= data->seq)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "data file %s is too short: %" PRIu64 " tokens to train on, one sample takes seq + 1 = %" PRIu32,
		               data->path, usable, data->seq + 1);
	data->starts = usable - data->seq;
	return true;
}

static struct pp_data_source *open_source(const struct pp_program *program, struct pp_coord coord, const char *path,
                                          bool held_out, struct pp_status *status)
{
	const struct pp_train *train = &program->train;
	bool own_file = held_out && train->eval_path;
	struct pp_data_source *data = calloc(1, sizeof *data);
	if (!data) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the data source");
		return NULL;
	}
	data->held_out = held_out;
	data->kind = path || own_file ? PP_DATA_FILE : (enum pp_data)train->data;
	data->samples = UINT64_MAX;
	data->eval_steps = train->eval_steps;
	data->width = (enum pp_tokens)train->tokens;
	data->seq = train->seq;
	data->vocab = train->vocab;
	data->microbatch = train->microbatch;
	data->dp = pp_grid_extent(program, PP_AXIS_DP);
	data->dp_coord = coord.dp;
	data->global_batch = (uint64_t)train->microbatch * program->microbatches * data->dp;
	data->key = pp_draw_key(data->kind == PP_DATA_SYNTHETIC ? train->data_seed : train->seed, data->kind);
	if (data->kind != PP_DATA_FILE)
		return data;
	const char *name = own_file ? train->eval_path : path ? path : train->data_path;
	data->path = malloc(strlen(name) + 1);
	if (data->path)
		strcpy(data->path, name);
	else
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the data source");
	if (data->path && open_file(data, own_file, train->eval_tail, status))
		return data;
	pp_data_close(data);
	return NULL;
}

struct pp_data_source *pp_data_open(const struct pp_program *program, struct pp_coord coord, const char *path,
                                    struct pp_status *status)
{
	return open_source(program, coord, path, false, status);
}

struct pp_data_source *pp_data_open_held_out(const struct pp_program *program, struct pp_coord coord, const char *path,
                                             struct pp_status *status)
{
	return open_source(program, coord, path, true, status);
}

uint64_t pp_data_batches(const struct pp_data_source *held_out)
{
	uint64_t batch = held_out->global_batch ? held_out->global_batch : 1, batches = (held_out->samples - 1) / batch + 1;
	return batches < held_out->eval_steps ? batches : held_out->eval_steps;
}

void pp_data_close(struct pp_data_source *data)
{
	if (!data)
		return;
	if (data->map)
		munmap(data->map, data->map_bytes);
	free(data->path);
	free(data);
}

static uint32_t token_at(const struct pp_data_source *data, uint64_t position)
{
	uint16_t half;
	uint32_t word;
	switch (data->width) {
	case PP_TOKENS_BYTE:
		return data->tokens[position];
	case PP_TOKENS_U16:
		memcpy(&half, data->tokens + 2 * position, sizeof half);
		return half;
	case PP_TOKENS_U32:
		memcpy(&word, data->tokens + 4 * position, sizeof word);
		return word;
	case PP_TOKENS_COUNT:
		break;
	}
	return 0;
}

/* Tokens first … first + count - 1 of a sample. */
static bool read_sample(const struct pp_data_source *data, uint64_t id, uint32_t first, uint32_t count, int32_t *to,
                        struct pp_status *status)
{
	uint64_t start = data->first + id * data->seq;
	if (!data->held_out)
		start = pp_permute(pp_draw_key(data->key, id / data->starts), data->starts, id % data->starts);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t position = start + first + i;
		uint32_t token = token_at(data, position);
		if (token >= data->vocab)
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "data file %s: token %" PRIu32 " at position %" PRIu64 " is not below vocab = %" PRIu32
			               "; the tokenizer and the model differ",
			               data->path, token, position, data->vocab);
		to[i] = (int32_t)token;
	}
	return true;
}

static void draw_sample(const struct pp_data_source *data, uint64_t id, uint32_t first, uint32_t count, int32_t *to)
{
	uint64_t map = pp_draw_key(data->key, 0);
	uint64_t stream = pp_draw_key(pp_draw_key(data->key, data->held_out ? 2 : 1), id);
	uint64_t token = pp_draw_below(stream, 0, data->vocab);
	for (uint32_t i = 0; i < first + count; i++) {
		if (i > 0 && pp_draw_below(stream, 2 * (uint64_t)i, NOISE_PERIOD) == 0)
			token = pp_draw_below(stream, 2 * (uint64_t)i + 1, data->vocab);
		else if (i > 0)
			token = pp_permute(map, data->vocab, token);
		if (i >= first)
			to[i - first] = (int32_t)token;
	}
}

/* Tokens from 0 on are ids, from 1 on labels. */
static bool fill_samples(const struct pp_data_source *data, uint64_t first_id, uint32_t first_token, int32_t *to,
                         struct pp_status *status)
{
	for (uint32_t sample = 0; sample < data->microbatch; sample++, to += data->seq) {
		if (data->held_out && first_id + sample >= data->samples)
			for (uint32_t i = 0; i < data->seq; i++)
				to[i] = first_token ? -1 : 0;
		else if (data->kind == PP_DATA_SYNTHETIC)
			draw_sample(data, first_id + sample, first_token, data->seq, to);
		else if (!read_sample(data, first_id + sample, first_token, data->seq, to, status))
			return false;
	}
	return true;
}

void pp_data_continue(struct pp_data_source *data, uint64_t step, uint64_t sample)
{
	data->base = sample - step * data->global_batch;
}

bool pp_data_fill(const struct pp_data_source *data, uint64_t step, uint32_t mb, enum pp_load what, int32_t *to,
                  struct pp_status *status)
{
	if (data->kind == PP_DATA_NONE)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "the program loads tokens but its spec names no data");
	uint64_t slice = (uint64_t)mb * data->dp + data->dp_coord; /* of the global batch */
	uint64_t first_id = data->base + step * data->global_batch + slice * data->microbatch;
	if (what != PP_LOAD_LABELS && !fill_samples(data, first_id, 0, to, status))
		return false;
	if (what == PP_LOAD_BOTH)
		to += (uint64_t)data->microbatch * data->seq;
	return what == PP_LOAD_TOKENS || fill_samples(data, first_id, 1, to, status);
}

double pp_data_entropy(const struct pp_data_source *data)
{
	if (data->kind != PP_DATA_SYNTHETIC)
		return 0;
	double other = 1.0 / NOISE_PERIOD / data->vocab; /* a given token by noise */
	double mapped = 1 - 1.0 / NOISE_PERIOD + other;
	return -mapped * log(mapped) - (data->vocab - 1.0) * other * log(other);
}
