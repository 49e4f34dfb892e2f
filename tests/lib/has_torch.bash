# SPDX-License-Identifier: Apache-2.0
# For the bats files that need Debian's PyTorch.
# shellcheck shell=bash

# Whether it is there: to import it takes seconds.
has_torch() {
    /usr/bin/python3 -c 'from importlib.util import find_spec; exit(not find_spec("torch"))'
}
