/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the frames about words. The first byte is the world size; what is accepted
 * names a rank of that world and is written as it was read. */
#include <stdlib.h>
#include <string.h>

#include "launch/step_word_frame.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	unsigned char again[STEP_WORD_FRAME];
	struct step_word_frame frame;
	if (size != 1 + STEP_WORD_FRAME || !step_word_frame_read(bytes + 1, bytes[0], &frame))
		return 0;
	step_word_frame_write(again, &frame);
	if (frame.rank < -1 || frame.rank >= bytes[0] || memcmp(again, bytes + 1, sizeof again) != 0)
		abort();
	return 0;
}
