/* write_tokens MICROBATCHES SEQ SHARED CONSTANT…: byte files for field case B20. SHARED: every token and label of
 * microbatch k of the first step is k. Where samples start depends on the run's seed: seeds are tried until the samples
 * of the step do not overlap, and the seed is printed. CONSTANT file k holds nothing but k. */
#include "executor/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 200, SEEDS = 1000, UNUSED = 255 };

static void write_file(const char *path, const unsigned char *bytes, size_t length)
{
	FILE *out = fopen(path, "wb");
	if (!out || fwrite(bytes, 1, length, out) != length || fclose(out) != 0) {
		fprintf(stderr, "cannot write %s\n", path);
		exit(3);
	}
}

/* Tokens of a sample, as training reads them. False: cannot be read. */
static bool read_sample(const struct pp_program *program, const char *path, uint32_t mb, int32_t *tokens)
{
	struct pp_status status;
	struct pp_data_source *data = pp_data_open(program, (struct pp_coord){0}, path, &status);
	bool ok = data && pp_data_fill(data, 0, mb, PP_LOAD_BOTH, tokens, &status);
	if (!ok)
		fprintf(stderr, "%s\n", status.text);
	pp_data_close(data);
	return ok;
}

/* A file whose token i is i tells where samples start; `bytes` gets mb in the whole sample of each mb. */
static bool mark_samples(const struct pp_program *program, const char *path, unsigned char *bytes)
{
	unsigned char positions[LENGTH];
	int32_t sample[2 * LENGTH];
	for (size_t i = 0; i < LENGTH; i++)
		positions[i] = (unsigned char)i;
	write_file(path, positions, LENGTH);
	memset(bytes, UNUSED, LENGTH);
	for (uint32_t mb = 0; mb < program->microbatches; mb++) {
		if (!read_sample(program, path, mb, sample))
			exit(3);
		for (uint32_t i = 0; i <= program->train.seq; i++) {
			if (bytes[(uint32_t)sample[0] + i] != UNUSED)
				return false;
			bytes[(uint32_t)sample[0] + i] = (unsigned char)mb;
		}
	}
	for (size_t i = 0; i < LENGTH; i++)
		if (bytes[i] == UNUSED)
			bytes[i] = (unsigned char)program->microbatches;
	return true;
}

/* All tokens and labels of microbatch k are k. */
static bool holds(const struct pp_program *program, const char *path)
{
	int32_t tokens[2 * LENGTH];
	for (uint32_t mb = 0; mb < program->microbatches; mb++) {
		if (!read_sample(program, path, mb, tokens))
			return false;
		for (uint32_t i = 0; i < 2 * program->train.seq; i++)
			if (tokens[i] != (int32_t)mb)
				return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	struct pp_program program = {.dp = 1, .microbatches = (uint32_t)atoi(argv[1])};
	program.train = (struct pp_train){
	    .data = PP_DATA_FILE, .tokens = PP_TOKENS_BYTE, .seq = (uint32_t)atoi(argv[2]), .vocab = 256, .microbatch = 1};
	if (program.train.seq == 0 || program.train.seq >= LENGTH)
		return 2;
	unsigned char bytes[LENGTH];
	while (program.train.seed < SEEDS && !mark_samples(&program, argv[3], bytes))
		program.train.seed++;
	write_file(argv[3], bytes, LENGTH);
	if (program.train.seed == SEEDS || !holds(&program, argv[3]))
		return 1;
	for (int k = 0; k < argc - 4; k++) {
		memset(bytes, k, LENGTH);
		write_file(argv[4 + k], bytes, LENGTH);
	}
	printf("%llu\n", (unsigned long long)program.train.seed);
	return 0;
}
