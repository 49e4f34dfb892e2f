/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the token file parser: what it accepts fills the file, and what it refuses
 * has its one line. */
#include <stdlib.h>
#include <string.h>

#include "trainer/data/token_file.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	static const char *const names[] = { "the-file.bin", "the-file.u16", "the-file" };
	for (int i = 0; i < 3; i++) {
		struct token_file file;
		struct err err = { .text = "" };
		if (token_file_parse(bytes, size, names[i], &file, &err) < 0) {
			if (err.status != EXIT_DATA || !strstr(err.text, names[i]) || strchr(err.text, '\n'))
				abort();
		} else if (file.offset + (size_t)file.width * file.tokens != size) {
			abort();
		}
	}
	return 0;
}
