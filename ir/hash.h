/* FNV-1a: a hash of bytes that is the same on every machine. Not against forgers. */
#ifndef PP_HASH_H
#define PP_HASH_H

#include <stddef.h>
#include <stdint.h>

#define PP_HASH_EMPTY UINT64_C(0xcbf29ce484222325) /* of no bytes */

/* The hash of what `hash` has seen, followed by these bytes. */
static inline uint64_t pp_hash_more(uint64_t hash, const void *bytes, size_t length)
{
	const unsigned char *byte = bytes;
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static inline uint64_t pp_hash_bytes(const void *bytes, size_t length)
{
	return pp_hash_more(PP_HASH_EMPTY, bytes, length);
}

#endif
