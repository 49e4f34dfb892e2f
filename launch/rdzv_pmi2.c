/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous through the launcher's PMI2 server (Slurm's mpi/pmi2), for a Slurm without PMIx.
 *
 * Values travel with the fence, in one message up and one down the tree of nodes, however many
 * there are; afterwards each rank reads from its own node's server. A value is base64 under one or
 * more keys, since PMI2 limits a value to 1,023 characters:
 *   HASH.RANK.0    "SIZE:TEXT"; HASH is our key's, which can be longer than PMI2 allows
 *   HASH.RANK.N    the text of the bytes from N * VALUE_BYTES on
 *
 * A fence that does not complete names nobody, so each rank leaves traces when it comes to one:
 *   muster.FENCE.LOCAL RANK     an attribute of the node: the rank. Set by each rank before it asks
 *                               for the fence; costs nothing
 *   muster.FENCE.NODE RANK      a name published at srun: the ranks of this node that have come.
 *                               Only once a fence takes long
 *   muster.FENCE.asks, .told    attributes of the node: one rank asks srun for the names of all
 *                               nodes, the others read what it found */
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/base64.h"
#include "common/hash.h"
#include "common/hostlist.h"
#include "common/number.h"
#include "launch/pmi2_wire.h"
#include "launch/rdzv_provider.h"

#define VALUE_BYTES 756 /* 1,008 characters, after SIZE: */
#define VALUE_LIMIT (64 * 1024)
#define KEY_SIZE 64          /* PMI2_MAX_KEYLEN, with the NUL */
#define NODE_KEY "a node"    /* contains a blank: no key of the caller's does */
#define PATIENCE_SECONDS 1.0 /* with a fence, before srun is told which ranks have come */
/* For asking which ranks are missing. Telling and asking each get at least this long, even if the
 * deadline is nearer: TCP sends a lost SYN again after one second. */
#define INQUEST_SECONDS 2.0
#define NODE_SECONDS 1.0 /* for finding the missing ranks' nodes */
#define FAREWELL_SECONDS 1.0
#define POLL_SECONDS 0.05

/* A task can be a client of PMI2 only once. */
static struct {
	bool open;
	pid_t pid;
	int fences;
	struct pmi2_wire wire;
} client;

struct pmi2 {
	struct ident ident;
	double timeout;
	bool met;
};

/* ---- the connection ---- */

/* A child of the task that exits must not finalize. */
static void finalize_at_exit(void)
{
	if (client.open && !client.wire.lost && client.pid == getpid())
		pmi2_wire_ask(&client.wire, deadline_in(FAREWELL_SECONDS), NULL, "cmd=finalize;");
	pmi2_wire_clear(&client.wire);
	client.open = false;
}

