#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What C programs get from libmuster, on a real Slurm.

load helpers
load ring
load training
load ../lib/documents

setup_file() {
    export EXCHANGE=$MUSTER_BUILD/tests/unit/test_nccl_exchange
    export MUSTER_CLUSTER_GRACE=30 MUSTER_CLUSTER_KILLWAIT=5
    plugin_locate || return 0
    cluster_begin 4 --plugin "$PLUGIN"
    ring_build
    mkdir "$JOBS/slurm-examples"
    cp "$MUSTER_TOP/slurm-examples/ring.sbatch" "$JOBS/slurm-examples/"
}

# Whether the run in folder $JOBS/$1 has a checkpoint of a step that its attempt $2 has made.
has_saved() {
    [ "$(muster-ckpt ls --json "$JOBS/$1" 2>/dev/null | grep -c "\"attempt\": *$2")" -gt 0 ]
}

srun() { cluster run timeout -k 10 "$HANG" srun "$@"; }

@test "the NCCL unique id of rank 0 reaches all ranks over PMIx" {
    [ -x "$EXCHANGE" ] || skip "no test_nccl_exchange: MUSTER_BUILD is not a build with its tests"
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$EXCHANGE" share
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -cE '^id [0-9a-f]{256}$' <<<"$output")" -eq 8 ]
    [ "$(grep '^id' <<<"$output" | sort -u | wc -l)" -eq 1 ]
    [[ $output != *"id 000000000000"* ]]
}

@test "a rank that can't take part in NCCL is named by all, with its node, at once" {
    [ -x "$EXCHANGE" ] || skip "no test_nccl_exchange: MUSTER_BUILD is not a build with its tests"
    local began=$SECONDS
    run srun --mpi=pmix --kill-on-bad-exit=0 -N4 -n4 "$EXCHANGE" fail
    echo "$output"
    in_time 15 $began # the deadline is 30
    [ "$(grep -c '^rank 1 (on n2): nccl: couldn.t find a GPU: ask for one$' <<<"$output")" -eq 4 ]
}

@test "without GPUs every rank of a program says so at once, in the same line" {
    [ ! -e /dev/nvidiactl ] || skip "this machine has a GPU"
    cat >"$JOBS/comm.c" <<'END'
#include <muster.h>
#include <stdio.h>
int main(void)
{
	struct muster *muster;
	struct ncclComm *comm;
	int status = muster_open(&muster, 30);
	if (!status) {
		status = muster_nccl_comm(muster, 30, &comm);
		printf("node %s: %s\n",
			muster_node(muster, (muster_rank(muster) + 1) % muster_world_size(muster)),
			muster_error());
		fflush(stdout);
		muster_fence(muster, 0);
		muster_close(muster, 1);
	}
	return status;
}
END
    # shellcheck disable=SC2046
    cc -std=c99 -pedantic -Wall -Werror "$JOBS/comm.c" $(pkg-config --cflags --libs muster) \
        -Wl,-rpath,"$(pkg-config --variable=libdir muster)" -o "$JOBS/comm"
    local began=$SECONDS
    run srun --mpi=pmix --kill-on-bad-exit=0 -N4 --ntasks-per-node=2 "$JOBS/comm"
    echo "$output"
    in_time 15 $began # the deadline is 30
    [ "$status" -eq 2 ]
    # Each knows its neighbour's node, too.
    [ "$(sed -n 's/^node \(n[1-4]\): .*nccl: couldn.t .*/\1/p' <<<"$output" | sort | tr -d '\n')" \
        = n1n1n2n2n3n3n4n4 ]
    [ "$(sed -n 's/^node n[1-4]: //p' <<<"$output" | sort -u | wc -l)" -eq 1 ]
}

