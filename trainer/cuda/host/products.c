/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a model's products, and the text form of what was chosen for them. */
#include "trainer/cuda/host/products.h"

#include "trainer/cuda/kernels/head.h" /* needs no CUDA */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "muster-products "
#define NEWEST 2 /* version of the form */

static const char *const types[] = { "fp32", "bf16" }, *const modes[] = { "fp32", "tf32", "bf16" };
static const char *const epilogues[] = { "plain", "bias", "bias-gelu", "bias-relu", "gelu-grad", "bias-grad" };
static const char *const layouts[] = { "nn", "nt", "tn", "tt" }; /* X, then W */
static const char *const betas[] = { "set", "add" };
#define WORDS(list) (list), (int)(sizeof(list) / sizeof(list)[0])

/* ---- the list ---- */

struct list {
	enum product_type type;
	struct product *out;
	size_t count, most;
};

static void add(struct list *list, const struct product *product)
{
	for (size_t i = 0; i < list->count; i++)
		if (product_equal(&list->out[i], product))
			return;
	if (list->count < list->most)
		list->out[list->count++] = *product;
}

/* A linear layer x[M,K] → y[M,N] and its backward passes; `before` is GELU' where x was made by one. */
static void add_linear(struct list *list, int M, int K, int N, enum product_epilogue epilogue, bool input_gradient,
	enum product_epilogue before)
{
	enum product_type type = list->type;
	add(list, &(struct product){ .rows = M, .columns = N, .depth = K, .in = type, .out = type, .epilogue = epilogue });
	if (input_gradient)
		add(list, &(struct product){ .rows = M, .columns = K, .depth = N, .w_transposed = true, .in = type, .out = type,
			.epilogue = before });
	for (int adds = 0; adds < 2; adds++) {
		struct product weight = { .rows = K, .columns = N, .depth = M, .x_transposed = true, .in = type, .out = PRODUCT_FP32,
			.adds = adds != 0 };
		add(list, &weight);
		weight.epilogue = PRODUCT_BIAS_GRAD;
		add(list, &weight);
	}
}

/* logits[M,V] = x[M,C] · wte[V,C]ᵀ and what goes back from them, in chunks of rows of which the last may be shorter. */
static void add_head(struct list *list, int M, int C, int V)
{
	enum product_type type = list->type;
	int most = (int)head_chunk_rows((size_t)M, (size_t)V, type == PRODUCT_BF16 ? 2 : 4);
	for (int rows = most; rows > 0; rows = rows == most ? M % most : 0) {
		add(list, &(struct product){ .rows = rows, .columns = V, .depth = C, .w_transposed = true, .in = type, .out = type });
		add(list, &(struct product){ .rows = rows, .columns = C, .depth = V, .in = type, .out = type });
		for (int adds = 0; adds < 2; adds++)
			add(list, &(struct product){ .rows = V, .columns = C, .depth = rows, .x_transposed = true, .in = type, .out = PRODUCT_FP32,
				.adds = adds != 0 });
	}
}

size_t products_of(const struct ops_shapes *shapes, enum product_mode mode, struct product *out, size_t most)
{
	struct list list = { .type = mode == PRODUCT_MODE_BF16 ? PRODUCT_BF16 : PRODUCT_FP32, .out = out, .most = most };
	int M = shapes->batch * (shapes->positions ? shapes->positions : 1), C = shapes->width, hidden = shapes->hidden;
	if (shapes->heads > 0) {
		add_linear(&list, M, C, 3 * C, PRODUCT_BIAS, true, PRODUCT_PLAIN);
		add_linear(&list, M, C, C, PRODUCT_BIAS, true, PRODUCT_PLAIN);
		add_linear(&list, M, C, hidden, PRODUCT_BIAS_GELU, true, PRODUCT_PLAIN);
		add_linear(&list, M, hidden, C, PRODUCT_BIAS, true, PRODUCT_GELU_GRAD);
		add_head(&list, M, C, OPS_VOCABULARY_ROWS(shapes->vocabulary));
	} else {
		add_linear(&list, M, C, hidden, PRODUCT_BIAS_RELU, false, PRODUCT_PLAIN);
		add_linear(&list, M, hidden, shapes->vocabulary, PRODUCT_BIAS, true, PRODUCT_PLAIN);
	}
	return list.count;
}

