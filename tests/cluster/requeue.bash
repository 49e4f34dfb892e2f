# SPDX-License-Identifier: Apache-2.0
# For the files on what brings a job back: a cluster with the plugin, jobs of one step, and what
# became of them. A file says load helpers and load requeue, and calls requeue_begin in its
# setup_file.
# shellcheck shell=bash

requeue_begin() {
    export REQUEUE=$MUSTER_PREFIX/libexec/muster-requeue
    export MUSTER_CLUSTER_GRACE=60 MUSTER_CLUSTER_KILLWAIT=6
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    requeue_script
}

# step.sh COMMAND: a batch script with one step, whose tasks run COMMAND.
requeue_script() {
    printf '#!/bin/bash\nsrun /bin/bash -c "$1" & wait $!\n' >"$JOBS/step.sh"
    chmod 755 "$JOBS/step.sh"
}

# job SBATCH-ARGUMENT… COMMAND: submits a job with --muster whose tasks run COMMAND; prints its id.
job() { job_submit --muster "${@:1:$#-1}" step.sh "${*: -1}"; }

# What a rank runs to end as one that lost its peer, whose pid comes through the pipe $JOBS/gone:
# once Slurm has seen the end of that one.
# shellcheck disable=SC2034 # the tests read it
LOST='read -r peer <gone; tail --pid=$peer -f /dev/null; exit 69'

said() { grep -q -- "$2" "$(job_output "$1")"; }

comment() { cluster run scontrol show job "$1" | sed -n 's/^ *Comment=//p'; }

# restarted_once ID WORDS: it came back once, ended well, and the first attempt's output has the
# words.
restarted_once() {
    job_wait "$1" 90 COMPLETED FAILED
    cat "$(job_output "$1")"
    [ "$(job_state "$1")" = COMPLETED ] || return 1
    [ "$(job_restarts "$1")" = 1 ] || return 1
    said "$1" "$2"
}

# refuse_start NODE JOB [REASON]: what Slurm does where a node still runs an attempt of a job when
# it is to start the next one: slurmctld drains the node and says so, slurmd asks for a hold.
refuse_start() {
    cc -o "$JOBS/refuse" -x c - -lslurm <<'END' || return
#include <slurm/slurm.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	slurm_init(NULL);
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
	slurm_step_id_t job = { .job_id = atoi(argv[1]), .step_id = NO_VAL, .step_het_comp = NO_VAL };
#else
	uint32_t job = atoi(argv[1]);
#endif
	return slurm_requeue(job, JOB_REQUEUE_HOLD | JOB_LAUNCH_FAILED) != SLURM_SUCCESS;
}
END
    cluster run --user root scontrol update "NodeName=$1" State=DRAIN \
        "Reason=${3:-Duplicate jobid}" &&
        echo "error: Duplicate jobid on nodes $1, set to state DRAIN" \
        >>"$(cluster status log)/slurmctld.log" && cluster run --user root "$JOBS/refuse" "$2"
}

# slow_requeue: $JOBS/slow-requeue is muster-requeue before a controller that takes 1.2 s for an
# answer while $JOBS/slow is there; its call that puts a job back leaves $JOBS/asked, and waits as
# long as $JOBS/hold is there.
slow_requeue() {
    cc -shared -fPIC -DJOBS="\"$JOBS\"" -o "$JOBS/slow.so" -x c - <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <unistd.h>

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
typedef slurm_step_id_t job;
#else
typedef uint32_t job;
#endif
#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))
#define SLOWLY if (access(JOBS "/slow", F_OK) == 0) usleep(1200000)

int slurm_load_job(job_info_msg_t **got, job id, uint16_t flags)
{ SLOWLY; return REAL(slurm_load_job)(got, id, flags); }
int slurm_load_node_single(node_info_msg_t **got, char *name, uint16_t flags)
{ SLOWLY; return REAL(slurm_load_node_single)(got, name, flags); }
int slurm_update_job(job_desc_msg_t *change) { SLOWLY; return REAL(slurm_update_job)(change); }

int slurm_requeue(job id, uint32_t flags)
{
	SLOWLY;
	close(open(JOBS "/asked", O_WRONLY | O_CREAT, 0644));
	while (access(JOBS "/hold", F_OK) == 0)
		usleep(10000);
	return REAL(slurm_requeue)(id, flags);
}
END
    printf '#!/bin/sh\nLD_PRELOAD=%s exec %s "$@"\n' "$JOBS/slow.so" "$REQUEUE" \
        >"$JOBS/slow-requeue"
    chmod 755 "$JOBS/slow-requeue"
}
