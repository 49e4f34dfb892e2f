# SPDX-License-Identifier: Apache-2.0
"""The work of torch-canonical.sh: one process a rank. Rank 0 of each world tells its times."""
import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import figure
from overlap import Network, sh

GIGABIT = 125e6             # bytes a second
SLOTS, SAMPLES = 16, 2      # samples of a slot
WIDTH, LAYERS, CONTEXT, VOCABULARY = 384, 4, 64, 6144
AIMS = {4: ("ddp", 1.15), 1: ("plain loop", 1.05)}
AIM_MEMORY = 1.1            # of what the line at the start says


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=3, help="of each kind in a round")
    parser.add_argument("--rank", action="store_true")
    parser.add_argument("--memory", choices=("plain", "canonical"), help="only its peak")
    return parser.parse_args()


def start(options, ranks, *more):
    """The answer of rank 0: {"peer": [seconds], "canonical": [seconds], "peak": bytes, …}."""
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    network = Network(max(ranks, 2))
    network.shape(GIGABIT)
    cpus = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir="/run") as folder:
        environment = dict(
            os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", GLOO_SOCKET_IFNAME="wire",
            MUSTER_IFNAME="wire", MUSTER_RDZV_DIR=folder, MUSTER_RDZV_ID="bench",
            WORLD_SIZE=str(ranks), GROUP_WORLD_SIZE=str(ranks), LOCAL_RANK="0",
            LOCAL_WORLD_SIZE="1", MASTER_ADDR=network.address(0), MASTER_PORT="7100",
            PYTHONPATH=os.path.join(top, "python"),
            MUSTER_LIBRARY=os.path.join(options.build, ".libs", "libmuster.so.0"))
        processes = [
            subprocess.Popen(
                ["ip", "netns", "exec", f"n{rank}", "taskset", "-c", str(cpus[rank % len(cpus)]),
                 sys.executable, __file__, *sys.argv[1:], "--rank", *more],
                env=dict(environment, RANK=str(rank), GROUP_RANK=str(rank)),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE if rank == 0 else None, text=True)
            for rank in range(ranks)]
        answers = [process.communicate() for process in processes]
        if any(process.returncode for process in processes):
            sys.exit(f"torch_canonical: the ranks ended with "
                     f"{[process.returncode for process in processes]}: {answers[0][1]}")
    network.remove()
    said = [line for line in answers[0][1].splitlines() if "canonical: " in line]
    return {**json.loads(answers[0][0]), "said": "".join(said)}


def peak():
    """Bytes that have been resident at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def rank(options):
    import muster
    import torch
    import torch.distributed as dist

    world = muster.init()
    several = world.world_size > 1
    if several:
        dist.init_process_group("gloo")
    torch.manual_seed(1)

    def build():
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, 0.0, batch_first=True)
        model = torch.nn.Sequential(
            torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.TransformerEncoder(layer, LAYERS),
            torch.nn.Linear(WIDTH, VOCABULARY))
        return model, torch.optim.AdamW(model.parameters(), lr=1e-4)

    mine = SLOTS // world.world_size
    batches = [torch.randint(VOCABULARY, (SAMPLES, CONTEXT + 1)) for _ in range(mine)]

    def loss_of(model, batch):
        logits = model(batch[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(),
                                                 reduction="sum")

    def peer_step(model, optimizer):
        for i, batch in enumerate(batches):
            waits = several and i + 1 < mine
            with model.no_sync() if waits else contextlib.nullcontext():
                (loss_of(model, batch) / (SAMPLES * CONTEXT * mine)).backward()
        optimizer.step()
        optimizer.zero_grad()

    def our_step(equal, model, optimizer):
        for batch in equal.slots(batches):
            equal.backward(loss_of(model, batch), SAMPLES * CONTEXT)
        optimizer.step()

    if options.memory:
        model, optimizer = build()
        if options.memory == "canonical":
            equal = muster.canonical(model, SLOTS, deterministic=False)
        else:
            several = False
        for _ in range(4):
            if options.memory == "canonical":
                our_step(equal, model, optimizer)
            else:
                peer_step(model, optimizer)
        if world.rank == 0:
            print(json.dumps({"peak": peak()}))
        return
    model, optimizer = build()
    if several:
        model = torch.nn.parallel.DistributedDataParallel(model)
    peer_step(model, optimizer)
    own, own_optimizer = build()
    own_optimizer.zero_grad()
    equal = muster.canonical(own, SLOTS, deterministic=False)
    our_step(equal, own, own_optimizer)
    times = {"peer": [], "canonical": []}
    for _ in range(options.rounds):
        for kind in times:
            if several:
                dist.barrier()
            begun = time.perf_counter()
            for _ in range(options.steps):
                if kind == "peer":
                    peer_step(model, optimizer)
                else:
                    our_step(equal, own, own_optimizer)
            times[kind].append((time.perf_counter() - begun) / options.steps)
    if world.rank == 0:
        size = 4e-6 * sum(p.numel() for p in own.parameters())
        print(json.dumps({**times, "gradients": size, "version": torch.__version__}))


def report(options, ranks):
    found = start(options, ranks)
    name, aim = AIMS[ranks]
    peer, ours = statistics.median(found["peer"]), statistics.median(found["canonical"])
    ratio = statistics.median(o / p for o, p in zip(found["canonical"], found["peer"]))
    print(f"{ranks} ranks, {SLOTS} slots, {found['gradients']:.0f} MB of gradients: {name} "
          f"{peer * 1e3:.0f} ms, canonical {ours * 1e3:.0f} ms; load {os.getloadavg()[0]:.1f}")
    figure.tell(f"torch-canonical-{ranks}", ratio, f"x {name}", at_most=aim)
    plain, canonical = (start(options, ranks, "--memory", kind)["peak"] / 1e6
                        for kind in ("plain", "canonical"))
    # The plain loop has the gradients once, too.
    took, told = canonical - plain + found["gradients"], found["said"].split(" MB on rank 0")[0]
    told = float(told.split()[-1])
    print(f"  {found['said']}; at its peak a rank has {canonical:.0f} MB, and with the plain loop "
          f"{plain:.0f} MB")
    figure.tell(f"torch-canonical-memory-{ranks}", took / told, "x what it says",
                at_most=AIM_MEMORY)
    return found["version"]


if __name__ == "__main__":
    given = parse()
    if given.rank:
        rank(given)
    else:
        # names of networks and all files are this bench's own, and end with it
        sh("mount", "-t", "tmpfs", "tmpfs", "/run")
        version = [report(given, ranks) for ranks in (4, 1)][0]
        print(f"  PyTorch {version}, Python {sys.version.split()[0]}")
