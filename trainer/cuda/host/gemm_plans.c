/* SPDX-License-Identifier: Apache-2.0 */
/* Lists a model's products, and converts their GEMM plans to and from text. */
#include "trainer/cuda/host/gemm_plans.h"

#include "trainer/cuda/kernels/head.h" /* needs no CUDA */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "muster-products "
#define NEWEST 2 /* version of the text */

static const char *const types[] = { "fp32", "bf16" }, *const modes[] = { "fp32", "tf32", "bf16" };
static const char *const epilogues[] = { "plain", "bias", "bias-gelu", "bias-relu", "gelu-grad",
	"bias-grad" };
static const char *const layouts[] = { "nn", "nt", "tn", "tt" }; /* X, then W */
static const char *const betas[] = { "set", "add" };
#define WORDS(list) (list), (int)(sizeof(list) / sizeof(list)[0])

/* ---- the list ---- */

struct list {
	enum gemm_type type;
	struct gemm *out;
	size_t count, most;
};

static void add(struct list *list, const struct gemm *gemm)
{
	for (size_t i = 0; i < list->count; i++)
		if (gemm_equal(&list->out[i], gemm))
			return;
	if (list->count < list->most)
		list->out[list->count++] = *gemm;
}

/* Adds a linear layer x[M,K] → y[M,N] and its backward passes; `before` is GELU' if a GELU made
 * x. */
static void add_linear(struct list *list, int M, int K, int N, enum gemm_epilogue epilogue,
	bool input_gradient, enum gemm_epilogue before)
{
	enum gemm_type type = list->type;
	add(list,
		&(struct gemm) { .rows = M,
			.columns = N,
			.depth = K,
			.in = type,
			.out = type,
			.epilogue = epilogue });
	if (input_gradient)
		add(list,
			&(struct gemm) { .rows = M,
				.columns = K,
				.depth = N,
				.w_transposed = true,
				.in = type,
				.out = type,
				.epilogue = before });
	for (int adds = 0; adds < 2; adds++) {
		struct gemm weight = { .rows = K,
			.columns = N,
			.depth = M,
			.x_transposed = true,
			.in = type,
			.out = GEMM_FP32,
			.adds = adds != 0 };
		add(list, &weight);
		weight.epilogue = GEMM_BIAS_GRAD;
		add(list, &weight);
	}
}

/* Adds logits[M,V] = x[M,C] · wte[V,C]ᵀ and its backward products, in chunks of rows, of which the
 * last may be shorter. */
static void add_head(struct list *list, int M, int C, int V)
{
	enum gemm_type type = list->type;
	int most = (int)head_chunk_rows((size_t)M, (size_t)V, type == GEMM_BF16 ? 2 : 4);
	for (int rows = most; rows > 0; rows = rows == most ? M % most : 0) {
		add(list,
			&(struct gemm) { .rows = rows,
				.columns = V,
				.depth = C,
				.w_transposed = true,
				.in = type,
				.out = type });
		add(list,
			&(struct gemm) { .rows = rows, .columns = C, .depth = V, .in = type, .out = type });
		for (int adds = 0; adds < 2; adds++)
			add(list,
				&(struct gemm) { .rows = V,
					.columns = C,
					.depth = rows,
					.x_transposed = true,
					.in = type,
					.out = GEMM_FP32,
					.adds = adds != 0 });
	}
}

size_t gemm_plans_of(const struct ops_shapes *shapes, enum gemm_mode mode, struct gemm *out,
	size_t most)
{
	struct list list = { .type = mode == GEMM_MODE_BF16 ? GEMM_BF16 : GEMM_FP32,
		.out = out,
		.most = most };
	int M = shapes->batch * (shapes->positions ? shapes->positions : 1), C = shapes->width,
		hidden = shapes->hidden;
	if (shapes->heads > 0) {
		add_linear(&list, M, C, 3 * C, GEMM_BIAS, true, GEMM_PLAIN);
		add_linear(&list, M, C, C, GEMM_BIAS, true, GEMM_PLAIN);
		add_linear(&list, M, C, hidden, GEMM_BIAS_GELU, true, GEMM_PLAIN);
		add_linear(&list, M, hidden, C, GEMM_BIAS, true, GEMM_GELU_GRAD);
		add_head(&list, M, C, OPS_VOCABULARY_ROWS(shapes->vocabulary));
	} else {
		add_linear(&list, M, C, hidden, GEMM_BIAS_RELU, false, GEMM_PLAIN);
		add_linear(&list, M, hidden, shapes->vocabulary, GEMM_BIAS, true, GEMM_PLAIN);
	}
	return list.count;
}

/* ---- the choices ---- */

bool gemm_equal(const struct gemm *a, const struct gemm *b)
{
	return a->rows == b->rows && a->columns == b->columns && a->depth == b->depth
		&& a->x_transposed == b->x_transposed && a->w_transposed == b->w_transposed
		&& a->in == b->in && a->out == b->out && a->epilogue == b->epilogue && a->adds == b->adds;
}

