# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of checkpoint.sh: trains a GPT-2, saves its state in one of several ways, and
loads it.

    checkpoint_torch.py MODE FOLDER THREADS LAYERS WIDTH HEADS CONTEXT VOCABULARY BATCH

MODE is how a save is made:
    save      torch.save to a file
    durable   torch.save, then fsync of the file and of its folder
    thread    torch.distributed.checkpoint.async_save, which copies the state and writes it in a
              thread; as documented
    staged    the same, with a stager that keeps its memory and copies in a thread: the step waits
              before its update
    process   async_save by a process, over memory that both share
    snapshot  torchsnapshot's Snapshot.async_take
    flash     DLRover's flash checkpoint: a copy to shared memory, which another process writes
    muster    run.save() of the package muster
DCP does its own fsync of each file. The state is a flat dictionary of the weights and of AdamW's
moments, so that no time goes into collecting it.

Commands, a line each, answered by one line of JSON:
    train SAVES QUIET  ->  {"steps": [[begin, end] …], "saves": [[begin, durable, bytes] …]}; after
    QUIET steps without a
                           save and between the end of a save and the next
    load               ->  seconds of loading the newest checkpoint
    version            ->  PyTorch's"""
import json
import os
import shutil
import socket
import sys
import time

if sys.argv[1] == "muster":
    import muster
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from train_torch import Run

if sys.argv[1] == "snapshot":
    import torchsnapshot
if sys.argv[1] == "flash":
    from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer, StorageType


def open_group():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=0, world_size=1)


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def size_of(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(folder, name))
               for folder, _, names in os.walk(path) for name in names)


def remove(path):
    if os.path.isfile(path):
        os.remove(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


class Training(Run):
    def __init__(self, mode, folder, shape):
        super().__init__("eager", *shape)
        self.mode, self.folder = mode, folder
        self.saved = []         # [begin, durable, path]
        self.pending = None     # the save in flight
        self.staging = None     # its copy, which must end before the next update
        self.stager = None
        if mode in ("staged", "process"):
            self.stager = DefaultStager(StagingOptions(use_pinned_memory=False,
                                                       use_shared_memory=mode == "process",
                                                       use_async_staging=mode == "staged",
                                                       use_non_blocking_copy=False))
        if mode == "muster":
            muster.init()
            self.run = muster.attach(os.path.join(folder, "muster"), model=self.model,
                                     optimizer=self.optimizer, every=None, seed_generators=False)
        elif mode not in ("save", "durable"):
            open_group()
        if mode == "flash":
            self.checkpointer = DdpCheckpointer(os.path.join(folder, "flash"))

    def step(self):
        loss = self.forward(self.tokens, self.targets)
        loss.backward()
        if self.staging:
            self.staging.result()
            self.staging = None
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss.item()
        if self.mode == "muster":
            self.run.end_step()

    def state(self):
        names = dict(self.model.named_parameters())
        moments = {name: self.optimizer.state[parameter] for name, parameter in names.items()}
        return {"weights": {name: parameter.detach() for name, parameter in names.items()},
                "m": {name: one["exp_avg"] for name, one in moments.items()},
                "v": {name: one["exp_avg_sq"] for name, one in moments.items()}}

    def save(self):
        entry = [time.time(), None, os.path.join(self.folder, f"{self.mode}-{len(self.saved)}")]
        self.saved.append(entry)
        if self.mode in ("save", "durable"):
            torch.save(self.state(), entry[2])
            if self.mode == "durable":
                sync(entry[2])
                sync(self.folder)
            entry[1] = time.time()
            return
        if self.mode == "muster":
            self.pending = self.run.save()
            entry[2] = os.path.join(self.folder, "muster", f"step-{self.pending.step:08d}")
            return
        if self.mode == "snapshot":
            self.pending = torchsnapshot.Snapshot.async_take(
                entry[2], {"state": torchsnapshot.StateDict(**self.state())})
            return
        if self.mode == "flash":
            step = len(self.saved)
            entry[2] = os.path.join(self.folder, "flash", f"{step}.pt")
            self.checkpointer.save_checkpoint(step, self.state(), entry[2],
                                              storage_type=StorageType.DISK)
            self.pending = os.path.join(self.folder, "flash", "dlrover_latest.txt"), step
            return
        response = dcp.async_save(
            self.state(), checkpoint_id=entry[2], async_stager=self.stager,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS if self.mode == "process"
            else AsyncCheckpointerType.THREAD)
        self.staging = getattr(response, "staging_completion", None)
        self.pending = getattr(response, "upload_completion", response)
        self.pending.add_done_callback(lambda _: entry.__setitem__(1, time.time()))

    def finished(self):
        if self.mode == "muster" and self.pending:
            if os.path.exists(self.saved[-1][2]):  # the rename commits it, and sets the time
                self.saved[-1][1] = os.stat(self.saved[-1][2]).st_ctime
                self.pending = None
            return not self.pending
        if self.mode == "flash" and self.pending:
            if self.written(*self.pending):
                self.saved[-1][1] = os.stat(self.pending[0]).st_mtime
                self.pending = None
            return not self.pending
        if self.pending and not self.pending.done():
            return False
        if self.pending and self.mode == "snapshot":
            self.saved[-1][1] = os.stat(
                os.path.join(self.saved[-1][2], ".snapshot_metadata")).st_mtime
            self.pending.wait()
            self.pending = None
        if self.pending:
            self.pending.result()
            self.pending = None
        return True

    @staticmethod
    def written(tracker, step):
        try:
            with open(tracker, encoding="utf-8") as file:
                return file.read().strip() == str(step)
        except FileNotFoundError:
            return False

    def timed(self, steps, save):
        begin = time.time()
        if save:
            self.save()
        self.step()
        steps.append([begin, time.time()])

    def train(self, saves, quiet):
        steps = []
        for _ in range(2):
            self.step()  # allocates
        for number in range(saves + 1):
            if number:
                self.timed(steps, save=True)
                while not self.finished():
                    self.timed(steps, save=False)
            if number > 2 and self.mode != "muster":  # which keeps two by itself
                remove(self.saved[number - 3][2])  # between two steps, not timed
            for _ in range(quiet):
                self.timed(steps, save=False)
        return {"steps": steps, "saves": [[begin, end, size_of(self.saved[-1][2])]
                                          for begin, end, _ in self.saved]}

    def load(self):
        path = self.saved[-1][2]
        begin = time.time()
        if self.mode == "muster":
            muster.load(os.path.dirname(path))
        elif self.mode in ("save", "durable", "flash"):
            torch.load(path)
        elif self.mode == "snapshot":
            torchsnapshot.Snapshot(path).restore(
                {"state": torchsnapshot.StateDict(**self.state())})
        else:
            dcp.load(self.state(), checkpoint_id=path)
        return time.time() - begin

    def close(self):
        if self.mode == "muster":
            self.run.finish()
            remove(os.path.join(self.folder, "muster"))
            return
        if self.stager:
            self.stager.close()
        for _, _, path in self.saved:
            remove(path)


def main():
    torch.set_num_threads(int(sys.argv[3]))
    training = Training(sys.argv[1], sys.argv[2], map(int, sys.argv[4:]))
    for line in sys.stdin:
        word, *numbers = line.split()
        answer = {"train": training.train, "load": training.load,
                  "version": lambda: torch.__version__}[word]
        print(json.dumps(answer(*map(int, numbers))), flush=True)
    training.close()


if __name__ == "__main__":
    main()
