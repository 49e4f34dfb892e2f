# SPDX-License-Identifier: Apache-2.0
"""doc_programs.py DOCUMENT FOLDER: runs the programs in a document. Each block goes on from the
first one, which makes the run, or makes its own."""

import os
import pathlib
import re
import subprocess
import sys

HANG = 100 * int(os.environ.get("MUSTER_PATIENCE", "3"))  # seconds, for hangs only
text = pathlib.Path(sys.argv[1]).read_text()
first, *others = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
for number, block in enumerate(["", *others]):
    program = pathlib.Path(sys.argv[2], f"block{number}.py")
    whole = block if "muster.init()" in block else first + "\n" + block
    program.write_text(whole.replace("/shared/", f"{sys.argv[2]}/{number}-"))
    print(f"--- block {number + 1}", flush=True)
    done = subprocess.run([sys.executable, program], cwd=sys.argv[2], timeout=HANG)
    assert done.returncode == 0, block
