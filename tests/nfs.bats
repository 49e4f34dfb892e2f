#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Checkpoint directories on a file system that behaves as an NFS client does (tools/nfs_like.c), and
# on two clients of one server: saving, resuming, retention, pruning, pins, damage, several writers,
# storage that fails or stalls.

load small_run

setup_file() {
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" && train whole >whole.out 2>&1
}

setup() {
    tools=$MUSTER_BUILD/tests/tools
    [ -x "$tools/nfs_like" ] || skip "this build has no libfuse3: apt-get install libfuse3-dev"
    [ -w /dev/fuse ] || skip "no /dev/fuse that can be opened here"
    export MUSTER_CKPTD_PROGRAM=$MUSTER_BUILD/muster-ckptd
    cd "$BATS_FILE_TMPDIR" || return
    rm -rf --one-file-system server ./? client.err
    mkdir server a b
    SERVERS=()
    no_faults
    client a
}

teardown() {
    no_faults
    local place
    # What holds something open there may hold it for ever.
    # shellcheck disable=SC2046
    kill $(running "${SERVERS[@]}") 2>/dev/null || :
    for place in ?; do
        ! mountpoint -q "$place" || umount -l "$place" || fusermount3 -uz "$place"
    done
    [ ${#SERVERS[@]} -eq 0 ] || wait "${SERVERS[@]}" || :
}

# client FOLDER [nolocks | clock=SECONDS]: shows what is on the server in FOLDER, as another node
# does in another one, with the faults of the file FAULTS.
client() {
    local pid
    "$tools/nfs_like" server "$1" "${FAULTS-faults}" ${2:+"$2"} 2>>client.err 3>&- &
    pid=$!
    until mountpoint -q "$1"; do
        kill -0 $pid 2>/dev/null || {
            cat client.err && skip "file systems in user space can't be mounted here"
        }
        sleep 0.01
    done
    SERVERS+=("$pid")
}

# quiet FILE: nothing in it is a warning or an error.
quiet() { grep -i "warning\|error\|couldn't" "$1" && return 1 || :; }

# fault LINE…: calls of all clients fail so from now on.
fault() { printf '%s\n' "$@" >faults.new && mv faults.new faults; }
no_faults() { : >faults; }

# holds DIR STEP…: the server has these checkpoints in DIR, whole, and nothing is left of others.
holds() {
    local dir=server/$1
    shift
    [ "$(saved_steps "$dir" | tr '\n' ' ')" = "$(printf '%s ' "$@")" ] || {
        ls -la "$dir"; return 1
    }
    [ "$(ls -A "$dir" | grep '^\.')" = .owner.lock ] || { ls -la "$dir"; return 1; }
    muster-ckpt verify --deep "$dir"
}

@test "it behaves as an NFS client does" {
    client b
    python3 - <<'END'
import errno, fcntl, os, time

def fails(error, call, *args):
    try:
        call(*args)
    except OSError as e:
        assert e.errno == error, e
    else:
        assert False, (call, args)

def write(path, text):
    with open(path, "w") as file:
        file.write(text)

# A file that is unlinked or renamed over while it is open stays under another name, and so does
# its folder.
for gone in (os.unlink,
             lambda path: (write("a/d/new", ""), os.rename("a/d/new", path), os.unlink(path))):
    os.mkdir("a/d")
    write("a/d/x", "text")
    file = open("a/d/x")
    gone("a/d/x")
    silly, = os.listdir("a/d")
    assert silly.startswith(".nfs") and os.listdir("server/d") == [silly]
    fails(errno.EBUSY, os.unlink, "a/d/" + silly)
    fails(errno.ENOTEMPTY, os.rmdir, "a/d")
    assert file.read() == "text"
    file.close()
    while os.listdir("server/d"):
        time.sleep(0.01)
    os.rmdir("a/d")
# What another node removes is stale here, and what it changes is seen when it is opened.
write("a/f", "old")
file = open("b/f")
os.unlink("a/f")
fails(errno.ESTALE, file.read)
fails(errno.ENOENT, open, "b/f")
write("a/f", "new one")
assert not os.path.exists("b/f")
write("b/other", "")
assert os.stat("b/f").st_size == 7
write("a/f", "more than that")
assert os.stat("b/f").st_size == 7
assert open("b/f").read() == "more than that" and os.stat("b/f").st_size == 14
# Locks of fcntl are the server's; there are no others.
one, two = open("a/f", "r+"), open("b/f", "r+")
fails(errno.ENOLCK, fcntl.flock, one, fcntl.LOCK_EX)
fcntl.lockf(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
fails(errno.EAGAIN, fcntl.lockf, two, fcntl.LOCK_EX | fcntl.LOCK_NB)
# Who removes while he lists misses some.
os.mkdir("a/many")
for i in range(300):
    write("a/many/%d" % i, "")
with os.scandir("a/many") as entries:
    for entry in entries:
        os.unlink(entry.path)
assert 0 < len(os.listdir("a/many")) < 300
write("faults", "write EDQUOT\n")
fails(errno.EDQUOT, write, "a/g", "text")
END
}

# stopped FOLDER OPTION…: a training that is told to stop after some saves, and does; `stop` is its
# last step.
stopped() {
    local pid
    REPLACE=exec slowly train "$@" >first.out 2>&1 3>&- &
    pid=$!
    wait_step "$1" 50
    kill $pid
    wait $pid || [ $? -eq 75 ]
    stop=$(saved_steps "$1" | tail -n 1)
}

@test "a training saves, removes what it need not keep, is killed, and goes on on another node" {
    client b
    REPLACE=exec slowly train a/run --keep-last 2 >first.out 2>&1 3>&- &
    local pid=$!
    wait_step server/run 30
    muster-ckpt ls b/run # what this node has seen is old when it goes on
    wait_step server/run 50
    kill -9 $pid
    wait $pid || :
    train b/run --keep-last 2 >second.out 2>&1
    quiet second.out
    same_as_whole b/run
    holds run 80 100
}

@test "prune removes all that is not kept, and pins hold" {
    train a/run --keep-last 0 --ckpt-every 10 --shard-size 2KiB >out 2>&1
    quiet out
    [ "$(find server/run/step-00000010 -type f | wc -l)" -gt 40 ]
    muster-ckpt pin a/run 30
    muster-ckpt prune a/run --keep-last 2
    holds run 30 90 100
    muster-ckpt unpin a/run 30
    muster-ckpt prune a/run --keep-last 1
    holds run 100
}

@test "without locks too, and what is open goes once it is closed" {
    client b nolocks
    stopped b/run --keep-last 0
    # A process that has a file open, which nobody can know.
    exec 5<b/run/step-00000020/model-00001-of-00001.safetensors
    muster-ckpt prune b/run --keep-last 1
    compgen -G 'server/run/.removing-*/.nfs*'
    exec 5<&-
    [ "$(saved_steps server/run)" = "$stop" ]
    train b/run --keep-last 1
    same_as_whole b/run
    holds run 100
}

@test "a damaged newest checkpoint is set aside, and the run ends as if nothing had been" {
    stopped a/run
    printf x | dd of="server/run/step-$(printf %08d "$stop")/model-00001-of-00001.safetensors" \
        bs=1 seek=5000 conv=notrunc status=none
    client b
    train b/run >out 2>&1
    grep "DAMAGED" out
    same_as_whole b/run
    [ -d "server/run/step-$(printf %08d "$stop").damaged-1" ]
    muster-ckpt prune b/run --keep-last 1
    [ "$(saved_steps server/run)" = 100 ]
}

# race FOLDER…: a job of its own claims `run` in each at the same moment; the number of those that
# got it.
race() {
    local at n=0
    rm -f go won-*
    mkfifo go
    for at; do
        "$tools/ckpt_writer" race "$at/run" <go >"won-$at" 2>&1 3>&- &
        RACERS+=($!)
    done
    exec 9>go
    for at; do wait_log "won-$at" "^won\|^ckpt_writer"; done
    cat won-* >&2
    # shellcheck disable=SC2126 # grep -c counts for each file
    grep -hx won won-* | wc -l
    exec 9>&-
    wait "${RACERS[@]}" || :
}

@test "of two jobs that start at the same moment on two nodes one gets the directory, with locks and without" {
    local round RACERS=()
    client b
    for round in 1 2 3 4 5 6 7 8; do [ "$(race a b)" -eq 1 ]; done
    mkdir c d
    client c nolocks
    client d nolocks
    for round in 1 2 3; do [ "$(race c d)" -eq 1 ]; done
    # One that comes later finds it taken, though its node has looked for the owner before.
    rm -f server/run/owner.json
    run muster-ckpt history d/run
    mkfifo stay
    "$tools/ckpt_writer" race c/run <stay >first 2>&1 3>&- &
    exec 8>stay
    wait_log first won
    fails 2 "is in use by" "$tools/ckpt_writer" race d/run </dev/null
    exec 8>&-
    wait $!
}

# Ranks 0 and 1 on one node, 2 and 3 on the other one.
train_on_two() {
    local n
    for n in a b; do
        mkdir -p node-$n && ln -sfn ../tokens.u16 node-$n/tokens.u16 &&
            ln -sfn ../meet node-$n/meet && ln -sfn ../$n node-$n/shared
    done
    eval "plain_$(declare -f train)"
    # shellcheck disable=SC2154
    train() { cd "node-$([ "$rank" -lt 2 ] && echo a || echo b)" && plain_train "$@"; }
    export PER_NODE=2 MUSTER_IFNAME=lo
    client b
}

@test "writers on two nodes save together, are killed, and go on" {
    local writers run
    train_on_two
    for writers in node all; do
        run=run-$writers
        slowly start_world 4 shared/$run --ckpt-writers $writers --keep-last 2
        wait_step server/$run 50
        kill -9 "${PIDS[@]}"
        end_world >out || :
        train_world 4 shared/$run --ckpt-writers $writers --keep-last 2 >out
        quiet out
        diff <(muster-curve whole) <(muster-curve server/$run)
        holds $run 80 100
    done
}

# The checks of everything that works in a checkpoint directory, each in a folder of its own on it.
@test "the directory's own tests pass on it, with locks and without" {
    local name place log bad=''
    local -A pids
    client b nolocks
    cd "$MUSTER_BUILD" || return
    # At the same time: without locks they mostly wait.
    for name in attempts ckpt ckpt_dir ckpt_part ckpt_save ckptd ckptd_writers history metrics pin \
        removable shard_write; do
        for place in a b; do
            # Without locks nothing tells that a checkpoint is being read.
            [ $name$place != removableb ] || continue
            log="$BATS_TEST_TMPDIR/test_$name in $place"
            TMPDIR=$BATS_FILE_TMPDIR/$place "tests/unit/test_$name" >"$log" 2>&1 3>&- &
            pids[$log]=$!
        done
    done
    for log in "${!pids[@]}"; do
        wait "${pids[$log]}" || { bad=1 && tail -v -n +1 "$log"; }
    done
    [ -z "$bad" ]
}

@test "whatever call fails, a save says so and leaves the checkpoint before, and the next one goes well" {
    local call error status tried=0 failed=0
    "$tools/ckpt_writer" save a/run 1 2
    cp -a server/run before
    for call in lookup getattr mkdir create open write fsync flush rename unlink rmdir opendir \
        readdir fsyncdir all; do
        # The last as of a server that does it, and whose answer is lost.
        for error in EIO ENOSPC EDQUOT EROFS ESTALE "ETIMEDOUT done"; do
            rm -rf a/run
            cp -a before a/run
            fault "$call $error"
            status=0
            "$tools/ckpt_writer" save a/run 3 3 2>out || status=$?
            no_faults
            cat out
            [ $status -eq 0 ] || [ $status -eq 69 ]
            "$tools/ckpt_writer" resume a/run >found
            [ "$(head -n 1 found)" = $((status ? 2 : 3)) ]
            holds run "$(head -n 1 found)" $(($(head -n 1 found) + 1))
            tried=$((tried + 1))
            [ $status -eq 0 ] || failed=$((failed + 1))
        done
    done
    echo "# failed $tried calls: $failed saves were given up" >&3
    [ $failed -gt 40 ]
}

# Only a save makes folders in a directory that is there.
@test "storage that takes no save lets the training go on to its end, which says so, and the next attempt does it again" {
    local error
    for error in EIO ENOSPC EDQUOT EROFS ESTALE; do
        rm -rf a/run
        mkdir a/run
        fault "mkdir $error"
        run train a/run
        echo "$output"
        [ "$status" -eq 69 ]
        grep "couldn't save step 20" <<<"$output"
        grep "couldn't save step 100" <<<"$output"
        no_faults
        train a/run >out 2>&1
        quiet out
        same_as_whole a/run
    done
}

@test "a server that stalls in mid-save costs time only" {
    mkdir -p a/run/standing # saves alone make folders from now on
    fault "mkdir stall"
    REPLACE=exec train a/run --keep-last 2 >out 2>&1 3>&- &
    local pid=$!
    wait_log client.err "mkdir stalls"
    no_faults
    wait $pid
    quiet out
    same_as_whole a/run
    holds run 80 100
}

# all STATUS COMMAND: for both of the directories below, at once, the command ends with that status.
all() {
    local clock pids=() status
    for clock in ahead behind; do
        "${@:2}" "b/$clock" >"$clock.out" 2>&1 3>&- &
        pids+=($!)
    done
    for clock in 0 1; do
        status=0
        wait "${pids[clock]}" || status=$?
        cat ahead.out behind.out
        [ $status -eq "$1" ] || return 1
    done
}

@test "where each node's clock sets the times of files, a living owner keeps its directory and a dead one does not" {
    [ "$(id -u)" = 0 ] || skip "only root makes a pid namespace"
    local pids=() clock
    mkdir d e
    client b clock=0
    client d clock=600
    client e clock=-600
    # In a pid namespace of its own, as on another node: nobody here knows whether it lives.
    export REPLACE="exec unshare --pid --fork --kill-child"
    train d/ahead --steps 1000000 --ckpt-every 1000000 >d.out 2>&1 3>&- &
    pids+=($!)
    train e/behind --steps 1000000 --ckpt-every 1000000 >e.out 2>&1 3>&- &
    pids+=($!)
    wait_step server/ahead 1
    wait_step server/behind 1
    unset REPLACE
    all 2 train
    grep "is in use by" ahead.out
    grep "is in use by" behind.out
    kill -0 "${pids[@]}"
    kill -9 "${pids[@]}"
    wait "${pids[@]}" || :
    all 0 train
    grep "watching for the next one" ahead.out
    grep "watching for the next one" behind.out
    same_as_whole b/ahead
    same_as_whole b/behind
}

@test "whether a directory is in use does not depend on the clock of its file server" {
    local clock pid
    mkdir d e
    for clock in d=600 e=-600; do
        client "${clock%=*}" "clock=${clock#*=}"
        REPLACE=exec slowly train "${clock%=*}/$clock" --keep-last 0 >out 2>&1 3>&- &
        pid=$!
        wait_step "server/$clock" 50
        kill -9 $pid
        wait $pid || :
        # A service may still write for it.
        fails 2 "is in use, or was a moment ago" muster-ckpt prune "${clock%=*}/$clock" \
            --keep-last 1
        [[ $(muster-ckpt history "${clock%=*}/$clock") = *running* ]]
        touch -d "$((${clock#*=} - 120)) seconds" "server/$clock/owner.json"
        [[ $(muster-ckpt history "${clock%=*}/$clock") != *running* ]]
        muster-ckpt prune "${clock%=*}/$clock" --keep-last 1
        [ "$(saved_steps "server/$clock" | wc -l)" -eq 1 ]
    done
}

@test "a node that is cut off in mid-save, and comes back when the run has gone on elsewhere, does no harm" {
    "$tools/ckpt_writer" save a/run 1 2
    fault "mkdir stall"
    "$tools/ckptd_writer" a/run 3 4 >told 2>&1 3>&- &
    local pid=$!
    wait_log client.err "mkdir stalls"
    FAULTS=none client b
    "$tools/ckpt_writer" resume b/run >resumed
    [ "$(head -n 1 resumed) $(tail -n 1 resumed)" = "2 step 3" ]
    no_faults
    ! wait $pid || { cat told && false; }
    grep "failed 3: .*another attempt owns" told
    holds run 2 3
}

@test "a server that gives no locks now has nothing removed" {
    mkdir -p a/run/standing
    fault "mkdir stall"
    REPLACE=exec train a/run --keep-last 1 >out 2>&1 3>&- &
    local pid=$!
    wait_log client.err "mkdir stalls"
    local service
    service=$(sed -n 's/.*the service is pid \([0-9]*\);.*/\1/p' out)
    fault "lock ETIMEDOUT"
    wait $pid
    # It looks for what may go once its last save is durable.
    while kill -0 "$service" 2>/dev/null; do sleep 0.02; done
    no_faults
    [ "$(saved_steps server/run | wc -l)" -eq 5 ]
    touch -d '2 minutes ago' server/run/owner.json # it could not be given back either
    muster-ckpt prune a/run --keep-last 1
    holds run 100
}

# passes COMMAND…: it ends with 69 and says why, or does its work all the same.
passes() {
    local began=$SECONDS
    run "$@"
    [ "$status" -eq 69 ] || [ "$status" -eq 0 ] || {
        cat faults && echo "$*: $status: $output" && return 1
    }
    [ "$status" -ne 69 ] || [ -n "$output" ] || { cat faults && echo "$*: not a word" && return 1; }
    [ "$status" -ne 69 ] || lost=$((lost + 1))
    echo "$(<faults): $*: $status after $((SECONDS - began)) s" >>told
}

@test "an error that may pass ends with 69, at the start and in every tool" {
    # Numbers by which file systems of clusters tell that a server is gone, and a process that it
    # lacks something.
    local errors=(ESHUTDOWN ENOTCONN ECOMM EREMOTEIO ESTALE EINTR ETIMEDOUT EHOSTDOWN EMFILE ENOMEM)
    local calls=(lookup getattr open read opendir readdir create write fsync rename setattr lock
        all) n error lost=0
    train a/run --ckpt-every 50 >out 2>&1
    for ((n = 0; n < ${#calls[@]}; n++)); do
        error=${errors[n % ${#errors[@]}]}
        fault "${calls[n]} $error"
        passes train a/run --rdzv-timeout 1
        passes muster-ckpt verify --deep a/run
        passes muster-ckpt ls a/run
        passes muster-ckpt show a/run 50
        passes muster-ckpt pin a/run 50
        passes muster-ckpt unpin a/run 50
        passes muster-ckpt prune a/run --keep-last 5
        passes muster-ckpt history a/run
        passes muster-ckpt export a/run "exported-$n" --step 50
        passes muster-curve a/run
    done
    no_faults
    cat told
    echo "# $lost ended with 69" >&3
    [ $lost -gt 60 ]
    holds run 50 100
    same_as_whole a/run
}

@test "a last save that fails ends a program of libmuster as it ends muster-train" {
    local error
    cc -o ring -I"$MUSTER_TOP/lib" "$MUSTER_TOP/slurm-examples/ring.c" \
        -L"$MUSTER_BUILD/.libs" -lmuster -Wl,-rpath,"$MUSTER_BUILD/.libs"
    mkdir a/run a/ring
    for error in ENOSPC EREMOTEIO EACCES; do
        fault "mkdir $error"
        run train a/run
        [ "$status" -eq 69 ]
        run ./ring 10 a/ring
        echo "$output"
        [ "$status" -eq 69 ]
    done
    no_faults
    ./ring 10 a/ring
}
