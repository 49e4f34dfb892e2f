# SPDX-License-Identifier: Apache-2.0
# A storm: a training on four nodes is disturbed at random moments, one thing after the other, until
# it has come to its end. A file says load helpers, training, pytorch, ring and storm. The name of
# each kind of disturbance is that of the function that does it and undoes it; it has $job, $node,
# $rank and $seconds, and says in $what what it did.
# shellcheck shell=bash

KINDS=(preempt preempt_at_once requeue hold time_limit node_down
    kill_rank stop_rank kill_service stop_service kill_stepd stop_stepd
    kill_slurmd stop_slurmd kill_controller stop_controller fail_over
    kill_node cut cut_for_long loss latency disk_full quota read_only io_error stall clock
    spot_notice)
# Where every node has such a network already it can't get another one.
[ -z "${MUSTER_CLUSTER_NETWORK-}" ] || mapfile -t KINDS < <(
    printf '%s\n' "${KINDS[@]}" | grep -vx -e loss -e latency
)
[ -x "$MUSTER_PREFIX/bin/muster-notice" ] || unset "KINDS[-1]" # without libcurl
# Those after which the attempt is over, though it may make some steps more.
ENDING=" preempt preempt_at_once requeue hold time_limit node_down kill_rank kill_stepd kill_node
    spot_notice "
# Those that give notice: no step is done again.
WARNING=" preempt time_limit spot_notice "

# --- what Slurm does ---

preempt() { what="preempted" && job_preempt "$job" 0; }

preempt_at_once() {
    what="preempted without grace"
    grace 0 && job_preempt "$job" 0 && grace "$MUSTER_CLUSTER_GRACE"
}
grace() { cluster run --user root scontrol update PartitionName=spot GraceTime="$1"; }

requeue() { what="scontrol requeue" && cluster run scontrol requeue "$job"; }

hold() {
    what="scontrol requeuehold, released after $seconds s"
    cluster run scontrol requeuehold "$job" && job_wait "$job" 60 PENDING && sleep "$seconds" &&
        cluster run --user root scontrol release "$job"
}

# Slurm counts in minutes. The attempt after it may take as long as it likes.
time_limit() {
    local attempt
    what="its time limit came"
    attempt=$(job_field "$job" Restarts)
    cluster run --user root scontrol update JobId="$job" TimeLimit=1 &&
        job_wait_attempt "$job" $((attempt + 1)) 90 &&
        cluster run --user root scontrol update JobId="$job" TimeLimit=UNLIMITED
}

# Slurm may take it up again by itself before.
node_down() {
    what="$node set down, resumed after $seconds s"
    cluster run --user root scontrol update NodeName="$node" State=DOWN Reason=storm &&
        sleep "$seconds"
    cluster run --user root scontrol update NodeName="$node" State=RESUME || :
    wait_for 30 node_serves
}
node_serves() {
    [[ $(cluster run sinfo -h -p spot -n "$node" -o %T) =~ ^(idle|allocated|mixed|completing)$ ]]
}

