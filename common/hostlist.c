/* SPDX-License-Identifier: Apache-2.0 */
/* Host lists come from the environment and may hold anything, so at most HOSTS_MAX names are
 * considered: more than a Slurm cluster has nodes. */
#include "common/hostlist.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define HOSTS_MAX (1L << 17)
#define NAME_SIZE 256

struct range {
	long first, last;
	int width; /* digits of the first number */
};

static int read_number(const char **at, const char *end, long *value)
{
	const char *start = *at;
	*value = 0;
	for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
		*value = *value * 10 + (**at - '0');
		if (*at - start >= 15)
			return -1;
	}
	return (int)(*at - start);
}

/* Parses the range at *at and moves *at past it and its comma. */
static int read_range(const char **at, const char *end, struct range *range)
{
	range->width = read_number(at, end, &range->first);
	range->last = range->first;
	if (range->width <= 0)
		return -1;
	if (*at < end && **at == '-') {
		++*at;
		if (read_number(at, end, &range->last) <= 0 || range->last < range->first)
			return -1;
	}
	if (*at == end)
		return 0;
	return *(*at)++ == ',' && *at < end ? 0 : -1;
}

/* The count of numbers between two brackets; -1 if malformed. Number `index` of them is printed to
 * `out`, unless that is NULL; `out` has room for any number. */
static long read_bracket(const char *at, const char *end, long index, char *out)
{
	long count = 0;
	struct range range;
	do {
		if (read_range(&at, end, &range) < 0)
			return -1;
		long size = range.last - range.first + 1;
		if (out && index >= count && index - count < size)
			sprintf(out, "%0*ld", range.width, range.first + index - count);
		count += size;
	} while (at < end && count <= HOSTS_MAX);
	return count <= HOSTS_MAX ? count : -1;
}

/* The end of the item at `at`: a comma outside brackets, or the end of the list. */
static const char *item_end(const char *at)
{
	for (bool inside = false; *at && (inside || *at != ','); at++)
		inside = *at == '[' || (inside && *at != ']');
	return at;
}

/* How many names an item denotes; -1 if it is malformed. */
static long item_count(const char *at, const char *end)
{
	long count = at < end ? 1 : -1;
	for (; count > 0 && at < end; at++) {
		if (*at == ']')
			return -1;
		if (*at != '[')
			continue;
		const char *close = memchr(at, ']', (size_t)(end - at));
		long here = close ? read_bracket(at + 1, close, 0, NULL) : -1;
		if (here < 0 || here * count > HOSTS_MAX)
			return -1;
		count *= here;
		at = close;
	}
	return count;
}

/* Name `index` of the `count` names of a well-formed item. The last of several brackets varies
 * fastest. */
static int item_name(const char *at, const char *end, long index, long count, char *out,
	size_t size)
{
	size_t length = 0;
	for (; at < end; at++) {
		char piece[32] = { *at };
		if (*at == '[') {
			const char *close = memchr(at, ']', (size_t)(end - at));
			count /= read_bracket(at + 1, close, 0, NULL);
			/* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): no bracket of an item is empty */
			read_bracket(at + 1, close, index / count, piece);
			index %= count;
			at = close;
		}
		size_t more = strlen(piece);
		if (length + more >= size)
			return -1;
		memcpy(out + length, piece, more);
		length += more;
	}
	out[length] = '\0';
	return 0;
}

int hostlist_nth(const char *list, long index, char *out, size_t size)
{
	while (index >= 0 && *list) {
		const char *end = item_end(list);
		long count = item_count(list, end);
		if (count < 0)
			return -1;
		if (index < count)
			return item_name(list, end, index, count, out, size);
		index -= count;
		list = *end ? end + 1 : end;
	}
	return -1;
}

/* The place of these digits among the numbers between two brackets; -1 if they are not there. */
static long place_in_bracket(const char *at, const char *end, const char *digits, int length)
{
	const char *rest = digits;
	struct range range;
	long value, count = 0;
	if (length <= 0 || read_number(&rest, digits + length, &value) != length)
		return -1;
	while (at < end && read_range(&at, end, &range) == 0) {
		bool alike = length == range.width || (length > range.width && digits[0] != '0');
		if (alike && value >= range.first && value <= range.last)
			return count + value - range.first;
		count += range.last - range.first + 1;
	}
	return -1;
}

/* The place of a name among the `count` names of a well-formed item; -1 if it is not there. */
static long item_find(const char *at, const char *end, long count, const char *name)
{
	char candidate[NAME_SIZE];
	const char *open = memchr(at, '[', (size_t)(end - at)),
			   *close = open ? memchr(open, ']', (size_t)(end - open)) : NULL;
	if (open && !memchr(close, '[', (size_t)(end - close))) {
		/* Lists of thousands of nodes have this form: don't generate their names one by one. */
		size_t before = (size_t)(open - at), after = (size_t)(end - close - 1),
			   length = strlen(name);
		if (length < before + after || strncmp(name, at, before) != 0
			|| strncmp(name + length - after, close + 1, after) != 0)
			return -1;
		return place_in_bracket(open + 1, close, name + before, (int)(length - before - after));
	}
	for (long i = 0; i < count; i++)
		if (item_name(at, end, i, count, candidate, sizeof candidate) == 0
			&& strcmp(candidate, name) == 0)
			return i;
	return -1;
}

long hostlist_find(const char *list, const char *name)
{
	long place = 0;
	if (strlen(name) >= NAME_SIZE)
		return -1;
	while (*list) {
		const char *end = item_end(list);
		long count = item_count(list, end);
		if (count < 0 || place + count > HOSTS_MAX)
			return -1;
		long found = item_find(list, end, count, name);
		if (found >= 0)
			return place + found;
		place += count;
		list = *end ? end + 1 : end;
	}
	return -1;
}