const struct gemm_choice *gemm_plans_find(const struct gemm_plans *plans, const struct gemm *gemm)
{
	for (size_t i = 0; i < plans->count; i++)
		if (gemm_equal(&plans->rows[i].gemm, gemm))
			return &plans->rows[i];
	return NULL;
}

int gemm_plans_add(struct gemm_plans *plans, const struct gemm_choice *choice, struct err *err)
{
	if (plans->count >= GEMM_PLANS_MAX)
		return err_set(err, "GEMM plans: couldn't keep more than %d of them", GEMM_PLANS_MAX);
	struct gemm_choice *rows = realloc(plans->rows, (plans->count + 1) * sizeof *rows);
	if (!rows)
		return err_set(err, "GEMM plans: out of memory");
	plans->rows = rows;
	rows[plans->count++] = *choice;
	return 0;
}

void gemm_plans_clear(struct gemm_plans *plans)
{
	free(plans->rows);
	*plans = (struct gemm_plans) { 0 };
}

static const char *layout_of(const struct gemm *gemm)
{
	return layouts[(gemm->x_transposed ? 2 : 0) + (gemm->w_transposed ? 1 : 0)];
}

char *gemm_text(const struct gemm *gemm, char *out, size_t size)
{
	snprintf(out, size, "%d x %d over %d, %s, %s to %s, %s%s", gemm->rows, gemm->columns,
		gemm->depth, layout_of(gemm), types[gemm->in], types[gemm->out], epilogues[gemm->epilogue],
		gemm->adds ? ", added" : "");
	return out;
}

/* ---- the text ---- */

/* Whether version 1 has no word for this product. If our kernel makes its epilogue, it needs none:
 * a text without its row means the same. */
static bool is_new(const struct gemm *gemm)
{
	return gemm->epilogue == GEMM_BIAS_GRAD;
}

static int version_of(const struct gemm_plans *plans)
{
	for (size_t i = 0; i < plans->count; i++)
		if (is_new(&plans->rows[i].gemm) && !plans->rows[i].none)
			return 2;
	return 1;
}

static void encode_row(FILE *out, const struct gemm_choice *choice)
{
	const struct gemm *p = &choice->gemm;
	if (is_new(p) && choice->none)
		return;
	fprintf(out, ";%dx%dx%d %s %s %s %s %s ", p->rows, p->columns, p->depth, layout_of(p),
		types[p->in], types[p->out], epilogues[p->epilogue], betas[p->adds]);
	if (choice->none) {
		fputs("none", out);
		return;
	}
	for (int i = 0; i < GEMM_WORDS; i++)
		fprintf(out, "%016" PRIx64, choice->algorithm[i]);
	fprintf(out, " %" PRIu64, choice->workspace);
}

char *gemm_plans_encode(const struct gemm_plans *plans)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	fprintf(out, NAME "%d %" PRIu64 " %s %s", version_of(plans), plans->library, modes[plans->mode],
		plans->card);
	for (size_t i = 0; i < plans->count; i++)
		encode_row(out, &plans->rows[i]);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* The rest of a text. */
struct reader {
	const char *text, *at;
	uint64_t version;
};

static int malformed(const struct reader *reader, const char *what, struct err *err)
{
	return err_fail(err, EXIT_DATA,
		"GEMM plans: couldn't read the algorithms of the matrix products: %s is missing at "
		"character %td, \"%.40s\"",
		what, reader->at - reader->text, reader->at);
}

static bool skip(struct reader *reader, const char *what)
{
	size_t length = strlen(what);
	if (strncmp(reader->at, what, length) != 0)
		return false;
	reader->at += length;
	return true;
}

/* Reads digits without a sign or leading zeros, at most `most`. */
static bool read_number(struct reader *reader, uint64_t most, uint64_t *value)
{
	const char *begin = reader->at;
	*value = 0;
	for (; *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
		uint64_t digit = (uint64_t)(*reader->at - '0');
		if (*value > (most - digit) / 10)
			return false;
		*value = *value * 10 + digit;
	}
	return reader->at > begin && (*begin != '0' || reader->at == begin + 1) && *value <= most;
}

static bool read_size(struct reader *reader, int *value)
{
	uint64_t number;
	if (!read_number(reader, INT32_MAX, &number) || number == 0)
		return false;
	*value = (int)number;
	return true;
}

/* Reads one of the words and the blank after it; returns its index, or -1. */
static int read_word(struct reader *reader, const char *const *words, int count)
{
	size_t length = strcspn(reader->at, " ;");
	for (int i = 0; i < count; i++)
		if (strlen(words[i]) == length && strncmp(reader->at, words[i], length) == 0
			&& reader->at[length] == ' ') {
			reader->at += length + 1;
			return i;
		}
	return -1;
}

static bool read_hex(struct reader *reader, uint64_t *value)
{
	*value = 0;
	for (int i = 0; i < 16; i++, reader->at++) {
		const char *digits = "0123456789abcdef",
				   *digit = *reader->at ? strchr(digits, *reader->at) : NULL;
		if (!digit)
			return false;
		*value = *value << 4 | (uint64_t)(digit - digits);
	}
	return true;
}

