/* Carries out grids of emulated kernels: the order of blocks and threads, fibers and their barriers. One CPU thread
 * runs a whole grid; several may run grids at once, each with fibers of its own.
 *
 * Requires: a kernel whose threads meet was launched by PP_LAUNCH. Ensures: a barrier that can never complete ends the
 * process with a message that says who waits where; so does a stack that was too small. */
#include "emulation.h"

#include <atomic>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace pp_emulation
{

__thread struct place *here;
__thread unsigned char *dynamic_shared;

namespace
{

enum { THREADS = 1024, WARP = 32, WARPS = THREADS / WARP };
enum : uint64_t { SPARE = 256 << 10 }; /* below the lowest stack, so that one that is too small can be reported */
enum : uint64_t { STATIC_LIMIT = 48 << 10, CANARY = 0x7a5c3e91d2b64f08 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum : uint64_t { STACK = 256 << 10 };
#else
enum : uint64_t { STACK = 64 << 10 };
#endif

[[noreturn]] void stop(const char *kernel, const char *message)
{
	fprintf(stderr, "emulation: kernel %s: %s\n", kernel, message);
	abort();
}

/* ---- settings of the process ------------------------------------------------------------------ */

struct settings {
	std::atomic<int> order;
	std::atomic<uint64_t> seed;

	settings() : order(PP_EMULATE_UP), seed(1)
	{
		const char *asked = getenv("PP_EMULATE");
		if (!asked || strcmp(asked, "up") == 0)
			return;
		bool down = strcmp(asked, "down") == 0;
		order = down ? PP_EMULATE_DOWN : PP_EMULATE_RANDOM;
		seed = down ? 1 : strtoull(asked, NULL, 10);
	}
};

settings &process(void)
{
	static settings all;
	return all;
}

struct allowances {
	std::mutex lock;
	std::set<std::pair<const void *, uint64_t>> kernels; /* with the most dynamic shared memory each asked for */
};

allowances &allowed(void)
{
	static allowances all;
	return all;
}

uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

uint64_t common_divisor(uint64_t a, uint64_t b)
{
	return b ? common_divisor(b, a % b) : a;
}

/* Visits 0 … count - 1 in one of the three orders; random: i -> (a i + b) mod count with a coprime to count < 2^32. */
struct sequence {
	enum pp_emulation_order order;
	uint64_t count, factor, shift;

	sequence(enum pp_emulation_order given, uint64_t seed, uint64_t elements)
	    : order(given), count(elements), factor(1), shift(0)
	{
		if (order != PP_EMULATE_RANDOM)
			return;
		shift = mix(seed) % count;
		for (factor = mix(seed + 1) % count; common_divisor(factor, count) != 1;)
			factor = (factor + 1) % count;
	}
	uint64_t operator[](uint64_t i) const
	{
		if (order == PP_EMULATE_UP)
			return i;
		return order == PP_EMULATE_DOWN ? count - 1 - i : (factor * i + shift) % count;
	}
};

/* ---- fibers ---------------------------------------------------------------------------------- */

/* What a lane brings to a warp barrier and takes away: nothing, bytes of another lane, or everyone's votes. */
struct handover {
	enum { NOTHING, SHUFFLE, VOTE } kind;
	uint32_t source, bytes;
	const void *value;
	void *result;
	bool predicate;
};

enum wait { READY, BLOCK_BARRIER, WARP_BARRIER, ENDED };

struct fiber {
	void *stack_pointer;
	unsigned char *stack;
	enum wait wait;
	uint32_t mask; /* of a warp barrier */
	struct handover handover;
	struct place place;
#if !defined(__x86_64__)
	ucontext_t context;
#endif
#if defined(__SANITIZE_ADDRESS__)
	void *fake_stack;
	const void *bottom; /* of the stack, as the sanitizer wants it */
	size_t stack_bytes;
#endif
#if defined(__SANITIZE_THREAD__)
	void *sanitizer;
#endif
};

/* The fibers of a CPU thread, made when it first needs them. */
struct crew {
	struct fiber fibers[THREADS];
	struct fiber scheduler;
	unsigned char *stacks;
	uint32_t count, current, live, at_barrier;
	uint32_t waiting[WARPS], ended[WARPS]; /* a bit for each lane: at a warp barrier; done */
	const char *kernel_name;
	void (*kernel)(void *);
	void *arguments;
	bool active;

	crew()
	{
		memset(static_cast<void *>(this), 0, sizeof *this);
		void *memory = mmap(NULL, SPARE + THREADS * STACK, PROT_READ | PROT_WRITE,
		                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (memory == MAP_FAILED)
			stop("any", "no address space for the stacks of its threads");
		stacks = static_cast<unsigned char *>(memory);
		for (uint32_t i = 0; i < THREADS; i++)
			fibers[i].stack = stacks + SPARE + i * STACK;
	}
	~crew()
	{
#if defined(__SANITIZE_THREAD__)
		for (uint32_t i = 0; i < THREADS && fibers[i].sanitizer; i++)
			__tsan_destroy_fiber(fibers[i].sanitizer);
#endif
		munmap(stacks, SPARE + THREADS * STACK);
	}
	crew(const crew &) = delete;
	crew &operator=(const crew &) = delete;
};

struct crew &own_crew(void)
{
	static thread_local struct crew crew;
	return crew;
}

__thread struct crew *at_work; /* the crew while it runs a block, else NULL */

void switch_to(struct fiber *from, struct fiber *to, bool for_good);
void body(void);

#if defined(__x86_64__)

/* Saves what a call must preserve on the stack, changes stacks, restores. */
extern "C" void pp_emulation_switch(void **save, void *to);
__asm__(".text\n"
        ".type pp_emulation_switch,@function\n"
        "pp_emulation_switch:\n"
        "\tpush %rbp\n\tpush %rbx\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush %r15\n"
        "\tmov %rsp,(%rdi)\n"
        "\tmov %rsi,%rsp\n"
        "\tpop %r15\n\tpop %r14\n\tpop %r13\n\tpop %r12\n\tpop %rbx\n\tpop %rbp\n"
        "\tret\n"
        ".size pp_emulation_switch,.-pp_emulation_switch\n");

void prepare(struct fiber *fiber)
{
	void **top = reinterpret_cast<void **>(fiber->stack + STACK - 64);
	*--top = NULL; /* where `body` would return to; keeps the stack aligned as at a call */
	*--top = reinterpret_cast<void *>(body);
	for (int i = 0; i < 6; i++)
		*--top = NULL;
	fiber->stack_pointer = top;
}

void change_stack(struct fiber *from, struct fiber *to)
{
	pp_emulation_switch(&from->stack_pointer, to->stack_pointer);
}

#else

void prepare(struct fiber *fiber)
{
	getcontext(&fiber->context);
	fiber->context.uc_stack.ss_sp = fiber->stack;
	fiber->context.uc_stack.ss_size = STACK;
	fiber->context.uc_link = NULL;
	makecontext(&fiber->context, body, 0);
}

void change_stack(struct fiber *from, struct fiber *to)
{
	swapcontext(&from->context, &to->context);
}

#endif

void switch_to(struct fiber *from, struct fiber *to, bool for_good)
{
	(void)for_good;
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_start_switch_fiber(for_good ? NULL : &from->fake_stack, to->bottom, to->stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
	__tsan_switch_to_fiber(to->sanitizer, 0);
#endif
	change_stack(from, to);
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

/* The first function on a fiber's stack: one thread of one block. */
__attribute__((no_sanitize("address"))) void body(void)
{
	struct crew *crew = at_work;
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_finish_switch_fiber(NULL, &crew->scheduler.bottom, &crew->scheduler.stack_bytes);
#endif
	crew->kernel(crew->arguments);
	struct fiber *self = &crew->fibers[crew->current];
	self->wait = ENDED;
	crew->ended[crew->current / WARP] |= 1U << crew->current % WARP;
	crew->live--;
	switch_to(self, &crew->scheduler, true);
	abort();
}

void pause_fiber(struct crew *crew, enum wait wait)
{
	struct fiber *self = &crew->fibers[crew->current];
	self->wait = wait;
	switch_to(self, &crew->scheduler, false);
}

/* ---- barriers -------------------------------------------------------------------------------- */

struct crew *working(const char *what)
{
	if (at_work)
		return at_work;
	fprintf(stderr, "emulation: %s in a kernel launched with PP_LAUNCH_FREE: use PP_LAUNCH\n", what);
	abort();
}

/* All threads that have not ended stand at the block's barrier: let them go on. */
void release_block(struct crew *crew)
{
	if (crew->live == 0 || crew->at_barrier < crew->live)
		return;
	crew->at_barrier = 0;
	for (uint32_t i = 0; i < crew->count; i++)
		if (crew->fibers[i].wait == BLOCK_BARRIER)
			crew->fibers[i].wait = READY;
}

void check_mask(const struct crew *crew, uint32_t mask)
{
	uint32_t warp = crew->current / WARP, lanes = crew->count - warp * WARP;
	if (!(mask >> crew->current % WARP & 1))
		stop(crew->kernel_name, "a thread shuffles or synchronises with a mask that lacks its own lane");
	if (lanes < WARP && mask >> lanes)
		stop(crew->kernel_name, "a mask names lanes that the block does not have");
	if (mask & crew->ended[warp])
		stop(crew->kernel_name, "a mask names a lane whose thread has ended");
}

/* What one lane takes away when all of the mask are there. */
void hand_over(struct fiber *warp, struct fiber *to, uint32_t votes)
{
	const struct handover *handover = &to->handover;
	switch (handover->kind) {
	case handover::NOTHING:
		return;
	case handover::VOTE:
		memcpy(handover->result, &votes, sizeof votes);
		return;
	case handover::SHUFFLE:
		if (to->mask >> (handover->source % WARP) & 1)
			memcpy(handover->result, warp[handover->source % WARP].handover.value, handover->bytes);
		else
			memset(handover->result, 0xff, handover->bytes); /* a lane outside the mask has nothing to give */
		return;
	}
}

/* True: this was the last lane of the mask to arrive; values have been exchanged and all are ready. */
bool release_warp(struct crew *crew, uint32_t mask)
{
	uint32_t number = crew->current / WARP, votes = 0;
	struct fiber *warp = &crew->fibers[number * WARP];
	if ((crew->waiting[number] & mask) != mask)
		return false;
	for (uint32_t lane = 0; lane < WARP; lane++) {
		if (!(mask >> lane & 1))
			continue;
		if (warp[lane].mask != mask)
			return false;
		votes |= (uint32_t)warp[lane].handover.predicate << lane;
	}
	for (uint32_t lane = 0; lane < WARP; lane++) {
		if (!(mask >> lane & 1))
			continue;
		hand_over(warp, &warp[lane], votes);
		warp[lane].wait = READY;
	}
	crew->waiting[number] &= ~mask;
	return true;
}

void arrive(uint32_t mask, const struct handover &handover)
{
	struct crew *crew = working("a warp barrier, shuffle or vote");
	check_mask(crew, mask);
	struct fiber *self = &crew->fibers[crew->current];
	self->mask = mask;
	self->handover = handover;
	self->wait = WARP_BARRIER;
	crew->waiting[crew->current / WARP] |= 1U << crew->current % WARP;
	if (!release_warp(crew, mask))
		switch_to(self, &crew->scheduler, false);
}

/* ---- a block ---------------------------------------------------------------------------------- */

struct place place_of(const struct grid *grid, uint64_t block, uint32_t number)
{
	const dim3 &b = grid->blocks, &t = grid->threads;
	struct place place;
	place.thread = make_uint3(number % t.x, number / t.x % t.y, number / t.x / t.y);
	place.block = make_uint3((unsigned)(block % b.x), (unsigned)(block / b.x % b.y), (unsigned)(block / b.x / b.y));
	place.block_size = t;
	place.grid_size = b;
	place.number = number;
	return place;
}

[[noreturn]] void explain(const struct crew *crew)
{
	static const char *const where[] = {"is ready", "waits at __syncthreads", "waits in its warp", "has ended"};
	fprintf(stderr, "emulation: kernel %s: no thread of the block can go on\n", crew->kernel_name);
	for (uint32_t i = 0; i < crew->count; i++) {
		const struct fiber *fiber = &crew->fibers[i];
		if (i > 0 && fiber->wait == fiber[-1].wait && fiber->mask == fiber[-1].mask)
			continue;
		fprintf(stderr, "  from thread %u on: %s", i, where[fiber->wait]);
		fprintf(stderr, fiber->wait == WARP_BARRIER ? ", mask %08x\n" : "\n", fiber->mask);
	}
	abort();
}

void run_fibers(struct crew *crew, const struct grid *grid, uint64_t block)
{
	crew->count = crew->live = grid->threads.x * grid->threads.y * grid->threads.z;
	crew->at_barrier = 0;
	memset(crew->waiting, 0, sizeof crew->waiting);
	memset(crew->ended, 0, sizeof crew->ended);
	const uint64_t intact = CANARY;
	for (uint32_t i = 0; i < crew->count; i++) {
		struct fiber *fiber = &crew->fibers[i];
		fiber->place = place_of(grid, block, i);
		fiber->wait = READY;
		memcpy(fiber->stack, &intact, sizeof intact);
		prepare(fiber);
#if defined(__SANITIZE_ADDRESS__)
		fiber->bottom = fiber->stack;
		fiber->stack_bytes = STACK;
#endif
#if defined(__SANITIZE_THREAD__)
		if (!fiber->sanitizer)
			fiber->sanitizer = __tsan_create_fiber(0);
#endif
	}
	for (uint64_t pass = 0; crew->live > 0; pass++) {
		struct sequence order(grid->order, mix(grid->seed ^ block) + pass, crew->count);
		bool moved = false;
		for (uint32_t i = 0; i < crew->count; i++) {
			crew->current = (uint32_t)order[i];
			struct fiber *fiber = &crew->fibers[crew->current];
			if (fiber->wait != READY)
				continue;
			here = &fiber->place;
			switch_to(&crew->scheduler, fiber, false);
			moved = true;
			if (memcmp(fiber->stack, &intact, sizeof intact) != 0)
				stop(grid->name, "a thread needed more stack than the emulation gives it");
			if (fiber->wait == ENDED || fiber->wait == BLOCK_BARRIER)
				release_block(crew);
		}
		if (!moved)
			explain(crew);
	}
}

void run_plain(const struct grid *grid, uint64_t block, void (*kernel)(void *), void *arguments)
{
	uint32_t count = grid->threads.x * grid->threads.y * grid->threads.z;
	struct sequence order(grid->order, mix(grid->seed ^ block), count);
	for (uint32_t i = 0; i < count; i++) {
		struct place place = place_of(grid, block, (uint32_t)order[i]);
		here = &place;
		kernel(arguments);
	}
	here = NULL;
}

} /* namespace */

/* ---- what the header declares ----------------------------------------------------------------- */

void meet_block(void)
{
	struct crew *crew = working("__syncthreads");
	crew->at_barrier++;
	pause_fiber(crew, BLOCK_BARRIER);
}

void meet_warp(uint32_t mask)
{
	arrive(mask, {handover::NOTHING, 0, 0, NULL, NULL, false});
}

void exchange(uint32_t mask, const void *value, void *result, uint32_t source, uint32_t bytes)
{
	arrive(mask, {handover::SHUFFLE, source, bytes, value, result, false});
}

uint32_t vote(uint32_t mask, bool predicate)
{
	uint32_t votes = 0;
	arrive(mask, {handover::VOTE, 0, sizeof votes, NULL, &votes, predicate});
	return votes;
}

struct grid grid_make(const char *name, dim3 blocks, dim3 threads, uint64_t shared_bytes, bool meets)
{
	static std::atomic<uint64_t> launches;
	struct settings &settings = process();
	uint64_t seed = mix(settings.seed.load() + launches.fetch_add(1));
	return {name, blocks, threads, shared_bytes, meets, (enum pp_emulation_order)settings.order.load(), seed};
}

void allow_shared(const void *kernel, uint64_t bytes)
{
	struct allowances &all = allowed();
	std::lock_guard<std::mutex> guard(all.lock);
	all.kernels.insert({kernel, bytes});
}

void check_shared(const struct grid *grid, const void *kernel)
{
	int limit = 0;
	if (grid->shared_bytes <= STATIC_LIMIT)
		return;
	(void)cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
	if (grid->shared_bytes > (uint64_t)limit)
		stop(grid->name, "the launch asks for more shared memory than a block of this device has");
	struct allowances &all = allowed();
	std::lock_guard<std::mutex> guard(all.lock);
	auto found = all.kernels.lower_bound({kernel, grid->shared_bytes});
	if (found == all.kernels.end() || found->first != kernel)
		stop(grid->name, "more than 48 KiB of shared memory have to be asked for with PP_ALLOW_SHARED");
}

void run(const struct grid *grid, void (*kernel)(void *), void *arguments)
{
	uint64_t blocks = (uint64_t)grid->blocks.x * grid->blocks.y * grid->blocks.z;
	uint64_t threads = (uint64_t)grid->threads.x * grid->threads.y * grid->threads.z;
	if (blocks == 0 || threads == 0 || threads > THREADS)
		stop(grid->name, "no device has such a grid or block");
	struct sequence order(grid->order, mix(grid->seed + 1), blocks);
	uint64_t rounded = (grid->shared_bytes + 127) / 128 * 128;
	unsigned char *shared = NULL;
	if (rounded && !(shared = static_cast<unsigned char *>(aligned_alloc(128, rounded))))
		stop(grid->name, "no memory for its shared memory");
	dynamic_shared = shared;
	struct crew *crew = grid->meets ? &own_crew() : NULL;
	at_work = crew;
	if (crew) {
		crew->kernel_name = grid->name;
		crew->kernel = kernel;
		crew->arguments = arguments;
#if defined(__SANITIZE_THREAD__)
		crew->scheduler.sanitizer = __tsan_get_current_fiber();
#endif
	}
	for (uint64_t i = 0; i < blocks; i++) {
		if (shared)
			memset(shared, 0xff, rounded);
		if (crew)
			run_fibers(crew, grid, order[i]);
		else
			run_plain(grid, order[i], kernel, arguments);
	}
	at_work = NULL;
	here = NULL;
	dynamic_shared = NULL;
	free(shared);
}

} /* namespace pp_emulation */

extern "C" void pp_emulation_set_order(enum pp_emulation_order order, uint64_t seed)
{
	pp_emulation::process().order = order;
	pp_emulation::process().seed = seed;
}
