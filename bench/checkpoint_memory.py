# SPDX-License-Identifier: Apache-2.0
"""Peak memory of processes that checkpoint.py watches, read from /proc twice a second."""
import os
import threading


def status(pid):
    """The numbers of /proc/PID/status in bytes; {} when there is no such process."""
    numbers = {}
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                words = value.split()
                if words and words[0].isdigit():
                    numbers[name] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    except OSError:
        return {}
    return numbers


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(parent):
    """Living processes below `parent`."""
    parents = {pid: status(pid).get("PPid") for pid in pids()}
    found = [parent]
    for pid in found:
        found.extend(child for child, of in parents.items() if of == pid)
    return found[1:]


def running(program):
    """Processes whose program file is `program`."""
    found = []
    for pid in pids():
        try:
            if os.path.samefile(f"/proc/{pid}/exe", program):
                found.append(pid)
        except OSError:
            pass
    return found


class Watch:
    """Follows one process, and the others that `others()` lists."""
    def __init__(self, pid, others):
        self.pid, self.others = pid, others
        self.peak = {}  # pid: (peak resident bytes, bytes of it that are shared memory)
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def look(self):
        for pid in [self.pid, *self.others()]:
            numbers = status(pid)
            resident, shared = self.peak.get(pid, (0, 0))
            self.peak[pid] = (max(resident, numbers.get("VmHWM", 0)),
                              max(shared, numbers.get("RssShmem", 0)))

    def run(self):
        while not self.ending.wait(0.5):
            self.look()

    def stop(self):
        """{"trainer": (resident, shared), "service": …}, the service being all others together;
        None without one."""
        self.look()
        self.ending.set()
        self.thread.join()
        rest = [peak for pid, peak in self.peak.items() if pid != self.pid]
        return {"trainer": self.peak[self.pid],
                "service": tuple(max(values) for values in zip(*rest)) if rest else None}
