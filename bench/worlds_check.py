# SPDX-License-Identifier: Apache-2.0
"""The work of worlds.sh --check: steps of worlds whose nodes are network namespaces with slow links
between them, beside what worlds.py says of them."""
import os
import tempfile

import nodes
import worlds
from overlap import Network, sh

WORLDS = ((2, 1), (2, 2), (4, 2), (4, 4), (8, 4), (8, 8))   # nodes, ranks of each
SECONDS = 8      # that the bytes between nodes take: all else is little beside that
AIM = 0.15       # of the measured time


def check(options):
    """Of a step of this world: the measured seconds and bytes, the model's seconds, and the bytes
    that were counted."""
    options.slots = options.nodes * options.ranks
    found = worlds.ask(options, "canonical", options.nodes, options.slots, options.megabytes)
    rate = found["far_bytes"] / SECONDS
    network = Network(options.nodes)
    network.shape(rate)
    options.rate = max(network.measure(rate) for _ in range(nodes.LOOKS)) * 8e-9
    with tempfile.TemporaryDirectory(dir="/run") as folder:
        _, median, sent = nodes.measure(options, folder, ("canonical",))["canonical"]
    network.remove()
    model = worlds.seconds(options, found["near"] + found["far"], found["far_bytes"],
                           found["near_bytes"])
    return median, sent, model, found["far_bytes"]


def main():
    options = worlds.parse()
    options.rounds = 3
    sh("mount", "-t", "tmpfs", "tmpfs", "/run")  # the names of networks end with this process
    worst = 0
    print(f"{options.megabytes} MB of gradients; load {os.getloadavg()[0]:.1f}")
    print(f"{'nodes':>5} {'ranks':>5} {'MB sent':>8} {'counted':>8} {'seconds':>8} {'model':>6}")
    for options.nodes, options.ranks in WORLDS:
        seconds, sent, model, counted = check(options)
        worst = max(worst, abs(model / seconds - 1))
        print(f"{options.nodes:5} {options.ranks:5} {sent / 1e6:8.1f} {counted / 1e6:8.1f} "
              f"{seconds:8.2f} {model:6.2f}", flush=True)
    print(f"bench: worlds-model-error {worst:.3f} of the measured time, aim <= {AIM}: "
          f"{'met' if worst <= AIM else 'missed'}")


if __name__ == "__main__":
    main()
