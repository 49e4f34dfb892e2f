#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# How training saves: through a service that outlives it, from one rank or several, in one file or
# many. Whichever process is killed and whenever, the newest durable checkpoint is the last that was
# handed over whole, and the run ends with the undisturbed bits.

load small_run

setup_file() { small_run_begin; }

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# Every tensor of a checkpoint with the hash of its weights and moments, whatever files they are in.
state_of() {
    python3 - "$1" <<'END'
import hashlib, json, os, struct, sys
state = {}
for f in json.load(open(os.path.join(sys.argv[1], "manifest.json")))["files"]:
    if not f["name"].endswith(".safetensors"):
        continue
    b = open(os.path.join(sys.argv[1], f["name"]), "rb").read()
    n = 8 + struct.unpack("<Q", b[:8])[0]
    h = json.loads(b[8:n])
    slices = json.loads(h.get("__metadata__", {}).get("slices", "[]"))
    for name, t in h.items():
        if name == "__metadata__":
            continue
        at, end = (n + x for x in t["data_offsets"])
        if f["role"] == "model":
            assert name not in state, name
            state[name] = b[at:end]
            continue
        for tensor, first, count in slices:
            key = (tensor, name, first)
            assert key not in state, key
            state[key], at = b[at:at + 4 * count], at + 4 * count
        assert at == end
for key in sorted(state, key=str):
    print(key, hashlib.sha256(state[key]).hexdigest())
END
}

same_state_as_whole() {
    diff <(state_of whole/step-00000100) <(state_of "$1/step-00000100")
    diff <(muster-curve whole) <(muster-curve "$1")
}

# The pid of the service that a process has started.
service_of() { wait_for 10 pgrep -x muster-ckptd -P "$1"; }

wait_saved() { wait_for 10 [ -e "$1/$(printf step-%08d "$2")" ]; }

# For a test that slows the service's disk.
root_traces() { [ "$(id -u)" = 0 ] || skip "only root can trace the service"; }

# held COMMAND…: one rank alone, or rank 0 of those that it starts, does its first step, and no more
# until slow_disk has been called.
held() {
    rm -f slow-now
    STEPS_AFTER=$PWD/slow-now LD_PRELOAD=$MUSTER_BUILD/tests/tools/.libs/slow_steps.so "$@"
}

# slow_disk SECONDS PID…: each fsync of these processes takes longer from now on.
slow_disk() {
    local seconds=$1 pid
    shift
    for pid; do
        kill -STOP "$pid" # it does nothing before it is slow
        strace -f -p "$pid" -o /dev/null -e trace=fsync -e "inject=fsync:delay_enter=${seconds}s" \
            2>/dev/null 3>&- &
        wait_for 10 traced "$pid"
        kill -CONT "$pid"
    done
    touch slow-now
}

@test "one file or many, from one rank or all: the same state, and it is resumed by any world" {
    local writers n
    for writers in all node; do
        n=$([ $writers = all ] && echo 4 || echo 2)
        export PER_NODE=2 MUSTER_IFNAME=lo
        slowly start_world 4 "$writers" --ckpt-writers $writers --shard-size 50KiB --keep-last 0
        unset PER_NODE
        wait_step "$writers" 30
        kill "${PIDS[1]}"
        end_world || [ $? -eq 75 ]
        [ "${STATUSES[*]}" = "75 75 75 75" ]
        [ "$(grep -l 'checkpoint: the service is pid' rank*.out | wc -l)" -eq "$n" ]
        [ "$(find "$writers"/step-* -name 'model-*' | wc -l)" -gt 10 ]
        train_world 2 "$writers" --ckpt-writers all --shard-size 1MiB --keep-last 0
        same_state_as_whole "$writers"
        # The last one has the state of the undisturbed run in other files; one rank alone goes on
        # from an older one of them.
        rm -r "$writers/step-00000100"
        train "$writers"
        same_as_whole "$writers"
    done
}

@test "several writers of few tensors: no more of them write than there are tensors" {
    python3 - <<'END'
import struct
def npy(name, descr, shape, data):
    h = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)).encode()
    h += b" " * (63 - (10 + len(h)) % 64) + b"\n"
    open(name, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h + data)
npy("x.npy", "<f4", (64, 4), struct.pack("<256f", *(i % 7 - 3 for i in range(256))))
npy("y.npy", "<i4", (64,), struct.pack("<64i", *(i % 3 for i in range(64))))
END
    mlp() {
        ${REPLACE-} muster-train --model mlp --data x.npy --labels y.npy --hidden 8 --classes 3 \
            --global-batch 8 --microbatch 1 --threads 1 \
            --steps 20 --ckpt-every 5 --rdzv-timeout "$HANG" --collective-timeout "$HANG" \
            --ckpt-dir "$@"
    }
    mlp few-alone
    train() { mlp "$@"; }
    train_world 8 few --ckpt-writers all
    diff <(state_of few-alone/step-00000020) <(state_of few/step-00000020)
}

