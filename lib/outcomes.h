/* SPDX-License-Identifier: Apache-2.0 */
/* What has become of a program's saves. Any thread may call these functions. */
#ifndef MUSTER_OUTCOMES_H
#define MUSTER_OUTCOMES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/format/snapshot.h"
#include "common/err.h"

struct failure;

/* A value between outcomes_open and outcomes_close. */
struct outcomes {
	pthread_mutex_t lock;     /* for the fields below */
	int64_t begun, durable;   /* the newest step of each; -1: none */
	struct failure *failures; /* of steps that were not saved again */
};

void outcomes_open(struct outcomes *outcomes);
void outcomes_close(struct outcomes *outcomes);

/* The newest durable step, or with `begun` the newest step that was begun; -1: none. */
int64_t outcomes_newest(struct outcomes *outcomes, bool begun);

/* The program has loaded that step; -1: there was none. */
void outcomes_load(struct outcomes *outcomes, int64_t step);

/* A save of that step begins, or did not begin after all. */
void outcomes_begin(struct outcomes *outcomes, int64_t step);
void outcomes_withdraw(struct outcomes *outcomes, int64_t step);

/* A save has ended. */
void outcomes_take(struct outcomes *outcomes, const struct save_result *result);

/* Whether the save of the step failed; if so, *err says why. */
bool outcomes_failed(struct outcomes *outcomes, int64_t step, struct err *err);

#endif
