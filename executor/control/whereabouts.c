/* Writing and reading positions.
 *
 * Ensures: a reader sees a whole text or, when the owner was lost while writing one, what it found. */
#include "whereabouts.h"

#include "executor/clock.h"

#include <string.h>

enum { TRIES = 1000 };

void pp_whereabouts_doing(struct pp_whereabouts *whereabouts, const char *text)
{
	uint64_t words[PP_DOING_WORDS] = {0};
	size_t length = strlen(text);
	memcpy(words, text, length < PP_DOING_BYTES ? length : PP_DOING_BYTES - 1);
	uint32_t changes = atomic_load_explicit(&whereabouts->changes, memory_order_relaxed);
	atomic_store(&whereabouts->changes, changes | 1);
	for (int i = 0; i < PP_DOING_WORDS; i++)
		atomic_store_explicit(&whereabouts->doing[i], words[i], memory_order_relaxed);
	atomic_store(&whereabouts->changes, (changes | 1) + 1);
	atomic_store_explicit(&whereabouts->waiting, 0, memory_order_relaxed);
}

static void read_doing(const struct pp_whereabouts *whereabouts, struct pp_seen *place)
{
	for (int i = 0; i < TRIES; i++) {
		uint64_t words[PP_DOING_WORDS];
		place->changes = atomic_load(&whereabouts->changes);
		for (int k = 0; k < PP_DOING_WORDS; k++)
			words[k] = atomic_load_explicit(&whereabouts->doing[k], memory_order_relaxed);
		memcpy(place->doing, words, sizeof words);
		place->doing[PP_DOING_BYTES - 1] = '\0';
		atomic_thread_fence(memory_order_acquire);
		if (place->changes % 2 == 0 && place->changes == atomic_load(&whereabouts->changes))
			return;
	}
}

struct pp_seen pp_whereabouts_read(const struct pp_whereabouts *whereabouts)
{
	/* A rank posts before it goes on to the next instruction: read in the other order, posts are never too few. */
	struct pp_seen place = {.step = atomic_load(&whereabouts->step), .index = atomic_load(&whereabouts->index)};
	place.posts = atomic_load(&whereabouts->posts);
	place.batch = atomic_load(&whereabouts->batch);
	place.program = atomic_load(&whereabouts->program);
	place.stretch = atomic_load(&whereabouts->stretch);
	place.work = atomic_load(&whereabouts->work);
	uint64_t since = atomic_load(&whereabouts->waiting), now = pp_clock();
	place.waited = since && now > since ? now - since : 0;
	read_doing(whereabouts, &place);
	return place;
}

bool pp_seen_moved(const struct pp_seen *before, const struct pp_seen *now)
{
	return before->step != now->step || before->batch != now->batch || before->index != now->index ||
	       before->posts != now->posts || before->program != now->program || before->stretch != now->stretch ||
	       before->changes != now->changes || before->work != now->work;
}
