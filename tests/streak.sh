#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/streak.sh [KIND…]: runs the tests of HEAD for each KIND in a fresh clone with an empty
# environment, and writes a line for each run to tests/streak.tsv: when, which commit, KIND,
# seconds, and the run's last line. Without a KIND it tells what is still to be run until the suite
# has proved itself: a failure starts the count again.
#   quiet     nothing else runs on this machine
#   load      beside stress-ng --cpu 4
#   one-core  on one CPU: the first that this script may use
#   tmp       in a clone below /tmp
#   space     in a path with a space
#   long      tests/run.sh --long; "long 1/3" is its --shard 1/3, and counts with the other two
#   repeat    each cluster file ten times
# A failed run of .ci/run is written down by hand, with the kind "ci": the count starts again too.
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
LEDGER=$PWD/tests/streak.tsv
KINDS=(quiet load one-core tmp space long repeat)
declare -A WANTED=([quiet]=6 [load]=2 [one-core]=2 [tmp]=1 [space]=1 [long]=2 [repeat]=1)

# Each line counts for its kind; one whose run failed takes back all before it.
tell() {
    local kind left=0
    for kind in "${KINDS[@]}"; do
        awk -F '\t' -v kind="$kind" -v wanted="${WANTED[$kind]}" '
            $5 !~ / 0 failed/ { count = 0; split("", shards); next }
            $3 == kind { count++ }
            index($3, kind " ") == 1 {
                shards[$3] = 1
                of = substr($3, index($3, "/") + 1)
                for (k = 1; k <= of && (kind " " k "/" of) in shards; k++);
                if (k > of) { count++; split("", shards) }
            }
            END { printf "%-9s %d of %d\n", kind, count, wanted;
                  exit count < wanted }' "$LEDGER" || left=1
    done
    return $left
}

# clone_for KIND: where the clone lies.
clone_for() {
    case $1 in
    tmp) mktemp -d /tmp/streak-XXXXXX ;;
    space) mktemp -d "$HOME/streak XXXXXX" ;;
    *) mktemp -d "$HOME/streak-XXXXXX" ;;
    esac
}

# run_kind KIND: one run, and its line. A run that failed leaves its clone with all logs.
run_kind() {
    local kind=$1 clone load='' began=$SECONDS commit words last
    commit=$(git rev-parse --short HEAD)
    # for the tests' users
    clone=$(clone_for "$kind") && git clone -q . "$clone" && chmod 755 "$clone" || return
    words=(env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$HOME"
        "$clone/tests/run.sh")
    case $kind in
    load) stress-ng --quiet --cpu 4 & load=$! ;;
    one-core) words=(taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" "${words[@]}") ;;
    long) words+=(--long) ;;
    long\ *) words+=(--long --shard "${kind#long }") ;;
    repeat) words+=(--repeat 10 tests/cluster/) ;;
    esac
    "${words[@]}" </dev/null >"$clone.log" 2>&1
    last=$(grep -E '^([a-z ]+: )?[0-9]+ passed, ' "$clone.log" | tail -n 1)
    last=${last:-stopped before its end}
    [ -z "$load" ] || kill "$load"
    printf '%(%F %H:%M)T\t%s\t%s\t%d\t%s\n' -1 "$commit" "$kind" $((SECONDS - began)) "$last" |
        tee -a "$LEDGER"
    [[ $last = *' 0 failed'* ]] || { echo "streak.sh: see $clone.log" >&2; return 1; }
    rm -rf "$clone" "$clone.log"
}

for kind; do
    [ -n "${WANTED[$kind]-}" ] || [[ $kind =~ ^long\ [1-9]/[1-9]$ ]] || {
        echo "streak.sh: no such kind as '$kind': give ${KINDS[*]}" >&2; exit 2
    }
done
if [[ " $* " = *' load '* ]] && ! command -v stress-ng >/dev/null; then
    echo "streak.sh: load needs stress-ng: apt-get install stress-ng" >&2
    exit 2
fi
for kind; do run_kind "$kind" || exit; done
touch "$LEDGER"
tell
