/* piperun: runs a proven program. The command line only; see launch.c for what happens then. */
#include "launch.h"

#include "ir/file.h"
#include "ir/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PP_HAVE_CUDA
#include "cuda/device_cuda.h"
#else
#include "gpu_library.h"
#endif

enum { TRANSPORT_AUTO, TRANSPORT_LOOP, TRANSPORT_MPI, TRANSPORT_NCCL };
enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

struct arguments {
	uint64_t steps, jitter, threads, spawn;
	uint64_t timeout, timeout_init, timeout_first, timeout_save, timeout_eval, timeout_heartbeat;
	unsigned device, transport;
	unsigned graph; /* enum pp_graph */
	const char *trace, *profile, *metrics, *data, *save, *resume, *init, *stop_file, *report, *gpus;
	unsigned queues; /* enum pp_layout */
	bool staged, sync_send, check_identity, canary, memory, weights_hash, quiet;
};

static const struct pp_option table[] = {
    {"steps", 0, PP_OPTION_UINT, "N", offsetof(struct arguments, steps),
     "run N steps instead of the program's number (10 if it has none); the learning rate's horizon stays", 1, 0, 0},
    {"device", 0, PP_OPTION_CHOICE, "auto|cpu|cuda", offsetof(struct arguments, device),
     "where bodies run; auto: cuda where the program was planned for GPUs and there is one, else cpu", 0, 0, 0},
    {"gpus", 0, PP_OPTION_TEXT, "LIST", offsetof(struct arguments, gpus),
     "GPUs to use, as 0,2 (default all): the ranks of a machine get one after the other, over again", 0, 0, 0},
    {"graph", 0, PP_OPTION_CHOICE, "off|body|step", offsetof(struct arguments, graph),
     "what a GPU starts at once: a kernel, a body (default), or a step (one rank, or NCCL on one machine); results are "
     "the same",
     0, 0, 0},
    {"transport", 0, PP_OPTION_CHOICE, "auto|loop|mpi|nccl", offsetof(struct arguments, transport),
     "how ranks talk; auto: mpi when started by mpirun, else loop, where ranks are threads, or the memory of --spawn; "
     "and nccl between GPUs where every rank has one (docs/nccl.md)",
     0, 0, 0},
    {"staged", 0, PP_OPTION_FLAG, NULL, offsetof(struct arguments, staged),
     "never nccl, and what GPUs send goes through the host's memory even where MPI could take it from theirs", 0, 0, 0},
    {"spawn", 0, PP_OPTION_UINT, "N", offsetof(struct arguments, spawn),
     "start N processes on this machine, one for each rank, without mpirun", 1, 16384, 0},
    {"data", 0, PP_OPTION_TEXT, "FILE", offsetof(struct arguments, data), "train on this file instead of the program's",
     0, 0, 0},
    {"metrics", 0, PP_OPTION_TEXT, "FILE", offsetof(struct arguments, metrics), "write one JSON line per step", 0, 0,
     0},
    {"trace", 0, PP_OPTION_TEXT, "FILE", offsetof(struct arguments, trace),
     "write a Chrome trace of every instruction; `pipedump --diff` reads it", 0, 0, 0},
    {"profile", 0, PP_OPTION_TEXT, "FILE", offsetof(struct arguments, profile),
     "write what bodies, transfers and the step tail took; `pipec build --profile` reads it", 0, 0, 0},
    {"save", 0, PP_OPTION_TEXT, "DIR", offsetof(struct arguments, save),
     "save a checkpoint into this folder after the last step, and those that the program asks for", 0, 0, 0},
    {"resume", 0, PP_OPTION_TEXT, "DIR", offsetof(struct arguments, resume),
     "go on from the newest complete checkpoint in this folder, or from this one; --steps counts from the start", 0, 0,
     0},
    {"init", 0, PP_OPTION_TEXT, "DIR", offsetof(struct arguments, init),
     "start with the weights of a checkpoint: step 1, fresh optimizer", 0, 0, 0},
    {"weights-hash", 0, PP_OPTION_FLAG, NULL, offsetof(struct arguments, weights_hash),
     "print a hash of every tensor after the last step", 0, 0, 0},
    {"timeout", 0, PP_OPTION_UINT, "S", offsetof(struct arguments, timeout),
     "end the run if no rank moves for S seconds (default 60, or 20 predicted steps if that is more)", 1, 1000000, 0},
    {"timeout-init", 0, PP_OPTION_UINT, "S", offsetof(struct arguments, timeout_init),
     "… before the first step and after the last (default 5 times --timeout)", 1, 1000000, 0},
    {"timeout-first", 0, PP_OPTION_UINT, "S", offsetof(struct arguments, timeout_first),
     "… in the first step (default 5 times the limit of a step)", 1, 1000000, 0},
    {"timeout-save", 0, PP_OPTION_UINT, "S", offsetof(struct arguments, timeout_save),
     "… while a checkpoint is written or read (default 10 times --timeout)", 1, 1000000, 0},
    {"timeout-eval", 0, PP_OPTION_UINT, "S", offsetof(struct arguments, timeout_eval),
     "… in an evaluation (default as --timeout, or 20 predicted batches)", 1, 1000000, 0},
    {"timeout-heartbeat", 0, PP_OPTION_UINT, "S", offsetof(struct arguments, timeout_heartbeat),
     "end the run if nothing is heard of a process for S seconds (default 10)", 1, 1000000, 0},
    {"report", 0, PP_OPTION_TEXT, "FILE", offsetof(struct arguments, report),
     "append the report of a lost run here as well: launchers may drop what is said last", 0, 0, 0},
    {"stop-file", 0, PP_OPTION_TEXT, "FILE", offsetof(struct arguments, stop_file),
     "stop after the current step once FILE exists, as SIGUSR1 does, and remove it; saves if checkpoints have a folder",
     0, 0, 0},
    {"threads", 0, PP_OPTION_UINT, "N", offsetof(struct arguments, threads), "threads of a rank; only 1 so far", 1, 1,
     0},
    {"jitter", 0, PP_OPTION_UINT, "SEED", offsetof(struct arguments, jitter),
     "random delays before posts and compute; results do not change", 1, 0, 0},
    {"queues", 0, PP_OPTION_CHOICE, "channel|edge|direction|pair|rank", offsetof(struct arguments, queues),
     "which posts wait for each other: one queue for each channel (default), directed pair of ranks, direction of a "
     "rank, pair of ranks, or rank; refused where the program is not proven for it",
     0, 0, 0},
    {"sync-send", 0, PP_OPTION_FLAG, NULL, offsetof(struct arguments, sync_send),
     "sends complete only once received (loop: always)", 0, 0, 0},
    {"check-identity", 0, PP_OPTION_FLAG, NULL, offsetof(struct arguments, check_identity),
     "compare what each message is at both ends; over nccl: what they have posted so far, whenever ranks meet", 0, 0,
     0},
    {"canary", 0, PP_OPTION_FLAG, NULL, offsetof(struct arguments, canary),
     "check that every step writes to planned memory only, and say what of the plan was never touched", 0, 0, 0},
    {"memory", 0, PP_OPTION_FLAG, NULL, offsetof(struct arguments, memory),
     "after the run, say what the process holds beside its arena, predicted and measured", 0, 0, 0},
    {"quiet", 'q', PP_OPTION_FLAG, NULL, offsetof(struct arguments, quiet), "no log lines", 0, 0, 0},
};

