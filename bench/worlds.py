# SPDX-License-Identifier: Apache-2.0
"""The work of worlds.sh: asks bench/worlds of each world, and models the times."""
import argparse
import os
import subprocess

import figure

GRADIENTS = 124439808 * 4   # bytes, of GPT-2 124M
AIM_BYTES = 1.05            # between nodes, of a hierarchical all-reduce's
SLOTS = 16384


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--ranks", type=int, default=8, help="of a node")
    parser.add_argument("--most", type=int, default=16384, help="ranks of the largest world")
    parser.add_argument("--rate", type=float, default=100, help="of a node to others, in Gbit/s")
    parser.add_argument("--inside", type=float, default=1600, help="of a rank within its node")
    parser.add_argument("--latency", type=float, default=10, help="of a message, in microseconds")
    parser.add_argument("--svg", help="draw them there")
    parser.add_argument("--check", action="store_true", help="worlds_check.py")
    parser.add_argument("--megabytes", type=int, default=32, help="of gradients, for --check")
    return parser.parse_args()


def ask(options, kind, nodes, slots, *gradients):
    """What the busiest rank sends and adds, and far_bytes: what the busiest node sends to others.
    `gradients`: megabytes, in place of GPT-2's."""
    names = ("near", "near_bytes", "far", "far_bytes", "launches", "memory")
    said = subprocess.run(
        [os.path.join(options.build, "bench/worlds"), kind, str(slots), str(nodes),
         str(options.ranks), *map(str, gradients)],
        stdout=subprocess.PIPE, check=True, text=True).stdout
    return dict(zip(names, map(int, said.split())))


def seconds(options, messages, far_bytes, near_bytes):
    """Of a node that sends these bytes to others, and whose busiest rank these to its own."""
    return (messages * options.latency * 1e-6 + far_bytes * 8e-9 / options.rate
            + near_bytes * 8e-9 / options.inside)


def peers(options, nodes):
    """Messages of a rank, bytes of a node to others and of a rank within its own: of a ring over
    all, and of an all-reduce that first reduces on each node."""
    ranks, world = options.ranks, nodes * options.ranks
    around = 2 * (world - 1) / world * GRADIENTS
    # Of a node's ranks one sends to the next node.
    ring = (2 * (world - 1), around if nodes > 1 else 0, around)
    inside = 2 * (ranks - 1) / ranks * GRADIENTS
    between = 2 * (nodes - 1) / nodes * GRADIENTS
    return {"ring": ring,
            "hierarchical": (2 * (ranks - 1) + 2 * (nodes - 1), between, inside)}


def draw(options, table):
    kinds = ("canonical", "canonical without nodes", "a ring of all ranks", "hierarchical")
    data = "\n".join(" ".join(str(value) for value in row) for row in table)
    plots = ", ".join(f"$worlds using 1:{column + 2} with linespoints title '{kind}'"
                      for column, kind in enumerate(kinds))
    script = f"""set terminal svg size 700,400 background 'white'
set output '{options.svg}'
set logscale xy
set key left top
set xlabel 'ranks, {options.ranks} on each node'
set ylabel 'seconds of communication, by the model'
$worlds << END
{data}
END
plot {plots}
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def main():
    options = parse()
    table, last = [], None
    print(f"GPT-2 124M, {GRADIENTS / 1e6:.0f} MB of gradients, {options.ranks} ranks a node. What "
          "the busiest rank sends in a step; far: what its node sends to other nodes.")
    print(f"Model: {options.rate:g} Gbit/s a node, {options.inside:g} Gbit/s a rank within it, "
          f"{options.latency:g} us a message.")
    print(f"{'ranks':>6} {'kind':10} {'messages':>8} {'MB far':>8} {'MB near':>8} {'launches':>8} "
          f"{'MB held':>8} {'model, s':>9}  ring, hierarchical")
    nodes = 1
    while nodes * options.ranks <= min(options.most, SLOTS):
        times = {kind: seconds(options, *figures)
                 for kind, figures in peers(options, nodes).items()}
        for kind in ("canonical", "flat", "zero"):
            found = ask(options, kind, nodes, max(64, nodes * options.ranks))
            times[kind] = seconds(options, found["near"] + found["far"], found["far_bytes"],
                                  found["near_bytes"])
            print(f"{nodes * options.ranks:6} {kind:10} {found['near'] + found['far']:8} "
                  f"{found['far_bytes'] / 1e6:8.1f} {found['near_bytes'] / 1e6:8.1f} "
                  f"{found['launches']:8} {found['memory'] / 1e6:8.1f} {times[kind]:9.4f}  "
                  f"{times['ring']:.4f}, {times['hierarchical']:.4f}", flush=True)
            if kind == "canonical":
                last = found
        table.append([nodes * options.ranks, times["canonical"], times["flat"], times["ring"],
                      times["hierarchical"]])
        nodes *= 2
    nodes //= 2
    if nodes > 1:
        ratio = last["far_bytes"] / peers(options, nodes)["hierarchical"][1]
        figure.tell(f"worlds-{nodes}x{options.ranks}-bytes", ratio,
                    "x a hierarchical all-reduce's", at_most=AIM_BYTES)
    if options.svg:
        draw(options, table)


if __name__ == "__main__":
    main()
