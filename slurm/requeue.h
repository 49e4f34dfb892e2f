/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a job back in Slurm's queue: what is known of the job, what is to be done, and the calls
 * that do it. */
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
	uint32_t id;  /* of the het leader, where the job is a component */
	int attempt;  /* how often it was restarted */
	uint64_t run; /* Slurm's number of its present attempt, by which a call names that alone; 0: the
					 release has none */
	enum requeue_state state;
	bool batch;       /* started by sbatch */
	bool requeueable; /* not --no-requeue */
	bool completing;  /* something of its present attempt still runs on its nodes */
	bool preempted;   /* the grace time of its preemption runs */
	bool draining;    /* requeue_look_at_node has found that a node of it is being taken away */
	double ends;      /* when its time is over, in seconds since the epoch */
	double began;     /* its present attempt, in seconds since the epoch */
	char *comment;    /* the user's, and what we may have left in it; never NULL, freed by
						 requeue_clear */
};

void requeue_clear(struct requeue_job *job);

enum requeue_action {
	REQUEUE_NOTHING, /* it is not ours to bring back; the reason says why */
	REQUEUE_REFUSED, /* it should come back and can't */
	REQUEUE_SUBMIT,  /* put it back if it still runs */
	REQUEUE_REVIVE,  /* its time is over: put it back though it no longer runs */
	REQUEUE_LATER,   /* the same, once nothing of it is left on its nodes */
};

#define REQUEUE_ANY_STEP (-1L)

/* The end of a rank, for which the job is to come back or not. */
struct requeue_end {
	int attempt;
	long step;   /* or REQUEUE_ANY_STEP */
	double when; /* seconds since the epoch, by its node's clock; INFINITY where that isn't known:
					behind all others */
	bool asked;  /* it has been asked for while the job ran, in vain: a job that has failed since
					comes back, too */
	bool lost;   /* the rank has lost a peer, whose node may notice that later */
};

/* Why Slurm takes the job's nodes away just now, NULL where it doesn't. What fails meanwhile is not
 * the job's fault: a process that dies of the SIGTERM, and that its rank can't do without, for
 * instance. A pure function. */
const char *requeue_notice(const struct requeue_job *job);

/* What to do for a rank that wants the job back. `reason` gets a sentence about the job for the
 * first two. A job that has ended is not put back while it still completes on a node: up to 26.05.3
 * that may crash slurmctld, whose list of the job's nodes is then made anew with those that are
 * through. A pure function. */
enum requeue_action requeue_decide(const struct requeue_job *job, const struct requeue_end *end,
	char *reason, size_t size);

/* The job's comment with a note that a step of an attempt has ended for good, when, and why; older
 * notes of ours are dropped, the user's text and the count of attempts stay. Every node sees it, so
 * that ranks which Slurm kills because of that end don't ask for a requeue. A pure function; the
 * caller's to free, NULL when out of memory. */
char *requeue_note(const char *comment, const struct requeue_end *end, const char *why);

/* Whether a comment has such a note, of an end before this one. A rank that fails since another one
 * was killed must not keep the job from coming back. Where both are within the 0.1 s by which
 * clocks may differ, the note counts; within 1 s for a rank that has lost a peer. */
bool requeue_noted(const char *comment, const struct requeue_end *end);

/* ---- the breaker: attempts in vain ---- */

#define REQUEUE_VAIN_MOST 3 /* so many in a row, and the job does not come back */

/* How many attempts up to `attempt` have in a row failed by themselves and brought nothing, if that
 * one has: as the comment says of the one before, or already of this one. 0: another node has said
 * that it brought something. The count follows the job in its comment; since it names the attempt,
 * any number of nodes count it once, and an attempt that ends otherwise ends the row without a
 * word. A pure function. */
int requeue_vain(const char *comment, int attempt);

/* Whether the comment says something of that attempt. A pure function. */
bool requeue_is_counted(const char *comment, int attempt);

/* The comment with that count in place of an older one; as requeue_note. */
char *requeue_count(const char *comment, int vain, int attempt);

/* Whether something of attempt `attempt` may still run on the job's nodes: until all their epilogs
 * are through. A pure function. */
bool requeue_attempt_runs(const struct requeue_job *job, int attempt);

/* Calls of the controller. Status EXIT_LOST when it can't be reached, so that another try may help.
 */
void requeue_init(void);

int requeue_load(uint32_t id, struct requeue_job *job, struct err *err);

/* Before 26.05 Slurm takes no attempt with it: where the controller takes the call up so late that
 * another cause has put the job back and started it again meanwhile, the attempt that runs then
 * ends, as at a preemption, and is put back. */
int requeue_submit(const struct requeue_job *job, enum requeue_action action, struct err *err);

/* The job itself, also where it is a component of a het job. Returns 1 with *job, 0 when the
 * controller does not know it (any more), -1 on error. */
int requeue_find(uint32_t id, struct requeue_job *job, struct err *err);

/* Sets job->draining if that node is one that gets no new jobs. */
int requeue_look_at_node(struct requeue_job *job, const char *node, struct err *err);

int requeue_set_comment(const struct requeue_job *job, const char *comment, struct err *err);

#endif
