#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The launch half on a real Slurm: rank variables, rendezvous, and which ends of a task bring a job
# back.

load helpers

setup_file() {
    export REQUEUE=$MUSTER_PREFIX/libexec/muster-requeue
    export RDZV=$MUSTER_PREFIX/bin/muster-rdzv
    # Longer than the controller is ever away here: a job that reaches its limit meanwhile has so
    # long to ask for its requeue.
    export MUSTER_CLUSTER_KILLWAIT=6
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    write_scripts
}

write_scripts() {
    # step.sh COMMAND: a batch script with one step, whose tasks run COMMAND. With --export=NONE it
    # has the system's PATH, and that may lead to another Slurm.
    cat >"$JOBS/step.sh" <<END
#!/bin/bash
echo "attempt \${SLURM_RESTART_COUNT:-0} MUSTER=\${MUSTER-unset}"
$(type -P srun) \$STEP_OPTIONS /bin/bash -c "\$1"
END
    # ranks: one line a task with all that the plugin sets.
    cat >"$JOBS/ranks" <<'END'
#!/bin/bash
echo "task $SLURM_PROCID: ${RANK--}/${WORLD_SIZE--} local ${LOCAL_RANK--}/${LOCAL_WORLD_SIZE--}" \
    "node ${NODE_RANK--} group ${GROUP_RANK--}/${GROUP_WORLD_SIZE--} master ${MASTER_ADDR--}:${MASTER_PORT+port}" \
    "pmix ${PMIX_RANK--} attempt ${MUSTER_ATTEMPT--} device ${CUDA_VISIBLE_DEVICES--} threads ${OMP_NUM_THREADS--}"
END
    chmod 755 "$JOBS/step.sh" "$JOBS/ranks"
}

srun() { cluster run timeout -k 10 "$HANG" srun "$@"; }

# job SBATCH-ARGUMENT… COMMAND: submits a job with --muster whose tasks run COMMAND; prints its id.
job() { job_submit --muster "${@:1:$#-1}" step.sh "${*: -1}"; }

# What rank K of 8 over 4 nodes must print.
ranks_of_8() {
    local k
    for k in 0 1 2 3 4 5 6 7; do
        echo "task $k: $k/8 local $((k % 2))/2 node $((k / 2)) group $((k / 2))/4 master 10.77.0.11:port pmix $k attempt 0" \
            "device - threads -"
    done
}

# Whether no line of the output has a rank variable.
nothing_set() {
    [[ $output = *task* ]] &&
        ! grep '^task' <<<"$output" |
        grep -v -- ': -/- local -/- node - group -/- master -: pmix - attempt -'
}

# Whether all tasks have the rank that Slurm gave them, and PMIx.
all_set() {
    [[ $output = *task* ]] &&
        ! grep '^task' <<<"$output" |
        grep -vE '^task ([0-9]+): \1/2 .* master 10\.77\.0\.1[1-4]:port pmix \1 '
}

# inner SBATCH-ARGUMENT…: the lines of the two tasks of a job's step. $output is theirs.
inner() {
    local id
    id=$(job_submit "$@" -N2 -n2 -W step.sh ./ranks)
    run grep '^task' "$(job_output "$id")"
}

@test "srun --muster: 8 tasks on 4 nodes get their variables and PMIx" {
    run srun --muster -N4 --ntasks-per-node=2 ./ranks
    [ "$status" -eq 0 ]
    [ "$(grep '^task' <<<"$output" | sort)" = "$(ranks_of_8)" ]
}

@test "all tasks of a step agree on the port, and it is outside the ephemeral range" {
    run srun --muster -N4 --ntasks-per-node=2 bash -c 'echo port $MASTER_PORT'
    run sed -n 's/^port //p' <<<"$output"
    [ "${#lines[@]}" -eq 8 ]
    [ "$(sort -u <<<"$output" | wc -l)" -eq 1 ]
    [ "${lines[0]}" -ge 1024 ]
    [ "${lines[0]}" -lt 32768 ]
}

@test "with one GPU a task, LOCAL_RANK is device 0; stated CPUs become threads" {
    run srun --muster -N2 --ntasks-per-node=2 -c2 --gpus-per-task=1 ./ranks
    [ "$status" -eq 0 ]
    [ "$(grep -c 'local 0/2 .* threads 2$' <<<"$output")" -eq 4 ]
    [ "$(grep -c 'device 0 ' <<<"$output")" -eq 2 ]
    [ "$(grep -c 'device 1 ' <<<"$output")" -eq 2 ]
}

