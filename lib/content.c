/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a state that a program wants to save. */
#include "config.h"
#include "lib/content.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "lib/muster_private.h"

/* Copies a text that must be a JSON object; NULL stays NULL. */
static int take_object(const char *name, const char *text, char **copy, struct err *err)
{
	*copy = NULL;
	if (!text)
		return 0;
	json_t *object = muster_parse_object(text, err);
	if (!object)
		return err_prefix(err, "checkpoint: couldn't use the state's %s", name);
	json_decref(object);
	*copy = strdup(text);
	return *copy ? 0 : err_set(err, "checkpoint: out of memory");
}

static int check_given(const struct muster_state *given, struct muster_state *whole,
	struct err *err)
{
	*whole = (struct muster_state) { 0 };
	if (muster_check_given(given, "the state", err) < 0
		|| muster_take_sized(whole, sizeof *whole, given, given->size,
			   offsetof(struct muster_state, model_placements), "muster_state", err)
			< 0)
		return -1;
	if ((!whole->model && whole->model_count > 0) || (!whole->state && whole->state_count > 0))
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use the state: it has %zu and %zu tensors, and nothing says "
			"which",
			whole->model_count, whole->state_count);
	if (whole->model_count + whole->state_count == 0 && !whole->values)
		return err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use the state: it has neither a tensor nor values");
	return whole->cursor <= INT64_MAX
		? 0
		: err_fail(err, EXIT_USAGE,
			"checkpoint: couldn't use the state: its cursor is not below 2^63");
}

int content_open(struct content *content, const struct muster_state *given,
	const struct writers *writers, struct save_step *at, struct err *err)
{
	struct muster_state whole;
	*content = (struct content) { 0 };
	if (check_given(given, &whole, err) < 0)
		return -1;
	*at = (struct save_step) { .cursor = whole.cursor,
		.loss = whole.loss,
		.validation_loss = whole.validation_loss };
	if (take_object("config", whole.config, &content->config, err) == 0
		&& take_object("values", whole.values, &content->values, err) == 0
		&& arrays_open(&content->arrays, &whole, writers, err) == 0)
		return 0;
	content_release(content);
	return -1;
}

void content_release(struct content *content)
{
	arrays_release(&content->arrays);
	free(content->config);
	free(content->values);
	*content = (struct content) { 0 };
}