@test "the service is killed in mid-training: another takes over, no step is lost, saves go on" {
    local pid service
    REPLACE=exec slowly train orphaned --steps 400 >orphaned.out 2>&1 3>&- &
    pid=$!
    wait_step orphaned 50
    service=$(service_of $pid)
    kill -9 "$service"
    wait $pid
    cat orphaned.out
    grep -q 'took over.*training goes on' orphaned.out
    [ "$(muster-curve orphaned | wc -l)" -eq 400 ]
    [ "$(saved_steps orphaned | xargs)" = "360 380 400" ]
    [ "$(grep -c 'is durable' orphaned.out)" -ge 19 ]
    [ -z "$(find orphaned -name '.saving-*')" ]
}

is_gone() { ! kill -0 "$1" 2>/dev/null; }

# Kills all of PIDS once every rank's log has the words; then their services finish what they have,
# and are gone.
kill_at_words() {
    local services=() pid rank
    for pid in "${PIDS[@]}"; do services+=("$(service_of "$pid")"); done
    slow_disk 0.1 "${services[@]}"
    for rank in "${!PIDS[@]}"; do wait_log "rank$rank.out" "$1"; done
    kill -9 "${PIDS[@]}"
    end_world >/dev/null || :
    for pid in "${services[@]}"; do wait_for 20 is_gone "$pid"; done
}

@test "the trainer is killed right after the hand-over: that step is durable" {
    root_traces
    local n
    for n in 1 4; do
        held slowly start_world $n "handed$n" --ckpt-writers all --ckpt-every 40 --log-level debug
        kill_at_words 'step 40 is handed over'
        cat rank*.out
        [ "$(saved_steps "handed$n" | tail -n 1)" -ge 40 ]
        [ -z "$(find "handed$n" -name '.saving-step-00000040*')" ]
        train "handed$n"
        # Where the kill was late, the world of four has saved the end.
        same_state_as_whole "handed$n"
    done
}

# Steps long enough that what comes from outside finds the one it is meant for.
large() {
    local dir=$1
    shift
    ${REPLACE-} taskset -c 0 muster-train --data tokens.u16 --ckpt-dir "$dir" --layers 4 \
        --width 512 --heads 4 --context 64 \
        --vocabulary 64 --global-batch 8 --microbatch 4 --threads 1 --steps 6 --ckpt-every 2 \
        --rdzv-timeout "$HANG" --collective-timeout "$HANG" --log-level debug "$@"
}

@test "the trainer is killed before the hand-over: the step before is durable" {
    local writers n
    large large >large.out 2>&1
    train() { large "$@"; }
    for writers in rank0 all; do
        n=$([ $writers = all ] && echo 2 || echo 1)
        held start_world "$n" "torn$n" --ckpt-writers $writers
        # What is handed over waits for the lines of its steps to be durable.
        wait_log rank0.out 'checkpoint: the service is pid'
        slow_disk 5 "${PIDS[0]}"
        wait_log rank0.out 'giving away the state after step 4'
        kill -9 "${PIDS[@]}"
        end_world >torn.out || :
        grep checkpoint: torn.out
        ! grep -q 'step 4 is handed over' rank0.out || false
        wait_saved "torn$n" 2
        sleep 0.5
        [ "$(saved_steps "torn$n")" = 2 ]
        large "torn$n" >>torn.out 2>&1
        diff <(state_of large/step-00000006) <(state_of "torn$n/step-00000006")
        diff <(muster-curve large) <(muster-curve "torn$n")
    done
}