@test "without opting in nothing changes" {
    run srun -N2 ./ranks
    nothing_set
    inner
    nothing_set
}

@test "MUSTER=1 opts in, MUSTER=0 and --no-muster opt out" {
    run env MUSTER=1 "$MUSTER_TOP/tests/cluster/cluster" run srun -N2 ./ranks
    all_set
    run env MUSTER=1 "$MUSTER_TOP/tests/cluster/cluster" run srun --no-muster -N2 ./ranks
    nothing_set
    run env MUSTER=0 "$MUSTER_TOP/tests/cluster/cluster" run srun -N2 ./ranks
    nothing_set
}

@test "sbatch --muster reaches the srun inside, also with --export=NONE" {
    inner --muster
    all_set
    inner --muster --export=NONE
    all_set
    STEP_OPTIONS=--no-muster inner --muster
    nothing_set
    STEP_OPTIONS=--muster inner --no-muster
    all_set
}

@test "default=on opts every job in, and --no-muster out" {
    cluster plugin "$PLUGIN" default=on
    run srun -N2 ./ranks
    all_set
    run srun --no-muster -N2 ./ranks
    nothing_set
    inner
    all_set
    cluster plugin "$PLUGIN"
}

@test "an unknown argument in plugstack.conf is named" {
    cluster plugin "$PLUGIN" colour=red
    run srun -N1 true
    [[ $output = *"couldn't use colour=red"* ]]
    # A task without its rank would take itself for a world of one.
    run srun --muster -N1 echo started
    cluster plugin "$PLUGIN"
    [ "$status" -eq 2 ]
    [[ $output = *"couldn't use colour=red"* && $output != *started* ]]
}

@test "the user's MASTER_ADDR, MASTER_PORT and --mpi win; an outer step's rank does not" {
    run srun --muster --export=ALL,MASTER_ADDR=me,MASTER_PORT=1,RANK=77,WORLD_SIZE=99 --mpi=none \
        -N2 ./ranks
    [ "$(grep -c ' master me:port pmix - ' <<<"$output")" -eq 2 ]
    [[ $output = *"task 1: 1/2 "* ]]
}

@test "muster-rdzv shows 8 ranks on 4 nodes" {
    run srun --muster -N4 --ntasks-per-node=2 "$RDZV" --json
    [ "$status" -eq 0 ]
    mapfile -t lines < <(grep '^{' <<<"$output")
    for k in 0 1 2 3 4 5 6 7; do
        [[ ${lines[k]} \
            = *"\"rank\":$k,\"world_size\":8,\"local_rank\":$((k % 2)),\"local_world_size\":2"* ]]
        [[ ${lines[k]} = *"\"node\":\"n$((k / 2 + 1))\""*'"provider":"pmix"'* ]]
    done
    run srun --muster -N2 "$RDZV"
    [ "$(grep -cE 'rank/size|^ +[01]/2 .* pmix ' <<<"$output")" -eq 3 ]
}

@test "muster-rdzv works over a shared folder too" {
    run srun -N4 --ntasks-per-node=2 --export="ALL,MUSTER_RDZV_DIR=$JOBS" "$RDZV"
    [ "$status" -eq 0 ]
    [ "$(grep -c ' slurm .* file ' <<<"$output")" -eq 8 ]
    ! ls -d "$JOBS"/muster-* || false
}

@test "a rank that never starts is named with its node, within the deadline" {
    local began=$SECONDS
    run srun --muster -N4 --ntasks-per-node=2 \
        bash -c "[ \$RANK != 5 ] || exec sleep 1000; exec $RDZV -t 2"
    in_time 25 $began
    [[ $output = *"couldn't meet 1 of 8 ranks within 2 s: rank 5 (on n3) did not come"* ]]
    [[ $output = *"Exited with exit code 69"* ]]
}

@test "PMIx carries values from none to 64 KiB, and names a rank that stays away later" {
    local test=$MUSTER_BUILD/tests/unit/test_rdzv
    [ -x "$test" ] || skip "no test_rdzv: MUSTER_BUILD is not a build with its tests"
    run srun --mpi=pmix -N4 -n5 "$test" values
    echo "$output"
    [ "$status" -eq 0 ]
    run srun --mpi=pmix -N4 -n5 --distribution=cyclic "$test" "rank 2 (on n3) did not come"
    [ "$(grep -c 'named the lost one' <<<"$output")" -eq 4 ]
}

