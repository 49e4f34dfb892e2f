#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every check that needs a GPU, in one command of at most 9 minutes, on a machine that may have no
# more than its driver.
#   tests/gpu.sh --pack FILE.tar.xz        from a build folder: packs its programs and their
#                                          libraries (at most 60 MiB)
#   tests/gpu.sh --pack-slurm FILE.tar.xz  this machine's Slurm, munge and PMIx, for one that has
#                                          none: unpacked at the same place
#   gpu.sh [--out DIR] [--only PARTS]      from the unpacked folder or a build folder: runs the
#                                          parts one after another, or those that match one of the
#                                          patterns: --only 'train,memcheck-*'
# After each part DIR has its TAP and a summary, so that a run that is cut short leaves what is
# done. Where there is no GPU each part is skipped with its reason. The last line is "N passed, N
# failed, N skipped"; the status is 0 if none failed.
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
pack='' pack_slurm='' pack_mib=60 out=gpu-results only='' seconds=540 part_seconds=''
child='' work=''
passed=0 failed=0 skipped=0

die() {
    echo "gpu.sh: $1" >&2
    exit 2
}

options() {
    local name
    while [ $# -gt 0 ]; do
        [ $# -gt 1 ] || die "usage: gpu.sh [--out DIR] [--only PARTS] [--seconds N] \
[--part-seconds N] | --pack FILE.tar.xz [--pack-mib N] | --pack-slurm FILE.tar.xz"
        case $1 in
        --pack) pack=$2 ;;
        --pack-slurm) pack_slurm=$2 ;;
        --out) out=$2 ;;
        --only) only=$2 ;;
        --pack-mib | --seconds | --part-seconds)
            [[ $2 =~ ^[1-9][0-9]{0,3}$ ]] ||
                die "couldn't use $1 '$2': it takes a number from 1 to 9999"
            name=${1#--} && printf -v "${name//-/_}" %s "$2"
            ;;
        *) die "couldn't use '$1': no such option" ;;
        esac
        shift 2
    done
}

# Where the programs are: bin/ of an unpacked folder, or a build folder.
find_programs() {
    local build=${MUSTER_BUILD:-$PWD}
    if [ -d "$here/bin" ]; then
        tests=$here/bin bin=$here/bin counter=$here/tap.awk
    elif [ -x "$build/muster-train" ] && [ -d "$build/tests/unit" ]; then
        tests=$build/tests/unit bin=$build counter=$here/lib/tap.awk
    else
        die "couldn't find the programs: start it in a build folder after 'make && make check TESTS=', or unpack its tarball"
    fi
    programs=()
    local file
    for file in "$tests"/test_gpu_*; do
        [[ ! -x $file || $file == *.* ]] || programs+=("$file")
    done
    [ ${#programs[@]} -gt 0 ] ||
        die "couldn't find test_gpu_* in $tests: configure where nvcc is, then 'make check TESTS='"
    by_worth
}

# All operations first, the long one last of the tests.
by_worth() {
    local file first=() last=() others=()
    for file in "${programs[@]}"; do
        case ${file##*/} in
        test_gpu_ops) first+=("$file") ;;
        test_gpu_repeat) last+=("$file") ;;
        *) others+=("$file") ;;
        esac
    done
    programs=("${first[@]}" "${others[@]}" "${last[@]}")
}

# --- packing ---

# The libraries of the programs but for those of the C library and of the driver, which belong to
# the machine.
libraries() {
    ldd "$@" | awk '$2 == "=>" && $3 == "not" { print "missing " $1 }
        $1 ~ /^lib(c|m|dl|pthread|rt|resolv|util|cuda|nvidia-.*)\.so/ { next }
        $2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u
}

