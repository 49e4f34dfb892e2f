# SPDX-License-Identifier: Apache-2.0
# Trainings that muster-run starts, whose steps begin again within their allocation. A file says
# load helpers, training and restart.
# shellcheck shell=bash

# start NAME SBATCH-OPTION…: by $LAUNCHER; sets $job, and waits for a checkpoint.
start() {
    job=$(LAUNCHER=${LAUNCHER-muster-run --} train_submit "$1" "${@:2}" -- --ckpt-every 5)
    goes_on "$1" 0
}

# started NAME FIELD: what each start of a run has recorded, with spaces between.
started() {
    python3 - "$JOBS/$1/attempts.jsonl" "$2" <<'END'
import json, sys
print(*(r.get(sys.argv[2], 0) for r in map(json.loads, open(sys.argv[1])) if r["event"] == "start"))
END
}

# has_saved NAME START: the start of that number (0 for the first) has made a newer checkpoint than
# that from which it began.
has_saved() {
    local from newest
    read -ra from < <(started "$1" step 2>/dev/null) && [ ${#from[@]} -gt "$2" ] || return 1
    newest=$(printf '%s\n' "$JOBS/$1"/step-* | sed -n 's/.*step-0*//p' | sort -n | tail -n 1)
    [ "${newest:--1}" -gt "${from[$2]}" ] # -1: none
}

goes_on() { wait_for 60 has_saved "$1" "$2"; }

# kill_rank NAME RANK…: at once, since the others leave soon.
kill_rank() {
    local rank where pid pids=()
    for rank in "${@:2}"; do
        read -r where pid < <(train_rank "$job" "$rank")
        echo "rank $rank is pid $pid on $where; step $(train_step "$1")"
        pids+=("$pid")
    done
    kill -9 "${pids[@]}"
}

# ends_in_place NAME: in its first attempt of Slurm's, as if undisturbed.
ends_in_place() {
    pace 0
    job_wait "$job" 120 COMPLETED
    [ "$(job_restarts "$job")" -eq 0 ]
    train_equals_reference "$1"
}
