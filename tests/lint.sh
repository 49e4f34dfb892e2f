#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/lint.sh [--quick | --tidy] [FILE…]: looks for faults in all sources that git tracks, or in
# these files. Prints a line for each finding, and ends with 1 if there is one. A tool that is
# missing is left out, with a line that names its package.
#   --quick  without clang-tidy, which takes minutes
#   --tidy   clang-tidy alone
# clang-tidy needs a configured build, MUSTER_BUILD, which `make lint` sets. With
# MUSTER_LINT_SINCE=COMMIT its analyzer, which takes nine tenths of the time, looks only at sources
# that have changed since the merge base with that commit.
set -u -o pipefail

LONGEST=100
# Lines that may be longer: the name of a test, also where a file's head lists it, and one with a
# text of 75 characters or more, which a program prints or a test looks for; tables and commands of
# Markdown.
LONG_CODE="@test \"|#  [0-9]+  [a-z_]+\.bats: |.*(\"[^\"]{75,}|'[^']{75,})[\"']"
LONG_PROSE="\||    "
# In a bats file each test is a subshell with variables of its own (SC2030, SC2031, SC2128, SC2178,
# SC2190), a sourced file reads some (SC2034), a failed cd ends the test (SC2164), "!" would hide a
# failure (SC2143), and files have plain names that may be those of functions or programs (SC2010,
# SC2011, SC2012, SC2013, SC2094, SC2209).
NOT_IN_BATS=SC2010,SC2011,SC2012,SC2013,SC2030,SC2031,SC2034,SC2094
NOT_IN_BATS+=,SC2128,SC2143,SC2164,SC2178,SC2190,SC2209
# TRAIN_ARGS of the examples is several words.
NOT_IN_SBATCH=SC2086

usage() {
    sed -n 's/^# \(tests\/lint.sh [^:]*\):.*/usage: \1/p; s/^#   /  /p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

quick='' tidy='' found=''
case ${1-} in
--quick) quick=yes && shift ;;
--tidy) tidy=yes && shift ;;
-*) usage ;;
esac

# ---- the files ----

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 2
[ "$(git -C "$top" rev-parse --show-toplevel 2>/dev/null)" -ef "$top" ] || {
    echo "lint: couldn't list the sources: $top is no git checkout" >&2 && exit 2
}
if [ $# -gt 0 ]; then
    mapfile -d '' files \
        < <(git ls-files -z --full-name --cached --others --exclude-standard -- "$@")
else
    mapfile -d '' files < <(git -C "$top" ls-files -z)
fi
cd "$top" || exit 2
[ ${#files[@]} -gt 0 ] || {
    echo "lint: couldn't find a source: git has none of that name" >&2 && exit 2
}

sources=() shell=() bats=() tests=() sbatch=() python=() make=() awk=() pages=() prose=()
for file in "${files[@]}"; do
    [ -f "$file" ] || continue
    case $file in
    *.c | *.h | *.cc | *.cu) sources+=("$file") ;;
    *.bats) bats+=("$file") ;;
    *.sbatch) sbatch+=("$file") ;;
    *.sh | *.bash) shell+=("$file") ;;
    *.py) python+=("$file") ;;
    *.mk | *.m4 | Makefile.am | configure.ac) make+=("$file") ;;
    *.awk) awk+=("$file") ;;
    doc/*.[1-9]) pages+=("$file") ;;
    *.md) prose+=("$file") ;;
    *) IFS= read -r line <"$file" && [[ $line =~ ^'#!'.*sh$ ]] && shell+=("$file") ;;
    esac
    case $file in tests/*.bats | tests/*.bash) tests+=("$file") ;; esac
done

# ---- the checks: each prints its findings ----

# tool COMMAND PACKAGE: whether it is there.
tool() {
    command -v "$1" >/dev/null || {
        echo "lint: there is no $1 here, it is left out: apt-get install $2" >&2; return 1
    }
}

# The lines of a compiler's output that name a finding.
findings() { sed -n '/: \(error\|warning\): /p'; }

format() { clang-format --dry-run --Werror -- "${sources[@]}" 2>&1 | findings; }

scripts() { shellcheck -f gcc -- "${shell[@]}"; }
scripts_bats() { shellcheck -f gcc -e $NOT_IN_BATS -- "${bats[@]}"; }
scripts_sbatch() { shellcheck -f gcc -e $NOT_IN_SBATCH -- "${sbatch[@]}"; }

# Of "a && b" and "! a" bash hears a failing a only where that is the last word of a test or a
# function.
conditions() {
    awk 'FNR == 1 { held = "" }
        held != "" && !/^ *(#.*)?$/ { if (!/^ *}/) print held; held = "" }
        /^ +(! |\[.* \]\]? && )/ && !/ \|\| / && !/(\||\\|&&|\{)$/ {
            held = FILENAME ":" FNR ": a failure of this condition goes unheard" }' "$@"
}

# In groff, class w is all warnings; class all has none of macros that do not exist.
pages_groff() {
    local page
    for page in "${pages[@]}"; do
        LC_ALL=C.UTF-8 MANWIDTH=80 man -l --warnings=w "$page" 2>&1 >/dev/null | sed "s|^|$page: |"
    done
}

# The pages have a version in the place of a date.
pages_mandoc() { mandoc -T lint -W warning "${pages[@]}" | grep -v ': WARNING: missing date, '; }

python_syntax() {
    python3 -c '
import ast, sys
for name in sys.argv[1:]:
    try:
        ast.parse(open(name, "rb").read(), name)
    except SyntaxError as error:
        print(f"{name}:{error.lineno}: {error.msg}")' "${python[@]}"
}

# Of a syntax error it also shows the place.
python_flakes() { pyflakes3 "${python[@]}" 2>&1 | grep -E '^[^ ]+:[0-9]+:'; }

# Modules that would not be installed.
python_installed() {
    local file
    for file in "${python[@]}"; do
        [[ $file != python/muster/* ]] || grep -qE "^\s$file( |$)" python/python.mk ||
            echo "$file: not in python/python.mk"
    done
}

# long_lines MAY FILE…: lines that are too long, but for those that begin with MAY.
long_lines() {
    local file
    for file in "${@:2}"; do
        case $file in *.md) sed '/^```/,/^```$/s/.*//' "$file" ;; *) cat "$file" ;; esac |
            LC_ALL=C.UTF-8 grep -nHE --label="$file" "^.{$((LONGEST + 1))}"
    done | grep -vE "^[^:]*:[0-9]+:($1)" |
        sed "s/^\([^:]*:[0-9]*\):.*/\1: more than $LONGEST characters/"
}