static int find_socket(struct err *err)
{
	const char *text = getenv("PMI_FD");
	int64_t fd;
	int type = 0;
	socklen_t size = sizeof type;
	if (!text || !number_whole(text, 0, INT_MAX, &fd)
		|| getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM
		|| fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
		return err_fail(err, EXIT_USAGE,
			"rendezvous: couldn't use PMI_FD=%s: it is no open socket: start the program with srun "
			"--mpi=pmi2, and close no files on the way",
			text ? text : "");
	return (int)fd;
}

static int introduce(const struct ident *ident, struct deadline deadline, struct err *err)
{
	const char *job = getenv("PMI_JOBID");
	if (pmi2_wire_ask(&client.wire, deadline, err,
			"cmd=fullinit;pmijobid=%.60s;pmirank=%d;threaded=FALSE;", job ? job : "0", ident->rank)
		< 0)
		return -1;
	long rank = pmi2_wire_number(&client.wire, "rank", INT_MAX),
		 size = pmi2_wire_number(&client.wire, "size", INT_MAX);
	if (rank == ident->rank && size == ident->world_size)
		return 0;
	return err_fail(err, EXIT_USAGE,
		"rendezvous: couldn't meet as rank %d of %d: the PMI2 server calls this task rank %ld of "
		"%ld: start the program with srun itself, without changing SLURM_* or PMI_* on the way",
		ident->rank, ident->world_size, rank, size);
}

static int open_client(const struct ident *ident, struct deadline deadline, struct err *err)
{
	if (client.open)
		return 0;
	int fd = find_socket(err);
	if (fd < 0)
		return -1;
	if (pmi2_wire_open(&client.wire, fd, deadline, err) < 0
		|| introduce(ident, deadline, err) < 0) {
		pmi2_wire_clear(&client.wire);
		return -1;
	}
	client.open = true;
	client.pid = getpid();
	atexit(finalize_at_exit);
	return 0;
}

/* ---- values ---- */

static const char *part_key(char out[KEY_SIZE], const char *key, int rank, size_t part)
{
	char hash[HASH_HEX_SIZE];
	snprintf(out, KEY_SIZE, "%s.%d.%zu", hash_hex(hash_bytes(key, strlen(key)), hash), rank, part);
	return out;
}

static size_t part_bytes(size_t size, size_t part)
{
	size_t left = size - part * VALUE_BYTES;
	return left < VALUE_BYTES ? left : VALUE_BYTES;
}

static int put_value(const struct pmi2 *pmi2, const char *key, const void *value, size_t size,
	struct deadline deadline, struct err *err)
{
	char full[KEY_SIZE], head[16], text[BASE64_LENGTH(VALUE_BYTES) + 1];
	snprintf(head, sizeof head, "%zu:", size);
	for (size_t part = 0; part == 0 || part * VALUE_BYTES < size; part++) {
		base64_encode((const char *)value + part * VALUE_BYTES, part_bytes(size, part), text);
		if (pmi2_wire_ask(&client.wire, deadline, err, "cmd=kvs-put;key=%s;value=%s%s;",
				part_key(full, key, pmi2->ident.rank, part), part == 0 ? head : "", text)
			< 0)
			return -1;
	}
	return 0;
}

/* The text under one key; NULL with an error if there is none. */
static char *get_part(int rank, const char *key, size_t part, struct deadline deadline,
	struct err *err)
{
	char full[KEY_SIZE];
	if (pmi2_wire_ask(&client.wire, deadline, err, "cmd=kvs-get;key=%s;",
			part_key(full, key, rank, part))
		< 0)
		return NULL;
	char *text = pmi2_wire_text(&client.wire, "value");
	if (!text)
		err_fail(err, EXIT_LOST,
			"rendezvous: couldn't get %s of rank %d: it was not put before the last fence", key,
			rank);
	return text;
}

static int malformed(const char *key, int rank, struct err *err)
{
	return err_fail(err, EXIT_LOST, "rendezvous: couldn't read %s of rank %d: not ours", key, rank);
}

static int read_size(const char *text, size_t *size)
{
	int end = 0;
	if (text[0] < '0' || text[0] > '9' || sscanf(text, "%6zu:%n", size, &end) != 1 || end == 0
		|| *size > VALUE_LIMIT)
		return -1;
	return end;
}

static int get_value(int rank, const char *key, void **value, size_t *size,
	struct deadline deadline, struct err *err)
{
	AUTO_FREE char *bytes = NULL;
	for (size_t part = 0; part == 0 || part * VALUE_BYTES < *size; part++) {
		AUTO_FREE char *text = get_part(rank, key, part, deadline, err);
		int head = 0;
		if (!text)
			return -1;
		if (part == 0) {
			head = read_size(text, size);
			if (head < 0)
				return malformed(key, rank, err);
			bytes = calloc(1, *size + 1);
			if (!bytes)
				return err_set(err, "rendezvous: no memory for %zu bytes", *size);
		}
		size_t here = part_bytes(*size, part);
		if (base64_decode(text + head, strlen(text + head), bytes + part * VALUE_BYTES, here)
			!= (long)here)
			return malformed(key, rank, err);
	}
	*value = AUTO_TAKE(bytes);
	return 0;
}

/* ---- which ranks have come ---- */

/* A set of ranks as text, such as "0-3,7". Malloc'ed; NULL when out of memory. */
static char *write_ranks(const bool *ranks, int world_size)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	for (int first = 0, last; first < world_size; first = last + 1) {
		for (last = first; ranks[first] && last + 1 < world_size && ranks[last + 1]; last++)
			;
		if (ranks[first])
			fprintf(out, last > first ? "%s%d-%d" : "%s%d", ftell(out) > 0 ? "," : "", first, last);
	}
	return fclose(out) == 0 ? text : NULL;
}