/* Linked in, as in tests; or a library that is loaded when it is wanted. */
static const struct pp_device_ops *gpu_device(struct pp_status *status)
{
#ifdef PP_HAVE_CUDA
	(void)status;
	return &pp_device_cuda;
#else
	return pp_gpu_library(status);
#endif
}

enum { TABLE_COUNT = sizeof table / sizeof *table };

static const char examples[] =
    "usage: mpirun -n N piperun [options] PROGRAM.ppx\n"
    "       piperun [options] PROGRAM.ppx            ranks are threads of this process\n"
    "       piperun --spawn=N [options] PROGRAM.ppx  ranks are processes of this machine\n"
    "\n"
    "examples:\n"
    "  mpirun -n 4 piperun demo.ppx\n"
    "  mpirun -n 4 piperun demo.ppx --steps=20 --metrics=run.jsonl --trace=run.json\n"
    "  mpirun -n 4 piperun demo.ppx --steps=20 --profile=costs.json\n"
    "  piperun demo.ppx --data=/usr/share/common-licenses/GPL-2\n"
    "  piperun demo.ppx --device=cuda               ranks are threads that share a GPU\n"
    "  piperun demo.ppx --spawn=4 --device=cuda     ranks are processes; NCCL if there are 4 GPUs\n"
    "  mpirun -n 4 piperun demo.ppx --save=run1 --steps=100\n"
    "  mpirun -n 4 piperun demo.ppx --save=run1 --resume=run1\n"
    "\n"
    "options:\n";

