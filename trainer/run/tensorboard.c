/* SPDX-License-Identifier: Apache-2.0 */
/* Gives the metrics the tags that TensorBoard groups them by. */
#include "config.h"

#include "trainer/run/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"
#include "trainer/run/event_file.h"

#define FOLDER "tensorboard"

struct tensorboard {
	struct event_file *file;
	uint64_t first;
};

/* TensorBoard reads the files of a folder in the order of their names, which begin with the time
 * for that; of two attempts that began in one second the later has the higher number. */
static struct event_file *open_file(int dirfd, int attempt, uint64_t first, struct err *err)
{
	char name[80];
	if (mkdirat(dirfd, FOLDER, 0755) < 0 && errno != EEXIST) {
		err_fail(err, io_status(errno), "tensorboard: couldn't create the folder " FOLDER ": %m");
		return NULL;
	}
	AUTO_CLOSE int folder = openat(dirfd, FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0) {
		err_fail(err, io_status(errno), "tensorboard: couldn't open the folder " FOLDER ": %m");
		return NULL;
	}
	snprintf(name, sizeof name, "events.out.tfevents.%010lld.%06d.%d", (long long)clock_wall(),
		attempt, (int)getpid());
	return event_file_open(folder, name, first, err);
}

struct tensorboard *tensorboard_open(int dirfd, int attempt, uint64_t first, struct err *err)
{
	struct tensorboard *board = malloc(sizeof *board);
	if (!board) {
		err_set(err, "tensorboard: out of memory");
		return NULL;
	}
	*board = (struct tensorboard) { open_file(dirfd, attempt, first, err), first };
	if (board->file)
		return board;
	tensorboard_close(board);
	return NULL;
}

int tensorboard_step(struct tensorboard *board, const struct metrics_step *step, struct err *err)
{
	const struct event_scalar scalars[] = {
		{ "loss/train", step->loss }, { "gradient norm", step->norm },
		{ "learning rate", step->learning_rate },
		{ "speed/tokens a second", (float)step->tokens_per_second },
		{ "speed/milliseconds a step", (float)step->milliseconds },
		{ "speed/exposed milliseconds", (float)(step->exposed * 1e3) },
		{ "speed/MFU", (float)step->use }, /* last: left out where it is not known */
	};
	const size_t count = sizeof scalars / sizeof scalars[0] - (step->use > 0 ? 0 : 1);
	return board ? event_file_scalars(board->file, step->step, scalars, count, err) : 0;
}

int tensorboard_validation(struct tensorboard *board, uint64_t step, float loss, struct err *err)
{
	const struct event_scalar scalar = { "loss/validation", loss };
	/* The attempt before has written what is repeated at a resume. */
	return board && step >= board->first ? event_file_scalars(board->file, step, &scalar, 1, err)
										 : 0;
}

int tensorboard_checkpoint(struct tensorboard *board, const struct save_result *saved,
	struct err *err)
{
	const struct event_scalar scalars[] = {
		{ "checkpoint/stall seconds", (float)saved->stall },
		{ "checkpoint/seconds until durable", (float)saved->seconds },
	};
	return board ? event_file_scalars(board->file, (uint64_t)saved->step, scalars, 2, err) : 0;
}

void tensorboard_close(struct tensorboard *board)
{
	if (!board)
		return;
	event_file_close(board->file);
	free(board);
}
