#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# No job is lost, and none comes back for ever: whose fault an end was, how often it may be the
# job's own, and which steps count.

load helpers
load requeue

setup_file() {
    MUSTER_CLUSTER_CONF="TaskProlog=$(cluster status jobs)/task-prolog" requeue_begin
    # A task of the first $LOSE attempts begins only when there is a file for it.
    printf '%s\n' '#!/bin/sh' '[ "${SLURM_RESTART_COUNT:-0}" -lt "${LOSE:-0}" ] || exit 0' \
        "this=$JOBS/begins.\$SLURM_JOB_ID.\${SLURM_RESTART_COUNT:-0}" \
        'touch $this; until [ -e $this.now ]; do sleep 0.1; done' >"$JOBS/task-prolog"
    chmod 755 "$JOBS/task-prolog"
}

@test "a rank that fails at a preemption's SIGTERM brings the job back; at anybody else's it does not" {
    fails='[ $MUSTER_ATTEMPT = 0 ] || exit 0; trap "exit 1" TERM; echo ready; sleep 1000 & wait; exit 1'
    taken=$(job -N2 -n4 "$fails")
    wait_for 30 said "$taken" ready
    job_preempt "$taken" 0
    restarted_once "$taken" \
        "exited with status 1 while the job was being preempted: job $taken is put back in the queue after attempt 0"
    told=$(job -N2 -n4 "$fails")
    wait_for 30 said "$told" ready
    cluster run scancel --signal=TERM "$told"
    job_wait "$told" 60 FAILED
    [ "$(job_restarts "$told")" = 0 ]
}