# check ARRAY COMMAND…: runs it if there are such files. One that fails without a finding is one.
check() {
    local -n kind=$1
    local said status=0
    [ ${#kind[@]} -gt 0 ] || return 0
    said=$("${@:2}") || status=$?
    [ -n "$said" ] || [ $status -le 1 ] || said="lint: $2 ended with status $status"
    [ -z "$said" ] || { printf '%s\n' "$said" && found=yes; }
}

if [ -z "$tidy" ]; then
    ! tool clang-format clang-format || check sources format
    ! tool shellcheck shellcheck || {
        check shell scripts && check bats scripts_bats && check sbatch scripts_sbatch
    }
    check tests conditions "${tests[@]}"
    ! tool man man-db || check pages pages_groff
    ! tool mandoc mandoc || check pages pages_mandoc
    if tool pyflakes3 pyflakes3; then check python python_flakes; else ! tool python3 python3 ||
        check python python_syntax; fi
    check python python_installed
    text=("${sources[@]}" "${shell[@]}" "${bats[@]}" "${sbatch[@]}" "${python[@]}" "${make[@]}")
    text+=("${awk[@]}")
    check text long_lines "$LONG_CODE" "${text[@]}"
    prose+=("${pages[@]}")
    check prose long_lines "$LONG_PROSE" "${prose[@]}"
fi

# ---- clang-tidy ----

# The sources that the analyzer looks at, a line each.
changed_sources() {
    local base=''
    [ -z "${MUSTER_LINT_SINCE-}" ] || base=$(git merge-base "$MUSTER_LINT_SINCE" HEAD) || return
    if [ -n "$base" ]; then git diff --name-only "$base"; else git ls-files --cached --others; fi
}

# tidy_one SOURCE FLAG…: its findings. One whose headers are not here is left out.
tidy_one() {
    local output status=0 absent header checks=()
    grep -qxF "$1" "$work/changed" || checks=(--checks=-clang-analyzer-*)
    [ "$1" = common/err.c ] || set -- "$@" -include tests/lib/analyzer.h
    output=$(clang-tidy --quiet "${checks[@]}" --header-filter="^$PWD/" "$1" -- "${@:2}" \
        2>/dev/null) || status=$?
    [ -n "$output" ] || [ $status -eq 0 ] || echo "$1: clang-tidy ended with status $status"
    absent=$(sed -n "s/.* '\(.*\)' file not found \[clang-diagnostic-error\]/\1/p" <<<"$output")
    for header in $absent; do
        [ -e "$header" ] || {
            echo "lint: clang-tidy leaves out $1: there is no $header here" >&2 && return
        }
    done
    findings <<<"$output" | sed "s|^$PWD/||"
}

tidy_all() {
    local flags
    read -ra flags < <(make -s --no-print-directory -C "$MUSTER_BUILD" lint-flags) || return 2
    # Those that a rule of some files gives, and GCC's header of OpenMP where clang has none.
    flags+=(-std=gnu11 "-I$top" "-I$top/lib" -idirafter "$work")
    # It explores a third of the states that it would by default, in half of the time.
    flags+=(-Xclang -analyzer-config -Xclang max-nodes=75000)
    flags+=('-DBINDIR="/"' '-DLIBEXECDIR="/"' '-DPMIX_LIBDIR="/"' '-DSOURCE_DIR="/"'
        '-DOUR_FOLDERS="/"')
    ln -s "$(${CC:-cc} -print-file-name=include/omp.h)" "$work/omp.h"
    export -f tidy_one findings
    export work
    changed_sources >"$work/changed" || return 2
    printf '%s\n' "${sources[@]}" | grep '\.c$' |
        xargs -r -d '\n' -P "$(nproc)" -I '{}' bash -c 'tidy_one "$@"' bash '{}' "${flags[@]}" |
        sort -u
}

if [ -z "$quick" ] && tool clang-tidy clang-tidy; then
    if [ -e "${MUSTER_BUILD-}/config.h" ]; then
        work=$(mktemp -d "${TMPDIR:-/tmp}/muster-lint-XXXXXX") || exit 2
        trap 'rm -rf "$work"' EXIT
        check sources tidy_all
    else
        echo "lint: clang-tidy is left out: it needs a configured build: run make lint in one" >&2
    fi
fi
[ -z "$found" ]