/* ---- the choices ---- */

bool product_equal(const struct product *a, const struct product *b)
{
	return a->rows == b->rows && a->columns == b->columns && a->depth == b->depth && a->x_transposed == b->x_transposed
		&& a->w_transposed == b->w_transposed && a->in == b->in && a->out == b->out && a->epilogue == b->epilogue && a->adds == b->adds;
}

const struct product_choice *products_find(const struct products *products, const struct product *product)
{
	for (size_t i = 0; i < products->count; i++)
		if (product_equal(&products->rows[i].product, product))
			return &products->rows[i];
	return NULL;
}

int products_add(struct products *products, const struct product_choice *choice, struct err *err)
{
	if (products->count >= PRODUCTS_MAX)
		return err_set(err, "products: couldn't keep more than %d of them", PRODUCTS_MAX);
	struct product_choice *rows = realloc(products->rows, (products->count + 1) * sizeof *rows);
	if (!rows)
		return err_set(err, "products: out of memory");
	products->rows = rows;
	rows[products->count++] = *choice;
	return 0;
}

void products_clear(struct products *products)
{
	free(products->rows);
	*products = (struct products){ 0 };
}

static const char *layout_of(const struct product *product)
{
	return layouts[(product->x_transposed ? 2 : 0) + (product->w_transposed ? 1 : 0)];
}

char *product_text(const struct product *product, char *out, size_t size)
{
	snprintf(out, size, "%d x %d over %d, %s, %s to %s, %s%s", product->rows, product->columns, product->depth, layout_of(product),
		types[product->in], types[product->out], epilogues[product->epilogue], product->adds ? ", added" : "");
	return out;
}

/* ---- the text ---- */

/* What version 1 has no word for. Where our kernel makes it that needs none: a record without a row for it says the same. */
static bool is_new(const struct product *product)
{
	return product->epilogue == PRODUCT_BIAS_GRAD;
}

static int version_of(const struct products *products)
{
	for (size_t i = 0; i < products->count; i++)
		if (is_new(&products->rows[i].product) && !products->rows[i].none)
			return 2;
	return 1;
}

static void encode_row(FILE *out, const struct product_choice *choice)
{
	const struct product *p = &choice->product;
	if (is_new(p) && choice->none)
		return;
	fprintf(out, ";%dx%dx%d %s %s %s %s %s ", p->rows, p->columns, p->depth, layout_of(p), types[p->in], types[p->out],
		epilogues[p->epilogue], betas[p->adds]);
	if (choice->none) {
		fputs("none", out);
		return;
	}
	for (int i = 0; i < PRODUCT_WORDS; i++)
		fprintf(out, "%016" PRIx64, choice->algorithm[i]);
	fprintf(out, " %" PRIu64, choice->workspace);
}

char *products_encode(const struct products *products)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	fprintf(out, NAME "%d %" PRIu64 " %s %s", version_of(products), products->library, modes[products->mode], products->card);
	for (size_t i = 0; i < products->count; i++)
		encode_row(out, &products->rows[i]);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* What is left of a text. */
struct reader {
	const char *text, *at;
	uint64_t version;
};

static int malformed(const struct reader *reader, const char *what, struct err *err)
{
	return err_fail(err, EXIT_DATA, "products: couldn't read the algorithms of the matrix products: %s is missing at character %td, "
		"\"%.40s\"", what, reader->at - reader->text, reader->at);
}

static bool skip(struct reader *reader, const char *what)
{
	size_t length = strlen(what);
	if (strncmp(reader->at, what, length) != 0)
		return false;
	reader->at += length;
	return true;
}

/* Digits without sign or leading zero, at most `most`. */
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

/* One of the words, and the blank behind it; its number, or -1. */
static int read_word(struct reader *reader, const char *const *words, int count)
{
	size_t length = strcspn(reader->at, " ;");
	for (int i = 0; i < count; i++)
		if (strlen(words[i]) == length && strncmp(reader->at, words[i], length) == 0 && reader->at[length] == ' ') {
			reader->at += length + 1;
			return i;
		}
	return -1;
}

static bool read_hex(struct reader *reader, uint64_t *value)
{
	*value = 0;
	for (int i = 0; i < 16; i++, reader->at++) {
		const char *digits = "0123456789abcdef", *digit = *reader->at ? strchr(digits, *reader->at) : NULL;
		if (!digit)
			return false;
		*value = *value << 4 | (uint64_t)(digit - digits);
	}
	return true;
}

