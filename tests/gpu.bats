#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# tests/gpu.sh as a bare machine sees it: what is packed runs by itself, what hangs is cut, what
# fails is told.

load lib/places

load small_run

# unpacked: a folder as the tarball makes it, with programs of the test's own. Its parts are those
# that the test adds.
unpacked() {
    mkdir -p "$BATS_TEST_TMPDIR/muster-gpu/bin"
    cd "$BATS_TEST_TMPDIR/muster-gpu"
    cp "$MUSTER_TOP"/tests/gpu.sh "$MUSTER_TOP"/tests/gpu_train.sh "$MUSTER_TOP"/tests/lib/tap.awk .
    program muster-train 'echo "  --device=auto"'
    for name in ckptd ckpt curve tokens; do program "muster-$name" 'exit 9'; done
}

program() { printf '#!/bin/sh\n%s\n' "$2" >"bin/$1" && chmod +x "bin/$1"; }

# Without a GPU of its own: an nvidia-smi that fails comes first.
bare() {
    mkdir -p "$BATS_TEST_TMPDIR/tools"
    printf '#!/bin/sh\necho no card; exit 9\n' >"$BATS_TEST_TMPDIR/tools/nvidia-smi"
    chmod +x "$BATS_TEST_TMPDIR/tools/nvidia-smi"
    run env -i PATH="$BATS_TEST_TMPDIR/tools:/usr/bin:/bin" ./gpu.sh --out out "$@"
}

# Stand-ins for a GPU: the driver's tool, and a muster-train that computes on the CPU. What is told
# as SPOIL learns at another rate.
stand_ins() {
    local name
    unpacked
    for name in ckptd ckpt curve tokens; do
        ln -sf "$MUSTER_BUILD/muster-$name" "bin/muster-$name"
    done
    mkdir -p "$BATS_TEST_TMPDIR/tools"
    printf '#!/bin/sh\necho Card, 1\n' >"$BATS_TEST_TMPDIR/tools/nvidia-smi"
    chmod +x "$BATS_TEST_TMPDIR/tools/nvidia-smi"
    program test_gpu_a 'echo 1..1; echo ok 1 - right'
    cat >bin/muster-train <<END
#!/bin/bash
args=() dir=
[ "\$1" != --help ] || exec "$MUSTER_BUILD/muster-train" --help
while [ \$# -gt 0 ]; do
    case \$1 in
    --device | --precision) shift 2 && continue ;;
    --share-gpu) shift && continue ;;
    --ckpt-dir) dir=\$2 ;;
    esac
    args+=("\$1") && shift
done
[ "\$dir" != "\${SPOIL-}" ] || args+=(--learning-rate 0.002 --change learning-rate)
exec "$MUSTER_BUILD/muster-train" "\${args[@]}" --device cpu --threads 1
END
    export GPU_SMALL="--layers 1 --width 16 --heads 1 --context 16 --steps 300 --ckpt-every 40 --global-batch 4 --microbatch 1"
    export GPU_LARGE="$GPU_SMALL --layers 2 --vocabulary 256"
    export GPU_PROGRAMS=$PWD/bin GPU_WORK=$BATS_TEST_TMPDIR/work GPU_CHECK_SECONDS=$HANG
}

