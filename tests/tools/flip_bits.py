# SPDX-License-Identifier: Apache-2.0
# flip_bits.py PID: one bit in each page of the state that a rank of muster-train has, in all its
# sets: weights and moments.
import glob, os, sys


def name(fd):
    try:
        return os.readlink(fd)
    except FileNotFoundError:  # closed since
        return ""


flipped = 0
for fd in glob.glob(f"/proc/{sys.argv[1]}/fd/*"):
    if "muster-snapshot" not in name(fd):
        continue
    with open(fd, "r+b", buffering=0) as memory:
        for at in range(1, os.fstat(memory.fileno()).st_size, 4096):
            byte = os.pread(memory.fileno(), 1, at)
            flipped += os.pwrite(memory.fileno(), bytes([byte[0] ^ 1]), at)
assert flipped