# The cloud's word to one node; all have to be there, so the job may get it again.
spot_notice() {
    local attempt page
    what="a spot notice for $node"
    page=$JOBS/cloud/page-10.77.0.1${node#n}
    attempt=$(job_field "$job" Restarts)
    echo "$node is taken" >"$page.new" && mv "$page.new" "$page" &&
        wait_for 60 job_left_attempt "$job" "$attempt"
    rm "$page"
}

# --- processes ---

# pids_on NODE PGREP-ARGUMENT…
pids_on() {
    local pid
    for pid in $(cluster_pids "${@:2}"); do
        ! grep -qs "muster-cluster:[^ ]*:$1 " "/proc/$pid/mountinfo" || echo "$pid"
    done
}

# signal_to SIGNAL PID…: the table says where there was none.
signal_to() {
    [ $# -gt 1 ] && kill "-$1" "${@:2}" 2>/dev/null || what+=" (not there)"
}

# pause PID…: SIGSTOP, and SIGCONT some seconds later.
pause() { signal_to STOP "$@" && sleep "$seconds" && signal_to CONT "$@"; }

pid_of_rank() {
    local pid
    read -r _ pid < <(train_rank "$job" "$rank" "$PROGRAM") ||
        { rank=0 && read -r _ pid < <(train_rank "$job" 0 "$PROGRAM"); } && echo "$pid"
}

# shellcheck disable=SC2046
kill_rank() { what="SIGKILL of rank $rank" && signal_to KILL $(pid_of_rank); }
# shellcheck disable=SC2046
stop_rank() { what="SIGSTOP of rank $rank for $seconds s" && pause $(pid_of_rank); }
# shellcheck disable=SC2046
kill_service() {
    what="SIGKILL of $node's service" && signal_to KILL $(pids_on "$node" -x muster-ckptd)
}
# shellcheck disable=SC2046
stop_service() {
    what="SIGSTOP of $node's service for $seconds s" && pause $(pids_on "$node" -x muster-ckptd)
}
stepd() { pids_on "$node" -f "^slurmstepd: \[$job\.[0-9]+\]"; }
# A small world has no step on some nodes: then it is rank 0's node.
with_step() { [ -n "$(stepd)" ] || read -r node _ < <(train_rank "$job" 0 "$PROGRAM"); }
# shellcheck disable=SC2046
kill_stepd() {
    with_step && what="SIGKILL of $node's slurmstepd" && signal_to KILL $(stepd)
}
# shellcheck disable=SC2046
stop_stepd() {
    with_step && what="SIGSTOP of $node's slurmstepd for $seconds s" && pause $(stepd)
}

kill_slurmd() {
    what="SIGKILL of $node's slurmd, back after $seconds s"
    cluster kill-slurmd "$node" && sleep "$seconds" && cluster start-slurmd "$node"
}

# shellcheck disable=SC2046
stop_slurmd() {
    what="SIGSTOP of $node's slurmd for $seconds s" && pause $(pids_on "$node" -x slurmd)
}

# shellcheck disable=SC2046
stop_controller() {
    what="SIGSTOP of slurmctld for $seconds s" && pause $(pids_on ctl -x slurmctld)
}

kill_controller() {
    what="SIGKILL of slurmctld, back after $seconds s"
    cluster kill-controller && sleep "$seconds" && cluster start-controller
}

fail_over() {
    what="SIGKILL of slurmctld, and its backup took over"
    cluster kill-controller && wait_for 60 backup_controls && cluster start-controller
}
backup_controls() { cluster run timeout 5 scontrol -o show job "$job" | grep -q "JobId=$job "; }

# --- nodes and links ---

kill_node() {
    what="$node's power failed, back after $seconds s"
    cluster kill-node "$node" && sleep "$seconds" && cluster start-node "$node" && back_up
}

# n4 has the second controller.
back_up() { [ "$node" != n4 ] || cluster start-backup n4; }

cut() { what="$node's link cut for $seconds s" && cut_for "$seconds"; }
cut_for_long() { what="$node's link cut for 15 s" && cut_for 15; }
cut_for() { cluster cut "$node" && sleep "$1" && cluster heal "$node"; }

loss() {
    what="$node lost 20 % of its packets for $((3 * seconds)) s"
    cluster network "$node" --loss 20% && sleep $((3 * seconds)) && cluster network "$node" off
}

latency() {
    what="packets to $node took 200 ms for $((3 * seconds)) s"
    cluster network "$node" --latency 200ms && sleep $((3 * seconds)) &&
        cluster network "$node" off
}

# --- the disk (tools/nfs_like.c), and the clock ---

disk_full() { what="the disk full for $((2 * seconds)) s" && fault "write ENOSPC" "create ENOSPC"; }
quota() { what="the quota used up for $((2 * seconds)) s" && fault "write EDQUOT"; }
read_only() { what="the disk read-only for $((2 * seconds)) s" && fault "all EROFS"; }
io_error() { what="EIO of each write and fsync for $((2 * seconds)) s" &&
    fault "write EIO" "fsync EIO"; }
stall() {
    seconds=${MUSTER_LONG:+30} seconds=${seconds:-5}
    what="the disk stalled for $((2 * seconds)) s" && fault "all stall"
}

# fault LINE…
fault() {
    printf '%s\n' "$@" >"$JOBS/faults.new" && mv "$JOBS/faults.new" "$JOBS/faults"
    sleep $((2 * seconds))
    : >"$JOBS/faults"
}

clock() {
    local hours=$((rank % 2 ? 1 : -1))
    what="all ranks' clocks went by $hours h"
    echo $(($(<"$JOBS/clock") + 3600 * hours)) >"$JOBS/clock.new" &&
        mv "$JOBS/clock.new" "$JOBS/clock"
}

# --- the programs ---

# For each: begin_NAME makes what its runs are held against, begins one of $STEPS steps in
# $JOBS/storm and sets $job; equals_NAME holds it against that.

begin_train() {
    training_begin
    job=$(train_submit storm --exclusive -- --ckpt-every 20 "$@")
}
begin_zero() { begin_train --zero 1; }
begin_writers() { begin_train --ckpt-writers node; }

begin_elastic() {
    training_begin
    cat >"$JOBS/elastic.sh" <<'END'
#!/bin/bash
sizes=(8 3 5 1 7 2 8 4 6)
export SRUN_OPTIONS="-n ${sizes[${SLURM_RESTART_COUNT:-0} % ${#sizes[@]}]}"
exec ./train.sh "$@"
END
    job=$(cluster run env PATH="$PATH" TRAIN_ARGS="$TRAIN_ARGS" \
        sbatch --parsable --open-mode=append --muster --requeue -N4 --exclusive -J storm \
        -o storm.log elastic.sh storm --ckpt-every 20)
}

equals_train() { train_equals_reference storm; }
equals_elastic() { equals_train; }
# In other files than the reference's.
equals_zero() { same_bits_as_reference; }
equals_writers() { same_bits_as_reference; }

same_bits_as_reference() {
    local last
    last=step-$(printf %08d "$STEPS")
    muster-ckpt diff "$JOBS/storm/$last" "$JOBS/reference/$last" &&
        diff <(muster-curve "$JOBS/storm") <(muster-curve "$JOBS/reference")
}

begin_python() {
    local options=(--samples 384 --batch 24 --workers 1 --every 7 --epochs $((STEPS / 16)) --sum)
    PROGRAM=python3
    export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
    python_package && pytorch_job
    python_submit reference "${options[@]}" && job_wait "$job" 600 COMPLETED &&
        python_submit storm "${options[@]}"
}

python_submit() {
    job=$(job_submit --muster -N4 --ntasks-per-node=2 --exclusive -J storm -o "$1.log" job.sh "$@")
}

equals_python() { same storm reference; }

begin_ring() {
    PROGRAM=ring
    # Few steps, since each all-gather over PMIx takes longer than the one before.
    STEPS=$((100 * count))
    ring_build
    install -m 755 "$MUSTER_BUILD/tests/tools/.libs/slow_steps.so" "$JOBS"
    sed "s|^srun|& env LD_PRELOAD=$JOBS/slow_steps.so|" \
        "$MUSTER_TOP/slurm-examples/ring.sbatch" >"$JOBS/ring.sbatch"
    job=$(STEPS=$STEPS CKPT=storm job_submit --exclusive -J storm -o storm.log ring.sbatch)
}

equals_ring() { grep -qFx "$(ring_result "$STEPS" 8)" "$JOBS/storm.log"; }

# look: sets $attempt, the newest one that has made a step, $from, the step that it began after,
# and $step, its last one.
look() {
    local file line
    [ "$PROGRAM" != ring ] || { look_at_ring && return; }
    file=$(printf '%s\n' "$JOBS"/storm/metrics-*.jsonl | sort -V | tail -n 1)
    [ -s "$file" ] || return 0
    attempt=${file##*-} && attempt=${attempt%.jsonl}
    line=$(head -n 1 "$file") && [[ $line =~ ^\{\"step\":\ *([0-9]+), ]] &&
        from=$((BASH_REMATCH[1] - 1))
    line=$(tail -n 1 "$file") && [[ $line =~ ^\{\"step\":\ *([0-9]+), ]] && step=${BASH_REMATCH[1]}
}

# What it has saved, each 20 steps, is all that it tells.
look_at_ring() {
    local found
    found=$(sed -n 's/^ring: attempt \([0-9]*\): .* after step \([0-9]*\)$/\1 \2/p' \
        "$JOBS/storm.log" 2>/dev/null | tail -n 1)
    [ -z "$found" ] || read -r attempt from <<<"$found"
    found=$(printf '%s\n' "$JOBS"/storm/step-* | sort | tail -n 1)
    [[ ! $found =~ step-0*([0-9]+)$ ]] || step=${BASH_REMATCH[1]}
}

# The highest step that attempts up to this one have made.
last_of_attempt() {
    local file line most=0
    [ "$PROGRAM" != ring ] || { echo "$reached" && return; }
    for file in "$JOBS"/storm/metrics-*.jsonl; do
        line=${file##*-}
        [ "${line%.jsonl}" -le "$1" ] || continue
        line=$(grep '}$' "$file" | tail -n 1)
        [[ ! $line =~ ^\{\"step\":\ *([0-9]+), ]] || [ "${BASH_REMATCH[1]}" -le "$most" ] ||
            most=${BASH_REMATCH[1]}
    done
    echo "$most"
}

# --- the storm ---

# plan N SEED: N lines "KIND NODE RANK SECONDS TENTHS", which SEED alone decides: each kind comes
# once before any comes again.
plan() {
    local left=() i at
    RANDOM=$2
    for ((i = 0; i < $1; i++)); do
        [ ${#left[@]} -gt 0 ] || left=("${KINDS[@]}")
        at=$((RANDOM % ${#left[@]}))
        echo "${left[at]} n$((1 + RANDOM % 4)) $((RANDOM % 8)) $((1 + RANDOM % 4)) $((RANDOM % 20))"
        unset "left[at]" && left=("${left[@]}")
    done
}

# The disk of the checkpoint directory; what this machine sees of it has no faults.
disk_begin() {
    mkdir "$JOBS"/{server,disk,server/storm} && ln -s ../server/storm "$JOBS/disk/storm" &&
        ln -s disk/storm "$JOBS/storm" && : >"$JOBS/faults" && echo 0 >"$JOBS/clock" &&
        chown -R muster-test1: "$JOBS"/{server,disk} &&
        install -m 755 "$MUSTER_BUILD/tests/tools/nfs_like" "$JOBS" || return
    cluster run --user root ./nfs_like server disk faults user="$(id -u muster-test1)" \
        >"$JOBS/disk.log" 2>&1 3>&- &
    wait_for 20 cluster run mountpoint -q disk
}

# What each node asks for spot notices: a page of the controller's machine.
cloud_begin() {
    mkdir "$JOBS/cloud" && cp "$MUSTER_TOP/tests/lib/metadata_server.py" "$JOBS/" || return
    cluster run --user root python3 metadata_server.py page cloud 8080 10.77.0.1 \
        >"$JOBS/cloud.log" 2>&1 3>&- &
    wait_for 20 test -e "$JOBS/cloud/port"
    export MUSTER_NOTICE=http://10.77.0.1:8080/notice
}

# new_step ATTEMPT: whether that attempt or a later one has made a step that none had made before.
new_step() {
    look && [ "$attempt" -ge "$1" ] && [ "$step" -gt "$top" ] &&
        [ "$step" -gt "$(last_of_attempt $(($1 - 1)))" ]
}

# await_new_step ATTEMPT: fails where the job is over, or no step comes.
await_new_step() {
    local end=$((SECONDS + 100 * ${MUSTER_PATIENCE:-3})) looks=0
    until new_step "$1"; do
        [ $SECONDS -lt $end ] || { echo "no new step after $what" && return 1; }
        if [ $((++looks % 20)) -eq 0 ]; then
            resume_drained
            ! job_is "$job" COMPLETED FAILED CANCELLED TIMEOUT NODE_FAIL OUT_OF_MEMORY || {
                new_step "$1" && break
                echo "the job is $(job_state "$job") after $what" && return 1
            }
        fi
        sleep 0.1
    done
    top=$step
}

tenths() { echo "$(($1 / 10)).$(($1 % 10))"; }
tenths_since() { echo $(((${EPOCHREALTIME/./} - $1) / 100000)); }

# disturb NUMBER KIND NODE RANK SECONDS TENTHS: the step that runs, the disturbance, and a line.
disturb() {
    local number=$1 kind=$2 node=$3 rank=$4 seconds=$5
    local before began took lost=0 resumed=- next reached=0
    await_new_step 0 || return
    sleep $(($6 / 10)).$(($6 % 10))
    look && top=$step before=$attempt began=${EPOCHREALTIME/./}
    "$kind" >>"$JOBS/disturbances.log" 2>&1 || { echo "could not do: $kind" && return 1; }
    next=$before
    [[ $ENDING != *" $kind "* ]] || next=$((before + 1))
    look
    [ "$attempt" != "$before" ] || top=$step
    reached=$top
    await_new_step "$next" || return
    took=$(tenths_since "$began")
    [ "$attempt" = "$before" ] || {
        resumed=$from
        lost=$(($(last_of_attempt "$before") - from))
    }
    [ $lost -ge 0 ] || lost=0
    restarts=$((restarts + attempt - before)) losses=$((losses + lost))
    [ "$took" -le "$slowest" ] || slowest=$took slowest_is=$what
    printf '%3d %7s s  %-48s %6d %6d %6s %7s s\n' "$number" \
        "$(tenths "$(tenths_since "$storm_began")")" "$what" "$before" "$lost" "$resumed" \
        "$(tenths "$took")" | tee -a "$TABLE" >&3
    [[ $WARNING != *" $kind "* ]] || [ $lost -eq 0 ] ||
        { echo "steps were lost though there was a notice" && return 1; }
}

# The steps have to last for all disturbances: slow ones, where more of them are over.
keep_pace() {
    if [ $((top * count)) -gt $((STEPS * number)) ]; then pace 1000; else pace 40; fi
}

# has_steps N: a training that begins from now on.
has_steps() { TRAIN_ARGS=${TRAIN_ARGS/--steps $STEPS/--steps $1} STEPS=$1; }

# storm N SEED PROGRAM: to its end, and the verdict. The table is left in $TABLE.
storm() {
    local count=$1 seed=$2 program=$3 number=0 line
    local attempt=-1 from=0 step=0 top=0 what="the start" storm_began job PROGRAM=muster-train
    local restarts=0 losses=0 slowest=0 slowest_is=-
    has_steps $((160 * count))
    TABLE=$MUSTER_BUILD/log/storm-$program-$seed.txt
    mkdir -p "${TABLE%/*}"
    export CLOCK_FILE=$JOBS/clock STEP_MILLISECONDS=40 STEPS_PACE=$JOBS/pace WITHOUT_GPUS=yes
    disk_begin && cloud_begin && "begin_$program" || return
    storm_began=${EPOCHREALTIME/./}
    {
        echo "storm: $count disturbances of $program with seed $seed"
        printf '%3s %8s  %-48s %6s %6s %6s %8s\n' "" when what attempt lost from "new step"
    } | tee "$TABLE" >&3
    while read -r line; do
        keep_pace
        number=$((number + 1))
        # shellcheck disable=SC2086
        disturb $number $line || { verdict_is "failed" && return 1; }
    done < <(plan "$count" "$seed")
    pace 0
    job_wait "$job" 600 COMPLETED FAILED && clean "$program" ||
        { verdict_is "failed" && return 1; }
    echo "$restarts restarts, $losses steps done again, the slowest $((slowest / 10)) s:" \
        "$slowest_is" | tee -a "$TABLE" >&3
    verdict_is "the same bits, every checkpoint whole, nothing held, drained or left running"
}

verdict_is() { echo "verdict: $1" | tee -a "$TABLE" >&3; }

# clean PROGRAM: the verdict's parts.
clean() {
    job_is "$job" COMPLETED && "equals_$1" && muster-ckpt verify --deep "$JOBS/storm" &&
        no_node_drained && nothing_runs && cancelled_at_the_end
}

# One that its user cancels in the moment of its last step stays cancelled.
cancelled_at_the_end() {
    [[ $PROGRAM = muster-train ]] || return 0
    has_steps 60
    job=$(train_submit late --exclusive --) &&
        LOOK_EVERY=0.02 wait_for 60 train_has_step late 60 && cluster run scancel "$job" &&
        nothing_runs && job_is "$job" CANCELLED COMPLETED && [ "$(job_restarts "$job")" -eq 0 ]
}

nothing_runs() {
    wait_for 60 all_over && wait_for 60 all_idle &&
        [ -z "$(cluster_pids -u muster-test1 -x "$PROGRAM|muster-ckptd|srun")" ]
}