# The bench beside PyTorch, where this is a build folder.
pack_bench() {
    local top=$here/..
    [ -e "$top/bench/train-gpu.sh" ] && [ -e "$bin/Makefile" ] || return 0
    make -s -C "$bin" bench/initial_weights bench/step_floor >&2 || return
    mkdir -p "$1/bench" && cp "$bin"/bench/{initial_weights,step_floor} "$1/bin/" &&
        cp "$top"/bench/{train-gpu.sh,checkpoint-gpu.sh,setup.bash} \
            "$top"/bench/{figure,train_torch,train_gpu*,checkpoint_gpu*}.py \
        "$1/bench/"
}

# The Python package with its tests, and the libraries of libmuster apart: of the others PyTorch has
# its own.
pack_python() {
    local library=$bin/.libs/libmuster.so.0 name path
    [ -e "$library" ] && [ -d "$here/python" ] || return 0
    mkdir -p "$1/python/lib" && cp -r "$here/../python/muster" "$here"/python/*.py "$1/python/" &&
        cp -L "$library" "$1/python/lib/" || return
    while read -r name path; do
        cp -L "$path" "$1/python/lib/$name" || return
    done < <(libraries "$library")
}

# What a Slurm of our own takes; the programs of Slurm come by --pack-slurm.
pack_cluster() {
    [ -x "$bin/muster-requeue" ] && [ -d "$here/cluster" ] || return 0
    cp "$bin/muster-requeue" "$1/bin/" &&
        cp "$here/gpu_slurm.sh" "$here/../slurm-examples/train-no-plugin.sbatch" "$1/" &&
        mkdir -p "$1"/tests/{cluster,lib} &&
        cp "$here"/lib/{places,wait_for}.bash "$1/tests/lib/" &&
        cp -r "$here"/cluster/{cluster,helpers.bash,lib,latency.c} "$1/tests/cluster/"
}

# The files below /usr of Debian's packages, and the libraries that they need.
slurm_files() {
    local own
    mapfile -t own < <({
        dpkg -L slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix2 iproute2
        # Debian's alternatives
        PATH=$PATH:/usr/sbin:/sbin type -p slurm{ctld,d,stepd} \
            s{batch,run,info,queue,control,cancel}
    } | grep -E '^(/usr)?/(bin|sbin|lib|share/pmix)' | while read -r file; do
        [ ! -f "$file" ] || printf '%s\n' "$file"
    done)
    [ ${#own[@]} -gt 0 ] || return
    # Those that are scripts have no libraries, which ldd takes for a failure.
    {
        printf '%s\n' "${own[@]}" && (libraries "${own[@]}" 2>/dev/null || :) | awk '{ print $2 }'
    } |
        sed -E 's,^/(usr/)?,usr/,' | sort -u
}

pack_slurm() {
    slurm_files >"$1/files" ||
        die "couldn't pack Slurm: Debian's packages of it are not installed here (tests/packages.txt)"
    tar -C / -chf - --transform 's,^,muster-gpu/slurm/,' -T "$1/files" | xz -1 -T2 >"$pack_slurm" ||
        exit 1
    [ "$(stat -c %s "$pack_slurm")" -le $((pack_mib << 20)) ] ||
        die "couldn't pack Slurm: $pack_slurm is over $pack_mib MiB"
    echo "$pack_slurm: $(stat -c %s "$pack_slurm") bytes, $(wc -l <"$1/files") files"
}

pack() {
    local folder=$1/muster-gpu name path bytes
    mkdir -p "$folder/bin" "$folder/lib" && cp "${BASH_SOURCE[0]}" "$folder/gpu.sh" &&
        cp "$counter" "$folder/tap.awk" && cp "$here/gpu_train.sh" "$folder/" || exit 1
    cp "${programs[@]}" "$bin"/muster-{train,ckptd,ckpt,curve,tokens} "$folder/bin/" || exit 1
    pack_bench "$folder" && pack_python "$folder" && pack_cluster "$folder" || exit 1
    commit=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)
    compiler=$(PATH=$PATH:/usr/local/cuda/bin nvcc --version 2>/dev/null | grep release ||
        echo unknown)
    {
        echo "packed: $(date -u +%FT%TZ), commit $commit"
        echo "compiler: $compiler"
        while read -r name path; do
            [ "$name" != missing ] ||
                die "couldn't pack: $path, which the programs need, is not on this machine"
            cp -L "$path" "$folder/lib/$name" || exit 1
            real=$(basename "$(readlink -f "$path")")
            echo "library: $name is $real$(library_version "$name" "$path")"
        done < <(libraries "$folder"/bin/*)
    } >"$folder/packed" || exit 1
    strip --strip-unneeded "$folder"/bin/* "$folder"/lib/* || exit 1
    tar -C "$1" -cf - muster-gpu | xz -1 -T2 >"$1/tarball" || exit 1
    bytes=$(stat -c %s "$1/tarball")
    if [ "$bytes" -gt $((pack_mib << 20)) ]; then
        find "$folder" -type f -printf '%10s %P\n' | sort -rn | head -n 5 >&2
        die "couldn't pack: $bytes bytes are more than $pack_mib MiB; the largest of its files are above"
    fi
    cp "$1/tarball" "$pack" || exit 1
    echo "$pack: $bytes bytes, $(find "$folder" -type f | wc -l) files. cuBLASLt (500 MB) and" \
        "NCCL (200 MB) are not among them: they are taken from CUDA or from PyTorch's wheels on" \
        "the GPU machine"
}

# --- running ---

# The first file of that name in CUDA's folders or in PyTorch's wheels.
machine_library() {
    local folder
    for folder in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu "${wheels[@]}"; do
        [ ! -e "$folder/$1" ] || { readlink -f "$folder/$1" && return; }
    done
    return 1
}

# What the machine has, for the head of the summary.
describe_machine() {
    local site name file
    wheels=()
    site=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null)
    for file in "${site:-/nonexistent}"/nvidia/*/lib; do [ ! -d "$file" ] || wheels+=("$file"); done
    machine_path=/usr/local/cuda/lib64$(printf ':%s' "${wheels[@]}")
    echo "date: $(date -u +%FT%TZ)"
    echo "gpu, driver: ${gpu:-none: $no_gpu}"
    [ ! -e "$here/packed" ] || cat "$here/packed"
    for name in libcudart.so.{13,12} libcublasLt.so.{13,12} libnccl.so.2; do
        ! file=$(machine_library "$name") ||
            echo "on the machine: $name is $file$(library_version "$name" "$file")"
    done
    machine_library libcublasLt.so.13 >/dev/null || machine_library libcublasLt.so.12 >/dev/null ||
        echo "on the machine: no cuBLASLt in /usr/local/cuda/lib64 nor in PyTorch's wheels: what needs it will say so"
}

