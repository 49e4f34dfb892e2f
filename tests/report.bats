#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-report, and its page as a browser shows it.

load small_run
bats_require_minimum_version 1.5.0

# A run that is let through, one with two notices and a kill, and one that a program logged itself,
# whose name and words are those of somebody who means harm.
setup_file() {
    small_run_begin
    local signal
    for signal in TERM KILL TERM; do
        STEP_MILLISECONDS=100 LD_PRELOAD=$MUSTER_BUILD/tests/tools/.libs/slow_steps.so \
            REPLACE=exec train_cut --ckpt-every 5 >>cut.out 2>&1 3>&- &
        wait_for 20 durable_after "$(ls -d cut/step-* 2>/dev/null | tail -n 1)"
        kill -$signal $!
        wait $! || :
    done
    train_cut >>cut.out 2>&1
    mkdir '<b>own'
    python3 - <<'END'
import json
with open("<b>own/attempts.jsonl", "w") as out:
    print(json.dumps({"event": "start", "time": 1767225600.0, "cluster": "", "job": 0,
        "attempt": 0, "step": -1, "world_size": 2,
        "nodes": "</script><script>document.title = 'taken'</script>"}), file=out)
with open("<b>own/metrics-0.jsonl", "w") as out:
    for step in range(1, 9):
        print(json.dumps({"step": step, "<i>accuracy</i>": step / 8, "milliseconds": 500,
            "time": f"2026-01-01T00:00:{step:02}.000Z"}), file=out)
    print(json.dumps({"step": 8, "sample": "</script><u>The</u> model\\n"}), file=out)
END
}

train_cut() {
    train cut --validation-data valid.u16 --validate-every 10 --tensorboard "$@"
}

# durable_after FOLDER: whether there is a newer checkpoint than that.
durable_after() {
    local newest
    newest=$(ls -d cut/step-* 2>/dev/null | tail -n 1)
    [ -n "$newest" ] && [ "$newest" != "$1" ] && [ -e "$newest/manifest.json" ]
}

setup() {
    cd "$BATS_FILE_TMPDIR" || return
    command -v muster-report || skip "no muster-report: apt-get install libjs-dygraphs"
}

# browse OPTION… FILE: Debian's Chromium, and what it and the page's programs complain about.
browse() {
    command -v chromium >/dev/null || skip "no Chromium: apt-get install chromium"
    timeout $((5 * HANG)) chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --user-data-dir="$BATS_TEST_TMPDIR/chromium" --virtual-time-budget=5000 \
        --enable-logging=stderr "${@:1:$#-1}" "file://$PWD/${*:$#}" 2>chromium.err
    ! grep CONSOLE chromium.err || return 1
}

# The words of a page, as a reader sees them, a line for each block.
words() {
    python3 - "$1" <<'END'
import html.parser, sys
class Words(html.parser.HTMLParser):
    skipped, out = 0, []
    def handle_starttag(self, tag, attributes):
        self.skipped += tag in ("script", "style", "noscript")
        if tag not in ("span", "b"):
            self.out.append("\n")
    def handle_endtag(self, tag):
        self.skipped -= tag in ("script", "style", "noscript")
    def handle_data(self, data):
        if not self.skipped:
            self.out.append(data)
page = Words()
page.feed(open(sys.argv[1], encoding="utf-8").read())
print("\n".join(" ".join(line.split()) for line in "".join(page.out).split("\n") if line.strip()))
END
}

