/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a deadline on calls of PMIx that have none in Slurm. */
#include "launch/pmix_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/ident.h"
#include "common/log.h"
#include "common/notice.h"
#include "common/thread.h"
#include "launch/rdzv_provider.h"

#define INIT_SECONDS 60.0
#define FINALIZE_SECONDS 10.0
#define STREAM_SECONDS 1.0 /* for a server that ends, to let go of what this process writes to */
#define STREAM_RETRY 0.01

struct pmix_client pmix_client;

struct answer *answer_create(struct err *err)
{
	struct answer *answer = calloc(1, sizeof *answer);
	if (!answer) {
		err_set(err, "rendezvous: no memory");
		return NULL;
	}
	deadline_condition(&answer->changed);
	pthread_mutex_init(&answer->lock, NULL);
	answer->references = 2;
	return answer;
}

void answer_drop(struct answer *answer)
{
	pthread_mutex_lock(&answer->lock);
	int left = --answer->references;
	pthread_mutex_unlock(&answer->lock);
	if (left > 0)
		return;
	pthread_cond_destroy(&answer->changed);
	pthread_mutex_destroy(&answer->lock);
	free(answer->bytes);
	free(answer);
}

void answer_give(struct answer *answer, pmix_status_t status)
{
	pthread_mutex_lock(&answer->lock);
	answer->status = status;
	answer->done = true;
	pthread_cond_signal(&answer->changed);
	pthread_mutex_unlock(&answer->lock);
	answer_drop(answer);
}

pmix_status_t answer_wait(struct answer *answer, struct deadline deadline)
{
	struct timespec until = deadline_timespec(deadline);
	pthread_mutex_lock(&answer->lock);
	while (!answer->done && pthread_cond_timedwait(&answer->changed, &answer->lock, &until) == 0)
		;
	pmix_status_t status = answer->done ? answer->status : PMIX_ERR_TIMEOUT;
	pthread_mutex_unlock(&answer->lock);
	return status;
}

char *pmix_client_copy(const char *from, size_t size)
{
	char *copy = malloc(size + 1);
	if (!copy)
		return NULL;
	if (size)
		memcpy(copy, from, size);
	copy[size] = '\0';
	return copy;
}

static pmix_status_t copy_value(struct answer *answer, const pmix_value_t *value)
{
	switch (value->type) {
	case PMIX_UINT16: answer->number = value->data.uint16; return PMIX_SUCCESS;
	case PMIX_UINT32: answer->number = value->data.uint32; return PMIX_SUCCESS;
	case PMIX_PROC_RANK: answer->number = value->data.rank; return PMIX_SUCCESS;
	case PMIX_STRING:
		answer->size = strlen(value->data.string);
		answer->bytes = pmix_client_copy(value->data.string, answer->size);
		return answer->bytes ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
	case PMIX_BYTE_OBJECT:
		answer->size = value->data.bo.size;
		answer->bytes = pmix_client_copy(value->data.bo.bytes, answer->size);
		return answer->bytes ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
	default: return PMIX_ERR_TYPE_MISMATCH;
	}
}

static void on_value(pmix_status_t status, pmix_value_t *value, void *arg)
{
	struct answer *answer = arg;
	if (status == PMIX_SUCCESS)
		status = value ? copy_value(answer, value) : PMIX_ERR_NOT_FOUND;
	answer_give(answer, status);
}

struct answer *pmix_client_ask(pmix_rank_t rank, const char *key, bool refresh, struct err *err)
{
	struct answer *answer = answer_create(err);
	if (!answer)
		return NULL;
	pmix_proc_t proc;
	PMIX_LOAD_PROCID(&proc, pmix_client.self.nspace, rank);
	pmix_library_flag(&answer->info, PMIX_GET_REFRESH_CACHE, refresh);
	pmix_status_t status =
		pmix_library.get_nb(&proc, key, refresh ? &answer->info : NULL, refresh, on_value, answer);
	if (status != PMIX_SUCCESS)
		answer_give(answer, status);
	return answer;
}

