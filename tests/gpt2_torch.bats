#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Our models against PyTorch's on the same weights and batches: loss, every gradient, and 50 steps
# of training.

load lib/places
load lib/has_torch

setup() {
    has_torch || skip "no PyTorch: apt-get install python3-torch"
}

# compare MODEL: our fast operations and those in plain C.
compare() {
    run env OMP_NUM_THREADS=2 /usr/bin/python3 "$MUSTER_TOP/tests/torch_reference.py" "$1" \
        "$MUSTER_BUILD/tests/tools/model_run" --plain
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c ' against PyTorch ' <<<"$output")" -eq 2 ]
}

@test "GPT-2 agrees with PyTorch, in plain C too" { compare gpt2; }

@test "a GPT-2 of odd sizes agrees with PyTorch, in plain C too" { compare gpt2-odd; }

@test "the MLP agrees with PyTorch, in plain C too" { compare mlp; }

@test "the MLP with batch normalisation agrees with PyTorch, in its running statistics and in plain C too" {
    compare mlp-batchnorm
}
