#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the variables of a step's tasks against what is so.

"world.py task FOLDER SECONDS" is run by each task: rank 0 listens where the variables say, the
others go there, and each leaves a file with its host, its variables and whom it met. (srun would
mix such long lines.) SECONDS are for hangs only. "world.py check FOLDER TASKS" reads these files
and names every rule that is broken."""
import json
import os
import socket
import sys
import time

PORTS = ("MASTER_PORT", "JAX_COORDINATOR_PORT")


def listen(port):
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=128)


def greet_all(server, count, deadline):
    """Tells `count` visitors who they have met."""
    server.settimeout(max(0.1, deadline - time.monotonic()))
    for _ in range(count):
        visitor, _ = server.accept()
        visitor.sendall(f"{os.environ['SLURM_PROCID']}@{socket.gethostname()}\n".encode())
        visitor.close()


def visit(host, port, deadline):
    """Whom one meets there."""
    while True:
        try:
            visitor = socket.create_connection((host, port), timeout=5)
            with visitor, visitor.makefile() as stream:
                return stream.readline().strip()
        except OSError as error:
            if time.monotonic() > deadline:
                return f"nobody at {host}:{port}: {error}"
            time.sleep(0.05)


def task(folder, seconds):
    met, deadline = [], time.monotonic() + float(seconds)
    ports = [int(os.environ[name]) for name in PORTS]
    if os.environ["SLURM_PROCID"] == "0":
        servers = [listen(port) for port in ports]
        for server in servers:
            greet_all(server, int(os.environ["WORLD_SIZE"]) - 1, deadline)
    else:
        jax_host = os.environ["JAX_COORDINATOR_ADDRESS"].rpartition(":")[0].strip("[]")
        met = [visit(os.environ["MASTER_ADDR"], ports[0], deadline),
               visit(jax_host, ports[1], deadline)]
    with open(f"{folder}/{socket.gethostname()}-{os.getpid()}", "x") as file:
        json.dump({"host": socket.gethostname(), "met": met, "env": dict(os.environ)}, file)


class Rules:
    def __init__(self, tasks):
        self.tasks, self.broken = tasks, []

    def same(self, what, got, want):
        if got != want:
            self.broken.append(f"{what}: {got}, not {want}")

    def values(self, name):
        return [task["env"].get(name) for task in self.tasks]

    def numbers(self, name, tasks=None):
        return [int(task["env"].get(name, -1)) for task in (tasks or self.tasks)]

    def agree(self, name):
        self.same(f"{name} on all ranks", len(set(self.values(name))), 1)


def check_world(rules, size):
    every_rank = list(range(size))
    rules.same("tasks", len(rules.tasks), size)
    for name in ("RANK", "ROLE_RANK"):
        rules.same(f"{name} in all", sorted(rules.numbers(name)), every_rank)
        rules.same(f"{name} beside SLURM_PROCID", rules.values(name), rules.values("SLURM_PROCID"))
        rules.same(f"{name} beside PMIX_RANK", rules.values(name), rules.values("PMIX_RANK"))
    for name in ("WORLD_SIZE", "ROLE_WORLD_SIZE"):
        rules.same(name, rules.numbers(name), [size] * len(rules.tasks))


def check_nodes(rules):
    hosts = {}
    for one in rules.tasks:
        hosts.setdefault(one["host"], []).append(one)
    node_ranks = {}
    for host, here in hosts.items():
        everyone = list(range(len(here)))
        rules.same(f"MUSTER_LOCAL_RANK on {host}", sorted(rules.numbers("MUSTER_LOCAL_RANK", here)),
                   everyone)
        rules.same(f"LOCAL_WORLD_SIZE on {host}", rules.numbers("LOCAL_WORLD_SIZE", here),
                   [len(here)] * len(here))
        for name in ("NODE_RANK", "GROUP_RANK"):
            rules.same(f"{name} on {host}, different ones", len(set(rules.numbers(name, here))), 1)
        node_ranks[host] = rules.numbers("NODE_RANK", here)[0]
        rules.same(f"GROUP_RANK on {host}", rules.numbers("GROUP_RANK", here)[0], node_ranks[host])
    rules.same("NODE_RANK in all", sorted(node_ranks.values()), list(range(len(hosts))))
    rules.same("GROUP_WORLD_SIZE", rules.numbers("GROUP_WORLD_SIZE"),
               [len(hosts)] * len(rules.tasks))
    check_lightning(rules, {len(here) for here in hosts.values()})


def check_lightning(rules, counts):
    """Present where all nodes have as many tasks, and then that number, unless the user's own is
    there."""
    if os.environ.get("USERS_NTASKS_PER_NODE"):
        return
    want = str(counts.pop()) if len(counts) == 1 else None
    rules.same("SLURM_NTASKS_PER_NODE", rules.values("SLURM_NTASKS_PER_NODE"),
               [want] * len(rules.tasks))


def check_devices(rules):
    for one in rules.tasks:
        env = one["env"]
        visible = env.get("CUDA_VISIBLE_DEVICES", "")
        alone = visible not in ("", "NoDevFiles", "-1") and "," not in visible
        rules.same(f"LOCAL_RANK of rank {env['RANK']}", env["LOCAL_RANK"],
                   "0" if alone else env["MUSTER_LOCAL_RANK"])
        rules.same(f"JAX_LOCAL_DEVICE_IDS of rank {env['RANK']}", env.get("JAX_LOCAL_DEVICE_IDS"),
                   "0" if alone else None)
        rules.same("variables of torch's agent",
                   [name for name in env if name.startswith("TORCHELASTIC")], [])


def check_meeting(rules):
    first = [one for one in rules.tasks if one["env"]["SLURM_PROCID"] == "0"]
    if len(first) != 1:
        return
    for name in ("MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT"):
        rules.agree(name)
    env = first[0]["env"]
    meeting = f"{env['MASTER_ADDR']}:{env['JAX_COORDINATOR_PORT']}"
    rules.same("JAX_COORDINATOR_ADDRESS", env["JAX_COORDINATOR_ADDRESS"], meeting)
    for name in PORTS:
        rules.same(f"{name} outside the ephemeral range", 1024 <= int(env[name]) < 32768, True)
    for one in rules.tasks:
        if one is not first[0]:
            rules.same(f"who rank {one['env']['RANK']} met", one["met"],
                       [f"0@{first[0]['host']}"] * 2)


def read(path):
    with open(path) as file:
        return json.load(file)


def check(folder, size):
    rules = Rules([read(f"{folder}/{name}") for name in sorted(os.listdir(folder))])
    check_world(rules, size)
    if rules.tasks:
        check_nodes(rules)
        check_devices(rules)
        check_meeting(rules)
    for broken in rules.broken:
        print(broken)
    return 1 if rules.broken else 0


if __name__ == "__main__":
    RUN = {"task": task, "check": lambda folder, tasks: check(folder, int(tasks))}
    sys.exit(RUN[sys.argv[1]](*sys.argv[2:]))
