#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The faults of doc/training-faults.md, each provoked on a real Slurm: its line with ranks and
# nodes, its exit status, and that what was saved is good: a run that goes on from it ends with the
# bits of an undisturbed one. Where each is (tests/manuals.bats looks them up):
#  1  guards.bats: a rank that never starts is named with its node within the deadline, and nothing is left
#  1  rendezvous.bats: muster-train: the same
#  1  rendezvous.bats: muster-train: a rank that stops or dies after the rendezvous, while they connect
#  1  rendezvous.bats: a node that can't be reached: each of the others names its ranks and no other, with the plugin and without
#  2  guards.bats: a wrong number of ranks is refused: more than slots, worlds of one, another one with --batchnorm
#  2  rendezvous.bats: a rank that stops, sleeps, dies, ends or miscounts before it has met the others
#  3  guards.bats: ranks that read the same samples are named, and nothing of that step is kept
#  4  guards.bats: a link too slow for the model: how much of a step waits, and which options shorten that
#  4  guards.bats: a rank slower than the others is named, though it may be rank 0, which does not wait
#  5  guards.bats: a second writer on the same checkpoint directory is refused by the name of the first, which goes on unharmed
#  5  faults.bats: a node is cut off and heals after the next attempt has begun
#  6  guards.bats: a replica that drifts apart is named, and the run goes on from where all were equal
#  7  watchdog.bats: a rank is stopped with SIGSTOP: the others end within the deadline and name it
#  7  watchdog.bats: a node is cut off: the ranks on the others end within the deadline and name its ranks
#  7  watchdog.bats: both jobs resume, to the bits of an undisturbed run
#  8  faults.bats: the slurmstepd of a node is killed: no step is lost, and the job comes back

load helpers
STEPS=100
load training

setup_file() {
    export MUSTER_CLUSTER_KILLWAIT=2 MUSTER_CLUSTER_GRACE=30
    plugin_locate || return 0
    cluster_begin 2 --plugin "$PLUGIN"
    training_begin 2>/dev/null
    cp "$MUSTER_BUILD/tests/tools/train_faulty" "$JOBS"
    cat >"$JOBS/sleep-rank3" <<'EOF'
#!/bin/bash
[ "$SLURM_PROCID" != 3 ] || exec sleep 1234
exec "$@"
EOF
    printf '#!/bin/bash\nshift\nexec ./train_faulty "$@"\n' >"$JOBS/faulty"
    chmod a+rx "$JOBS/sleep-rank3" "$JOBS/faulty" "$JOBS/train_faulty"
}

teardown() {
    cluster_explain
    resume_drained
    job_cancel_left
}

# stop_rank JOB RANK: it stands still from now on; its pid is in $stopped.
stop_rank() {
    read -r _ stopped < <(train_rank "$1" "$2")
    kill -STOP "$stopped"
}

# Whether a run that goes on from what is in the folder, in the foreground, ends as an undisturbed
# one.
goes_on() {
    train_now "$1" --muster -N2 --ntasks-per-node=2 -- || return 1
    train_equals_reference "$1"
}

@test "a rank that never starts is named with its node within the deadline, and nothing is left" {
    for node in n1 n2; do wait_for 20 node_is $node idle; done
    began=$SECONDS
    WRAP=./sleep-rank3 train_now absent --muster -N2 --ntasks-per-node=2 -- --rdzv-timeout 5 \
        >"$JOBS/absent.log" 3>&- &
    wait_for 10 log_has absent 1 \
        "couldn't meet 1 of 4 ranks within 5 s: rank 3 (on n2) did not come: .* --rdzv-timeout .* --exclude "
    in_time 8 $began # the deadline, and what srun takes to start
    wait $! || :
    cat "$JOBS/absent.log"
    grep -q 'n1: task.* Exited with exit code 69' "$JOBS/absent.log"
    [ -z "$(cluster_pids -u muster-test1 -f 'sleep 1234|muster-train.* absent ')" ]
    [ ! -e "$JOBS/absent" ]
}

