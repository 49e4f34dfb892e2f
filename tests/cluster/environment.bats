#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The variables of muster-environment(7): in every shape of step they are what world.py finds to be
# so, and where no task runs there are none.

load helpers

setup_file() {
    export MUSTER_CLUSTER_NODES_CPUS=8 MUSTER_CLUSTER_CONF='PrologFlags=Contain
LaunchParameters=use_interactive_step
InteractiveStepOptions="--interactive --preserve-env ./alone"'
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    cp "$MUSTER_TOP/tests/cluster/world.py" "$JOBS/"
    write_scripts
}

write_scripts() {
    # world FOLDER: a task whose variables are held against what is so.
    printf '#!/bin/sh\nexec /usr/bin/python3 world.py task "$1" %s\n' $((HANG / 2)) \
        >"$JOBS/world"
    # alone [FILE]: what is no task notes its variables, and waits until there is that file.
    printf '%s\n' '#!/bin/sh' 'env -0 >alone.env' \
        'until [ -e "${1-alone.env}" ]; do sleep 0.1; done' >"$JOBS/alone"
    # array.sh: a step of each job of an array.
    cat >"$JOBS/array.sh" <<'END2'
#!/bin/sh
folder=world-array-$SLURM_ARRAY_TASK_ID
mkdir -m 777 "$folder" && srun ./world "$folder"
END2
    # inner.sh FOLDER: the first task of a step starts a step of another shape.
    cat >"$JOBS/inner.sh" <<'END2'
#!/bin/sh
[ "$RANK" = 0 ] || exit 0
exec srun --overlap --nodes=3 --ntasks=5 --ntasks-per-node=2 --cpus-per-task=1 --gpus-per-task=0 \
    ./world "$1"
END2
    printf 'n3\nn1\nn3\nn2\nn3\n' >"$JOBS/hosts"
    chmod 755 "$JOBS"/{world,alone,array.sh,inner.sh}
}

# world TASKS COMMAND…: runs the command, in which @ means "./world FOLDER", and checks the world of
# that many tasks.
world() {
    local tasks=$1 folder words=()
    shift
    LAST_WORLD=$(mktemp -d -p "$JOBS" world-XXXXXX) && chmod 777 "$LAST_WORLD" || return 1
    folder=${LAST_WORLD##*/}
    echo "--- $*"
    for word; do
        case $word in
        srun) words+=("${BOUNDED[@]}" srun) ;;
        @) words+=(./world "$folder") ;;
        @*) words+=("./${word#@}" "$folder") ;;
        *) words+=("$word") ;;
        esac
    done
    run cluster run "${words[@]}"
    echo "$output"
    if [[ "$*" = *" : "* ]] && ended_by_hang "$status"; then
        # What counts is what its tasks have noted. A killed srun leaves its allocation.
        cluster run scancel --state=RUNNING --me
        status=0
    fi
    [ "$status" -eq 0 ] && python3 "$MUSTER_TOP/tests/cluster/world.py" check "$LAST_WORLD" "$tasks"
}

# The value of a variable in the tasks of the last world, each once.
values() {
    python3 -c 'import glob, json, sys
print(*sorted({str(json.load(open(path))["env"].get(sys.argv[2]))
              for path in glob.glob(sys.argv[1] + "/*")}))' \
        "$LAST_WORLD" "$1"
}

@test "one component: even, uneven, cyclic, plane, arbitrary" {
    world 8 srun --muster -N4 --ntasks-per-node=2 @
    world 7 srun --muster -N3 -n7 @
    world 7 srun --muster -N4 -n7 --distribution=cyclic @
    world 8 srun --muster -N3 -n8 --distribution=plane=3 @
    SLURM_HOSTFILE=hosts world 5 srun --muster -n5 --distribution=arbitrary @
    world 1 srun --muster -n1 @
}

@test "several components are one world, in whatever order their nodes are" {
    world 4 srun --muster -w n1 -n1 @ : -w n2,n3 -n3 @
    world 4 srun --muster -w n3 -n1 @ : -w n1,n2 -n3 @
    world 4 salloc -w n4 -n1 : -w n3 -n2 : -w n2 -n1 srun --muster --het-group=0-2 @
    world 3 salloc -w n4 -n1 : -w n3 -n2 : -w n2 -n1 srun --muster --het-group=1,2 @
    export USERS_NTASKS_PER_NODE=4
    world 4 salloc -w n1,n2 --ntasks-per-node=4 srun --muster -w n2 -n1 @ : -w n1 -n3 @
}

