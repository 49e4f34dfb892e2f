# SPDX-License-Identifier: Apache-2.0
# How far something is, as a bar on the terminal; for a build its log tells. And a build of Muster
# with such a bar. To be sourced.
# shellcheck shell=bash

# bar WHAT DONE TOTAL: on a terminal, draws how far it is. Without arguments it is wiped.
bar() {
    [ -t 1 ] || return 0
    [ $# -gt 0 ] || { printf '\r\033[K'; return; }
    local done=$(($2 < $3 ? $2 : $3)) hashes='##############################'
    local dots='..............................'
    printf '\r%s [%s%s] %d of %d\033[K' "$1" "${hashes:0:30*done/$3}" "${dots:30*done/$3}" \
        $done "$3"
}

# A build writes into its log how much is to come: `to_check CONFIGURE` before that script runs, and
# `to_make TARGET…` before make does, which need not make all of it. (make -n takes config.h for
# remade each time, and with it whatever includes it.)
to_check() { echo "to check: $(grep -c 'printf %s "checking ' "$1")"; }
to_make() {
    echo "to make: $(make -n -o config.h AM_MAKEFLAGS='-o config.h' "$@" |
        grep -o 'echo "  [A-Z]* *" [^;]*' | sort -u | wc -l)"
}

# watch_build PID LOG: draws it until the process, whose output the log is, has ended; what is not
# counted is shown as its last line.
watch_build() {
    local step
    while [ -t 1 ] && kill -0 "$1" 2>/dev/null; do
        read -ra step < <(awk '
            /^to check: / { what = "configuring"; total = $3; done = 0 }
            /^to make: / { what = "building"; total = $3; done = 0 }
            /^checking |^  [A-Z]+  +/ { done++ }
            END { if (done && total) print what, done, total }
        ' "$2" 2>/dev/null) && bar "${step[@]}" ||
            printf '\r%.70s\033[K' "$(tail -n 1 "$2" 2>/dev/null)"
        sleep 0.3
    done
    bar
}

# build_muster TREE FOLDER: builds TREE, without CUDA, in FOLDER/build and installs it into
# FOLDER/prefix, with a bar. FOLDER/build.log has the rest; where it fails, its end is written.
# BUILDING is the process group of the build, while there is one: a group of its own does not hear
# of Ctrl-C, so that whoever builds calls stop_build at its own end.
BUILDING=''
build_muster() {
    local status
    set -m
    {
        { [ -x "$1/configure" ] || "$1/autogen.sh"; } &&
            mkdir -p "$2/build" && cd "$2/build" && to_check "$1/configure" &&
            "$1/configure" --prefix="$2/prefix" --with-cuda=no &&
            to_make all && make -j"$(nproc)" install
    } >"$2/build.log" 2>&1 </dev/null &
    BUILDING=$!
    set +m
    watch_build "$BUILDING" "$2/build.log"
    wait "$BUILDING"
    status=$? BUILDING=''
    [ $status = 0 ] || tail -n 30 "$2/build.log"
    return $status
}
stop_build() {
    [ -z "$BUILDING" ] || { kill -TERM -- "-$BUILDING" && wait "$BUILDING"; } 2>/dev/null
}
