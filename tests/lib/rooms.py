#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rooms.py TOP: holds every #include of the sources against the table of rooms in HACKING.md.

Prints a line for each include that the table does not allow, for each source outside all rooms, for
each room with more than 30 sources, for each circle of rooms in the table and for each circle of
headers; exits with 1 if there is one, 2 if the table can't be read.
"""
import os
import re
import sys

SOURCES_MAX = 30
FREE = ("tests/", "bench/", "slurm-examples/", "build")


def read_table(path):
    """{room: [rooms it may include]}; a room is a folder without its last slash, or one file."""
    rooms = {}
    for line in open(path, encoding="utf-8"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 3 and re.fullmatch(r"`[a-z_/.]+`", cells[0]):
            rooms[cells[0].strip("`").rstrip("/")] = re.findall(r"`([a-z_/.]+)`", cells[2])
    return rooms


def reach(graph, start):
    """All that can be come to from `start`, but not itself unless there is a circle."""
    seen, left = set(), list(graph[start])
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left += graph.get(node, ())
    return seen


def sources(top):
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        place = os.path.relpath(folder, top)
        for name in files:
            path = os.path.normpath(os.path.join(place, name))
            if re.search(r"\.(c|h|cc|cu)$", name) and "/" in path and not path.startswith(FREE):
                yield path


def included(top, path):
    text = open(os.path.join(top, path), encoding="utf-8").read()
    for name in re.findall(r'^ *# *include "([^"]+)"', text, re.MULTILINE):
        if os.path.exists(os.path.join(top, name)):
            yield name


def main(top):
    rooms = read_table(os.path.join(top, "HACKING.md"))
    if len(rooms) < 2:
        print("rooms.py: HACKING.md has no table of rooms", file=sys.stderr)
        return 2
    faults = [f"HACKING.md: {room} may include {other}, which is no room" for room in rooms
              for other in rooms[room]
              if other not in rooms]
    faults += [f"HACKING.md: {room} may include itself by way of others" for room in rooms
               if not faults and room in reach(rooms, room)]
    counts, headers = dict.fromkeys(rooms, 0), {}

    def room_of(path):
        return path if path in rooms else max((room for room in rooms
                                               if path.startswith(room + "/")), key=len,
                                              default=None)

    for path in sorted(sources(top)):
        room = room_of(path)
        if room is None:
            faults.append(f"{path} is in no room of HACKING.md")
            continue
        counts[room] += not path.endswith(".h")
        names = list(included(top, path))
        if path.endswith(".h"):
            headers[path] = names
        allowed = {room} | reach(rooms, room)
        faults += [f"{path} includes {name}, which {room} may not" for name in names
                   if room_of(name) not in allowed]
    faults += [f"{path} includes itself by way of others" for path in headers
               if path in reach(headers, path)]
    faults += [f"{room} has {count} sources: more than {SOURCES_MAX}"
               for room, count in counts.items() if count > SOURCES_MAX]
    print("".join(fault + "\n" for fault in faults), end="")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
