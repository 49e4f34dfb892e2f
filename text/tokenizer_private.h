/* SPDX-License-Identifier: Apache-2.0 */
/* What a tokenizer.json becomes; shared by its reader and the encoder. */
#ifndef MUSTER_TOKENIZER_PRIVATE_H
#define MUSTER_TOKENIZER_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/bpe.h"
#include "text/text_split.h"
#include "text/tokenizer.h"

/* A token that is looked for in the text itself. */
struct added {
	char *text;
	size_t size;
	int32_t id;
	bool normalized; /* looked for after the normalisation */
};

struct tokenizer {
	struct bpe *bpe;
	struct text_split *split;
	bool nfc;
	struct added *added;
	size_t added_count;
	bool first[2][256]; /* [normalized]: the first bytes of added tokens */
	bool can_cut;       /* pattern and added tokens are such that tokenizer_cut knows a place */
};

#endif
