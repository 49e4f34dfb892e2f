# SPDX-License-Identifier: Apache-2.0
"""walks.py TOP: holds the walks of HACKING.md against the sources. Prints a line for each row whose
file or function is not there, and for each count of hops and files that is wrong."""
import os
import re
import sys

COUNT = re.compile(r"(\d+) hops through (\d+) files\.$")
ROW = re.compile(r"\| ?(\d*) \| (`[^|]+`) \| (`[^|]+`) \|")


def sources(cell):
    """The files that a cell names: the later ones of a folder by their last part alone."""
    folder = ""
    for name in re.findall(r"`([^`]+)`", cell):
        folder = os.path.dirname(name) or folder
        yield os.path.join(folder, os.path.basename(name))


def check_row(top, number, files, functions):
    text = ""
    for name in files:
        path = os.path.join(top, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                text += file.read()
        else:
            print(f"HACKING.md: hop {number}: there is no {name}")
    for function in re.findall(r"`(\w+)`", functions):
        if not re.search(rf"\b{function}\(|\b{function}\b[,)]", text):
            print(f"HACKING.md: hop {number}: no {function} in {', '.join(files)}")


def main(top):
    with open(os.path.join(top, "HACKING.md"), encoding="utf-8") as file:
        lines = file.read().split("\n")
    walks, told = [], []
    for line in lines:
        count, row = COUNT.search(line), ROW.match(line)
        if count:
            told.append((int(count[1]), int(count[2])))
            walks.append((0, set()))
        elif row and walks:
            hops, files = walks[-1]
            named = list(sources(row[2]))
            check_row(top, row[1] or "0", named, row[3])
            walks[-1] = (hops + (row[1] != ""), files | set(named))
            if row[1] and int(row[1]) != hops + 1:
                print(f"HACKING.md: hop {row[1]} follows hop {hops}")
    for (hops, files), said in zip(walks, told):
        if (hops, len(files)) != said:
            print(f"HACKING.md: {said[0]} hops through {said[1]} files are {hops} through "
                  f"{len(files)}")
    if len(walks) < 3:
        print(f"HACKING.md: {len(walks)} walks are counted, not the three of its section")


main(sys.argv[1])
