/* Memory outside of the arenas: outside.h. Constants were measured on Debian 12, x86-64 (docs/memory.md says how). */
#include "outside.h"

#include "capped.h"
#include "grid.h"

const char *const pp_outside_name[] = {"process", "library", "program", "transport", "ranks",
                                       "blas",    "data",    "records", "saving"};
const char *const pp_outside_formula[] = {
    "code and shared libraries",
    "MPI, started",
    "4 x tables + 1 MiB",
    "128 B per post + 2 x largest sum",
    "512 KiB per rank + 256 KiB per channel with MPI",
    "4 x min(384, s) x (min(512, s) + s) per rank, s: longest side of a product",
    "size of the file",
    "16 B per instruction and step; a quarter bit per byte",
    "1 MiB per rank",
};

static const uint64_t kib = 1024, mib = 1024 * 1024;

/* ---- the program ----------------------------------------------------------------------------- */

static uint64_t stream_bytes(const struct pp_stream *stream)
{
	uint64_t each = sizeof *stream->items + (stream->order ? sizeof *stream->order : 0) +
	                (stream->spans ? sizeof *stream->spans : 0);
	return pp_times(stream->count, each);
}

static uint64_t body_bytes(const struct pp_body *body)
{
	enum { NAME = 24 }; /* of a register, on average */
	return sizeof *body + (uint64_t)body->reg_count * (sizeof *body->regs + NAME) +
	       (uint64_t)body->count * sizeof *body->items;
}

uint64_t pp_program_bytes(const struct pp_program *program)
{
	enum { NAME = 32 };
	uint64_t bytes = sizeof *program + (uint64_t)program->stage_count * (sizeof *program->stages + NAME) +
	                 (uint64_t)program->tensor_count * (sizeof *program->tensors + NAME) +
	                 (uint64_t)program->use_count * sizeof *program->uses +
	                 (uint64_t)program->channel_count * sizeof *program->channels +
	                 (uint64_t)program->group_count * sizeof *program->groups;
	for (uint32_t r = 0; r < program->ranks; r++)
		bytes += sizeof *program->rank + (uint64_t)program->rank[r].slot_count * sizeof *program->rank[r].slots;
	for (uint32_t i = 0; i < program->body_count; i++)
		bytes += body_bytes(&program->bodies[i]);
	for (uint32_t i = 0; i < program->program_count; i++)
		for (uint32_t r = 0; r < program->ranks; r++)
			bytes = pp_plus(bytes, stream_bytes(&program->programs[i].streams[r]));
	return bytes;
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* Posts of a rank and the largest sum that it takes part in, over all its programs. */
struct posts {
	uint64_t count, largest_sum, channels;
};

static struct posts posts_of(const struct pp_program *program, uint32_t rank)
{
	struct posts posts = {0};
	for (uint32_t p = 0; p < program->program_count; p++) {
		const struct pp_stream *stream = &program->programs[p].streams[rank];
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *instr = &stream->items[i];
			if (instr->op != PP_OP_SEND && instr->op != PP_OP_RECV && instr->op != PP_OP_COLL)
				continue;
			posts.count++;
			if (instr->op == PP_OP_COLL && pp_payload_bytes(instr) > posts.largest_sum)
				posts.largest_sum = pp_payload_bytes(instr);
		}
	}
	for (uint32_t c = 0; c < program->channel_count; c++)
		posts.channels += program->channels[c].source == rank || program->channels[c].destination == rank;
	return posts;
}

/* OpenBLAS packs a block of each operand, up to 384 elements deep in its cores for AVX2 and AVX-512: at most 512 rows
 * of one, and as many of the other as there are and its buffer holds. */
static uint64_t blas_bytes(const struct pp_program *program, uint32_t rank)
{
	const uint64_t buffer = 128 * mib;
	uint64_t longest = 0;
	for (uint32_t b = 0; b < program->body_count; b++) {
		const struct pp_body *body = &program->bodies[b];
		for (uint32_t i = 0; i < body->count && program->stages[body->stage].rank == rank; i++) {
			const struct pp_body_instr *instr = &body->items[i];
			if (instr->op != PP_BODY_LINEAR && instr->op != PP_BODY_LINEAR_DX && instr->op != PP_BODY_LINEAR_DW)
				continue;
			for (unsigned k = 0; k < 2; k++) { /* the inputs have all three sides */
				const struct pp_reg *reg = &body->regs[instr->operand[k]];
				longest = reg->rows > longest ? reg->rows : longest;
				longest = reg->columns > longest ? reg->columns : longest;
			}
		}
	}
	uint64_t depth = longest < 384 ? longest : 384, block = longest < 512 ? longest : 512;
	uint64_t bytes = 4 * depth * (block + longest);
	return bytes < buffer ? bytes : buffer;
}

static uint64_t longest_stream(const struct pp_program *program)
{
	uint64_t longest = 1;
	for (uint32_t r = 0; r < program->ranks; r++)
		if (program->program_count && program->programs[0].streams[r].count > longest)
			longest = program->programs[0].streams[r].count;
	return longest;
}

static void add_rank(const struct pp_program *program, const struct pp_outside_run *run, uint32_t rank,
                     uint64_t bytes[PP_OUTSIDE_COUNT])
{
	struct posts posts = posts_of(program, rank);
	uint64_t sums = posts.largest_sum < mib ? posts.largest_sum : mib;
	bytes[PP_OUTSIDE_TRANSPORT] += 128 * posts.count + (run->mpi ? 2 * sums : 0);
	bytes[PP_OUTSIDE_BLAS] += blas_bytes(program, rank);
	bytes[PP_OUTSIDE_RANKS] += 512 * kib + (run->mpi ? 256 * kib * posts.channels : 0);
	bytes[PP_OUTSIDE_RECORDS] += 16 * longest_stream(program) * run->kept_steps;
	if (run->canary)
		bytes[PP_OUTSIDE_RECORDS] += program->rank[rank].arena_bytes / 4 / 8;
	if (run->saves)
		bytes[PP_OUTSIDE_SAVING] += mib;
}

void pp_outside_predict(const struct pp_program *program, const struct pp_outside_run *run,
                        uint64_t bytes[PP_OUTSIDE_COUNT])
{
	for (unsigned i = 0; i < PP_OUTSIDE_COUNT; i++)
		bytes[i] = 0;
	bytes[PP_OUTSIDE_PROCESS] = 7 * mib;
	bytes[PP_OUTSIDE_LIBRARY] = run->mpi ? 16 * mib : 0;
	bytes[PP_OUTSIDE_PROGRAM] = 4 * pp_program_bytes(program) + mib;
	bytes[PP_OUTSIDE_DATA] = run->data_bytes;
	uint64_t copies = pp_grid_world(program) / program->ranks;
	if (run->apart)
		add_rank(program, run, run->pp, bytes);
	for (uint32_t r = 0; r < program->ranks && !run->apart; r++)
		for (uint64_t copy = 0; copy < copies; copy++)
			add_rank(program, run, r, bytes);
}
