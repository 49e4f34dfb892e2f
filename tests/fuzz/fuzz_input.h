/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzzer's input, taken apart from its beginning: sizes, and runs of bytes of these sizes. */
#ifndef MUSTER_FUZZ_INPUT_H
#define MUSTER_FUZZ_INPUT_H

#include <stddef.h>

struct fuzz_input {
	const unsigned char *at;
	size_t left;
};

/* The next `want` bytes, or as many as are left: how many they are. They stay the fuzzer's. */
static inline size_t fuzz_take(struct fuzz_input *input, const unsigned char **bytes, size_t want)
{
	size_t n = want < input->left ? want : input->left;
	*bytes = input->at;
	input->at += n;
	input->left -= n;
	return n;
}

/* The next two bytes as a number, low byte first; 0 where there are not two. */
static inline size_t fuzz_take_size(struct fuzz_input *input)
{
	const unsigned char *bytes;
	return fuzz_take(input, &bytes, 2) == 2 ? bytes[0] | (size_t)bytes[1] << 8 : 0;
}

#endif
