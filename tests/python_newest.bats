#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The Python package with the newest PyTorch of PyPI, and its types and style by the newest mypy and
# ruff.
# bats file_tags=long

load lib/places
load lib/wait_for
load lib/newest
load lib/python_package

# In a test of its own, since it takes minutes.
@test "PyTorch, mypy and ruff from PyPI" {
    why=$(newest lint mypy ruff && newest_torch) || skip "$why"
}

@test "types by mypy --strict, and style by ruff" {
    [ -e "$MUSTER_BUILD/venv-lint/complete" ] || skip "no mypy and ruff"
    cd "$MUSTER_TOP"
    "$MUSTER_BUILD/venv-lint/bin/mypy" --strict --cache-dir "$BATS_TEST_TMPDIR/mypy"
    "$MUSTER_BUILD/venv-lint/bin/ruff" check --no-cache setup.py python tests/python
    "$MUSTER_BUILD/venv-lint/bin/ruff" format --no-cache --check setup.py python tests/python
}

# unittests NAME…: modules of tests/python, with that PyTorch.
unittests() {
    [ -e "$MUSTER_BUILD/venv-torch/complete" ] || skip "no PyTorch"
    python_package
    PYTHONPATH+=:$MUSTER_TOP/tests/python
    export MUSTER_PYTHON_LONG=1 MUSTER_PATIENCE=$((2 * ${MUSTER_PATIENCE:-3}))
    cd "$MUSTER_TOP/tests/python"
    run "$MUSTER_BUILD/venv-torch/bin/python" -m unittest -v "$@"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"Ran "* && $output != *skipped* ]]
}

@test "all that Debian's PyTorch does, and killed ten times" {
    unittests test_values test_objects test_phases test_streams test_handover test_order \
        test_pytree test_run
}

@test "sharded state: by DCP and by attach, on other numbers of ranks, killed" {
    unittests test_dcp
}

@test "the same bits on any number of ranks" { unittests test_canonical; }

@test "Accelerate, Hugging Face's Trainer, Lightning and TorchTitan, stopped twice" {
    unittests test_frameworks
}

@test "the programs in doc/pytorch-dcp.md, -canonical.md and -frameworks.md run" {
    [ -e "$MUSTER_BUILD/venv-torch/complete" ] || skip "no PyTorch"
    python_package
    local name
    for name in dcp canonical frameworks; do
        mkdir "$BATS_TEST_TMPDIR/$name"
        run "$MUSTER_BUILD/venv-torch/bin/python" "$MUSTER_TOP/tests/lib/doc_programs.py" \
            "$MUSTER_TOP/doc/pytorch-$name.md" "$BATS_TEST_TMPDIR/$name"
        echo "$output"
        [ "$status" -eq 0 ]
        [[ $output = *"--- "* && $output != *Traceback* ]]
    done
}

@test "TensorBoard's own reader shows each step once" {
    [ -e "$MUSTER_BUILD/venv-torch/complete" ] || skip "no PyTorch"
    command -v "$MUSTER_BUILD/muster-train" || skip "this build has no trainer"
    load small_run
    small_run_prepare
    cd "$BATS_FILE_TMPDIR"
    train board --steps 50 --decay-steps 100 --tensorboard
    rm -r board/step-00000040 board/step-00000050
    train board --decay-steps 100 --change steps --tensorboard
    local python=$MUSTER_BUILD/venv-torch/bin/python
    "$python" -c 'import tensorboard'
    "$python" "$MUSTER_TOP/tests/lib/events.py" board/tensorboard >events
    [ "$(grep -c '^loss/train' events)" -eq 100 ]
    diff <(awk -F '\t' '$1 == "loss/train" { print $2, $3 }' events | sort -n) \
        <(muster-curve board | awk '{ print $1, $2 }')
}

@test "BPE tokens are those of tokenizers and tiktoken" {
    why=$(newest tokenizers tokenizers tiktoken) || skip "$why"
    [ -x "$MUSTER_BUILD/tests/tools/text_tokens" ] || skip "this build has no BPE tokenizers"
    cd "$BATS_TEST_TMPDIR"
    # For the vocabularies of some models, which it ships.
    local python=$MUSTER_BUILD/venv-tokenizers/bin/python
    "$python" -m pip install -q --no-deps --target litellm litellm
    run "$python" "$MUSTER_TOP/tests/bpe_reference.py" "$MUSTER_BUILD/tests/tools/text_tokens" \
        "$BATS_TEST_TMPDIR" litellm/litellm/litellm_core_utils/tokenizers
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c ' are equal$' <<<"$output")" -eq 7 ]
}

@test "the examples send a run to MLflow and to W&B" {
    why=$(newest trackers wandb mlflow-skinny) || skip "$why"
    command -v "$MUSTER_BUILD/muster-train" || skip "this build has no trainer"
    load small_run
    small_run_prepare
    cd "$BATS_FILE_TMPDIR"
    local python=$MUSTER_BUILD/venv-trackers/bin/python
    export WANDB_MODE=offline WANDB_SILENT=true MLFLOW_ALLOW_FILE_STORE=true HOME=$PWD
    export MLFLOW_TRACKING_URI=file://$PWD/mlruns
    train tracked --steps 50 --decay-steps 100
    rm -r tracked/step-00000040 tracked/step-00000050
    train tracked --decay-steps 100 --change steps
    "$python" "$MUSTER_TOP/slurm-examples/to_mlflow.py" tracked some
    "$python" - >there <<'END'
import mlflow
client = mlflow.MlflowClient()
[run] = client.search_runs([client.get_experiment_by_name("some").experiment_id])
for one in sorted(client.get_metric_history(run.info.run_id, "loss"), key=lambda one: one.step):
    print(one.step, f"{one.value:.9g}")
END
    diff there <(muster-curve tracked | awk '{ print $1, $3 }')
    "$python" "$MUSTER_TOP/slurm-examples/to_wandb.py" tracked some
    [ "$(grep -ac 'tokens_per_second' wandb/offline-run-*/run-tracked.wandb)" -ge 1 ]
}

# torchrun passes its own SIGTERM on to the ranks, and waits for them.
@test "torchrun: a notice saves the state, and the next start goes on from there" {
    [ -e "$MUSTER_BUILD/venv-torch/complete" ] || skip "no PyTorch"
    python_package
    export MUSTER_RDZV_DIR=$BATS_TEST_TMPDIR
    local words=("$MUSTER_BUILD/venv-torch/bin/torchrun" --standalone --nproc-per-node 2
        "$MUSTER_TOP/tests/python/program.py" --directory "$BATS_TEST_TMPDIR/run" --sum --workers 1)
    cd "$BATS_TEST_TMPDIR"
    OMP_NUM_THREADS=1 "${words[@]}" --epochs 1000 >first 2>&1 3>&- &
    local pid=$!
    wait_for "$HANG" has_step 5
    kill "$pid"
    wait "$pid" || :
    cat first
    stopped=$(sed -n 's/^muster: stops after step \([0-9]*\): SIGTERM on rank .*/\1/p' first)
    OMP_NUM_THREADS=1 run timeout "$HANG" "${words[@]}" --epochs $((stopped / 16 + 1))
    echo "$output"
    [ "$status" -eq 0 ]
    # Both write at the same time.
    [ "$(grep -o "rank [01] begins after step $stopped" <<<"$output" | wc -l)" -eq 2 ]
}
has_step() { grep -qs "^{\"step\": $1," "$BATS_TEST_TMPDIR"/run/metrics-*.jsonl; }
