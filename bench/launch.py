# SPDX-License-Identifier: Apache-2.0
"""Measures how long the ranks of a step take to find each other: called by launch.sh, which has the
usage.

Every program is started by launch_start, which notes the moment before its exec; the figure of a
run is the latest moment at which a rank could use what it had opened, less the earliest exec of a
task: so Slurm starting some tasks later than others is part of it, for all alike. Beside it stands
the time since the last exec, which that does not touch. A run that takes longer than LIMIT hangs;
it is counted and left out of the medians. Contestants take turns."""
import argparse
import atexit
import os
import statistics
import subprocess
import sys
import tempfile

import figure

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = os.path.join(HERE, "..", "tests", "cluster", "cluster")
PARTS = ("small", "torch", "scale", "latency", "starts", "calls")
DEFAULT_PARTS = PARTS[:3]
NODES, RANKS = 4, 8
LIMIT, LARGE_LIMIT = 15, 120
# n (n - 1) / 2 connections on one machine: beyond that only the rendezvous is measured
MESH_RANKS = 64
AIM_FENCE, AIM_TORCH = 1.2, 5
AIM_TRIPS = {"mesh": 8, "meet": 4}
CALLS, FENCE_CALLS = 4000, 500  # a bare fence takes longer each time
AIM_LATE, AIM_CALLS = 1.2, 2
LATENCIES = (0, 200, 2000)  # microseconds from node to node
LOSSY = ("--latency", "2ms", "--loss", "0.1%", "--reorder", "1%")


