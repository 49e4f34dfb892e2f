# SPDX-License-Identifier: Apache-2.0
"""The work of worlds.sh --check: steps of worlds whose nodes are network namespaces with slow links
between them, beside what worlds.py says of them. The rate of a node is that at which it sends to
all others at once while all of them do, over plain connections: TCP's own part is in it."""
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

import figure
import nodes
import worlds
from overlap import Network, sh

WORLDS = ((2, 1), (2, 2), (4, 2), (4, 4), (8, 4), (8, 8))   # nodes, ranks of each
SECONDS = 5      # that the bytes between nodes take: all else is little beside that
LOOKS = 3        # at the rate: other work on the machine can only slow one down
QUEUE = 2 << 20  # bytes that a port holds: a short one loses packets where all ranks meet
AIM = 0.15       # of the measured time


def exchange(node, count, each):
    """A node's part of all_to_all: prints the seconds in which it has sent and received `each`
    bytes to and from each of the others."""
    with socket.create_server((Network.address(node), 7000), backlog=count) as server:
        peers = []
        for other in range(node):
            while True:
                try:
                    peers.append(socket.create_connection((Network.address(other), 7000)))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
        peers += [server.accept()[0] for _ in range(node + 1, count)]
    for peer in peers:  # all begin once all are there
        peer.send(b"x")
    for peer in peers:
        peer.recv(1)
    began = time.perf_counter()

    def receive(peer):
        left = each
        while left:
            left -= len(peer.recv(min(left, 1 << 20)))

    threads = [threading.Thread(target=peer.sendall, args=(bytes(each),)) for peer in peers]
    threads += [threading.Thread(target=receive, args=(peer,)) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(time.perf_counter() - began)


def all_to_all(count, rate):
    """Bytes a second that each node sends to all others, for about two seconds."""
    each = int(2 * rate / (count - 1))
    command = [sys.executable, os.path.abspath(__file__), "--exchange"]
    ends = [subprocess.Popen(["ip", "netns", "exec", f"n{node}", *command,
                              *map(str, (node, count, each))], stdout=subprocess.PIPE, text=True)
            for node in range(count)]
    return (count - 1) * each / max(float(end.communicate(timeout=120)[0]) for end in ends)


def check(options):
    """Of a step of this world: the measured seconds and bytes, the model's seconds, and the bytes
    that were counted."""
    options.slots = options.nodes * options.ranks
    found = worlds.ask(options, "canonical", options.nodes, options.slots, options.megabytes)
    rate = found["far_bytes"] / SECONDS
    network = Network(options.nodes)
    network.shape(rate, QUEUE)
    options.rate = max(all_to_all(options.nodes, rate) for _ in range(LOOKS)) * 8e-9
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
    figure.tell("worlds-model-error", worst, "of the measured time", at_most=AIM)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--exchange"]:
        exchange(*map(int, sys.argv[2:]))
    else:
        main()
