#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# bench/train-gpu.sh before a card is paid for: its whole course with stand-ins for the card, for
#     our programs and for PyTorch, and
# its arithmetic on numbers made by hand. No figure of these is one of a GPU.
# bats file_tags=ci

load lib/places

# A folder as the tarball makes it. A step of ours takes 20 ms and more, one of PyTorch's 80 ms, or
# 40 ms in the best of its ways.
setup() {
    pack=$BATS_TEST_TMPDIR/muster-gpu
    mkdir -p "$pack/bin" "$pack/bench" "$BATS_TEST_TMPDIR/tools"
    cp "$MUSTER_TOP"/bench/{train-gpu.sh,setup.bash,figure.py,train_gpu*.py} "$pack/bench/"
    cd "$BATS_TEST_TMPDIR"
    PATH=$BATS_TEST_TMPDIR/tools:/usr/bin:/bin
    program tools/nvidia-smi \
        'case $1 in *clocks*) while echo "1755, 690.5, 61"; do sleep 0.1; done ;;
        *) echo "Stand-in, 1.2, 9 MiB" ;; esac'
    program muster-gpu/bin/muster-train 'echo "  numerics             stand-in, cuBLASLt 13.0.1"
        case $1 in --help) echo "  --tune  time them"; exit ;; esac
        echo "$@" >>ours
        n=0
        while n=$((n + 1)); echo "step $n/1000000  loss  $((11 - n % 3)).5  norm 1"; do
            sleep 0.02
        done'
    program muster-gpu/bin/initial_weights 'for file; do :; done; echo weights >"$file"'
    program muster-gpu/bin/step_floor 'echo "$@" >floor-arguments; cat floor.json'
    program torch 'case $1 in -c) echo "2.99.0 True"; echo /nowhere; exit ;; esac
        echo "$@" >>theirs
        case "$*" in *"--microbatch 64"*)
            echo "RuntimeError: CUDA out of memory"; echo "  somewhere"; exit 1 ;;
        esac
        case "$*" in *"--microbatch 32 "*max-autotune*cudnn*) pause=0.04 ;; *) pause=0.08 ;; esac
        echo "{\"torch\": \"2.99.0\", \"cudnn\": 91900}"
        n=0
        while n=$((n + 1)); echo "step $n/1000000  loss $((11 - n % 3)).5${TENTH-}"; do
            sleep $pause
        done'
    cat >floor.json <<'END'
{"card": "Stand-in", "libraries": "cuBLASLt 13.0.1", "peak": 1e17,
 "parameters": 1, "token_flops": 1, "tokens": 1,
 "step_seconds": 0.020, "copy": 4e12,
 "products": [{"name": "a", "calls": 10, "seconds": 0.001, "flops": 8e11, "bare": false},
              {"name": "b", "calls": 2, "seconds": 0.0005, "flops": 2e11, "bare": true}],
 "ops": [{"name": "linear", "calls": 10, "seconds": 0.0115,
          "bytes": 0, "step_bytes": 0, "flops": 0, "products": [[0, 10]]},
         {"name": "weights", "calls": 2, "seconds": 0.002, "bytes": 4e9, "step_bytes": 0,
          "flops": 0, "products": [[1, 2]]},
         {"name": "norm", "calls": 4, "seconds": 0.002, "bytes": 4e9, "step_bytes": 4e9,
          "flops": 0, "products": []},
         {"name": "attention", "calls": 1, "seconds": 0.0032, "bytes": 4e9, "step_bytes": 4e9,
          "flops": 1.6e12, "products": []}]}
END
    seq -f 'word %g and more' 40000 >text
}

program() { printf '#!/bin/bash\n%s\n' "$2" >"$1" && chmod +x "$1"; }

bench() {
    run "$pack/bench/train-gpu.sh" --out "$BATS_TEST_TMPDIR/out" \
        --torch-python "$BATS_TEST_TMPDIR/torch" \
        --text "$BATS_TEST_TMPDIR/text" "$@"
    echo "$output"
}

@test "without a GPU it says so in one line and measures nothing" {
    program tools/nvidia-smi 'echo no devices were found; exit 6'
    bench
    [ "$status" = 0 ]
    [ "$output" = "train-gpu: no GPU, nothing was measured: no devices were found" ]
    [ ! -e out ]
    [ ! -e ours ]
    [ -e "$MUSTER_BUILD/Makefile" ] || return 0
    run "$MUSTER_TOP/bench/train-gpu.sh" # nor is anything built for it
    [ "$status" = 0 ] && [ "${#lines[@]}" = 1 ]
}