/* Adds the ranks in a text to a set, up to the first that is not in this world. */
static void read_ranks(const char *text, bool *ranks, int world_size)
{
	int first, last, end;
	while (text && sscanf(text, "%8d%n", &first, &end) == 1) {
		text += end;
		last = first;
		if (*text == '-' && sscanf(text + 1, "%8d%n", &last, &end) == 1)
			text += 1 + end;
		if (first < 0 || last >= world_size)
			return;
		for (int rank = first; rank <= last; rank++)
			ranks[rank] = true;
		text = *text == ',' ? text + 1 : NULL;
	}
}

/* An attribute that a rank of this node has set; malloc'ed, NULL if there is none. */
static char *node_attribute(const char *name, struct deadline deadline)
{
	if (pmi2_wire_ask(&client.wire, deadline, NULL,
			"cmd=info-getnodeattr;key=muster.%d.%s;wait=FALSE;", client.fences, name)
		< 0)
		return NULL;
	return pmi2_wire_text(&client.wire, "value");
}

static int set_node_attribute(const char *name, const char *value, struct deadline deadline,
	struct err *err)
{
	return pmi2_wire_ask(&client.wire, deadline, err,
		"cmd=info-putnodeattr;key=muster.%d.%s;value=%s;", client.fences, name, value);
}

static int leave_trace(const struct pmi2 *pmi2, struct deadline deadline, struct err *err)
{
	char name[16], rank[16];
	snprintf(name, sizeof name, "%d", pmi2->ident.local_rank);
	snprintf(rank, sizeof rank, "%d", pmi2->ident.rank);
	return set_node_attribute(name, rank, deadline, err);
}

static void look_here(const struct pmi2 *pmi2, bool *came, struct deadline deadline)
{
	for (int i = 0; i < pmi2->ident.local_world_size && !client.wire.lost; i++) {
		char name[16];
		snprintf(name, sizeof name, "%d", i);
		AUTO_FREE char *rank = node_attribute(name, deadline);
		read_ranks(rank, came, pmi2->ident.world_size);
	}
}

/* Each rank publishes this again, so that the last one to come on a node is included. If srun can't
 * be told, only a name is lost. */
static void tell_srun(const struct pmi2 *pmi2, struct deadline deadline)
{
	AUTO_FREE bool *came = calloc((size_t)pmi2->ident.world_size, sizeof *came);
	if (!came)
		return;
	look_here(pmi2, came, deadline);
	AUTO_FREE char *text = write_ranks(came, pmi2->ident.world_size);
	if (text)
		pmi2_wire_ask(&client.wire, deadline, NULL, "cmd=name-publish;name=muster.%d.%d;port=%s;",
			client.fences, pmi2->ident.node_rank, text);
}

/* The ranks that have come on a node, as it told srun; malloc'ed, NULL if it has not. */
static char *ask_srun(int node, struct deadline deadline)
{
	if (pmi2_wire_ask(&client.wire, deadline, NULL, "cmd=name-lookup;name=muster.%d.%d;",
			client.fences, node)
		< 0)
		return NULL;
	/* The protocol calls this field "port". */
	char *text = pmi2_wire_text(&client.wire, "value");
	return text ? text : pmi2_wire_text(&client.wire, "port");
}