@test "a step smaller than its job is a world of its own" {
    world 1 salloc -N2 -n8 srun --muster -N1 -n1 @
    world 3 salloc -N3 -n9 srun --preserve-env --muster -N2 -n3 @
    USERS_NTASKS_PER_NODE=3 world 3 salloc -N3 --ntasks-per-node=3 -w n2,n3,n4 srun --muster -N2 \
        --relative=1 -n3 @
}

@test "shapes that nobody has chosen" {
    for try in 1 2 3 4; do
        nodes=$((1 + RANDOM % 4)) tasks=$((nodes + RANDOM % 8))
        distributions=(block cyclic plane=2 block:cyclic arbitrary)
        distribution=${distributions[RANDOM % 5]}
        # Each node at least once, and then any.
        for ((i = 0; i < tasks; i++)); do
            echo "n$((1 + (i < nodes ? i : RANDOM % nodes)))"
        done | shuf >"$JOBS/shuffled"
        shape=(-N"$nodes")
        # The file says how many nodes there are: from 23.11 on srun won't be told it besides.
        [ "$distribution" != arbitrary ] || { export SLURM_HOSTFILE=shuffled && shape=(); }
        world $tasks srun --muster "${shape[@]}" -n$tasks --distribution="$distribution" @
        unset SLURM_HOSTFILE
    done
}

@test "a task with one GPU, one with two" {
    world 4 srun --muster -N2 --ntasks-per-node=2 --gpus-per-task=1 @
    [ "$(values LOCAL_RANK) $(values JAX_LOCAL_DEVICE_IDS)" = "0 0" ]
    world 4 srun --muster -N2 --ntasks-per-node=2 --gpus-per-node=2 @
    [ "$(values LOCAL_RANK) $(values JAX_LOCAL_DEVICE_IDS)" = "0 1 None" ]
}

@test "what an outer step, shell or launcher left behind does not count" {
    export RANK=77 WORLD_SIZE=99 LOCAL_RANK=9 LOCAL_WORLD_SIZE=9 NODE_RANK=9 GROUP_RANK=9 \
        GROUP_WORLD_SIZE=9 ROLE_RANK=9 \
        ROLE_WORLD_SIZE=9 ROLE_NAME=trainer MUSTER_ATTEMPT=9 MUSTER_LOCAL_RANK=9
    world 4 srun --muster -N4 -n4 @
    [ "$(values ROLE_NAME) $(values MUSTER_ATTEMPT)" = "default 0" ]
    # The outer step has one GPU, two CPUs and two tasks a node.
    USERS_NTASKS_PER_NODE=2 world 5 srun --muster -N3 --ntasks-per-node=2 -c2 --gpus-per-task=1 \
        @inner.sh
    [ "$(values OMP_NUM_THREADS)" = 1 ]
}

@test "the user's own values win, each alone" {
    for own in MASTER_ADDR=n1 MASTER_PORT=9999 JAX_COORDINATOR_ADDRESS=n1:9998 \
        JAX_COORDINATOR_PORT=9998 \
        JAX_LOCAL_DEVICE_IDS=1 OMP_NUM_THREADS=5 SLURM_NTASKS_PER_NODE=2; do
        run cluster run timeout -k 10 "$HANG" srun --muster -N2 --ntasks-per-node=2 -c2 \
            --gpus-per-task=1 --export="ALL,$own" \
            bash -c \
            'echo "task: $MASTER_ADDR $MASTER_PORT $JAX_COORDINATOR_ADDRESS $JAX_COORDINATOR_PORT" \
                "$JAX_LOCAL_DEVICE_IDS $OMP_NUM_THREADS $SLURM_NTASKS_PER_NODE";
            env | grep "^'"${own%%=*}"'="'
        echo "$output"
        [ "$(grep -c "^$own\$" <<<"$output")" -eq 4 ]
        [ "$(grep '^task:' <<<"$output" | sort -u | wc -l)" -eq 1 ]
    done
}

