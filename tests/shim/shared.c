/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory: one mapping, dealt out anew in each launch. */
#include "config.h"

#include "tests/shim/shared.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, bytes) ((void)(p), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(p, bytes) ((void)(p), (void)(bytes))
#endif

#include "tests/shim/block.h"
#include "tests/shim/fiber.h"

#define ARENA_BYTES ((size_t)320 << 10)
#define ARRAYS_MOST 64
#define ALIGNMENT ((size_t)1024) /* what the tensor copies of Hopper may want */
#define GAP ((size_t)64)
#define POISON 0xff /* a NaN in fp32, bf16 and fp64; -1 in integers */

static char *arena;
static unsigned int launch;
static size_t used, static_bytes, array_count;
static struct array {
	size_t offset, bytes;
} arrays[ARRAYS_MOST]; /* the first: the dynamic one */

/* A thread of the kernel may be running: the thread sanitizer must not take this for its writing.
 */
UNWATCHED static void poison(size_t offset, size_t bytes)
{
	if (!FIBER_EACH_THREAD) {
		memset(arena + offset, POISON, bytes);
		return;
	}
	for (volatile char *p = arena + offset; p < arena + offset + bytes; p++)
		*p = (char)POISON;
}

/* Deals out `bytes`, poisoned with NaN. */
UNWATCHED static size_t deal(size_t bytes, size_t alignment)
{
	size_t offset = (used + alignment - 1) / alignment * alignment;
	used = offset + bytes + GAP;
	arrays[array_count++] = (struct array) { offset, bytes };
	ASAN_UNPOISON_MEMORY_REGION(arena + offset, bytes);
	poison(offset, bytes);
	return offset;
}

UNWATCHED void *shared_static(struct shared_site *site, size_t bytes)
{
	if (site->launch != launch) {
		static_bytes += bytes;
		if (array_count == ARRAYS_MOST || static_bytes > SHARED_STATIC_MOST
			|| static_bytes + arrays[0].bytes > SHARED_MOST)
			block_fault("declares %zu bytes of shared memory beside %zu dynamic ones: at most %zu, "
						"and %zu in all",
				static_bytes, arrays[0].bytes, SHARED_STATIC_MOST, SHARED_MOST);
		site->offset = deal(bytes, GAP);
		site->launch = launch;
	}
	return arena + site->offset;
}

UNWATCHED void *shared_dynamic(void)
{
	return arena + arrays[0].offset;
}

UNWATCHED bool shared_holds(const void *p, size_t bytes)
{
	for (size_t i = 0; i < array_count; i++) {
		const char *first = arena + arrays[i].offset;
		if ((const char *)p >= first && (const char *)p + bytes <= first + arrays[i].bytes)
			return true;
	}
	return false;
}

/* A mapping that no thread of an earlier block has touched, as the thread sanitizer sees it. */
UNWATCHED static bool map_anew(void)
{
	void *mapping = mmap(arena, ARENA_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | (arena ? MAP_FIXED : 0), -1, 0);
	if (mapping == MAP_FAILED)
		return false;
	arena = mapping;
	return true;
}

UNWATCHED int shared_launch(size_t dynamic_bytes)
{
	if (!arena && !map_anew())
		return -1;
	launch++;
	used = static_bytes = array_count = 0;
	ASAN_POISON_MEMORY_REGION(arena, ARENA_BYTES);
	deal(dynamic_bytes, ALIGNMENT);
	return 0;
}

UNWATCHED void shared_block(void)
{
	if (FIBER_EACH_THREAD)
		map_anew();
	for (size_t i = 0; i < array_count; i++)
		poison(arrays[i].offset, arrays[i].bytes);
}
