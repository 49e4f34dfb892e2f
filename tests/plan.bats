#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-train --plan: what a step needs and sends in a world that need not exist, beside what a run
# in such a world says.

load small_run

setup_file() { small_run_prepare; }

setup() { cd "$BATS_FILE_TMPDIR" || return; }

MODEL=(--layers 4 --width 256 --heads 2 --context 32 --vocabulary 64 --global-batch 8
    --microbatch 1)

# between BEFORE AFTER: the number between these words of $output.
between() {
    sed -n "s/.*$1\\([0-9.]*\\)$2.*/\\1/p" <<<"$output" | head -n 1
}

plan() {
    run muster-train "${MODEL[@]}" "$@"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "memory and bytes are those of a real world" {
    local zero
    for zero in 0 1; do
        plan --plan 2x2 --zero "$zero" --bucket-mb 1
        [[ $output = *"8 slots of 1 x 1 samples"* ]]
        weights=$(between 'weights ' ',') moments=$(between 'moments ' ',')
        gradients=$(between 'gradients with those of others ' ',')
        near=$(between ' messages and ' ' MB on its node')
        far=$(between 'a node sends  *' ' MB to others')
        PER_NODE=2 run train_world 4 "real$zero" "${MODEL[@]}" --zero "$zero" --steps 1
        echo "$output"
        [ "$status" -eq 0 ]
        [[ $output = *"4 ranks on 2 nodes"* ]]
        [ "$weights" = "$(between 'memory of a rank  *' ' MB weights')" ]
        [ "$gradients" = "$(between 'MB moments, ' ' MB gradients')" ]
        # Shares of moments differ a little, and where all ranks are alike each sends half of what
        # its node sends, with control data.
        python3 -c 'import sys
moments, most, near, far, sent = map(float, sys.argv[1:])
assert abs(moments - most) < 0.2, (moments, most)
assert 0 <= near + far / 2 - sent < 0.2, (near, far, sent)' \
            "$moments" "$(between '[, ]' ' MB moments')" "$near" "$far" \
            "$(between 'a rank sends up to ' ' MB a step')"
    done
}

@test "without data, of a world of thousands of ranks, with the rate of its links" {
    plan --plan 512x8 --global-batch 4096
    [[ $output = *"512 nodes with 8 ranks each"* ]]
    slow=$(plan --plan 4x2@1 | sed -n 's/.*communication  *\([0-9.]*\) s.*/\1/p')
    fast=$(plan --plan 4x2@10 | sed -n 's/.*communication  *\([0-9.]*\) s.*/\1/p')
    [ "$(echo "$slow > 5 * $fast" | bc)" = 1 ]
}

@test "three nodes are told a number of slots at which each sends one piece" {
    plan --plan 3x2 --global-batch 32
    [[ $output = *"less to send "*" MB of a node with --slots 6, "*"multiple of 6" ]]
    before=$(between 'a node sends  *' ' MB to others') said=$(between 'less to send  *' ' MB')
    plan --plan 3x2 --global-batch 48
    [[ $output = *"--slots 6, nodes x a power of two" ]]
    plan --plan 3x2 --global-batch 48 --slots 6
    [[ $output != *"less to send"* ]]
    [ "$said" = "$(between 'a node sends  *' ' MB to others')" ]
    [ "$(echo "$said * 1.4 < $before" | bc)" = 1 ]
}

@test "what is no world, or one that can't share a step, is one line and 2" {
    local bad
    while read -r -a bad; do
        run muster-train "${MODEL[@]}" "${bad[@]}"
        echo "$output"
        [ "$status" -eq 2 ]
        [ "${#lines[@]}" -eq 1 ]
    done <<'END'
--plan 64x
--plan 64
--plan 0x8
--plan 4x2@
--plan 4x2@fast
--plan 4x2@1@2
--plan 4x2x2
--plan 4096x8
--plan 16x1
--plan 2x2 --slots 2
--plan 2x2 --model mlp
END
    [[ $output = *"--layers belongs to --model gpt2"* ]]
    run muster-train --plan 2x2 --model mlp
    [ "$status" -eq 2 ]
    [[ $output = *"--data is missing"* ]]
}