@test "a step without PMIx is told the flag, in one line" {
    run srun -N2 --ntasks-per-node=2 "$RDZV"
    [ "$status" -eq 2 ]
    [ "$(grep -c 'muster:' <<<"$output")" -eq 1 ]
    [[ $output = *"srun --mpi=pmix"* ]]
}

@test "75, 69, a signal, and a signal of a program below a shell bring the job back" {
    local -A ends=([75]='exit 75' [69]='exit 69' [kill]='kill -9 $$' [segv]='kill -11 $$'
        [shell]='bash -c "kill -9 \$\$"; exit')
    local -A id=()
    for end in "${!ends[@]}"; do
        id[$end]=$(job -N2 -n2 "[ \$MUSTER_ATTEMPT != 0 ] || {
            if [ \$RANK = 1 ]; then ${ends[$end]}; fi; exec sleep 1000; }")
    done
    for end in "${!ends[@]}"; do
        job_wait "${id[$end]}" 90 COMPLETED
        [ "$(job_restarts "${id[$end]}")" = 1 ]
        # Said once, by the node of the rank that was first.
        cat "$(job_output "${id[$end]}")"
        [ "$(grep -c 'muster: rank 1 on n. ' "$(job_output "${id[$end]}")")" -eq 1 ]
        [ "$(grep -c 'put back in the queue after attempt 0' "$(job_output "${id[$end]}")")" -eq 1 ]
    done
}

@test "0, 1, 2 and 65 end the job, though Slurm kills the other ranks with a signal" {
    local -A id=()
    for code in 0 1 2 65; do
        id[$code]=$(job -N2 -n2 '[ $RANK = 1 ] && exit '$code'; [ '$code' = 0 ] || exec sleep 1000')
    done
    for code in 0 1 2 65; do
        job_wait "${id[$code]}" 60 COMPLETED FAILED
        [ "$(job_restarts "${id[$code]}")" = 0 ]
        [ $code -eq 0 ] || grep -q "muster: rank 1 on n. exited with status $code" \
            "$(job_output "${id[$code]}")"
    done
}

@test "a rank that leaves PMIx without a farewell has its peers killed: its own end counts, not theirs" {
    local test=$MUSTER_BUILD/tests/unit/test_rdzv killed exits
    [ -x "$test" ] || skip "no test_rdzv: MUSTER_BUILD is not a build with its tests"
    killed=$(job -N4 -n5 "exec $test killed")
    exits=$(job -N4 -n5 "exec $test exits")
    job_wait "$killed" "$GIVING_UP" COMPLETED
    [ "$(job_restarts "$killed")" = 1 ]
    grep -q 'muster: rank 2 on n. was killed by signal 9' "$(job_output "$killed")"
    job_wait "$exits" "$GIVING_UP" FAILED
    [ "$(job_restarts "$exits")" = 0 ]
    grep -q 'muster: rank 2 on n. exited with status 1' "$(job_output "$exits")"
}

@test "scancel never comes back, whatever the ranks answer" {
    local -a id=()
    for answer in 'exit 75' 'sleep 0.7; exit 75' 'exit 69' 'trap "" TERM; sleep 1000'; do
        id+=("$(job -N1 -n2 "trap '$answer' TERM; sleep 1000 & wait; $answer")")
    done
    for k in 0 1 2 3; do job_wait "${id[k]}" 30 RUNNING; done
    for k in 0 1 2 3; do
        sleep 0.$((RANDOM % 10))
        cluster run scancel "${id[k]}"
    done
    for k in 0 1 2 3; do job_wait "${id[k]}" 30 CANCELLED; done
    wait_for 60 all_idle # whatever could put them back has ended
    for k in 0 1 2 3; do
        [ "$(job_state "${id[k]}") $(job_restarts "${id[k]}")" = "CANCELLED 0" ]
    done
}

