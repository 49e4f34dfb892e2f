/* SPDX-License-Identifier: Apache-2.0 */
/* The words of --notice, and what the firmware's tables say of the machine (smbios(5); the clouds
 * document these values for telling their machines from others). */
#include "launch/spot_source.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DMI "/sys/class/dmi/id"

static const struct {
	const char *name, *base;
	const char *file, *value; /* of its machines: a file of the firmware's, and how it begins */
} clouds[] = {
	[SPOT_OFF] = { "off", "", NULL, NULL },
	[SPOT_AWS] = { "aws", "http://169.254.169.254", "sys_vendor", "Amazon EC2" },
	[SPOT_GCP] = { "gcp", "http://metadata.google.internal", "product_name",
		"Google Compute Engine" },
	[SPOT_AZURE] = { "azure", "http://169.254.169.254", "chassis_asset_tag",
		"7783-7084-3265-9085-8269-3286-77" },
	[SPOT_PAGE] = { "page", "", NULL, NULL },
};

const char *spot_cloud_name(enum spot_cloud cloud)
{
	return clouds[cloud].name;
}

static bool file_begins(const char *folder, const char *name, const char *value)
{
	char path[600], line[100] = "";
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	bool begins = fgets(line, sizeof line, file) && strncmp(line, value, strlen(value)) == 0;
	fclose(file);
	return begins;
}

enum spot_cloud spot_cloud_of(const char *dmi)
{
	for (enum spot_cloud cloud = SPOT_AWS; cloud <= SPOT_AZURE; cloud++)
		if (file_begins(dmi, clouds[cloud].file, clouds[cloud].value))
			return cloud;
	return SPOT_OFF;
}

static bool is_url(const char *text)
{
	return strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
}

static int set(struct spot_source *source, enum spot_cloud cloud, const char *base,
	const char *text, struct err *err)
{
	size_t length = strlen(base);
	if (length > SPOT_BASE_MAX)
		return err_fail(err, EXIT_USAGE,
			"spot notices: the URL in '%.60s…' is longer than %d bytes", text, SPOT_BASE_MAX);
	while (cloud != SPOT_PAGE && length > 0 && base[length - 1] == '/')
		length--;
	*source = (struct spot_source) { .cloud = cloud };
	memcpy(source->base, base, length);
	return 0;
}

int spot_source_read(const char *text, struct spot_source *source, struct err *err)
{
	if (!text || !text[0] || strcmp(text, "auto") == 0) {
		enum spot_cloud here = spot_cloud_of(DMI);
		return set(source, here, clouds[here].base, "auto", err);
	}
	if (is_url(text))
		return set(source, SPOT_PAGE, text, text, err);
	for (enum spot_cloud cloud = SPOT_OFF; cloud <= SPOT_AZURE; cloud++) {
		size_t length = strlen(clouds[cloud].name);
		if (strncmp(text, clouds[cloud].name, length) != 0)
			continue;
		if (!text[length])
			return set(source, cloud, clouds[cloud].base, text, err);
		if (cloud != SPOT_OFF && text[length] == '=' && is_url(text + length + 1))
			return set(source, cloud, text + length + 1, text, err);
	}
	return err_fail(err, EXIT_USAGE,
		"spot notices: couldn't use '%.100s': give auto, off, aws, gcp, azure, one of these clouds "
		"with =URL, or the URL of a page",
		text);
}
