#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# doc/images/draw.sh: draws the pictures of the documents anew, from a training on a private Slurm
# that is preempted ten times and killed three times, and the same training undisturbed. Takes about
# five minutes; needs root, Debian 12, chromium, gnuplot and graphviz, and an installed Muster.
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

MUSTER_QUICKSTART_DIR=$WORK/quickstart MUSTER_QUICKSTART_RUNS=$WORK/runs \
    MUSTER_QUICKSTART_PREEMPTIONS=10 MUSTER_QUICKSTART_KILLS=3 MUSTER_QUICKSTART_STEPS=1200 \
    "$TOP/slurm-examples/quickstart.sh"
cd "$WORK/runs"
muster-report --title 'Ten preemptions and three kills' -o report.html preempted undisturbed
muster-report --svg "$TOP/doc/images/two-runs.svg" preempted undisturbed
shot report 1000 2200 "file://$WORK/runs/report.html"
REPORT=report.html "$TOP/doc/site/build.sh" "$WORK/site"
shot site 1300 900 "file://$WORK/site/index.html"
dot -Tsvg "$TOP/doc/images/how-it-works.dot" -o "$TOP/doc/images/how-it-works.svg"
