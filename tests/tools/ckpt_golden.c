/* SPDX-License-Identifier: Apache-2.0 */
/* Saves the sample state (ckpt_sample.h) by several writers in small shards: how golden checkpoints
 * are made. ckpt_golden DIR STEP PARTS SHARD-SIZE [state] */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/save/ckpt_save.h"
#include "tests/tools/ckpt_sample.h"

#define PARTS_MAX 16

static int fail(const struct err *err)
{
	fprintf(stderr, "ckpt_golden: %s\n", err->text);
	return (int)err->status;
}

int main(int argc, char **argv)
{
	struct ckpt_dir dir;
	struct owner owner = { .cluster = "golden", .job = 1 };
	struct ckpt_sample sample;
	struct err err;
	char *texts[PARTS_MAX];
	size_t sizes[PARTS_MAX];
	int parts = argc >= 5 ? atoi(argv[3]) : 0;
	bool with_state = argc == 6 && strcmp(argv[5], "state") == 0;
	if (argc > 5 + with_state || parts < 1 || parts > PARTS_MAX) {
		fprintf(stderr, "usage: ckpt_golden DIR STEP PARTS SHARD-SIZE [state]\n");
		return EXIT_USAGE;
	}
	if (ckpt_dir_open(&dir, argv[1], &err) < 0
		|| owner_claim(&dir, &owner, NULL, NULL, 10, &err) < 0)
		return fail(&err);
	for (int part = 0; part < parts; part++) {
		ckpt_sample_fill(&sample, atoll(argv[2]));
		if (with_state)
			ckpt_sample_add_state(&sample);
		ckpt_sample_part(&sample, part, parts, strtoull(argv[4], NULL, 10));
		if (ckpt_save_part(&dir, &sample.snapshot, owner.token, NULL, &texts[part], &sizes[part],
				NULL, &err)
			< 0)
			return fail(&err);
	}
	if (ckpt_commit(&dir, atoll(argv[2]), owner.token, parts, texts, sizes, NULL, &err) < 0)
		return fail(&err);
	for (int part = 0; part < parts; part++)
		free(texts[part]);
	ckpt_dir_close(&dir);
	return 0;
}
