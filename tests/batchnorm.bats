#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-train --batchnorm over several local processes: they are one batch, what they count is
# saved and resumed, and a number of ranks that would change the batches is refused.

load small_run

setup_file() {
    export PATH=$MUSTER_BUILD:$PATH OMP_NUM_THREADS=1
    unset "${!SLURM_@}" "${!PMIX_@}" "${!MUSTER_RDZV@}"
    cd "$BATS_FILE_TMPDIR" || return
    python3 - <<'END'
import struct
def npy(name, descr, shape, data):
    h = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)).encode()
    h += b" " * (63 - (10 + len(h)) % 64) + b"\n"
    open(name, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h + data)
rows = [[((37 * i + 11 * k + 5 * i * i * k) % 101 - 50) / (k + 1) + 10 * k for k in range(6)]
        for i in range(203)]
classes = [int(abs(r[0] / 9 + r[1] - 10)) % 4 for r in rows]
npy("x.npy", "<f4", (len(rows), 6), b"".join(struct.pack("<6f", *r) for r in rows))
npy("y.npy", "<i4", (len(rows),), struct.pack(f"<{len(rows)}i", *classes))
classes[100] = 9
npy("y-late.npy", "<i4", (len(rows),), struct.pack(f"<{len(rows)}i", *classes))
END
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# train DIR OPTION…: one rank. 203 samples in steps of 16: the last step of an epoch has places
# without a sample.
train() {
    ${REPLACE-} muster-train --model mlp --batchnorm --data x.npy --labels y.npy --hidden 24 \
        --classes 4 --global-batch 16 \
        --last-batch pad --microbatch 2 --slots 4 --threads 1 --learning-rate 0.01 --steps 40 \
        --ckpt-every 15 --rdzv-timeout "$HANG" \
        --collective-timeout "$HANG" --ckpt-dir "$@"
}

# Name, dtype and shape of each tensor of a model file, and the values of the one that counts.
tensors() {
    python3 - "$@" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header.pop("__metadata__")
for name, t in sorted(header.items()):
    begin = 8 + size + t["data_offsets"][0]
    count = struct.unpack_from("<q", data, begin)[0] \
        if t["dtype"] == "I64" and begin % 8 == 0 else ""
    print(name, t["dtype"], t["shape"], count)
END
}

# The largest relative difference of two runs' losses.
worst_loss() {
    paste <(muster-curve "$1" | awk '{ print $3 }') <(muster-curve "$2" | awk '{ print $3 }') |
        awk '{ d = $1 / $2 - 1; d = d < 0 ? -d : d; if (d > w) w = d } END { print NR == 40 ? w : "none" }'
}

@test "four ranks are one batch: the losses of one rank that has it whole" {
    local four two small
    train one --slots 1 --microbatch 16 --validation-data x.npy --validation-labels y.npy \
        --validate-every 20
    train_world 4 four --microbatch 4 --validation-data x.npy --validation-labels y.npy \
        --validate-every 20
    train_world 2 two --microbatch 8 --slots 2
    train small --microbatch 4 # 4 rows at a time: another model
    four=$(worst_loss one four) two=$(worst_loss one two) small=$(worst_loss one small)
    echo "worst difference of a loss: four ranks $four, two $two, smaller batches $small"
    awk "BEGIN { exit !($four < 1e-5 && $two < 1e-5 && $small > 1e-3) }"
    [ "$(muster-curve four | awk 'NF == 7' | wc -l)" -eq 2 ]
    diff <(muster-curve one | awk 'NF == 7 { printf "%.5f\n", $6 }') \
        <(muster-curve four | awk 'NF == 7 { printf "%.5f\n", $6 }')
}