@test "a rank that fails on a node that is being drained brings the job back" {
    id=$(job -N2 -n2 -w n1,n2 \
        '[ $MUSTER_ATTEMPT = 0 ] || exit 0
        echo ready; until [ -e drained ]; do sleep 0.1; done; [ $RANK = 0 ] || exit 1; sleep 1000')
    wait_for 30 said "$id" ready
    cluster run --user root scontrol update nodename=n2 state=drain reason=test
    touch "$JOBS/drained"
    back="job $id is put back in the queue after attempt 0"
    wait_for 30 said "$id" "exited with status 1 while its node was being drained: $back"
    cluster run --user root scontrol update nodename=n2 state=resume
    restarted_once "$id" "put back"
}

@test "a rank that ends for good keeps the job from coming back however slow the controller is" {
    # Slurm's PMIx kills the other rank at once, before anybody can have noted why; or that sees by
    # itself that its peer has gone.
    # shellcheck disable=SC2046
    PKG_CONFIG_PATH=$MUSTER_PREFIX/lib/pkgconfig cc -o "$JOBS/ends" -x c - \
        $(PKG_CONFIG_PATH=$MUSTER_PREFIX/lib/pkgconfig pkg-config \
        --cflags --libs muster) -Wl,-rpath,"$MUSTER_PREFIX/lib" <<'END'
#include <muster.h>
#include <signal.h>
#include <unistd.h>
int main(void)
{
	struct muster *muster;
	sigset_t all;
	if (muster_open(&muster, 0) || muster_fence(muster, 0))
		return 75;
	if (muster_rank(muster) == 1)
		_exit(1);
	sigfillset(&all);
	sigprocmask(SIG_UNBLOCK, &all, NULL);
	pause();
}
END
    slow_requeue
    touch "$JOBS/slow"
    cluster plugin "$PLUGIN" breaker=off "requeue=$JOBS/slow-requeue"
    killed=$(job -N2 -n2 'exec ./ends')
    mkfifo -m 666 "$JOBS/gone"
    lost=$(job -N2 -n2 'if [ $RANK = 1 ]; then echo $$ >gone; exit 1; fi; '"$LOST")
    for id in "$killed" "$lost"; do
        job_wait "$id" 90 FAILED COMPLETED
        cat "$(job_output "$id")"
        [ "$(job_restarts "$id")" = 0 ]
        [[ $(comment "$id") = "muster: attempt 0 step 0 ended for good at "* ]]
        [[ $(comment "$id") = *": rank 1 on n"?" exited with status 1"* ]]
    done
    rm "$JOBS/slow"
    cluster plugin "$PLUGIN"
}

@test "a rank that fails because another one was killed does not keep the job from coming back" {
    # Once rank 1 has ended.
    cat >"$JOBS/late-requeue" <<END
#!/bin/bash
[[ " \$* " != *" --settle="* ]] || { echo 1<>"$JOBS/asked"; flock "$JOBS/held" true; }
exec "$REQUEUE" "\$@"
END
    chmod 755 "$JOBS/late-requeue"
    mkfifo -m 666 "$JOBS/there" "$JOBS/asked"
    cluster plugin "$PLUGIN" "requeue=$JOBS/late-requeue"
    exec {held}>"$JOBS/held" && flock "$held"
    # As PyTorch does: rank 1 sees that rank 0 is gone, takes a while, and ends with an error of its
    # own. Ends less than 0.1 s apart count as simultaneous, which is another rule.
    id=$(job -N2 -n2 '[ $MUSTER_ATTEMPT = 0 ] || exit 0
        if [ $RANK = 0 ]; then read -r _ <there; kill -9 $$; fi
        trap "" TERM; exec 3<>asked; echo >there; read -r _ <&3; sleep 0.4; exit 1')
    wait_for 30 said "$id" \
        "muster-requeue: rank 1 on n. exited with status 1, which does not put job $id back"
    flock -u "$held"
    restarted_once "$id" "muster-requeue: job $id is put back in the queue after attempt 0"
    cluster plugin "$PLUGIN"
    # What was noted of rank 1 stays true of the job.
    said "$id" "muster-requeue: rank 1 on n. exited with status 1, which does not put job $id back"
    ! said "$id" "job $id is not put back\|can't be put back" || false
}

@test "muster-requeue is killed before it has answered, once and three times: the job comes back" {
    cat >"$JOBS/killed-requeue" <<END
#!/bin/bash
kill=\$(find "$JOBS/kills.\${@: -2:1}" -type f 2>/dev/null | head -n 1)
[ ! "\$kill" ] || { rm "\$kill"; kill -KILL \$\$; }
exec "$REQUEUE" "\$@"
END
    chmod 755 "$JOBS/killed-requeue"
    cluster plugin "$PLUGIN" "requeue=$JOBS/killed-requeue"
    for kills in 1 3; do
        for nodes in n1 n1,n2; do # where the script runs, and elsewhere
            count=$(tr , '\n' <<<"$nodes" | wc -l)
            id=$(job -w "$nodes" -N"$count" -n"$count" '[ $MUSTER_ATTEMPT = 0 ] || exit 0
                [ $((RANK + 1)) = $WORLD_SIZE ] || exec sleep 600
                until [ -e now.$SLURM_JOB_ID ]; do sleep 0.1; done; exit 75')
            mkdir -m 777 "$JOBS/kills.$id"
            for kill in $(seq "$kills"); do touch "$JOBS/kills.$id/$kill"; done
            touch "$JOBS/now.$id"
            ids+=("$id")
        done
    done
    for id in "${ids[@]}"; do
        restarted_once "$id" "job $id is put back in the queue after attempt 0"
        rmdir "$JOBS/kills.$id" # each has taken place
    done
    for id in "${ids[@]:2}"; do said "$id" "killed-requeue was killed before it had answered"; done
    cluster plugin "$PLUGIN"
}

# ---- what an ended attempt has left ----

@test "who still asks for the end of an attempt's step does not end that of the next attempt" {
    cat >"$JOBS/steps.sh" <<'END'
#!/bin/bash
export attempt=${SLURM_RESTART_COUNT:-0}
srun "$@" bash -c 'echo "attempt $attempt step $SLURM_STEP_ID"
    [ $attempt != 1 ] || until [ -e asked ]; do sleep 0.1; done'
srun bash -c 'echo "attempt $attempt next $SLURM_STEP_ID"; [ $attempt = 3 ] || exit 75'
END
    id=$(job_submit --muster -N2 -n4 --cpus-per-task=2 --exclusive steps.sh)
    wait_for 60 said "$id" "attempt 1 step 1"
    # As srun, its child, Slurm's PMIx server and a slurmstepd do: by the IDs of job and step.
    cluster run --user root scancel --signal=KILL "$id.0" || :
    touch "$JOBS/asked"
    job_wait "$id" 90 COMPLETED FAILED
    cat "$(job_output "$id")"
    [ "$(job_state "$id") $(job_restarts "$id")" = "COMPLETED 3" ]
    sort -u "$(job_output "$id")" | grep '^attempt' | diff - <(printf '%s\n' \
        "attempt 0 next 1" "attempt 0 step 0" "attempt 1 next 2" "attempt 1 step 1" \
        "attempt 2 next 1" "attempt 2 step 0" "attempt 3 next 2" "attempt 3 step 1")
    ! said "$id" warning || false
    # A step that leaves the plugin alone keeps the ID that Slurm gives it.
    alone=$(job_submit --muster -N2 -n2 steps.sh --no-muster)
    job_wait "$alone" 90 COMPLETED FAILED
    [ "$(sort -u "$(job_output "$alone")" | grep -c '^attempt . step 0$')" -eq 4 ]
}

# ---- the breaker ----

@test "a program that dies at each start comes back twice, and then its job ends with one line" {
    # The first rank that dies is on another node than the next.
    id=$(job --comment="mine, and more" -N4 -n4 \
        '[ $((RANK % 2)) = 0 ] && sleep 1000; kill -SEGV $$')
    # A loop of another kind: asked for, and not counted.
    asked=$(job --exclusive=user -N1 -n1 '[ $MUSTER_ATTEMPT = 4 ] || exit 75')
    job_wait "$id" 120 FAILED
    cat "$(job_output "$id")"
    [ "$(job_restarts "$id")" = 2 ]
    words="the last 3 attempts of job $id failed by themselves within 10 minutes each and showed no progress"
    [ "$(grep -c "$words" "$(job_output "$id")")" = 1 ]
    vain="muster: attempts in vain: 3 up to 2"
    [[ $(comment "$id") = "mine, and more; $vain; muster: attempt 2 step 0 ended for good "* ]]
    job_wait "$asked" 90 COMPLETED
    [ "$(job_restarts "$asked")" = 4 ]
}

# lose_script ID ATTEMPT: removes the job's script as slurmd may, when it is about to begin.
lose_script() {
    local begins=$JOBS/begins.$1.$2
    wait_for 60 test -e "$begins"
    rm "$(cluster status dir)"/spool/n?/job"$(printf %05d "$1")"/slurm_script
    touch "$begins.now"
}

@test "a job whose script slurmd removed before it began comes back, twice in a row at most" {
    local words="muster: slurmd has removed the job's script before it began"
    once=$(job --export=ALL,LOSE=1 -N1 -n1 'echo "attempt $MUSTER_ATTEMPT"')
    always=$(job --export=ALL,LOSE=9 -N1 -n2 'echo "attempt $MUSTER_ATTEMPT"')
    ran=$(job_submit --muster -N1 --wrap 'exit 2') # the status of a lost script
    lose_script "$once" 0
    for attempt in 0 1 2; do lose_script "$always" $attempt; done
    restarted_once "$once" "$words"
    said "$once" "muster-requeue: job $once is put back in the queue after attempt 0"
    said "$once" "^attempt 1"
    job_wait "$always" 120 FAILED
    cat "$(job_output "$always")"
    [ "$(job_restarts "$always")" = 2 ]
    [ "$(grep -c "$words" "$(job_output "$always")")" = 3 ]
    said "$always" "the last 3 attempts of job $always failed by themselves"
    ! said "$always" "srun-missing\|^attempt" || false
    job_wait "$ran" 60 FAILED
    [ "$(job_restarts "$ran")" = 0 ]
}

@test "progress keeps a job coming back: a file that it names, and muster_progress() on another node" {
    # progress ATTEMPT…: rank 0 makes progress in these attempts, says so, and waits; the other is
    # killed meanwhile.
    cat >"$JOBS/progress.c" <<'END'
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	struct muster *muster;
	if (muster_open(&muster, 0))
		return 1;
	for (int i = 1; i < argc && muster_rank(muster) == 0; i++)
		if (strcmp(argv[i], getenv("MUSTER_ATTEMPT")) == 0)
			muster_progress();
	if (muster_fence(muster, 0))
		return 1;
	if (muster_rank(muster))
		abort();
	pause();
}
END
    # shellcheck disable=SC2046
    PKG_CONFIG_PATH=$MUSTER_PREFIX/lib/pkgconfig cc "$JOBS/progress.c" \
        $(PKG_CONFIG_PATH=$MUSTER_PREFIX/lib/pkgconfig pkg-config \
        --cflags --libs muster) -Wl,-rpath,"$MUSTER_PREFIX/lib" -o "$JOBS/progress"
    says=$(job -N2 -n2 '[ $MUSTER_ATTEMPT = 5 ] || exec ./progress 2')
    names=$(MUSTER_PROGRESS=saved job -N2 -n2 \
        '[ $MUSTER_ATTEMPT != 4 ] || exit 0
        [ $RANK = 1 ] || exec sleep 1000; touch saved; kill -9 $$')
    job_wait "$says" 150 COMPLETED FAILED
    cat "$(job_output "$says")"
    [ "$(job_state "$says") $(job_restarts "$says")" = "COMPLETED 5" ]
    job_wait "$names" 60 COMPLETED FAILED
    [ "$(job_state "$names") $(job_restarts "$names")" = "COMPLETED 4" ]
}

@test "an attempt that ran longer than breaker= minutes was not in vain, and breaker=off counts nothing" {
    cluster plugin "$PLUGIN" breaker=1
    long=$(job -N1 -n1 \
        '[ $MUSTER_ATTEMPT != 3 ] || exit 0; [ $MUSTER_ATTEMPT != 2 ] || sleep 65; kill -9 $$')
    job_wait "$long" 180 COMPLETED FAILED
    cat "$(job_output "$long")"
    cluster plugin "$PLUGIN" breaker=off
    uncounted=$(job -N1 -n1 '[ $MUSTER_ATTEMPT = 4 ] || kill -9 $$')
    job_wait "$uncounted" 90 COMPLETED FAILED
    cluster plugin "$PLUGIN"
    [ "$(job_state "$long") $(job_restarts "$long")" = "COMPLETED 3" ]
    [[ $(comment "$long") = "muster: attempts in vain: 2 up to 1"* ]]
    [ "$(job_state "$uncounted") $(job_restarts "$uncounted")" = "COMPLETED 4" ]
}

@test "where the comment can't be written the job comes back, with a line; a long comment of the user's stays whole" {
    printf '#include <errno.h>\nint slurm_update_job(void *job) { errno = 2002; return -1; }\n' \
        >"$JOBS/refuse.c"
    cc -shared -fPIC "$JOBS/refuse.c" -o "$JOBS/refuse.so"
    printf '#!/bin/sh\nLD_PRELOAD=%s exec %s "$@"\n' "$JOBS/refuse.so" "$REQUEUE" >"$JOBS/refused"
    chmod 755 "$JOBS/refused"
    dies='[ $MUSTER_ATTEMPT != 0 ] || { echo ready; until [ -e now ]; do sleep 0.1; done; kill -SEGV $$; }'
    id=$(job -N1 -n1 "$dies")
    wait_for 30 said "$id" ready
    long=$(head -c 900 /dev/zero | tr '\0' x) # Slurm takes 1,024 bytes
    cluster run scontrol update job="$id" comment="$long"
    touch "$JOBS/now"
    restarted_once "$id" "job $id is put back"
    [[ $(comment "$id") = "$long; muster: attempts in vain: 1 up to 0"* ]]
    cluster plugin "$PLUGIN" "requeue=$JOBS/refused"
    refused=$(job -N1 -n1 "$dies")
    restarted_once "$refused" \
        "couldn't write the comment of job $refused: .*; nothing bounds how often it comes back"
    cluster plugin "$PLUGIN"
    said "$refused" "job $refused is put back in the queue after attempt 0"
}

# ---- steps that are not the training ----

# Whether the job runs its first attempt and nobody has noted an end.
untouched() { job_runs_attempt "$1" 0 && [ "$(comment "$1")" = "${2-}" ]; }

@test "a monitor stopped after the training brings no job back, and the evaluation after it runs" {
    # monitored.sh OPTIONS END: a training beside a monitor, which is stopped after it; then an
    # evaluation that ends so.
    cat >"$JOBS/monitored.sh" <<'END'
#!/bin/bash
srun $1 -N1 -n1 sleep 1000 &
monitor=$!
srun --exact -N2 -n2 bash -c 'sleep 1; echo trained'
kill $monitor
srun --exact -N1 -n1 bash -c "sleep 3; $2" # longer than a requeue takes to be asked for
echo "evaluated with $?"
END
    chmod 755 "$JOBS/monitored.sh"
    local -A id=()
    id[overlap]=$(job_submit --muster -N2 --ntasks-per-node=2 monitored.sh --overlap 'exit 0')
    id[exact]=$(job_submit --muster -N2 --ntasks-per-node=2 monitored.sh --exact 'exit 0')
    id[killed]=$(job_submit --muster -N2 --ntasks-per-node=2 monitored.sh --overlap 'kill -9 $$')
    for kind in overlap exact killed; do
        job_wait "${id[$kind]}" 60 COMPLETED FAILED
        cat "$(job_output "${id[$kind]}")"
        [ "$(grep -c ^trained "$(job_output "${id[$kind]}")")" = 2 ]
        [ "$(job_state "${id[$kind]}") $(job_restarts "${id[$kind]}") $(comment "${id[$kind]}")" \
            = "COMPLETED 0 " ]
        said "${id[$kind]}" "^evaluated with $([ $kind = killed ] && echo 137 || echo 0)"
    done
}

@test "a shell beside the training decides nothing, however it ends; a word of the program's own makes no shell of it" {
    id=$(job -N2 -n2 'echo ready; sleep 1000')
    wait_for 30 said "$id" ready
    for options in "--overlap -N1 -n1" "--overlap -N2 -n2" "--overlap --pty -N1 -n1"; do
        for end in 'kill -INT $$' 'kill -9 $$' 'exit 1' 'exit 75'; do
            # shellcheck disable=SC2086
            run cluster run timeout $HANG srun --muster --jobid="$id" $options bash -c "$end"
            echo "$options, $end: $status $output"
            [ "$status" -ne 0 ]
            untouched "$id"
        done
    done
    job_end "$id"
    cat >"$JOBS/words.sh" <<'END'
#!/bin/bash
srun -N2 -n2 bash -c '[ $MUSTER_ATTEMPT != 0 ] || kill -9 $$' program --overlap --pty
END
    id=$(job_submit --muster -N2 -n2 words.sh)
    restarted_once "$id" "put back in the queue after attempt 0"
}

@test "where all steps overlap, the one with the most tasks is the training" {
    cat >"$JOBS/overlap.sh" <<'END'
#!/bin/bash
srun --overlap -N2 -n2 sleep 1000 &
monitor=$!
sleep 2
srun --overlap -N2 -n4 bash -c "$1"
kill $monitor
sleep 5 # longer than a requeue takes to be asked for
END
    fails=$(job_submit --muster -N2 --ntasks-per-node=2 overlap.sh \
        '[ $MUSTER_ATTEMPT != 0 ] || { [ $RANK = 3 ] && kill -9 $$; sleep 1000; }')
    ends=$(job_submit --muster -N2 --ntasks-per-node=2 overlap.sh 'exit 0')
    restarted_once "$fails" "put back in the queue after attempt 0"
    job_wait "$ends" 60 COMPLETED FAILED
    cat "$(job_output "$ends")"
    [ "$(job_state "$ends") $(job_restarts "$ends") $(comment "$ends")" = "COMPLETED 0 " ]
}

@test "what runs alone after a larger step comes back when it is taken away, or asks" {
    cat >"$JOBS/after.sh" <<'END'
#!/bin/bash
srun -N2 -n2 true
srun -N1 -n1 bash -c "$1"
END
    taken=$(job_submit --muster -N2 -n2 after.sh \
        '[ $MUSTER_ATTEMPT = 0 ] || exit 0; echo ready; exec sleep 1000')
    wait_for 30 said "$taken" ready
    job_preempt "$taken" 0
    restarted_once "$taken" "put back in the queue after attempt 0"
    asks=$(job_submit --muster -N2 -n2 after.sh '[ $MUSTER_ATTEMPT = 0 ] || exit 0; exit 75')
    restarted_once "$asks" "put back in the queue after attempt 0"
}
