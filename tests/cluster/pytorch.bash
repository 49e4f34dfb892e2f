# SPDX-License-Identifier: Apache-2.0
# PyTorch trainings with the Python package: tests/python/program.py as a job, and what two of its
# runs have in common. A file says load helpers and load pytorch.
# shellcheck shell=bash

# For setup_file, after cluster_begin: the program, and job.sh.
pytorch_job() {
    cp "$MUSTER_TOP/tests/python/program.py" "$JOBS/"
    cat >"$JOBS/job.sh" <<'END'
#!/bin/bash
# job.sh NAME OPTION…: what all attempts of a run do. $LAUNCHER, if any, runs srun.
mkdir -p "$1.seen"
# shellcheck disable=SC2086
${LAUNCHER-} srun /usr/bin/python3 program.py --run "$1" --seen "$1.seen" "${@:2}" &
wait $!
END
    chmod a+rx "$JOBS/job.sh"
}

# same NAME OTHER [TOLERANCE]: both have read each sample once an epoch, in the same steps, and have
# come to the same state: bit for bit, or with losses that differ by less than TOLERANCE.
same() {
    (cd "$JOBS" && /usr/bin/python3 - "$@" "$STEPS" <<'END'
import json, pathlib, sys
import muster, torch
names, tolerance, steps = sys.argv[1:3], float((sys.argv[3:-1] or ["0"])[0]), int(sys.argv[-1])
def seen(name):
    read = {}
    for path in pathlib.Path(name + ".seen").iterdir():
        for line in path.read_text().splitlines():
            step, *samples = map(int, line.split())
            read.setdefault(step, {})[int(path.name)] = samples
    return [sum((read[k][r] for r in sorted(read[k])), []) for k in sorted(read)]
def losses(name):
    found = {}
    for path in sorted(pathlib.Path(name).glob("metrics-*.jsonl")):
        for line in path.read_text().splitlines():
            line = json.loads(line)
            found[line["step"]] = line["loss"]
    return [found[k] for k in sorted(found)]
a, b = map(seen, names)
assert a == b and len(a) == steps, (len(a), len(b))
for epoch in range(steps // 16):
    assert sorted(sum(a[epoch * 16:epoch * 16 + 16], [])) == list(range(384))
x, y = map(losses, names)
assert len(x) == len(y) == steps
print("largest difference of the losses", max(abs(p - q) for p, q in zip(x, y)))
assert max(abs(p - q) for p, q in zip(x, y)) <= tolerance
if tolerance == 0:
    s, t = (muster.load(name) for name in names)
    assert s["step"] == t["step"] == steps
    for name, value in s["model"].items():
        assert torch.equal(value, t["model"][name]), name
    for number, state in s["optimizer"]["state"].items():
        for key, value in state.items():
            assert torch.equal(value, t["optimizer"]["state"][number][key]), (number, key)
END
    )
}
