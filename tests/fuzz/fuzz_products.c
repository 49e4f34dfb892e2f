/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the products' text, which comes from a checkpoint or from another rank: it is refused with one line, or what
 * was read says the same again, and no size in it is out of its range. */
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/host/products.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void check(const struct products *products, const char *text)
{
	char *again = products_encode(products);
	for (size_t i = 0; i < products->count; i++) {
		const struct product_choice *row = &products->rows[i];
		if (row->product.rows < 1 || row->product.columns < 1 || row->product.depth < 1 || row->workspace > PRODUCTS_WORKSPACE
			|| products_find(products, &row->product) != row)
			abort();
	}
	if (!again || strcmp(again, text) != 0)
		abort();
	free(again);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char *text = malloc(size + 1);
	struct products products;
	struct err err = { 0 };
	memcpy(text, bytes, size);
	text[size] = '\0';
	if (products_decode(text, &products, &err) == 0)
		check(&products, text);
	else if (err.status != EXIT_DATA && products.count < PRODUCTS_MAX)
		abort();
	products_clear(&products);
	free(text);
	return 0;
}
