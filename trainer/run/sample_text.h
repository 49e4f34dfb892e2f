/* SPDX-License-Identifier: Apache-2.0 */
/* A line of text that the model writes in the middle of its training. */
#ifndef MUSTER_SAMPLE_TEXT_H
#define MUSTER_SAMPLE_TEXT_H

#include "common/err.h"
#include "trainer/model/model.h"
#include "trainer/ops/device.h"
#include "trainer/run/settings.h"

struct sample_text;

/* Makes tokens of --sample-prompt. NULL on error; EXIT_USAGE where the prompt or the tokenizer does
 * not fit the model. Borrows the model. */
struct sample_text *sample_text_open(const struct settings *settings, const struct model *model,
	struct err *err);

/* `sample` may be NULL. */
void sample_text_close(struct sample_text *sample);

/* Lets the model with these weights, which lie in the device's memory, go on from the prompt.
 * *line, malloc'ed, is the prompt and the text as one line: that of muster-generate with the same
 * weights, prompt and number of tokens. The bits of the line depend on nothing else. */
int sample_text_write(const struct sample_text *sample, struct device *device, const float *weights,
	char **line, struct err *err);

#endif
