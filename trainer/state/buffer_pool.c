/* SPDX-License-Identifier: Apache-2.0 */
/* A buffer is a memory file that holds the arenas one after the other. What this rank does not save
 * is mapped from the first buffer into all others. */
#include "config.h"
#include "trainer/state/buffer_pool.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trainer/state/prefault.h"

static struct adamw_state arenas_of(const struct buffer_pool *pool, int buffer)
{
	float *base = pool->state->memory.base[buffer];
	size_t elements = pool->state->tensors->elements;
	return (struct adamw_state) { base, base + elements, base + 2 * elements };
}

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* Maps bytes [from, to) of the first buffer into this one, as far as they fill whole pages. A page
 * that holds some of this part stays the buffer's own; that is right, since an update writes the
 * whole buffer. */
static int share(const struct snapshot_memory *memory, int buffer, size_t from, size_t to,
	struct err *err)
{
	size_t page = page_size();
	from = (from + page - 1) / page * page;
	to = to / page * page;
	if (from >= to)
		return 0;
	void *at = (char *)memory->base[buffer] + from;
	if (mmap(at, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->fd[0],
			(off_t)from)
		== MAP_FAILED)
		return err_set(err, "memory: couldn't map %zu MB of the state a second time: %m",
			(to - from) >> 20);
	return 0;
}

static int share_rest(const struct snapshot_memory *memory, int buffer, const struct layout *layout,
	struct err *err)
{
	size_t end = 0; /* end of the previous kept run */
	for (size_t s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = 0; i < layout->kept_count[s]; i++) {
			size_t arena = s * layout_arena(layout);
			if (share(memory, buffer, end, arena + layout->kept[s][i].first * sizeof(float), err)
				< 0)
				return -1;
			end = arena + layout->kept[s][i].end * sizeof(float);
		}
	return share(memory, buffer, end, memory->bytes, err);
}

/* Prefaults the pages, so that the first update that writes them takes no page faults. */
static void prefault_own(const struct snapshot_memory *memory, int buffer,
	const struct layout *layout)
{
	for (size_t s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = 0; i < layout->kept_count[s]; i++)
			prefault((char *)memory->base[buffer] + s * layout_arena(layout)
					+ layout->kept[s][i].first * sizeof(float),
				(layout->kept[s][i].end - layout->kept[s][i].first) * sizeof(float));
}

static void make_there(struct buffer_pool *pool, int buffer)
{
	for (; pool->there <= buffer; pool->there++)
		prefault_own(&pool->state->memory, pool->there, pool->layout);
}

int buffer_pool_start(struct buffer_pool *pool, struct state *state, const struct layout *layout,
	int sets, struct err *err)
{
	struct snapshot_memory *memory = &state->memory;
	*pool = (struct buffer_pool) { .state = state, .layout = layout, .there = 1 };
	if (snapshot_memory_extend(memory, sets, err) < 0)
		return -1;
	for (int buffer = 1; buffer < sets; buffer++)
		if (share_rest(memory, buffer, layout, err) < 0)
			return -1;
	make_there(pool, 1);
	return 0;
}

bool buffer_pool_is_there(const struct buffer_pool *pool, int buffer)
{
	return buffer < pool->there;
}

int buffer_pool_live(const struct buffer_pool *pool)
{
	int buffer = 0;
	while (pool->state->memory.base[buffer] != pool->state->weights)
		buffer++;
	return buffer;
}

void buffer_pool_switch(struct buffer_pool *pool, int buffer)
{
	make_there(pool, buffer);
	pool->state->next = arenas_of(pool, buffer);
}

void buffer_pool_stop(struct buffer_pool *pool)
{
	if (pool->state)
		state_free(pool->state);
}
