#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/run.sh [SECONDS [NAME…]]: builds each fuzz_NAME.c with libFuzzer and runs it from its
# seeds for that long (20; 0 for the seeds alone). Inputs that it finds go to a folder of its own,
# not to the seeds: $FUZZ_CORPUS/NAME where that is set. Needs clang; status 77 without libFuzzer.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1-20}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- attempts checkpoint ckptd_proto comm_conn rank_links first_end bootstrap \
    hostlist import layout \
    manifest npy opt_config owner part pmi2_wire gemm_plans rank_env reach run_table safetensors \
    spank_args spot_reply step_word flight tokenizer tokens
compiler=${FUZZ_CC:-clang}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The sources that a harness needs.
sources() {
    local base=(checkpoint/format/record.c
        common/{clock,descriptors,err,hash,hash_avx2,io,last_words,log,number,process}.c \
        -ljansson -lxxhash -lm)
    case $1 in
    attempts) echo checkpoint/directory/attempts.c "${base[@]}" ;;
    checkpoint)
        echo checkpoint/load/{ckpt,ckpt_read,ckpt_tables,shard}.c \
            checkpoint/format/{boxes,manifest,safetensors}.c \
            checkpoint/directory/{ckpt_dir,removable}.c common/{pages,thread}.c "${base[@]}"
        ;;
    ckptd_proto)
        echo checkpoint/{protocol/ckptd_{attach,conn,fields,proto,save,tcp},format/safetensors}.c \
            "${base[@]}"
        ;;
    reach) echo restart/{reach,nodes}.c common/{clock,err,hostlist}.c -lm ;;
    spot_reply) echo spot/reply.c "${base[@]}" ;;
    comm_conn) echo trainer/comm/comm_conn.c ;;
    tokenizer)
        echo text/{bpe,text_split,token_list,tokenizer,tokenizer_read}.c -lpcre2-8 -lutf8proc \
            "${base[@]}"
        ;;
    run_table) echo runs/run_table.c "${base[@]}" ;;
    rank_links)
        echo launch/rank_links.c launch/run_key.c common/{acceptor,siphash}.c "${base[@]}"
        ;;
    first_end)
        echo plugin/{end_channel,first_end,task_end}.c \
            common/{clock,descriptors,err,last_words,listen,number}.c -lm
        ;;
    bootstrap) echo launch/bootstrap_message.c common/siphash.c ;;
    hostlist) echo common/hostlist.c ;;
    layout) echo slurm/step_layout.c common/{err,hostlist,ident}.c ;;
    rank_env)
        echo plugin/rank_env.c checks/{check*,facts,findings}.c slurm/hooks.c \
            common/{alone,err,hostlist,ident,number}.c -lm
        ;;
    spank_args)
        echo plugin/{preflight,spank_args}.c \
            checks/{check*,facts,facts_probe,findings,site,site_mpi}.c slurm/hooks.c \
            common/{alone,clock,descriptors,err,hostlist,ident,listen,number,process}.c \
            common/run_as_user.c -lm
        ;;
    opt_config)
        echo common/{opt,opt_config,opt_parse,io,number,err,clock,log,last_words,descriptors}.c \
            -ljansson -lm
        ;;
    owner) echo checkpoint/directory/owner.c "${base[@]}" ;;
    import)
        echo checkpoint/{format/{gpt2,safetensors},convert/{hf_model,llmc_model,model_source}}.c \
            "${base[@]}"
        ;;
    manifest) echo checkpoint/format/manifest.c "${base[@]}" ;;
    pmi2_wire) echo launch/pmi2_wire.c common/{base64,clock,err,number}.c -lm ;;
    part) echo checkpoint/{save/ckpt_part,format/manifest}.c "${base[@]}" ;;
    gemm_plans) echo trainer/cuda/host/gemm_plans.c common/err.c ;;
    npy) echo trainer/data/npy.c common/err.c ;;
    flight) echo telemetry/flight_{read,table}.c "${base[@]}" ;;
    step_word) echo launch/step_word_frame.c ;;
    safetensors) echo checkpoint/format/safetensors.c "${base[@]}" ;;
    tokens) echo trainer/data/token_file.c common/err.c ;;
    *) echo "fuzz: there is no harness $1" >&2; return 1 ;;
    esac
}

echo '#define _GNU_SOURCE 1' >"$work/config.h"
echo 'int LLVMFuzzerTestOneInput(const unsigned char *b, unsigned long n) { return 0; }' \
    >"$work/probe.c"
"$compiler" -fsanitize=fuzzer -o "$work/probe" "$work/probe.c" 2>"$work/log" || {
    echo "fuzz: $compiler can't build with -fsanitize=fuzzer: apt-get install clang"
    exit 77
}

# As the build says it.
where=(-DBINDIR='"/usr/bin"' -DLIBEXECDIR='"/usr/libexec"')

cd "$top"
for name; do
    mapfile -t files < <(sources "$name" | tr ' ' '\n')
    [ ${#files[@]} -gt 0 ] || exit 2
    "$compiler" -g -O1 -std=gnu11 -I"$top" -I"$work" "${where[@]}" \
        -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
        -o "$work/fuzz_$name" "tests/fuzz/fuzz_$name.c" "${files[@]}"
    corpus=${FUZZ_CORPUS-$work/found}/$name
    mkdir -p "$corpus" "$work/place_$name"
    options=(-max_total_time="$seconds" -max_len=4096 -artifact_prefix="${FUZZ_ARTIFACTS:-$work}/")
    [ ! -e "tests/fuzz/dictionaries/$name" ] ||
        options+=(-dict="$top/tests/fuzz/dictionaries/$name")
    [ "$seconds" -gt 0 ] || options+=(-runs=0)
    [ -n "${FUZZ_CORPUS-}" ] || options+=(-verbosity=0)
    echo "fuzz: $name for $seconds s"
    # In a folder of its own, for those that read files.
    (cd "$work/place_$name" &&
        "../fuzz_$name" "${options[@]}" "$corpus" "$top/tests/fuzz/seeds/$name") || {
        echo "fuzz: $name failed; the input stands above in base64, or in \$FUZZ_ARTIFACTS where that is set"
        exit 1
    }
done
echo "fuzz: nothing found"
