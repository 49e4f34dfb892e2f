#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The wheel of the Python package, installed by a user without root, on a cluster whose
# administrator has not installed Muster.
# bats file_tags=long

load ../lib/has_torch
load helpers
load training

setup_file() {
    has_torch && [ "$(id -u)" = 0 ] || return 0
    export MUSTER_CLUSTER_GRACE=30 MUSTER_CLUSTER_KILLWAIT=5 why=''
    export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
    cluster_begin 2
    wheel || { [ -n "$why" ] && return 0; } || return
    # As a user does.
    cluster run /usr/bin/python3 -m venv --system-site-packages "$JOBS/venv" &&
        cluster run "$JOBS/venv/bin/pip" install -q --no-index "$JOBS"/*.whl || return
    cp "$MUSTER_TOP/tests/python/program.py" "$JOBS/"
    cat >"$JOBS/job.sh" <<'END'
#!/bin/bash
# job.sh NAME OPTION…
. venv/bin/activate
mkdir -p "$1.seen"
srun --mpi=pmix --kill-on-bad-exit=1 python program.py --run "$1" --seen "$1.seen" "${@:2}" &
wait $!
exec muster-requeue --status $?
END
    chmod a+rx "$JOBS/job.sh"
}

# wheel: builds it from the source distribution, into $JOBS. Says why not in `why`.
wheel() {
    local source=$BATS_FILE_TMPDIR/source venv=$BATS_FILE_TMPDIR/venv
    python3 -m venv "$venv" && timeout $((5 * HANG)) "$venv/bin/pip" install -q --retries 1 build ||
        { why="couldn't get build from PyPI" && return 1; }
    git clone -q "$MUSTER_TOP" "$source" &&
        "$venv/bin/python" -m build --outdir "$JOBS" "$source" >"$BATS_FILE_TMPDIR/log" 2>&1 || {
        tail -n 30 "$BATS_FILE_TMPDIR/log"
        return 1
    }
    chmod a+r "$JOBS"/*.whl
}

setup() {
    has_torch || skip "no PyTorch: apt-get install python3-torch"
    cluster_require
    [ -z "$why" ] || skip "$why"
    cd "$JOBS" || return
}

# python NAME LAUNCHER…: a training of one epoch.
python() {
    cluster run timeout "$HANG" "${@:2}" "$JOBS/venv/bin/python" program.py --run "$1" --epochs 1
}

@test "the programs are those of the wheel, and need nothing that is not everywhere" {
    run cluster run "$JOBS/venv/bin/python" -m muster
    echo "$output"
    [ "$status" -eq 0 ]
    [[ ${lines[0]} = "libmuster: "*"$JOBS/venv/"*"/muster/native/lib/libmuster.so.0)" ]]
    for program in muster-ckpt muster-curve muster-rdzv muster-report muster-requeue \
        muster-where; do
        run cluster run "$JOBS/venv/bin/$program" --help
        [ "$status" -eq 0 ]
        [[ $output = *"$program "* ]]
    done
    # Each library that they load is the wheel's own or glibc's.
    native=$(echo "$JOBS"/venv/lib/python3*/site-packages/muster/native)
    for file in "$native"/bin/* "$native"/lib/libmuster.so.0; do
        run ldd "$file"
        echo "$output"
        [ "$status" -eq 0 ]
        ! grep -vE 'linux-vdso|ld-linux|/muster/native/|/lib(c|m)\.so\.6 ' <<<"$output" || false
    done
    [ "$(ls "$JOBS"/*.whl)" = "$(ls "$JOBS"/*-py3-none-manylinux_2_*.whl)" ]
}

@test "alone, by srun --mpi=pmix, by mpirun; and by an srun that gives the ranks no way to meet" {
    run python alone
    echo "$output"
    [ "$status" -eq 0 ]
    run python pmix srun --mpi=pmix -N2 --ntasks-per-node=2
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^rank [0-3] is done after step 16$' <<<"$output")" -eq 4 ]
    if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
        # from a machine that is no node of the job
        run python mpirun salloc -N2 -n4 mpirun -n 4
        echo "$output"
        [ "$status" -eq 0 ]
        [ "$(grep -c '^rank [0-3] is done after step 16$' <<<"$output")" -eq 4 ]
    fi
    run python none srun --mpi=none -N2 -n2
    echo "$output"
    [ "$status" -ne 0 ]
    [[ $output = *"--mpi=pmix"* ]]
    run cluster run "$JOBS/venv/bin/muster-ckpt" verify --deep pmix
    [ "$status" -eq 0 ]
}

@test "preempted, and a rank killed, it comes back without a plugin; cancelled, it does not" {
    options=(--samples 384 --batch 24 --epochs 2 --workers 2 --every 7 --sum --pause 0.4)
    job=$(job_submit -N2 --ntasks-per-node=2 --exclusive job.sh disturbed "${options[@]}")
    wait_for 120 train_has_step disturbed 3
    job_preempt "$job" 0
    job_wait_attempt "$job" 1 120
    wait_for 120 train_has_step disturbed 12
    read -r _ pid < <(train_rank "$job" 3 python)
    kill -KILL "$pid"
    job_wait_attempt "$job" 2 120
    job_wait "$job" 180 COMPLETED
    cat "$(job_output "$job")"
    [ "$(job_restarts "$job")" -eq 2 ]
    # each sample once, whichever attempt read it last
    awk 'FNR == 1 { rank++ } { for (i = 2; i <= NF; i++) of[rank, $1, i] = $i }
        END { for (key in of) seen[of[key]]++
            for (s = 0; s < 384; s++) if (seen[s] != 2) exit 1 }' "$JOBS"/disturbed.seen/*
    cancelled=$(job_submit -N2 --ntasks-per-node=2 --exclusive job.sh cancelled "${options[@]}")
    wait_for 120 train_has_step cancelled 3
    cluster run scancel "$cancelled"
    job_wait "$cancelled" 60 CANCELLED
    wait_for 60 all_idle # whatever could put it back has ended
    [ "$(job_state "$cancelled") $(job_field "$cancelled" Restarts)" = "CANCELLED 0" ]
}
