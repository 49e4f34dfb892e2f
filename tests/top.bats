#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-top: a training of four ranks that goes on while it is watched, as text and on a terminal,
# which is tmux's.

load small_run
bats_require_minimum_version 1.5.0

# Rank 0 of a slow run stands still after each step as long as there is no file "go".
setup_file() {
    small_run_prepare
    cd "$BATS_FILE_TMPDIR" || return
    export STEPS_AFTER=$PWD/go
    touch go
    train_world 2 past --steps 20 >past.out 2>&1
}

setup() {
    export LC_ALL=C.UTF-8
    cd "$BATS_FILE_TMPDIR" || return
    touch go
}

teardown() {
    touch go
    on_terminal kill-server 2>/dev/null || :
    local left
    left=$(running "${PIDS[@]}")
    # shellcheck disable=SC2086
    [ -z "$left" ] || { kill -9 $left; wait $left; } || :
}

# Four ranks in directory $1 that have done some steps, until rank 0 stands still.
begin_run() {
    slowly start_world 4 "$@"
    wait_step "$1" 30
    rm go
}

# One line of it: says PATTERN DIR OPTION…
says() {
    muster-top --once "${@:2}" >shown && grep -qE -- "$1" shown
}

wait_says() { wait_for 20 says "$@" || { cat shown && return 1; }; }

# ---- a terminal ----

on_terminal() { tmux -S "$BATS_TEST_TMPDIR/tmux" -f /dev/null "$@" 3>&-; }

# Starts a shell on a terminal of 100 by 30, and in it muster-top with these words.
open_terminal() {
    command -v tmux >/dev/null || skip "no terminal to test with: apt-get install tmux"
    grep -q '^#define HAVE_NCURSES' "$MUSTER_BUILD/config.h" || skip "this build has no ncurses"
    rm -f status pid before after
    on_terminal new-session -d -x 100 -y 30 "exec bash --norc --noprofile"
    type_line "cd '$PWD'; stty -a >before; export PATH='$PATH'"
    type_line "muster-top $*"
}

type_line() { on_terminal send-keys -l "$1" && on_terminal send-keys Enter; }

# What is on the terminal.
screen() { on_terminal capture-pane -p; }

shows() { screen >screen.txt && grep -qE -- "$1" screen.txt; }

hides() { screen >screen.txt && ! grep -qE -- "$1" screen.txt; }

wait_shows() { wait_for 20 shows "$@" || { cat screen.txt && return 1; }; }

is_left() { [ "$(on_terminal display -p '#{alternate_on} #{cursor_flag}')" = "0 1" ]; }
has_told() { [ -s status ] && [ -s after ]; }

# left STATUS: it has ended so, and the terminal is as it was: its settings, its contents, its
# cursor.
left() {
    wait_for 20 is_left || { screen && return 1; }
    # bash leaves out what follows in the line of a program that Ctrl-C ends.
    type_line 'echo $? >status; stty -a >after'
    wait_for 20 has_told || { screen && return 1; }
    [ "$(<status)" -eq "$1" ] || { cat status; return 1; }
    diff before after
    hides '^q quits'
}

# How often a process has waited: each look and each key is a turn.
turns_of() { sed -n 's/^voluntary_ctxt_switches:\t//p' "/proc/$1/status"; }
has_turned() { [ "$(turns_of "$1")" -ge "$2" ]; }

# ---- text ----

@test "it shows the figures and the ranks of a run that goes on, and who holds it up" {
    begin_run live
    wait_says '^step +[0-9]+ of 100 ' live
    cat shown
    grep -q '^live runs: attempt 0 for .* 4 ranks on ' shown
    grep -qE '^loss +[0-9.]+$' shown
    grep -qE '^speed +[0-9]+ tokens/s, [0-9.]+ % of a step waits for communication' shown
    grep -qE '^attempts +1, goodput [0-9.]+ %$' shown
    # Rank 0 stands, the others wait for it.
    wait_says '^> +0 ' live
    cat shown
    [ "$(sed -n '/^   rank /,$p' shown | sed -n 2p | cut -c1-7)" = '>     0' ]
    [ "$(grep -cE '^\. +[123] .* waiting in ' shown)" -eq 3 ]
    wait_says '^checkpoint +step [0-9]+, [0-9]+ (s|min .*) old$' live
    # Each order has all ranks.
    for order in holding rank node step time; do
        muster-top --sort $order live >shown
        [ "$(grep -cE '^[>.] +[0-3] ' shown)" -eq 4 ]
    done
    [ "$(muster top live | sed 1q | cut -c1-10)" = "live runs:" ]
    before=$(sed -n 's/^step *\([0-9]*\) .*/\1/p' shown)
    touch go
    end_world
    says '^live finished: attempt 0 ended with 0, ' live
    says '^no rank has left a record' live
    says '^step +100 of 100 \(100.0 %\)' live
    [ "$before" -lt 100 ]
}

@test "between attempts, and after a kill" {
    begin_run cut
    kill "${PIDS[1]}"
    touch go
    end_world || [ $? -eq 75 ]
    rm go
    wait_says '^cut stopped, start it again to go on: attempt 0 ended with 75, ' cut
    grep -qE '^why +.' shown
    slowly start_world 2 cut
    wait_says '^cut runs: attempt 1 for .*, 2 ranks on ' cut
    grep -qE '^attempts +2, .*; attempt 0 ended with 75, .* ago at step [0-9]+: .' shown
    # Ranks that are killed leave their records.
    wait_says '^[ >.] +1 ' cut
    kill -9 "${PIDS[@]}"
    end_world || :
    says '^[ >.] +1 ' cut
    [ "$(grep -cE '^[ >.] +[01] ' shown)" -eq 2 ]
}

