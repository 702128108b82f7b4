/* String interning (open addressing, FNV-1a) and the did-you-mean distance. */
#include "str.h"

#include "hash.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct entry {
	const char *text;
	size_t length;
	uint64_t hash;
};

struct pp_strtab {
	struct pp_arena *arena;
	struct entry *entries;
	size_t count, capacity; /* capacity is a power of two */
};

struct pp_strtab *pp_strtab_create(struct pp_arena *arena)
{
	struct pp_strtab *table = PP_NEW(arena, struct pp_strtab);
	table->arena = arena;
	table->capacity = 64;
	table->entries = PP_NEW_ARRAY(arena, struct entry, table->capacity);
	return table;
}

static struct entry *find(struct entry *entries, size_t capacity, const char *text, size_t length, uint64_t hash)
{
	size_t at = (size_t)hash & (capacity - 1);
	while (entries[at].text &&
	       !(entries[at].hash == hash && entries[at].length == length && memcmp(entries[at].text, text, length) == 0))
		at = (at + 1) & (capacity - 1);
	return &entries[at];
}

static void rehash(struct pp_strtab *table)
{
	size_t capacity = table->capacity * 2;
	struct entry *entries = PP_NEW_ARRAY(table->arena, struct entry, capacity);
	for (size_t i = 0; i < table->capacity; i++) {
		const struct entry *old = &table->entries[i];
		if (old->text)
			*find(entries, capacity, old->text, old->length, old->hash) = *old;
	}
	table->entries = entries;
	table->capacity = capacity;
}

const char *pp_intern(struct pp_strtab *table, const char *text, size_t length)
{
	uint64_t hash = pp_hash_bytes(text, length);
	struct entry *entry = find(table->entries, table->capacity, text, length, hash);
	if (entry->text)
		return entry->text;
	if (table->count * 2 >= table->capacity) {
		rehash(table);
		entry = find(table->entries, table->capacity, text, length, hash);
	}
	entry->text = pp_arena_copy(table->arena, text, length);
	entry->length = length;
	entry->hash = hash;
	table->count++;
	return entry->text;
}

const char *pp_intern_z(struct pp_strtab *table, const char *text)
{
	return pp_intern(table, text, strlen(text));
}

enum { LONGEST = 48 }; /* longer words get no suggestion */

static unsigned least(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;
	return m < c ? m : c;
}

/* Levenshtein distance with neighbouring swaps, times two; a case difference costs one. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[3][LONGEST + 1] = {{0}};
	size_t la = strlen(a), lb = strlen(b);
	for (size_t j = 0; j <= lb; j++)
		row[0][j] = (unsigned)(2 * j);
	for (size_t i = 1; i <= la; i++) {
		unsigned *now = row[i % 3], *up = row[(i + 2) % 3], *upup = row[(i + 1) % 3];
		now[0] = (unsigned)(2 * i);
		for (size_t j = 1; j <= lb; j++) {
			unsigned char x = (unsigned char)a[i - 1], y = (unsigned char)b[j - 1];
			unsigned swap = x == y ? 0 : tolower(x) == tolower(y) ? 1 : 2;
			now[j] = least(up[j] + 2, now[j - 1] + 2, up[j - 1] + swap);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && upup[j - 2] + 2 < now[j])
				now[j] = upup[j - 2] + 2;
		}
	}
	return row[la % 3][lb];
}

/* Lower is nearer: the distance first, then what decides a tie. */
static unsigned remoteness(const char *word, size_t length, const char *candidate)
{
	unsigned d = distance(word, candidate);
	bool begins = length >= 3 && strncmp(word, candidate, length) == 0;
	if (begins && d > 2)
		d = 2;
	bool ends = *candidate && candidate[strlen(candidate) - 1] == word[length - 1];
	return 4 * d + (begins ? 0 : ends ? 1 : 2);
}

const char *pp_nearest(const char *word, const char *const *candidates, size_t count)
{
	size_t length = strlen(word);
	if (length == 0 || length > LONGEST)
		return NULL;
	unsigned limit = (unsigned)(2 * (length / 3 > 1 ? length / 3 : 1));
	const char *best = NULL;
	unsigned nearest = 4 * limit + 3;
	for (size_t i = 0; i < count; i++) {
		if (strlen(candidates[i]) > LONGEST)
			continue;
		unsigned now = remoteness(word, length, candidates[i]);
		if (now < nearest) {
			nearest = now;
			best = candidates[i];
		}
	}
	return best;
}

size_t pp_utf8_length(const char *text, size_t length)
{
	const unsigned char *byte = (const unsigned char *)text;
	size_t wanted = byte[0] < 0x80   ? 1
	                : byte[0] < 0xc2 ? 0
	                : byte[0] < 0xe0 ? 2
	                : byte[0] < 0xf0 ? 3
	                : byte[0] < 0xf5 ? 4
	                                 : 0;
	if (wanted == 0 || wanted > length)
		return 0;
	for (size_t i = 1; i < wanted; i++) {
		if ((byte[i] & 0xc0) != 0x80)
			return 0;
	}
	bool overlong = (byte[0] == 0xe0 && byte[1] < 0xa0) || (byte[0] == 0xf0 && byte[1] < 0x90);
	bool outside = (byte[0] == 0xed && byte[1] >= 0xa0) || (byte[0] == 0xf4 && byte[1] >= 0x90);
	return overlong || outside ? 0 : wanted;
}