# Two .npy files: features and classes of 203 samples.
make_table() {
    python3 - "$JOBS" <<'EOF'
import struct, sys
def npy(name, descr, shape, data):
    h = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)).encode()
    h += b" " * (63 - (10 + len(h)) % 64) + b"\n"
    open(f"{sys.argv[1]}/{name}", "wb").write(
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h + data)
rows = [[((37 * i + 11 * k + 5 * i * i * k) % 101 - 50) / (k + 1) + 10 * k for k in range(6)]
        for i in range(203)]
npy("x.npy", "<f4", (len(rows), 6), b"".join(struct.pack("<6f", *r) for r in rows))
npy("y.npy", "<i4", (len(rows),), struct.pack(f"<{len(rows)}i",
    *(int(abs(r[0] / 9 + r[1] - 10)) % 4 for r in rows)))
EOF
}

@test "a wrong number of ranks is refused: more than slots, worlds of one, another one with --batchnorm" {
    refused 2 \
        "16 ranks can't share the 8 slots of a step, some would have none: start 1 to 8 ranks" \
        many --muster -N2 -n16 --overcommit --
    [ ! -e "$JOBS/many" ]
    refused 2 "started without PMIx: start it with srun --mpi=pmix" none -N2 -n4 --mpi=none --
    refused 2 "started without PMIx: start it with srun --mpi=pmix" none --muster -N2 -n4 \
        --mpi=none --
    [ ! -e "$JOBS/none" ]

    # BatchNorm over four ranks of two nodes; the last step of an epoch leaves one without a sample.
    make_table
    TRAIN_ARGS="--model mlp --batchnorm --data x.npy --labels y.npy --hidden 24 --classes 4
        --global-batch 16 --last-batch pad --microbatch 2 --slots 4 --threads 1
        --learning-rate 0.01 --steps 100 --log-level warn
        $RDZV_TIMEOUT $COLLECTIVE_TIMEOUT"
    train_now batches --muster -N2 --ntasks-per-node=2 --
    # Or it would have finished before anybody takes its nodes; the notice wakes it.
    job=$(PAUSE_AT=20 train_submit joined --wrap-with ./pausing -N2 --exclusive -- \
        --ckpt-every 1000)
    wait_for 60 stands_still joined "$job"
    job_preempt "$job" 0
    job_wait_attempt "$job" 1 60
    job_wait "$job" 60 COMPLETED
    [ "$(train_notices joined)" -eq 1 ]
    cluster run muster-ckpt diff batches/step-00000100 joined/step-00000100
    diff <(muster-curve "$JOBS/batches") <(muster-curve "$JOBS/joined")
    refused 2 "there are 2 ranks, but the run in this --ckpt-dir was begun with 4" \
        joined --muster -N2 -n2 -- --steps 200 --change steps
    [ "$(ls -d "$JOBS"/joined/step-* | tail -n 1)" = "$JOBS/joined/step-00000100" ]
}

# same_samples STEP RANKS NAMES: from the step after it on these ranks read what rank 0 reads.
same_samples() {
    export FAULTY_STEP=$1 FAULTY_RANKS=$2 FAULTY_WORLD=4
    WRAP=./faulty refused 1 \
        "step $(($1 + 1)): ranks read the same samples, where each has its own: $3: this program or a node errs" \
        same --muster -N2 --ntasks-per-node=2 -- --ckpt-every 10
    grep -qF "checkpoints are good: start again with another build, or without that node (srun's --exclude)" <<<"$output"
    unset FAULTY_STEP FAULTY_RANKS FAULTY_WORLD
    ! train_has_step same $(($1 + 1)) || false
}

@test "ranks that read the same samples are named, and nothing of that step is kept" {
    same_samples 25 "0 1 2 3" "rank 0 on n1, rank 1 on n1, rank 2 on n2, rank 3 on n2 (all ranks)"
    same_samples 45 3 "rank 0 on n1, rank 3 on n2"
    [ -e "$JOBS/same/step-00000040" ]
    goes_on same
}

