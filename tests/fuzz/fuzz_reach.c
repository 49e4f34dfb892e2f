/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of what scontrol prints: what is taken for a node has a name and an address,
 * which end, and no field runs into the next. */
#include <stdlib.h>
#include <string.h>

#include "restart/reach.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void check(const char *word, size_t size)
{
	if (!memchr(word, 0, size) || strpbrk(word, " \n"))
		abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct reach_node node;
	struct reach_site site;
	bool goes_on;
	char *text = malloc(size + 1);
	if (!text)
		return 0;
	memcpy(text, bytes, size);
	text[size] = '\0';
	if (reach_parse_node(text, &node)) {
		check(node.name, sizeof node.name);
		check(node.address, sizeof node.address);
	}
	reach_parse_job(text, 0, &goes_on);
	reach_parse_site(text, &site);
	if (site.slurmd_port < 1 || site.slurmd_port > 65535 || site.srun_ports[0] > site.srun_ports[1])
		abort();
	free(text);
	return 0;
}
