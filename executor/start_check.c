/* Checking that a program can run here.
 *
 * Ensures: nothing is allocated for a run before all of this has passed. */
#include "start_check.h"

#include "kernels/kernels.h"
#include "transport.h"

#include "ir/file.h"
#include "ir/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool check_layout(const struct pp_stamp *stamp, enum pp_layout layout, struct pp_status *status)
{
	char proven[128] = "";
	if (pp_stamp_proves(stamp, layout))
		return true;
	for (unsigned i = 0; i < PP_LAYOUT_BLOCKING; i++)
		if (stamp->layouts >> i & 1)
			snprintf(proven + strlen(proven), sizeof proven - strlen(proven), "%s%s", *proven ? ", " : "",
			         pp_layout_name[i]);
	return pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "error[E0906]: with --queues=%s this program could deadlock: it is proven for %s only; use one of "
	               "these, or build it with --lowering=end, which is proven for all",
	               pp_layout_name[layout], proven);
}

bool pp_check_proof(struct pp_loaded *loaded, enum pp_layout layout, struct pp_status *status)
{
	struct pp_stamp stamp;
	if (!pp_verify(loaded->program, &stamp, loaded->diag))
		return pp_fail(status, PP_EXIT_REJECTED, "%s", "");
	loaded->program->stamp = stamp;
	return check_layout(&stamp, layout, status);
}

/* ---- support --------------------------------------------------------------------------------- */

static bool check_placed(const struct pp_program *program, const char *path, struct pp_status *status)
{
	uint64_t unplaced = 0;
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		for (uint32_t slot = 0; slot < program->rank[rank].slot_count; slot++)
			unplaced += !program->rank[rank].slots[slot].placed;
	if (unplaced == 0)
		return true;
	return pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "%s: %" PRIu64
	               " slots have no offset in the arena; plan them with `pipec build %s -o planned.ppx` and run that",
	               path, unplaced, path);
}

static bool check_bodies(const struct pp_program *program, const struct pp_device_ops *device, struct pp_status *status)
{
	if (program->body_count == 0) /* with any, the verifier sees to it that all that run are there */
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "the program has no bodies: it is a schedule without computations");
	for (uint32_t i = 0; i < program->body_count; i++)
		for (uint32_t k = 0; k < program->bodies[i].count; k++) {
			enum pp_body_op op = (enum pp_body_op)program->bodies[i].items[k].op;
			if (!device->supports(op))
				return pp_fail(status, PP_EXIT_ENVIRONMENT, "device %s has no `%s` (body of stage %" PRIu32 ")",
				               device->name, pp_body_op_info(op).mnemonic, program->bodies[i].stage);
		}
	return true;
}

static bool check_types(const struct pp_program *program, const struct pp_device_ops *device, struct pp_status *status)
{
	for (uint32_t t = 0; t < program->tensor_count && !device->half; t++)
		if (program->tensors[t].dtype != PP_F32)
			return pp_fail(
			    status, PP_EXIT_ENVIRONMENT,
			    "the %s device computes in f32 only, tensor %s is %s; build with `dtype = fp32`: without a GPU there "
			    "is no other way (--device=cuda says why there is none)",
			    device->name, program->tensors[t].name, pp_dtype_name[program->tensors[t].dtype]);
	return true;
}

static bool check_streams(const struct pp_program *program, struct pp_status *status)
{
	for (uint32_t i = 0; i < program->program_count; i++)
		for (uint32_t rank = 0; rank < program->ranks; rank++) {
			const struct pp_stream *stream = &program->programs[i].streams[rank];
			for (uint32_t k = 0; k < stream->count; k++)
				if (stream->items[k].op == PP_OP_COLL && !pp_transport_supports(&stream->items[k], status))
					return false;
		}
	return true;
}

bool pp_check_supported(const struct pp_program *program, const char *path, const struct pp_device_ops *device,
                        struct pp_status *status)
{
	if (!pp_program_find(program, "train"))
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s holds no program `train`", path);
	return check_placed(program, path, status) && check_bodies(program, device, status) &&
	       check_types(program, device, status) && check_streams(program, status);
}

bool pp_check_ranks(const struct pp_program *program, uint64_t started, struct pp_status *status)
{
	uint64_t wanted = pp_grid_world(program);
	if (wanted == started)
		return true;
	return pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "error[E0901]: program wants %" PRIu64 " ranks, mpirun started %" PRIu64 "; use `mpirun -n %" PRIu64
	               "`",
	               wanted, started, wanted);
}

/* Bytes that this machine can still give, or 0: unknown. */
static uint64_t free_memory(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	if (!file)
		return 0;
	char line[128];
	uint64_t kib = 0;
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
			break;
	fclose(file);
	return kib * 1024;
}