@test "the jobs of an array meet each their own, at ports of their own" {
    id=$(job_submit --muster --array=1-3 -N2 --ntasks-per-node=2 -W -o array-%a.out array.sh)
    for k in 1 2 3; do
        cat "$JOBS/array-$k.out"
        python3 "$MUSTER_TOP/tests/cluster/world.py" check "$JOBS/world-array-$k" 4
    done
    run python3 -c 'import glob, json, sys
print(len({json.load(open(path))["env"]["MASTER_PORT"]
           for path in glob.glob(sys.argv[1] + "/world-array-*/*")}))' "$JOBS"
    [ "$output" = 3 ]
}

@test "MASTER_ADDR is the address by which Slurm reaches the node, not a name" {
    world 2 srun --muster -w n3,n4 -n2 @
    [ "$(values MASTER_ADDR)" \
        = "$(cluster run scontrol -o show node n3 | sed 's/.* NodeAddr=\([^ ]*\) .*/\1/')" ]
}

# The names of all variables in a file of "env -0", without those of Slurm and PMIx.
names() {
    tr '\0' '\n' <"$JOBS/$1" | sed -n 's/^\([A-Za-z_][A-Za-z_0-9]*\)=.*/\1/p' |
        grep -vE '^(SLURM|PMIX)' | sort -u
}

@test "the manual names every variable that is set, and no other" {
    noting='[ $SLURM_PROCID != 0 ] || env -0 >"$0"'
    # In a job that was there before: only then is it something to compare the step with.
    for own in with without; do
        option=--muster && [ $own = with ] || option=--no-muster
        cluster run timeout -k 10 "$HANG" salloc $option -N2 --ntasks-per-node=2 -c2 \
            --gpus-per-task=1 \
            srun --mpi=pmix sh -c "$noting" $own.env
    done
    # MUSTER itself is "0" in the one without.
    set_names=$({
        comm -23 <(names with.env) <(names without.env); echo MUSTER; echo SLURM_NTASKS_PER_NODE
    } | sort)
    sed -n '/^lB2 l2 l2 l\.$/,/^\.TE$/p' "$MUSTER_TOP/doc/muster-environment.7" | sed '1,2d; $d' |
        cut -f1 | tr -d ',' |
        tr ' ' '\n' | sort >"$BATS_TEST_TMPDIR/told"
    # It was given here as an option, so that Slurm sets it in both.
    diff <(echo "$set_names") "$BATS_TEST_TMPDIR/told"
}

# Whether a file of "env -0" has no variable of muster-environment(7) but MUSTER.
left_alone() {
    [ -s "$JOBS/$1" ]
    run comm -12 <(names "$1") <(grep -vx 'MUSTER\|SLURM.*' "$BATS_FILE_TMPDIR/told")
    echo "$output"
    [ -z "$output" ]
}

@test "a batch step, an interactive one and the extern step are left alone" {
    sed -n '/^lB2 l2 l2 l\.$/,/^\.TE$/p' "$MUSTER_TOP/doc/muster-environment.7" | sed '1,2d; $d' |
        cut -f1 | tr -d ',' |
        tr ' ' '\n' | sort >"$BATS_FILE_TMPDIR/told"
    cluster run timeout -k 10 "$HANG" salloc --muster -N2 -n4
    left_alone alone.env
    if tr '\0' '\n' <"$JOBS/alone.env" |
        grep -E '^(SLURM_MPI_TYPE=pmix|SLURM_KILL_BAD_EXIT=|PMIX_)'; then
        false
    fi
    rm "$JOBS/alone.env"
    id=$(job_submit --muster -N2 alone extern-seen)
    job_wait "$id" 30 RUNNING
    wait_for 10 extern_noted "$id"
    left_alone extern.env
    : >"$JOBS/extern-seen"
    job_wait "$id" 30 COMPLETED
    left_alone alone.env
}

# Notes the variables of the extern step of a job: one idle sleep of slurmstepd's, if it has a
# process at all.
extern_noted() {
    local parent pid
    for parent in $(cluster_pids -f "^slurmstepd: \[$1\.extern\]"); do
        { if pid=$(pgrep -P "$parent"); then cat "/proc/$pid/environ"; else echo "none=here"; fi } \
            >"$JOBS/extern.env"
        return
    done
    return 1
}