@test "a link too slow for the model: how much of a step waits, and which options shorten that" {
    cluster shape n2 40mbit 0
    job=$(STEP_MILLISECONDS=0 train_submit link -N2 --exclusive -- --log-level info)
    wait_for 60 log_has link 1 'scaling: ' || { cluster shape n2 off && return 1; }
    cluster shape n2 off
    job_wait "$job" 60 COMPLETED
    grep 'scaling: ' "$JOBS/link.log"
    hint='scaling: ([4-9][0-9]|100)% of a step waits for communication or slower ranks '
    grep -qE "$hint.*--global-batch .*--zero 1 .*--grad-dtype=bf16" "$JOBS/link.log"
    [ "$(grep -c 'scaling: ' "$JOBS/link.log")" -eq 1 ]
    [ "$(job_field "$job" ExitCode)" = 0:0 ]
    train_equals_reference link
}

@test "a rank slower than the others is named, though it may be rank 0, which does not wait" {
    export FAULTY_RANKS=0 FAULTY_MILLISECONDS=10 FAULTY_UNTIL=25
    WRAP=./faulty train_now slowed --muster -N2 --ntasks-per-node=2 -- --log-level info \
        >"$JOBS/slowed.log"
    unset FAULTY_RANKS FAULTY_MILLISECONDS FAULTY_UNTIL
    grep 'scaling: ' "$JOBS/slowed.log"
    hint='scaling: ([3-9][0-9]|100)% of a step waits .* ms on rank [123] on n[12], '
    grep -qE "$hint.*rank 0 on n1 computes [0-9.]+ ms longer than that one" \
        "$JOBS/slowed.log"
    train_equals_reference slowed
}

@test "a second writer on the same checkpoint directory is refused by the name of the first, which goes on unharmed" {
    # A second step of one script, by mistake.
    cat >"$JOBS/twice.sh" <<'EOF'
#!/bin/bash
export SRUN_OPTIONS=--overlap
./train.sh "$@" &
until [ -e go-twice ]; do sleep 0.1; done
./train.sh "$@" >second.log 2>&1
wait
EOF
    chmod a+rx "$JOBS/twice.sh"
    pace 0 5 # until the second writer has been refused
    job=$(cluster run env PATH="$PATH" TRAIN_ARGS="$TRAIN_ARGS" sbatch \
        --parsable --open-mode=append \
        --muster -N2 --ntasks-per-node=2 -o shared.log twice.sh shared)
    wait_for 60 train_attempt_has shared 0 5
    refused 2 "shared is in use by job $job (attempt 0" shared --muster --overlap -N2 -n4 --
    chmod a+rwx "$JOBS/shared"
    refused 2 "shared is in use by job $job (attempt 0" --user 2 shared --muster -N2 -n4 --
    touch "$JOBS/go-twice"
    wait_for 30 grep -q "in use by job $job (attempt 0, .*host n1, .*give another directory" \
        "$JOBS/second.log"
    pace 0
    job_wait "$job" 60 COMPLETED
    [ "$(job_field "$job" ExitCode)" = 0:0 ]
    [ "$(grep -c '"event": *"start"' "$JOBS/shared/attempts.jsonl")" -eq 1 ]
    train_equals_reference shared
}

@test "a replica that drifts apart is named, and the run goes on from where all were equal" {
    pace 0 25
    job=$(train_submit drift -N2 -- --ckpt-writers all --check-replicas 10 \
        --ckpt-every 7 --keep-last 0)
    wait_for 60 train_attempt_has drift 0 25
    stop_rank "$job" 2
    python3 "$MUSTER_TOP/tests/tools/flip_bits.py" "$stopped"
    kill -CONT "$stopped"
    pace 0
    job_wait "$job" 60 FAILED
    cat "$JOBS/drift.log"
    [ "$(job_field "$job" ExitCode) $(job_field "$job" Restarts)" = "1:0 0" ]
    grep -qE '^muster: \[rank 2 on n2\] error: the weights here differ from those of other ranks after step [0-9]+0$' \
        "$JOBS/drift.log"
    line=$(grep 'error: step .* the replicas have drifted apart' "$JOBS/drift.log")
    [[ $line =~ "the weights of rank 2 on n2 differ from those of the other ranks; after step "([0-9]*)" all were equal: " ]]
    # What the line advises. Others than that rank have taken its gradients.
    for folder in "$JOBS"/drift/step-*; do
        [ "$((10#${folder##*-}))" -le "${BASH_REMATCH[1]}" ] || mv "$folder" "$folder.drifted"
    done
    [ -n "$(ls -d "$JOBS"/drift/step-*[0-9])" ]
    goes_on drift
}