@test "the whole course: choice, floor, rounds, figures, and both files" {
    bench --only 124M --seconds 0.4 --warm-up 0.2 --rounds 2
    [ "$status" = 0 ]
    [[ $output == *"torch 64,default,flash: torch 64 default flash ended with status 1: RuntimeError: CUDA out of memory"* ]]
    # A loaded machine may slow any of them down: the fastest measured one is taken.
    fastest=$(sed -n 's/^  torch \(.*\): \([0-9]*\) tokens.*/\2 \1/p' <<<"$output" |
        sort -n | tail -n 1)
    [[ $output == *"PyTorch with ${fastest#* }"$'\n'* ]]
    size=$(grep -o 'ours with a microbatch of [0-9]*' <<<"$output" | grep -o '[0-9]*')
    [ "$(cat floor-arguments)" = "12 768 12 1024 50257 $size $((512 / size)) 10" ]
    grep -q 'round 2, muster canonical .* SM 1755 MHz, 690 W, 61 C' out/train-gpu-*.txt
    [ "$(grep -c '^  round [12], ' out/train-gpu-*.txt)" = 5 ]
    for line in 'floor 14 ms$' 'curves 0 %, aim <= 1: met' \
        'over-torch [0-9.]* x, aim >= 1.3: [a-z]*$' \
        'over-floor [0-9.]* x, aim <= 1.15: missed' 'mfu [0-9.]* %, aim >= 55: missed' \
        'native-over-torch [0-9.]* x$' 'torch-mfu [0-9.]* %$' 'native-mfu [0-9.]* %$'; do
        echo "$line"
        grep -q "^bench: train-gpu-124M-$line" out/train-gpu-*.txt
    done
    grep -q 'torch ran on: torch 2.99.0; cudnn 91900' out/train-gpu-*.txt &&
        grep -q 'ran on: numerics stand-in' out/train-gpu-*.txt
    python3 -c 'import json, sys; runs = json.load(open(sys.argv[1]))["models"]["124M"]["runs"]
assert sorted(r["way"] for r in runs) == \
    ["muster canonical"] * 2 + ["muster native"] + ["torch"] * 2, runs' out/train-gpu-*.json
    grep -q -- '--reduction native .*--tune' ours &&
        grep -q -- '--global-batch 512 .*--warmup-steps 20' theirs
}

@test "curves that differ make the comparison void" {
    TENTH=3 bench --only 124M --seconds 0.3 --warm-up 0.1 --rounds 1 --microbatch 32 \
        --torch 32,default,flash
    [ "$status" = 0 ]
    grep -q '^bench: train-gpu-124M-curves 0.3.* %, aim <= 1: met' out/train-gpu-*.txt
    sed -i 's/\.5${TENTH-}/.7/' torch
    bench --only 124M --seconds 0.3 --warm-up 0.1 --rounds 1 --microbatch 32 \
        --torch 32,default,flash
    grep -q 'over-torch .* x, aim >= 1.3: does not count: the loss curves differ by 2' \
        out/train-gpu-*.txt
    bench --only 124M --curve 5
    [ "$status" = 1 ]
    grep -q '^bench: train-gpu-124M-curves 2.* %, aim <= 1: missed' out/train-gpu-*.txt
}

@test "what is missing is told, and the rest is measured" {
    program torch 'echo "ModuleNotFoundError: No module named torch" >&2; exit 1'
    program muster-gpu/bin/step_floor 'echo "step_floor: out of memory" >&2; exit 1'
    bench --only 124M --seconds 0.3 --warm-up 0.1 --rounds 1 --microbatch 32
    [ "$status" = 0 ]
    [[ $output == *"the peer is missing"*"No module named torch"* ]]
    [[ $output == *"the floor was not measured: step_floor: out of memory"* ]]
    [[ $output == *"round 1, muster native"* ]] && ! grep -q over-torch out/train-gpu-*.txt || false
    echo "{\"models\": {\"124M\": {\"floor\": $(cat floor.json)}}}" >earlier.json
    bench --only 124M --seconds 0.3 --warm-up 0.1 --rounds 1 --microbatch 32 --floor earlier.json
    [[ $output == *"train-gpu-124M-floor 14 ms"*"over-floor"* ]]
    bench --only 124M --curve 5
    [ "$status" = 77 ]
    bench --only 124M --limit 1 --microbatch 32
    [ "$status" = 0 ]
    [[ $output == *"round 1, muster canonical: not run, no time left of 1 s"* ]]
}

