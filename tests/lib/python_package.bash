# SPDX-License-Identifier: Apache-2.0
# For the bats files that run Python programs.
# shellcheck shell=bash

# They import the package that this build has installed.
python_package() {
    export MUSTER_LIBRARY=$MUSTER_PREFIX/lib/libmuster.so.0 PYTHONDONTWRITEBYTECODE=1
    export PYTHONPATH=$MUSTER_PREFIX/share/muster/python
}