/* False if srun does not know what this node told it: then it can't answer for others either. */
static bool look_elsewhere(const struct pmi2 *pmi2, bool *came, struct deadline deadline)
{
	AUTO_FREE char *own = ask_srun(pmi2->ident.node_rank, deadline);
	for (int node = 0; own && node < pmi2->ident.node_count && !client.wire.lost; node++) {
		AUTO_FREE char *there = ask_srun(node, deadline);
		read_ranks(there, came, pmi2->ident.world_size);
	}
	return own && !client.wire.lost;
}

/* What another rank of this node has found out; malloc'ed, NULL if it finds nothing in time. */
static char *wait_for_findings(struct deadline deadline)
{
	char *told = NULL;
	while (!client.wire.lost && !(told = node_attribute("told", deadline))
		&& deadline_sleep(deadline, POLL_SECONDS))
		;
	return told;
}

/* Marks the ranks that have come. False if that can't be learnt for all nodes. srun answers one
 * question at a time, so one rank of a node asks for all. */
static bool look_everywhere(const struct pmi2 *pmi2, bool *came, struct deadline deadline)
{
	came[pmi2->ident.rank] = true;
	look_here(pmi2, came, deadline);
	if (pmi2->ident.node_count == 1)
		return true;
	AUTO_FREE char *asks = node_attribute("asks", deadline);
	AUTO_FREE char *told = asks ? wait_for_findings(deadline) : NULL;
	if (asks) {
		read_ranks(told, came, pmi2->ident.world_size);
		return told;
	}
	set_node_attribute("asks", "yes", deadline, NULL);
	if (!look_elsewhere(pmi2, came, deadline))
		return false;
	told = write_ranks(came, pmi2->ident.world_size);
	if (told)
		set_node_attribute("told", told, deadline, NULL);
	return true;
}

/* ---- the fence ---- */

struct question {
	const struct pmi2 *pmi2;
	struct deadline deadline;
};

/* Before the first fence only the mapping tells where a rank runs. Its order of nodes differs from
 * the node list of a heterogeneous job. */
static bool is_mapped(const struct question *question, int rank, char node[RDZV_NODE_SIZE])
{
	const struct ident *ident = &question->pmi2->ident;
	const char *nodes = getenv("SLURM_STEP_NODELIST");
	char own[RDZV_NODE_SIZE];
	if (!nodes || getenv("SLURM_HET_SIZE")
		|| pmi2_wire_ask(&client.wire, question->deadline, NULL,
			   "cmd=info-getjobattr;key=PMI_process_mapping;")
			< 0)
		return false;
	AUTO_FREE char *map = pmi2_wire_text(&client.wire, "value");
	return map && pmi2_map_node(map, ident->rank) == ident->node_rank
		&& hostlist_nth(nodes, ident->node_rank, own, sizeof own) >= 0
		&& strcmp(own, ident->node) == 0
		&& hostlist_nth(nodes, pmi2_map_node(map, rank), node, RDZV_NODE_SIZE) >= 0;
}

static void node_of(const void *arg, int rank, char node[RDZV_NODE_SIZE])
{
	const struct question *question = arg;
	AUTO_FREE void *put = NULL;
	size_t size;
	bool found = !client.wire.lost
		&& (question->pmi2->met
				? get_value(rank, NODE_KEY, &put, &size, question->deadline, NULL) == 0
				: is_mapped(question, rank, node));
	if (put || !found)
		snprintf(node, RDZV_NODE_SIZE, "%s", put ? (const char *)put : "");
}

static struct deadline at_least(struct deadline deadline)
{
	struct deadline least = deadline_in(INQUEST_SECONDS);
	return deadline.at > least.at ? deadline : least;
}

/* The last part of a fence that takes too long: finds out which ranks are missing, while the fence
 * may still complete. */
