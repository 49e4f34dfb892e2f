/* SPDX-License-Identifier: Apache-2.0 */
/* Records the results of saves. Failures are kept here, since the client of the service knows only
 * the last few saves. */
#include "config.h"
#include "lib/outcomes.h"

#include <stdlib.h>

/* A save that did not become durable. */
struct failure {
	struct failure *next;
	struct save_result result;
};

/* The next three functions need the lock. NULL: none. */
static struct failure *find_failure(struct outcomes *outcomes, int64_t step)
{
	struct failure *failure = outcomes->failures;
	while (failure && failure->result.step != step)
		failure = failure->next;
	return failure;
}

static void add_failure(struct outcomes *outcomes, const struct save_result *result)
{
	struct failure *failure = malloc(sizeof *failure);
	if (!failure)
		return;
	*failure = (struct failure) { .next = outcomes->failures, .result = *result };
	outcomes->failures = failure;
}

static void drop_failure(struct outcomes *outcomes, int64_t step)
{
	struct failure **at = &outcomes->failures, *found = find_failure(outcomes, step);
	while (found && *at != found)
		at = &(*at)->next;
	if (found)
		*at = found->next;
	free(found);
}

void outcomes_open(struct outcomes *outcomes)
{
	*outcomes = (struct outcomes) { .begun = -1, .durable = -1 };
	pthread_mutex_init(&outcomes->lock, NULL);
}

void outcomes_close(struct outcomes *outcomes)
{
	while (outcomes->failures)
		drop_failure(outcomes, outcomes->failures->result.step);
	pthread_mutex_destroy(&outcomes->lock);
}

int64_t outcomes_newest(struct outcomes *outcomes, bool begun)
{
	pthread_mutex_lock(&outcomes->lock);
	int64_t step = begun ? outcomes->begun : outcomes->durable;
	pthread_mutex_unlock(&outcomes->lock);
	return step;
}

void outcomes_load(struct outcomes *outcomes, int64_t step)
{
	pthread_mutex_lock(&outcomes->lock);
	outcomes->begun = outcomes->durable = step;
	pthread_mutex_unlock(&outcomes->lock);
}

void outcomes_begin(struct outcomes *outcomes, int64_t step)
{
	pthread_mutex_lock(&outcomes->lock);
	outcomes->begun = step;
	drop_failure(outcomes, step);
	pthread_mutex_unlock(&outcomes->lock);
}

void outcomes_withdraw(struct outcomes *outcomes, int64_t step)
{
	pthread_mutex_lock(&outcomes->lock);
	outcomes->begun = outcomes->durable;
	drop_failure(outcomes, step);
	pthread_mutex_unlock(&outcomes->lock);
}

void outcomes_take(struct outcomes *outcomes, const struct save_result *result)
{
	pthread_mutex_lock(&outcomes->lock);
	if (result->outcome == SAVE_DURABLE)
		outcomes->durable = result->step;
	else if (result->outcome == SAVE_FAILED && outcomes->begun == result->step)
		outcomes->begun = outcomes->durable;
	if (result->outcome == SAVE_FAILED)
		add_failure(outcomes, result);
	pthread_mutex_unlock(&outcomes->lock);
}

bool outcomes_failed(struct outcomes *outcomes, int64_t step, struct err *err)
{
	pthread_mutex_lock(&outcomes->lock);
	const struct failure *failure = find_failure(outcomes, step);
	if (failure)
		*err = failure->result.err;
	pthread_mutex_unlock(&outcomes->lock);
	return failure;
}