@test "it only reads: a directory of somebody else's, on a disk that is read-only" {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "a read-only disk needs root"
    find past -printf '%p %s %T@\n' | sort >files.before
    # shellcheck disable=SC2016 # of the inner shell
    unshare -m bash -c 'mount --bind past past && mount -o remount,bind,ro past && ! touch past/x &&
        muster-top past' >shown 2>touch.err
    grep -q '^past finished: ' shown
    find past -printf '%p %s %T@\n' | sort | diff files.before -
}

@test "what it can't show is one line, with a status" {
    run -2 muster-top
    [[ $output = *"give the checkpoint directory of a run"* ]]
    run -2 muster-top nowhere
    [ "$output" = "muster-top: checkpoint: couldn't open nowhere: No such file or directory; give a checkpoint directory" ]
    mkdir -p empty
    run -2 muster-top empty
    [ "$output" = "muster-top: empty has no record of an attempt: give the checkpoint directory of a training" ]
    run -2 muster-top --interval 0 past
    [[ $output = *"--interval 0 is no time from 0.1 to 86400 seconds"* ]]
    run -2 muster-top --sort size past
    [[ $output = *"--sort size is none of holding, rank, node, step and time"* ]]
    run -1 bash -c "muster-top past >/dev/full"
    [[ $output = *"couldn't write to standard output: No space left on device"* ]]
}

@test "what a directory holds does not reach the terminal as it is" {
    mkdir -p harm/standing
    python3 - <<'END'
import json
harm = "\x1b[2J\x07\x9b31m\n\x1b]0;taken\x07"
with open("harm/attempts.jsonl", "w") as out:
    for number, event in enumerate(("start", "notice", "end", "start")):
        print(json.dumps({"event": event, "time": 1767225600.0 + number, "cluster": harm, "job": 1,
            "attempt": number // 3, "step": 1, "world_size": 2, "nodes": harm, "why": harm,
            "status": 75}), file=out)
END
    head -c 1280 /dev/urandom >harm/standing/rank-00000
    muster-top harm >shown
    cat -v shown
    ! LC_ALL=C grep -q '[^[:print:]]' shown || false
    grep -q '1 file can.t be read as a record' shown
}

# ---- the whole terminal ----

@test "on a terminal the view goes on by itself, in any size, and q leaves it as it was" {
    begin_run seen
    open_terminal --interval 0.2 seen
    wait_shows '^> +0 '
    wait_shows '^\. +3 .* waiting in '
    wait_shows '^q quits, h helps, s sorts: holding; 1 to 4 of 4'
    grep -qE '^step +[0-9]+ of 100 ' screen.txt
    [ "$(on_terminal display -p '#{alternate_on} #{cursor_flag}')" = "1 0" ]
    # Five rows of a curve between the figures and the ranks.
    [ "$(sed -n '/^attempts/,/^   rank/p' screen.txt | wc -l)" -eq 7 ]
    on_terminal send-keys s
    wait_shows 's sorts: rank'
    on_terminal send-keys h
    wait_shows '^behind +how much longer'
    on_terminal send-keys x
    wait_shows '^> +0 '
    on_terminal resize-window -x 40 -y 10
    wait_shows '^q quits, h helps, s sorts: rank; 1 to '
    [ "$(wc -L <screen.txt)" -le 40 ]
    grep -q '^>     0 ' screen.txt
    # The last rank is one page away.
    on_terminal send-keys End
    wait_shows '^\.     3 '
    wait_for 20 hides '^>     0 '
    on_terminal send-keys Home
    wait_shows '^>     0 '
    pid=$(pgrep -P "$(on_terminal display -p '#{pane_pid}')")
    for size in "1 1" "2 1" "1 2" "200 2" "3 3"; do
        read -r columns rows <<<"$size"
        on_terminal resize-window -x "$columns" -y "$rows"
        turns=$(turns_of "$pid")
        wait_for 20 has_turned "$pid" $((turns + 10))
    done
    on_terminal resize-window -x 100 -y 30
    wait_shows '^> +0 '
    touch go
    end_world
    wait_shows '^seen finished: attempt 0 ended with 0, '
    wait_shows '^step +100 of 100 '
    on_terminal send-keys q
    left 0
}

@test "a signal leaves the terminal as it was" {
    open_terminal past
    wait_shows '^past finished: '
    on_terminal send-keys C-c
    left 130
    for signal in TERM HUP; do
        open_again past
        kill -$signal "$(<pid)"
        left $((128 + $(kill -l $signal)))
    done
}

# In the same terminal, with its process id in "pid".
open_again() {
    rm -f status after pid
    type_line clear
    type_line "bash -c 'echo \$\$ >pid; exec muster-top $*'"
    wait_shows '^past finished: '
}

@test "it ends with its terminal" {
    open_terminal past
    wait_shows '^past finished: '
    on_terminal send-keys q
    left 0
    open_again past
    on_terminal kill-server
    wait_for 20 is_gone "$(<pid)"
}

is_gone() { ! kill -0 "$1" 2>/dev/null; }

@test "a run that goes away is told of, and one that comes in its place is shown" {
    cp -r past moved
    open_terminal --interval 0.2 moved
    wait_shows '^moved finished: '
    mv moved away
    wait_shows '^not read: checkpoint: couldn.t open moved: No such file or directory'
    cp -r past moved
    wait_shows '^q quits'
    on_terminal send-keys q
    left 0
}

@test "a terminal of no known type is told of, with the way out" {
    for type in "" dumb no-such-terminal; do
        run -2 env TERM="$type" script -qec "muster-top past" /dev/null </dev/null
        echo "$output"
        [[ $output = *"for TERM is ${type:-not set}: set it to the terminal's type"*"--once"* ]]
    done
}
