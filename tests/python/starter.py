# SPDX-License-Identifier: Apache-2.0
"""Starts programs that use PyTorch as if each had a Python of its own, without the seconds of
importing it: a copy of this process, which has done so, goes on as the program, with its
environment, its session and its end. Reads a request a line, and writes the process's ID, whose
parent becomes the one that has asked (it is a subreaper)."""

import importlib
import json
import os
import random
import sys
import types

for name in ("torch", "torch.distributed", "torch.utils.data"):
    importlib.import_module(name)


def fork_orphan():
    """As fork; the new process is no child of this one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        orphan = os.fork()
        if orphan == 0:
            os.close(reading)
            os.close(writing)
            return 0
        os.write(writing, b"%d\n" % orphan)
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        orphan = int(told.read())
    os.waitpid(child, 0)
    return orphan


def next_program():
    """Returns in each program's process."""
    while True:
        line = b""
        while not line.endswith(b"\n"):  # nothing is read ahead: the copies would have it, too
            more = os.read(0, 1)
            if not more:
                os._exit(0)
            line += more
        orphan = fork_orphan()
        if orphan == 0:
            return json.loads(line)
        os.write(1, b"%d\n" % orphan)


def become(request):
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["output"], os.O_WRONLY | os.O_APPEND)
    for number, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(number, target)
    os.close(null)
    os.close(output)
    sys.argv = request["words"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    random.seed()
    main = types.ModuleType("__main__")
    main.__file__ = sys.argv[0]
    sys.modules["__main__"] = main
    with open(sys.argv[0], "rb") as file:
        return compile(file.read(), sys.argv[0], "exec"), vars(main)


# Last, so that the program's end is the interpreter's.
exec(*become(next_program()))
