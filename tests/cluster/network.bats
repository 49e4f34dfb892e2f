#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A network as they are: packets take 2 ms from node to node, one in a thousand is lost, and some
# overtake others. On links of this machine a handshake ends inside connect(), and nothing is ever
# late.

load ../lib/has_torch
load helpers
STEPS=50
load training

setup_file() {
    export MUSTER_CLUSTER_GRACE=30 MUSTER_CLUSTER_KILLWAIT=10
    plugin_locate || return 0
    cluster_begin 4 --latency 2ms --loss 0.1% --reorder 1% --plugin "$PLUGIN"
    training_begin
    cp "$MUSTER_TOP"/slurm-examples/{train-spot.sbatch,torch_ddp.py} "$JOBS"
    chmod a+r "$JOBS"/*.{sbatch,py}
    # A library that the jobs of all users load, wherever this checkout lies.
    install -m 755 "$MUSTER_BUILD/tests/tools/.libs/partial_io.so" "$JOBS/partial_io.so"
}

# The round trips of a byte between two nodes, in milliseconds, over one connection: the least, and
# the most of a hundred.
round_trips() {
    cluster run --node n2 timeout "$HANG" /usr/bin/python3 -c '
import socket
listener = socket.create_server(("", 7777))
print("listens", flush=True)
with listener.accept()[0] as peer:
    while byte := peer.recv(1):
        peer.sendall(byte)' >"$JOBS/echo.log" &
    wait_for 30 grep -qs listens "$JOBS/echo.log"
    cluster run --node n1 timeout "$HANG" /usr/bin/python3 -c '
import socket, time
times = []
with socket.create_connection(("n2", 7777)) as peer:
    for _ in range(100):
        begun = time.monotonic()
        peer.sendall(b"x")
        assert peer.recv(1)
        times.append(1000 * (time.monotonic() - begun))
print(f"{min(times):.3f} {max(times):.3f}")'
    wait
}

@test "a byte takes 4 ms from node to node and back" {
    run round_trips
    echo "$output"
    [[ $output =~ ^[0-9.]+\ [0-9.]+$ ]]
    # One that is early has overtaken nothing: only the way back of a packet that was late may be
    # shorter.
    awk '{ exit !($1 >= 4) }' <<<"$output"
    [[ $(cluster status network) \
        = "2.000 ms from space to space, loss 0.100 %, reordered 1.000 %" ]]
}

@test "the quickstart's training, preempted once, has the bits of one process alone" {
    args="--model gpt2 --layers 4 --width 128 --heads 4 --context 128 --vocabulary 256
        --global-batch 32 --microbatch 4 --slots 8
        --steps $STEPS --warmup-steps 10 --learning-rate 1e-3 --ckpt-every 25 --seed 2718"
    id=$(cluster run env PATH="$PATH" DATA="$JOBS/train.bin" CKPT="$JOBS/spot" TRAIN_ARGS="$args" \
        sbatch --parsable --exclusive train-spot.sbatch)
    wait_for 90 train_attempt_has spot 0 10
    job_preempt "$id" 0
    # shellcheck disable=SC2086
    cluster run muster-train --data train.bin --ckpt-dir alone $args --log-level warn
    job_wait "$id" 200 COMPLETED
    [ "$(train_notices spot)" -eq 1 ]
    [ "$(job_restarts "$id")" -eq 1 ]
    [ "$(train_final spot)" = "$(train_final alone)" ]
    diff <(muster-curve "$JOBS/spot") <(muster-curve "$JOBS/alone")
}

# The bytes that the nodes have sent.
sent() {
    for node in n{1..4}; do
        cluster run --node "$node" cat /proc/net/dev
    done | awk '/:/ && $1 != "lo:" { sum += $10 } END { printf "%d\n", sum }'
}

# dealt WAY: a training whose ranks srun deals out to the nodes that way; prints the bytes sent.
dealt() {
    local before id
    before=$(sent)
    id=$(SRUN_OPTIONS="--gpus-per-task=1 -m $1" train_submit "$1")
    job_wait "$id" 200 COMPLETED
    train_equals_reference "$1" >&2
    echo $(($(sent) - before))
}

@test "ranks that are dealt out to the nodes in turn have the same bits, and send no more" {
    block=$(dealt block) && cyclic=$(dealt cyclic)
    echo "sent: $block bytes, and $cyclic"
    # In the order of their numbers each byte would go from node to node twice.
    ((block > 10000000 && cyclic * 10 < block * 12))
}

@test "a PyTorch DDP job has the bits that it has on one node" {
    has_torch || skip "no python3-torch"
    export OMP_NUM_THREADS=1
    run cluster run timeout -k 10 $((4 * HANG)) srun --muster -N4 -n4 --gpus-per-task=1 \
        /usr/bin/python3 torch_ddp.py \
        --epochs 2 --checkpoint spread.pt
    echo "$output"
    [ "$status" -eq 0 ]
    cluster run bash -c \
        'export WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29599
        for rank in 0 1 2 3; do
            RANK=$rank LOCAL_RANK=$rank timeout $((4 * HANG)) /usr/bin/python3 torch_ddp.py \
                --epochs 2 --checkpoint near.pt &
            pids+=" $!"
        done
        for pid in $pids; do wait $pid || exit; done'
    (cd "$JOBS" && /usr/bin/python3 -c '
import torch
a, b = torch.load("spread.pt"), torch.load("near.pt")
assert len(a["model"]) > 3 and a["step"] == b["step"]
for name in a["model"]:
    assert torch.equal(a["model"][name], b["model"][name]), name')
}

@test "ranks and their services whose calls on sockets do as little at once as they may: the same bits" {
    # Without the plugin, so that the services are started by the ranks and load the library too.
    # shellcheck disable=SC2086
    run cluster run env PATH="$PATH" LD_PRELOAD="$JOBS/partial_io.so" timeout -k 10 $((4 * HANG)) \
        srun --mpi=pmix -N4 --ntasks-per-node=2 muster-train --data train.bin --ckpt-dir parts \
            $TRAIN_ARGS --ckpt-every 40 --ckpt-writers node
    echo "$output"
    [ "$status" -eq 0 ]
    # In other files, since each node writes its own.
    muster-ckpt diff "$JOBS/parts" "$JOBS/reference"
    diff <(muster-curve "$JOBS/parts") <(muster-curve "$JOBS/reference")
}
