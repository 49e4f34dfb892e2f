/* SPDX-License-Identifier: Apache-2.0 */
/* In slurmstepd: reports the end of a task to srun, and to the muster-run that has started srun. */
#include "config.h"

#include "plugin/spank_end.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "common/hostlist.h"
#include "common/ident.h"
#include "common/last_words.h"
#include "common/number.h"
#include "common/siphash.h"
#include "plugin/end_channel.h"
#include "plugin/spank_task.h"
#include "plugin/task_end.h"

/* Enough for a message with one lost packet. A node sends two messages at most, or three if the
 * second task failed by itself. */
#define TELL_SECONDS 1.5
/* If another rank's end may have been the cause, that rank's message must arrive first. */
#define ECHO_SECONDS 0.05

static struct {
	int words;       /* the tasks' last words; -1: none */
	int *first_rank; /* shared with the tasks: rank minus S_TASK_GLOBAL_ID */
	bool told, told_own, known;
} end = { .words = -1 };

static uint32_t item(spank_t spank, enum spank_item name)
{
	uint32_t value = 0;
	return spank_get_item(spank, name, &value) == ESPANK_SUCCESS ? value : 0;
}

static bool variable(spank_t spank, const char *name, char *out, size_t size)
{
	return spank_getenv(spank, name, out, (int)size) == ESPANK_SUCCESS;
}

/* A number that Slurm sets for a task, and that its user may have changed; -1 if it is not a
 * number. */
static int number(spank_t spank, const char *name)
{
	char text[16];
	int64_t value;
	return variable(spank, name, text, sizeof text) && number_whole(text, 0, 1 << 24, &value)
		? (int)value
		: -1;
}

/* `name` is the variable with the port; both listen on the same host. */
static bool find_listener(spank_t spank, const char *name, struct end_address *address)
{
	char host[sizeof address->host], value[END_CHANNEL_VALUE_SIZE];
	return variable(spank, "SLURM_SRUN_COMM_HOST", host, sizeof host)
		&& variable(spank, name, value, sizeof value) && end_address_read(host, value, address);
}

static bool find_launcher(spank_t spank, struct end_address *address)
{
	return find_listener(spank, END_CHANNEL_VARIABLE, address);
}

static void name_node(spank_t spank, char *out, size_t size)
{
	if (!variable(spank, "SLURMD_NODENAME", out, size))
		out[0] = '\0';
}

/* muster-run learns of the step, and by the connection when this node is gone. Before the tasks are
 * made SLURMD_NODENAME is still that of the job's script; the step's nodes are numbered in the
 * order of their list, but with --distribution=arbitrary, which muster-run refuses. */
void spank_end_user_init(spank_t spank)
{
	struct end_address address;
	char message[END_MESSAGE_MAX], node[END_NODE_SIZE];
	const char *nodes = spank_task_env("SLURM_STEP_NODELIST", spank);
	if (!find_listener(spank, END_CHANNEL_RUN, &address) || !nodes
		|| hostlist_nth(nodes, item(spank, S_JOB_NODEID), node, sizeof node) < 0)
		return;
	/* never closed: it ends with slurmstepd */
	end_channel_hold(&address, item(spank, S_JOB_UID), message,
		end_write_step(address.secret, item(spank, S_JOB_STEPID), node, message), TELL_SECONDS);
}

void spank_end_begin(spank_t spank)
{
	int *shared =
		mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared != MAP_FAILED)
		end.first_rank = shared;
	end.words = last_words_make((int)item(spank, S_JOB_LOCAL_TASK_COUNT));
}

/* The key with which ranks authenticate each other (doc/presence.md), derived from the secret that
 * only this step's nodes know. The tasks don't get the secret itself. */
static void set_step_key(spank_t spank)
{
	struct end_address address;
	unsigned long long half[2];
	char text[60];
	if (!find_launcher(spank, &address))
		return;
	for (int i = 0; i < 2; i++) {
		int length = snprintf(text, sizeof text, "roll call %d %s", i, address.secret + 16);
		half[i] = siphash((const unsigned char *)address.secret, text, (size_t)length);
	}
	snprintf(text, sizeof text, "%016llx%016llx", half[0], half[1]);
	spank_setenv(spank, "MUSTER_STEP_KEY", text, 1);
}