@test "statistics are saved with the model and resumed bit for bit, by the same number of ranks" {
    train_world 2 whole --steps 100
    start_world 2 parts --steps 100
    wait_step parts 20
    kill "${PIDS[1]}"
    end_world || [ $? -eq 75 ]
    fails 2 "there are 4 ranks, but the run in this --ckpt-dir was begun with 2" train_world 4 \
        parts --steps 100
    fails 2 "there is 1 rank, but the run in this --ckpt-dir was begun with 2" train parts \
        --steps 100
    fails 2 "--microbatch is 4, but the run in this --ckpt-dir was begun with 2" train_world 2 \
        parts --microbatch 4 --steps 100
    train_world 2 parts --ckpt-writers all --steps 100
    muster-ckpt verify parts
    muster-ckpt diff whole/step-00000100 parts/step-00000100
    diff <(muster-curve whole) <(muster-curve parts)
    # 4 batches a step (2 slots of 2 microbatches). Every 13th step has 11 samples: the last of rank
    # 1's batches is without one, but rank 0 has its own.
    tensors whole/step-00000100/model-*.safetensors
    [[ $(tensors whole/step-00000100/model-*.safetensors) = *"1.num_batches_tracked I64 [] 400"* ]]
    [[ $(tensors whole/step-00000100/model-*.safetensors) = *"1.running_var F32 [24]"* ]]
    # Statistics are each rank's own while weights travel.
    start_world 2 shared --zero 1 --steps 100
    wait_step shared 20
    kill "${PIDS[0]}"
    end_world || [ $? -eq 75 ]
    train_world 2 shared --zero 1 --validation-data x.npy --validation-labels y.npy \
        --validate-every 30 --steps 100
    muster-ckpt diff whole/step-00000100 shared/step-00000100
}

@test "which ranks share a node changes no bit" {
    PER_NODE=2 train_world 4 following
    CYCLIC=1 PER_NODE=2 train_world 4 dealt
    grep '4 ranks on 2 nodes' rank0.out
    muster-ckpt diff following/step-00000040 dealt/step-00000040
    diff <(muster-curve following) <(muster-curve dealt)
}

@test "pieces that travel early do not come between the batches" {
    local differ
    # three slots a rank: two pieces, finished after other slots on each
    train_world 4 thirds --global-batch 24 --slots 12
    train_world 4 native --global-batch 24 --slots 12 --reduction native
    differ=$(worst_loss thirds native)
    echo "worst difference of a loss: $differ"
    awk "BEGIN { exit !($differ < 1e-5) }"
}

@test "a rank that stops is waited for no longer than the deadline, and all say where they stand" {
    start_world 3 stopped --slots 3 --global-batch 12 --microbatch 4 --steps 1000000 \
        --ckpt-every 0 --collective-timeout "$((HANG / 10))"
    wait_step stopped 5
    kill -STOP "${PIDS[1]}"
    wait "${PIDS[0]}" && false || [ $? -eq 69 ]
    wait "${PIDS[2]}" && false || [ $? -eq 69 ]
    kill -KILL "${PIDS[1]}"
    wait "${PIDS[1]}" || :
    grep -E "couldn't complete .* of (batch (statistics|gradients)|bucket 0|control) of step [0-9]+ after" rank0.out
}

@test "what is counted can be compared and exported" {
    train alone --slots 1 --microbatch 16 --keep-last 0 --ckpt-every 20
    muster-ckpt diff alone/step-00000040 alone/step-00000040
    fails 1 1.num_batches_tracked muster-ckpt diff alone/step-00000020 alone/step-00000040
    muster-ckpt export alone exported --dtype bf16
    tensors exported/model.safetensors
    [[ $(tensors exported/model.safetensors) = *"1.num_batches_tracked I64 [] 40"* ]]
    [[ $(tensors exported/model.safetensors) = *"1.running_mean BF16 [24]"* ]]
}

@test "ranks that can't have the same batches, and a batch of one, are refused" {
    fails 2 "--batchnorm" train_world 3 uneven
    fails 2 "nothing to normalise over" train single --microbatch 1
    fails 2 "--batchnorm belongs to --model mlp" muster-train --model gpt2 --batchnorm --data x.npy
}

@test "bad data on one rank in mid-run ends all of them with 65" {
    local zero
    for zero in 0 1; do
        run train_world 4 "late$zero" --labels y-late.npy --order file --steps 100 --zero $zero
        echo "$output"
        [ "$status" -eq 65 ]
        grep -q "class 9 of sample 100" <<<"$output"
        ! grep -q "lost" <<<"$output" || false
    done
}

@test "the golden checkpoint is resumed" {
    mkdir golden
    cp -r "$MUSTER_TOP/tests/golden/v1-statistics/step-00000003" golden
    fails 0 "resume: step 3 from golden" train golden --hidden 3 --microbatch 16 --slots 1 \
        --change steps,decay-steps
    [[ $(tensors golden/step-00000040/model-*.safetensors) = *"1.num_batches_tracked I64 [] 40"* ]]
}
