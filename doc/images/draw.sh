#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# doc/images/draw.sh: draws the pictures of the documents anew, from a training on a private Slurm
# that is preempted ten times and killed three times, and the same training undisturbed. Takes about
# six minutes; needs root, Debian 12, chromium, gnuplot, graphviz, tmux and Open MPI, and an
# installed Muster.
set -eu -o pipefail
export LC_ALL=C

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
WORK=$(mktemp -d /var/tmp/muster-pictures-XXXXXX)
trap 'rm -rf "$WORK"' EXIT
mkdir "$WORK/runs"

# shot NAME WIDTH HEIGHT URL: a picture of a page.
shot() {
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$WORK/chromium" --virtual-time-budget=5000 \
        --screenshot="$TOP/doc/images/$1.png" --window-size="$2,$3" "$4" >/dev/null 2>&1
}

# What a terminal shows of a training of eight ranks that was stopped once, while rank 5 stands
# still.
draw_top() {
    local train pid
    train=(mpirun --allow-run-as-root --oversubscribe -n 8 muster-train --data "$WORK/top.bin"
        --ckpt-dir run1 --vocabulary 256 --layers 4 --width 64 --heads 4 --context 64
        --global-batch 16 --microbatch 2 --slots 8 --steps 2000 --warmup-steps 10
        --ckpt-every 50 --threads 1)
    mkdir "$WORK/top" && cd "$WORK/top"
    cat "$TOP"/doc/*.md | muster-tokens -q -o "$WORK/top.bin"
    timeout -s USR2 20 "${train[@]}" >log 2>&1 || true
    "${train[@]}" >log 2>&1 &
    until [ -e run1/metrics-1.jsonl ] && [ "$(wc -l <run1/metrics-1.jsonl)" -gt 200 ]; do
        sleep 1
    done
    pid=$(pgrep -f "muster-train --data $WORK/top.bin" | sed -n 7p) # mpirun is the first
    kill -STOP "$pid"
    LC_ALL=C.UTF-8 tmux -u -S "$WORK/tmux" -f /dev/null new-session -d -x 104 -y 24 muster-top run1
    sleep 6
    LC_ALL=C.UTF-8 tmux -u -S "$WORK/tmux" capture-pane -e -p | terminal_page >"$WORK/top.html"
    tmux -S "$WORK/tmux" kill-server
    kill -CONT "$pid" && kill %% && wait || true
    shot top 920 440 "file://$WORK/top.html"
    cd "$WORK/runs"
}

# A page with what a terminal shows.
terminal_page() {
    PYTHONUTF8=1 python3 -c '
import html, re, sys
styles = {"1": "font-weight:bold", "7": "background:#d6dbe1;color:#14181d", "31": "color:#f0716a",
          "33": "color:#dda63f"}
print("<meta charset=utf-8><pre style=\"background:#14181d;color:#e6e9ed;font:14px DejaVu Sans "
      "Mono;margin:0;padding:12px;min-height:100vh;box-sizing:border-box\">")
on = []
for line in sys.stdin:
    for part in re.split("(\x1b\\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            for code in part[2:-1].split(";"):
                on = [] if code in ("", "0") else on + [code]
        elif part:
            css = ";".join(styles.get(code, "") for code in on)
            print(f"<span style=\"{css}\">{html.escape(part)}</span>", end="")
print("</pre>")'
}

MUSTER_QUICKSTART_DIR=$WORK/quickstart MUSTER_QUICKSTART_RUNS=$WORK/runs \
    MUSTER_QUICKSTART_PREEMPTIONS=10 MUSTER_QUICKSTART_KILLS=3 MUSTER_QUICKSTART_STEPS=1200 \
    "$TOP/slurm-examples/quickstart.sh"
cd "$WORK/runs"
muster-report --title 'Ten preemptions and three kills' -o report.html preempted undisturbed
muster-report --svg "$TOP/doc/images/two-runs.svg" preempted undisturbed
shot report 1000 2200 "file://$WORK/runs/report.html"
draw_top
REPORT=report.html "$TOP/doc/site/build.sh" "$WORK/site"
shot site 1300 900 "file://$WORK/site/index.html"
dot -Tsvg "$TOP/doc/images/how-it-works.dot" -o "$TOP/doc/images/how-it-works.svg"
