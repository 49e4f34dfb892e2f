#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# srun's user sees in one line which rank was the first to fail; and none where nobody has.

load helpers

setup_file() {
    export MUSTER_CLUSTER_KILLWAIT=2 MUSTER_CLUSTER_GRACE=3
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    # step.sh COMMAND: a batch script with one step, whose tasks run COMMAND.
    printf '#!/bin/bash\nsrun /bin/bash -c "$1"\n' >"$JOBS/step.sh"
    chmod 755 "$JOBS/step.sh"
}

# begin NAME SRUN-ARGUMENT…: a step in the background, its output in $JOBS/NAME.
begin() { cluster run timeout -k 10 "$HANG" srun --muster "${@:2}" >"$JOBS/$1" 2>&1 3>&- & }

# said NAME LINE: the step's output has that line about a rank, and no other.
said() {
    local line
    line=$(grep '^muster: rank ' "$JOBS/$1") || :
    # shellcheck disable=SC2053
    [[ $line = "muster: rank "$2 ]] || { cat "$JOBS/$1" && echo "not: $2" && return 1; }
}

# silent FILE…: none of these outputs has a line about a rank.
silent() { ! grep -H '^muster: rank ' "$@"; }

# Whether both tasks of a job have said that they have begun.
begun() { [ "$(grep -cxs begun "$(job_output "$1")")" = 2 ]; }

others=", the first of 4 ranks to fail; the 3 others were stopped for it"

@test "a kill, a crash, an exit and an exception are named with rank and node, once" {
    local -A ends=([kill]='kill -9 $$' [segv]='kill -11 $$' [one]='exit 1'
        [python]='exec python3 -c "raise ValueError()"' \
            [later]='until [ -e trapped ]; do sleep 0.1; done; exit 3')
    # What waits for its sleep may see that killed a moment before it gets the signal itself.
    for end in "${!ends[@]}"; do
        begin "$end" -N2 --ntasks-per-node=2 bash -c "[ \$RANK = 2 ] && { ${ends[$end]}; }
            if [ $end:\$RANK = later:0 ]; then
                trap 'exit 69' TERM; touch trapped; sleep 1000 & wait; exit 69;
            fi; exec sleep 1000"
    done
    wait
    said kill "2 on n? was killed by signal 9 (Killed)$others"
    said segv "2 on n? was killed by signal 11 (Segmentation fault)$others"
    said one "2 on n? exited with status 1$others"
    said python "2 on n? exited with status 1$others"
    grep -q ValueError "$JOBS/python"
    said later "2 on n? exited with status 3$others"
    grep -q 'task 0: Exited with exit code 69' "$JOBS/later"
}

@test "the others of a rank that failed are not said to have been stopped where they go on" {
    local fails='[ $RANK = 2 ] && exit 1; sleep 1'
    begin option --kill-on-bad-exit=0 -N2 --ntasks-per-node=2 bash -c "$fails"
    begin short -K0 -N2 --ntasks-per-node=2 bash -c "$fails"
    SLURM_KILL_BAD_EXIT=0 begin variable -N2 --ntasks-per-node=2 bash -c "$fails"
    SLURM_KILL_BAD_EXIT=0 begin overruled -K -N2 --ntasks-per-node=2 \
        bash -c '[ $RANK = 2 ] && exit 1; exec sleep 1000'
    wait
    for case in option short variable; do
        said $case "2 on n? exited with status 1, the first of 4 ranks to fail"
    done
    said overruled "2 on n? exited with status 1$others"
}

# ports COUNT: that many for all that srun listens on (SrunPortRange); none: any.
ports() {
    sed -i '/^SrunPortRange=/d' "$(cluster status conf)"
    [ -z "${1-}" ] || echo "SrunPortRange=61001-$((61000 + $1))" >>"$(cluster status conf)"
}

# Whether an srun of a step with PMIx, and without Muster, starts with that many.
suffices() {
    ports "$1"
    cluster run timeout -k 5 "$HANG" srun --no-muster --mpi=pmix -N2 -n2 true
}

@test "srun starts where the site has no more ports for it than it needs, and the failure is named all the same" {
    local count=2 # Slurm takes no range of one
    local fails='[ $RANK = 1 ] && exit 3; exec sleep 1000'
    until suffices $count; do
        count=$((count + 1))
        [ $count -lt 12 ]
    done
    echo "srun needs $count ports"
    run cluster run timeout -k 5 "$HANG" srun --muster -N2 -n2 \
        bash -c 'echo "rank $RANK has a key of ${#MUSTER_STEP_KEY}"'
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(sort <<<"$output")" = "$(printf 'rank %d has a key of 32\n' 0 1)" ]
    begin few -N2 -n2 bash -c "$fails"
    wait
    ports 300
    begin many -N2 -n2 bash -c "$fails"
    wait
    ports
    said few "1 on n? exited with status 3"
    said many \
        "1 on n? exited with status 3, the first of 2 ranks to fail; the other was stopped for it"
}