@test "the page says what happened, and that the bits are equal" {
    run -0 muster-report whole cut -o two.html
    [ "$output" = "muster-report: two.html is written: open it in a browser" ]
    browse --dump-dom two.html >two.dom
    words two.dom | tee two.words
    grep -q '^whole has done 100 steps in 1 attempt and .*Nothing interrupted it\.' two.words
    grep -q '^cut has done 100 steps in 4 attempts and .*: finished\. 3 interruptions cost ' two.words
    grep -q "Rank 0 ran on .* CPUs\?, .*), Muster [0-9]" two.words
    grep -q '^cut and whole: all 100 common steps have the same loss, bit for bit\.$' two.words
    for title in Loss "Learning rate" "Gradient norm" "Tokens a second" "Milliseconds a step"; do
        grep -qx "$title" two.words
    done
    ! grep -x 'MFU\|Difference of the losses' two.words || false # of CPUs, and of equal runs
    for end in "saved after a notice, and left" "killed without a word" finished; do
        grep -q "$end" two.words
    done
    [ "$(grep -o 'class="attempt"' two.dom | wc -l)" -eq 5 ]
    [ "$(grep -o 'class="notice"' two.dom | wc -l)" -eq 2 ]
    [ "$(grep -o 'class="wait hatched"' two.dom | wc -l)" -eq 3 ]
    # A canvas and its axes for each chart.
    grep -q 'data-charts="5"' two.dom
    [ "$(grep -o '<canvas' two.dom | wc -l)" -ge 5 ]
    [ "$(grep -o 'dygraph-axis-label-x' two.dom | wc -l)" -ge 10 ]
}