def cluster(*command):
    return subprocess.run([CLUSTER, *map(str, command)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          check=False)


def bring_up(nodes, ranks, build, network=()):
    os.environ["MUSTER_CLUSTER_NODES_CPUS"] = str(-(-ranks // nodes))
    plugin = os.path.join(os.path.abspath(build), ".libs", "spank_muster.so")
    # Nothing of it is installed: no checkpoint service, no requeue. Those who don't say --muster
    # run without it.
    done = cluster("up", nodes, *network, "--plugin", plugin, "ckptd=off", "requeue=off")
    if done.returncode:
        sys.exit(f"launch: couldn't bring up {nodes} nodes:\n{done.stderr}")
    print(f"network: {cluster('status', 'network').stdout.strip()}", flush=True)


def run(nodes, ranks, command, limit=LIMIT, user=1):
    """The rows that the ranks printed; None when the run hung. Ends the program when it failed."""
    layout = [f"-n{ranks}", "--distribution=block"] if user == 1 else ["--ntasks-per-node=1"]
    begin = ["timeout", "-k", "20", str(limit), "srun", "-Q", "-p", "ondemand", f"-N{nodes}",
             *layout]
    done = cluster("run", "--user", user, *begin, *command)
    if done.returncode == 124:
        return None
    rows = [dict(field.split("=") for field in line.split()[2:])
            for line in done.stdout.splitlines()
            if line.startswith(f"rank {ranks} ")]
    if done.returncode or len(rows) != ranks:
        sys.exit(f"launch: {' '.join(map(str, command))} ended with {done.returncode}, {len(rows)} "
                 f"of {ranks} ranks:\n" +
                 done.stderr[:2000])
    return rows


class Contestant:
    def __init__(self, name, nodes, ranks, command, limit=LIMIT, user=1):
        self.name, self.nodes, self.ranks, self.command = name, nodes, ranks, command
        self.limit, self.user = limit, user
        self.runs, self.hung = [], 0

    def round(self):
        rows = run(self.nodes, self.ranks, self.command, self.limit, self.user)
        if rows is None:
            self.hung += 1
        else:
            self.runs.append(rows)

    def try_round(self):
        """A round whose failure is counted, not the end."""
        try:
            self.round()
        except SystemExit as failed:
            self.hung += 1
            print(failed, flush=True)

    def between(self, begin, end="usable", first=min):
        """Of each run: from the first (or last) rank's `begin` to the last one's `end`."""
        return [max(float(row[end]) for row in rows) - first(float(row[begin]) for row in rows)
                for rows in self.runs]

    def median(self, begin, end="usable", first=min):
        return statistics.median(self.between(begin, end, first))

    def report(self):
        if not self.runs:
            print(f"  {self.name:26s} hung in all {self.hung} runs", flush=True)
            return
        whole = self.between("exec")
        print(f"  {self.name:26s} {statistics.median(whole):7.3f} s ({min(whole):.3f} to "
              f"{max(whole):.3f}, median of {len(whole)})"
              f"  since the last exec {self.median('exec', first=max):.3f} s" +
              (f"; hung in {self.hung} of {self.hung + len(whole)} runs" if self.hung else ""),
              flush=True)


def programs(build):
    bench = os.path.join(os.path.abspath(build), "bench")
    start = ["--mpi=pmix", os.path.join(bench, "launch_start"), "BENCH_EXEC"]
    ours = os.path.join(bench, "launch_ours")
    return {"mesh": ["--muster", *start, ours, "mesh"],
            "meet": ["--muster", *start, ours, "meet"],
            "plain": [*start, ours, "mesh"],
            "calls": ["--muster", *start, ours, "calls"],
            "fence": [*start, os.path.join(bench, "launch_fence")],
            "start": os.path.join(bench, "launch_start")}


def torchrun(programs_of):
    """torchrun once a node; launch_start notes its exec and that of its workers. It runs as root,
    since the Python of the virtual environment may lie in root's home."""
    python = sys.executable
    return ["--mpi=none", programs_of["start"], "BENCH_EXEC", python, "-m", "torch.distributed.run",
            "--nnodes", str(NODES),
            "--nproc-per-node", str(RANKS // NODES), "--rdzv-backend", "c10d", "--rdzv-endpoint",
            "n1:29511", "--rdzv-id", "bench",
            "--no-python", programs_of["start"], "BENCH_WORKER", python,
            os.path.join(HERE, "launch_torch.py")]


def measure_small(options, parts):
    named = programs(options.build)
    ours = Contestant("muster, identity to mesh", NODES, RANKS, named["mesh"])
    meet = Contestant("muster, rendezvous alone", NODES, RANKS, named["meet"])
    plain = Contestant("the mesh without plugin", NODES, RANKS, named["plain"])
    fence = Contestant("bare PMIx fence", NODES, RANKS, named["fence"])
    peer = Contestant("torchrun, c10d, gloo", NODES, RANKS, torchrun(named), 300, "root")
    bring_up(NODES, RANKS, options.build)
    print(f"{RANKS} ranks on {NODES} nodes; load {os.getloadavg()[0]:.1f}", flush=True)
    for number in range(options.rounds):
        for one in (fence, ours, meet, plain) if number % 2 else (plain, meet, ours, fence):
            one.round()
    for number in range(options.torch_rounds if "torch" in parts else 0):
        peer.round()
    for one in (ours, meet, plain, fence):
        one.report()
    if peer.runs:
        peer.report()
        print(f"  {'':26s} {peer.median('worker'):7.3f} s since the first worker's exec, "
              f"{peer.median('imported'):.3f} s since the "
              f"first import, {peer.median('imported', first=max):.3f} s since the last; PyTorch "
              f"{peer.runs[0][0]['version']}")
    print(f"  load {os.getloadavg()[0]:.1f}", flush=True)
    if fence.runs:
        ratio = ours.median("exec") / fence.median("exec")
        figure.tell("launch-fence", ratio, "x the bare PMIx fence", at_most=AIM_FENCE)
        least = min(ours.between("exec")) / min(fence.between("exec"))
        print(f"  the fastest run of each: {least:.2f}; without the connections: "
              f"{meet.median('exec') / fence.median('exec'):.2f}; "
              f"without the plugin: {plain.median('exec') / fence.median('exec'):.2f}")
    if peer.runs:
        figure.tell("launch-torchrun", peer.median("exec") / ours.median("exec"),
                    "x faster than torchrun", at_least=AIM_TORCH)
        print("  than its workers alone, from their exec: "
              f"{peer.median('worker') / ours.median('exec'):.1f}; "
              "than init_process_group alone, "
              "from the last import: "
              f"{peer.median('imported', first=max) / ours.median('exec'):.2f}")


def measure_scale(options):
    named = programs(options.build)
    table = []
    for ranks in options.sizes:
        bring_up(options.nodes, ranks, options.build)
        limit = LIMIT if ranks <= 64 else LARGE_LIMIT
        rows = [Contestant(f"muster, rendezvous, {ranks}", options.nodes, ranks, named["meet"],
                           limit),
                Contestant(f"bare PMIx fence, {ranks}", options.nodes, ranks, named["fence"],
                           limit)]
        if ranks <= MESH_RANKS:
            rows.append(Contestant(f"muster, mesh, {ranks}", options.nodes, ranks, named["mesh"],
                                   limit))
        print(f"{ranks} ranks on {options.nodes} nodes; load {os.getloadavg()[0]:.1f}", flush=True)
        for _ in range(options.rounds if ranks <= 64
                       else min(3 if ranks <= 256 else 2, options.rounds)):
            for one in rows:
                one.round()
        for one in rows:
            one.report()
        table.append([ranks] + [one.median("exec") if one.runs else None for one in rows])
        if rows[0].runs and rows[1].runs:
            print(f"  muster / bare fence: {table[-1][1] / table[-1][2]:.2f}", flush=True)
    return table


def measure_latency(options):
    """By how many round trips a start is longer: what it takes more on a network with latency, in
    terms of that."""
    named, table = programs(options.build), {}
    for latency in LATENCIES:
        bring_up(NODES, RANKS, options.build, ("--latency", f"{latency}us") if latency else ())
        rows = {"mesh": Contestant("muster, identity to mesh", NODES, RANKS, named["mesh"]),
                "meet": Contestant("muster, rendezvous alone", NODES, RANKS, named["meet"]),
                "fence": Contestant("bare PMIx fence", NODES, RANKS, named["fence"])}
        for number in range(options.rounds):
            for one in list(rows.values())[::1 if number % 2 else -1]:
                one.round()
        for one in rows.values():
            one.report()
        table[latency] = {name: one.median("exec", first=max) for name, one in rows.items()
                          if one.runs}
    for name in table[0]:
        for latency in LATENCIES[1:]:
            trips = (table[latency][name] - table[0][name]) / (2e-6 * latency)
            print(f"  {name}: {table[latency][name] - table[0][name]:+.4f} s since the last exec "
                  f"at {latency / 1000} ms: "
                  f"{trips:.1f} round trips")
        if name in AIM_TRIPS:
            figure.tell(f"launch-round-trips-{name}", trips, "round trips",
                        at_most=AIM_TRIPS[name])


def measure_starts(options):
    """Do all starts come to an end, where handshakes are late, and where packets are?"""
    named = programs(options.build)
    build = os.path.abspath(options.build)
    late = ["env", "PARTIAL_IO=late", "LD_PRELOAD=" +
            os.path.join(build, "tests", "tools", ".libs", "partial_io.so")]
    mesh = named["mesh"]
    plain = Contestant("as the links are", NODES, RANKS, mesh)
    preloaded = Contestant("late handshakes", NODES, RANKS, [*mesh[:2], *late, *mesh[2:]])
    network = Contestant("a network with latency", NODES, RANKS, mesh)
    bring_up(NODES, RANKS, options.build)
    for _ in range(options.starts):
        plain.try_round()
        preloaded.try_round()
    for one in (plain, preloaded):
        one.report()
    bring_up(NODES, RANKS, options.build, LOSSY)
    for _ in range(options.starts // 5):
        network.try_round()
    network.report()
    for name, one in (("late", preloaded), ("network", network)):
        count = len(one.runs) + one.hung  # a start that failed is counted as one that hung
        figure.tell(f"launch-starts-{name}", len(one.runs), f"of {count} starts", at_least=count)
        print(f"  {one.median('exec') / plain.median('exec'):.2f} x the median over the links as "
              "they are")


def measure_calls(options):
    """Exchanges of a value among all ranks, again and again, by the rendezvous and by PMIx."""
    named = programs(options.build)
    rows = {"ours": Contestant(f"muster, {CALLS} calls", NODES, RANKS,
                               [*named["calls"], str(CALLS)], LARGE_LIMIT),
            "short": Contestant(f"muster, {FENCE_CALLS} calls", NODES, RANKS,
                                [*named["calls"], str(FENCE_CALLS)], LARGE_LIMIT),
            "fence": Contestant(f"bare PMIx fence, {FENCE_CALLS} calls", NODES, RANKS,
                                [*named["fence"], str(FENCE_CALLS)], LARGE_LIMIT)}
    bring_up(NODES, RANKS, options.build)
    print(f"{RANKS} ranks on {NODES} nodes; load {os.getloadavg()[0]:.1f}", flush=True)
    for number in range(options.rounds):
        for one in list(rows.values())[::1 if number % 2 else -1]:
            one.round()
    took = {}
    for name, one in rows.items():
        if one.runs:
            took[name] = [statistics.median(max(float(row[when]) for row in run)
                                            for run in one.runs) for when in ("first", "last")]
            print(f"  {one.name:28s} {1e3 * took[name][0]:8.3f} ms a call at first, "
                  f"{1e3 * took[name][1]:8.3f} ms at last, median of {len(one.runs)}" +
                  (f"; hung in {one.hung} runs" if one.hung else ""), flush=True)
    figure.tell("launch-calls-late", took["ours"][1] / took["ours"][0], "x the first calls",
                at_most=AIM_LATE)
    if "fence" in took:
        figure.tell("launch-calls-fence", took["fence"][1] / took["short"][1],
                    f"x faster than a bare PMIx fence after {FENCE_CALLS} calls",
                    at_least=AIM_CALLS)
        print(f"  at first: {took['fence'][0] / took['short'][0]:.2f}")


def draw(table, nodes, path):
    with tempfile.NamedTemporaryFile("w", suffix=".dat", encoding="utf-8") as data:
        for row in table:
            print(*(("?" if value is None else value) for value in row + [None] * (4 - len(row))),
                  file=data)
        data.flush()
        script = f"""set terminal svg size 640,420 font 'sans,13'
set output '{path}'
set datafile missing '?'
set logscale xy 2
set xlabel 'ranks on {nodes} nodes of one machine'
set ylabel 'seconds from the first exec'
set key left top
set grid
set xtics ({', '.join(str(row[0]) for row in table)})
plot '{data.name}' using 1:2 with linespoints lw 2 title 'muster, rendezvous', \\
     '{data.name}' using 1:3 with linespoints lw 2 title 'bare PMIx fence', \\
     '{data.name}' using 1:4 with linespoints lw 2 title 'muster, rendezvous and mesh'
"""
        subprocess.run(["gnuplot"], input=script, text=True, check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--torch-rounds", type=int, default=3)
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")],
                        default=[16, 64, 256, 1024])
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--draw")
    parser.add_argument("--only", choices=PARTS, action="append")
    options = parser.parse_args()
    parts = options.only or DEFAULT_PARTS
    os.environ["MUSTER_CLUSTER_DIR"] = f"/var/tmp/muster-bench-launch-{os.getuid()}"
    atexit.register(cluster, "down")
    if "small" in parts or "torch" in parts:
        measure_small(options, parts)
    if "latency" in parts:
        measure_latency(options)
    if "starts" in parts:
        measure_starts(options)
    if "calls" in parts:
        measure_calls(options)
    if "scale" in parts:
        table = measure_scale(options)
        if options.draw:
            draw(table, options.nodes, os.path.abspath(options.draw))


if __name__ == "__main__":
    main()