@test "a slow disk keeps training waiting only when it is lapped" {
    root_traces
    local pid
    REPLACE=exec held slowly train slow --steps 450 --ckpt-every 150 >slow.out 2>&1 3>&- &
    pid=$!
    slow_disk 0.1 "$(service_of $pid)"
    wait $pid
    grep checkpoint: slow.out
    if grep "second snapshot" slow.out; then false; fi
    # Each save took longer than some of the steps that went on beside it.
    python3 - slow/metrics-0.jsonl <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
saves = [line["checkpoint"] for line in lines if "checkpoint" in line]
assert len(saves) == 3
print(saves)
assert all(s["flush"] > 0.5 and s["stall"] < s["flush"] / 2 for s in saves)
END
    # A second snapshot is kept once a save meets the one before.
    REPLACE=exec held train met --ckpt-every 2 --steps 20 >met.out 2>&1 3>&- &
    pid=$!
    slow_disk 0.2 "$(service_of $pid)"
    wait $pid
    [ "$(grep -c 'still runs: this rank keeps a second snapshot of [0-9.]* MB' met.out)" -eq 1 ]
    REPLACE=exec held train lapped --ckpt-every 2 --ckpt-slots 1 --steps 20 >lapped.out 2>&1 3>&- &
    pid=$!
    slow_disk 0.2 "$(service_of $pid)"
    wait $pid
    grep -q 'training waited [0-9.]* s for the save before' lapped.out
    # Without patience for that, a step goes unsaved instead.
    REPLACE=exec held train impatient --ckpt-every 2 --ckpt-slots 1 --steps 20 \
        --collective-timeout 0.5 >impatient.out 2>&1 3>&- &
    pid=$!
    slow_disk 0.2 "$(service_of $pid)"
    wait $pid
    grep -q 'is not saved: the save of step [0-9]* still runs' impatient.out
    [ -e impatient/step-00000020 ]
}

@test "the validation loss reaches the manifest, and the best checkpoints stay" {
    train best --validation-data valid.u16 --validate-every 20 --ckpt-every 10 --keep-last 1 \
        --keep-best 2 --learning-rate 0.05
    python3 - best <<'END'
import glob, json, os, sys
loss = {}
for line in map(json.loads, open(os.path.join(sys.argv[1], "metrics-0.jsonl"))):
    if "validation_loss" in line:
        loss[line["step"]] = line["validation_loss"]
print(loss)
best = set(sorted(loss, key=loss.get)[:2]) | {100}
kept = {}
for path in glob.glob(os.path.join(sys.argv[1], "step-*", "manifest.json")):
    m = json.load(open(path))
    kept[m["step"]] = m["validation_loss"]
print(kept)
assert set(kept) == best, best
assert all(abs(kept[k] - loss[k]) < 1e-6 for k in kept)
END
    train unmeasured --ckpt-every 30 --validation-data valid.u16 --validate-every 20 --keep-last 0
    grep -q '"validation_loss": null' unmeasured/step-00000030/manifest.json
    ! grep -q '"validation_loss": null' unmeasured/step-00000060/manifest.json || false
}

# memory_group MEGABYTES: a group of processes with so much memory, in $group.
memory_group() {
    group=/sys/fs/cgroup/memory/muster-test-$$
    mkdir "$group" 2>/dev/null || skip "there is no memory cgroup to make"
    echo "$1M" >"$group/memory.limit_in_bytes"
}

# The kernel lets the group go a moment after its last process.
end_group() { wait_for 20 rmdir "$group" 2>/dev/null; }

# tight MEGABYTES: 12.7 MB of weights, and so much memory for the trainer and its service.
tight() {
    local group dir=tight$1
    memory_group "$1"
    run bash -c "$(declare -f train); echo \$\$ >$group/cgroup.procs
        train $dir --width 256 --layers 4 --steps 4 --ckpt-every 1 --keep-last 0"
    end_group
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(saved_steps "$dir" | wc -l)" -eq 4 ]
    single=$(grep -c 'only one snapshot is kept in memory' <<<"$output") || true
}

@test "where two snapshots do not fit into memory one is kept, and one line says so" {
    local megabytes
    for megabytes in 180 190 200 210 220; do
        tight "$megabytes"
        [ "$single" -le 1 ]
        [ "$megabytes" -gt 190 ] || [ "$single" -eq 1 ]
    done
    [ "$single" -eq 0 ]
}

@test "where the memory for a second snapshot has gone when it is needed, a save waits" {
    root_traces
    local group pid used
    memory_group 1000
    (echo $BASHPID >"$group/cgroup.procs" &&
        REPLACE=exec held large gone --ckpt-every 1 --keep-last 0) >gone.out 2>&1 3>&- &
    pid=$!
    wait_log gone.out '^step 1/6'
    # A snapshot takes 151 MB.
    used=$(awk '$1 == "rss" || $1 == "shmem" { sum += $2 } END { printf "%d", sum }' \
        "$group/memory.stat")
    echo $((used + (110 << 20))) >"$group/memory.limit_in_bytes"
    slow_disk 1 "$(service_of $pid)"
    wait $pid
    end_group
    cat gone.out
    grep -q 'with room for 2 at once' gone.out
    if grep 'keeps a second snapshot' gone.out; then false; fi
    grep -q 'training waited [0-9.]* s for the save before' gone.out
    [ "$(saved_steps gone | wc -l)" -eq 6 ]
}