# The version that the library itself tells, where python3 is there to ask it.
library_version() {
    local call
    case $1 in
    libcublasLt*) call='v = c.c_int(l.cublasLtGetVersion())' ;;
    libcudart*) call='l.cudaRuntimeGetVersion(c.byref(v))' ;;
    libnccl*) call='l.ncclGetVersion(c.byref(v))' ;;
    *) return ;;
    esac
    call="import ctypes as c, sys; l = c.CDLL(sys.argv[1]); v = c.c_int(); $call; print(', version', v.value)"
    timeout 10 python3 -c "$call" "$2" 2>/dev/null
}

find_gpu() {
    PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin:/usr/bin
    no_gpu="nvidia-smi, which is of the driver, is not here"
    gpu=
    type nvidia-smi >/dev/null 2>&1 || return
    gpu=$(timeout 20 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>&1) &&
        [ -n "$gpu" ] && return
    no_gpu="nvidia-smi says: ${gpu:-nothing}" gpu=
}

skip_part() { part "$1" printf '1..0 # SKIP %s\n' "$2"; }

# Seconds for a part: those that train have several checks, each with its own limit.
limit_of() {
    local limit=60
    case $1 in
    gpu_repeat) limit=120 ;;
    train) limit=150 ;;
    share) limit=120 ;;
    torch) limit=110 ;;
    python) limit=120 ;;
    slurm) limit=90 ;;
    esac
    echo "${part_seconds:-$limit}"
}