@test "the pack runs in an empty folder with an empty environment" {
    [ -x "$MUSTER_BUILD/tests/unit/test_gpu_add" ] || skip "nvcc was not found: no program to pack"
    cd "$BATS_TEST_TMPDIR"
    "$MUSTER_TOP/tests/gpu.sh" --pack gpu.tar.xz
    [ "$(stat -c %s gpu.tar.xz)" -le $((60 << 20)) ]
    mkdir empty && cd empty && tar -xf ../gpu.tar.xz
    for module in $(sed -nE 's/^(from|import) (figure|train_[a-z_]*).*/\2/p' \
        muster-gpu/bench/*.py); do
        [ -e "muster-gpu/bench/$module.py" ]
    done
    run env -i PATH=/usr/bin:/bin muster-gpu/gpu.sh --out out --part-seconds "$HANG"
    [ "$status" = 0 ]
    [[ ${lines[-1]} =~ ^[0-9]+\ passed,\ 0\ failed,\ [0-9]+\ skipped$ ]]
    [ "$(tail -n 1 out/summary)" = "${lines[-1]}" ]
    grep -q '^gpu, driver: .' out/summary && grep -q '^packed: .' out/summary
    grep -q '^compiler: .' out/summary && grep -q '^library: libcmocka.so' out/summary
    for part in gpu_add gpu_ops gpu_repeat memcheck-add racecheck-add train share torch python \
        slurm; do
        grep -q "^$part " out/summary && [ -s out/$part.tap ]
    done
    [ -x muster-gpu/bench/train-gpu.sh ]
    [ -x muster-gpu/bin/initial_weights ]
    grep -q '^gpu, driver: none' out/summary || return 0
    [[ ${lines[-1]} == "0 passed, "* ]]
    grep -q 'bits_of_the_cpu: no GPU: .' out/gpu_add.tap &&
        grep -q 'SKIP no GPU: .' out/memcheck-add.tap
}

@test "a pack that is too large is refused, and its largest files are named" {
    unpacked
    head -c 1500000 /dev/urandom >bin/test_gpu_large
    chmod +x bin/test_gpu_large
    PATH=$BATS_TEST_TMPDIR/tools:$PATH
    mkdir "$BATS_TEST_TMPDIR/tools" "$BATS_TEST_TMPDIR/packing"
    for tool in strip ldd; do ln -s /bin/true "$BATS_TEST_TMPDIR/tools/$tool"; done
    TMPDIR=$BATS_TEST_TMPDIR/packing run ./gpu.sh --pack "$BATS_TEST_TMPDIR/gpu.tar.xz" --pack-mib 1
    [ "$status" = 2 ]
    [[ $output == *"1500000 bin/test_gpu_large"*"bytes are more than 1 MiB"* ]]
    [ ! -e "$BATS_TEST_TMPDIR/gpu.tar.xz" ]
    rmdir "$BATS_TEST_TMPDIR/packing"
}

@test "a part that hangs is cut and told, one that fails is told, and the others still run" {
    unpacked
    program test_gpu_a 'echo 1..2; echo ok 1 - begun; sleep 60'
    program test_gpu_b 'echo 1..1; echo not ok 1 - wrong; exit 1'
    program test_gpu_c 'echo 1..1; echo ok 1 - right'
    bare --part-seconds 1
    [ "$status" = 1 ]
    grep -q 'cut after 1 s' out/summary && grep -q '^    not ok 1 - wrong' out/summary
    grep -q 'gpu, driver: none: nvidia-smi says: no card' out/summary
    [ "$(cat out/gpu_a.tap)" = $'1..2\nok 1 - begun' ]
    [[ ${lines[-1]} == "2 passed, 2 failed, "* ]]
}

@test "--only runs the parts that one of its patterns names" {
    unpacked
    program test_gpu_a 'echo 1..1; echo ok 1 - right'
    program test_gpu_b 'echo 1..1; echo not ok 1 - wrong; exit 1'
    bare --only 'gpu_a,memcheck-*'
    [ "$status" = 0 ]
    [[ ${lines[-1]} == "1 passed, 0 failed, 2 skipped" ]]
    [ "$(cd out && echo *)" = "gpu_a.tap memcheck-a.tap memcheck-b.tap summary" ]
}

@test "no part begins after the time of the whole run, and what was not run is no pass" {
    unpacked
    program test_gpu_a 'echo 1..1; echo ok 1 - right'
    bare --seconds 1
    [ "$status" = 1 ]
    [[ ${lines[-1]} == "0 passed, "* ]]
    grep -q 'gpu_a was not run: no time left of 1 s' out/gpu_a.tap
}

@test "a run that is ended early leaves what is done" {
    unpacked
    program test_gpu_a 'echo 1..1; echo ok 1 - right'
    program test_gpu_b 'echo 1..1; exec sleep 60'
    ./gpu.sh --out out >log 2>&1 3>&- &
    pid=$!
    wait_for 10 [ -e out/gpu_b.tap ]
    kill -TERM $pid
    ! wait $pid || false
    grep -q '^gpu_a  *1 ok' out/summary
    [ "$(tail -n 1 out/summary)" = "1 passed, 0 failed, 0 skipped" ]
}

@test "the parts that train find runs that are alike, and one line of the summary each" {
    stand_ins
    # The bench has tests of its own (bench_gpu.bats).
    printf '#!/bin/sh\n' >"$BATS_TEST_TMPDIR/tools/python3" &&
        chmod +x "$BATS_TEST_TMPDIR/tools/python3"
    mkdir bench && printf 'echo "$@"; echo "train-gpu-124M-curves 0.3 %%"\n' >bench/train-gpu.sh
    PATH=$BATS_TEST_TMPDIR/tools:$PATH run ./gpu.sh --out out --seconds 9999 \
        --part-seconds $((5 * HANG))
    echo "$output"
    [ "$status" = 0 ]
    grep -q '^gpu, driver: Card, 1' out/summary
    grep -q '^train  *[0-9]* ok   0 not ok ' out/summary &&
        grep -q '^share  *8 ok   0 not ok   0 skip' out/summary
    for check in small_twice small_killed fp32_like_the_cpu large_killed; do
        grep -q "^ok [0-9]* - $check\$" out/train.tap
    done
    for check in small_on_3_ranks four_ranks_killed_two_go_on one_rank_lost; do
        grep -q "^ok [0-9]* - $check\$" out/share.tap
    done
    grep -q 'identical: all bits of 16 tensors' out/share.tap
    grep -q '^ok 1 - losses_like_pytorch$' out/torch.tap
    # It is told where that differs, or brings no figure.
    for bench in 'echo train-gpu-124M-curves 3 %; exit 1' 'exit 0'; do
        printf '%s\n' "$bench" >bench/train-gpu.sh
        run env "GPU_BENCH=$PWD/bench/train-gpu.sh" GPU_OUT=. bash ./gpu_train.sh check \
            losses_like_pytorch
        [ "$status" = 1 ]
    done
    echo 'echo no peer; exit 77' >bench/train-gpu.sh
    run env "GPU_BENCH=$PWD/bench/train-gpu.sh" GPU_OUT=. bash ./gpu_train.sh check \
        losses_like_pytorch
    [ "$status" = 77 ]
}

# differs CHECK DIR WORDS: fails where that run is another one.
differs() {
    SPOIL=$2 run bash ./gpu_train.sh check "$1"
    echo "$1: $(tail -n 2 <<<"$output")"
    [ "$status" = 1 ] && [[ $output == *"$3"* ]]
}

@test "a training that differs from the one beside it is told, in each way that they are compared" {
    stand_ins
    mkdir "$GPU_WORK" && head -c 100000 "$MUSTER_BUILD/muster-train" >"$GPU_WORK/text"
    bin/muster-tokens -o "$GPU_WORK/train.bin" "$GPU_WORK/text"
    differs small_twice small-again "small and small-again end with other bits"
    differs small_killed small-killed "end with other bits"
    differs fp32_like_the_cpu cpu "fp32 against cpu, at most 1e-4"
    differs small_on_2_ranks small-2 "end with other bits"
    differs four_ranks_killed_two_go_on small-fewer "end with other bits"
    # Nor is it enough that they are alike where none was disturbed.
    rm -r "$GPU_WORK"/small-killed*
    GPU_SMALL="${GPU_SMALL/--ckpt-every 40/--ckpt-every 0}" differs small_killed small-killed \
        "they ended with 0, not 137"
}
