# SPDX-License-Identifier: Apache-2.0
# A small training on the test cluster: submit it, watch its steps, and compare its result with an
# undisturbed one. A file says load helpers and load training after the cluster's helpers.
# shellcheck shell=bash

STEPS=${STEPS:-200}
# A rank that a test has stopped stands still for less.
RDZV_TIMEOUT="--rdzv-timeout $((10 * ${MUSTER_PATIENCE:-3}))"
COLLECTIVE_TIMEOUT="--collective-timeout $((30 * ${MUSTER_PATIENCE:-3}))"
TRAIN_ARGS="--model gpt2 --layers 2 --width 32 --heads 2 --context 32 --vocabulary 256
    --global-batch 16 --microbatch 2
    --slots 8 --steps $STEPS --warmup-steps 20 --learning-rate 2e-3
    --seed 11 --threads 1 --log-level warn
    $COLLECTIVE_TIMEOUT $RDZV_TIMEOUT --keep-last 3"

# For setup_file, after cluster_begin: tokens from the project's own English text, a job script, and
# the undisturbed result, trained by one process alone (which proves on the way that the world size
# does not matter).
training_begin() {
    [ "$(id -u)" = 0 ] || return 0
    cat "$MUSTER_TOP"/LICENSE "$MUSTER_TOP"/HACKING.md >"$JOBS/text"
    muster-tokens -o "$JOBS/train.bin" "$JOBS/text" >&2
    chmod a+r "$JOBS/train.bin"
    cat >"$JOBS/train.sh" <<'END'
#!/bin/bash
# train.sh NAME [OPTION…]: one rank's program is run by $WRAP where that is set, and srun by
# $LAUNCHER. A step takes $STEP_MILLISECONDS at least.
name=$1 && shift
export NAME=$name OMP_WAIT_POLICY=passive STEP_MILLISECONDS=${STEP_MILLISECONDS-20}
# shellcheck disable=SC2086
$LAUNCHER srun ${SRUN_OPTIONS---gpus-per-task=1} \
    env LD_PRELOAD="$PWD/slow_steps.so${LD_PRELOAD:+:$LD_PRELOAD}" $WRAP \
    muster-train --data train.bin --ckpt-dir "$name" $TRAIN_ARGS "$@" &
wait $!
END
    cat >"$JOBS/slow-rank0" <<'END'
#!/bin/bash
# Rank 0 and the checkpoint service that it starts fsync slowly, as on a bad disk; each rank leaves
# its exit status. The grace time's SIGTERM is the trainer's.
trap : TERM
unset MUSTER_CKPTD
if [ "$SLURM_PROCID" = 0 ]; then
    strace -f -o /dev/null -e trace=fsync -e inject=fsync:delay_enter=1500000 "$@"
else
    "$@"
fi
status=$?
echo $status >"$NAME.status-${SLURM_RESTART_COUNT:-0}-$SLURM_PROCID"
exit $status
END
    cat >"$JOBS/pausing" <<'END'
#!/bin/bash
# Rank 0 stops itself after $PAUSE_AT steps of each attempt that $PAUSE_IN names, and where it saves
# every few of them after a save: a process that watched it from afar might come too late.
attempt=${SLURM_RESTART_COUNT:-0}
# No program is started to look: eight trainings may do so at once.
trained() {
    { mapfile -t lines <"$NAME/metrics-$attempt.jsonl"; } 2>/dev/null &&
        [ ${#lines[@]} -ge "$PAUSE_AT" ]
}
saved() { [[ " $* " != *" --ckpt-every 5 "* ]] || compgen -G "$NAME/step-*" >/dev/null; }
if [[ $SLURM_PROCID = 0 && " $PAUSE_IN " = *" $attempt "* ]]; then
    (exec <> <(:)
    until trained && saved "$@"; do read -rt 0.02; done
    kill -STOP $$) >/dev/null 2>&1 &
fi
exec "$@"
END
    chmod a+rx "$JOBS/train.sh" "$JOBS/slow-rank0" "$JOBS/pausing"
    install -m 755 "$MUSTER_BUILD/tests/tools/.libs/slow_steps.so" "$JOBS"
    # shellcheck disable=SC2086
    cluster run muster-train --data train.bin --ckpt-dir reference $TRAIN_ARGS >&2
}

# train_submit NAME [--wrap-with PROGRAM] [SBATCH-OPTION… --] [TRAIN-OPTION…]: prints the job's id.
# Its ranks have a GPU each unless WITHOUT_GPUS is set.
train_submit() {
    local name=$1 wrap='' options=() gpus=(--gpus-per-task=1)
    [ -z "${WITHOUT_GPUS-}" ] || gpus=()
    shift
    [ "${1-}" != --wrap-with ] || { wrap=$2 && shift 2; }
    while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
    [ $# -eq 0 ] || shift
    cluster run env PATH="$PATH" TRAIN_ARGS="$TRAIN_ARGS" WRAP="$wrap" PAUSE_AT="${PAUSE_AT-5}" \
        PAUSE_IN="${PAUSE_IN-0}" ${WITHOUT_GPUS:+SRUN_OPTIONS=} \
        sbatch --parsable --open-mode=append --muster --requeue -N4 --ntasks-per-node=2 \
            "${gpus[@]}" -J "$name" -o "$name.log" \
        "${options[@]}" train.sh "$name" "$@"
}

# pace MILLISECONDS [LAST]: what each step of the trainings that are submitted from now on takes at
# least, until another pace is set; and no step after LAST ends before that.
pace() {
    export STEPS_PACE=$JOBS/pace
    echo "$*" >"$JOBS/pace.new" && mv "$JOBS/pace.new" "$JOBS/pace"
}

# The last step that the newest attempt has logged; 0 for none.
train_step() {
    cat "$JOBS/$1"/metrics-*.jsonl 2>/dev/null | sed -n 's/^{"step": *\([0-9]*\),.*/\1/p' |
        sort -n | tail -n 1 | grep . || echo 0
}

train_has_step() { [ "$(train_step "$1")" -ge "$2" ]; }

# Whether attempt ATTEMPT of NAME has logged at least COUNT steps.
train_attempt_has() { [ "$(wc -l 2>/dev/null <"$JOBS/$1/metrics-$2.jsonl" || echo 0)" -ge "$3" ]; }

# The bytes of a run's final state: every shard of its last checkpoint.
train_final() { (cd "$JOBS/$1/step-$(printf %08d "$STEPS")" && cat ./*.safetensors | sha256sum); }

# The run ended by itself and equals the undisturbed one: weights, optimizer and the whole loss
# curve, byte for byte.
train_equals_reference() {
    [ "$(train_final "$1")" = "$(train_final reference)" ] || {
        echo "$1: the final state differs"; return 1
    }
    diff <(muster-curve "$JOBS/$1") <(muster-curve "$JOBS/reference") || {
        echo "$1: the loss curve differs"; return 1
    }
    [ -z "$(find "$JOBS/$1" -maxdepth 1 -name '.saving-*' -o -maxdepth 1 -name '*.damaged-*')" ]
}

# Attempts of a run that ended after a notice.
train_notices() { grep -c '"event": *"notice"' "$JOBS/$1/attempts.jsonl"; }

# The node and the pid of a rank of a running job of this cluster, whose program is muster-train or
# the third argument (its process that none of that name has started: a younger one may have a lower
# pid); prints "NODE PID". It starts no other program for each process that it looks at: a short
# training is over before many have run.
train_rank() {
    local pid parent above variables text program=${3-muster-train}
    for pid in $(pgrep -x "$program"); do
        [ "/proc/$pid/cwd" -ef "$JOBS" ] || continue
        { read -r _ _ _ parent _ <"/proc/$pid/stat" && read -r above <"/proc/$parent/comm"; } \
            2>/dev/null && [ "$above" != "$program" ] || continue
        mapfile -d '' -t variables 2>/dev/null <"/proc/$pid/environ" || continue
        text=" ${variables[*]} "
        [[ $text = *" SLURM_JOB_ID=$1 "* && $text = *" SLURM_PROCID=$2 "* ]] || continue
        [[ $text =~ " SLURMD_NODENAME="([^ ]*) ]] || continue
        echo "${BASH_REMATCH[1]} $pid"
        return 0
    done
    return 1
}

# stands_still NAME JOB: whether its rank 0 does, as "pausing" has it.
stands_still() {
    local pid
    read -r _ pid < <(train_rank "$2" 0) && grep -q '^State:[[:space:]]*T' "/proc/$pid/status"
}

# train_now [--user 2] DIRECTORY SRUN-OPTION… -- [TRAIN-OPTION…]: srun in the foreground, without a
# batch job around it.
train_now() {
    local user=() options=() folder
    [ "$1" != --user ] || { user=(--user "$2") && shift 2; }
    folder=$1 && shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    # shellcheck disable=SC2086
    cluster run "${user[@]}" srun "${options[@]}" $WRAP muster-train --data train.bin \
        --ckpt-dir "$folder" $TRAIN_ARGS "$@" 2>&1
}

# refused STATUS WORDS TRAIN_NOW-ARGUMENT…: ends with that status and one line of muster-train,
# which has the words.
refused() {
    local want=$1 words=$2
    shift 2
    run train_now "$@"
    # shellcheck disable=SC2154 # bats' run sets status and output
    echo "$output"
    # shellcheck disable=SC2154
    [ "$status" -eq "$want" ] || { echo "status $status, not $want"; return 1; }
    [ "$(grep -cE '^muster: (\[rank .*\] )?error: ' <<<"$output")" -eq 1 ] || {
        echo "not one line"; return 1
    }
    grep -F 'error: ' <<<"$output" | grep -qF -- "$words" || {
        echo "nothing said: $words"; return 1
    }
}

# Whether the log of a run has at least COUNT lines with the words.
log_has() { [ "$(grep -c -- "$3" "$JOBS/$1.log")" -ge "$2" ]; }
