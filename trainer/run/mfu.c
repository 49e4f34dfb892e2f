/* SPDX-License-Identifier: Apache-2.0 */
/* The peaks are from the vendor's data sheets, by words of the card's name. */
#include "trainer/run/mfu.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define TERA 1e12

/* The first row counts whose words are all in the name, so special cards come before general ones:
 * PCIe and NVL cards have fewer multiprocessors or lower clocks than SXM ones. */
static const struct {
	const char *words[2];
	double peak;
} table[] = {
	{ { "B200" }, 2250 * TERA },
	{ { "GH200" }, 989.4 * TERA },
	{ { "H200", "NVL" }, 835.5 * TERA },
	{ { "H200" }, 989.4 * TERA },
	{ { "H100", "PCIe" }, 756 * TERA },
	{ { "H100", "NVL" }, 835.5 * TERA },
	{ { "H100" }, 989.4 * TERA },
	{ { "H800", "PCIe" }, 756 * TERA },
	{ { "H800" }, 989.4 * TERA },
	{ { "H20" }, 148 * TERA },
	{ { "A100" }, 312 * TERA },
	{ { "A800" }, 312 * TERA },
	{ { "L40S" }, 362.05 * TERA },
	{ { "L40" }, 181.05 * TERA },
	{ { "A40" }, 149.7 * TERA },
	{ { "A30" }, 165 * TERA },
	{ { "A10" }, 125 * TERA },
	{ { "L4" }, 121 * TERA },
	{ { "RTX", "4090" }, 165.2 * TERA },
	{ { "RTX", "3090" }, 71 * TERA },
};

/* Compares whole words: "L4" must not match "L40", nor "A10" "A100" or "A10G". */
static bool has_word(const char *name, const char *word)
{
	size_t length = strlen(word);
	for (const char *p = name; *p; p += strspn(p, " -")) {
		size_t n = strcspn(p, " -");
		if (n == length && strncmp(p, word, n) == 0)
			return true;
		p += n;
	}
	return false;
}

double mfu_peak_flops(const char *name)
{
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (has_word(name, table[i].words[0])
			&& (!table[i].words[1] || has_word(name, table[i].words[1])))
			return table[i].peak;
	return 0;
}

double mfu_of(double tokens_per_second, double token_flops, double peak, int cards)
{
	return peak > 0 ? tokens_per_second * token_flops / (peak * cards) : 0;
}