static int read_gemm(struct reader *reader, struct gemm *gemm, struct err *err)
{
	if (!read_size(reader, &gemm->rows) || !skip(reader, "x") || !read_size(reader, &gemm->columns)
		|| !skip(reader, "x") || !read_size(reader, &gemm->depth) || !skip(reader, " "))
		return malformed(reader, "the shape of a product", err);
	int layout = read_word(reader, WORDS(layouts));
	int in = layout < 0 ? -1 : read_word(reader, WORDS(types)),
		out = in < 0 ? -1 : read_word(reader, WORDS(types));
	int epilogue = out < 0 ? -1 : read_word(reader, WORDS(epilogues)),
		adds = epilogue < 0 ? -1 : read_word(reader, WORDS(betas));
	if (adds < 0 || (reader->version < 2 && epilogue == GEMM_BIAS_GRAD))
		return malformed(reader, "a word that describes a product", err);
	gemm->x_transposed = layout & 2;
	gemm->w_transposed = layout & 1;
	gemm->in = (enum gemm_type)in;
	gemm->out = (enum gemm_type)out;
	gemm->epilogue = (enum gemm_epilogue)epilogue;
	gemm->adds = adds;
	return 0;
}

static int read_row(struct reader *reader, struct gemm_plans *plans, struct err *err)
{
	struct gemm_choice choice = { 0 };
	char text[160];
	if (read_gemm(reader, &choice.gemm, err) < 0)
		return -1;
	choice.none = skip(reader, "none");
	for (int i = 0; i < GEMM_WORDS && !choice.none; i++)
		if (!read_hex(reader, &choice.algorithm[i]))
			return malformed(reader, "an algorithm", err);
	if (!choice.none
		&& (!skip(reader, " ") || !read_number(reader, GEMM_PLANS_WORKSPACE, &choice.workspace)))
		return malformed(reader, "the workspace of an algorithm, at most 33554432 bytes,", err);
	if (is_new(&choice.gemm) && choice.none)
		return malformed(reader, "the algorithm, without which there is no such row,", err);
	if (gemm_plans_find(plans, &choice.gemm))
		return err_fail(err, EXIT_DATA,
			"GEMM plans: couldn't read the algorithms of the matrix products: %s stands there "
			"twice",
			gemm_text(&choice.gemm, text, sizeof text));
	return gemm_plans_add(plans, &choice, err);
}

/* Adds the rows that a text leaves out, or such a product would be timed again, and another choice
 * might win. */
static int add_unwritten(struct gemm_plans *plans, struct err *err)
{
	size_t written = plans->count;
	for (size_t i = 0; i < written; i++) {
		struct gemm_choice choice = { .gemm = plans->rows[i].gemm, .none = true };
		if (choice.gemm.epilogue != GEMM_PLAIN || !choice.gemm.x_transposed)
			continue;
		choice.gemm.epilogue = GEMM_BIAS_GRAD;
		if (!gemm_plans_find(plans, &choice.gemm) && gemm_plans_add(plans, &choice, err) < 0)
			return -1;
	}
	return 0;
}

int gemm_plans_decode(const char *text, struct gemm_plans *plans, struct err *err)
{
	struct reader reader = { .text = text, .at = text };
	*plans = (struct gemm_plans) { 0 };
	if (!skip(&reader, NAME) || !read_number(&reader, NEWEST, &reader.version)
		|| reader.version == 0 || !skip(&reader, " "))
		return err_fail(err, EXIT_DATA,
			"GEMM plans: couldn't read the algorithms of the matrix products: they are not in the "
			"form that this version knows, \"%.40s\"",
			text);
	if (!read_number(&reader, UINT64_MAX, &plans->library) || !skip(&reader, " "))
		return malformed(&reader, "the library's version", err);
	int mode = read_word(&reader, WORDS(modes));
	size_t length = strcspn(reader.at, ";");
	if (mode < 0 || length == 0 || length >= sizeof plans->card)
		return malformed(&reader, mode < 0 ? "a precision" : "the card's name", err);
	plans->mode = (enum gemm_mode)mode;
	memcpy(plans->card, reader.at, length);
	reader.at += length;
	while (skip(&reader, ";"))
		if (read_row(&reader, plans, err) < 0)
			return -1;
	if (*reader.at)
		return malformed(&reader, "the end", err);
	return version_of(plans) == (int)reader.version
		? add_unwritten(plans, err)
		: malformed(&reader, "a row of this version", err);
}

int gemm_plans_fit(const struct gemm_plans *plans, uint64_t library, enum gemm_mode mode,
	const char *card, struct err *err)
{
	if (strcmp(plans->card, card) != 0)
		return err_fail(err, EXIT_DATA,
			"GEMM plans: the algorithms of the matrix products were chosen for %s, and this is %s",
			plans->card, card);
	if (plans->library != library)
		return err_fail(err, EXIT_DATA,
			"GEMM plans: the algorithms of the matrix products are those of cuBLASLt %" PRIu64
			", and this is %" PRIu64,
			plans->library, library);
	if (plans->mode != mode)
		return err_fail(err, EXIT_DATA,
			"GEMM plans: the algorithms of the matrix products were chosen for --precision %s, and "
			"this is %s",
			modes[plans->mode], modes[mode]);
	return 0;
}