static int end_fence(const struct pmi2 *pmi2, double timeout, struct deadline end, struct err *err)
{
	AUTO_FREE bool *came = calloc((size_t)pmi2->ident.world_size, sizeof *came);
	if (!came)
		return err_set(err, "rendezvous: no memory for %d ranks", pmi2->ident.world_size);
	bool known = look_everywhere(pmi2, came, at_least(end));
	int rc = client.wire.lost ? 0 : pmi2_wire_fence(&client.wire, end, err);
	if (rc > 0)
		return 0;
	if (rc == 0 && known)
		rdzv_missing(came, pmi2->ident.world_size, timeout, node_of,
			&(struct question) { pmi2, deadline_in(NODE_SECONDS) }, err);
	else if (rc == 0)
		err_fail(err, EXIT_LOST,
			"rendezvous: couldn't meet all %d ranks within %g s, and srun doesn't answer who is "
			"missing",
			pmi2->ident.world_size, timeout);
	client.wire.lost = true;
	return -1;
}

/* Waits until the fence is over or the deadline has passed. Finding the missing ranks is part of
 * that time. */
static int wait_fence(const struct pmi2 *pmi2, double timeout, struct err *err)
{
	struct deadline end = deadline_in(timeout),
					last_part = { end.at - shorter(INQUEST_SECONDS, timeout / 5) };
	if (leave_trace(pmi2, end, err) < 0)
		return -1;
	int rc =
		pmi2_wire_fence(&client.wire, deadline_in(shorter(PATIENCE_SECONDS, timeout / 5)), err);
	if (rc == 0) {
		tell_srun(pmi2, at_least(last_part));
		rc = pmi2_wire_fence(&client.wire, last_part, err);
	}
	if (rc == 0)
		return end_fence(pmi2, timeout, end, err);
	return rc > 0 ? 0 : -1;
}

static int pmi2_fence(void *state, double timeout, struct err *err)
{
	int rc = wait_fence(state, timeout, err);
	client.fences++;
	return rc;
}

/* ---- the provider ---- */

static void *pmi2_open(const struct ident *ident, double timeout, struct err *err)
{
	struct deadline deadline = deadline_in(timeout);
	if (open_client(ident, deadline, err) < 0)
		return NULL;
	struct pmi2 *pmi2 = calloc(1, sizeof *pmi2);
	if (!pmi2) {
		err_set(err, "rendezvous: no memory");
		return NULL;
	}
	*pmi2 = (struct pmi2) { .ident = *ident, .timeout = timeout };
	if (put_value(pmi2, NODE_KEY, ident->node, strlen(ident->node), deadline, err) < 0
		|| pmi2_fence(pmi2, timeout, err) < 0) {
		free(pmi2);
		return NULL;
	}
	pmi2->met = true;
	return pmi2;
}

static int pmi2_put(void *state, enum rdzv_life life, const char *key, const void *value,
	size_t size, struct err *err)
{
	const struct pmi2 *pmi2 = state;
	return put_value(pmi2, key, value, size, deadline_in(pmi2->timeout), err);
}

static int pmi2_get(void *state, enum rdzv_life life, int rank, const char *key, void **value,
	size_t *size, double timeout, struct err *err)
{
	return get_value(rank, key, value, size, deadline_in(timeout), err);
}

/* Slurm kills the step and ignores the status. */
static void pmi2_abort(void *state, int status, const char *why)
{
	char text[200];
	snprintf(text, sizeof text, "%s", why);
	for (char *c = text; *c; c++)
		if (*c == ';' || (unsigned char)*c < ' ')
			*c = ',';
	pmi2_wire_send(&client.wire, deadline_in(FAREWELL_SECONDS), NULL,
		"cmd=abort;isworld=TRUE;msg=%s;", text);
	client.wire.lost = true;
}

/* The server is told when the process ends, since it takes no task back. */
static void pmi2_close(void *state, int orderly)
{
	if (!orderly)
		client.wire.lost = true;
	free(state);
}

const struct rdzv_provider rdzv_pmi2 = {
	.name = "pmi2",
	.open = pmi2_open,
	.put = pmi2_put,
	.fence = pmi2_fence,
	.get = pmi2_get,
	.abort = pmi2_abort,
	.close = pmi2_close,
};
