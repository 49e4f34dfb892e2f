/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder lives only while it writes, since it holds the weights once more. */
#include "config.h"

#include "trainer/run/sample_text.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "trainer/generate/continuation.h"
#include "trainer/generate/one_line.h"
#include "trainer/generate/spelling.h"
#include "trainer/run/arena_source.h"

/* The defaults of muster-generate. */
static const struct token_choice choice = { .temperature = 0.8, .top_p = 0.95, .seed = 1 };

struct sample_text {
	const struct model *model;
	struct gpt2_config config;
	struct spelling *spelling;
	struct token_list prompt;
	bool shows_prompt; /* one was given */
	size_t tokens;
};

/* The same as a checkpoint of the model says. */
static int read_config(struct sample_text *sample, struct err *err)
{
	AUTO_FREE char *json = model_config_json(sample->model);
	return json ? gpt2_config_parse(json, strlen(json), &sample->config, err)
				: err_set(err, "sample: out of memory");
}

static int read_prompt(struct sample_text *sample, const char *prompt, struct err *err)
{
	const char *text = prompt ? prompt : "";
	if (spelling_encode(sample->spelling, text, strlen(text), &sample->prompt, err) < 0)
		return err_prefix(err, "--sample-prompt");
	sample->shows_prompt = sample->prompt.count > 0;
	const int32_t first = continuation_first(&sample->config);
	return sample->shows_prompt ? 0 : token_list_append(&sample->prompt, &first, 1, err);
}

struct sample_text *sample_text_open(const struct settings *settings, const struct model *model,
	struct err *err)
{
	struct sample_text *sample = calloc(1, sizeof *sample);
	if (!sample) {
		err_set(err, "sample: out of memory");
		return NULL;
	}
	*sample = (struct sample_text) { .model = model, .tokens = (size_t)settings->sample_tokens };
	if (read_config(sample, err) == 0)
		sample->spelling = spelling_open(settings->tokenizer, settings->ckpt_dir,
			sample->config.vocabulary, ", or leave --sample-every out", err);
	if (sample->spelling && read_prompt(sample, settings->sample_prompt, err) == 0)
		return sample;
	sample_text_close(sample);
	return NULL;
}

void sample_text_close(struct sample_text *sample)
{
	if (!sample)
		return;
	spelling_close(sample->spelling);
	free(sample->prompt.ids);
	free(sample);
}

struct writer {
	const struct spelling *spelling;
	FILE *out;
};

static int add_token(void *arg, int32_t token, struct err *err)
{
	const struct writer *writer = arg;
	size_t size;
	const char *bytes = spelling_bytes(writer->spelling, token, &size);
	(void)err;
	if (bytes)
		fwrite(bytes, 1, size, writer->out);
	return 0;
}

static int write_text(const struct sample_text *sample, struct decoder *decoder, FILE *out,
	struct err *err)
{
	struct writer writer = { sample->spelling, out };
	struct token_list tokens = { 0 };
	int rc = token_list_append(&tokens, sample->prompt.ids, sample->prompt.count, err);
	for (size_t i = 0; sample->shows_prompt && i < sample->prompt.count; i++)
		add_token(&writer, sample->prompt.ids[i], err);
	if (rc == 0)
		rc = continuation_write(decoder, &choice, 0, &tokens, sample->tokens, add_token, &writer,
			err);
	free(tokens.ids);
	return rc;
}

static int make_line(const struct sample_text *sample, struct decoder *decoder, char **line,
	struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	const int rc = out ? write_text(sample, decoder, out, err) : 0;
	const bool complete = out && fclose(out) == 0;
	if (rc < 0)
		return -1;
	*line = complete ? one_line(text, size) : NULL;
	return *line ? 0 : err_set(err, "out of memory");
}

int sample_text_write(const struct sample_text *sample, struct device *device, const float *weights,
	char **line, struct err *err)
{
	struct model_source *source =
		arena_source_open(&sample->config, model_tensors(sample->model), device, weights);
	if (!source)
		return err_set(err, "out of memory");
	struct decoder *decoder = decoder_open(source, false, err);
	source->close(source);
	const int rc = decoder ? make_line(sample, decoder, line, err) : -1;
	decoder_close(decoder);
	return rc;
}