static int read_product(struct reader *reader, struct product *product, struct err *err)
{
	if (!read_size(reader, &product->rows) || !skip(reader, "x") || !read_size(reader, &product->columns) || !skip(reader, "x")
		|| !read_size(reader, &product->depth) || !skip(reader, " "))
		return malformed(reader, "the shape of a product", err);
	int layout = read_word(reader, WORDS(layouts));
	int in = layout < 0 ? -1 : read_word(reader, WORDS(types)), out = in < 0 ? -1 : read_word(reader, WORDS(types));
	int epilogue = out < 0 ? -1 : read_word(reader, WORDS(epilogues)), adds = epilogue < 0 ? -1 : read_word(reader, WORDS(betas));
	if (adds < 0 || (reader->version < 2 && epilogue == PRODUCT_BIAS_GRAD))
		return malformed(reader, "a word that describes a product", err);
	product->x_transposed = layout & 2;
	product->w_transposed = layout & 1;
	product->in = (enum product_type)in;
	product->out = (enum product_type)out;
	product->epilogue = (enum product_epilogue)epilogue;
	product->adds = adds;
	return 0;
}

static int read_row(struct reader *reader, struct products *products, struct err *err)
{
	struct product_choice choice = { 0 };
	char text[160];
	if (read_product(reader, &choice.product, err) < 0)
		return -1;
	choice.none = skip(reader, "none");
	for (int i = 0; i < PRODUCT_WORDS && !choice.none; i++)
		if (!read_hex(reader, &choice.algorithm[i]))
			return malformed(reader, "an algorithm", err);
	if (!choice.none && (!skip(reader, " ") || !read_number(reader, PRODUCTS_WORKSPACE, &choice.workspace)))
		return malformed(reader, "the workspace of an algorithm, at most 33554432 bytes,", err);
	if (is_new(&choice.product) && choice.none)
		return malformed(reader, "the algorithm, without which there is no such row,", err);
	if (products_find(products, &choice.product))
		return err_fail(err, EXIT_DATA, "products: couldn't read the algorithms of the matrix products: %s stands there twice",
			product_text(&choice.product, text, sizeof text));
	return products_add(products, &choice, err);
}

int products_decode(const char *text, struct products *products, struct err *err)
{
	struct reader reader = { .text = text, .at = text };
	*products = (struct products){ 0 };
	if (!skip(&reader, NAME) || !read_number(&reader, NEWEST, &reader.version) || reader.version == 0 || !skip(&reader, " "))
		return err_fail(err, EXIT_DATA, "products: couldn't read the algorithms of the matrix products: they are not in the form that "
			"this version knows, \"%.40s\"", text);
	if (!read_number(&reader, UINT64_MAX, &products->library) || !skip(&reader, " "))
		return malformed(&reader, "the library's version", err);
	int mode = read_word(&reader, WORDS(modes));
	size_t length = strcspn(reader.at, ";");
	if (mode < 0 || length == 0 || length >= sizeof products->card)
		return malformed(&reader, mode < 0 ? "a precision" : "the card's name", err);
	products->mode = (enum product_mode)mode;
	memcpy(products->card, reader.at, length);
	reader.at += length;
	while (skip(&reader, ";"))
		if (read_row(&reader, products, err) < 0)
			return -1;
	if (*reader.at)
		return malformed(&reader, "the end", err);
	return version_of(products) == (int)reader.version ? 0 : malformed(&reader, "a row of this version", err);
}

int products_fit(const struct products *products, uint64_t library, enum product_mode mode, const char *card, struct err *err)
{
	if (strcmp(products->card, card) != 0)
		return err_fail(err, EXIT_DATA, "products: the algorithms of the matrix products were chosen for %s, and this is %s",
			products->card, card);
	if (products->library != library)
		return err_fail(err, EXIT_DATA, "products: the algorithms of the matrix products are those of cuBLASLt %" PRIu64 ", and this is %"
			PRIu64, products->library, library);
	if (products->mode != mode)
		return err_fail(err, EXIT_DATA, "products: the algorithms of the matrix products were chosen for --precision %s, and this is %s",
			modes[products->mode], modes[mode]);
	return 0;
}