static const char exit_codes[] =
    "\nexit: 0 ok, 1 program rejected, 2 usage, 3 environment or start check, 5 run failed\n"
    "environment: PP_CONTROL_ADDRESS=HOST where rank 0 can be reached, if it has several addresses; "
    "PP_FAULT=RANK:INSTR:KIND "
    "plants a fault (docs/failures.md)\n";

/* Options that the design has and this version lacks: better a clear word than a silent one. */
static const char *const later[] = {"verify"};

static bool none_of_later(int argc, char **argv, struct pp_status *status)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		for (size_t k = 0; k < sizeof later / sizeof *later; k++) {
			size_t length = strlen(later[k]);
			if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, later[k], length) == 0 &&
			    (argv[i][2 + length] == '\0' || argv[i][2 + length] == '='))
				return pp_fail(status, PP_EXIT_USAGE, "--%s is not supported yet", later[k]);
		}
	return true;
}

/* Processes that the launcher started, 0: no launcher. Slurm tells its tasks their number also where they are no MPI
 * job, as in a batch script: they are one where PMIx gave them a rank. At least 1 where it did and nobody says more. */
static unsigned long launched(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};
	enum { OF_SLURM = 2, NAMES = sizeof names / sizeof *names };
	const bool job = getenv("PMIX_RANK") != NULL;
	for (size_t i = 0; i < (job ? NAMES : OF_SLURM); i++) {
		const char *value = getenv(names[i]);
		if (value)
			return strtoul(value, NULL, 10);
	}
	return job;
}

/* Tasks of an srun that is no MPI job. */
static unsigned long tasks_alone(void)
{
	const char *value = getenv("SLURM_STEP_NUM_TASKS");
	return value ? strtoul(value, NULL, 10) : 0;
}

static int usage_error(const struct pp_status *status)
{
	fprintf(stderr, "piperun: %s\n", status->text);
	return (int)status->code;
}

static int start_spawned(struct pp_launch *launch, unsigned transport, uint32_t ranks)
{
	struct pp_status status;
	if (launched() > 1) { /* one process may be all that a launcher is for: to get it there, with its GPUs */
		pp_fail(&status, PP_EXIT_USAGE, "--spawn starts the ranks itself: give it, or use mpirun");
		return usage_error(&status);
	}
	if (transport == TRANSPORT_LOOP || transport == TRANSPORT_MPI) {
		pp_fail(&status, PP_EXIT_USAGE,
		        "--spawn has a transport of its own between its processes: leave out --transport, or ask for nccl");
		return usage_error(&status);
	}
	launch->launched = true;
	return pp_launch_spawn(launch, ranks);
}

static int start(struct pp_launch *launch, unsigned transport)
{
	unsigned long processes = launched();
	struct pp_status status;
	if (transport == TRANSPORT_LOOP && processes > 1) {
		pp_fail(&status, PP_EXIT_USAGE, "--transport=loop runs all ranks in one process, but the launcher started %lu",
		        processes);
		return usage_error(&status);
	}
	if (transport == TRANSPORT_NCCL && processes == 0) {
		pp_fail(&status, PP_EXIT_USAGE,
		        "--transport=nccl wants a process for each rank: start them with mpirun, or with --spawn=N");
		return usage_error(&status);
	}
	if (transport == TRANSPORT_LOOP || (transport == TRANSPORT_AUTO && processes == 0)) {
		launch->announce = transport == TRANSPORT_AUTO && !launch->run.quiet;
		return pp_launch_loop(launch);
	}
#ifdef PP_HAVE_MPI
	return pp_launch_mpi(launch);
#else
	pp_fail(&status, PP_EXIT_ENVIRONMENT,
	        "this piperun was built without MPI: run it without mpirun, or build with -DPP_MPI=ON");
	return usage_error(&status);
#endif
}

static void exhausted(size_t wanted)
{
	fprintf(stderr, "piperun: out of memory (%zu bytes wanted)\n", wanted);
	exit(PP_EXIT_ENVIRONMENT);
}

static struct pp_limits limits_of(const struct arguments *values)
{
	const uint64_t second = 1000000000;
	return (struct pp_limits){.stretch = {[PP_STRETCH_START] = values->timeout_init * second,
	                                      [PP_STRETCH_FIRST] = values->timeout_first * second,
	                                      [PP_STRETCH_STEP] = values->timeout * second,
	                                      [PP_STRETCH_SAVE] = values->timeout_save * second,
	                                      [PP_STRETCH_EVAL] = values->timeout_eval * second},
	                          .heartbeat = values->timeout_heartbeat * second};
}