@test "the line has what a program of ours said last, also when it is killed" {
    begin alone -n1 muster-train --data missing.bin --ckpt-dir run
    begin late -N2 -n2 bash -c '[ $RANK = 0 ] || exec sleep 1000; exec muster-rdzv -t 1'
    begin plain -n1 --export=NONE /bin/bash -c 'exit 7'
    gcc -x c -I"$MUSTER_PREFIX/include" -o "$JOBS/silent" - -L"$MUSTER_PREFIX/lib" \
        -lmuster -Wl,-rpath,"$MUSTER_PREFIX/lib" <<'END'
#include <muster.h>
int main(void) { struct muster *muster; return muster_open(&muster, 1); }
END
    begin library -N2 -n2 bash -c '[ $RANK = 0 ] || exec sleep 1000; exec ./silent'
    wait
    said alone '0 on n? exited with status 65; it last said "*missing.bin*"'
    local words="*; it last said \"rendezvous: couldn't meet 1 of 2 ranks within 1 s: rank 1 (on n?) did not come\""
    said late "0 on n? lost a peer$words"
    said plain '0 on n? exited with status 7'
    # libmuster says nothing itself; the program may.
    said library "0 on n? lost a peer$words"
}

# It hangs only with PMIx, and on a busy machine often: then the same is done without.
fail_in_components() {
    local mpi status
    for mpi in pmix none; do
        status=0
        cluster run salloc -N1 -n1 : -N2 -n2 "${BOUNDED[@]}" srun --muster "--mpi=$mpi" \
            --het-group=0,1 \
            bash -c '[ $RANK = 2 ] && exit 3; exec sleep 1000' >"$JOBS/het" 2>&1 3>&- || status=$?
        ended_by_hang $status || return 0
    done
}

@test "a step of several components counts its ranks through; steps of one job name their own" {
    fail_in_components &
    cat >"$JOBS/two.sh" <<'END'
#!/bin/bash
for code in 4 5; do
    srun --muster --exclusive -N1 -n2 bash -c '[ $RANK = 1 ] && exit '$code'; exec sleep 1000' \
        >two-$code 2>&1 &
done
wait
END
    chmod 755 "$JOBS/two.sh"
    job_submit -N2 --ntasks-per-node=2 -W two.sh || :
    wait
    said het "2 on n? exited with status 3, the first of 3 ranks to fail; the 2 others were stopped for it"
    for code in 4 5; do
        said two-$code "1 on n? exited with status $code, the first of 2 ranks to fail; the other was stopped for it"
    done
}

@test "nobody has failed: a notice, success, a step without --muster, a job that is cancelled" {
    begin notice -N2 -n4 bash -c 'exit 75'
    begin success -N2 -n4 true
    cluster run timeout -k 10 "$HANG" srun -N2 -n4 bash -c 'exit 1' >"$JOBS/without" 2>&1 3>&- &
    for answer in : 'trap "" TERM' 'trap "exit 1" TERM' 'trap "exit 69" TERM'; do
        ids+=("$(job_submit --muster -N2 -n2 step.sh \
            "$answer; echo begun; sleep 1000 & wait; wait")")
    done
    for id in "${ids[@]}"; do wait_for 30 begun "$id"; done
    cluster run scancel "${ids[@]}"
    for id in "${ids[@]}"; do job_wait "$id" 30 CANCELLED; done
    wait
    grep -q 'asked to be put back' "$JOBS/notice" # which is no failure, and stands there as before
    silent "$JOBS"/success "$JOBS"/without
    [ "$(grep -c '^muster: rank' "$JOBS/notice")" -eq 1 ]
    for id in "${ids[@]}"; do silent "$(job_output "$id")"; done
}

@test "nobody has failed: muster-doctor has found something" {
    id=$(job_submit --muster -N2 -n2 step.sh 'MUSTER_RDZV_DIR=. exec muster-doctor --dir /tmp/none')
    job_wait "$id" 30 FAILED
    cat "$(job_output "$id")"
    grep -q '^error: dir-not-shared: ' "$(job_output "$id")"
    if grep '^muster' "$(job_output "$id")" | grep -v '^muster-doctor: '; then false; fi
    # Noted for ranks that srun kills for it, and told to nobody.
    cluster run scontrol show job "$id" |
        grep -q 'Comment=muster: attempt 0 step 0 ended for good at [0-9.]*: rank 0 on n1 exited with status 1'
    # What a shell does after it is its own.
    begin later -n1 bash -c 'muster-doctor --dir /proc/none; exit 4'
    wait
    said later '0 on n? exited with status 4*'
}

@test "nobody has failed: a job that is preempted" {
    # The first ends in its grace time by SIGTERM, the second when that is over by SIGKILL.
    id=$(job_submit --muster -N2 -n2 step.sh \
        '[ $MUSTER_ATTEMPT != 0 ] || { echo begun; exec sleep 1000; }')
    wait_for 30 begun "$id"
    job_preempt "$id"
    id2=$(job_submit --muster -N2 -n2 step.sh \
        '[ $MUSTER_ATTEMPT != 0 ] || { trap "" TERM; echo begun; sleep 1000 & wait; wait; }')
    wait_for 60 begun "$id2"
    job_preempt "$id2"
    job_end "$id" "$id2"
    cat "$(job_output "$id")" "$(job_output "$id2")"
    ! grep 'the first of' "$(job_output "$id")" "$(job_output "$id2")" || false
}

@test "nobody has failed: a node dies" {
    id=$(job_submit --muster -N2 -n2 -w n3,n4 step.sh \
        '[ $MUSTER_ATTEMPT != 0 ] || { echo begun; exec sleep 1000; }')
    wait_for 30 begun "$id"
    cluster kill-node n4
    wait_for 60 job_left_attempt "$id" 0
    cluster start-node n4
    job_end "$id"
    cat "$(job_output "$id")"
    silent "$(job_output "$id")"
}
