/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a job back in Slurm's queue: the job's state, the decision, and the calls that carry it
 * out. */
#ifndef MUSTER_REQUEUE_H
#define MUSTER_REQUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum requeue_state {
	REQUEUE_RUNNING,
	REQUEUE_WAITING,
	REQUEUE_TIMEOUT,
	REQUEUE_FAILED,
	REQUEUE_CANCELLED,
	REQUEUE_ENDED
};

struct requeue_job {
	uint32_t id;  /* the het leader's, if the job is a component */
	int attempt;  /* how often it was restarted */
	uint64_t run; /* Slurm's ID of the present attempt, so that calls affect no other; 0: none */
	enum requeue_state state;
	bool batch;       /* started by sbatch */
	bool requeueable; /* not submitted with --no-requeue */
	bool completing;  /* something of its present attempt still runs on its nodes */
	bool preempted;   /* it is in the grace time of a preemption */
	bool draining;    /* requeue_look_at_node found that one of its nodes is being drained */
	bool refused;     /* it found that one got a job of which it still ran an attempt */
	bool held;        /* by Slurm, since a node has refused to start it */
	bool deserted;    /* Slurm has taken the node of its script away: see requeue_deserted */
	double ends;      /* when its time limit comes, seconds since the epoch */
	double began;     /* start of its present attempt, seconds since the epoch */
	double submitted; /* when it came into the queue for that attempt, seconds since the epoch */
	int nodes;        /* how many it asks for or has */
	/* Never NULL; freed by requeue_clear: the user's text and ours; host lists of the nodes that it
	 * must not and that it must get; its partition, or several with commas between. */
	char *comment, *excluded, *required, *partition;
};

void requeue_clear(struct requeue_job *job);

enum requeue_action {
	REQUEUE_NOTHING, /* leave it as it is; the reason says why */
	REQUEUE_REFUSED, /* it should come back and can't */
	REQUEUE_SUBMIT,  /* put it back if it still runs */
	REQUEUE_REVIVE,  /* it has ended: put it back though it no longer runs */
	REQUEUE_LATER,   /* as REQUEUE_REVIVE, once nothing of it is left on its nodes */
};

#define REQUEUE_ANY_STEP (-1L)

/* The end of a rank, after which the job may have to come back. */
struct requeue_end {
	int attempt;
	long step;   /* the step's ID, or REQUEUE_ANY_STEP */
	double when; /* seconds since the epoch, node's clock; INFINITY: unknown, later than all */
	bool asked;  /* a request while the job ran was in vain: it may have failed since */
	bool lost;   /* the rank has lost a peer, whose own node may notice that later */
};

/* Why Slurm is taking the job's nodes away now; NULL if it isn't. A failure meanwhile is not the
 * job's fault: SIGTERM may have killed a process that the rank needs, for instance. A pure
 * function. */
const char *requeue_notice(const struct requeue_job *job);

/* Decides for a rank that wants the job back. `reason` gets a sentence about the job for the first
 * two actions. A job that has ended is not put back while it still completes on a node: up to
 * 26.05.3 that may crash slurmctld, which rebuilds the job's node list from the nodes that are
 * already done. A pure function. */
enum requeue_action requeue_decide(const struct requeue_job *job, const struct requeue_end *end,
	char *reason, size_t size);

/* The job's comment with a note that a step of an attempt has ended for good, when and why. Our
 * older notes are dropped; the user's text and the count of attempts stay. Every node sees the
 * comment, so ranks that Slurm kills because of that end don't ask for a requeue. A pure function.
 * malloc'ed; NULL when out of memory. */
char *requeue_note(const char *comment, const struct requeue_end *end, const char *why);

/* Whether a comment has such a note, of an end before this one. A rank that fails because another
 * was killed must not keep the job from coming back. Clocks may differ by 0.1 s, so a note up to
 * 0.1 s after this end counts too; up to 1 s for a rank that has lost a peer. */
bool requeue_noted(const char *comment, const struct requeue_end *end);

/* ---- the breaker: attempts in vain ---- */

#define REQUEUE_VAIN_MOST 3 /* after this many in a row the job does not come back */

/* How many attempts in a row up to `attempt` were in vain, given that `attempt` was. The comment
 * holds the count for the attempt before, or already for this one. 0: another node has noted
 * progress. Since the count names its attempt, it is counted once by any number of nodes, and an
 * attempt that ends otherwise breaks the row without a note. A pure function. */
int requeue_vain(const char *comment, int attempt);

/* Whether the comment holds a count for that attempt. A pure function. */
bool requeue_is_counted(const char *comment, int attempt);

/* The comment with that count in place of an older one; memory as with requeue_note. */
char *requeue_count(const char *comment, int vain, int attempt);

/* Whether the node that ran a job's script is none of its nodes, of which there are `count`. If
 * that node dies, Slurm requeues a job; one with --no-kill goes on without it, though nothing is
 * left that would begin or end a step. False where the list can't be read. A pure function. */
bool requeue_deserted(const char *nodes, long count, const char *batch_host);

/* Whether something of attempt `attempt` may still run on the job's nodes: until all their epilogs
 * have ended. A pure function. */
bool requeue_attempt_runs(const struct requeue_job *job, int attempt);

/* Calls to the controller. Status EXIT_LOST if it can't be reached, so that another try may
 * help. */
void requeue_init(void);

/* The job, or the leader of the het job it is a component of. On success the caller calls
 * requeue_clear. Returns -1 if the controller does not know it. */
int requeue_load(uint32_t id, struct requeue_job *job, struct err *err);

/* Before 26.05 Slurm's call names no attempt. If the controller handles the call so late that
 * something else has already put the job back and started it again, the attempt that then runs
 * ends, as in a preemption, and is put back. */
int requeue_submit(const struct requeue_job *job, enum requeue_action action, struct err *err);

/* The job itself, even if it is a component of a het job. Returns 1 with *job, 0 if the controller
 * does not know it (any more), -1 on error. */
int requeue_find(uint32_t id, struct requeue_job *job, struct err *err);

/* Sets job->draining if the node gets no new jobs, and job->refused if that is why. */
int requeue_look_at_node(struct requeue_job *job, const char *node, struct err *err);

/* Ends the hold of a job that Slurm holds for its user. */
int requeue_release(const struct requeue_job *job, struct err *err);

int requeue_set_comment(const struct requeue_job *job, const char *comment, struct err *err);

/* Writes the list of nodes that the job must not get, and its comment, at once. Returns 1, or 0 if
 * the job does not wait (yet): Slurm changes that list for no other. */
int requeue_exclude(const struct requeue_job *job, const char *nodes, const char *comment,
	struct err *err);

/* Nodes of the job's partition, or of the largest of several; -1 where Slurm does not say. */
int requeue_nodes_there(const struct requeue_job *job);

#endif