@test "muster-requeue acts on the attempt that it was asked for, and on no other" {
    # Of a job without a limit scontrol says no end where the main scheduler has started it.
    id=$(job -N1 -n1 --time=10 'sleep 1000')
    job_wait "$id" 30 RUNNING
    cluster run "$REQUEUE" --running "$id" 0
    run cluster run "$REQUEUE" --times "$id" 0
    expected=$(for name in SubmitTime StartTime EndTime; do
        date -d "$(job_field "$id" $name)" +%s
    done)
    [ "$output" = "${expected//$'\n'/ }" ]
    run cluster run "$REQUEUE" --running "$id" 1
    [[ $status -eq 1 && -z $output ]]
    run cluster run "$REQUEUE" "$id" 1
    [[ $status -eq 0 && $output = *"at attempt 0, not 1"* ]]
    [ "$(job_state "$id")" = RUNNING ]
    run cluster run --user 2 "$REQUEUE" "$id" 0
    [ "$status" -eq 1 ]
    run cluster run "$REQUEUE" "$id" 0
    [[ $status -eq 0 && $output = *"job $id is put back in the queue after attempt 0"* ]]
    run cluster run "$REQUEUE" --quiet "$id" 0
    [[ $status -eq 0 && -z $output ]]
    job_wait_attempt "$id" 1 30
    run cluster run "$REQUEUE" "$id" 0
    [[ $status -eq 0 && $output = *"at attempt 1, not 0"* ]]
    [ "$(job_state "$id")" = RUNNING ]
    run cluster run "$REQUEUE" --running "$id" 0
    [ "$status" -eq 1 ]
    job_end "$id"
    run cluster run "$REQUEUE" --running "$id" 1
    [[ $status -eq 1 && -z $output ]]
    run cluster run "$REQUEUE" --running 999999 0
    [[ $status -eq 1 && -z $output ]]
    run cluster run "$REQUEUE" "$id" 1
    [[ $status -eq 0 && $output = *"it was cancelled"* ]]
    [ "$(job_state "$id")" = CANCELLED ]
}

@test "muster-requeue waits for a controller that is away" {
    id=$(job -N1 -n1 'sleep 1000')
    job_wait "$id" 30 RUNNING
    wait_for 20 job_has_step "$id" # an srun that is about to begin one gives up
    cluster stop-controller
    (sleep 2 && cluster start-controller) 3>&- &
    run cluster run "$REQUEUE" --deadline=60 "$id" 0
    wait
    [[ $status -eq 0 && $output = *"put back"* ]]
    job_end "$id"
}

@test "muster-requeue gives up at its deadline" {
    cluster stop-controller
    cluster run timeout -k 10 "$HANG" "$REQUEUE" --deadline=2 1 0 3>&- &
    run cluster run timeout -k 10 "$HANG" "$REQUEUE" --deadline=2 --running 1 0
    wait $! && acted=0 || acted=$?
    cluster start-controller
    echo "$output"
    [ "$acted $status" = "69 69" ]
}

@test "muster-requeue --status N ends a script with N, and puts the job back where N asks for it" {
    cat >"$JOBS/plain.sh" <<END
#!/bin/bash
srun bash -c 'exit \${SLURM_RESTART_COUNT:-'\$1'}' & wait \$!
exec $REQUEUE --status \$?
END
    for code in 75 7; do id[code]=$(job_submit -N1 -n1 plain.sh $code); done
    job_wait "${id[75]}" 60 FAILED
    [ "$(job_restarts "${id[75]}") $(job_field "${id[75]}" ExitCode)" = "1 1:0" ]
    job_wait "${id[7]}" 60 FAILED
    [ "$(job_restarts "${id[7]}") $(job_field "${id[7]}" ExitCode)" = "0 7:0" ]
}

no_node_completes() { [ -z "$(cluster run sinfo -h -t completing -o %n)" ]; }