/* A number that the server sent at start; -1 if it did not. */
static int ask_number(pmix_rank_t rank, const char *key)
{
	struct answer *answer = pmix_client_ask(rank, key, false, NULL);
	if (!answer)
		return -1;
	int number =
		answer_wait(answer, deadline_in(PMIX_LOCAL_SECONDS)) == PMIX_SUCCESS && !answer->bytes
		? (int)answer->number
		: -1;
	answer_drop(answer);
	return number;
}

/* Whether nobody reads what is written to it any more. */
static bool is_broken(int fd)
{
	struct pollfd pipe = { .fd = fd, .events = POLLOUT };
	return poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLERR);
}

/* The server has read what this process prints. Without it the program's next line would end it by
 * SIGPIPE, or fail, before it has saved: what it prints is lost, and nothing else. */
static void print_to_nobody(void)
{
	struct deadline deadline = deadline_in(STREAM_SECONDS);
	struct sigaction now;
	bool out = false, err = false;
	if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
		signal(SIGPIPE, SIG_IGN);
	do {
		out = is_broken(STDOUT_FILENO);
		err = is_broken(STDERR_FILENO);
	} while ((!out || !err) && deadline_sleep(deadline, STREAM_RETRY));
	AUTO_CLOSE int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (out && null >= 0)
		dup2(null, STDOUT_FILENO);
	if (err && null >= 0)
		dup2(null, STDERR_FILENO);
}

/* The server is slurmstepd or mpirun's daemon. Without it nobody hears of this process's end, so
 * that the step would hang at its end; all ranks stop now, save and come back. */
static void on_lost_server(size_t handler, pmix_status_t status, const pmix_proc_t *source,
	pmix_info_t info[], size_t count, pmix_info_t *results, size_t result_count,
	pmix_event_notification_cbfunc_fn_t done, void *arg)
{
	pmix_client.lost = true;
	if (!atomic_exchange(&pmix_client.without_server, true))
		log_warn("the launcher (slurmstepd, or mpirun's daemon) has ended on this node: the run "
				 "stops");
	notice_record(NOTICE_LAUNCHER);
	print_to_nobody();
	if (done)
		done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, arg);
}

static void on_registered(pmix_status_t status, size_t handler, void *arg)
{
	if (status != PMIX_SUCCESS)
		log_debug("rendezvous: PMIx will not tell if its server ends: %s",
			pmix_library.error_string(status));
}

static void watch_server(void)
{
	static pmix_status_t lost = PMIX_ERR_LOST_CONNECTION;
	if (pmix_library.register_event_handler)
		pmix_library.register_event_handler(&lost, 1, NULL, 0, on_lost_server, on_registered, NULL);
}

static void *init_thread(void *arg)
{
	struct answer *answer = arg;
	answer_give(answer, pmix_library.init(&pmix_client.self, NULL, 0));
	return NULL;
}

/* Runs a blocking call in its own thread, which gives the answer. */
static pmix_status_t call(void *(*body)(void *answer), double timeout)
{
	struct answer *answer = answer_create(NULL);
	if (!answer)
		return PMIX_ERR_NOMEM;
	if (thread_start(NULL, body, answer) != 0)
		answer_give(answer, PMIX_ERR_OUT_OF_RESOURCE);
	pmix_status_t status = answer_wait(answer, deadline_in(timeout));
	answer_drop(answer);
	return status;
}

static void *finalize_thread(void *arg)
{
	answer_give(arg, pmix_library.finalize(NULL, 0));
	return NULL;
}

/* A server that hangs must not keep the process. */
void pmix_client_close(void)
{
	if (pmix_client.open && !pmix_client.lost)
		call(finalize_thread, FINALIZE_SECONDS);
	pmix_client.open = false;
}

int pmix_client_open(struct err *err)
{
	if (pmix_client.open)
		return 0;
	if (pmix_library_load(err) < 0)
		return -1;
	pmix_status_t status = call(init_thread, INIT_SECONDS);
	if (status != PMIX_SUCCESS)
		return err_fail(err, EXIT_LOST,
			"rendezvous: couldn't reach the PMIx server of this node: %s",
			pmix_library.error_string(status));
	pmix_client.open = true;
	watch_server();
	atexit(pmix_client_close);
	return 0;
}