static enum pp_link_choice link_of(const struct arguments *values)
{
	if (values->transport == TRANSPORT_NCCL)
		return PP_LINK_DIRECT;
	return values->staged || values->transport == TRANSPORT_MPI ? PP_LINK_STAGED : PP_LINK_AUTO;
}

static int run(struct pp_arena *arena, int argc, char **argv)
{
	struct arguments values = {.threads = 1, .graph = PP_GRAPH_BODY};
	uint64_t begin = pp_resident_bytes();
	struct pp_arguments arguments;
	struct pp_status status;
	if (!none_of_later(argc, argv, &status) ||
	    !pp_options_parse(arena, "piperun", table, TABLE_COUNT, 0, argc, argv, &values, &arguments, &status))
		return usage_error(&status);
	if (arguments.help) {
		fputs(examples, stdout);
		pp_options_help(table, TABLE_COUNT, 0, stdout);
		fputs(exit_codes, stdout);
		return PP_EXIT_OK;
	}
	if (arguments.version) {
		puts("piperun " PP_VERSION);
		return PP_EXIT_OK;
	}
	if (arguments.operands.count != 1) {
		pp_fail(&status, PP_EXIT_USAGE, "want one program to run, got %zu; see piperun --help",
		        arguments.operands.count);
		return usage_error(&status);
	}
	if (values.resume && values.init) {
		pp_fail(&status, PP_EXIT_USAGE, "--resume already loads the weights: give it or --init");
		return usage_error(&status);
	}
	if (values.staged && values.transport == TRANSPORT_NCCL) {
		pp_fail(&status, PP_EXIT_USAGE, "--staged keeps nccl away, --transport=nccl asks for it: give one of them");
		return usage_error(&status);
	}
	if (values.transport == TRANSPORT_NCCL && values.device == DEVICE_CPU) {
		pp_fail(&status, PP_EXIT_USAGE, "--transport=nccl connects GPUs: it does not go with --device=cpu");
		return usage_error(&status);
	}
	/* As many streams as can be that go on by themselves: NCCL's each have their own. */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	/* For a graph NCCL would register what its posts read and write: ranks wait for each other then, and sums may go
	 * another way than those that are no part of one. */
	if (values.graph == PP_GRAPH_STEP)
		setenv("NCCL_GRAPH_REGISTER", "0", 0);
	const struct pp_device_ops *device = values.device == DEVICE_CPU    ? &pp_device_cpu
	                                     : values.device == DEVICE_CUDA ? gpu_device(&status)
	                                                                    : NULL;
	if (values.device == DEVICE_CUDA && !device)
		return usage_error(&status);
	struct pp_launch launch = {
	    .arena = arena,
	    .path = arguments.operands.items[0],
	    .device = device,
	    .gpu = gpu_device,
	    .transport = {.sync_send = values.sync_send || values.queues != PP_LAYOUT_CHANNEL,
	                  .check_identity = values.check_identity},
	    .queues = (enum pp_layout)values.queues,
	    .link = link_of(&values),
	    .environment = pp_link_environment_take(),
	    .through_host = values.staged,
	    .run = {.steps = values.steps,
	            .data_path = values.data,
	            .metrics_path = values.metrics,
	            .trace_path = values.trace,
	            .profile_path = values.profile,
	            .save_path = values.save,
	            .resume_path = values.resume,
	            .init_path = values.init,
	            .canary = values.canary,
	            .memory = values.memory,
	            .marks = {.begin = begin},
	            .weights_hash = values.weights_hash,
	            .quiet = values.quiet,
	            .jitter = values.jitter,
	            .device = {.gpus = values.gpus, .graph = (enum pp_graph)values.graph}},
	    .asked = limits_of(&values),
	    .files = {values.stop_file, values.report},
	    .launched = launched() > 0,
	    .processes = launched() > 0 ? launched() : tasks_alone(),
	};
	const char *fault = getenv("PP_FAULT");
	if (fault && !pp_fault_parse(fault, &launch.run.fault, &status))
		return usage_error(&status);
	return values.spawn ? start_spawned(&launch, values.transport, (uint32_t)values.spawn)
	                    : start(&launch, values.transport);
}

int main(int argc, char **argv)
{
	struct pp_arena *arena = pp_arena_create(exhausted);
	int code = run(arena, argc, argv);
	pp_arena_destroy(arena);
	return pp_finish_output("piperun", code);
}
