# SPDX-License-Identifier: Apache-2.0
# For the files on what brings a job back: a cluster with the plugin, jobs of one step, and what became of them.
# A file says  load helpers  and  load requeue, and calls requeue_begin in its setup_file.
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

said() { grep -q -- "$2" "$(job_output "$1")"; }

comment() { cluster run scontrol show job "$1" | sed -n 's/^ *Comment=//p'; }

# restarted_once ID WORDS: it came back once, ended well, and the first attempt's output has the words.
restarted_once() {
    job_wait "$1" 90 COMPLETED FAILED
    cat "$(job_output "$1")"
    [ "$(job_state "$1")" = COMPLETED ] || return 1
    [ "$(job_restarts "$1")" = 1 ] || return 1
    said "$1" "$2"
}