# Whether --only names the part.
wanted() {
    local patterns pattern
    [ -n "$only" ] || return 0
    IFS=, read -ra patterns <<<"$only"
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053
        [[ $1 != $pattern ]] || return 0
    done
    return 1
}

# part NAME COMMAND…: runs it under its limit, prints its TAP and its line, and writes both down.
part() {
    wanted "$1" || return 0
    local name=$1 file=$out/$1.tap left=$((seconds - SECONDS - 5)) began=$SECONDS
    local limit counts status
    shift
    limit=$(limit_of "$name")
    limit=$((left < limit ? left : limit))
    if [ $limit -ge 1 ]; then
        timeout -k 5 $limit "$@" </dev/null >"$file" 2>&1 &
        child=$!
        wait $child
        status=$? child=
    else
        printf '1..1\nnot ok 1 %s was not run: no time left of %d s\n' "$name" "$seconds" >"$file"
        status=1
    fi
    cat "$file"
    mapfile -t counts < <(awk -v status=$status -f "$counter" "$file")
    # shellcheck disable=SC2086
    set -- ${counts[0]}
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    {
        printf '%-34s %3d ok %3d not ok %3d skip %4d s\n' "$name" "$1" "$2" "$3" \
            $((SECONDS - began))
        [ ${#counts[@]} -lt 2 ] || printf '%s\n' "${counts[@]:1}"
        [ $status != 124 ] && [ $status != 137 ] || echo "    cut after $limit s"
    } | tee -a "$out/summary"
}

# The kernels' tests by one tool of the sanitizer. They check CUDA's numbers: calls that are to fail
# are no errors.
sanitize() {
    local program name
    for program in "${programs[@]}"; do
        name=${program##*/test_gpu_}
        [ "$name" != repeat ] || continue
        if [ -z "$gpu" ]; then
            skip_part "$1-$name" "no GPU: $no_gpu"
        elif ! type compute-sanitizer >/dev/null 2>&1; then
            skip_part "$1-$name" "compute-sanitizer is not on this machine"
        else
            part "$1-$name" compute-sanitizer --tool "$1" --target-processes all \
                --report-api-errors no --error-exitcode 9 \
                "${with_libraries[@]}" "$program"
        fi
    done
}

# training_part NAME: why it can't be tried, or its checks.
training_part() {
    local help
    if [ -z "$gpu" ]; then
        skip_part "$1" "no GPU: $no_gpu"
    elif ! help=$(timeout 20 "${with_libraries[@]}" "$bin/muster-train" --help 2>&1); then
        part "$1" printf '1..1\nnot ok 1 muster-train starts\n# %s\n' "${help//$'\n'/ }"
    elif [[ $help != *--device* ]]; then
        skip_part "$1" "this muster-train knows no --device"
    else
        part "$1" "${with_libraries[@]}" "GPU_PROGRAMS=$bin" "GPU_WORK=$work" \
            bash "$here/gpu_train.sh" "$1"
    fi
}

# The losses of 200 steps of 124M against PyTorch's, which brings its own libraries.
torch_part() {
    wanted torch || return 0
    local bench=$here/bench
    [ -d "$bench" ] || bench=$here/../bench
    if [ -z "$gpu" ]; then
        skip_part torch "no GPU: $no_gpu"
    elif ! timeout 60 python3 -c 'import torch' 2>/dev/null; then
        skip_part torch "python3 has no PyTorch on this machine"
    else
        part torch env "GPU_PROGRAMS=$bin" "GPU_WORK=$work/torch" "GPU_BENCH=$bench/train-gpu.sh" \
            "GPU_OUT=$(cd "$out" && pwd)" \
            GPU_CHECK_SECONDS=105 bash "$here/gpu_train.sh" torch
    fi
}

# The Python package, of which PyTorch is a part.
python_part() {
    wanted python || return 0
    local folder=$here/python package=$here/python library=$here/python/lib
    [ -d "$library" ] || { package=$here/../python library=$bin/.libs; }
    if [ -z "$gpu" ]; then
        skip_part python "no GPU: $no_gpu"
    elif [ ! -e "$library/libmuster.so.0" ]; then
        skip_part python "this tarball has no libmuster"
    elif ! timeout 60 python3 -c 'import torch' 2>/dev/null; then
        skip_part python "python3 has no PyTorch on this machine"
    else
        part python env "GPU_PROGRAMS=$bin" "GPU_WORK=$work/python" "GPU_PYTHON=$folder" \
            "PYTHONPATH=$package${PYTHONPATH:+:$PYTHONPATH}" \
            "LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
            "MUSTER_LIBRARY=$library/libmuster.so.0" GPU_CHECK_SECONDS=100 \
            bash "$here/gpu_train.sh" python
    fi
}

# Slurm's daemons are the machine's, or those that --pack-slurm packed.
slurm_part() {
    local top=$here cluster=$here/cluster
    [ ! -d "$here/tests" ] || cluster=$here/tests/cluster
    [ -e "$here/train-no-plugin.sbatch" ] || top=$here/../slurm-examples
    if [ -z "$gpu" ]; then
        skip_part slurm "no GPU: $no_gpu"
    elif [ ! -e "$here/gpu_slurm.sh" ] || [ ! -d "$cluster" ]; then
        skip_part slurm "this tarball has no cluster: the build had no Slurm"
    else
        part slurm "${with_libraries[@]}" "GPU_PROGRAMS=$bin" "GPU_LIBRARIES=$here/lib" \
            "GPU_CLUSTER=$cluster" "GPU_SLURM=$here/slurm" \
            "GPU_JOB=$top/train-no-plugin.sbatch" bash "$here/gpu_slurm.sh"
    fi
}

run_parts() {
    local program
    for program in "${programs[@]}"; do
        part "${program##*/test_}" "${with_libraries[@]}" "$program"
    done
    [ -x "$tests/test_gpu_repeat" ] ||
        skip_part gpu_repeat "no test runs each operation 100 times in this build"
    training_part train
    training_part share
    torch_part
    python_part
    slurm_part
    sanitize memcheck
    sanitize racecheck
}

# However the run ends, its counts are in the summary.
finish() {
    trap - EXIT
    [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
    [ -z "$work" ] || rm -rf --one-file-system "$work"
    printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped | tee -a "$out/summary"
    [ "$1" = 0 ] && [ $failed -eq 0 ]
    exit
}

options "$@"
if [ -n "$pack$pack_slurm" ]; then
    # Of a name that no function has for another folder: the trap may run in one.
    packing=$(mktemp -d) || exit 1
    trap 'rm -rf "$packing"' EXIT
    [ -z "$pack_slurm" ] || pack_slurm "$packing"
    [ -z "$pack" ] || { find_programs && pack "$packing"; }
    exit
fi
find_programs
mkdir -p "$out" && rm -f "$out"/*.tap && : >"$out/summary" ||
    die "couldn't write into '$out': choose another by --out"
work=$(mktemp -d "${TMPDIR:-/tmp}/muster-gpu.XXXXXX") ||
    die "couldn't make a folder for the runs in ${TMPDIR:-/tmp}"
bin=$(cd "$bin" && pwd) || exit 1
export CMOCKA_MESSAGE_OUTPUT=TAP
find_gpu
describe_machine >"$out/summary"
cat "$out/summary"
# The libraries are for the programs alone: the machine's tools have their own.
with_libraries=(env "LD_LIBRARY_PATH=$here/lib:$machine_path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
trap 'finish 1' EXIT
trap 'finish 1' INT TERM HUP
run_parts
finish 0
