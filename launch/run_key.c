/* SPDX-License-Identifier: Apache-2.0 */
/* Ports and keys from values that every rank knows. */
#include "launch/run_key.h"

#include <string.h>
#include <sys/random.h>

#include "common/bytes.h"

/* Below the range from which Linux takes ephemeral ports. */
#define PORT_FIRST 20000
#define PORT_COUNT 12000

uint64_t run_number(const char *text)
{
	return hash_bytes(text, strlen(text)).low;
}

int run_port(uint64_t run, int place)
{
	return PORT_FIRST + (int)((run + (uint64_t)place) % PORT_COUNT);
}

int run_key_read(const char *digits, unsigned char key[16], struct err *err)
{
	struct hash128 value;
	if (hash_parse(digits, &value) < 0)
		return err_fail(err, EXIT_USAGE,
			"rendezvous: couldn't use " RUN_KEY
			": set it to 32 lower-case hexadecimal digits, or unset it");
	bytes_put_le64(key, value.low);
	bytes_put_le64(key + 8, value.high);
	return 0;
}

int run_key_draw(unsigned char key[16], char digits[HASH_HEX_SIZE], struct err *err)
{
	struct hash128 random;
	if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
		return err_set(err, "no random bits: %m");
	return run_key_read(hash_hex(random, digits), key, err);
}
