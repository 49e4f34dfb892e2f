/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the service to attach to: the node's own if it can be reached and has the rights to
 * write, else one that this process starts. Before it takes a new service it makes sure that the
 * lost one has stopped writing. */
#include "config.h"
#include "checkpoint/client/ckptd_contact.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/protocol/ckptd_socket.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"

/* Seconds that a dying service of the node may take between closing its connections and its end. */
#define DYING_SECONDS 2

/* ---- the first message ---- */

/* Files should get the modes that this process would give them. Reading the umask with umask()
 * would change it for a moment. */
static int64_t own_umask(void)
{
	AUTO_FCLOSE FILE *status = fopen("/proc/self/status", "re");
	unsigned mask = 022;
	char line[256];
	while (status && fgets(line, sizeof line, status))
		if (sscanf(line, "Umask: %o", &mask) == 1)
			break;
	return (int64_t)(mask & 0777);
}

/* JSON can hold only UTF-8. The path is used in messages only, so other bytes become '?'. */
static char *path_as_text(const char *path)
{
	json_t *text = json_string(path);
	char *copy = strdup(path);
	for (char *c = copy; c && *c && !text; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	json_decref(text);
	return copy;
}

static int make_secret(char secret[33], struct err *err)
{
	unsigned char bytes[16];
	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
		return err_set(err, "service: couldn't get random bytes: %m");
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(secret + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* *copy is NULL where `text` is. */
static int copy_text(const char *text, char **copy, struct err *err)
{
	*copy = text ? strdup(text) : NULL;
	return text && !*copy ? err_set(err, "service: no memory") : 0;
}

int ckptd_contact_init(struct ckptd_contact *contact, const struct ckptd_plan *plan,
	struct err *err)
{
	*contact = (struct ckptd_contact) { .plan = plan,
		.attach.type = CKPTD_ATTACH,
		.link = { .conn.fd = -1, .process.fd = -1 } };
	struct ckptd_attach *attach = &contact->attach.attach;
	contact->path = path_as_text(plan->dir->path);
	attach->token = plan->token;
	attach->path = contact->path;
	attach->keep_last = (int64_t)plan->retention.keep_last;
	attach->keep_every = plan->retention.keep_every;
	attach->keep_best = (int64_t)plan->retention.keep_best;
	attach->umask = own_umask();
	if (!contact->path)
		return err_set(err, "service: no memory");
	if (copy_text(plan->host, &contact->host, err) < 0
		|| copy_text(plan->first, &contact->first, err) < 0
		|| make_secret(contact->secret, err) < 0)
		return -1;
	if (plan->snapshot->parts > 1 && plan->snapshot->part == 0) {
		attach->host = contact->host;
		attach->secret = contact->secret;
	} else if (plan->snapshot->parts > 1) {
		attach->first = contact->first;
	}
	ckptd_attach_describe(attach, plan->snapshot, plan->memory);
	return ckptd_attach_check(attach, err);
}

/* ---- attaching ---- */

static int send_attach(struct ckptd_contact *contact, struct err *err)
{
	const struct snapshot_memory *memory = contact->plan->memory;
	int descriptors[CKPTD_DESCRIPTORS] = { contact->plan->dir->fd };
	for (int i = 0; i < memory->buffers; i++)
		descriptors[1 + i] = memory->fd[i];
	return ckptd_conn_send(&contact->link.conn, &contact->attach, descriptors, 1 + memory->buffers,
		err);
}

static int hear_attached(struct ckptd_contact *contact, const struct ckptd_message *answer,
	struct err *err)
{
	struct ckptd_attach *attach = &contact->attach.attach;
	if (answer->type == CKPTD_REFUSED)
		return err_fail(err, answer->refused.status, "refused: %s", answer->refused.text);
	if (answer->type != CKPTD_ATTACHED)
		return err_fail(err, EXIT_DATA, "protocol: %s came where ATTACHED should",
			ckptd_type_name(answer->type));
	contact->service = answer->attached.pid;
	if (!attach->host || answer->attached.port == attach->port)
		return 0;
	if (attach->port > 0) {
		log_error("checkpoint: the service that took over couldn't take port %d: the other parts' "
				  "services won't find it",
			(int)attach->port);
		return 0;
	}
	attach->port = answer->attached.port;
	snprintf(contact->address, sizeof contact->address, "%s:%d:%s", attach->host, (int)attach->port,
		contact->secret);
	return 0;
}

static int attach_to(struct ckptd_contact *contact, struct err *err)
{
	struct ckptd_message answer;
	if (send_attach(contact, err) < 0
		|| ckptd_conn_await(&contact->link.conn, &answer, deadline_in(contact->plan->timeout), err)
			< 0)
		return -1;
	int rc = hear_attached(contact, &answer, err);
	ckptd_message_release(&answer);
	return rc;
}

/* The node's service has the groups that the node's user database lists for the user; this process
 * has the groups that came with the job. A directory that the user does not own may be accessible
 * only through one of the latter. */
static int check_rights(const struct ckptd_contact *contact, struct err *err)
{
	const struct ckpt_dir *dir = contact->plan->dir;
	struct statx st;
	/* AT_STATX_DONT_SYNC: a file server that hangs is not asked. */
	if (statx(dir->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_UID, &st) == 0
		&& st.stx_uid == geteuid())
		return 0;
	if (ckptd_socket_check_groups(contact->link.conn.fd, err) == 0)
		return 0;
	char lacking[sizeof err->text];
	snprintf(lacking, sizeof lacking, "%s", err->text);
	return err_fail(err, EXIT_LOST, "%.300s, and %.300s is not the user's own", lacking,
		contact->path);
}

/* *nobody: whether it is certain that no process listens at `path`. */
static int use_the_node_s(struct ckptd_contact *contact, const char *path, bool *nobody,
	struct err *err)
{
	if (ckptd_start_connect(path, &contact->link, err) < 0) {
		*nobody = errno == ECONNREFUSED;
		return -1;
	}
	*nobody = false;
	if (check_rights(contact, err) == 0 && attach_to(contact, err) == 0)
		return 0;
	ckptd_start_leave(&contact->link);
	return -1;
}

static int start_own(struct ckptd_contact *contact, struct err *err)
{
	struct ckptd_process *process = &contact->link.process;
	char fate[60];
	if (ckptd_start_own(&contact->link, err) < 0)
		return -1;
	if (attach_to(contact, err) == 0)
		return 0;
	/* After its last message the process may take a moment to end. */
	ckptd_conn_close(&contact->link.conn);
	ckptd_process_wait(process, deadline_in(1));
	err_prefix(err, "service: the one that was started %s",
		ckptd_process_fate(process, fate, sizeof fate));
	ckptd_process_kill(process, deadline_in(contact->plan->timeout));
	ckptd_start_leave(&contact->link);
	return -1;
}

/* ---- from one service to the next ---- */

/* The lost service must have stopped writing before another one begins: two of them in one folder
 * would corrupt its files. A service of our own is killed. The node's service can't be killed from
 * here: it is gone, or it must be reached again. */
static int retire(struct ckptd_contact *contact, bool *lives, struct err *err)
{
	struct ckptd_process *process = &contact->link.process;
	*lives = ckptd_process_alive(process);
	if (*lives && process->child) {
		*lives = false;
		if (!ckptd_process_kill(process, deadline_in(contact->plan->timeout)))
			return err_fail(err, EXIT_LOST, "service: pid %d hangs and can't be killed",
				(int)process->pid);
	}
	if (!*lives)
		ckptd_process_close(process);
	return 0;
}

int ckptd_contact_find(struct ckptd_contact *contact, struct err *err)
{
	const char *path = contact->plan->socket ? contact->plan->socket : getenv("MUSTER_CKPTD");
	bool lives, nobody;
	if (retire(contact, &lives, err) < 0)
		return -1;
	struct ckptd_process old = contact->link.process;
	err_fail(err, EXIT_LOST, "service: pid %d still runs, but can't be reached",
		(int)contact->service);
	if (path && path[0]) {
		if (use_the_node_s(contact, path, &nobody, err) == 0) {
			ckptd_process_close(&old);
			return 0;
		}
		/* A service that does not listen any more is about to end. Its disk may hold it up. */
		if (nobody && lives) {
			lives = !old.unseen && !ckptd_process_wait(&old, deadline_in(contact->plan->timeout));
			if (!lives)
				ckptd_process_close(&old);
		}
		contact->link.process = old;
		if (!lives)
			log_warn("checkpoint: %s: starting a service of its own, which ends with the step",
				err->text);
	}
	return lives ? -1 : start_own(contact, err);
}

void ckptd_contact_lose(struct ckptd_contact *contact, const struct err *why, struct err *said)
{
	struct ckptd_process *process = &contact->link.process;
	char fate[60];
	ckptd_conn_close(&contact->link.conn);
	/* A dying process closes its connections before its parent can get its status. */
	if (why->status == EXIT_LOST)
		ckptd_process_wait(process,
			deadline_in(process->child ? contact->plan->timeout : DYING_SECONDS));
	err_fail(said, EXIT_LOST, "the service, pid %d, %s (%.500s)", (int)contact->service,
		ckptd_process_fate(process, fate, sizeof fate), why->text);
}

void ckptd_contact_release(struct ckptd_contact *contact)
{
	ckptd_start_leave(&contact->link);
	ckptd_message_release(&contact->attach);
	free(contact->path), free(contact->host), free(contact->first);
}