void pmix_client_node(int rank, char *node, size_t size)
{
	node[0] = '\0';
	struct answer *answer = pmix_client_ask((pmix_rank_t)rank, PMIX_HOSTNAME, false, NULL);
	if (!answer)
		return;
	if (answer_wait(answer, deadline_in(1)) == PMIX_SUCCESS && answer->bytes)
		snprintf(node, size, "%s", answer->bytes);
	answer_drop(answer);
}

char (*pmix_client_nodes(int world_size))[RDZV_NODE_SIZE]
{
	char(*nodes)[RDZV_NODE_SIZE] = calloc((size_t)world_size, sizeof *nodes);
	for (int rank = 0; nodes && rank < world_size; rank++) {
		pmix_client_node(rank, nodes[rank], RDZV_NODE_SIZE);
		if (nodes[rank][0])
			continue;
		free(nodes);
		return NULL;
	}
	return nodes;
}

/* Open MPI's numbers are those of its daemons, and mpirun may run on a node that has no rank. Nodes
 * are numbered in the order of their first ranks. */
static void number_nodes(struct ident_pmix *pmix)
{
	AUTO_FREE char(*nodes)[RDZV_NODE_SIZE] = pmix_client_nodes(pmix->world_size);
	int count = 0;
	/* The first `count` are the distinct ones so far. */
	for (int rank = 0; nodes && rank < pmix->world_size; rank++) {
		int node = 0;
		while (node < count && strcmp(nodes[node], nodes[rank]) != 0)
			node++;
		if (node == count && count++ != rank)
			memcpy(nodes[node], nodes[rank], RDZV_NODE_SIZE);
		if (rank == pmix->rank)
			pmix->node_rank = node;
	}
	if (nodes)
		pmix->node_count = count;
}

int rdzv_pmix_ident(struct ident_pmix *pmix, struct err *err)
{
	if (pmix_client_open(err) < 0)
		return -1;
	pmix_rank_t self = pmix_client.self.rank;
	*pmix = (struct ident_pmix) {
		.rank = (int)self,
		.world_size = ask_number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE),
		.local_rank = ask_number(self, PMIX_LOCAL_RANK),
		.local_world_size = ask_number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE),
		.node_rank = ask_number(self, PMIX_NODEID),
		.node_count = ask_number(PMIX_RANK_WILDCARD, PMIX_NUM_NODES),
	};
	snprintf(pmix->nspace, sizeof pmix->nspace, "%s", pmix_client.self.nspace);
	if (pmix->world_size < 1)
		return err_set(err, "identity: couldn't learn the world size from the PMIx server of %s",
			pmix->nspace);
	if (strncmp(pmix->nspace, "slurm.", 6) != 0)
		number_nodes(pmix);
	return 1;
}

int pmix_client_put(const char *key, const void *value, size_t size, struct err *err)
{
	pmix_value_t packed;
	char *bytes = pmix_client_copy(value, size);
	if (!bytes)
		return err_set(err, "rendezvous: no memory for %zu bytes", size);
	memset(&packed, 0, sizeof packed);
	packed.type = PMIX_BYTE_OBJECT;
	packed.data.bo.bytes = bytes;
	packed.data.bo.size = size + 1;
	pmix_status_t status = pmix_library.put(PMIX_GLOBAL, key, &packed);
	free(bytes);
	if (status != PMIX_SUCCESS)
		return err_fail(err, EXIT_LOST, "rendezvous: couldn't put %s: %s", key,
			pmix_library.error_string(status));
	return 0;
}

static void *commit_thread(void *arg)
{
	answer_give(arg, pmix_library.commit());
	return NULL;
}

/* PMIx_Commit waits for the server's answer (PMIx 4.2). */
int pmix_client_publish(const char *key, struct deadline deadline, double timeout, struct err *err)
{
	pmix_status_t status = call(commit_thread, deadline_left(deadline));
	if (status == PMIX_ERR_TIMEOUT) {
		pmix_client.lost = true;
		return err_fail(err, EXIT_LOST,
			"rendezvous: couldn't put %s: the PMIx server of this node gave no answer within %g s: "
			"its slurmstepd, or mpirun's daemon, hangs",
			key, timeout);
	}
	if (status != PMIX_SUCCESS)
		return err_fail(err, EXIT_LOST, "rendezvous: couldn't put %s: %s", key,
			pmix_library.error_string(status));
	return 0;
}