@test "the page needs no network" {
    muster-report whole --title 'A "title" & more' -o - >one.html
    python3 - <<'END'
import html.parser
class Links(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        assert not {"src", "href", "srcset", "action"} & {name for name, _ in attributes}, tag
Links().feed(open("one.html", encoding="utf-8").read())
END
    grep -q "Content-Security-Policy\" content=\"default-src 'none'" one.html
    grep -q '<title>A "title" &amp; more</title>' one.html
}

# distinct IMAGE: how many colours its first rows have, unlike those of an empty page.
distinct() {
    python3 - "$1" <<'END'
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
at, packed = 8, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    packed += data[at + 8:at + 8 + size] if kind == b"IDAT" else b""
    at += size + 12
raw = zlib.decompress(packed)
print(len({raw[i:i + 3] for i in range(0, len(raw), 3)}), struct.unpack(">II", data[16:24]))
END
}

@test "it is drawn in the light, in the dark, and on a phone" {
    muster-report whole cut -o two.html
    browse --window-size=1300,2400 --screenshot=light.png two.html
    browse --window-size=1300,2400 --blink-settings=preferredColorScheme=0 --screenshot=dark.png \
        two.html
    browse --window-size=500,2400 --screenshot=phone.png two.html
    for image in light dark phone; do
        read -r colours size < <(distinct $image.png)
        echo "$image: $colours colours, $size"
        [ "$colours" -gt 500 ]
    done
    ! cmp light.png dark.png || false
}

@test "what a program logged is drawn, and its words are only words" {
    muster-report '<b>own' -o own.html
    browse --dump-dom own.html >own.dom
    words own.dom | tee own.words
    grep -q '^<b>own has done 8 steps in 1 attempt' own.words
    grep -qx '<i>accuracy</i>' own.words
    grep -qxF '</script><u>The</u> model\n' own.words
    grep -qF "<script>document.title = 'taken'</script>" own.words
    grep -qF '<title>The run in &lt;b&gt;own</title>' own.dom
}

@test "TensorBoard shows each step once, with the bits that it had" {
    ls cut/tensorboard
    [ "$(ls cut/tensorboard | wc -l)" -eq 4 ]
    /usr/bin/python3 "$MUSTER_TOP/tests/lib/events.py" cut/tensorboard >events
    diff <(awk -F '\t' '$1 == "loss/train" { print $2, $3 }' events | sort -n) \
        <(muster-curve cut | awk '{ print $1, $2 }')
    diff <(awk -F '\t' '$1 == "loss/validation" { print $2, $3 }' events | sort -n) \
        <(muster-curve cut | awk 'NF == 7 { print $1, $6 }')
    diff <(awk -F '\t' '$1 == "gradient norm" { print $2, $3 }' events | sort -n) \
        <(muster-curve cut | awk '{ print $1, $4 }')
    grep -q '^checkpoint/seconds until durable' events
    run -2 muster-train --data tokens.u16 --tensorboard
    [[ $output = *"--tensorboard has no directory: give --ckpt-dir"* ]]
}

@test "an image for a document" {
    command -v gnuplot || skip "no gnuplot: apt-get install gnuplot-nox"
    run -0 muster-report whole cut --svg loss.svg
    [ -z "$output" ] || { echo "$output"; false; }
    [ ! -e report.html ]
    python3 - <<'END'
import xml.etree.ElementTree as tree
texts = "".join(tree.parse("loss.svg").getroot().itertext())
assert all(word in texts for word in ("step", "loss", "whole", "cut", "difference")), texts
END
    run -0 muster-report whole --svg one.svg
    ! grep -q difference one.svg || false
    # A name can't end its quotes.
    odd=$'odd\nsystem "touch taken"'
    cp -r whole "$odd"
    run -0 muster-report "$odd" --svg odd.svg
    [ ! -e taken ]
    run -65 muster-report '<b>own' --svg none.svg
    [[ $output = *"none of its steps has a loss"* ]]
}

@test "muster-curve draws in the terminal, and hands all numbers to other programs" {
    command -v gnuplot || skip "no gnuplot: apt-get install gnuplot-nox"
    run -0 muster-curve --plot whole
    echo "$output"
    [ "$(wc -l <<<"$output")" -le 24 ]
    [[ $output = *loss*'*'* ]]
    python3 - <<'END'
import csv, json, subprocess
def export(form, run):
    return subprocess.run(["muster-curve", "--export", form, run], check=True, text=True,
        stdout=subprocess.PIPE).stdout.splitlines()
rows = list(csv.DictReader(export("csv", "cut")))
objects = [json.loads(line) for line in export("jsonl", "cut")]
assert [int(row["step"]) for row in rows] == [one["step"] for one in objects]
bits = [row["loss_bits"] for row in rows if row["loss_bits"]]
assert bits == [one["loss_bits"] for one in objects if "loss_bits" in one] and len(bits) == 100
printed = subprocess.run(["muster-curve", "cut"], check=True, text=True,
    stdout=subprocess.PIPE).stdout.splitlines()
assert bits == [line.split()[1] for line in printed]
assert [float(row["loss"]) for row in rows if row["loss"]] == \
    [float(line.split()[2]) for line in printed]
assert any(float(row["checkpoint.bytes"]) > 0 for row in rows if row["checkpoint.bytes"])
own = list(csv.DictReader(export("csv", "<b>own")))
assert [float(row["<i>accuracy</i>"]) for row in own] == [step / 8 for step in range(1, 9)]
END
    run -2 muster-curve --export xml whole
    [[ $output = *"--export xml is neither csv nor jsonl"* ]]
    run -2 muster-curve --plot --export csv whole
    [[ $output = *"give one of --plot, --export and --scaling"* ]]
    run -65 muster-curve --plot '<b>own'
    [[ $output = *"there is no step with a loss to draw" ]]
}

@test "what it can't use" {
    run -2 muster-report
    [[ $output = *"give the checkpoint directory of a run, or of several"* ]]
    mkdir -p empty
    run -2 muster-report whole empty
    [ "$output" = "muster-report: empty has no record of an attempt: give the checkpoint directory of a training" ]
    run -2 muster-report nowhere
    [[ $output = *nowhere* ]]
    cp -r whole $'bad\377'
    run -1 muster-report whole $'bad\377' -o bad.html
    [[ $output = *"or the path of a run is not UTF-8" && ! -e bad.html ]]
    run -1 muster-report whole -o nowhere/x.html
    [ "$output" = "muster-report: couldn't write nowhere/x.html: No such file or directory" ]
    run -69 muster-report whole -o /dev/full
    [[ $output = *"couldn't write /dev/full: No space left on device" ]]
}
