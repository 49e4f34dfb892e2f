#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ptxas.py [--write]: compiles each CUDA kernel for three generations of cards, and holds what
ptxas says of it against tests/ptxas.tsv. A kernel that takes more registers runs fewer threads at
once, and one that spills goes through memory; neither shows in a result. No card is needed.

The table has a line for each source and each generation: the most registers of a thread, the bytes
that all its kernels spill, the most static shared memory of a block, and the number of tensor core
instructions in its PTX. --write makes it anew. Another release of nvcc allots otherwise: then
nothing is held, and the status is 77."""
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
TABLE = TOP / "tests" / "ptxas.tsv"
KERNELS = TOP / "trainer" / "cuda" / "kernels"
ARCHS = ("80", "90", "100")
NVCC = os.environ.get("NVCC", "nvcc")
FLAGS = ["-O3", "-std=c++17", "--fmad=false", "-I", str(TOP)]
COLUMNS = ("registers", "spilled", "shared", "mma")
ENTRY = re.compile(r"Compiling entry function '\S+' for 'sm_(\d+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def run(*words):
    done = subprocess.run([NVCC, *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"ptxas: {NVCC} failed: {done.stdout[-2000:]}")
    return done.stdout


def release():
    return re.search(r"release ([\d.]+)", run("--version"))[1]


def measure(source):
    """{arch: figures} of a source."""
    found = {arch: collections.Counter() for arch in ARCHS}
    with tempfile.TemporaryDirectory() as folder:
        targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ARCHS]
        arch = None
        for line in run(*FLAGS, *targets, "-Xptxas", "-v", "-c", "-o", f"{folder}/object",
                        source).splitlines():
            if match := ENTRY.search(line):
                arch = found[match[1]]
            elif match := SPILL.search(line):
                arch["spilled"] += int(match[1]) + int(match[2])
            elif match := USED.search(line):
                arch["registers"] = max(arch["registers"], int(match[1]))
                arch["shared"] = max(arch["shared"], int(match[2] or 0))
        for name in ARCHS:
            run(*FLAGS, f"-arch=compute_{name}", "-ptx", "-o", f"{folder}/ptx", source)
            text = pathlib.Path(folder, "ptx").read_text(encoding="utf-8")
            found[name]["mma"] = len(re.findall(r"^\s*mma\.sync", text, re.MULTILINE))
    return found


def table(figures, nvcc):
    lines = ["# What ptxas.py has found; nvcc " + nvcc,
             "\t".join(("# source", "sm", *COLUMNS))]
    for source, found in sorted(figures.items()):
        lines += ["\t".join((source, arch, *(str(found[arch][column]) for column in COLUMNS)))
                  for arch in ARCHS]
    return "\n".join(lines) + "\n"


def recorded():
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return lines[0].split()[-1], {(row[0], row[1]): dict(zip(COLUMNS, map(int, row[2:])))
                                  for row in rows}


def differences(figures, held):
    """What is worse than in the table. The others may be better."""
    for source, found in figures.items():
        for arch in ARCHS:
            was = held.pop((source, arch), None)
            if was is None:
                yield f"{source} for sm_{arch} is not in the table"
                continue
            for column in COLUMNS:
                now = found[arch][column]
                if now > was[column] or (column == "mma" and now != was[column]):
                    yield f"{source} for sm_{arch}: {column} {now}, was {was[column]}"
    yield from (f"{source} for sm_{arch} is in the table, and is gone" for source, arch in held)


def main():
    nvcc = release()
    if sys.argv[1:] != ["--write"]:
        of, held = recorded()
        if of != nvcc:
            print(f"ptxas: nvcc {nvcc} is here, and the table is of {of}: nothing is held")
            return 77
    sources = sorted(KERNELS.glob("*.cu"))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        figures = dict(zip((path.name for path in sources), pool.map(measure, sources)))
    if sys.argv[1:] == ["--write"]:
        TABLE.write_text(table(figures, nvcc), encoding="utf-8")
        return 0
    worse = list(differences(figures, held))
    print("\n".join(f"ptxas: {line}: tests/ptxas.py --write takes it over" for line in worse)
          or f"ptxas: {len(figures)} sources for sm_{', sm_'.join(ARCHS)} are as in the table")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
