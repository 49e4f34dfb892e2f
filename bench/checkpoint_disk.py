# SPDX-License-Identifier: Apache-2.0
"""What the disk gives by itself, for checkpoint.py: fio's sequential write and read, and a cache
without our files."""
import json
import os
import statistics
import subprocess

WAYS = {  # the better of these counts, for writing and for reading
    "direct, 1 MiB": ["--direct=1", "--bs=1m", "--ioengine=libaio", "--iodepth=8"],
    "direct, 4 MiB": ["--direct=1", "--bs=4m", "--ioengine=libaio", "--iodepth=8"],
    "buffered, 1 MiB": ["--direct=0", "--bs=1m", "--ioengine=psync"],
}


def forget(*paths):
    """The files (or all in the folders) leave the page cache; as root all other clean pages do,
    too."""
    os.sync()
    for path in paths:
        names = [path] if os.path.isfile(path) else [os.path.join(path, name)
                                                     for name in os.listdir(path)]
        for name in names:
            descriptor = os.open(name, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("1")


def fio(name, size, *options):
    command = ["fio", "--name=checkpoint", f"--filename={name}", f"--size={size}",
               "--output-format=json", *options]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    job = json.loads(result.stdout)["jobs"][0]
    return job["write" if "--rw=write" in options
               else "read"]["io_bytes"] / (job["job_runtime"] / 1e3)


def measure(folder, size, rounds):
    """Bytes a second as {"write": {way: median}, "read": …}. Each write is to a new file and ends
    with fsync; each read begins with a cold cache."""
    rates = {"write": {way: [] for way in WAYS}, "read": {way: [] for way in WAYS}}
    name = os.path.join(folder, "fio")
    for _ in range(rounds):
        for way, options in WAYS.items():
            rates["write"][way].append(fio(name, size, "--rw=write", "--end_fsync=1", *options))
            forget(name)
            rates["read"][way].append(fio(name, size, "--rw=read", *options))
            os.remove(name)
            os.sync()
    return {which: {way: statistics.median(values) for way, values in ways.items()}
            for which, ways in rates.items()}
