/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the checkpoint that a user means. */
#include "config.h"

#include "checkpoint/load/ckpt_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/format/manifest.h"
#include "common/auto.h"
#include "common/io.h"
#include "common/number.h"

static int64_t step_of(const char *text)
{
	int64_t step;
	if (strncmp(text, "step-", 5) == 0)
		return ckpt_step_of(text);
	return number_whole(text, 0, INT64_MAX, &step) ? step : -1;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}

bool ckpt_place_is_step(const char *path)
{
	char manifest[sizeof((struct ckpt_dir *)0)->path + sizeof "/" MANIFEST_NAME];
	struct stat st;
	char plain[sizeof((struct ckpt_dir *)0)->path];
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	snprintf(plain, sizeof plain, "%.*s", (int)length, path);
	snprintf(manifest, sizeof manifest, "%s/" MANIFEST_NAME, plain);
	return ckpt_step_of(base_name(plain)) >= 0 || stat(manifest, &st) == 0;
}

void ckpt_place_close(struct ckpt_place *place)
{
	ckpt_dir_close(&place->dir);
}

/* `path` is a step folder: its parent becomes the directory. */
static int open_step(struct ckpt_place *place, const char *path, struct err *err)
{
	AUTO_FREE char *real = realpath(path, NULL);
	if (!real)
		return err_fail(err, io_status_or(errno, EXIT_USAGE), "checkpoint: couldn't find %s: %m",
			path);
	char *slash = strrchr(real, '/');
	if (!slash[1] || strlen(slash + 1) >= sizeof place->name)
		return err_fail(err, EXIT_USAGE, "checkpoint: %s is no step folder", path);
	snprintf(place->name, sizeof place->name, "%s", slash + 1);
	slash[slash == real] = '\0';
	return ckpt_dir_open_existing(&place->dir, real, err);
}

static int name_newest(struct ckpt_place *place, struct err *err)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	if (ckpt_dir_steps(&place->dir, &steps, &count, err) < 0)
		return -1;
	if (count == 0)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: %s holds no checkpoint: give a checkpoint directory or a step folder",
			place->dir.path);
	ckpt_step_name(steps[count - 1], place->name);
	return 0;
}

static int name_step(struct ckpt_place *place, const char *text, struct err *err)
{
	struct stat st;
	int64_t step = step_of(text);
	if (step < 0)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: \"%s\" is no step: give a number such as 1000, or step-00001000", text);
	ckpt_step_name(step, place->name);
	int missing = fstatat(place->dir.fd, place->name, &st, AT_SYMLINK_NOFOLLOW);
	if (missing && io_status(errno) == EXIT_LOST)
		return err_fail(err, EXIT_LOST, "checkpoint: couldn't look at %s/%s: %m", place->dir.path,
			place->name);
	if (missing)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: %s has no %s; muster-ckpt ls %s shows the steps that there are",
			place->dir.path, place->name, place->dir.path);
	return 0;
}

int ckpt_place_open(struct ckpt_place *place, const char *path, const char *step, struct err *err)
{
	*place = (struct ckpt_place) { .dir.fd = -1 };
	if (!step && ckpt_place_is_step(path))
		return open_step(place, path, err);
	if (ckpt_dir_open_existing(&place->dir, path, err) < 0)
		return -1;
	int result = step ? name_step(place, step, err) : name_newest(place, err);
	if (result < 0)
		ckpt_place_close(place);
	return result;
}
