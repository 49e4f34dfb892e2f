#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Each parser of what comes from outside: its seeds in CI, which must give the same result twice; in
# --long what a search finds.
# bats file_tags=ci

setup_file() {
    export FUZZ_BUILD=$BATS_FILE_TMPDIR/library
    "$BATS_TEST_DIRNAME/fuzz/run.sh" --library || [ $? -eq 77 ]
}

fuzz() {
    local seconds=0
    [ -z "${MUSTER_LONG-}" ] || seconds=20
    run "$BATS_TEST_DIRNAME/fuzz/run.sh" $seconds "$1"
    echo "$output"
    [ "$status" -ne 77 ] || skip "no libFuzzer: apt-get install clang"
    [ "$status" -eq 0 ]
}

@test "the record of attempts stands any bytes" { fuzz attempts; }

@test "the reader of checkpoints stands any headers" { fuzz checkpoint; }

@test "the protocol of the checkpoint service stands any bytes" { fuzz ckptd_proto; }

@test "the connections of ranks stand any place and any stranger" { fuzz rank_links; }

@test "a frame about words is one of this world's or none" { fuzz step_word; }

@test "what anybody may send to srun stands any bytes" { fuzz first_end; }

@test "what ranks send each other at a fence stands any bytes" { fuzz bootstrap; }

@test "what ranks send each other in a training stands any bytes" { fuzz comm_conn; }

@test "lists of hosts stand any bytes" { fuzz hostlist; }

@test "where tasks are stands any code and any layout" { fuzz layout; }

@test "what task_init makes of an environment stands any environment" { fuzz rank_env; }

@test "the plugin's arguments and options stand any words" { fuzz spank_args; }

@test "the metrics of a run stand any bytes" { fuzz run_table; }

@test "tokenizers stand any file" { fuzz tokenizer; }

@test "configuration files stand any bytes" { fuzz opt_config; }

@test "the reader of owner.json stands any bytes" { fuzz owner; }

@test "the readers of models from elsewhere stand any files" { fuzz import; }

@test "the manifest's parser stands any bytes" { fuzz manifest; }

@test "what joins the parts of a save stands any bytes" { fuzz part; }

@test "the wire protocol of PMI2 stands any bytes" { fuzz pmi2_wire; }

@test "the algorithms of the matrix products stand any text" { fuzz gemm_plans; }

@test "the safetensors parser stands any bytes" { fuzz safetensors; }

@test "the reader of where a rank stands stands any bytes" { fuzz flight; }

@test "the .npy parser stands any bytes" { fuzz npy; }

@test "the token file parser stands any bytes" { fuzz tokens; }

@test "what scontrol says of a node's address stands any bytes" { fuzz reach; }

@test "what a cloud's metadata service replies stands any bytes" { fuzz spot_reply; }

@test "each harness has its test here" {
    local file name
    for file in "$BATS_TEST_DIRNAME"/fuzz/fuzz_*.c; do
        name=${file##*/fuzz_}
        grep -q "fuzz ${name%.c}; }\$" "$BATS_TEST_FILENAME" || {
            echo "no test runs $file"
            return 1
        }
    done
}