void spank_end_task_init(spank_t spank)
{
	char value[100];
	set_step_key(spank);
	/* A step that is started from inside this one has its own srun. */
	spank_unsetenv(spank, END_CHANNEL_VARIABLE);
	spank_unsetenv(spank, END_CHANNEL_RUN);
	spank_unsetenv(spank, IDENT_RESTARTS_LEFT);
	spank_unsetenv(spank, SPANK_TASK_ASIDE);
	spank_unsetenv(spank, LAST_WORDS_VARIABLE);
	int rank = number(spank, "SLURM_PROCID");
	if (end.first_rank && rank >= 0)
		*end.first_rank = rank - (int)item(spank, S_TASK_GLOBAL_ID);
	if (end.words >= 0
		&& last_words_hand_on(end.words, (int)item(spank, S_TASK_ID), value, sizeof value) == 0)
		spank_setenv(spank, LAST_WORDS_VARIABLE, value, 1);
}

int spank_end_rank(spank_t spank)
{
	return (int)item(spank, S_TASK_GLOBAL_ID) + (end.first_rank ? *end.first_rank : 0);
}

bool spank_end_is_result(spank_t spank)
{
	pid_t pid = 0;
	/* Said by the task's own process: a shell around the program may go on to do something else. */
	return end.words >= 0 && spank_get_item(spank, S_TASK_PID, &pid) == ESPANK_SUCCESS && pid > 0
		&& last_words_result_of(end.words, (int)item(spank, S_TASK_ID)) == pid;
}

bool spank_end_progressed(spank_t spank)
{
	return end.words >= 0
		&& last_words_progressed(end.words, (int)item(spank, S_JOB_LOCAL_TASK_COUNT));
}

bool spank_end_leaving(spank_t spank)
{
	return end.words >= 0
		&& last_words_leaving(end.words, (int)item(spank, S_JOB_LOCAL_TASK_COUNT));
}

static void fill_in(spank_t spank, int status, struct task_report *report)
{
	*report = (struct task_report) { .rank = spank_end_rank(spank), .wait_status = status };
	report->world = number(spank, "SLURM_STEP_NUM_TASKS");
	name_node(spank, report->node, sizeof report->node);
	if (end.words >= 0)
		last_words_read(end.words, (int)item(spank, S_TASK_ID), report->words);
}

int spank_end_restarts_left(spank_t spank)
{
	int left = number(spank, IDENT_RESTARTS_LEFT);
	return left > 0 ? left : 0;
}

/* Returns whether it was sent. */
static bool send_report(spank_t spank, const char *variable_name, const struct task_report *report)
{
	struct end_address address;
	char message[END_MESSAGE_MAX];
	if (!find_listener(spank, variable_name, &address))
		return false;
	size_t size = end_write_report(address.secret, report, message);
	return end_channel_tell(&address, item(spank, S_JOB_UID), message, size, TELL_SECONDS) == 0;
}

bool spank_end_tell(spank_t spank, int status)
{
	struct task_report report;
	enum task_blame blame = task_end_blame(status);
	bool own = blame == TASK_BLAME_OWN;
	if (end.told_own || (end.told && !own))
		return end.known;
	end.told = true;
	end.told_own = own;
	fill_in(spank, status, &report);
	if (!own)
		deadline_sleep(deadline_in(1), ECHO_SECONDS);
	bool sent = send_report(spank, END_CHANNEL_VARIABLE, &report);
	send_report(spank, END_CHANNEL_RUN, &report);
	end.known |= sent && blame != TASK_BLAME_TOLD;
	return end.known;
}

void spank_end_running(spank_t spank)
{
	struct end_address address;
	char message[END_MESSAGE_MAX];
	if (end.told && find_launcher(spank, &address))
		end_channel_tell(&address, item(spank, S_JOB_UID), message,
			end_write_running(address.secret, message), TELL_SECONDS);
}
