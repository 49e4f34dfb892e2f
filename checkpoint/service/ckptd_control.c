/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a service one question and waits for the answer. A service that does not answer FINISH is
 * killed: its job is over. */
#include "checkpoint/service/ckptd_control.h"

#include <math.h>

#include "checkpoint/client/ckptd_start.h"

#define ANSWER_SECONDS 5.0 /* a live service answers at once, whatever its disk does */
#define END_SECONDS 2.0
#define SETTLE_SECONDS 0.05 /* between looks */

static int ask(struct ckptd_link *link, const struct ckptd_message *question, enum ckptd_type type,
	double seconds, struct ckptd_message *answer, struct err *err)
{
	if (ckptd_conn_send(&link->conn, question, NULL, 0, err) < 0
		|| ckptd_conn_await(&link->conn, answer, deadline_in(seconds), err) < 0)
		return -1;
	if (answer->type == type)
		return 0;
	if (answer->type == CKPTD_REFUSED)
		err_fail(err, answer->refused.status, "refused: %s", answer->refused.text);
	else
		err_fail(err, EXIT_DATA, "protocol: %s came as an answer", ckptd_type_name(answer->type));
	ckptd_message_release(answer);
	return -1;
}

int ckptd_control_status(const char *path, struct ckptd_message *state, struct err *err)
{
	const struct ckptd_message question = { .type = CKPTD_STATUS };
	struct ckptd_link link;
	if (ckptd_start_connect(path, &link, err) < 0)
		return -1;
	int rc = ask(&link, &question, CKPTD_STATE, ANSWER_SECONDS, state, err);
	ckptd_start_leave(&link);
	return rc;
}

int ckptd_control_settle(const char *path, double seconds, struct err *err)
{
	struct deadline deadline = deadline_in(seconds);
	struct ckptd_message state;
	int64_t clients;
	do {
		if (ckptd_control_status(path, &state, err) < 0)
			return -1;
		clients = state.state.clients;
		ckptd_message_release(&state);
	} while (clients > 0 && deadline_sleep(deadline, SETTLE_SECONDS));
	if (clients == 0)
		return 0;
	return err_fail(err, EXIT_LOST,
		"service: what a former step handed over to the one at %s is not durable after %g s: the "
		"newest checkpoint that is counts",
		path, seconds);
}

int ckptd_control_finish(const char *path, double seconds, struct ckptd_message *finished,
	struct err *err)
{
	const struct ckptd_message question = { .type = CKPTD_FINISH,
		.finish.seconds = (int64_t)ceil(seconds) };
	struct ckptd_link link;
	if (ckptd_start_connect(path, &link, err) < 0)
		return err->status == EXIT_LOST ? 0 : -1;
	int rc = ask(&link, &question, CKPTD_FINISHED, seconds + ANSWER_SECONDS, finished, err);
	if (rc < 0)
		err_prefix(err, "service: the one at %s did not say what it lost, and was killed", path);
	/* Even a service that has answered may hang in the kernel, in a write that never ends. */
	if (rc < 0 || !ckptd_process_wait(&link.process, deadline_in(END_SECONDS)))
		ckptd_process_kill(&link.process, deadline_in(END_SECONDS));
	ckptd_start_leave(&link);
	return rc < 0 ? -1 : 1;
}
