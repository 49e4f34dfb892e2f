#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""to_mlflow.py RUN EXPERIMENT: sends a run, merged over its attempts, to MLflow.

RUN is a checkpoint directory. Steps that an attempt did again are sent once, with the times at
which they were done. Needs mlflow (or mlflow-skinny), and muster-curve in PATH; MLFLOW_TRACKING_URI
says where to.
"""
import json
import os
import subprocess
import sys

import mlflow
from mlflow.entities import Metric

BATCH = 1000  # metrics that one request may have


def metrics(run):
    lines = subprocess.run(["muster-curve", "--export", "jsonl", run], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    for row in map(json.loads, lines):
        time = row.get("time") or row.get("validation_time") or row.get("checkpoint.time") or 0
        for key, value in row.items():
            if key != "step" and not key.endswith(("_bits", "time")):
                yield Metric(key, value, int(time * 1000), row["step"])


def main(run, experiment):
    mlflow.set_experiment(experiment)
    client = mlflow.MlflowClient()
    with mlflow.start_run(run_name=os.path.basename(os.path.realpath(run))) as there:
        batch = list(metrics(run))
        for at in range(0, len(batch), BATCH):
            client.log_batch(there.info.run_id, metrics=batch[at:at + BATCH])


main(*sys.argv[1:])
