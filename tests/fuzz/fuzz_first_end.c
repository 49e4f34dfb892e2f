/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of what anybody may send to srun: what is accepted prints as one line, and is
 * read again as it was. And of where a user may say that srun listens: HOST, a zero byte, VALUE;
 * and where a task's last words go. */
#include <stdlib.h>
#include <string.h>

#include "plugin/end_channel.h"
#include "plugin/first_end.h"

#define SECRET "0123456789abcdef0123456789abcdef"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void check(const struct task_report *report)
{
	char message[END_MESSAGE_MAX], line[600];
	struct task_report again;
	struct first_end end = { .running = true };
	size_t size = end_write_report(SECRET, report, message);
	if (size >= END_MESSAGE_MAX || end_read(message, size, SECRET, &again) != END_REPORT
		|| again.rank != report->rank || again.wait_status != report->wait_status
		|| strcmp(again.words, report->words) != 0 || strcmp(again.node, report->node) != 0)
		abort();
	first_end_add(&end, report);
	if (!first_end_line(&end, line, sizeof line))
		return;
	for (const char *p = line; *p; p++)
		if (*p < ' ' || *p > '~')
			abort();
}

static void check_step(const struct task_report *report)
{
	char message[END_MESSAGE_MAX];
	struct task_report again;
	size_t size = end_write_step(SECRET, report->step, report->node, message);
	if (end_read(message, size, SECRET, &again) != END_STEP || again.step != report->step
		|| strcmp(again.node, report->node) != 0)
		abort();
}

static void check_address(const unsigned char *bytes, size_t size)
{
	struct end_address address;
	char *text = malloc(size + 1);
	if (!text)
		return;
	memcpy(text, bytes, size);
	text[size] = '\0';
	size_t host = strlen(text);
	if (end_address_read(text, host < size ? text + host + 1 : NULL, &address)
		&& (strcmp(address.host, text) != 0 || atoi(address.port) < 0 || atoi(address.port) > 65535
			|| strlen(address.secret) != END_SECRET_SIZE - 1))
		abort();
	if (last_words_open(text).fd >= 0) /* nobody has handed any on */
		abort();
	free(text);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct task_report report;
	check_address(bytes, size);
	enum end_message kind = end_read((const char *)bytes, size, SECRET, &report);
	if (kind == END_REPORT)
		check(&report);
	if (kind == END_STEP)
		check_step(&report);
	return 0;
}
