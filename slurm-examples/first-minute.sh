#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows in about a minute what Muster is for, without root and without Slurm: trains a small GPT-2
# on Muster's own documents, kills it with SIGKILL, lets it go on, and trains the same undisturbed.
# The two must have the same bits. Then the model writes a line, and a report is drawn. Takes the
# programs that are installed; where there are none it builds them first, which takes minutes.
# Everything is below one folder, which stays.
set -u -o pipefail
export LC_ALL=C

TOP=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
WORK=${MUSTER_FIRST_MINUTE_DIR:-/var/tmp/muster-first-minute-$(id -u)}
STEPS=${MUSTER_FIRST_MINUTE_STEPS:-4000}
EVERY=$((STEPS / 20))
TRAIN=(muster-train --data train.bin --validation-data validation.bin --vocabulary 256 --layers 2
	--width 64 --heads 2 --context 64 --global-batch 8 --steps "$STEPS" --warmup-steps 50
	--learning-rate 3e-3 --validate-every $((STEPS / 8)) --ckpt-every "$EVERY")

say() { printf 'first minute: %2d s: %s\n' "$SECONDS" "$*"; }
fail() { say "FAIL: $*"; exit 1; }

# Stops the build or the training that runs, when this script is stopped.
PID=
clean_up() {
	[ -z "${BUILDING-}" ] || stop_build
	[ -z "$PID" ] || kill -9 "$PID" 2>/dev/null
}

# Builds where the programs are not installed, once: the folder keeps them.
find_programs() {
	PATH=$PATH:$WORK/prefix/bin
	command -v muster-train >/dev/null && return
	[ -e "$TOP/configure.ac" ] || fail "there is no muster-train in PATH: install it (muster-train)"
	say "muster-train is not installed: building it (1 to 4 minutes, 200 MB; log: $WORK/build.log)"
	# shellcheck source=tests/lib/bar.sh
	. "$TOP/tests/lib/bar.sh"
	build_muster "$TOP" "$WORK" ||
		fail "the build failed; README.md names the packages that it needs"
}

last_step() {
	sed -n 's/^{"step": \([0-9]*\), "loss".*/\1/p' "$1"/metrics-*.jsonl 2>/dev/null | tail -n 1
}
last_loss() { muster-curve "$1" | tail -n 1 | cut -d' ' -f3; }

# begin RUN: starts a training in the background.
begin() {
	"${TRAIN[@]}" --ckpt-dir "$1" >>"$1.log" 2>&1 &
	PID=$!
}

# finish RUN: waits for it, and shows how far it is on a terminal.
finish() {
	while [ -t 1 ] && kill -0 "$PID" 2>/dev/null; do
		printf '\rstep %s of %s ' "$(last_step "$1")" "$STEPS"
		sleep 0.3
	done
	[ ! -t 1 ] || printf '\r\033[K'
	wait "$PID" || { tail -n 5 "$1.log"; fail "the training ended with status $?"; }
	PID=
}

# Tells the first loss once it is there.
tell_first() {
	until [ -n "$(last_step killed)" ] || ! kill -0 "$PID" 2>/dev/null; do
		sleep 0.05
	done
	say "the first loss is there: $(muster-curve killed 2>/dev/null | head -n 1 | cut -d' ' -f3)"
}

# Kills the training in the middle.
kill_in_the_middle() {
	until [ "$(last_step killed)" -ge $((STEPS / 2)) ] 2>/dev/null; do
		kill -0 "$PID" 2>/dev/null || break
		sleep 0.05
	done
	kill -9 "$PID" 2>/dev/null || { tail -n 5 killed.log; fail "the training ended too early"; }
	wait "$PID" 2>/dev/null
	PID=
	say "killed by SIGKILL after step $(last_step killed) of $STEPS; it goes on from its checkpoint"
}

compare() {
	local name
	printf -v name 'step-%08d' "$STEPS"
	cmp <(muster-curve killed) <(muster-curve undisturbed) || fail "the losses differ"
	cmp killed/"$name"/model-*.safetensors undisturbed/"$name"/model-*.safetensors ||
		fail "the weights differ"
	say "all $STEPS losses and the final weights are equal, bit for bit; loss $(last_loss killed)"
}

main() {
	trap clean_up EXIT
	trap 'exit 1' INT TERM HUP
	mkdir -p "$WORK" || exit
	find_programs
	rm -rf "$WORK/run" && mkdir "$WORK/run" && cd "$WORK/run" || fail "couldn't make $WORK/run"
	cat "$TOP"/README.md "$TOP"/HACKING.md "$TOP"/doc/*.md >text
	muster-tokens -q -o train.bin --validation 0.05 --validation-output validation.bin text ||
		fail "couldn't make tokens"
	say "training a GPT-2 of 2 layers on $(wc -c <text) bytes of Muster's documents"
	begin killed
	tell_first
	kill_in_the_middle
	begin killed
	finish killed
	say "training the same, undisturbed"
	begin undisturbed
	finish undisturbed
	compare
	say "the model writes:"
	muster-generate -q killed --prompt "Muster " --tokens 160 | fold -s -w 76 | sed 's/^/    /'
	if command -v muster-report >/dev/null; then
		muster-report --title "Muster's first minute" -o ../report.html killed undisturbed \
			2>report.log || { cat report.log; fail "couldn't draw the report"; }
		say "what happened, to look at: file://$WORK/report.html"
	fi
	say "PASS; next: README.md, \"A training without Python\""
}

main "$@"
