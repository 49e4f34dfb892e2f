/* SPDX-License-Identifier: Apache-2.0 */
/* Who tells of spot notices: the words of --notice, and the cloud that a machine is in. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/spot_source.h"

static void is(const char *text, enum spot_cloud cloud, const char *base)
{
	struct spot_source source;
	struct err err;
	assert_int_equal(spot_source_read(text, &source, &err), 0);
	assert_int_equal(source.cloud, cloud);
	assert_string_equal(source.base, base);
}

static void words_name_a_source(void **state)
{
	is("off", SPOT_OFF, "");
	is("aws", SPOT_AWS, "http://169.254.169.254");
	is("gcp", SPOT_GCP, "http://metadata.google.internal");
	is("azure", SPOT_AZURE, "http://169.254.169.254");
	is("aws=http://127.0.0.1:8080/", SPOT_AWS, "http://127.0.0.1:8080");
	is("https://site/notice/", SPOT_PAGE, "https://site/notice/");
}

static void others_are_refused(void **state)
{
	static const char *const words[] = { "AWS", "aws=", "aws=ftp://x", "awsx", "off=http://x",
		"page", "file:///etc/passwd", " aws" };
	struct spot_source source;
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		struct err err;
		assert_int_equal(spot_source_read(words[i], &source, &err), -1);
		assert_int_equal(err.status, EXIT_USAGE);
		assert_non_null(strstr(err.text, words[i]));
	}
	char longer[600];
	struct err err;
	snprintf(longer, sizeof longer, "http://%0500d", 0);
	assert_int_equal(spot_source_read(longer, &source, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
}

static void firmware_names_the_cloud(void **state)
{
	static const struct {
		const char *file, *line;
		enum spot_cloud cloud;
	} cases[] = {
		{ "sys_vendor", "Amazon EC2\n", SPOT_AWS },
		{ "product_name", "Google Compute Engine\n", SPOT_GCP },
		{ "chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", SPOT_AZURE },
		{ "sys_vendor", "Microsoft Corporation\n", SPOT_OFF },
		{ "product_name", "", SPOT_OFF },
	};
	char folder[] = "/tmp/test-spot-XXXXXX", path[100];
	assert_non_null(mkdtemp(folder));
	assert_int_equal(spot_cloud_of(folder), SPOT_OFF);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, cases[i].file);
		FILE *file = fopen(path, "w");
		assert_non_null(file);
		fputs(cases[i].line, file);
		fclose(file);
		assert_int_equal(spot_cloud_of(folder), cases[i].cloud);
		unlink(path);
	}
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_name_a_source),
		cmocka_unit_test(others_are_refused),
		cmocka_unit_test(firmware_names_the_cloud),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