@test "a rank that fails by itself, or whose node has another checkpoint directory, ends all with its name" {
    cat >"$JOBS/alone.c" <<'END'
#include <muster.h>
#include <stdio.h>
int main(void)
{
	struct muster *muster = NULL;
	int mine = 0, all[8], step = 0, status = muster_open(&muster, 30), rank = muster_rank(muster);
	while (!status && (rank != 5 || step++ < 3))
		status = muster_allgather(muster, &mine, all, sizeof mine, 0);
	status = muster_end(muster, NULL, NULL,
		status ? status : muster_put(muster, "bad key", "", 0), 30);
	printf("%s\n", muster_error());
	return status;
}
END
    # shellcheck disable=SC2046
    cc -std=c99 -pedantic -Wall -Werror "$JOBS/alone.c" $(pkg-config --cflags --libs muster) \
        -Wl,-rpath,"$(pkg-config --variable=libdir muster)" -o "$JOBS/alone"
    local began=$SECONDS
    run srun --mpi=pmix -N4 --ntasks-per-node=2 "$JOBS/alone"
    echo "$output"
    in_time 15 $began # the deadline is 30
    [ "$status" -eq 2 ]
    # Nobody was killed before it had said so.
    [ "$(grep -c "^rank 5 (on n3): rendezvous: couldn't use the key 'u.bad key'" <<<"$output")" \
        -eq 8 ]
    # The first step saves on a disk of its node alone.
    run srun --mpi=pmix -N1 -n4 -w n1 "$JOBS/ring" 5 /tmp/own
    [ "$status" -eq 0 ]
    run srun --mpi=pmix -N4 "$JOBS/ring" 9 /tmp/own
    echo "$output"
    [ "$status" -ne 0 ]
    refusal='^ring: rank 1 (on n2): resume: couldn.t read step 5 in /tmp/own, .*does this node see the same directory'
    [ "$(grep -c "$refusal" <<<"$output")" -eq 4 ]
}

@test "the example in C: preempted, requeued, resumed, and the right result" {
    # The manual's line, with fewer steps.
    line=$(commands cluster "$MUSTER_TOP/doc/guide/trainer.md" | grep ring.sbatch)
    line=${line/1000/400}
    job=$(cluster run env SBATCH_EXCLUSIVE=exclusive SBATCH_OUTPUT=slurm-%j.out \
        bash -c "${line//\/shared/$JOBS}" |
        sed -n 's/^Submitted batch job //p')
    job_wait_attempt "$job" 0 60
    wait_for 60 has_saved ring-run 0
    job_preempt "$job" 0
    job_wait "$job" 120 COMPLETED
    cat "$(job_output "$job")"
    [ "$(job_restarts "$job")" -eq 1 ]
    [ "$(grep -c 'ring: attempt 0: 8 ranks begin after step 0$' "$(job_output "$job")")" -eq 1 ]
    resumed=$(sed -n 's/ring: attempt 1: 8 ranks begin after step //p' "$(job_output "$job")")
    [ "$resumed" -ge 20 ]
    [ "$resumed" -lt 400 ]
    # It stopped and went on at the very step, and nobody else's.
    grep -qFx "$(ring_result "$resumed" 8)" "$(job_output "$job")"
    grep -qFx "$(ring_result 400 8)" "$(job_output "$job")"
    # The rank that heard of it first may have been another than the one that keeps the record.
    grep -q '"event":"\(notice\|end\)".*"why":"[^"]*SIGTERM"' "$JOBS/ring-run/attempts.jsonl"
    muster-ckpt verify "$JOBS/ring-run"
}

# step_stepd JOB RANK: the slurmstepd above this rank of ring.
step_stepd() {
    local pid
    for pid in $(cluster_pids -x ring); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURM_JOB_ID=$1" &&
            tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURM_PROCID=$2" &&
            sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status"
    done
    return 0
}

@test "the slurmstepd that reads what a C program prints is killed: it saves, and comes back" {
    job=$(STEPS=400 CKPT=$JOBS/ring-unread job_submit --exclusive slurm-examples/ring.sbatch)
    job_wait_attempt "$job" 0 60
    wait_for 60 has_saved ring-unread 0
    kill -KILL "$(step_stepd "$job" 0)"
    job_wait "$job" 240 COMPLETED
    cat "$(job_output "$job")"
    [ "$(job_restarts "$job")" -eq 1 ]
    grep -qFx "$(ring_result 400 8)" "$(job_output "$job")"
    # Rank 0 prints before the others are done with the last save: nobody waited for it in vain.
    run grep "did not come" "$(job_output "$job")"
    [ "$status" -eq 1 ]
}

@test "the example in C under muster-run: a rank dies, and the step begins again within its job" {
    sed 's/^srun /muster-run -- srun /' "$JOBS/slurm-examples/ring.sbatch" >"$JOBS/again.sbatch"
    job=$(STEPS=400 CKPT=$JOBS/again job_submit --muster --exclusive again.sbatch)
    job_wait_attempt "$job" 0 60
    wait_for 60 has_saved again 0
    read -r _ pid < <(train_rank "$job" 3 ring)
    kill -KILL "$pid"
    job_wait "$job" 120 COMPLETED
    cat "$(job_output "$job")"
    [ "$(job_restarts "$job")" -eq 0 ]
    [ "$(grep -c 'ring: attempt 0: 8 ranks begin after step ' "$(job_output "$job")")" -eq 2 ]
    grep -qFx "$(ring_result 400 8)" "$(job_output "$job")"
}

@test "the example without the plugin: its own request brings it back" {
    sed '/--muster/d; s/srun /srun --mpi=pmix --kill-on-bad-exit /' \
        "$JOBS/slurm-examples/ring.sbatch" >"$JOBS/ring-plain.sbatch"
    job=$(STEPS=400 CKPT=$JOBS/plain.ckpt job_submit --no-muster --exclusive -N2 \
        --ntasks-per-node=1 ring-plain.sbatch)
    job_wait_attempt "$job" 0 60
    wait_for 60 has_saved plain.ckpt 0
    cluster run scancel --signal=USR2 "$job"
    job_wait_attempt "$job" 1 60
    job_wait "$job" 60 COMPLETED
    cat "$(job_output "$job")"
    grep -qFx "$(ring_result 400 2)" "$(job_output "$job")"
}
