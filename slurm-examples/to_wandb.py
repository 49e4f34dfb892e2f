#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""to_wandb.py RUN PROJECT: sends a run, merged over its attempts, to Weights & Biases.

RUN is a checkpoint directory. Steps that an attempt did again are sent once. Needs wandb, and
muster-curve in PATH. Call it again after more steps: it goes on after those that are there.
"""
import json
import os
import subprocess
import sys

import wandb


def main(run, project):
    name = os.path.basename(os.path.realpath(run))
    lines = subprocess.run(["muster-curve", "--export", "jsonl", run], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    with wandb.init(project=project, name=name, id=name, resume="allow") as there:
        begun = there.step
        for row in map(json.loads, lines):
            step = row.pop("step")
            if step >= begun:
                there.log({key: value for key, value in row.items()
                           if not key.endswith(("_bits", "time"))}, step=step)


main(*sys.argv[1:])
