/* SPDX-License-Identifier: Apache-2.0 */
/* zero_runs: what is packed comes back, never takes more than its bound, and is short for what it is there for: the addresses of
 * a large world over Gloo, in one value of the rendezvous. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "common/zero_runs.h"

#define RANKS 2000
#define VALUE_MAX (64 << 10) /* of the rendezvous */

/* What Gloo (2022-05) calls an address. */
struct address {
	struct sockaddr_storage place;
	uint64_t number;
};

/* In memory of exactly the sizes that it needs. Returns the packed size. */
static size_t there_and_back(const void *bytes, size_t size)
{
	unsigned char *packed = malloc(zero_runs_bound(size) + 1), *back = malloc(size + 1);
	size_t used = zero_runs_pack(bytes, size, packed);
	assert_true(used <= zero_runs_bound(size));
	assert_int_equal(zero_runs_size(packed, used), size);
	zero_runs_unpack(packed, used, back);
	assert_memory_equal(back, bytes, size);
	free(packed);
	free(back);
	return used;
}

static void the_addresses_of_a_large_world(void **state)
{
	static struct address four[RANKS], six[RANKS];
	for (int i = 0; i < RANKS; i++) {
		struct sockaddr_in *a = (struct sockaddr_in *)&four[i].place;
		struct sockaddr_in6 *b = (struct sockaddr_in6 *)&six[i].place;
		*a = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)(32768 + i)),
			.sin_addr.s_addr = htonl(0x0a4d0102) };
		*b = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)(32768 + i)) };
		inet_pton(AF_INET6, "fd12:3456:789a::42", &b->sin6_addr);
		four[i].number = six[i].number = (uint64_t)i;
	}
	assert_true(there_and_back(four, sizeof four) < VALUE_MAX - 1000);
	assert_true(there_and_back(six, sizeof six) < VALUE_MAX - 1000);
}

static void whatever_the_bytes(void **state)
{
	static unsigned char bytes[1500];
	srand(1);
	assert_int_equal(there_and_back(bytes, 0), 0);
	for (size_t size = 1; size < sizeof bytes; size += 7)
		for (int zeros = 0; zeros < 5; zeros++) {
			for (size_t i = 0; i < size; i++)
				bytes[i] = rand() % 4 < zeros ? 0 : (unsigned char)rand();
			there_and_back(bytes, size);
		}
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = i % 2 ? 0 : 1;
	there_and_back(bytes, sizeof bytes);
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = i % 3 ? 0 : 1;
	there_and_back(bytes, sizeof bytes);
}

static void what_is_cut_off_is_none(void **state)
{
	static const unsigned char packed[] = { 3, 2, 'a', 'b', 0, 1, 'c' };
	assert_int_equal(zero_runs_size(packed, 7), 6);
	assert_int_equal(zero_runs_size(packed, 4), 5);
	for (size_t size = 1; size < sizeof packed; size++)
		if (size != 4)
			assert_int_equal(zero_runs_size(packed, size), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_addresses_of_a_large_world),
		cmocka_unit_test(whatever_the_bytes),
		cmocka_unit_test(what_is_cut_off_is_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