bool pp_check_memory(const struct pp_program *program, const struct pp_device_ops *device, const bool *here,
                     struct pp_status *status)
{
	if (device->own_memory)
		return true;
	uint64_t wanted = 0, available = free_memory();
	uint32_t ranks = 0;
	for (uint32_t world = 0; world < pp_grid_world(program); world++) {
		if (here && !here[world])
			continue;
		ranks++;
		uint32_t rank = pp_grid_coord(program, world).pp;
		if (__builtin_add_overflow(wanted, program->rank[rank].arena_bytes, &wanted))
			wanted = UINT64_MAX;
	}
	if (available == 0 || wanted <= available)
		return true;
	return pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "the arenas of %" PRIu32 " ranks on this machine need %.2f GiB, %.2f GiB are free", ranks,
	               (double)wanted / 1073741824, (double)available / 1073741824);
}

/* ---- cards ----------------------------------------------------------------------------------- */

struct pp_card pp_card_make(const struct pp_loaded *loaded, const struct pp_device_ops *device)
{
	struct pp_card card;
	memset(&card, 0, sizeof card);
	card.hash = loaded->hash;
	if (gethostname(card.host, sizeof card.host - 1) != 0)
		card.host[0] = '\0';
	snprintf(card.core, sizeof card.core, "%s", pp_kernels_core());
	snprintf(card.device, sizeof card.device, "%s", device->name);
	return card;
}

bool pp_check_cards(const struct pp_card *cards, uint32_t ranks, struct pp_status *status)
{
	for (uint32_t rank = 1; rank < ranks; rank++)
		if (cards[rank].hash != cards[0].hash)
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "error[E0902]: rank %" PRIu32 " loaded a different program (hash %016" PRIx64
			               ", rank 0 has %016" PRIx64 ")",
			               rank, cards[rank].hash, cards[0].hash);
	for (uint32_t rank = 1; rank < ranks; rank++)
		if (strcmp(cards[rank].device, cards[0].device) != 0)
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "error[E0907]: rank 0 on %s runs on device %s, rank %" PRIu32
			               " on %s on %s; say which with --device",
			               cards[0].host, cards[0].device, rank, cards[rank].host, cards[rank].device);
	return true;
}

bool pp_check_cores(const struct pp_card *cards, uint32_t ranks, struct pp_status *warning)
{
	for (uint32_t rank = 1; rank < ranks; rank++)
		if (strcmp(cards[rank].core, cards[0].core) != 0)
			return pp_fail(warning, PP_EXIT_OK,
			               "warning[W0906]: rank 0 on %s multiplies with OpenBLAS's core %s, rank %" PRIu32
			               " on %s with %s: results are as good, but the bits are not those of equal machines; set "
			               "OPENBLAS_CORETYPE to one that all have",
			               cards[0].host, cards[0].core, rank, cards[rank].host, cards[rank].core);
	return true;
}

bool pp_check_nodes(const struct pp_program *program, const struct pp_card *cards, struct pp_status *status)
{
	char names[2][PP_GRID_NAME];
	for (uint32_t rank = 0; rank < pp_grid_world(program); rank++) {
		struct pp_coord coord = pp_grid_coord(program, rank);
		coord.tp = 0;
		uint32_t first = pp_grid_rank(program, coord);
		if (pp_grid_node(program, first) != pp_grid_node(program, rank) ||
		    strcmp(cards[first].host, cards[rank].host) == 0)
			continue;
		uint32_t each = program->gpus ? program->gpus : (uint32_t)pp_grid_world(program);
		return pp_fail(
		    status, PP_EXIT_ENVIRONMENT,
		    "error[E0903]: %s is on %s and %s on %s, but the program plans their tensor-parallel group on one "
		    "node; use `mpirun --map-by ppr:%" PRIu32 ":node`",
		    pp_grid_name(program, first, names[0]), cards[first].host, pp_grid_name(program, rank, names[1]),
		    cards[rank].host, each);
	}
	return true;
}

/* A stop file that can never come would leave a run that cannot be stopped. */
static bool check_stop_file(const char *path, struct pp_status *status)
{
	const char *slash = strrchr(path, '/');
	size_t length = slash == path ? 1 : slash ? (size_t)(slash - path) : 1;
	char *folder = strndup(slash ? path : ".", length);
	struct stat info;
	if (!folder)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = true;
	if (stat(folder, &info) != 0)
		ok = pp_fail(status, PP_EXIT_ENVIRONMENT, "--stop-file=%s: cannot look into %s: %s", path, folder,
		             strerror(errno));
	else if (!S_ISDIR(info.st_mode))
		ok = pp_fail(status, PP_EXIT_ENVIRONMENT, "--stop-file=%s: %s is no folder", path, folder);
	else if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
		ok = pp_fail(status, PP_EXIT_ENVIRONMENT, "--stop-file=%s: that is a folder", path);
	free(folder);
	return ok;
}

bool pp_check_files(const struct pp_keeper_files *files, struct pp_status *status)
{
	return (!files->stop || check_stop_file(files->stop, status)) &&
	       (!files->report || pp_file_can_write(files->report, status));
}
