# SPDX-License-Identifier: Apache-2.0
# How far something is, as a bar on the terminal; for a build its log tells. To be sourced.
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