@test "a job that cannot be put back is logged" {
    # A step that ended while the controller was away tells so a minute later, and its node is not
    # free until then.
    wait_for 90 no_node_completes
    run srun --muster -N1 bash -c 'exit 75'
    [ "$status" -eq 75 ]
    [[ $output = *"can't be put back: only a job of sbatch"* ]]
    # Once, also where all ranks end at the same moment.
    local when=$((EPOCHSECONDS + 3)) wait
    wait="until [ \$EPOCHSECONDS -ge $when ]; do sleep 0.01; done"
    id=$(job --no-requeue -N4 -n4 "$wait; exit 75")
    id2=$(job -N4 -n4 "$wait; exit 1")
    job_wait "$id" 30 FAILED
    job_wait "$id2" 30 FAILED
    cat "$(job_output "$id")" "$(job_output "$id2")"
    [ "$(grep -c "can't be put back: it was submitted with --no-requeue" "$(job_output "$id")")" \
        -eq 1 ]
    [ "$(grep -c "muster-requeue: rank . on n. exited with status 1, which does not put job" \
        "$(job_output "$id2")")" -eq 1 ]
}

@test "a job submitted from inside a restarted one counts its own attempts" {
    run env SLURM_RESTART_COUNT=7 "$MUSTER_TOP/tests/cluster/cluster" run sbatch --parsable \
        --muster -N1 -n1 -W step.sh \
        'echo it is $MUSTER_ATTEMPT'
    grep -q '^it is 0$' "$(job_output "${lines[0]}")"
}

# As a slurmstepd leaves it that was killed. Between its name and its listening a server's socket
# refuses as a dead one's does. Here all nodes see the sockets of all, and each has its own TmpFS.
@test "what a dead server has left is removed on its own node, and no other node's" {
    id=$(job --hold -N1 -n1 -w n2 true)
    local spool clients
    spool=$(cluster status dir)/spool clients=/tmp/spmix_appdir_$(id -u muster-test1)_$id.0
    for node in n1 n2; do
        mkdir "$spool/$node/pmix.$id.0"
        python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' \
            "$spool/$node/stepd.slurm.pmix.$id.0"
        cluster run --node $node mkdir -p "$clients/pmix-1"
    done
    cluster run scontrol release "$id"
    job_wait "$id" 60 COMPLETED
    ls -d "$spool/n1/stepd.slurm.pmix.$id.0" "$spool/n1/pmix.$id.0"
    cluster run --node n1 rm -r "$clients"
    [ -z "$(find "$spool/n2" -name "*pmix.$id.*")" ]
    run cluster run --node n2 ls -d "$clients"
    [ "$status" -ne 0 ]
}

# As one is left whose PMIx server still asks a lost node: it has no task, and no socket any more,
# so slurmd takes its step for ended. These two wait for slurmd to tell them what to do.
@test "a slurmstepd that is left goes with its job, and no other job's does" {
    id=$(job --hold -N1 -n1 -w n2 true)
    local job pids=()
    mkfifo "$JOBS/words"
    for job in "$id" "9$id"; do
        cluster run --user root --node n2 \
            bash -c "exec -a 'slurmstepd: [$job.0]' slurmstepd <>'$JOBS/words'" 3>&- &
        wait_for 20 is_left "$job"
        pids+=("$pid")
    done
    cluster run scontrol release "$id"
    job_wait "$id" 60 COMPLETED
    wait_for 20 grep "job $id: ended 1 of its slurmstepds" "$(cluster status dir)/log/slurmd-n2.log"
    ! kill -0 "${pids[0]}" || false
    kill "${pids[1]}"
}

is_left() { pid=$(cluster_pids -f "^slurmstepd: \[$1\.0\]") && [ -n "$pid" ]; }

@test "a node that loses power brings the job back" {
    id=$(job -N2 -n2 -w n3,n4 '[ $MUSTER_ATTEMPT != 0 ] || exec sleep 1000')
    job_wait "$id" 30 RUNNING
    cluster kill-node n4
    job_wait_attempt_over "$id"
    cluster start-node n4
    job_wait "$id" 60 COMPLETED
    [ "$(job_restarts "$id")" = 1 ]
}

# Until the job no longer runs its first attempt.
job_wait_attempt_over() { wait_for 60 job_left_attempt "$1" 0; }

@test "eight requeues in a row are never held" {
    # The next test's takes a while, too, and runs beside.
    job -N1 -n1 -w n1 --time=1 \
        'trap "exit 75" TERM; [ $MUSTER_ATTEMPT -gt 0 ] && exit 0; sleep 1000 & wait; exit 75' \
        >"$JOBS/limit"
    id=$(job --export=ALL -N1 -n2 '[ $MUSTER_ATTEMPT -lt 8 ] && exit 75; exit 0')
    job_wait "$id" 120 COMPLETED
    [ "$(job_restarts "$id")" = 8 ]
}

@test "the end of the time limit brings the job back" {
    # Slurm looks for such jobs every 30 s.
    id=$(<"$JOBS/limit")
    job_wait "$id" 180 COMPLETED
    cat "$(job_output "$id")"
    [ "$(job_restarts "$id")" = 1 ]
    grep -q "DUE TO TIME LIMIT" "$(job_output "$id")"
    grep -q "muster: job $id has ended: it is put back in the queue when nothing of it is left on its nodes" "$(job_output "$id")"
}