@test "step_floor itself, on a GPU that is the host: every op and product of a step is measured" {
    tools=$MUSTER_BUILD/tests/tools
    [ -x "$tools/floor_shim" ] || skip "this build has no CUDA"
    mkdir card
    ln -s "$tools/.libs/fake_driver.so" card/libcuda.so.1
    ln -s "$tools/.libs/fake_cublaslt.so" \
        "card/$(grep -ao 'libcublasLt\.so\.[0-9]*' "$tools/floor_shim" | head -n 1)"
    LD_LIBRARY_PATH=card OMP_WAIT_POLICY=passive "$tools/floor_shim" 1 16 1 8 128 1 2 1 \
        >measured.json
    PYTHONDONTWRITEBYTECODE=1 python3 - "$MUSTER_TOP/bench" measured.json <<'END'
import json, sys
sys.path.insert(0, sys.argv[1])
from train_gpu_figures import Floor, token_flops
measured = json.load(open(sys.argv[2]))
assert measured["tokens"] == 16 and measured["peak"] == 989.4e12 \
    and measured["token_flops"] == token_flops(1, 16, 8, 128)
C, V, M = 16, 128, 16
assert sum(p["calls"] * p["flops"] for p in measured["products"]) == 6 * M * (12 * C * C + V * C)
assert all(p["seconds"] > 0 for p in measured["products"]) \
    and measured["copy"] > 0 and measured["step_seconds"] > 0
ops = {op["name"]: op for op in measured["ops"]}
assert ops["adamw"]["bytes"] == 30 * measured["parameters"] \
    and ops["attention backward"]["flops"] == 5 * M * 9 * C, ops
for number, product in enumerate(measured["products"]):
    made = sum(calls for op in measured["ops"] for n, calls in op["products"] if n == number)
    assert made == product["calls"], (made, product)
print("\n".join(Floor(measured).table()))
END
}

@test "floors, agreement and lines by hand" {
    PYTHONDONTWRITEBYTECODE=1 python3 - "$MUSTER_TOP/bench" floor.json <<'END'
import json, math, sys
sys.path.insert(0, sys.argv[1])
from figure import line
from train_gpu_figures import *
floor = Floor(json.load(open(sys.argv[2])))
assert math.isclose(floor.best, 8e14)
# products 10 x 1 + 2 x 0.5 ms; the norm 1 ms by its bytes; attention 2 ms by its operations; the
# biases' pass is not of the step's
assert math.isclose(floor.products, 0.011) and math.isclose(floor.passes, 0.003) \
    and math.isclose(floor.step, 0.014)
assert [round(op["floor"] * 1e3, 9) for op in floor.ops] == [10, 2, 1, 2], floor.ops
table = floor.table()
assert [line.split()[0] for line in table[1:5]] == ["linear", "attention", "norm", "weights"], table
assert "between them" in table[-2] and "1.300" in table[-2], table # 20 ms - 18.7 ms
assert "a step" in table[-1] and "1.43" in table[-1], table
assert disagreement([10, 9, 8], [10, 9.09]) == (1 - 9 / 9.09) * 100
assert math.isnan(disagreement([1, math.nan], [1, 1])) and math.isnan(disagreement([], [1]))
assert token_flops(12, 768, 1024, 50257) == 803261952.0
assert math.isclose(utilisation(500000, 803261952.0, 989.4e12), 40.593, rel_tol=1e-4)
assert spread([3, 1, 2]) == (2, 1, 3)
assert line("a", 1.31, "x", at_least=1.3) == "bench: a 1.31 x, aim >= 1.3: met"
assert line("a", 1.29, "x", at_least=1.3) == "bench: a 1.29 x, aim >= 1.3: missed"
assert line("a", 1.16, "x", at_most=1.15) == "bench: a 1.16 x, aim <= 1.15: missed"
assert line("a", 0, "x", at_most=0) == "bench: a 0 x, aim <= 0: met"
assert line("a", math.nan, "%", at_most=1).endswith("missed")
assert line("a", 2, "x", at_least=1, void="why") == "bench: a 2 x, aim >= 1: does not count: why"
assert line("a", 2, "ms") == "bench: a 2 ms"
END
}
