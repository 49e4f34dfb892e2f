# SPDX-License-Identifier: Apache-2.0
"""The work of nodes.sh: reduce_step on every rank of each node."""
import argparse
import os
import subprocess
import sys
import tempfile

import figure
from overlap import Network, sh

AIM_FLAT, AIM_BOUND = 0.6, 1.1
LOOKS = 5  # at the link: other work on the machine can only slow one down
KINDS = ("canonical", "flat", "native")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=2, help="of a node")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=1, help="of a node, in Gbit/s")
    return parser.parse_args()


def measure(options, folder, kinds=KINDS):
    """By kind: seconds of the fastest round and of the median one, and bytes that left a node."""
    environment = dict(
        os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", MUSTER_IFNAME="wire",
        MUSTER_RDZV_DIR=folder, MUSTER_RDZV_ID="bench", GROUP_WORLD_SIZE=str(options.nodes),
        LOCAL_WORLD_SIZE=str(options.ranks), WORLD_SIZE=str(options.nodes * options.ranks))
    processes = []
    for rank in range(options.nodes * options.ranks):
        node, local = divmod(rank, options.ranks)
        processes.append(subprocess.Popen(
            ["ip", "netns", "exec", f"n{node}", os.path.join(options.build, "bench/reduce_step"),
             *map(str, (options.megabytes, options.slots, options.rounds, 1)), "wire", *kinds],
            env=dict(environment, RANK=str(rank), GROUP_RANK=str(node), LOCAL_RANK=str(local)),
            stdout=subprocess.PIPE if rank == 0 else None, text=True))
    said = [process.communicate() for process in processes][0][0]
    if any(process.returncode for process in processes):
        sys.exit("nodes: the ranks ended with "
                 f"{[process.returncode for process in processes]}")
    rows = [line.split() for line in said.splitlines()]
    return {row[0]: (float(row[1]), float(row[2]), float(row[4])) for row in rows}


def main():
    options = parse()
    sh("mount", "-t", "tmpfs", "tmpfs", "/run")  # the names of networks end with this process
    network = Network(options.nodes)
    network.shape(options.rate * 125e6)
    rate = max(network.measure(options.rate * 125e6) for _ in range(LOOKS))
    with tempfile.TemporaryDirectory(dir="/run") as folder:
        found = measure(options, folder)
    network.remove()
    # The payload of a ring of nodes at the best rate at which payload is seen to travel.
    bound = 2 * (options.nodes - 1) / options.nodes * options.megabytes * 1e6 / rate
    print(f"{options.megabytes} MB of gradients, {options.nodes} nodes with {options.ranks} ranks "
          f"each, {options.slots} slots; a node sends {rate * 8e-9:.2f} Gbit/s of payload: at least "
          f"{bound:.2f} s a step; load {os.getloadavg()[0]:.1f}")
    for kind, (fastest, median, sent) in found.items():
        print(f"  {kind:10} fastest {fastest:.2f}, median {median:.2f} s a step; a node sends "
              f"{sent / 1e6:.1f} MB")
    median = {kind: figures[1] for kind, figures in found.items()}
    ours = median["canonical"]
    figure.tell("nodes-time", ours / median["flat"], "x without nodes", at_most=AIM_FLAT)
    figure.tell("nodes-bound", ours / bound, "x the bound", at_most=AIM_BOUND)
    figure.tell("nodes-native", ours / median["native"], "x native's ring")


if __name__ == "__main__":
    main()
