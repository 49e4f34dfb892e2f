#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows Muster's main use on this machine: starts a private Slurm of four nodes and trains a GPT-2
# on 4 × 2 tasks from English text. Jobs of higher priority preempt it twice. The result is compared
# bit for bit with the same training undisturbed. Needs root and Debian 12. In a checkout it builds
# Muster, of an installation it takes what is there. Everything it makes is below one folder in
# /var/tmp and is removed at the end, but for a report of both runs.
set -u -o pipefail
export LC_ALL=C

HERE=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
PARTS=tests # the cluster and what it needs; an installation has them beside this script
[ -d "$HERE/../tests" ] || PARTS=${HERE##*/}/tests
# shellcheck source=tests/lib/plain_path.sh
. "$HERE/../$PARTS/lib/plain_path.sh"
# shellcheck source=tests/lib/bar.sh
. "$HERE/../$PARTS/lib/bar.sh"
TOP=$(plain_path "${HERE%/*}") || exit 1
WORK=${MUSTER_QUICKSTART_DIR:-/var/tmp/muster-quickstart}
REPORT=$WORK-report.html
CLUSTER=$TOP/$PARTS/cluster/cluster
export MUSTER_CLUSTER_DIR=$WORK/cluster MUSTER_CLUSTER_GRACE=30 MUSTER_CLUSTER_KILLWAIT=10
SOURCES='' # whether this is a checkout
[ ! -e "$TOP/configure.ac" ] || SOURCES=yes
PREEMPTIONS=${MUSTER_QUICKSTART_PREEMPTIONS:-2}
KILLS=${MUSTER_QUICKSTART_KILLS:-0} # of rank 0, by SIGKILL, between the preemptions
STEPS=${MUSTER_QUICKSTART_STEPS:-200}
LIMIT=$((200 + 2 * STEPS)) # seconds that a training may take; only a hang reaches it
BEGAN=$SECONDS

# Both runs train a GPT-2 of 4 layers over bytes: 32 samples of 128 tokens per step, in 8 slots
# (parts of a step).
TRAIN_ARGS="--model gpt2 --layers 4 --width 128 --heads 4 --context 128 --vocabulary 256
	--global-batch 32 --microbatch 4 --slots 8 --steps $STEPS --warmup-steps 10 --learning-rate 1e-3
	--validate-every 50 --ckpt-every 25 --seed 2718"

say() { printf 'quickstart: %s\n' "$*"; }
fail() { say "FAIL: $*"; exit 1; }

clean_up() {
	local status=$?
	trap - EXIT
	stop_build
	if [ $status = 0 ]; then
		"$CLUSTER" down >/dev/null 2>&1
		rm -rf --one-file-system "$WORK"
	else
		"$CLUSTER" down --keep >/dev/null 2>&1
		say "logs are kept in $WORK" >&3
	fi
	exit $status
}

# Installs the packages to build Muster and run the cluster. Does not call apt when all are there.
install_packages() {
	[ "$(id -u)" = 0 ] || {
		say "needs root, for packages and for the network namespaces of the cluster"; exit 2
	}
	# shellcheck source=tests/lib/packages.sh
	. "$TOP/$PARTS/lib/packages.sh"
	packages_install ${SOURCES:+build} cluster quickstart >"$WORK/packages.log" 2>&1 ||
		{ tail -20 "$WORK/packages.log"; fail "couldn't install packages"; }
}

# Finds the programs that packages have installed, and their plugin for this Slurm.
find_installed() {
	local release folder
	BIN=$(command -v muster-train) ||
		fail "there is no muster-train in PATH: apt-get install muster, or start this in a checkout"
	BIN=${BIN%/*}
	# Without a slurm.conf srun tells no version.
	release=$({ slurmd -V || srun --version; } 2>/dev/null |
		grep -o '[0-9][0-9]\.[0-9][0-9]' | head -n 1)
	for folder in /usr/lib/*/muster/slurm-"$release" /usr/lib64/muster/slurm-"$release" \
		"${BIN%/*}/lib/slurm"; do
		PLUGIN=$folder/spank_muster.so
		[ ! -e "$PLUGIN" ] || return 0
	done
	fail "there is no plugin for Slurm $release: apt-get install muster-slurm-plugin-$release"
}

# Builds outside the source tree and installs where the cluster's unprivileged user can read.
build() {
	say "building (log: $WORK/build.log)"
	build_muster "$TOP" "$WORK" || fail "the build failed"
	BIN=$WORK/prefix/bin PLUGIN=$WORK/prefix/lib/slurm/spank_muster.so
}

# Makes tokens from the Jargon File (public domain). Debian's dict-jargon is unpacked here, not
# installed.
make_tokens() {
	mkdir -p "$WORK/text" && cd "$WORK/text" || fail "couldn't make $WORK/text"
	{ apt-get download -q dict-jargon || { apt-get update -q && apt-get download -q dict-jargon; }; } \
		>"$WORK/text.log" 2>&1 && dpkg -x dict-jargon_*.deb . ||
		{ tail -5 "$WORK/text.log"; fail "couldn't fetch the text: apt-get download dict-jargon"; }
	zcat usr/share/dictd/jargon.dict.dz >jargon.txt || fail "couldn't unpack the text"
	[ "$(stat -c %s jargon.txt)" -ge 1000000 ] || fail "the text is shorter than 1 MB"
	"$BIN/muster-tokens" -o "$JOBS/train.bin" --validation 0.05 \
		--validation-output "$JOBS/validation.bin" jargon.txt || fail "couldn't make tokens"
	chmod a+r "$JOBS"/*.bin
}

# submit NAME: submits the training as an unprivileged user; prints the job id.
submit() {
	"$CLUSTER" run env PATH="$BIN:$PATH" DATA="$JOBS/train.bin" \
		VALIDATION="$JOBS/validation.bin" \
		CKPT="$JOBS/$1" TRAIN_ARGS="$TRAIN_ARGS" \
		sbatch --parsable --chdir="$JOBS" --output="$JOBS/$1.log" --job-name="$1" --exclusive \
		"$JOBS/train-spot.sbatch"
}

job_state() { "$CLUSTER" run squeue -h -j "$1" -o %T 2>/dev/null; }

# last_step NAME: prints the last step that a run has logged, 0 for none.
last_step() {
	cat "$JOBS/$1"/metrics-*.jsonl 2>/dev/null | sed -n 's/.*"step": *\([0-9]*\).*/\1/p' | sort -n |
		tail -1 | grep . || echo 0
}

# wait_until SECONDS WHAT COMMAND…: polls until the command succeeds. RUN is the run that trains.
wait_until() {
	local limit=$((SECONDS + $1)) what=$2
	shift 2
	until "$@"; do
		[ $SECONDS -lt $limit ] || fail "$what did not happen in time"
		bar "training, step" "$(last_step "$RUN")" "$STEPS"
		sleep 0.3
	done
	bar
}
passed_step() { [ "$(last_step "$1")" -ge "$2" ]; }
job_gone() { [ -z "$(job_state "$1")" ]; }
not_running() { [ "$(job_state "$1")" != RUNNING ]; }

# preempt NAME JOB: an ondemand job takes all nodes at a random moment of the run, for two seconds.
preempt() {
	sleep "$((RANDOM % 4)).$((RANDOM % 10))"
	say "after step $(last_step "$1"): an ondemand job takes the nodes of job $2"
	"$CLUSTER" run sbatch --parsable --partition=ondemand --nodes=4 --exclusive --output=/dev/null \
		--wrap 'sleep 2' >/dev/null ||
		fail "couldn't submit the ondemand job"
	wait_until 60 "the preemption of job $2" not_running "$2"
}

# kill_rank NAME: kills rank 0, which owns the checkpoint directory.
kill_rank() {
	say "after step $(last_step "$1"): SIGKILL for rank 0"
	kill -9 "$(jq .pid "$JOBS/$1/owner.json")" || fail "couldn't kill rank 0"
}

# Trains with interruptions, each at least 5 steps after the start or the interruption before.
run_preempted() {
	local job resumed=0 k all=$((PREEMPTIONS + KILLS))
	RUN=preempted
	job=$(submit preempted) || fail "couldn't submit the training"
	for ((k = 1; k <= all; k++)); do
		wait_until 90 "step $((resumed + 5)) of job $job" passed_step preempted $((resumed + 5))
		if ((k * KILLS / all > (k - 1) * KILLS / all)); then
			kill_rank preempted
		else
			preempt preempted "$job"
		fi
		resumed=$(last_step preempted)
	done
	wait_until "$LIMIT" "the end of job $job" job_gone "$job"
}

run_undisturbed() {
	local job
	RUN=undisturbed
	job=$(submit undisturbed) || fail "couldn't submit the training"
	wait_until "$LIMIT" "the end of job $job" job_gone "$job"
}

# Prints one line per attempt (start of the job) from the trainer's records. The seconds lost are
# those from an attempt's last finished step to the start of the next attempt.
print_attempts() {
	local dir=$JOBS/preempted attempt nodes first why last lost next ended
	say "attempts of the preempted run:"
	printf '  %7s  %-8s  %5s  %5s  %-12s  %s\n' attempt nodes first last "why it ended" "seconds lost"
	for attempt in $(record start .attempt); do
		nodes=$(record start .nodes "$attempt")
		first=$(record start '([.step, 0] | max) + 1' "$attempt")
		why=$(record end .why "$attempt")
		last=$(jq -s 'map(select(.norm != null).step) | max' "$dir/metrics-$attempt.jsonl")
		next=$(record start .time $((attempt + 1)))
		lost=-
		ended=$(jq -rs 'map(select(.norm != null).time) | last' "$dir/metrics-$attempt.jsonl")
		ended=$(date -d "$ended" +%s.%N)
		[ -z "$next" ] || lost=$(awk -v a="$ended" -v b="$next" 'BEGIN { printf "%.1f", b - a }')
		printf '  %7s  %-8s  %5s  %5s  %-12s  %s\n' "$attempt" "$nodes" "$first" "$last" \
			"${why:-killed}" "$lost"
	done
}

# record EVENT FIELD [ATTEMPT]: prints a field of the preempted run's records of that event.
record() {
	local records="select(.event == \"$1\")"
	[ -z "${3-}" ] || records+=" | select(.attempt == $3)"
	jq -r "$records | $2" "$JOBS/preempted/attempts.jsonl"
}

# Checks final checkpoints, loss curves and number of preemptions. Sets LOSS, the last step's loss.
compare() {
	local name file curves
	printf -v name 'step-%08d' "$STEPS"
	for file in "$JOBS/undisturbed/$name"/*.safetensors; do
		cmp "$file" "$JOBS/preempted/$name/$(basename "$file")" ||
			fail "the final weights differ: $(basename "$file")"
	done
	[ -n "${file##*\**}" ] || fail "the undisturbed run left no checkpoint $name"
	curves=("$("$BIN/muster-curve" "$JOBS/preempted")" \
		"$("$BIN/muster-curve" "$JOBS/undisturbed")")
	[ "${curves[0]}" = "${curves[1]}" ] || fail "the loss curves differ"
	[ "$(grep -c '"event": *"notice"' "$JOBS/preempted/attempts.jsonl")" -ge "$PREEMPTIONS" ] ||
		fail "the run was preempted fewer than $PREEMPTIONS times"
	LOSS=$(tail -1 <<<"${curves[0]}" | awk '{print $3}')
}

# Lets the model write, and draws both runs into a file that stays.
show() {
	say "the model writes:"
	"$BIN/muster-generate" -q --tokens 160 --prompt "hacker: " "$JOBS/preempted" |
		fold -s -w 76 | sed 's/^/    /'
	[ -x "$BIN/muster-report" ] || return 0
	"$BIN/muster-report" --title "Muster's quickstart" -o "$REPORT" \
		"$JOBS/preempted" "$JOBS/undisturbed" 2>"$WORK/report.log" ||
		{ cat "$WORK/report.log"; fail "couldn't draw the report"; }
	say "what happened, to look at: file://$REPORT"
	[ -z "${MUSTER_QUICKSTART_RUNS-}" ] ||
		cp -r "$JOBS/preempted" "$JOBS/undisturbed" "$MUSTER_QUICKSTART_RUNS" ||
		fail "couldn't copy the runs to $MUSTER_QUICKSTART_RUNS"
}

main() {
	say "takes two to five minutes on two cores, and 200 MB below $WORK, which it removes again"
	exec 3>&1 # for clean_up: standard output may be redirected to a log when it runs
	trap clean_up EXIT
	trap 'exit 1' INT TERM HUP
	rm -rf --one-file-system "$WORK" && mkdir -p "$WORK" && chmod 755 "$WORK" ||
		fail "couldn't make $WORK"
	install_packages
	if [ -n "$SOURCES" ]; then build; else find_installed; fi
	"$CLUSTER" up 4 --plugin "$PLUGIN" ||
		fail "couldn't start the cluster"
	JOBS=$("$CLUSTER" status jobs)
	cp "$HERE/train-spot.sbatch" "$JOBS/"
	make_tokens
	say "training, with $PREEMPTIONS preemptions$( ((KILLS == 0)) || echo " and $KILLS kills")"
	run_preempted
	say "training the same, undisturbed"
	run_undisturbed
	print_attempts
	compare
	show
	say "took $((SECONDS - BEGAN)) s"
	say "PASS: $PREEMPTIONS preemptions, final loss $LOSS," \
		"weights bit-identical to the uninterrupted run"
}

main "$@"
